/* Waits with a time limit that is over, and locks that are taken. */
static pthread_mutex_t lock@K = PTHREAD_MUTEX_INITIALIZER, mine@K = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never@K = PTHREAD_COND_INITIALIZER;
static void *body@K(void *number) {
    (void)number;
    unsigned long over = 0;
    struct timespec now;
    for (int i = 0; i < @R; i++) {
        clock_gettime(CLOCK_REALTIME, &now);
        pthread_mutex_lock(&lock@K);
        over += pthread_cond_timedwait(&never@K, &lock@K, &now) == ETIMEDOUT;
        pthread_mutex_unlock(&lock@K);
        over += pthread_mutex_trylock(&mine@K) == EBUSY;
        over += pthread_mutex_timedlock(&mine@K, &now) == ETIMEDOUT;
    }
    return (void *)over;
}
static void scene@K(void) {
    pthread_mutex_lock(&mine@K);
    unsigned long over = run(@T, body@K);
    pthread_mutex_unlock(&mine@K);
    say(@K, "over %lu\n", over);
}
