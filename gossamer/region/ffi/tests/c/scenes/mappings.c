/* Threads fill parts of a mapping of main's; a part is unmapped, another one emptied. */
enum { PAGES@K = @[4..40] };
static char *map@K;
static void *body@K(void *number) {
    for (int page = (int)(intptr_t)number; page < PAGES@K; page += @T)
        memset(map@K + page * 4096, 'a' + page % 26, 4096);
    return NULL;
}
static void scene@K(void) {
    map@K = mmap(NULL, PAGES@K * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(map@K != MAP_FAILED);
    run(@T, body@K);
    MUST(madvise(map@K + 4096, 4096, MADV_DONTNEED) == 0);
    MUST(munmap(map@K, 4096) == 0);
    unsigned sum = 0;
    for (int at = 4096; at < PAGES@K * 4096; at += @[1..99])
        sum = mix(sum, map@K[at]);
    MUST(munmap(map@K + 4096, (PAGES@K - 1) * 4096) == 0);
    say(@K, "sum %x\n", sum);
}
