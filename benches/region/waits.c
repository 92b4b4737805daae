/* Waits by futex(2) and by condition variables, for `gossamer-bench region`: `waits
 * call|wake|futex|condvar|thread TIMES`, as one process, or by `gossamer-launch run --local 2 --region auto`.
 *
 * call: nanoseconds of a system call that does nothing. wake: of a wake of an address without waiters.
 * futex, condvar: two threads hand a word over TIMES times each, waiting in between; of one handing over.
 * thread: main starts a thread that does nothing, and joins it; the median of that.
 * All other calls are those of threads that main has started. Prints nanoseconds, and how often it was done. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, HANDS = 2 };

/* On a page of its own, as is the lock. */
static _Alignas(PAGE) union {
    atomic_uint is;
    char page[PAGE];
} word;

static _Alignas(PAGE) union {
    struct {
        pthread_mutex_t mutex;
        pthread_cond_t changed;
    } is;
    char page[PAGE];
} lock = {.is = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER}};

static uint64_t times, ns;
static const char *what;

static void must(int error, const char *which) {
    if (error) {
        fprintf(stderr, "waits: %s: %s\n", which, strerror(error));
        exit(1);
    }
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static long futex(int operation, unsigned value) {
    return syscall(SYS_futex, &word.is, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void by_futex(unsigned turn) {
    for (unsigned now = atomic_load(&word.is); now != turn; now = atomic_load(&word.is)) {
        must(futex(FUTEX_WAIT, now) == 0 || errno == EAGAIN ? 0 : errno, "wait");
    }
    atomic_store(&word.is, turn + 1);
    must(futex(FUTEX_WAKE, INT_MAX) >= 0 ? 0 : errno, "wake");
}

static void by_condvar(unsigned turn) {
    must(pthread_mutex_lock(&lock.is.mutex), "lock");
    while (atomic_load(&word.is) != turn) {
        must(pthread_cond_wait(&lock.is.changed, &lock.is.mutex), "wait");
    }
    atomic_store(&word.is, turn + 1);
    must(pthread_cond_broadcast(&lock.is.changed), "wake");
    must(pthread_mutex_unlock(&lock.is.mutex), "unlock");
}

static void *hands(void *number) {
    unsigned own = (unsigned)(intptr_t)number;
    void (*hand)(unsigned) = strcmp(what, "futex") == 0 ? by_futex : by_condvar;
    hand(own); /* both have begun */
    uint64_t began = now_ns();
    for (unsigned i = 1; i <= times; i++) {
        hand(i * HANDS + own);
    }
    if (own == 0) {
        ns = (now_ns() - began) / (HANDS * times);
    }
    return NULL;
}

static void *calls(void *number) {
    (void)number;
    int is_wake = strcmp(what, "wake") == 0;
    uint64_t began = now_ns();
    for (uint64_t i = 0; i < times; i++) {
        must((is_wake ? futex(FUTEX_WAKE, 1) == 0 : syscall(SYS_getppid) >= 0) ? 0 : EPROTO, what);
    }
    ns = (now_ns() - began) / times;
    return NULL;
}

static void *nothing(void *number) {
    return number;
}

static int is_more(const void *left, const void *right) {
    uint64_t one = *(const uint64_t *)left, other = *(const uint64_t *)right;
    return (one > other) - (one < other);
}

/* Returns how many of the threads have given their result. */
static uint64_t threads(void) {
    uint64_t done = 0, *each = calloc(times, sizeof *each);
    must(each ? 0 : ENOMEM, "calloc");
    for (uint64_t i = 0; i < times; i++) {
        pthread_t id;
        void *result;
        uint64_t began = now_ns();
        must(pthread_create(&id, NULL, nothing, (void *)(uintptr_t)i), "thread");
        must(pthread_join(id, &result), "join");
        each[i] = now_ns() - began;
        done += (uintptr_t)result == i;
    }
    qsort(each, times, sizeof *each, is_more);
    ns = each[times / 2];
    free(each);
    return done;
}

int main(int argc, char **argv) {
    what = argc > 1 ? argv[1] : "";
    times = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    int is_call = strcmp(what, "call") == 0 || strcmp(what, "wake") == 0;
    int hands_over = strcmp(what, "futex") == 0 || strcmp(what, "condvar") == 0;
    int is_thread = strcmp(what, "thread") == 0;
    if (times == 0 || times > UINT_MAX / HANDS - 1 || !(is_call || hands_over || is_thread)) {
        fprintf(stderr, "usage: %s call|wake|futex|condvar|thread TIMES\n", argv[0]);
        return 2;
    }
    pthread_t ids[HANDS];
    int count = is_thread ? 0 : is_call ? 1 : HANDS;
    for (intptr_t i = 0; i < count; i++) {
        must(pthread_create(&ids[i], NULL, is_call ? calls : hands, (void *)i), "thread");
    }
    for (int i = 0; i < count; i++) {
        must(pthread_join(ids[i], NULL), "join");
    }
    uint64_t done = is_thread ? threads() : is_call ? times : atomic_load(&word.is) / HANDS - 1;
    printf("{\"ns\": %llu, \"digest\": %llu}\n", (unsigned long long)ns, (unsigned long long)done);
    return 0;
}
