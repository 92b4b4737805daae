/* Threads leave nested calls by longjmp. */
static int deep@K(jmp_buf *back, int depth, unsigned *sum) {
    volatile char room[@[1..3000]];
    room[0] = depth;
    *sum = mix(*sum, depth);
    if (depth == 0)
        longjmp(*back, *sum % 100 + 1);
    return deep@K(back, depth - 1, sum) + room[0];
}
static void *body@K(void *number) {
    static __thread unsigned sum@K;
    unsigned long total = 0;
    for (volatile int i = 0; i < @R; i++) {
        jmp_buf back;
        int came = setjmp(back);
        if (came == 0)
            deep@K(&back, @[1..30] + (int)(intptr_t)number, &sum@K);
        total += came;
    }
    return (void *)total;
}
static void scene@K(void) {
    say(@K, "total %lu\n", run(@T, body@K));
}
