/* own_attributes: a thread asks for its own priority, or sends itself a signal with a value (argument). */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <sched.h>

static void h(int s) {
}

int main(int argc, char **argv) {
    signal(SIGUSR1, h);
    int r = -1;
    if (argv[1][0] == 'q') {
        union sigval v = {.sival_int = 3};
        r = pthread_sigqueue(pthread_self(), SIGUSR1, v);
    }
    if (argv[1][0] == 'p')
        r = pthread_setschedprio(pthread_self(), 0);
    if (argv[1][0] == 'g') {
        struct sched_param p;
        int pol;
        r = pthread_getschedparam(pthread_self(), &pol, &p);
    }
    if (argv[1][0] == 'v')
        r = 0;
    printf("%s\n", strerror(r));
    return 0;
}
