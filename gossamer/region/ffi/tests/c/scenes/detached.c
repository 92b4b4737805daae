/* Detached threads count down a latch, for which the scene waits. */
static pthread_mutex_t lock@K = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t zero@K = PTHREAD_COND_INITIALIZER;
static int left@K = @T * 2;
static unsigned long sum@K;
static void *body@K(void *number) {
    pthread_mutex_lock(&lock@K);
    sum@K += (unsigned long)(intptr_t)number * @R;
    if (--left@K == 0)
        pthread_cond_signal(&zero@K);
    pthread_mutex_unlock(&lock@K);
    return NULL;
}
static void scene@K(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, @{65536|262144|1048576});
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (intptr_t i = 0; i < @T * 2; i++) {
        pthread_t id;
        MUST(pthread_create(&id, &attributes, body@K, (void *)i) == 0);
    }
    pthread_mutex_lock(&lock@K);
    while (left@K)
        pthread_cond_wait(&zero@K, &lock@K);
    pthread_mutex_unlock(&lock@K);
    say(@K, "sum %lu\n", sum@K);
}
