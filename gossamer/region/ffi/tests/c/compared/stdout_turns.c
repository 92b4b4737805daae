/* stdout_turns: threads take turns to write to standard output, with a flush at each turn. */
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static long turn;
static void *work(void *a) {
    for (long i = (long)a; i < 200; i += 2) {
        pthread_mutex_lock(&m);
        while (turn != i)
            pthread_cond_wait(&c, &m);
        printf("%ld\n", i);
        fflush(stdout);
        turn++;
        pthread_cond_broadcast(&c);
        pthread_mutex_unlock(&m);
    }
    return NULL;
}

int main(void) {
    pthread_t t[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, work, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    return 0;
}
