/* counters: each thread counts in a word of its own, and all words are on one page, which `--region-stats` reports.
 * From time to time each thread waits until the others have come as far, so that the page goes back and forth. */
#include "verdict.h"

enum { ROUNDS = 5000, TOGETHER = 50 };

static _Alignas(4096) atomic_long crowded_counters[512];
static _Alignas(4096) long quiet[512];

static void *count(void *number) {
    int thread = (int)(intptr_t)number;
    for (int round = 0; round < ROUNDS; round++) {
        atomic_fetch_add(&crowded_counters[thread], 1);
        for (int other = 0; other < threads && round % TOGETHER == 0; other++) {
            while (atomic_load(&crowded_counters[other]) <= round) {
            }
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    quiet[0] = 1;
    run_threads(threads, count);
    for (int thread = 0; thread < threads; thread++) {
        CHECK(crowded_counters[thread] == ROUNDS);
    }
    return verdict("counters");
}
