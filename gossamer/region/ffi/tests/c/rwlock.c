/* rwlock: writers change all words of a table, readers see all words equal, and a held lock refuses the others as POSIX
 * says. */
#include "verdict.h"

enum { WORDS = 2048, ROUNDS = 100 };

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static long table[WORDS]; /* several pages */

static void *work(void *number) {
    int writes = (int)(intptr_t)number % 2;
    long last = 0;
    for (int round = 0; round < ROUNDS; round++) {
        if (writes) {
            pthread_rwlock_wrlock(&lock);
            for (int i = 0; i < WORDS; i++) {
                table[i]++;
            }
        } else {
            pthread_rwlock_rdlock(&lock);
            for (int i = 1; i < WORDS; i++) {
                CHECK(table[i] == table[0]);
            }
            CHECK(table[0] >= last);
            last = table[0];
        }
        pthread_rwlock_unlock(&lock);
    }
    return NULL;
}

/* Results for another thread while the main thread holds the lock. */
static void *try_both(void *expect) {
    int read = (int)(intptr_t)expect;
    CHECK(pthread_rwlock_tryrdlock(&lock) == read);
    if (read == 0) {
        pthread_rwlock_unlock(&lock);
    }
    CHECK(pthread_rwlock_trywrlock(&lock) == EBUSY);
    struct timespec soon = deadline(10);
    CHECK(pthread_rwlock_timedwrlock(&lock, &soon) == ETIMEDOUT);
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t other;
    read_threads(argc, argv);
    run_threads(threads, work);
    CHECK(table[0] == (long)threads / 2 * ROUNDS);

    pthread_rwlock_wrlock(&lock);
    CHECK(pthread_create(&other, NULL, try_both, (void *)(intptr_t)EBUSY) == 0);
    pthread_join(other, NULL);
    pthread_rwlock_unlock(&lock);
    pthread_rwlock_rdlock(&lock);
    CHECK(pthread_create(&other, NULL, try_both, (void *)(intptr_t)0) == 0);
    pthread_join(other, NULL);
    pthread_rwlock_unlock(&lock);

    /* Its writer has it already. */
    CHECK(pthread_rwlock_wrlock(&lock) == 0);
    struct timespec soon = deadline(10);
    CHECK(pthread_rwlock_wrlock(&lock) == EDEADLK && pthread_rwlock_rdlock(&lock) == EDEADLK);
    CHECK(pthread_rwlock_timedwrlock(&lock, &soon) == EDEADLK && pthread_rwlock_trywrlock(&lock) == EBUSY);
    CHECK(pthread_rwlock_unlock(&lock) == 0);

    /* A held lock whose memory is used for another one, to which ThreadSanitizer objects. */
#ifndef __SANITIZE_THREAD__
    for (int round = 0; round < 2; round++) {
        CHECK(pthread_rwlock_init(&lock, NULL) == 0 && pthread_rwlock_trywrlock(&lock) == 0);
    }
    CHECK(pthread_rwlock_unlock(&lock) == 0);
#endif
    CHECK(pthread_rwlock_destroy(&lock) == 0);
    return verdict("rwlock");
}
