/* Producers hand strings of their own memory to consumers by a bounded queue with two conditions. */
enum { ROOM@K = @[1..9], ITEMS@K = @R * 2 };
static struct { pthread_mutex_t lock; pthread_cond_t full, empty; char *items[ROOM@K]; int from, to, count; } q@K =
    {.lock = PTHREAD_MUTEX_INITIALIZER, .full = PTHREAD_COND_INITIALIZER, .empty = PTHREAD_COND_INITIALIZER};
static unsigned long taken@K, letters@K;
static void *produce@K(void *number) {
    for (int i = 0; i < ITEMS@K; i++) {
        char *item = malloc(@[8..600] + 32);
        sprintf(item, "item %d of %d", i, (int)(intptr_t)number);
        pthread_mutex_lock(&q@K.lock);
        while (q@K.count == ROOM@K)
            pthread_cond_wait(&q@K.full, &q@K.lock);
        q@K.items[q@K.to] = item;
        q@K.to = (q@K.to + 1) % ROOM@K;
        q@K.count++;
        pthread_cond_@{signal|broadcast}(&q@K.empty);
        pthread_mutex_unlock(&q@K.lock);
    }
    return NULL;
}
static void *consume@K(void *number) {
    (void)number;
    for (int i = 0; i < ITEMS@K; i++) {
        pthread_mutex_lock(&q@K.lock);
        while (q@K.count == 0)
            pthread_cond_wait(&q@K.empty, &q@K.lock);
        char *item = q@K.items[q@K.from];
        q@K.from = (q@K.from + 1) % ROOM@K;
        q@K.count--;
        taken@K++;
        letters@K += strlen(item);
        pthread_cond_@{signal|broadcast}(&q@K.full);
        pthread_mutex_unlock(&q@K.lock);
        free(item);
    }
    return NULL;
}
static void *both@K(void *number) {
    return (intptr_t)number % 2 ? produce@K(number) : consume@K(number);
}
static void scene@K(void) {
    run(2 * @[1..3], both@K);
    say(@K, "taken %lu with %lu letters, %d left\n", taken@K, letters@K, q@K.count);
}
