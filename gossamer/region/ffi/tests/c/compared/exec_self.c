/* exec_self: a program that executes itself again with another argument, and then starts threads. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static long n[2 * 512];
static void *work(void *a) {
    n[(long)a * 512] = 21;
    return NULL;
}

int main(int argc, char **argv) {
    if (argc == 1) {
        execl("/proc/self/exe", argv[0], "again", (char *)0);
        perror("exec");
        return 2;
    }
    pthread_t t[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, work, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    printf("right: %ld\n", n[0] + n[512]);
    return 0;
}
