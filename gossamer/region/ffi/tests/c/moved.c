/* moved: parts of a thread that the system and the C library keep for its host, over moves; the argument names one.
 * Prints "moved: ok". */
#include "verdict.h"

#include "gossamer_region.h"

#include <fenv.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

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

/* Signals that wait for the thread, with their values. */
static void *takes(void *unused) {
    sigset_t set = set_of(SIGUSR2), waiting;
    struct timespec limit = {10, 0};
    siginfo_t info;
    sigaddset(&set, SIGRTMIN + 2);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0 && raise(SIGUSR2) == 0);
    for (int value = 5; value < 8; value++) {
        union sigval sent = {.sival_int = value};
        CHECK(pthread_sigqueue(pthread_self(), SIGRTMIN + 2, sent) == 0);
    }
    move();
    CHECK(sigpending(&waiting) == 0 && sigismember(&waiting, SIGUSR2) == 1);
    move();
    CHECK(sigtimedwait(&set, &info, &limit) == SIGUSR2 && info.si_code == SI_USER);
    for (int value = 5; value < 8; value++) {
        CHECK(sigtimedwait(&set, &info, &limit) == SIGRTMIN + 2 && info.si_value.sival_int == value);
    }
    CHECK(raise(SIGUSR2) == 0);
    move();
    return unused; /* one waits as it ends */
}

/* A timer of the thread's host comes when that has another thread, or none. */
static void *times(void *unused) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 3};
    struct itimerspec soon = {.it_value = {0, 20000000}};
    sigset_t set = set_of(SIGRTMIN + 3);
    timer_t timer;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0 && timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &soon, NULL) == 0);
    move();
    struct timespec longer = {0, 200000000};
    nanosleep(&longer, NULL);
    return unused;
}

/* Another thread of the hosts that the last one has left: none of its signals, no stack for them, all processors. */
static cpu_set_t all_processors;

static void *next(void *unused) {
    sigset_t waiting;
    stack_t stack;
    cpu_set_t own;
    CHECK(sigpending(&waiting) == 0 && sigisemptyset(&waiting));
    CHECK(sigaltstack(NULL, &stack) == 0 && stack.ss_flags == SS_DISABLE);
    CPU_ZERO(&own);
    CHECK(syscall(SYS_sched_getaffinity, 0, sizeof own, &own) > 0 && CPU_EQUAL(&own, &all_processors));
    CHECK(sched_getscheduler(0) == SCHED_OTHER);
    return unused;
}

/* Flags of both arithmetics. */
static void *flags(void *unused) {
    static volatile long double one = 1, zero = 0;
    static volatile double two = 2, three = 3;
    feclearexcept(FE_ALL_EXCEPT);
    volatile long double infinite = one / zero;
    CHECK(infinite > 1 && fetestexcept(FE_ALL_EXCEPT) == FE_DIVBYZERO);
    move();
    CHECK(fetestexcept(FE_ALL_EXCEPT) == FE_DIVBYZERO);
    feclearexcept(FE_ALL_EXCEPT);
    move();
    CHECK(fetestexcept(FE_ALL_EXCEPT) == 0);
    volatile double third = two / three;
    move();
    CHECK(third > 0 && fetestexcept(FE_ALL_EXCEPT) == FE_INEXACT);
    return unused;
}

/* Destructors have the rounding of their thread. */
static pthread_key_t key;
static atomic_int rounding;

static void gone(void *value) {
    CHECK(value == &key && fegetround() == rounding);
    is_done++;
}

static void *rounds(void *unused) {
    move();
    fesetround(rounding);
    CHECK(pthread_setspecific(key, &key) == 0);
    return unused;
}

static void *inherits(void *unused) {
    move(); /* its host's rounding is that of the thread which has made it */
    return unused;
}

static void roundings(void) {
    int all[] = {FE_UPWARD, FE_DOWNWARD, FE_TONEAREST, FE_TOWARDZERO};
    CHECK(pthread_key_create(&key, gone) == 0);
    for (int at = 0; at < 8; at++) {
        fesetround(FE_UPWARD);
        run_thread(inherits);
        fesetround(FE_TONEAREST);
        rounding = all[at % 4];
        run_thread(rounds);
    }
    CHECK(is_done == 8);
}

/* The clock of a thread is its host's. */
static atomic_int place = -1;

static void *stays(void *unused) {
    if (gsm_thread_machine() != (is("clock") ? 1 : 0)) {
        move();
    }
    place = gsm_thread_machine();
    while (!is_done) {
        sched_yield();
    }
    return unused;
}

static void clocks(void) {
    for (int round = 0; round < 2; round++) {
        pthread_t thread;
        clockid_t clock;
        struct timespec time;
        is_done = 0;
        place = -1;
        CHECK(pthread_create(&thread, NULL, stays, NULL) == 0);
        while (place < 0) {
            sched_yield();
        }
        int error = pthread_getcpuclockid(thread, &clock);
        CHECK(error == (place == 0 ? 0 : ENOTSUP) && (error || clock_gettime(clock, &time) == 0));
        is_done = 1;
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

/* A thread is bound to a processor as it leaves. */
static void *wanders(void *unused) {
    cpu_set_t all;
    CHECK(pthread_getaffinity_np(pthread_self(), sizeof all, &all) == 0);
    while (!is_done) {
        if (gsm_thread_move(1 - gsm_thread_machine()) != 0) {
            CHECK(pthread_setaffinity_np(pthread_self(), sizeof all, &all) == 0);
        }
    }
    return unused;
}

static void processors(void) {
    pthread_t thread;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    CHECK(pthread_create(&thread, NULL, wanders, NULL) == 0);
    for (int at = 0; at < 100; at++) {
        CHECK(pthread_setaffinity_np(thread, sizeof one, &one) == 0);
        usleep(1000);
    }
    is_done = 1;
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv) {
    part = argc > 1 ? argv[1] : "";
    CHECK(syscall(SYS_sched_getaffinity, 0, sizeof all_processors, &all_processors) > 0); /* this machine's */
    if (is("magazines")) {
        magazines();
    } else if (is("rounding")) {
        roundings();
    } else if (is("clock") || is("own_clock")) {
        clocks();
    } else if (is("processors")) {
        processors();
    } else {
        run_thread(is("signals") ? takes : is("timer") ? times : flags);
        run_thread(is("signals") ? takes : is("timer") ? times : flags);
    }
    for (int at = 0; at < 8; at++) {
        run_thread(next);
    }
    return verdict("moved");
}
