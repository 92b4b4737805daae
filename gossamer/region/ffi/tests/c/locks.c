/* locks: results of mutexes of each type for their holder, for other threads, and for an unlock by a thread that is not
 * the holder. */
#include "verdict.h"

enum { ROUNDS = 500 };

static pthread_mutex_t plain = PTHREAD_MUTEX_INITIALIZER, checked, recursive;
static long guarded, depth_sum;

static void make(pthread_mutex_t *mutex, int type) {
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_settype(&attributes, type) == 0);
    CHECK(pthread_mutex_init(mutex, &attributes) == 0);
    CHECK(pthread_mutexattr_destroy(&attributes) == 0);
}

/* Another thread, while the main thread holds all three. */
static void *others(void *unused) {
    struct timespec soon = deadline(10), past = {0};
    CHECK(pthread_mutex_trylock(&plain) == EBUSY);
    CHECK(pthread_mutex_trylock(&checked) == EBUSY);
    CHECK(pthread_mutex_trylock(&recursive) == EBUSY);
    CHECK(pthread_mutex_timedlock(&plain, &soon) == ETIMEDOUT);
    CHECK(pthread_mutex_timedlock(&recursive, &past) == ETIMEDOUT);
    CHECK(pthread_mutex_unlock(&checked) == EPERM);
    CHECK(pthread_mutex_unlock(&recursive) == EPERM);
    (void)unused;
    return NULL;
}

/* After all are unlocked again. Alone: whoever tries, or waits until a time that is past, must find the lock free. */
static void *after(void *unused) {
    struct timespec later = deadline(60000), past = {0};
    CHECK(pthread_mutex_timedlock(&plain, &later) == 0 && pthread_mutex_unlock(&plain) == 0);
    CHECK(pthread_mutex_timedlock(&checked, &past) == 0 && pthread_mutex_unlock(&checked) == 0);
    CHECK(pthread_mutex_trylock(&recursive) == 0 && pthread_mutex_unlock(&recursive) == 0);
    (void)unused;
    return NULL;
}

/* All threads at once: by trying, by waiting and, in two levels, by the recursive one. */
static void *contend(void *unused) {
    for (int i = 0; i < ROUNDS; i++) {
        if (i % 2 || pthread_mutex_trylock(&checked) != 0) {
            CHECK(pthread_mutex_lock(&checked) == 0);
        }
        guarded++;
        CHECK(pthread_mutex_unlock(&checked) == 0);
        CHECK(pthread_mutex_lock(&recursive) == 0);
        CHECK(pthread_mutex_lock(&recursive) == 0);
        depth_sum += 2;
        CHECK(pthread_mutex_unlock(&recursive) == 0);
        depth_sum--;
        CHECK(pthread_mutex_unlock(&recursive) == 0);
    }
    (void)unused;
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    make(&checked, PTHREAD_MUTEX_ERRORCHECK);
    make(&recursive, PTHREAD_MUTEX_RECURSIVE);
    CHECK(pthread_mutex_unlock(&checked) == EPERM);
    CHECK(pthread_mutex_lock(&plain) == 0);
    CHECK(pthread_mutex_lock(&checked) == 0 && pthread_mutex_lock(&checked) == EDEADLK);
    CHECK(pthread_mutex_trylock(&checked) == EBUSY);
    CHECK(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_trylock(&recursive) == 0);
    run_threads(1, others);
    CHECK(pthread_mutex_unlock(&recursive) == 0);
    run_threads(1, others); /* one level is left */
    CHECK(pthread_mutex_unlock(&recursive) == 0 && pthread_mutex_unlock(&recursive) == EPERM);
    CHECK(pthread_mutex_unlock(&checked) == 0 && pthread_mutex_unlock(&checked) == EPERM);
    CHECK(pthread_mutex_unlock(&plain) == 0);
    run_threads(1, after);
    run_threads(threads, contend);
    CHECK(guarded == (long)threads * ROUNDS && depth_sum == guarded);
    CHECK(pthread_mutex_destroy(&checked) == 0 && pthread_mutex_destroy(&recursive) == 0);
    return verdict("locks");
}
