/* destroyed: a woken thread may still be leaving a condition variable when its memory is freed (the rationale of POSIX
 * for pthread_cond_destroy has this program); the next contents of that memory must not change. Also joins that do not
 * wait, or only for a while. */
#include "verdict.h"

#include <semaphore.h>

struct end {
    pthread_mutex_t mutex;
    pthread_cond_t free;
    int busy;
};

static struct end *next;
static pthread_mutex_t of_next = PTHREAD_MUTEX_INITIALIZER;
static sem_t waits;

static void *wait_for_it(void *unused) {
    (void)unused;
    pthread_mutex_lock(&of_next);
    struct end *end = next;
    pthread_mutex_lock(&end->mutex);
    pthread_mutex_unlock(&of_next);
    CHECK(sem_post(&waits) == 0);
    while (end->busy) {
        CHECK(pthread_cond_wait(&end->free, &end->mutex) == 0);
    }
    CHECK(pthread_mutex_unlock(&end->mutex) == 0);
    return NULL;
}

static void *sleep_until_told(void *unused) {
    (void)unused;
    CHECK(sem_wait(&waits) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    CHECK(sem_init(&waits, 0, 0) == 0);
    for (int round = 0; round < 20; round++) {
        struct end *end = malloc(sizeof *end);
        CHECK(pthread_mutex_init(&end->mutex, NULL) == 0 && pthread_cond_init(&end->free, NULL) == 0);
        end->busy = 1;
        next = end;
        pthread_t ids[MOST_THREADS];
        for (int i = 0; i < threads; i++) {
            CHECK(pthread_create(&ids[i], NULL, wait_for_it, NULL) == 0);
        }
        for (int i = 0; i < threads; i++) {
            CHECK(sem_wait(&waits) == 0);
        }
        pthread_mutex_lock(&end->mutex);
        end->busy = 0;
        CHECK(pthread_cond_broadcast(&end->free) == 0);
        CHECK(pthread_mutex_unlock(&end->mutex) == 0);
        CHECK(pthread_cond_destroy(&end->free) == 0);
        /* The condition variable's memory is the caller's again; threads may still wait for the mutex. */
        memset(&end->free, 0x5a, sizeof end->free);
        for (int i = 0; i < threads; i++) {
            CHECK(pthread_join(ids[i], NULL) == 0);
        }
        for (size_t i = 0; i < sizeof end->free; i++) {
            CHECK(((unsigned char *)&end->free)[i] == 0x5a);
        }
        CHECK(pthread_mutex_destroy(&end->mutex) == 0);
        free(end);
    }

    pthread_t sleeper;
    CHECK(pthread_create(&sleeper, NULL, sleep_until_told, NULL) == 0);
    CHECK(pthread_tryjoin_np(sleeper, NULL) == EBUSY);
    struct timespec soon = deadline(20);
    CHECK(pthread_timedjoin_np(sleeper, NULL, &soon) == ETIMEDOUT);
    CHECK(sem_post(&waits) == 0);
    soon = deadline(60000);
    CHECK(pthread_timedjoin_np(sleeper, NULL, &soon) == 0);

    /* Times by another clock. */
    struct timespec past = {1, 0};
    static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    CHECK(pthread_rwlock_wrlock(&lock) == 0);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 30)
    CHECK(pthread_rwlock_clockwrlock(&lock, CLOCK_MONOTONIC, &past) == 0);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    CHECK(sem_clockwait(&waits, CLOCK_MONOTONIC, &past) == -1 && errno == ETIMEDOUT);
#endif
    return verdict("destroyed");
}
