/* ended: a thread of another machine installs the handler for SIGTERM, the program's machines are told to end, and the
 * handler runs once, on machine 0. */
#include "verdict.h"

#include <signal.h>

static volatile sig_atomic_t taken;

static void take(int signal) {
    static const char text[] = "told to end\n";
    (void)signal;
    taken++;
    CHECK(write(1, text, sizeof text - 1) > 0);
}

/* Threads start on the machines in turn: those with odd numbers, from 1 on, on machine 1. */
static void *thread_of(void *number) {
    struct sigaction action = {.sa_handler = take};
    switch ((intptr_t)number) {
    case 1:
        CHECK(sigaction(SIGTERM, &action, NULL) == 0);
        break;
    case 3:
        CHECK(raise(SIGTERM) == 0 && taken == 0); /* as the launcher tells each machine */
        CHECK(kill(getpid(), SIGTERM) == 0);      /* to machine 0 */
    }
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    for (intptr_t number = 1; number <= 3; number++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, thread_of, (void *)number) == 0 && pthread_join(thread, NULL) == 0);
    }
    for (int i = 0; taken == 0 && i < 5000; i++) {
        usleep(1000);
    }
    CHECK(taken == 1);
    return verdict("ended");
}
