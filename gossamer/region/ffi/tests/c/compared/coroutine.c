/* coroutine: coroutines of a thread by makecontext, on stacks from malloc, with pointers to the thread's own stack.
 * */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

static void co(ucontext_t *me, ucontext_t *back, long *n) {
    for (int i = 0; i < 1000; i++) {
        char *p = malloc(100);
        p[0] = 1;
        *n += p[0];
        free(p);
        swapcontext(me, back);
    }
}

static void *work(void *a) {
    ucontext_t *me = malloc(sizeof *me), *back = malloc(sizeof *back);
    long n = 0;
    getcontext(me);
    me->uc_stack.ss_sp = malloc(65536);
    me->uc_stack.ss_size = 65536;
    me->uc_link = back;
    makecontext(me, (void (*)(void))co, 3, me, back, &n);
    for (int i = 0; i < 1000; i++)
        swapcontext(back, me);
    return (void *)n;
}

int main(void) {
    pthread_t t[2];
    long s = 0;
    void *r;
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, work, NULL);
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], &r);
        s += (long)r;
    }
    printf("%s: %ld\n", s == 2000 ? "right" : "WRONG", s);
    return 0;
}
