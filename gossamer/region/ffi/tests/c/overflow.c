/* overflow: stacks of threads have guards. `overflow 0`: guards do not disturb other accesses: pages around one are
 * read in runs on the machine where it is, and the memory of a finished stack is reused. `overflow 1`: the first thread
 * (of another machine, if there is one) writes more than its stack has room for, which ends the program before the
 * message; `overflow 2`: the second thread does. */
#include "verdict.h"

enum { PAGE = 4096, STACK = 64 << 10, PAGES = 318, THREADS = 4 };

/* Pages below a stack: the heap has room for 320 of them, and takes one before. */
static char *before;
static atomic_int turn;

/* Writes to each page down to so many bytes below. */
static int __attribute__((noinline)) deeper(int bytes) {
    volatile char frame[PAGE / 2];
    frame[0] = (char)bytes;
    return bytes > 0 ? deeper(bytes - (int)sizeof frame) + frame[0] : frame[0];
}

static void *overflow(void *number) {
    if ((intptr_t)number == turn) {
        fprintf(stderr, "overflow: nobody has noticed %d\n", deeper(2 * STACK));
    }
    return NULL;
}

static void *read_all(void *number) {
    intptr_t sum = (intptr_t)number;
    for (size_t i = 0; i < PAGES; i++) {
        sum += before[i * PAGE];
    }
    return (void *)sum;
}

/* Each thread reads pages that lie below its stack and that no other machine has read; afterwards the memory of all
 * stacks is allocated and written. */
static void beside_pages(const pthread_attr_t *small) {
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_t id;
        void *sum = NULL;
        before = malloc(PAGES * PAGE);
        for (size_t page = 0; page < PAGES; page++) {
            before[page * PAGE] = 1;
        }
        CHECK(pthread_create(&id, small, read_all, (void *)i) == 0);
        CHECK(pthread_join(id, &sum) == 0 && sum == (void *)(PAGES + i));
    }
    for (int i = 0; i < 2 * THREADS; i++) {
        char *block = malloc(STACK);
        memset(block, 1, STACK);
        CHECK(block[STACK - 1] == 1);
    }
}

int main(int argc, char **argv) {
    pthread_attr_t small;
    pthread_t ids[2];
    turn = argc > 1 ? atoi(argv[1]) : 0;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, STACK) == 0);
    if (turn == 0) {
        beside_pages(&small);
    }
    for (intptr_t i = 0; i < 2; i++) {
        CHECK(pthread_create(&ids[i], &small, overflow, (void *)(i + 1)) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(ids[i], NULL) == 0);
    }
    return verdict("overflow");
}
