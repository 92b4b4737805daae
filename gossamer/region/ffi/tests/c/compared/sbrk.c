/* sbrk: memory by sbrk, read and written by threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static char *a;
static void *look(void *x) {
    long s = 0;
    for (int i = 0; i < 4096; i++)
        s += a[i];
    memset(a, 5, 4096);
    return (void *)s;
}

int main(void) {
    a = sbrk(64 << 10);
    if (a == (void *)-1) {
        perror("sbrk");
        return 1;
    }
    memset(a, 1, 64 << 10);
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        void *s;
        pthread_create(&t, NULL, look, NULL);
        pthread_join(t, &s);
        printf("sum %ld here %d\n", (long)s, a[100]);
        fflush(stdout);
    }
    return 0;
}
