/* Mutexes and barriers of threads on two machines, for `gossamer-bench region`: `gossamer-launch run --local 2 --region
 * auto|explicit locks mutex|barrier TIMES`.
 *
 * mutex: a thread of each machine adds one to a word, TIMES times, each under the mutex. Prints nanoseconds of one
 * addition, and the word.
 * barrier: two threads of each machine meet TIMES times. Prints nanoseconds of a round, and how often a thread found
 * that the other of its machine had come as far. Before the timed part, each thread checks that for all four. */
#define _GNU_SOURCE
#include <gossamer_region.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, MACHINES = 2, OF_MACHINE = 2, CHECKED = 20 };

/* A mutex and the word it guards, on one page. */
static _Alignas(PAGE) union {
    struct {
        pthread_mutex_t mutex;
        uint64_t word;
    } is;
    char page[PAGE];
} counter;

static _Alignas(PAGE) union {
    pthread_barrier_t is;
    char page[PAGE];
} barrier;

/* Written by the threads of one machine. */
static _Alignas(PAGE) union {
    struct {
        atomic_uint_least64_t come[OF_MACHINE];
        pid_t process[OF_MACHINE];
        uint64_t ns;
    } is;
    char page[PAGE];
} machines[MACHINES];

static uint64_t times;

static void must(int error, const char *what) {
    if (error) {
        fprintf(stderr, "locks: %s: %s\n", what, strerror(error));
        exit(1);
    }
}

/* That of this machine: `getpid` is machine 0's on all. */
static pid_t process(void) {
    return (pid_t)syscall(SYS_getpid);
}

static void meet(void) {
    int error = pthread_barrier_wait(&barrier.is);
    must(error == PTHREAD_BARRIER_SERIAL_THREAD ? 0 : error, "barrier");
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Whether that thread has reached this round, and no more than the next one. */
static int has_come(int machine, int place, uint64_t round) {
    uint64_t come = atomic_load(&machines[machine].is.come[place]);
    return come == round || come == round + 1;
}

static void add(void) {
    for (uint64_t i = 0; i < times; i++) {
        must(pthread_mutex_lock(&counter.is.mutex), "lock");
        counter.is.word++;
        must(pthread_mutex_unlock(&counter.is.mutex), "unlock");
    }
}

static void *adder(void *number) {
    int machine = (int)(intptr_t)number;
    machines[machine].is.process[0] = process();
    meet();
    uint64_t began = now_ns();
    add();
    meet();
    machines[machine].is.ns = (now_ns() - began) / (MACHINES * times);
    return NULL;
}

static void *walker(void *number) {
    int machine = (int)(intptr_t)number % MACHINES, place = (int)(intptr_t)number / MACHINES;
    atomic_uint_least64_t *own = &machines[machine].is.come[place];
    uint64_t round = 1, found = 0;
    machines[machine].is.process[place] = process();
    for (; round <= CHECKED; round++) {
        atomic_store(own, round);
        meet();
        for (int other = 0; other < MACHINES * OF_MACHINE; other++) {
            must(has_come(other % MACHINES, other / MACHINES, round) ? 0 : EPROTO,
                 "a thread passed before all had come");
        }
    }
    meet();
    uint64_t began = now_ns();
    for (; round <= CHECKED + times; round++) {
        atomic_store(own, round);
        meet();
        found += (uint64_t)has_come(machine, !place, round);
    }
    if (place == 0) {
        machines[machine].is.ns = (now_ns() - began) / times;
    }
    return (void *)(uintptr_t)found;
}

int main(int argc, char **argv) {
    int is_mutex = argc > 1 && strcmp(argv[1], "mutex") == 0;
    int threads = is_mutex ? MACHINES : MACHINES * OF_MACHINE;
    pthread_t ids[MACHINES * OF_MACHINE];
    uint64_t answer = 0;
    times = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (times == 0) {
        fprintf(stderr, "usage: %s mutex|barrier TIMES\n", argv[0]);
        return 2;
    }
    must(gsm_region_share(&counter, sizeof counter), "share");
    must(gsm_region_share(&barrier, sizeof barrier), "share");
    must(gsm_region_share(machines, sizeof machines), "share");
    must(pthread_mutex_init(&counter.is.mutex, NULL), "mutex");
    must(pthread_barrier_init(&barrier.is, NULL, (unsigned)threads), "barrier");
    for (intptr_t i = 0; i < threads; i++) {
        must(pthread_create(&ids[i], NULL, is_mutex ? adder : walker, (void *)i), "thread");
    }
    for (int i = 0; i < threads; i++) {
        void *found;
        must(pthread_join(ids[i], &found), "join");
        answer += (uint64_t)(uintptr_t)found;
    }
    for (int i = 0; i < threads; i++) {
        int is_first = machines[i % MACHINES].is.process[i / MACHINES] == machines[0].is.process[0];
        must(is_first == (i % MACHINES == 0) ? 0 : EPROTO, "threads are not on two machines");
    }
    answer = is_mutex ? counter.is.word : answer;
    printf("{\"ns\": %llu, \"digest\": %llu}\n", (unsigned long long)machines[0].is.ns, (unsigned long long)answer);
    return 0;
}
