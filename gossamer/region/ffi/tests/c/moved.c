/* moved: parts of a thread that the system and the C library keep for its host, over moves; the argument names one.
 * Prints "moved: ok". */
#include "verdict.h"

#include "gossamer_region.h"

#include <signal.h>

static const char *part;
static atomic_int is_done;

static int is(const char *one) { return strcmp(part, one) == 0; }

static void move(void) {
    int to = 1 - gsm_thread_machine();
    CHECK(gsm_thread_move(to) == 0 && gsm_thread_machine() == to);
}

static void run_thread(void *(*body)(void *)) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, body, NULL) == 0 && pthread_join(thread, NULL) == 0);
}

static sigset_t set_of(int signal) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    return set;
}

/* A handler that allocates, wherever the thread is on its way. */
static atomic_long handled;

static void on_signal(int signal) {
    (void)signal;
    void *volatile block = malloc(40);
    handled++;
    free(block);
}

static void *allocates(void *unused) {
    for (int at = 0; at < 200; at++) {
        void *volatile before = malloc(40);
        move();
        void *volatile after = malloc(40);
        memset(after, 7, 40);
        free(before);
        free(after);
    }
    is_done = 1;
    return unused;
}

static void spin(long ns) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < ns);
}

static void magazines(void) {
    pthread_t thread;
    sigset_t set = set_of(SIGUSR1);
    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
    CHECK(pthread_create(&thread, NULL, allocates, NULL) == 0);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0); /* the thread takes them all */
    while (!is_done) {
        kill(getpid(), SIGUSR1);
        spin(20000);
    }
    CHECK(signal(SIGUSR1, SIG_IGN) != SIG_ERR);
    CHECK(pthread_join(thread, NULL) == 0 && handled > 0);
}

/* Another thread of the hosts that the last one has left: nothing of it. */
static void *next(void *unused) { return unused; }

int main(int argc, char **argv) {
    part = argc > 1 ? argv[1] : "";
    if (is("magazines")) {
        magazines();
    }
    for (int at = 0; at < 8; at++) {
        run_thread(next);
    }
    return verdict("moved");
}
