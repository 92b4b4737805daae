/* memory: variables and blocks take memory where they are touched, on all machines, and freed blocks give it back. */
#include "verdict.h"

#include <sys/resource.h>

enum { BLOCKS = 256, MIB = 1 << 20, MOST_MIB = 120 };

static char untouched[1L << 30];

/* The most that this machine has had. */
static long peak_mib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

static long resident_mib(void) {
    long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &all, &resident) == 2);
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE) / MIB;
}

static void *touch(void *number) {
    char *block = calloc(1, 1L << 30);
    CHECK(block != NULL && block[(1L << 30) - 1] == 0);
    untouched[(intptr_t)number << 20]++;
    block[1 << 20]++;
    CHECK(peak_mib() < MOST_MIB);
    free(block);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    run_threads(threads, touch);
    for (int i = 0; i < threads; i++) {
        CHECK(untouched[(long)i << 20] == 1);
    }
    CHECK(peak_mib() < MOST_MIB);
    for (int round = 0; round < 3; round++) {
        char *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) {
            blocks[i] = malloc(MIB);
            memset(blocks[i], i, MIB);
        }
        CHECK(resident_mib() >= BLOCKS);
        for (int i = 0; i < BLOCKS; i++) {
            CHECK(blocks[i][MIB / 2] == (char)i);
            free(blocks[i]);
        }
        struct timespec soon = {0, 10000000};
        for (int looks = 0; looks < 500 && resident_mib() >= MOST_MIB; looks++) {
            nanosleep(&soon, NULL);
        }
        CHECK(resident_mib() < MOST_MIB);
    }
    char *zeros = calloc(BLOCKS, MIB); /* pages that others had */
    for (long i = 0; i < BLOCKS; i++) {
        CHECK(zeros[i * MIB + MIB / 2] == 0);
    }
    free(zeros);
    return verdict("memory");
}
