/* nopie: a program without position-independent code that takes the addresses of malloc and free. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static void *(*take)(size_t);
static void (*give)(void *);
static int table[4096];
static void *work(void *a) {
    char *p = take(100);
    p[0] = 1;
    table[(long)a * 1024] = p[0];
    give(p);
    return NULL;
}

int main(void) {
    take = malloc;
    give = free;
    pthread_t t[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, work, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    printf("right: %d\n", table[0] + table[1024] + table[2048] + table[3072]);
    return 0;
}
