/* asked: threads go to other machines as other threads ask, at their next call that may wait; over machines, with
 * `--move asked`. Arguments: machines, and how often two threads swap. */
#include "verdict.h"

#include "gossamer_region.h"

#include <semaphore.h>
#include <threads.h>

static int machines = 2, swaps = 100;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static atomic_int is_over, is_set, begun;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Where the host has much else to do, a thread may not come to its next call within two seconds. */
static int ask(pthread_t it, int to) {
    int error = ETIMEDOUT;
    for (int time = 0; time < 20 && error == ETIMEDOUT; time++) {
        error = gsm_thread_move_other(it, to);
    }
    return error;
}

/* Where the thread of a test is, as it says itself. */
static atomic_int machine_of_it;

static void tell(void) { machine_of_it = gsm_thread_machine(); }

static void *locks(void *unused) {
    for (long turn = 0; !is_over; turn++) {
        pthread_mutex_lock(&mutex);
        tell();
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

static void *reads(void *unused) {
    while (!is_over) {
        pthread_rwlock_rdlock(&rwlock);
        tell();
        pthread_rwlock_unlock(&rwlock);
    }
    return unused;
}

static void *sleeps(void *unused) {
    while (!is_over) {
        usleep(500);
        tell();
    }
    return unused;
}

static void *waits(void *unused) {
    while (!is_over) {
        struct timespec soon = deadline(1);
        pthread_mutex_lock(&mutex);
        pthread_cond_timedwait(&condition, &mutex, &soon);
        pthread_mutex_unlock(&mutex);
        tell();
    }
    return unused;
}

static void *takes(void *unused) {
    while (!is_over) {
        sem_wait(&semaphore);
        tell();
        sem_post(&semaphore);
    }
    return unused;
}

static void *meets(void *unused) {
    while (!is_over) {
        pthread_barrier_wait(&barrier);
        tell();
    }
    return unused;
}

static void *nothing(void *result) { return result; }

static void *joins(void *unused) {
    while (!is_over) {
        pthread_t other;
        void *result = NULL;
        CHECK(pthread_create(&other, NULL, nothing, &is_over) == 0);
        CHECK(pthread_join(other, &result) == 0 && result == &is_over);
        tell();
    }
    return unused;
}

/* A thread that makes one kind of call goes where it is asked to, and back. */
static void goes(void *(*body)(void *)) {
    pthread_t it;
    is_over = 0;
    CHECK(pthread_create(&it, NULL, body, NULL) == 0);
    for (int turn = 0; turn < 6; turn++) {
        int to = turn % machines;
        int error = ask(it, to);
        CHECK(error == 0);
        if (error) {
            fprintf(stderr, "turn %d: %s\n", turn, strerror(error));
        }
        machine_of_it = -1;
        double end = seconds() + 20;
        while (machine_of_it == -1 && seconds() < end) {
            usleep(100);
        }
        CHECK(machine_of_it == to);
    }
    is_over = 1;
    CHECK(pthread_join(it, NULL) == 0);
}

static pthread_t of_main;

static void *asks_main(void *unused) {
    CHECK(gsm_thread_move_other(of_main, (gsm_thread_machine() + 1) % machines) == EBUSY || machines == 1);
    return unused;
}

static void *holds(void *unused) {
    gsm_thread_hold();
    begun = 1;
    while (!is_over) {
        usleep(500);
    }
    gsm_thread_free();
    return unused;
}

static void *waits_long(void *unused) {
    begun = 1;
    pthread_mutex_lock(&mutex);
    while (!is_set) {
        pthread_cond_wait(&condition, &mutex);
    }
    pthread_mutex_unlock(&mutex);
    return locks(unused);
}

static void until_begun(void) {
    while (!begun) {
        usleep(100);
    }
    begun = 0;
}

static int machine_in_words(pthread_t it) {
    for (int machine = 0; machine < machines; machine++) {
        (void)it;
        if (machine_of_it == machine) {
            return machine;
        }
    }
    return -1;
}

/* A thread that is held, and one that waits, stay; they go when they are asked again. */
static void stays(void) {
    pthread_t it;
    is_over = is_set = begun = 0;
    CHECK(pthread_create(&it, NULL, holds, NULL) == 0);
    until_begun();
    int was = gsm_thread_move_other(it, 0) == 0 ? 1 : 0; /* 0 where it is */
    double start = seconds();
    CHECK(gsm_thread_move_other(it, was) == EBUSY);
    CHECK(seconds() - start >= 1.9);
    is_over = 1;
    CHECK(pthread_join(it, NULL) == 0);

    is_over = 0;
    CHECK(pthread_create(&it, NULL, waits_long, NULL) == 0);
    until_begun();
    usleep(50000);
    int first = gsm_thread_move_other(it, 0), second = gsm_thread_move_other(it, 1);
    CHECK((first == 0) != (second == 0) && first + second == ETIMEDOUT);
    pthread_mutex_lock(&mutex);
    is_set = 1;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    CHECK(ask(it, 0) == 0 && ask(it, 1) == 0);
    is_over = 1;
    CHECK(pthread_join(it, NULL) == 0);
    CHECK(machine_in_words(it) == 1);
}

static int answers[2];
static pthread_t asked_one;

static void *asks_one(void *to) {
    answers[(long)to] = gsm_thread_move_other(asked_one, (int)(long)to);
    return NULL;
}

/* Of two that ask at the same time the first is told that another one has come; and a thread that ends tells so. */
static void is_asked_twice(void) {
    pthread_t one, two;
    is_over = begun = 0;
    CHECK(pthread_create(&asked_one, NULL, holds, NULL) == 0);
    until_begun();
    long there = gsm_thread_move_other(asked_one, 0) == 0 ? 0 : 1, away = 1 - there;
    CHECK(pthread_create(&one, NULL, asks_one, (void *)away) == 0);
    usleep(200000);
    int second = gsm_thread_move_other(asked_one, (int)away);
    CHECK(pthread_join(one, NULL) == 0);
    CHECK((answers[away] == EAGAIN && second == EBUSY) || (answers[away] == EBUSY && second == EAGAIN));

    /* It ends while it is asked. */
    CHECK(pthread_create(&two, NULL, asks_one, (void *)away) == 0);
    usleep(200000);
    is_over = 1;
    CHECK(pthread_join(asked_one, NULL) == 0 && pthread_join(two, NULL) == 0);
    CHECK(answers[away] == ESRCH || answers[away] == 0); /* 0: between the end of the hold and its own */
    CHECK(gsm_thread_move_other(asked_one, 0) == ESRCH);
}

static void *leaves(void *unused) {
    for (int turn = 0; !is_over; turn++) {
        int error = gsm_thread_move(turn % machines);
        CHECK(error == 0);
        usleep(200);
    }
    return unused;
}

static atomic_int came, missed;

static void *asks_always(void *it) {
    for (int turn = 0; turn < swaps; turn++) {
        int error = ask(*(pthread_t *)it, turn % machines);
        CHECK(error == 0 || error == EAGAIN);
        (*(error ? &missed : &came))++;
    }
    return NULL;
}

/* It is asked by two while it comes and goes by itself. */
static void is_asked_while_it_leaves(void) {
    pthread_t it, one, two;
    is_over = 0;
    CHECK(pthread_create(&it, NULL, leaves, NULL) == 0);
    CHECK(pthread_create(&one, NULL, asks_always, &it) == 0 && pthread_create(&two, NULL, asks_always, &it) == 0);
    CHECK(pthread_join(one, NULL) == 0 && pthread_join(two, NULL) == 0);
    is_over = 1;
    CHECK(pthread_join(it, NULL) == 0 && came + missed == 2 * swaps && came > 0);
}

static void *counts(void *count) {
    while (!is_over) {
        (*(long *)count)++;
        sched_yield();
        usleep(1);
    }
    return NULL;
}

/* Two threads swap their machines again and again. */
static void swap(void) {
    pthread_t one, two;
    static long first, second;
    is_over = 0;
    CHECK(pthread_create(&one, NULL, counts, &first) == 0 && pthread_create(&two, NULL, counts, &second) == 0);
    for (int turn = 0; turn < swaps; turn++) {
        CHECK(ask(one, turn % machines) == 0);
        CHECK(ask(two, (turn + 1) % machines) == 0);
    }
    is_over = 1;
    CHECK(pthread_join(one, NULL) == 0 && pthread_join(two, NULL) == 0 && first > 0 && second > 0);
}

static void *asks_itself(void *unused) {
    int other = (gsm_thread_machine() + 1) % machines;
    CHECK(gsm_thread_move_other(pthread_self(), other) == 0 && gsm_thread_machine() == other);
    CHECK(gsm_thread_move_other(pthread_self(), other) == 0);
    return unused;
}

int main(int argc, char **argv) {
    machines = argc > 1 ? atoi(argv[1]) : machines;
    swaps = argc > 2 ? atoi(argv[2]) : swaps;
    pthread_t it;
    of_main = pthread_self();
    CHECK(pthread_barrier_init(&barrier, NULL, 1) == 0 && sem_init(&semaphore, 0, 1) == 0);
    void *(*bodies[])(void *) = {locks, reads, sleeps, waits, takes, meets, joins};
    for (size_t at = 0; at < sizeof bodies / sizeof *bodies; at++) {
        goes(bodies[at]);
    }
    CHECK(pthread_create(&it, NULL, asks_main, NULL) == 0 && pthread_join(it, NULL) == 0);
    CHECK(pthread_create(&it, NULL, asks_itself, NULL) == 0);
    CHECK(gsm_thread_move_other(it, -1) == EINVAL && gsm_thread_move_other(it, machines) == EINVAL);
    CHECK(pthread_join(it, NULL) == 0 && gsm_thread_move_other(0x1234, 0) == ESRCH);
    stays();
    is_asked_twice();
    is_asked_while_it_leaves();
    swap();
    return verdict("asked");
}
