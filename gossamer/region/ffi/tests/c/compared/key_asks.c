/* key_asks: a destructor of a key hands a request on its stack to a thread, which answers it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct req {
    int what, answer, done;
};
static struct req *queue;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_key_t k;
static int got[4];
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
    while (queue)
        pthread_cond_wait(&c, &m);
    queue = &r;
    pthread_cond_broadcast(&c);
    while (!r.done)
        pthread_cond_wait(&c, &m);
    pthread_mutex_unlock(&m);
    return r.answer;
}

static void gone(void *x) {
    got[(long)x - 1] = ask((long)x);
}

static void *run(void *x) {
    pthread_setspecific(k, x);
    return NULL;
}

int main(void) {
    pthread_t s, t;
    pthread_key_create(&k, gone);
    pthread_create(&s, NULL, serve, NULL);
    for (long i = 1; i <= 4; i++) {
        pthread_create(&t, NULL, run, (void *)i);
        pthread_join(t, NULL);
    }
    printf("%d %d %d %d\n", got[0], got[1], got[2], got[3]);
    return 0;
}
