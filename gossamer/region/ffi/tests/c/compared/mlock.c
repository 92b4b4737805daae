/* mlock: memory that is locked, and then read and written by threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static char *a;
static void *look(void *x) {
    long s = 0;
    for (int i = 0; i < 4 * 4096; i++)
        s += a[i];
    memset(a, 5, 4 * 4096);
    return (void *)s;
}

int main(void) {
    a = aligned_alloc(4096, 4 * 4096);
    memset(a, 1, 4 * 4096);
    printf("mlock %d\n", mlock(a, 4 * 4096));
    fflush(stdout);
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        void *s;
        pthread_create(&t, NULL, look, NULL);
        pthread_join(t, &s);
        printf("sum %ld here %d\n", (long)s, a[4096]);
        fflush(stdout);
    }
    return 0;
}
