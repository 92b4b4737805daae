/* A thread waits for signals that others send to the process; all threads of the scene have them blocked. */
#define SIG@K (SIGRTMIN + 1 + @K)
static void before@K(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIG@K);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}
static void *awaits@K(void *number) {
    (void)number;
    sigset_t set;
    unsigned long got = 0;
    sigemptyset(&set);
    sigaddset(&set, SIG@K);
    for (int i = 0; i < @R; i++) {
        int signal = 0;
        MUST(sigwait(&set, &signal) == 0);
        got += signal == SIG@K;
    }
    return (void *)got;
}
static void *sends@K(void *number) {
    (void)number;
    for (int i = 0; i < @R; i++)
        MUST(kill(getpid(), SIG@K) == 0);
    return NULL;
}
static void *both@K(void *number) {
    return (intptr_t)number ? sends@K(number) : awaits@K(number);
}
static void scene@K(void) {
    say(@K, "got %lu\n", run(2, both@K));
}
