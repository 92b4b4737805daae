/* timer_thread: a timer with SIGEV_THREAD takes locks and allocates. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <semaphore.h>

static pthread_mutex_t m;
static volatile long n;
static char *last;
static sem_t s;
static void fire(union sigval v) {
    pthread_mutex_lock(&m);
    n++;
    free(last);
    last = malloc(100);
    sprintf(last, "fired %ld", n);
    pthread_mutex_unlock(&m);
    sem_post(&s);
}

static void *look(void *x) {
    pthread_mutex_lock(&m);
    printf("%s\n", last);
    pthread_mutex_unlock(&m);
    return NULL;
}

int main(void) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&m, &a);
    sem_init(&s, 0, 0);
    struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = fire};
    timer_t t;
    if (timer_create(CLOCK_MONOTONIC, &e, &t)) {
        perror("timer");
        return 1;
    }
    struct itimerspec v = {{0, 0}, {0, 50000000}};
    timer_settime(t, 0, &v, NULL);
    while (sem_wait(&s))
        ;
    pthread_t p;
    for (int i = 0; i < 2; i++) {
        pthread_create(&p, NULL, look, NULL);
        pthread_join(p, NULL);
    }
    return 0;
}
