/* gossamer_region.h: functions by which a threaded C or C++ program shares memory over several machines, where its
 * threads may run.
 *
 * Nothing is linked: a program that `gossamer-launch run --local N --region auto|explicit PROGRAM` starts finds the
 * functions at its first call. Started in any other way it is one process, in which all memory is shared anyway.
 *
 *     cc -O2 -pthread -I<folder of this file> program.c -o program
 *
 * With `--region explicit` machines share only the ranges given to `gsm_region_share`. All other memory (variables,
 * memory from malloc and mmap, stacks) is each machine's own, at the same addresses; it is copied to a machine once,
 * when the first thread goes there. So share the common ranges before you start threads, and fill in the data that
 * threads are to find. With `--region auto` everything is shared, and the call does nothing.
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
#error "gossamer_region.h needs pthread barriers: use -std=gnu11, or define _GNU_SOURCE before the first header"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Result of gsm_barrier_wait for one of the threads that meet. */
#define GSM_BARRIER_SERIAL_THREAD PTHREAD_BARRIER_SERIAL_THREAD

/* A lock for threads of all machines. It may lie anywhere, also in memory that is not shared, if it is initialised
 * before the machines have their copies. A second lock by its holder is EDEADLK, an unlock by another thread EPERM.
 * Programs must not copy or move it. */
typedef struct gsm_mutex {
    uint64_t number;     /* on several machines */
    pthread_mutex_t own; /* in one process */
} gsm_mutex_t;

/* A barrier for threads of all machines; it may lie where a gsm_mutex_t may. */
typedef struct gsm_barrier {
    uint64_t number;
    pthread_barrier_t own;
} gsm_barrier_t;

/* Not for programs: functions of libgossamer_region_c.so for this header. */
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
            fprintf(stderr, "gossamer: libgossamer_region_c.so is older than the gossamer_region.h of this program: "
                            "install both from one release\n");
            abort();
        }
        const struct gsm_region_calls *(*calls)(void) = NULL;
        memcpy(&calls, &symbol, sizeof calls);
        const struct gsm_region_calls *now = calls ? calls() : NULL;
        if (calls && !now) {
            return NULL; /* before main, or the library is loaded but inactive: a later call may differ */
        }
        __atomic_store_n(&found, now, __ATOMIC_RELAXED);
        __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&found, __ATOMIC_RELAXED);
}

/* Shares whole pages: `at` and `bytes` are multiples of 4096. The pages keep the bytes of the calling machine. No other
 * thread may touch them meanwhile. The memory comes from mmap, aligned_alloc(4096, ...), or malloc of at least 32 KiB,
 * or is variables of the program itself; it stays shared until the program ends. In one process, where the C library's
 * malloc gives no whole pages, a block of malloc may begin anywhere.
 *
 * Errors are EINVAL (not whole pages), EFAULT (other memory) and EEXIST (a part is shared already), and a message on
 * stderr names the cure. */
static inline int gsm_region_share(void *at, size_t bytes) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    if (calls) {
        return calls->share(at, bytes);
    }
    int is_start = (uintptr_t)at % (bytes < 32768 ? 4096 : 2 * sizeof(size_t)) == 0;
    if (!is_start || bytes % 4096 || bytes == 0) {
        fprintf(stderr,
                "gossamer: gsm_region_share(%p, %zu): whole pages can be shared: make address and length multiples of "
                "4096, and the length not 0 (docs/region.md)\n", at, bytes);
        return EINVAL;
    }
    return 0;
}

/* Not for programs: functions of libgossamer_region_c.so for the next ones. */
struct gsm_thread_calls {
    int (*machine)(void);
    int (*move)(int machine);
    int (*hold)(void);
    int (*free)(void);
    int (*move_other)(pthread_t thread, int machine);
};

/* Not for programs: null in a program that is one process. */
static inline const struct gsm_thread_calls *gsm_thread_calls_(void) {
    static const struct gsm_thread_calls *found;
    const struct gsm_thread_calls *calls = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (calls || !gsm_region_calls_()) {
        return calls;
    }
    void *symbol = dlsym(NULL /* RTLD_DEFAULT */, "gossamer_region_threads_1");
    if (!symbol) {
        fprintf(stderr, "gossamer: libgossamer_region_c.so is older than the gossamer_region.h of this program: "
                        "install both from one release\n");
        abort();
    }
    const struct gsm_thread_calls *(*of_library)(void) = NULL;
    memcpy(&of_library, &symbol, sizeof of_library);
    calls = of_library();
    __atomic_store_n(&found, calls, __ATOMIC_RELAXED);
    return calls;
}

/* The machine on which the calling thread runs, from 0 on; 0 in one process. */
static inline int gsm_thread_machine(void) {
    const struct gsm_thread_calls *calls = gsm_thread_calls_();
    return calls ? calls->machine() : 0;
}

/* Goes on on another machine of a program that was started with `--region auto --move asked`: with its stack, its
 * variables (__thread, thread_local, errno), its locks, values of keys, and everything else that is the thread's.
 *
 * Returns 0 on that machine (at once, if the thread is there). Errors are EINVAL (no such machine), ENOTSUP (without
 * --move asked), EAGAIN (that machine has no room for a thread) and EBUSY: the thread is tied to its machine. A message
 * on stderr, once for each kind of tie, says to what, and names the cure. */
static inline int gsm_thread_move(int machine) {
    const struct gsm_thread_calls *calls = gsm_thread_calls_();
    return calls ? calls->move(machine) : machine == 0 ? 0 : EINVAL;
}

/* Asks another thread to go to a machine, and waits until it is there, for 2 s at most. It goes at its next call that
 * may wait (a lock, barrier, join, sleep ..), or amid its own code; `--move asked`.
 *
 * Errors are those of gsm_thread_move, with EBUSY for a thread that was tied all the time, ESRCH (no such thread, or it
 * has ended), EAGAIN (also: it has gone elsewhere meanwhile, or another request has taken the place of this one) and
 * ETIMEDOUT (it waits, or is in a library). A message on stderr says why, once. */
static inline int gsm_thread_move_other(pthread_t thread, int machine) {
    const struct gsm_thread_calls *calls = gsm_thread_calls_();
    return calls ? calls->move_other(thread, machine) : machine == 0 ? 0 : EINVAL;
}

/* From here to gsm_thread_free the calling thread does not move: for pointers and descriptors of a library that has
 * memory of one machine. Calls nest. */
static inline int gsm_thread_hold(void) {
    const struct gsm_thread_calls *calls = gsm_thread_calls_();
    return calls ? calls->hold() : 0;
}

/* Takes a gsm_thread_hold back; EINVAL: there is none. In one process it is always 0. */
static inline int gsm_thread_free(void) {
    const struct gsm_thread_calls *calls = gsm_thread_calls_();
    return calls ? calls->free() : 0;
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

/* Waits, in order of arrival. */
static inline int gsm_mutex_lock(gsm_mutex_t *mutex) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->mutex_lock(mutex->number) : pthread_mutex_lock(&mutex->own);
}

/* EBUSY while another thread holds it. */
static inline int gsm_mutex_trylock(gsm_mutex_t *mutex) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->mutex_trylock(mutex->number) : pthread_mutex_trylock(&mutex->own);
}

/* ETIMEDOUT if the lock did not come before that time of CLOCK_REALTIME. */
static inline int gsm_mutex_timedlock(gsm_mutex_t *mutex, const struct timespec *time) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->mutex_timedlock(mutex->number, time) : pthread_mutex_timedlock(&mutex->own, time);
}

static inline int gsm_mutex_unlock(gsm_mutex_t *mutex) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->mutex_unlock(mutex->number) : pthread_mutex_unlock(&mutex->own);
}

/* For `count` threads, of all machines together. */
static inline int gsm_barrier_init(gsm_barrier_t *barrier, unsigned count) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->barrier_init(&barrier->number, count) : pthread_barrier_init(&barrier->own, NULL, count);
}

static inline int gsm_barrier_destroy(gsm_barrier_t *barrier) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->barrier_destroy(barrier->number) : pthread_barrier_destroy(&barrier->own);
}

/* Waits until all have come. Returns 0, or GSM_BARRIER_SERIAL_THREAD to one of them. */
static inline int gsm_barrier_wait(gsm_barrier_t *barrier) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->barrier_wait(barrier->number) : pthread_barrier_wait(&barrier->own);
}

/* As gsm_barrier_wait, and then fetches the caller's range to its machine, in long runs instead of page by page as it
 * is touched; no thread goes on before all have theirs. For data that others wrote before the barrier and this thread
 * reads after it. All threads that meet call this function, each with its own range, and are no more than the barrier
 * is for; 0 bytes fetch nothing. EFAULT for memory that is not shared: the thread has met, and fetched nothing. */
static inline int gsm_barrier_wait_fetch(gsm_barrier_t *barrier, const void *at, size_t bytes) {
    const struct gsm_region_calls *calls = gsm_region_calls_();
    return calls ? calls->barrier_wait_fetch(barrier->number, at, bytes) : pthread_barrier_wait(&barrier->own);
}

#ifdef __cplusplus
}
#endif

#endif
