/* places: prints a line with a digit for each of 8 threads, created one after the other: 0 for those in the same
 * process as the main function, 1 for the others. */
#include "verdict.h"

#include <sys/syscall.h>

enum { THREADS = 8 };

static pid_t processes[THREADS];

static void *note(void *number) {
    processes[(intptr_t)number] = syscall(SYS_getpid); /* getpid is machine 0's on all */
    /* Runtimes look for the guard of a thread's stack. */
    pthread_attr_t attributes;
    size_t guard = 0;
    CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
    CHECK(pthread_attr_getguardsize(&attributes, &guard) == 0 && guard > 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
    return NULL;
}

int main(void) {
    for (intptr_t i = 0; i < THREADS; i++) {
        pthread_t id;
        CHECK(pthread_create(&id, NULL, note, (void *)i) == 0);
        CHECK(pthread_join(id, NULL) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        putchar(processes[i] == syscall(SYS_getpid) ? '0' : '1');
    }
    putchar('\n');
    return verdict("places");
}
