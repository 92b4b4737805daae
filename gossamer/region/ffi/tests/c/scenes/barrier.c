/* Phases between barriers: each thread reads the others' cells of the phase before. */
static pthread_barrier_t barrier@K;
static unsigned cells@K[2][MOST_THREADS][@{1|16|1024}];
static atomic_uint serial@K;
static void *body@K(void *number) {
    int own = (int)(intptr_t)number;
    cells@K[0][own][0] = @S % 1000 + own;
    for (int phase = 0; phase < @R; phase++) {
        serial@K += pthread_barrier_wait(&barrier@K) == PTHREAD_BARRIER_SERIAL_THREAD;
        unsigned sum = phase;
        for (int i = 0; i < @T; i++)
            sum = mix(sum, cells@K[phase % 2][i][0]);
        cells@K[1 - phase % 2][own][0] = sum + own;
    }
    return NULL;
}
static void scene@K(void) {
    MUST(pthread_barrier_init(&barrier@K, NULL, @T) == 0);
    run(@T, body@K);
    MUST(pthread_barrier_destroy(&barrier@K) == 0);
    say(@K, "cell %u, serial %u\n", cells@K[@R % 2][@T - 1][0], serial@K);
}
