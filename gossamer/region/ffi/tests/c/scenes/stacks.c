/* Threads recurse, and hand pointers to their stacks to another thread, which changes them. */
static struct { pthread_mutex_t lock; pthread_cond_t change; unsigned *cell; int end; } desk@K =
    {.lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_COND_INITIALIZER};
static void *serve@K(void *unused) {
    (void)unused;
    pthread_mutex_lock(&desk@K.lock);
    for (;;) {
        while (!desk@K.cell && !desk@K.end)
            pthread_cond_wait(&desk@K.change, &desk@K.lock);
        if (!desk@K.cell)
            break;
        *desk@K.cell = *desk@K.cell * 2 + 1;
        desk@K.cell = NULL;
        pthread_cond_broadcast(&desk@K.change);
    }
    pthread_mutex_unlock(&desk@K.lock);
    return NULL;
}
static unsigned ask@K(int depth) {
    unsigned cell[@[1..700]];
    cell[0] = depth == 0 ? 7 : ask@K(depth - 1);
    pthread_mutex_lock(&desk@K.lock);
    while (desk@K.cell)
        pthread_cond_wait(&desk@K.change, &desk@K.lock);
    desk@K.cell = cell;
    pthread_cond_broadcast(&desk@K.change);
    while (desk@K.cell == cell)
        pthread_cond_wait(&desk@K.change, &desk@K.lock);
    pthread_mutex_unlock(&desk@K.lock);
    return cell[0] % 100003;
}
static void *body@K(void *number) {
    return (void *)(uintptr_t)ask@K(@[1..25] + (int)(intptr_t)number);
}
static void scene@K(void) {
    pthread_t server;
    MUST(pthread_create(&server, NULL, serve@K, NULL) == 0);
    unsigned long sum = run(@T, body@K);
    pthread_mutex_lock(&desk@K.lock);
    desk@K.end = 1;
    pthread_cond_broadcast(&desk@K.change);
    pthread_mutex_unlock(&desk@K.lock);
    pthread_join(server, NULL);
    say(@K, "sum %lu\n", sum);
}
