/* priority_of_others: main sets the priority of its threads. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static volatile int stop;
static void *work(void *a) {
    while (!stop)
        usleep(1000);
    return NULL;
}

int main(void) {
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, work, NULL);
    for (int i = 0; i < 2; i++)
        printf("pthread_setschedprio: %d\n", pthread_setschedprio(t[i], 0));
    fflush(stdout);
    stop = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    puts("right");
    return 0;
}
