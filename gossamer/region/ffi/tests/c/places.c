/* places: prints a line with a digit for each of 8 threads, created one after the other: 0 for those in the same
 * process as the main function, 1 for the others. */
#include "verdict.h"

enum { THREADS = 8 };

static pid_t processes[THREADS];

static void *note(void *number) {
    processes[(intptr_t)number] = getpid();
    return NULL;
}

int main(void) {
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_t id;
        CHECK(pthread_create(&id, NULL, note, (void *)i) == 0);
        CHECK(pthread_join(id, NULL) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        putchar(processes[i] == getpid() ? '0' : '1');
    }
    putchar('\n');
    return verdict("places");
}
