/* Blocks of memory pass around a ring of threads, which check, enlarge, refill and free them. */
static struct { pthread_mutex_t lock; pthread_cond_t change; unsigned char *block; size_t bytes; } ring@K[@T];
static unsigned sums@K[@T];
static void put@K(int at, unsigned char *block, size_t bytes) {
    pthread_mutex_lock(&ring@K[at].lock);
    while (ring@K[at].block)
        pthread_cond_wait(&ring@K[at].change, &ring@K[at].lock);
    ring@K[at].block = block;
    ring@K[at].bytes = bytes;
    pthread_cond_broadcast(&ring@K[at].change);
    pthread_mutex_unlock(&ring@K[at].lock);
}
static unsigned char *take@K(int at, size_t *bytes) {
    pthread_mutex_lock(&ring@K[at].lock);
    while (!ring@K[at].block)
        pthread_cond_wait(&ring@K[at].change, &ring@K[at].lock);
    unsigned char *block = ring@K[at].block;
    *bytes = ring@K[at].bytes;
    ring@K[at].block = NULL;
    pthread_cond_broadcast(&ring@K[at].change);
    pthread_mutex_unlock(&ring@K[at].lock);
    return block;
}
static void *body@K(void *number) {
    int own = (int)(intptr_t)number;
    unsigned state = @S + own;
    for (int i = 0; i < @R; i++) {
        size_t bytes = 1 + draw(&state) % @{60|5000|200000}, had;
        unsigned char *block = @{malloc(bytes)|calloc(bytes, 1)|aligned_alloc(64, (bytes + 63) / 64 * 64)};
        memset(block, own + 1, bytes);
        put@K((own + 1) % @T, block, bytes);
        block = take@K(own, &had);
        for (size_t at = 0; at < had; at += 1 + had / 7)
            sums@K[own] = mix(sums@K[own], block[at]);
        block = realloc(block, had + @[1..9000]);
        MUST(block[had - 1] == (own + @T - 1) % @T + 1);
        free(block);
    }
    return NULL;
}
static void scene@K(void) {
    for (int i = 0; i < @T; i++) {
        pthread_mutex_init(&ring@K[i].lock, NULL);
        pthread_cond_init(&ring@K[i].change, NULL);
    }
    run(@T, body@K);
    for (int i = 0; i < @T; i++)
        say(@K, "%x ", sums@K[i]);
    say(@K, "are the sums\n");
}
