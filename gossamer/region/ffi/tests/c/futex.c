/* futex: waits and wakes by futex(2), as libraries have them that know nothing of pthread: results and counts are those
 * of one process, and no wake is lost. */
#include "verdict.h"

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>

enum { LOCKINGS = 300, HANDS = 200, SECONDS = 60 };

static _Alignas(64) atomic_uint from, to, word, lock;
static atomic_int waiting, ended;
static long counted;
/* Waits and wakes of one process may say so: they are told apart from others. */
static int private;
/* Whether calls are instructions of this program, and none of the C library. */
static int is_bare;

static long bare(long number, long first, long second, long third, long fourth, long fifth, long sixth) {
#ifdef __x86_64__
    register long in_r10 __asm__("r10") = fourth, in_r8 __asm__("r8") = fifth, in_r9 __asm__("r9") = sixth;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third), "r"(in_r10), "r"(in_r8), "r"(in_r9)
                     : "rcx", "r11", "memory");
    if (result < 0) {
        errno = (int)-result;
    }
    return result < 0 ? -1 : result;
#else
    return syscall(number, first, second, third, fourth, fifth, sixth);
#endif
}

static long futex(atomic_uint *at, int operation, unsigned value, uintptr_t fourth, atomic_uint *second,
                  unsigned last) {
    if (is_bare) {
        return bare(SYS_futex, (long)at, operation | private, value, (long)fourth, (long)second, last);
    }
    return syscall(SYS_futex, at, operation | private, value, fourth, second, last);
}

/* The result of a call that fails with this error, and no other. */
static int fails(long result, int error) {
    return result == -1 && errno == error;
}

/* A thread that blocks SIGSYS may have no call stopped: the system would end it. */
static void *stops_nothing(void *number) {
    uint64_t all = ~0ull;
    (void)number;
    word = 0;
    CHECK(bare(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, 0, sizeof all, 0, 0) == 0);
    CHECK(syscall(SYS_futex, &word, FUTEX_WAKE | private, 1, NULL, NULL, 0) == 0);
    CHECK(fails(syscall(SYS_futex, &word, FUTEX_WAIT | private, 1, NULL, NULL, 0), EAGAIN));
    all = 0;
    CHECK(bare(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, 0, sizeof all, 0, 0) == 0);
    return NULL;
}

/* A time of this clock, or from now on, that is so many milliseconds ahead. */
static struct timespec ahead(clockid_t clock, long ms) {
    struct timespec at = {0, 0};
    if (clock >= 0) {
        clock_gettime(clock, &at);
    }
    at.tv_nsec += ms * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

static void *errors(void *number) {
    (void)number;
    enum { TO_WAIT = FUTEX_WAIT_BITSET };
    struct timespec time = ahead(-1, 5), bad = {0, 1000000000}, before = {-1, 0};
    word = 3;
    CHECK(fails(futex(&word, FUTEX_WAIT, 4, 0, NULL, 0), EAGAIN));
    CHECK(fails(futex(&word, FUTEX_WAIT, 3, (uintptr_t)&time, NULL, 0), ETIMEDOUT));
    CHECK(fails(futex(&word, FUTEX_WAIT, 3, (uintptr_t)&bad, NULL, 0), EINVAL));
    CHECK(fails(futex(&word, FUTEX_WAIT, 3, (uintptr_t)&before, NULL, 0), EINVAL));
    CHECK(fails(futex((atomic_uint *)((char *)&word + 2), FUTEX_WAIT, 3, 0, NULL, 0), EINVAL));
    CHECK(fails(futex(&word, TO_WAIT, 3, 0, NULL, 0), EINVAL));
    time = ahead(CLOCK_MONOTONIC, 5);
    CHECK(fails(futex(&word, TO_WAIT, 3, (uintptr_t)&time, NULL, 1), ETIMEDOUT));
    CHECK(fails(futex(&word, TO_WAIT, 3, (uintptr_t)&time, NULL, 1), ETIMEDOUT));
    time = ahead(CLOCK_REALTIME, 5);
    CHECK(fails(futex(&word, TO_WAIT | FUTEX_CLOCK_REALTIME, 3, (uintptr_t)&time, NULL, 1), ETIMEDOUT));
    CHECK(fails(futex(&word, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, 0, NULL, 0), ENOSYS));
    CHECK(futex(&word, FUTEX_WAKE, INT_MAX, 0, NULL, 0) == 0);
    CHECK(fails(futex(&word, FUTEX_WAKE_BITSET, 1, 0, NULL, 0), EINVAL));
    CHECK(fails(futex(&word, FUTEX_CMP_REQUEUE, 1, 1, &to, 4), EAGAIN));
    CHECK(futex(&word, FUTEX_CMP_REQUEUE, 1, 1, &to, 3) == 0);
    CHECK(fails(futex(&word, FUTEX_REQUEUE, -1, 1, &to, 0), EINVAL));
    CHECK(futex(&word, FUTEX_WAKE_OP, 1, 1, &to, FUTEX_OP(FUTEX_OP_ADD, 5, FUTEX_OP_CMP_EQ, 0)) == 0 && to == 5);
    errno = 77;
    CHECK(futex(&word, FUTEX_WAKE, 1, 0, NULL, 0) == 0 && errno == 77);
    to = 0;
    return NULL;
}

/* Waits, with a bit of its own, where main moves it. */
static void *moved(void *number) {
    atomic_fetch_add(&waiting, 1);
    long done = futex(&from, FUTEX_WAIT_BITSET, 0, 0, NULL, 1u << (intptr_t)number);
    CHECK(done == 0);
    atomic_fetch_add(&ended, 1);
    return NULL;
}

static void *times_out(void *number) {
    struct timespec time = ahead(CLOCK_MONOTONIC, 400);
    (void)number;
    atomic_fetch_add(&waiting, 1);
    CHECK(fails(futex(&from, FUTEX_WAIT_BITSET, 0, (uintptr_t)&time, NULL, 1), ETIMEDOUT));
    return NULL;
}

/* Moves threads that are about to wait at `from`, until this many are at `to`: so they wait, without a sleep. */
static void move(int count) {
    struct timespec end = ahead(CLOCK_MONOTONIC, SECONDS * 1000), now = {0, 0};
    while (count > 0 && now.tv_sec <= end.tv_sec) {
        long moves = futex(&from, FUTEX_CMP_REQUEUE, 0, INT_MAX, &to, 0);
        CHECK(moves >= 0 && moves <= count);
        count -= (int)moves;
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    CHECK(count == 0);
}

static void until(atomic_int *value, int wanted) {
    struct timespec end = ahead(CLOCK_MONOTONIC, SECONDS * 1000), now = {0, 0};
    while (atomic_load(value) != wanted && now.tv_sec <= end.tv_sec) {
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    CHECK(atomic_load(value) == wanted);
}

/* Wakes find as many as wait there, and those with a bit of theirs. */
static void counts(void) {
    pthread_t ids[MOST_THREADS];
    waiting = ended = 0;
    int count = threads < 32 ? threads : 32;
    for (intptr_t i = 0; i < count; i++) {
        CHECK(pthread_create(&ids[i], NULL, moved, (void *)i) == 0);
    }
    move(count);
    CHECK(ended == 0);
    CHECK(futex(&from, FUTEX_WAKE, INT_MAX, 0, NULL, 0) == 0);
    CHECK(futex(&to, FUTEX_WAKE_BITSET, INT_MAX, 0, NULL, 1u << (count - 1)) == 1);
    CHECK(pthread_join(ids[count - 1], NULL) == 0 && ended == 1);
    CHECK(futex(&to, FUTEX_WAKE_BITSET, INT_MAX, 0, NULL, 1u << (count - 1)) == 0);
    CHECK(futex(&to, FUTEX_WAKE, 1, 0, NULL, 0) == 1);
    until(&ended, 2);
    /* The others, by an operation on another word. */
    word = 6;
    CHECK(futex(&word, FUTEX_WAKE_OP, 1, INT_MAX, &to, FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0)) == count - 2);
    CHECK(futex(&to, FUTEX_WAKE, INT_MAX, 0, NULL, 0) == 0);
    for (int i = 0; i < count - 1; i++) {
        CHECK(pthread_join(ids[i], NULL) == 0);
    }
    CHECK(ended == count);
}

/* A time goes on where a thread is moved. */
static void times(void) {
    pthread_t ids[2];
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&ids[i], NULL, times_out, NULL) == 0);
    }
    move(2);
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(ids[i], NULL) == 0);
    }
    CHECK(futex(&to, FUTEX_WAKE, INT_MAX, 0, NULL, 0) == 0);
}

/* A mutex of three states: free, taken, taken with waiters. */
static void *locks(void *number) {
    (void)number;
    for (int i = 0; i < LOCKINGS; i++) {
        unsigned state = 0;
        if (!atomic_compare_exchange_strong(&lock, &state, 1)) {
            for (state = state == 2 ? 2 : atomic_exchange(&lock, 2); state != 0; state = atomic_exchange(&lock, 2)) {
                futex(&lock, FUTEX_WAIT, 2, 0, NULL, 0);
            }
        }
        counted++;
        if (atomic_exchange(&lock, 0) == 2) {
            futex(&lock, FUTEX_WAKE, 1, 0, NULL, 0);
        }
    }
    return NULL;
}

/* The word is handed from thread to thread; each waits for its own number. */
static void *hands(void *number) {
    unsigned own = (unsigned)(intptr_t)number, count = (unsigned)threads;
    for (unsigned hand = 0; hand < HANDS; hand++) {
        unsigned now;
        while ((now = atomic_load(&word)) != hand * count + own) {
            futex(&word, FUTEX_WAIT, now, 0, NULL, 0);
        }
        atomic_fetch_add(&word, 1);
        futex(&word, FUTEX_WAKE, INT_MAX, 0, NULL, 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    pthread_t id;
    run_threads(threads, stops_nothing);
    for (int i = 0; i < 2; i++) {
        private = i == 0 ? 0 : FUTEX_PRIVATE_FLAG;
        is_bare = i;
        CHECK(pthread_create(&id, NULL, errors, NULL) == 0 && pthread_join(id, NULL) == 0);
        counts();
        times();
        counted = 0;
        run_threads(threads, locks);
        CHECK(counted == (long)threads * LOCKINGS);
        word = 0;
        run_threads(threads, hands);
        CHECK(word == (unsigned)threads * HANDS);
    }
    return verdict("futex");
}
