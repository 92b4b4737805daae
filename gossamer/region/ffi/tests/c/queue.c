/* queue: producers and consumers over a bounded queue with two condition variables. Each item arrives once, and those
 * of one producer arrive in order. */
#include "verdict.h"

enum { ROOM = 8, ITEMS = 1000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t not_full = PTHREAD_COND_INITIALIZER, not_empty = PTHREAD_COND_INITIALIZER;
static int queue[ROOM], first, used, producing;
static int arrived[MOST_THREADS * ITEMS]; /* arrivals of each item */

static void produce(int producer) {
    for (int i = 0; i < ITEMS; i++) {
        pthread_mutex_lock(&mutex);
        while (used == ROOM) {
            pthread_cond_wait(&not_full, &mutex);
        }
        queue[(first + used++) % ROOM] = producer * ITEMS + i;
        pthread_cond_signal(&not_empty);
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    if (--producing == 0) {
        pthread_cond_broadcast(&not_empty);
    }
    pthread_mutex_unlock(&mutex);
}

static void consume(void) {
    int last[MOST_THREADS];
    memset(last, -1, sizeof last);
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (used == 0 && producing > 0) {
            pthread_cond_wait(&not_empty, &mutex);
        }
        if (used == 0) {
            break;
        }
        int item = queue[first];
        first = (first + 1) % ROOM;
        used--;
        arrived[item]++;
        CHECK(last[item / ITEMS] < item % ITEMS);
        last[item / ITEMS] = item % ITEMS;
        pthread_cond_signal(&not_full);
        pthread_mutex_unlock(&mutex);
        pthread_mutex_lock(&mutex);
    }
    pthread_mutex_unlock(&mutex);
}

static void *work(void *number) {
    int thread = (int)(intptr_t)number;
    if (thread % 2 == 0) {
        produce(thread / 2);
    } else {
        consume();
    }
    return NULL;
}

/* A wait whose deadline passes holds the mutex again, though no thread signals. */
static void times_out(void) {
    struct timespec soon = deadline(10);
    pthread_mutex_lock(&mutex);
    int answer = 0;
    while (answer == 0) {
        answer = pthread_cond_timedwait(&not_empty, &mutex, &soon);
    }
    CHECK(answer == ETIMEDOUT);
    CHECK(pthread_mutex_trylock(&mutex) == EBUSY);
    pthread_mutex_unlock(&mutex);
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    times_out();
    producing = (threads + 1) / 2;
    int items = producing * ITEMS;
    run_threads(threads, work);
    for (int i = 0; i < items; i++) {
        CHECK(arrived[i] == 1);
    }
    CHECK(used == 0 && producing == 0);
    return verdict("queue");
}
