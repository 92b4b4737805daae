/* gossamer_region.h: what a threaded C or C++ program says to Gossamer, so that its threads may run on several machines.
 *
 * Nothing is linked: a program that `gossamer-launch run --local N --region auto|explicit PROGRAM` starts finds the functions when it
 * calls them first. Started in any other way it is one process, in which all memory is shared anyway.
 *
 *     cc -O2 -pthread -I<folder of this file> program.c -o program
 *
 * With `--region explicit` machines share only what `gsm_region_share` has named. All else (variables, what malloc and mmap gave, stacks) is
 * each machine's own, at the same addresses; it is copied to a machine once, when the first thread goes there. So name what threads share
 * before you start them, and put what they are to find into place. With `--region auto` everything is shared, and the call does nothing.
 *
 * Every function returns 0 or an errno. docs/region.md has the rest.
 */
#ifndef GOSSAMER_REGION_H
#define GOSSAMER_REGION_H

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifndef PTHREAD_BARRIER_SERIAL_THREAD
#error "gossamer_region.h needs POSIX threads with barriers: compile with -std=gnu11, or define _GNU_SOURCE or _POSIX_C_SOURCE as 200809L first"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* What gsm_barrier_wait returns to one of the threads that meet. */
#define GSM_BARRIER_SERIAL_THREAD PTHREAD_BARRIER_SERIAL_THREAD

/* A lock for threads of all machines. It may lie anywhere, also in memory that is not shared, if it is initialised before the machines have their copies. A
 * second lock by its holder is EDEADLK, an unlock by another thread EPERM. Not to be copied or moved by the program. */
typedef struct gsm_mutex {
    uint64_t number;     /* on several machines */
    pthread_mutex_t own; /* in one process */
} gsm_mutex_t;

/* A barrier for threads of all machines; it may lie where a gsm_mutex_t may. */
typedef struct gsm_barrier {
    uint64_t number;
    pthread_barrier_t own;
} gsm_barrier_t;

/* Not for programs: what libgossamer_region_c.so has for this header. */
struct gsm_region_calls {
    int (*share)(void *at, size_t bytes);
    int (*mutex_init)(uint64_t *number);
    int (*mutex_destroy)(uint64_t number);
    int (*mutex_lock)(uint64_t number);
    int (*mutex_trylock)(uint64_t number);
    int (*mutex_timedlock)(uint64_t number, const struct timespec *time);
    int (*mutex_unlock)(uint64_t number);
    int (*barrier_init)(uint64_t *number, unsigned count);
    int (*barrier_destroy)(uint64_t number);
    int (*barrier_wait)(uint64_t number);
    int (*barrier_wait_fetch)(uint64_t number, const void *at, size_t bytes);
};

/* Not for programs: null in a program that is one process. */
static inline const struct gsm_region_calls *gsm_region_calls_(void) {
    static int looked;
    static const struct gsm_region_calls *found;
    if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
        void *symbol = dlsym(NULL /* RTLD_DEFAULT */, "gossamer_region_calls_2");
        if (!symbol && dlsym(NULL, "gossamer_region_calls_1")) {
            fprintf(stderr, "gossamer: libgossamer_region_c.so is older than the gossamer_region.h of this program: install both from one release\n");
            abort();
        }
        const struct gsm_region_calls *(*calls)(void) = NULL;
        memcpy(&calls, &symbol, sizeof calls);
        const struct gsm_region_calls *now = calls ? calls() : NULL;
        if (calls && !now) {
            return NULL; /* before main, or the library is loaded and was not asked for anything: it may say otherwise later */
        }
        __atomic_store_n(&found, now, __ATOMIC_RELAXED);
        __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&found, __ATOMIC_RELAXED);
}

/* Shares whole pages: `at` and `bytes` are multiples of 4096. Their bytes are those that the calling machine has. No other thread may touch them
 * meanwhile. The memory is of malloc, aligned_alloc, mmap, or variables of the program itself; it stays shared until the program ends.
 *
 * Else EINVAL (not whole pages), EFAULT (other memory) or EEXIST (a part is shared already), and a message on stderr says what to do. */
static inline int gsm_region_share(void *at, size_t bytes) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    if (calls) {
        return calls->share(at, bytes);
    }
    if ((uintptr_t)at % 4096 || bytes % 4096 || bytes == 0) {
        fprintf(stderr,
                "gossamer: gsm_region_share(%p, %zu): whole pages can be shared: make address and length multiples of 4096, and the "
                "length not 0 (docs/region.md)\n", at, bytes);
        return EINVAL;
    }
    return 0;
}

static inline int gsm_mutex_init(gsm_mutex_t *mutex) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    if (calls) {
        return calls->mutex_init(&mutex->number);
    }
    pthread_mutexattr_t attributes;
    int error = pthread_mutexattr_init(&attributes);
    if (!error) {
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
        error = pthread_mutex_init(&mutex->own, &attributes);
        pthread_mutexattr_destroy(&attributes);
    }
    return error;
}

static inline int gsm_mutex_destroy(gsm_mutex_t *mutex) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->mutex_destroy(mutex->number) : pthread_mutex_destroy(&mutex->own);
}

/* Waits, in order of coming. */
static inline int gsm_mutex_lock(gsm_mutex_t *mutex) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->mutex_lock(mutex->number) : pthread_mutex_lock(&mutex->own);
}

/* EBUSY where somebody has it. */
static inline int gsm_mutex_trylock(gsm_mutex_t *mutex) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->mutex_trylock(mutex->number) : pthread_mutex_trylock(&mutex->own);
}

/* ETIMEDOUT where it did not come before that time of CLOCK_REALTIME. */
static inline int gsm_mutex_timedlock(gsm_mutex_t *mutex, const struct timespec *time) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->mutex_timedlock(mutex->number, time) : pthread_mutex_timedlock(&mutex->own, time);
}

static inline int gsm_mutex_unlock(gsm_mutex_t *mutex) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->mutex_unlock(mutex->number) : pthread_mutex_unlock(&mutex->own);
}

/* For so many threads, of all machines together. */
static inline int gsm_barrier_init(gsm_barrier_t *barrier, unsigned count) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->barrier_init(&barrier->number, count) : pthread_barrier_init(&barrier->own, NULL, count);
}

static inline int gsm_barrier_destroy(gsm_barrier_t *barrier) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->barrier_destroy(barrier->number) : pthread_barrier_destroy(&barrier->own);
}

/* Waits until all have come: 0, or GSM_BARRIER_SERIAL_THREAD for one of them. */
static inline int gsm_barrier_wait(gsm_barrier_t *barrier) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->barrier_wait(barrier->number) : pthread_barrier_wait(&barrier->own);
}

/* The same, and then fetches what the caller names to its machine, in long runs instead of page by page as it is touched; nobody goes on before all have
 * theirs. For what others wrote before the barrier, and this thread reads after it. All who meet call this function, each with its own bytes, and
 * they are no more threads than the barrier is for; 0 bytes fetch nothing. EFAULT for memory that is not shared: it has met, and fetched nothing. */
static inline int gsm_barrier_wait_fetch(gsm_barrier_t *barrier, const void *at, size_t bytes) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->barrier_wait_fetch(barrier->number, at, bytes) : pthread_barrier_wait(&barrier->own);
}

#ifdef __cplusplus
}
#endif

#endif
