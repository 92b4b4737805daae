/* semaphore: two threads take turns by two semaphores, a semaphore of two admits two at a time, and an exhausted one
 * refuses. */
#include "verdict.h"
#include <semaphore.h>

enum { TURNS = 300, ENTRIES = 200, ROOM = 2 };

static sem_t turns[2], room, mutex;
static long turn;
static atomic_int inside;
static long entries;

static void *alternate(void *number) {
    int thread = (int)(intptr_t)number;
    for (int i = 0; i < TURNS; i++) {
        CHECK(sem_wait(&turns[thread]) == 0);
        CHECK(turn == 2 * i + thread);
        turn++;
        CHECK(sem_post(&turns[1 - thread]) == 0);
    }
    return NULL;
}

static void *enter(void *unused) {
    for (int i = 0; i < ENTRIES; i++) {
        CHECK(sem_wait(&room) == 0);
        int with_me = atomic_fetch_add(&inside, 1) + 1;
        CHECK(with_me >= 1 && with_me <= ROOM);
        CHECK(sem_wait(&mutex) == 0);
        entries++;
        CHECK(sem_post(&mutex) == 0);
        atomic_fetch_sub(&inside, 1);
        CHECK(sem_post(&room) == 0);
    }
    (void)unused;
    return NULL;
}

/* Results for a thread that finds it exhausted. */
static void *refused(void *unused) {
    struct timespec soon = deadline(10);
    errno = 0;
    CHECK(sem_trywait(&mutex) == -1 && errno == EAGAIN);
    CHECK(sem_timedwait(&mutex, &soon) == -1 && errno == ETIMEDOUT);
    (void)unused;
    return NULL;
}

int main(int argc, char **argv) {
    int value = -1;
    read_threads(argc, argv);
    CHECK(sem_init(&turns[0], 0, 1) == 0 && sem_init(&turns[1], 0, 0) == 0);
    CHECK(sem_init(&room, 0, ROOM) == 0 && sem_init(&mutex, 0, 1) == 0);
    run_threads(2, alternate);
    CHECK(turn == 2 * TURNS);
    run_threads(threads, enter);
    CHECK(entries == (long)threads * ENTRIES && inside == 0);
    CHECK(sem_getvalue(&room, &value) == 0 && value == ROOM);
    CHECK(sem_trywait(&mutex) == 0);
    run_threads(1, refused);
    CHECK(sem_post(&mutex) == 0 && sem_getvalue(&mutex, &value) == 0 && value == 1);
    CHECK(sem_destroy(&turns[0]) == 0 && sem_destroy(&turns[1]) == 0);
    CHECK(sem_destroy(&room) == 0 && sem_destroy(&mutex) == 0);
    return verdict("semaphore");
}
