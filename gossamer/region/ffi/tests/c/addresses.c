/* addresses: functions of the C library that the program calls through pointers of its own. Without code that is
 * independent of its position, the program's entry for such a function is everybody's. */
#include "verdict.h"

#include <sched.h>
#include <sys/mman.h>

static void *(*take)(size_t);
static void *(*take_zero)(size_t, size_t);
static void *(*retake)(void *, size_t);
static void (*give)(void *);
static int (*lock)(pthread_mutex_t *);
static int (*unlock)(pthread_mutex_t *);
static int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static int (*say)(const char *, ...);
static ssize_t (*put)(int, const void *, size_t);
static ssize_t (*get)(int, void *, size_t);
static int (*yield)(void);
static int (*protect)(void *, size_t, int);
static long (*call)(long, ...);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int sum;

static void *work(void *number) {
    for (int i = 0; i < 100; i++) {
        int *block = take_zero(10, sizeof *block);
        CHECK(block != NULL && block[9] == 0);
        block = retake(block, 1000);
        block[100] = 1;
        CHECK(lock(&mutex) == 0);
        sum += block[100];
        CHECK(unlock(&mutex) == 0);
        give(block);
        give(take(10));
    }
    CHECK(yield() == 0 && call(0x7fffffff) == -1);
    (void)number;
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    take = malloc, take_zero = calloc, retake = realloc, give = free, lock = pthread_mutex_lock;
    unlock = pthread_mutex_unlock, create = pthread_create, say = printf, put = write, get = read, yield = sched_yield;
    protect = mprotect, call = syscall;
    pthread_t ids[MOST_THREADS];
    for (int i = 0; i < threads; i++) {
        CHECK(create(&ids[i], NULL, work, NULL) == 0);
    }
    for (int i = 0; i < threads; i++) {
        CHECK(pthread_join(ids[i], NULL) == 0);
    }
    CHECK(sum == 100 * threads);
    CHECK(put(-1, "", 1) == -1 && get(-1, &sum, 1) == -1 && protect(NULL, 0, 0) == 0 && say("%s", "") == 0);
    return verdict("addresses");
}
