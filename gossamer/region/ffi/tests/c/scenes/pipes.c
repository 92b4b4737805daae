/* Threads write records to a pipe or socket, another one reads them until all have closed it. */
static int ends@K[2];
static pthread_mutex_t lock@K = PTHREAD_MUTEX_INITIALIZER;
static int writers@K = @T;
static void *body@K(void *number) {
    int record[2];
    if ((intptr_t)number == @T) {
        unsigned long sum = 0;
        while (read(ends@K[0], record, sizeof record) == sizeof record)
            sum += record[0] * 1000ul + record[1];
        return (void *)sum;
    }
    for (int i = 0; i < @R; i++) {
        record[0] = (int)(intptr_t)number;
        record[1] = i;
        MUST(write(ends@K[1], record, sizeof record) == sizeof record);
    }
    pthread_mutex_lock(&lock@K);
    if (--writers@K == 0)
        close(ends@K[1]);
    pthread_mutex_unlock(&lock@K);
    return NULL;
}
static void scene@K(void) {
    MUST(@{pipe(ends@K)|pipe2(ends@K, O_CLOEXEC)|socketpair(AF_UNIX, SOCK_STREAM, 0, ends@K)} == 0);
    say(@K, "sum %lu\n", run(@T + 1, body@K));
    close(ends@K[0]);
}
