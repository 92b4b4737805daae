/* keys: values of a key with destructors that set the value again, in 20 threads. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_key_t k;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static long sum, rounds;
static pthread_once_t o = PTHREAD_ONCE_INIT;
static int made;
static void gone(void *p) {
    pthread_mutex_lock(&m);
    sum += *(long *)p;
    rounds++;
    pthread_mutex_unlock(&m);
    if (*(long *)p > 100) {
        free(p);
        return;
    }
    long *q = malloc(8);
    *q = 1000;
    free(p);
    pthread_setspecific(k, q);
}

static void make(void) {
    usleep(50000);
    pthread_key_create(&k, gone);
    made++;
}

static void *run(void *x) {
    pthread_once(&o, make);
    long *p = malloc(8);
    *p = (long)x;
    pthread_setspecific(k, p);
    if ((long)x % 2)
        pthread_exit(x);
    return x;
}

int main(void) {
    pthread_t t[20];
    for (long i = 0; i < 20; i++)
        pthread_create(&t[i], NULL, run, (void *)i);
    long r = 0;
    for (int i = 0; i < 20; i++) {
        void *v;
        pthread_join(t[i], &v);
        r += (long)v;
    }
    printf("made %d sum %ld rounds %ld results %ld\n", made, sum, rounds, r);
    return 0;
}
