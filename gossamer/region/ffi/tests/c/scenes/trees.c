/* Threads start threads, a tree of them, and return memory of their own. */
struct job@K { int depth; unsigned seed; };
static void *body@K(void *argument) {
    struct job@K job = *(struct job@K *)argument;
    unsigned *result = malloc(sizeof *result);
    *result = mix(@S, job.seed);
    free(argument);
    if (job.depth > 0) {
        pthread_t ids[2];
        for (int i = 0; i < 2; i++) {
            struct job@K *child = malloc(sizeof *child);
            *child = (struct job@K){job.depth - 1, job.seed * 2 + i};
            MUST(pthread_create(&ids[i], NULL, body@K, child) == 0);
        }
        for (int i = 0; i < 2; i++) {
            void *of_child;
            MUST(pthread_join(ids[i], &of_child) == 0);
            *result = mix(*result, *(unsigned *)of_child);
            free(of_child);
        }
    }
    @{return result|pthread_exit(result)};
}
static void scene@K(void) {
    struct job@K *root = malloc(sizeof *root);
    *root = (struct job@K){@[1..3], 1};
    pthread_t id;
    void *result;
    MUST(pthread_create(&id, NULL, body@K, root) == 0 && pthread_join(id, &result) == 0);
    say(@K, "result %x\n", *(unsigned *)result);
    free(result);
}
