/* Threads send themselves signals, whose handler counts in a variable of the thread. */
#define SIG@K (SIGRTMIN + 1 + @K)
static __thread volatile sig_atomic_t own@K;
static atomic_uint all@K;
static void take@K(int signal) {
    own@K += signal == SIG@K ? 1 : 100;
    all@K++;
}
static void *body@K(void *number) {
    (void)number;
    sigset_t set, before;
    sigemptyset(&set);
    sigaddset(&set, SIG@K);
    for (int i = 0; i < @R; i++)
        MUST(@{raise(SIG@K)|pthread_kill(pthread_self(), SIG@K)} == 0);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    int seen = own@K;
    raise(SIG@K);
    MUST(own@K == seen);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return (void *)(uintptr_t)own@K;
}
static void scene@K(void) {
    struct sigaction action = {.sa_handler = take@K, .sa_flags = SA_RESTART};
    MUST(sigaction(SIG@K, &action, NULL) == 0);
    unsigned long sum = run(@T, body@K);
    say(@K, "own %lu, all %u\n", sum, all@K);
}
