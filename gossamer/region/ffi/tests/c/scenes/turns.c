/* alone: threads print lines in turn, straight to standard output. */
static pthread_mutex_t lock@K = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change@K = PTHREAD_COND_INITIALIZER;
static int turn@K;
static void *body@K(void *number) {
    for (int i = (int)(intptr_t)number; i < @R * @T; i += @T) {
        pthread_mutex_lock(&lock@K);
        while (turn@K != i)
            pthread_cond_wait(&change@K, &lock@K);
        @{printf("turn %d\n", i)|fprintf(stdout, "turn %05d\n", i)|puts(i % 3 ? "one line" : "another line")};
        @{|fflush(stdout);}
        turn@K++;
        pthread_cond_broadcast(&change@K);
        pthread_mutex_unlock(&lock@K);
    }
    return NULL;
}
static void scene@K(void) {
    run(@T, body@K);
}
