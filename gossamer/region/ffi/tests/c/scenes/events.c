/* Main polls an event descriptor, which threads raise. */
static int event@K;
static void *body@K(void *number) {
    uint64_t value = 1 + (intptr_t)number;
    for (int i = 0; i < @R; i++)
        MUST(write(event@K, &value, sizeof value) == sizeof value);
    return NULL;
}
static void *all@K(void *unused) {
    (void)unused;
    run(@T, body@K);
    return NULL;
}
static void scene@K(void) {
    uint64_t value, sum = 0, goal = (uint64_t)@R * @T * (@T + 1) / 2;
    pthread_t id;
    MUST((event@K = eventfd(0, EFD_NONBLOCK)) >= 0 && pthread_create(&id, NULL, all@K, NULL) == 0);
    while (sum < goal) {
        struct pollfd wait = {.fd = event@K, .events = POLLIN};
        MUST(poll(&wait, 1, -1) == 1);
        if (read(event@K, &value, sizeof value) == sizeof value)
            sum += value;
    }
    pthread_join(id, NULL);
    say(@K, "sum %lu, close %d\n", (unsigned long)sum, close(event@K));
}
