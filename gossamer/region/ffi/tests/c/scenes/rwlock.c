/* Writers keep all words of a table equal, readers count words that differ. */
static pthread_rwlock_t lock@K = PTHREAD_RWLOCK_INITIALIZER;
static unsigned words@K[@[2..2000]];
static atomic_uint torn@K, reads@K;
enum { WORDS@K = sizeof words@K / sizeof *words@K };
static void *body@K(void *number) {
    for (int i = 0; i < @R; i++) {
        if ((i + (int)(intptr_t)number) % @[2..4] == 0) {
            MUST(pthread_rwlock_wrlock(&lock@K) == 0);
            for (int at = 0; at < WORDS@K; at++)
                words@K[at]++;
        } else {
            MUST(pthread_rwlock_rdlock(&lock@K) == 0);
            for (int at = 1; at < WORDS@K; at += @[1..9])
                torn@K += words@K[at] != words@K[0];
            reads@K++;
        }
        MUST(pthread_rwlock_unlock(&lock@K) == 0);
    }
    return NULL;
}
static void scene@K(void) {
    run(@T, body@K);
    say(@K, "words %u, reads %u, torn %u\n", words@K[WORDS@K - 1], reads@K, torn@K);
}
