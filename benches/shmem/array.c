/* The contender of `gossamer-bench array` over OpenSHMEM: one of two processes reads the elements of the other one, in
 * order and one by one, with shmem_g. `gossamer-bench array` compiles it with `oshcc` where that is there.
 *
 * The package `exchange` (array.rs) defines the elements; options are those of its jobs, of which this one takes part
 * in `pass` alone. The outcome is a line of JSON. */

#define _POSIX_C_SOURCE 199309L
#include <inttypes.h>
#include <shmem.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* splitmix64, and never 0. */
static uint64_t value(uint64_t index) {
    uint64_t z = (index ^ (index >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) | 1;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    const char *work = "pass";
    size_t elements = (size_t)1 << 20, ops = elements;
    for (int at = 1; at + 1 < argc; at += 2) {
        if (strcmp(argv[at], "--work") == 0) work = argv[at + 1];
        if (strcmp(argv[at], "--elements") == 0) elements = strtoull(argv[at + 1], NULL, 10);
        if (strcmp(argv[at], "--ops") == 0) ops = strtoull(argv[at + 1], NULL, 10);
    }
    size_t half = elements / 2, count = ops < half ? ops : half;
    if (strcmp(work, "pass") != 0 || count == 0) {
        fprintf(stderr, "OpenSHMEM has no part in %s of %zu elements\n", work, count);
        return 1;
    }
    shmem_init();
    if (shmem_n_pes() != 2) {
        fprintf(stderr, "start two processes: oshrun -n 2\n");
        shmem_global_exit(1);
    }
    uint64_t *own = shmem_malloc(half * sizeof *own);
    if (own == NULL) {
        fprintf(stderr, "there is no symmetric memory for %zu elements: SHMEM_SYMMETRIC_SIZE\n", half);
        shmem_global_exit(1);
    }
    size_t first = (size_t)shmem_my_pe() * half;
    for (size_t at = 0; at < half; at++) own[at] = value(first + at);
    shmem_barrier_all();
    if (shmem_my_pe() == 0) {
        uint64_t sum = 0, wanted = 0;
        double start = now_s();
        for (size_t at = 0; at < count; at++) sum += shmem_uint64_g(&own[at], 1);
        double end = now_s();
        for (size_t at = 0; at < count; at++) wanted += value(half + at);
        if (sum != wanted) {
            fprintf(stderr, "the elements come to %" PRIu64 ", not %" PRIu64 "\n", sum, wanted);
            shmem_global_exit(1);
        }
        printf("{\"ops\":%zu,\"seconds\":%.9f}\n", count, end - start);
        fflush(stdout);
    }
    shmem_barrier_all();
    /* Not shmem_finalize: that of Open MPI 4.1.4 ends with a segmentation fault where UCX_TLS names its transports. */
    shmem_global_exit(0);
}
