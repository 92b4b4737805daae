/* thread_local_pointer: threads read one another's thread-local variables. */
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4 };

static __thread int own;
static int *all[THREADS];
static int sums[THREADS];
static pthread_barrier_t barrier;

static void *add(void *argument) {
    long number = (long)argument;
    own = (int)number + 1;
    all[number] = &own;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        sums[number] += *all[i];
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, add, (void *)i);
    int sum = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += sums[i];
    }
    printf("%d\n", sum);
    return 0;
}
