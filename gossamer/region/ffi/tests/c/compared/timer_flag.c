/* timer_flag: a handler of a timer counts in a variable beside those that threads of all machines write. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

static struct {
    volatile sig_atomic_t ticks;
    volatile long w[6];
    volatile int stop;
} s;
static void tick(int n) {
    s.ticks++;
}

static void *busy(void *x) {
    while (!s.stop)
        s.w[(long)x]++;
    return NULL;
}

int main(void) {
    struct sigaction a = {.sa_handler = tick, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &a, NULL);
    pthread_t t[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&t[i], NULL, busy, (void *)i);
    struct itimerval v = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &v, NULL);
    while (s.ticks < 300)
        usleep(1000);
    struct itimerval o = {0};
    setitimer(ITIMER_REAL, &o, NULL);
    s.stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    printf("ticks enough\n");
    return 0;
}
