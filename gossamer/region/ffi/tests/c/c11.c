/* c11: threads, mutexes, condition variables, values of threads and `call_once` of <threads.h>. */
#include "verdict.h"

#include <threads.h>

enum { ROUNDS = 100 };

static once_flag flag = ONCE_FLAG_INIT;
static mtx_t mutex, nested;
static cnd_t changed;
static tss_t key;
static int initialised, turn, destroyed, depth;

static void destroy(void *value) {
    mtx_lock(&mutex);
    destroyed += *(int *)value;
    mtx_unlock(&mutex);
    free(value);
}

static void initialise(void) {
    usleep(10000);
    CHECK(mtx_init(&mutex, mtx_timed) == thrd_success && mtx_init(&nested, mtx_plain | mtx_recursive) == thrd_success);
    CHECK(cnd_init(&changed) == thrd_success && tss_create(&key, destroy) == thrd_success);
    initialised++;
}

static int work(void *argument) {
    int number = (int)(intptr_t)argument;
    call_once(&flag, initialise);
    CHECK(initialised == 1 && tss_get(key) == NULL);
    int *value = malloc(sizeof *value);
    *value = number;
    CHECK(tss_set(key, value) == thrd_success && tss_get(key) == value);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(mtx_lock(&mutex) == thrd_success);
        while (turn % threads != number) {
            CHECK(cnd_wait(&changed, &mutex) == thrd_success);
        }
        turn++;
        CHECK(cnd_broadcast(&changed) == thrd_success && mtx_unlock(&mutex) == thrd_success);
    }
    CHECK(mtx_lock(&nested) == thrd_success && mtx_lock(&nested) == thrd_success);
    depth++;
    CHECK(mtx_unlock(&nested) == thrd_success && mtx_unlock(&nested) == thrd_success);
    CHECK(thrd_equal(thrd_current(), thrd_current()));
    if (number % 2 == 1) {
        thrd_exit(-number);
    }
    return -number;
}

static int is_refused(void *nothing) {
    (void)nothing;
    struct timespec soon = deadline(10);
    CHECK(mtx_trylock(&mutex) == thrd_busy && mtx_timedlock(&mutex, &soon) == thrd_timedout);
    return 0;
}

int main(int argc, char **argv) {
    thrd_t ids[MOST_THREADS], other;
    read_threads(argc, argv);
    for (int i = 0; i < threads; i++) {
        CHECK(thrd_create(&ids[i], work, (void *)(intptr_t)i) == thrd_success);
    }
    for (int i = 0; i < threads; i++) {
        int answer = 1;
        CHECK(thrd_join(ids[i], &answer) == thrd_success && answer == -i);
    }
    CHECK(turn == threads * ROUNDS && depth == threads && destroyed == threads * (threads - 1) / 2);

    CHECK(mtx_lock(&mutex) == thrd_success);
    CHECK(thrd_create(&other, is_refused, NULL) == thrd_success && thrd_join(other, NULL) == thrd_success);
    struct timespec soon = deadline(10);
    CHECK(cnd_timedwait(&changed, &mutex, &soon) == thrd_timedout);
    CHECK(mtx_unlock(&mutex) == thrd_success);
    mtx_destroy(&mutex);
    mtx_destroy(&nested);
    cnd_destroy(&changed);
    tss_delete(key);
    return verdict("c11");
}
