/* A lock by futex(2). */
static atomic_int word@K;
static unsigned long count@K;
static void lock@K(void) {
    int free = 0;
    if (atomic_compare_exchange_strong(&word@K, &free, 1))
        return;
    while (atomic_exchange(&word@K, 2) != 0)
        syscall(SYS_futex, &word@K, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
}
static void unlock@K(void) {
    if (atomic_exchange(&word@K, 0) == 2)
        syscall(SYS_futex, &word@K, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
static void *body@K(void *number) {
    (void)number;
    for (int i = 0; i < @R; i++) {
        lock@K();
        count@K++;
        @{|usleep(100);}
        unlock@K();
    }
    return NULL;
}
static void scene@K(void) {
    run(@T, body@K);
    say(@K, "count %lu\n", count@K);
}
