/* Threads build strings, which main joins and takes apart. */
static char *parts@K[@T];
static void *body@K(void *number) {
    int own = (int)(intptr_t)number;
    char *all = strdup("");
    for (int i = 0; i < @R; i++) {
        char *more = NULL;
        MUST(asprintf(&more, "%s%sword%d", all, i ? @{" "|", "|"-"} : "", i * (own + 1)) > 0);
        free(all);
        all = more;
    }
    for (char *at = all; *at; at++)
        *at = own % 2 ? toupper(*at) : *at;
    parts@K[own] = all;
    return NULL;
}
static void scene@K(void) {
    run(@T, body@K);
    unsigned sum = 0, words = 0;
    for (int i = 0; i < @T; i++) {
        char *rest = parts@K[i];
        for (char *word; (word = strtok_r(rest, " ,-", &rest)); words++)
            for (; *word; word++)
                sum = mix(sum, *word);
        free(parts@K[i]);
    }
    say(@K, "words %u, sum %x\n", words, sum);
}
