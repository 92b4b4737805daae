/* verdict.h: shared by these programs: number of threads, checks, and the verdict: "NAME: ok" and status 0, or each
 * failed check on stderr, "NAME: failed" and status 1. Include it first. The number of threads is the only argument.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST_THREADS = 64 };

static int threads = 4;
static atomic_int failed;

#define CHECK(condition)                                                                    \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            atomic_fetch_add(&failed, 1);                                                   \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);  \
        }                                                                                   \
    } while (0)

static inline void read_threads(int argc, char **argv) {
    threads = argc > 1 ? atoi(argv[1]) : threads;
    if (argc > 2 || threads < 2 || threads > MOST_THREADS) {
        fprintf(stderr, "usage: %s [THREADS], from 2 to %d\n", argv[0], MOST_THREADS);
        exit(2);
    }
}

/* Runs `count` threads with numbers from 0 on, and waits for all. */
static inline void run_threads(int count, void *(*body)(void *number)) {
    pthread_t ids[MOST_THREADS];
    for (int i = 0; i < count; i++) {
        CHECK(pthread_create(&ids[i], NULL, body, (void *)(intptr_t)i) == 0);
    }
    for (int i = 0; i < count; i++) {
        void *answer = &answer;
        CHECK(pthread_join(ids[i], &answer) == 0 && answer == NULL);
    }
}

/* A deadline that is `ms` milliseconds ahead. */
static inline struct timespec deadline(long ms) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_nsec += ms * 1000000;
    at.tv_sec += at.tv_nsec / 1000000000;
    at.tv_nsec %= 1000000000;
    return at;
}

static inline int verdict(const char *name) {
    printf("%s: %s\n", name, failed ? "failed" : "ok");
    return failed != 0;
}
