/* refused_goes_on: a program that does not look at the result of a call that is refused, and returns 0. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *work(void *a) {
    for (int i = 0; i < 20; i++)
        usleep(10000);
    puts("not cancelled");
    fflush(stdout);
    return NULL;
}

int main(void) {
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, work, NULL);
    for (int i = 0; i < 2; i++)
        pthread_cancel(t[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    puts("right");
    return 0;
}
