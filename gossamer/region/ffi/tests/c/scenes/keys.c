/* Values of a key, made once; destructors add to a sum before their threads are joined. */
static pthread_key_t key@K;
static pthread_once_t once@K = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock@K = PTHREAD_MUTEX_INITIALIZER;
static int made@K;
static unsigned long sum@K, gone@K;
static void end@K(void *value) {
    pthread_mutex_lock(&lock@K);
    sum@K += *(unsigned long *)value;
    gone@K++;
    pthread_mutex_unlock(&lock@K);
    free(value);
}
static void make@K(void) {
    @{|usleep(20000);}
    MUST(pthread_key_create(&key@K, end@K) == 0);
    made@K++;
}
static void *body@K(void *number) {
    pthread_once(&once@K, make@K);
    MUST(pthread_getspecific(key@K) == NULL);
    unsigned long *value = calloc(1, sizeof *value);
    pthread_setspecific(key@K, value);
    for (int i = 0; i < @R; i++)
        *(unsigned long *)pthread_getspecific(key@K) += i + (unsigned long)(intptr_t)number;
    @{return NULL|pthread_exit(NULL)};
}
static void scene@K(void) {
    run(@T, body@K);
    say(@K, "made %d, gone %lu, sum %lu\n", made@K, gone@K, sum@K);
}
