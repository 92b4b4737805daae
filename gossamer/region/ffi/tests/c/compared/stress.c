/* stress: mutexes, condition variables, semaphores and barriers made, used and destroyed by threads of threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <time.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long n, q, produced, consumed;
static atomic_long an;
static int R = 100;
typedef struct {
    pthread_barrier_t b;
    pthread_mutex_t m;
    pthread_cond_t c;
    sem_t s;
    long n;
    int go;
} Box;
static void *leaf(void *x) {
    Box *b = x;
    pthread_mutex_lock(&b->m);
    b->n++;
    while (!b->go)
        pthread_cond_wait(&b->c, &b->m);
    pthread_mutex_unlock(&b->m);
    sem_post(&b->s);
    int r = pthread_barrier_wait(&b->b);
    return (void *)(long)(r == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void *run(void *x) {
    for (int i = 0; i < R; i++) {
        pthread_mutex_lock(&m);
        n++;
        q++;
        produced++;
        pthread_cond_signal(&c);
        pthread_mutex_unlock(&m);
        atomic_fetch_add(&an, 1);
        pthread_mutex_lock(&m);
        while (q == 0) {
            struct timespec t;
            clock_gettime(CLOCK_REALTIME, &t);
            t.tv_nsec += 2000000;
            if (t.tv_nsec >= 1000000000)
                t.tv_nsec -= 1000000000, t.tv_sec++;
            pthread_cond_timedwait(&c, &m, &t);
        }
        q--;
        consumed++;
        pthread_mutex_unlock(&m);
        if (i % 10 == 0) {
            Box *b = malloc(sizeof *b);
            pthread_barrier_init(&b->b, NULL, 4);
            pthread_mutex_init(&b->m, NULL);
            pthread_cond_init(&b->c, NULL);
            sem_init(&b->s, 0, 0);
            b->n = b->go = 0;
            pthread_t t[3];
            for (int k = 0; k < 3; k++)
                if (pthread_create(&t[k], NULL, leaf, b))
                    abort();
            pthread_mutex_lock(&b->m);
            b->go = 1;
            pthread_cond_broadcast(&b->c);
            pthread_mutex_unlock(&b->m);
            for (int k = 0; k < 3; k++)
                sem_wait(&b->s);
            long serial = pthread_barrier_wait(&b->b) == PTHREAD_BARRIER_SERIAL_THREAD;
            for (int k = 0; k < 3; k++) {
                void *r;
                pthread_join(t[k], &r);
                serial += (long)r;
            }
            if (serial != 1 || b->n != 3) {
                printf("serial %ld n %ld\n", serial, b->n);
                exit(1);
            }
            pthread_barrier_destroy(&b->b);
            pthread_mutex_destroy(&b->m);
            pthread_cond_destroy(&b->c);
            sem_destroy(&b->s);
            memset(b, 0xee, sizeof *b);
            free(b);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1)
        R = atoi(argv[1]);
    pthread_t t[6];
    for (int i = 0; i < 6; i++)
        pthread_create(&t[i], NULL, run, NULL);
    for (int i = 0; i < 6; i++)
        pthread_join(t[i], NULL);
    printf("n %ld an %ld produced %ld consumed %ld q %ld\n", n, (long)an, produced, consumed, q);
    return 0;
}
