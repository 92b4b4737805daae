/* Variables of threads, and errno, are each thread's own. */
static __thread unsigned count@K = @[1..9];
static __thread char name@K[@[8..3000]] = "thread";
static void *body@K(void *number) {
    for (int i = 0; i < @R; i++) {
        count@K += (int)(intptr_t)number;
        errno = 0;
        MUST(close(-1) == -1 && errno == EBADF);
        @{sched_yield()|usleep(1)};
        MUST(errno == EBADF && strcmp(name@K, "thread") == 0);
        errno = (int)(intptr_t)number;
        sched_yield();
        MUST(errno == (int)(intptr_t)number);
    }
    return (void *)(uintptr_t)count@K;
}
static void scene@K(void) {
    unsigned long sum = run(@T, body@K);
    say(@K, "sum %lu, own %u\n", sum, count@K);
}
