/* Threads write records to a stream that main has opened, in turn, and main reads them. */
static FILE *stream@K;
static pthread_mutex_t lock@K = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change@K = PTHREAD_COND_INITIALIZER;
static int turn@K;
static void *body@K(void *number) {
    for (int i = (int)(intptr_t)number; i < @R * @T; i += @T) {
        pthread_mutex_lock(&lock@K);
        while (turn@K != i)
            pthread_cond_wait(&change@K, &lock@K);
        fprintf(stream@K, "record %d of a stream, which fills its buffer before all are there\n", i);
        turn@K++;
        pthread_cond_broadcast(&change@K);
        pthread_mutex_unlock(&lock@K);
    }
    return NULL;
}
static void scene@K(void) {
    char line[128], last[128] = "";
    unsigned sum = 0, lines = 0;
    stream@K = fdopen(temporary(), "w+");
    run(@T, body@K);
    rewind(stream@K);
    for (; fgets(line, sizeof line, stream@K); lines++, strcpy(last, line))
        for (char *at = line; *at; at++)
            sum = mix(sum, *at);
    fclose(stream@K);
    say(@K, "lines %u, sum %x, last %s", lines, sum, last);
}
