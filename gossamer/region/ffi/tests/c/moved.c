/* moved: parts of a thread that the system and the C library keep for its host, over moves; the argument names one.
 * Prints "moved: ok". */
#include "verdict.h"

#include "gossamer_region.h"

#include <fenv.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
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

/* A machine that has no room for another host: threads go on where they were, with all that is theirs, and go when
 * there is room. */
enum { TRAVELLERS = 24 };
static pthread_barrier_t barrier;
static pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static __thread long own = 5;
static atomic_int refused;

static void meet(void) {
    int error = pthread_barrier_wait(&barrier);
    CHECK(error == 0 || error == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* Takes the addresses of machine 1 above its hosts' stacks (own_stack.rs), for a while. */
static void *takes_room(void *unused) {
    enum { STEP = 1 << 16 };
    unsigned long at = 0x181000000000 + (16UL << 30), end = at + (16UL << 30);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    CHECK(gsm_thread_move(1) == 0);
    meet(); /* all have begun */
    while (at < end && syscall(SYS_mmap, at, end - at, PROT_NONE, flags, -1, 0L) != (long)at) {
        at += STEP;
    }
    CHECK(at < end);
    meet(); /* they go */
    meet(); /* some have been refused */
    meet(); /* the main thread has asked another one */
    CHECK(syscall(SYS_munmap, at, end - at) == 0);
    meet(); /* there is room */
    return unused;
}

static void *travels(void *unused) {
    long *mine = &own;
    CHECK(gsm_thread_move(0) == 0);
    own += 2;
    CHECK(pthread_setspecific(key, &key) == 0);
    meet();
    meet();
    CHECK(pthread_mutex_lock(&checked) == 0);
    errno = 77;
    int error = gsm_thread_move(1);
    CHECK(error == 0 || error == EAGAIN);
    refused += error != 0;
    CHECK(gsm_thread_machine() == (error == 0) && errno == 77 && mine == &own && *mine == 7);
    CHECK(pthread_getspecific(key) == &key && pthread_mutex_unlock(&checked) == 0);
    meet();
    meet();
    meet();
    CHECK(gsm_thread_move(1) == 0 && gsm_thread_machine() == 1 && own == 7);
    return unused;
}

static void *sleeps(void *unused) {
    CHECK(gsm_thread_move(0) == 0);
    while (!is_done) {
        usleep(500);
    }
    return unused;
}

static void no_room(void) {
    pthread_t threads[TRAVELLERS + 2];
    void *(*bodies[])(void *) = {takes_room, sleeps};
    CHECK(pthread_key_create(&key, NULL) == 0 && pthread_barrier_init(&barrier, NULL, TRAVELLERS + 2) == 0);
    for (int at = 0; at < TRAVELLERS + 2; at++) {
        CHECK(pthread_create(&threads[at], NULL, at < 2 ? bodies[at] : travels, NULL) == 0);
    }
    meet();
    meet();
    meet();
    CHECK(refused > 0 && gsm_thread_move_other(threads[1], 1) == EAGAIN);
    meet();
    meet();
    is_done = 1;
    for (int at = 0; at < TRAVELLERS + 2; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
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
    } else if (is("room")) {
        no_room();
    } else {
        run_thread(is("signals") ? takes : is("timer") ? times : flags);
        run_thread(is("signals") ? takes : is("timer") ? times : flags);
    }
    for (int at = 0; at < 8; at++) {
        run_thread(next);
    }
    return verdict("moved");
}
