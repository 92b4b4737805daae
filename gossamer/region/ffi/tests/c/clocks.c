/* clocks: threads that move between machines, which may have clocks of their own: a thread's clocks never go back and
 * are the first machine's, and waits until a time that was computed before a move end then. Prints "clocks: ok". */
#include "verdict.h"

#include "gossamer_region.h"

#include <linux/futex.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

enum { CLOCKS = 4, WAITS = 11 };
static const clockid_t clocks[CLOCKS] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME};

static const int64_t second = 1000000000, soon = 200000000, inexact = 50000000;

static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t written = PTHREAD_RWLOCK_INITIALIZER;
static sem_t question, answer, over, never;
static int64_t of_first[CLOCKS];
static int left;

static int64_t ns_of(struct timespec time) { return time.tv_sec * second + time.tv_nsec; }

static struct timespec time_of(int64_t ns) { return (struct timespec){ns / second, ns % second}; }

static int64_t now(clockid_t clock) {
    struct timespec time;
    CHECK(clock_gettime(clock, &time) == 0 && time.tv_nsec >= 0 && time.tv_nsec < second);
    return ns_of(time);
}

/* The calling thread's clocks, that were `before`. */
static void look(int64_t *before) {
    for (int at = 0; at < CLOCKS; at++) {
        int64_t time = now(clocks[at]);
        if (time < before[at]) {
            fprintf(stderr, "clock %d: %lld after %lld\n", (int)clocks[at], (long long)time, (long long)before[at]);
            failed++;
        }
        before[at] = time;
    }
}

/* What the first thread reads meanwhile. */
static void ask(int64_t *times) {
    CHECK(pthread_mutex_lock(&asking) == 0 && sem_post(&question) == 0 && sem_wait(&answer) == 0);
    memcpy(times, of_first, sizeof of_first);
    CHECK(pthread_mutex_unlock(&asking) == 0);
}

static void compare(int64_t *last) {
    int64_t before[CLOCKS], times[CLOCKS];
    look(last);
    memcpy(before, last, sizeof before);
    ask(times);
    look(last);
    for (int at = 0; at < CLOCKS; at++) {
        CHECK(before[at] - inexact <= times[at] && times[at] <= last[at] + inexact);
    }
}

static void move(void) {
    int to = 1 - gsm_thread_machine();
    CHECK(gsm_thread_move(to) == 0 && gsm_thread_machine() == to);
}

static void *waits(void *unused) {
    CHECK(sem_wait(&over) == 0);
    return unused;
}

/* Waits until this time; 0 if it is over. */
static int wait_until(int kind, int signal, pthread_t waiter, struct timespec *end) {
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;
    pthread_condattr_t attributes;
    uint32_t word = 7;
    int error;
    switch (kind) {
        case 0:
        case 1:
            CHECK(pthread_condattr_init(&attributes) == 0);
            CHECK(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
            CHECK(pthread_cond_init(&condition, kind == 0 ? &attributes : NULL) == 0);
            CHECK(pthread_mutex_lock(&own) == 0);
            error = kind == 0 ? pthread_cond_timedwait(&condition, &own, end)
                              : pthread_cond_clockwait(&condition, &own, CLOCK_MONOTONIC, end);
            CHECK(pthread_mutex_unlock(&own) == 0 && pthread_cond_destroy(&condition) == 0);
            return error != ETIMEDOUT;
        case 2:
            return sem_clockwait(&never, CLOCK_MONOTONIC, end) == 0 || errno != ETIMEDOUT;
        case 3:
            return pthread_mutex_clocklock(&held, CLOCK_MONOTONIC, end) != ETIMEDOUT;
        case 4:
            return pthread_rwlock_clockrdlock(&written, CLOCK_MONOTONIC, end) != ETIMEDOUT;
        case 5:
            return pthread_clockjoin_np(waiter, NULL, CLOCK_MONOTONIC, end) != ETIMEDOUT;
        case 6:
            return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 7, end, NULL, FUTEX_BITSET_MATCH_ANY) == 0 ||
                   errno != ETIMEDOUT;
        case 7: {
            struct itimerspec once = {.it_value = *end};
            uint64_t count = 0;
            int timer = timerfd_create(CLOCK_MONOTONIC, 0);
            CHECK(timer >= 0 && timerfd_settime(timer, TFD_TIMER_ABSTIME, &once, NULL) == 0);
            error = read(timer, &count, sizeof count) != sizeof count || count != 1;
            return error | close(timer);
        }
        case 8: {
            struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
            struct itimerspec once = {.it_value = *end};
            sigset_t set;
            timer_t timer;
            sigemptyset(&set);
            sigaddset(&set, signal);
            CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
            CHECK(timer_settime(timer, TIMER_ABSTIME, &once, NULL) == 0);
            error = sigwaitinfo(&set, NULL) != signal;
            return error | timer_delete(timer);
        }
        case 9:
            return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, end, NULL);
        default:
            return clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, end, NULL);
    }
}

static void *goes(void *signal) {
    int64_t last[CLOCKS] = {0}, times[CLOCKS];
    pthread_t waiter;
    CHECK(pthread_create(&waiter, NULL, waits, NULL) == 0);
    for (int at = 0; at < 200; at++) {
        if (at % 20 == 0) {
            compare(last);
        }
        look(last);
        move();
        look(last);
    }
    if (failed) { /* waits might have no end */
        exit(verdict("clocks"));
    }
    for (int at = 0; at < 2 * WAITS; at++) {
        int kind = at / 2, clock = kind == WAITS - 1 ? 3 : 0;
        look(last);
        int64_t ends = last[clock] + soon;
        struct timespec end = time_of(ends);
        move();
        CHECK(wait_until(kind, *(const int *)signal, waiter, &end) == 0);
        look(last);
        ask(times);
        if (last[clock] < ends || times[clock] < ends - inexact) {
            fprintf(stderr, "wait %d on machine %d is over at %lld, %lld of the first, and not at %lld\n", kind,
                    gsm_thread_machine(), (long long)last[clock], (long long)times[clock], (long long)ends);
            failed++;
        }
    }
    compare(last);
    CHECK(sem_post(&over) == 0 && pthread_join(waiter, NULL) == 0);
    CHECK(pthread_mutex_lock(&asking) == 0);
    if (--left == 0) {
        CHECK(sem_post(&question) == 0);
    }
    CHECK(pthread_mutex_unlock(&asking) == 0);
    return NULL;
}

int main(void) {
    static int signals[2];
    pthread_t ids[2];
    sigset_t set;
    sigemptyset(&set);
    sem_t *all[] = {&question, &answer, &over, &never};
    for (int at = 0; at < 4; at++) {
        CHECK(sem_init(all[at], 0, 0) == 0);
    }
    CHECK(pthread_mutex_lock(&held) == 0 && pthread_rwlock_wrlock(&written) == 0);
    left = 2;
    for (int at = 0; at < 2; at++) {
        signals[at] = SIGRTMIN + at;
        sigaddset(&set, signals[at]);
    }
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    for (int at = 0; at < 2; at++) {
        CHECK(pthread_create(&ids[at], NULL, goes, &signals[at]) == 0);
    }
    for (;;) {
        CHECK(sem_wait(&question) == 0);
        if (left == 0) { /* the last one writes it before it posts */
            break;
        }
        for (int at = 0; at < CLOCKS; at++) {
            of_first[at] = now(clocks[at]);
        }
        CHECK(sem_post(&answer) == 0);
    }
    for (int at = 0; at < 2; at++) {
        CHECK(pthread_join(ids[at], NULL) == 0);
    }
    return verdict("clocks");
}
