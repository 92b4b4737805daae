/* Two threads take turns by two semaphores, and write letters to one buffer. */
static sem_t turns@K[2];
static char letters@K[2 * @R + 1];
static int length@K;
static void *body@K(void *number) {
    int own = (int)(intptr_t)number;
    for (int i = 0; i < @R; i++) {
        while (sem_@{wait|wait|trywait}(&turns@K[own]) != 0)
            sched_yield();
        letters@K[length@K++] = 'a' + (own * 13 + i) % 26;
        MUST(sem_post(&turns@K[1 - own]) == 0);
    }
    return NULL;
}
static void scene@K(void) {
    sem_init(&turns@K[0], 0, 1);
    sem_init(&turns@K[1], 0, 0);
    run(2, body@K);
    int left = -1;
    sem_getvalue(&turns@K[0], &left);
    say(@K, "letters %s, left %d\n", letters@K, left);
}
