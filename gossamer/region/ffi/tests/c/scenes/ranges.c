/* Threads write ranges of one file that main has opened, and read those of others after a barrier. */
static int file@K;
static pthread_barrier_t barrier@K;
enum { BYTES@K = @[100..9000] };
static void *body@K(void *number) {
    int own = (int)(intptr_t)number, other = (own + 1) % @T;
    unsigned char bytes[BYTES@K];
    for (int i = 0; i < BYTES@K; i++)
        bytes[i] = i * (own + 3);
    MUST(pwrite(file@K, bytes, BYTES@K, own * BYTES@K) == BYTES@K);
    pthread_barrier_wait(&barrier@K);
    MUST(pread(file@K, bytes, BYTES@K, other * BYTES@K) == BYTES@K);
    unsigned sum = 0;
    for (int i = 0; i < BYTES@K; i++)
        sum = mix(sum, bytes[i]);
    return (void *)(uintptr_t)sum;
}
static void scene@K(void) {
    struct stat about;
    file@K = temporary();
    pthread_barrier_init(&barrier@K, NULL, @T);
    unsigned long sum = run(@T, body@K);
    fstat(file@K, &about);
    say(@K, "bytes %ld, sum %lx, close %d\n", (long)about.st_size, sum, close(file@K));
}
