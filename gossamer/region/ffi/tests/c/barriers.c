/* barriers: threads meet again and again; then more of them than a barrier is for, and fewer on one machine than
 * before. One of the threads that meet gets the serial result, and no thread passes before all have come. */
#include "verdict.h"

enum { ROUNDS = 200, PAIRED = 100 };

static pthread_barrier_t all, pairs, even;
static atomic_int come[ROUNDS], serials, taken, pair_serials;

static int meet(pthread_barrier_t *barrier) {
    errno = 77;
    int answer = pthread_barrier_wait(barrier);
    CHECK(errno == 77);
    CHECK(answer == 0 || answer == PTHREAD_BARRIER_SERIAL_THREAD);
    return answer == PTHREAD_BARRIER_SERIAL_THREAD;
}

static void *work(void *number) {
    int thread = (int)(intptr_t)number;
    for (int round = 0; round < ROUNDS; round++) {
        atomic_fetch_add(&come[round], 1);
        atomic_fetch_add(&serials, meet(&all));
        CHECK(atomic_load(&come[round]) == threads);
    }
    /* Any two threads make a pair: none is left over, since an even number come in all. */
    while (atomic_fetch_add(&taken, 1) < PAIRED) {
        atomic_fetch_add(&pair_serials, meet(&pairs));
    }
    /* Every second thread only, then all again. */
    for (int round = 0; round < 5 && thread % 2 == 0; round++) {
        meet(&even);
    }
    meet(&all);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    threads += threads % 2;
    CHECK(pthread_barrier_init(&all, NULL, 0) == EINVAL);
    CHECK(pthread_barrier_init(&all, NULL, (unsigned)threads) == 0);
    CHECK(pthread_barrier_init(&pairs, NULL, 2) == 0);
    CHECK(pthread_barrier_init(&even, NULL, (unsigned)threads / 2) == 0);
    run_threads(threads, work);
    CHECK(serials == ROUNDS && pair_serials == PAIRED / 2);
    CHECK(pthread_barrier_destroy(&all) == 0 && pthread_barrier_destroy(&pairs) == 0);
    CHECK(pthread_barrier_destroy(&even) == 0);
    return verdict("barriers");
}
