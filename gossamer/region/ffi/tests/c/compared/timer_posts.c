/* timer_posts: a handler of a timer posts a semaphore, for which main waits, while threads write. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static sem_t sem;
static volatile long ticks;
static void tick(int s) {
    ticks++;
    sem_post(&sem);
}

static volatile int stop;
static volatile long work[1024];
static void *busy(void *x) {
    while (!stop) {
        work[(long)x]++;
    }
    return NULL;
}

int main(void) {
    sem_init(&sem, 0, 0);
    struct sigaction a = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &a, NULL);
    pthread_t t[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, busy, (void *)i);
    struct itimerval v = {{0, 5000}, {0, 5000}};
    setitimer(ITIMER_REAL, &v, NULL);
    for (int i = 0; i < 200; i++)
        while (sem_wait(&sem))
            ;
    struct itimerval o = {0};
    setitimer(ITIMER_REAL, &o, NULL);
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    printf("200 ticks\n");
    return 0;
}
