/* segv_recovered: threads recover from null pointers by a handler on an alternate stack. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static __thread sigjmp_buf jb;
static volatile long seen[4096];
static void h(int s, siginfo_t *i, void *u) {
    seen[0]++;
    siglongjmp(jb, 1);
}

static void *run(void *x) {
    stack_t st = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&st, NULL);
    struct sigaction a = {.sa_sigaction = h, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaction(SIGSEGV, &a, NULL);
    long ok = 0;
    for (int i = 0; i < 20; i++) {
        if (sigsetjmp(jb, 1) == 0) {
            *(volatile int *)(long)(i * 8) = 1;
        } else
            ok++;
    }
    return (void *)ok;
}

int main(void) {
    for (int i = 0; i < 4; i++) {
        pthread_t t;
        void *r;
        pthread_create(&t, NULL, run, NULL);
        pthread_join(t, &r);
        printf("%ld\n", (long)r);
        fflush(stdout);
    }
    printf("seen %ld\n", seen[0]);
    return 0;
}
