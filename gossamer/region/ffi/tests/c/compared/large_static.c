/* large_static: a static array of 512 MiB, of which four pages are used. */
#include <pthread.h>
#include <stdio.h>
#define N (512UL << 20)
static char arena[N];
static void *look(void *x) {
    arena[(size_t)x << 20]++;
    return NULL;
}

int main(void) {
    pthread_t t[4];
    for (size_t i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, look, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    printf("%d\n", arena[0] + arena[1 << 20] + arena[2 << 20] + arena[3 << 20]);
    return 0;
}
