/* Atomic counters, a list by compare and swap, and a lock by exchange. */
struct node@K { struct node@K *next; unsigned value; };
static _Atomic(struct node@K *) head@K;
static atomic_ulong count@K, bits@K;
static atomic_flag flag@K = ATOMIC_FLAG_INIT;
static unsigned long plain@K;
static void *body@K(void *number) {
    for (int i = 0; i < @R; i++) {
        struct node@K *node = malloc(sizeof *node);
        node->value = i;
        node->next = atomic_load(&head@K);
        while (!atomic_compare_exchange_weak(&head@K, &node->next, node)) {
        }
        count@K += i;
        bits@K |= 1ul << ((int)(intptr_t)number * 7 + i) % 61;
        while (atomic_flag_test_and_set(&flag@K))
            sched_yield();
        plain@K += 3;
        atomic_flag_clear(&flag@K);
    }
    return NULL;
}
static void scene@K(void) {
    run(@T, body@K);
    unsigned long nodes = 0, sum = 0;
    for (struct node@K *node = head@K, *next; node; node = next, nodes++) {
        next = node->next;
        sum += node->value;
        free(node);
    }
    say(@K, "count %lu, bits %lx, plain %lu, nodes %lu with %lu\n", count@K, bits@K, plain@K, nodes, sum);
}
