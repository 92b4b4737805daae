/* coroutines_locked: each thread switches between three coroutines that lock and allocate. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long n;
static __thread ucontext_t mainc, co[3];
static void body(int id) {
    for (int i = 0; i < 50; i++) {
        pthread_mutex_lock(&m);
        n++;
        void *p = malloc(1000);
        pthread_mutex_unlock(&m);
        free(p);
        swapcontext(&co[id], &mainc);
    }
}

static void *run(void *x) {
    for (int i = 0; i < 3; i++) {
        getcontext(&co[i]);
        co[i].uc_stack.ss_sp = malloc(65536);
        co[i].uc_stack.ss_size = 65536;
        co[i].uc_link = &mainc;
        makecontext(&co[i], (void (*)(void))body, 1, i);
    }
    for (int r = 0; r < 50; r++)
        for (int i = 0; i < 3; i++)
            swapcontext(&mainc, &co[i]);
    return NULL;
}

int main(void) {
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, run, NULL);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    printf("%ld\n", n);
    return 0;
}
