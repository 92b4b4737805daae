/* named_semaphore: a thread posts a named semaphore, for which main waits. */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static sem_t *s;
static void *post(void *x) {
    usleep(100000);
    sem_post(s);
    return NULL;
}

int main(void) {
    char n[50];
    sprintf(n, "/named-semaphore-%d", getpid());
    s = sem_open(n, O_CREAT, 0600, 0);
    if (!s) {
        perror("sem_open");
        return 1;
    }
    sem_unlink(n);
    pthread_t t;
    pthread_create(&t, NULL, post, NULL);
    sem_wait(s);
    pthread_join(t, NULL);
    printf("posted\n");
    return 0;
}
