/* Spin locks around a few statements. */
static pthread_spinlock_t spin@K;
static unsigned long count@K, sum@K;
static void *body@K(void *number) {
    for (int i = 0; i < @R; i++) {
        pthread_spin_lock(&spin@K);
        count@K++;
        sum@K += i * (unsigned long)(intptr_t)number;
        pthread_spin_unlock(&spin@K);
    }
    return NULL;
}
static void scene@K(void) {
    pthread_spin_init(&spin@K, PTHREAD_PROCESS_PRIVATE);
    run(@T, body@K);
    say(@K, "count %lu, sum %lu\n", count@K, sum@K);
}
