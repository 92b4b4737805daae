/* Stands in for the real header: threads as processes, so that only the ranges given to gsm_region_share are shared. A
 * program that writes a result anywhere else loses it here, as it would on another machine.
 */
#ifndef GOSSAMER_REGION_H
#define GOSSAMER_REGION_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* The range becomes memory that child processes share, with its present bytes. */
static inline int gsm_region_share(void *at, size_t bytes) {
    if ((size_t)at % 4096 || bytes % 4096 || bytes == 0) {
        return -EINVAL;
    }
    void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED) {
        return -errno;
    }
    memcpy(copy, at, bytes);
    return mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at ? 0 : -errno;
}

static inline int forked_create(pthread_t *id, const void *attributes, void *(*body)(void *), void *argument) {
    pid_t child = fork();
    (void)attributes;
    if (child == 0) {
        body(argument);
        _exit(0);
    }
    *id = (pthread_t)child;
    return child < 0 ? errno : 0;
}

static inline int forked_join(pthread_t id, void **answer) {
    int status;
    (void)answer;
    return waitpid((pid_t)id, &status, 0) < 0 ? errno : status != 0 ? ECHILD : 0;
}

static inline int forked_mutex_init(pthread_mutex_t *mutex) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    return pthread_mutex_init(mutex, &attributes);
}

static inline int forked_barrier_init(pthread_barrier_t *barrier, unsigned count) {
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    return pthread_barrier_init(barrier, &attributes, count);
}

#define pthread_create forked_create
#define pthread_join forked_join
#define pthread_mutex_init(mutex, attributes) forked_mutex_init(mutex)
#define pthread_barrier_init(barrier, attributes, count) forked_barrier_init(barrier, count)

#endif
