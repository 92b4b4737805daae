/* Comparison for mutexes and barriers of a region in `gossamer-bench region`: `locks get-put|accumulate|barrier TIMES`,
 * two processes.
 *
 * get-put, accumulate: each process adds one to a word of process 0, TIMES times, each under an exclusive MPI_Win_lock.
 * Prints nanoseconds of one addition, and the word.
 * barrier: two threads of each process meet TIMES times, those of a process by pthread_barrier, processes by
 * MPI_Barrier. Prints nanoseconds of a round, and how often a thread found that the other of its process had come as
 * far. Before the timed part, each thread checks that for all four. */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROCESSES = 2, OF_PROCESS = 2, CHECKED = 20 };

/* The rounds that threads of a process have reached, visible to all. */
typedef struct {
    _Alignas(64) atomic_uint_least64_t come[OF_PROCESS];
} process_t;

static int rank;
static uint64_t times, found[OF_PROCESS];
static double ns;
static pthread_barrier_t pair;
static process_t *processes[PROCESSES];

static void add(int is_accumulate, MPI_Win window) {
    const uint64_t one = 1;
    for (uint64_t i = 0; i < times; i++) {
        uint64_t word;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        if (is_accumulate) {
            MPI_Accumulate(&one, 1, MPI_UINT64_T, 0, 0, 1, MPI_UINT64_T, MPI_SUM, window);
        } else {
            MPI_Get(&word, 1, MPI_UINT64_T, 0, 0, 1, MPI_UINT64_T, window);
            MPI_Win_flush(0, window);
            word++;
            MPI_Put(&word, 1, MPI_UINT64_T, 0, 0, 1, MPI_UINT64_T, window);
        }
        MPI_Win_unlock(0, window);
    }
}

static uint64_t mutex(int is_accumulate) {
    MPI_Win window;
    uint64_t *own, word = 0;
    MPI_Win_allocate(rank == 0 ? sizeof *own : 0, sizeof *own, MPI_INFO_NULL, MPI_COMM_WORLD, &own, &window);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        *own = 0;
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    add(is_accumulate, window);
    MPI_Barrier(MPI_COMM_WORLD);
    ns = (MPI_Wtime() - began) * 1e9 / (double)(PROCESSES * times);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        word = *own;
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&window);
    return word;
}

static void meet(int place) {
    pthread_barrier_wait(&pair);
    if (place == 0) MPI_Barrier(MPI_COMM_WORLD);
    pthread_barrier_wait(&pair);
}

/* Whether that thread has reached this round, and no more than the next one. */
static int has_come(int process, int place, uint64_t round) {
    uint64_t come = atomic_load(&processes[process]->come[place]);
    return come == round || come == round + 1;
}

static void *walk(void *number) {
    int place = (int)(intptr_t)number;
    atomic_uint_least64_t *own = &processes[rank]->come[place];
    uint64_t round = 1;
    for (; round <= CHECKED; round++) {
        atomic_store(own, round);
        meet(place);
        for (int other = 0; other < PROCESSES * OF_PROCESS; other++) {
            if (!has_come(other % PROCESSES, other / PROCESSES, round)) {
                fprintf(stderr, "locks: a thread passed before all had come\n");
                exit(1);
            }
        }
    }
    meet(place);
    double began = MPI_Wtime();
    for (; round <= CHECKED + times; round++) {
        atomic_store(own, round);
        meet(place);
        found[place] += (uint64_t)has_come(rank, !place, round);
    }
    if (place == 0) ns = (MPI_Wtime() - began) * 1e9 / (double)times;
    return NULL;
}

static uint64_t barrier(void) {
    MPI_Win window;
    MPI_Aint bytes;
    int unit;
    pthread_t other;
    uint64_t own, all = 0;
    MPI_Win_allocate_shared(sizeof(process_t), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &processes[rank], &window);
    memset(processes[rank], 0, sizeof(process_t));
    for (int process = 0; process < PROCESSES; process++)
        MPI_Win_shared_query(window, process, &bytes, &unit, &processes[process]);
    pthread_barrier_init(&pair, NULL, OF_PROCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    if (pthread_create(&other, NULL, walk, (void *)(intptr_t)1)) exit(1);
    walk((void *)(intptr_t)0);
    pthread_join(other, NULL);
    own = found[0] + found[1];
    MPI_Reduce(&own, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Win_free(&window);
    return all;
}

int main(int argc, char **argv) {
    int threads, size;
    uint64_t answer;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    times = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    if (size != PROCESSES || times == 0 || threads < MPI_THREAD_FUNNELED) {
        fprintf(stderr, "usage: mpirun -n 2 %s get-put|accumulate|barrier TIMES\n", argv[0]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    answer = strcmp(argv[1], "barrier") == 0 ? barrier() : mutex(strcmp(argv[1], "accumulate") == 0);
    if (rank == 0) printf("{\"ns\": %.0f, \"digest\": %llu}\n", ns, (unsigned long long)answer);
    MPI_Finalize();
    return 0;
}
