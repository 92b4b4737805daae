/* exits_of_threads: handlers for the end of the program that threads register by atexit and on_exit run once, the last
 * first, with the status and their arguments. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long numbers[8];

static void said(int status, void *number) {
    printf("on_exit %ld with status %d\n", *(long *)number, status);
}

static void first(void) { printf("atexit of the first thread\n"); }
static void second(void) { printf("atexit of the second thread\n"); }
static void of_main(void) { printf("atexit of main\n"); }

static void *run(void *number) {
    long at = (long)number;
    numbers[at] = 10 * at;
    on_exit(said, &numbers[at]);
    if (at < 2)
        atexit(at ? second : first);
    return NULL;
}

int main(void) {
    for (long at = 0; at < 4; at++) {
        pthread_t thread;
        pthread_create(&thread, NULL, run, (void *)at);
        pthread_join(thread, NULL);
        if (at == 1)
            atexit(of_main);
    }
    numbers[7] = 70;
    on_exit(said, &numbers[7]);
    return 5;
}
