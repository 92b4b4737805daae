/* atexit_asks: a handler at exit hands a request on its stack to a thread, which answers it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct req {
    int what, answer, done;
};
static struct req *queue;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static void *serve(void *x) {
    for (;;) {
        pthread_mutex_lock(&m);
        while (!queue)
            pthread_cond_wait(&c, &m);
        struct req *r = queue;
        queue = NULL;
        r->answer = r->what * 2;
        r->done = 1;
        pthread_cond_broadcast(&c);
        pthread_mutex_unlock(&m);
    }
}

static int ask(int v) {
    struct req r = {v, 0, 0};
    pthread_mutex_lock(&m);
    queue = &r;
    pthread_cond_broadcast(&c);
    while (!r.done)
        pthread_cond_wait(&c, &m);
    pthread_mutex_unlock(&m);
    return r.answer;
}

static void flush(void) {
    printf("at exit: %d\n", ask(21));
    fflush(stdout);
}

int main(void) {
    pthread_t t;
    pthread_create(&t, NULL, serve, NULL);
    printf("before: %d\n", ask(4));
    fflush(stdout);
    atexit(flush);
    return 0;
}
