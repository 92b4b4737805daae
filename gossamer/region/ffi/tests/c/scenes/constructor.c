/* A constructor allocates before main, and threads change that memory. */
static unsigned *made@K;
__attribute__((constructor)) static void make@K(void) {
    made@K = calloc(@T, @{4|64|4096});
    made@K[0] = @[1..99];
}
static void *body@K(void *number) {
    for (int i = 0; i < @R; i++)
        __atomic_fetch_add(&made@K[0], 1 + (unsigned)(intptr_t)number, __ATOMIC_SEQ_CST);
    return NULL;
}
static void scene@K(void) {
    made@K = realloc(made@K, 100000);
    run(@T, body@K);
    say(@K, "made %u\n", made@K[0]);
    free(made@K);
}
