/* many_threads: threads one after the other, and a few at a time, on all machines: the memory of their stacks is
 * reused. With stacks of 8 MiB and 256 MiB for all, few fit at a time. */
#include "verdict.h"

static void *work(void *number) {
    volatile char deep[64 * 1024];
    for (size_t i = 0; i < sizeof deep; i += 4096) {
        deep[i] = 1;
    }
    return (void *)((intptr_t)number * (intptr_t)deep[0]);
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    for (intptr_t i = 0; i < 200; i += threads) {
        pthread_t ids[MOST_THREADS];
        for (intptr_t j = 0; j < threads; j++) {
            CHECK(pthread_create(&ids[j], NULL, work, (void *)(i + j)) == 0);
        }
        for (intptr_t j = 0; j < threads; j++) {
            void *answer = NULL;
            CHECK(pthread_join(ids[j], &answer) == 0 && answer == (void *)(i + j));
        }
    }
    return verdict("many_threads");
}
