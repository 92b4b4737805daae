/* descriptors: main opens 40 files; threads find these under the same numbers. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fd[40];
static long other[8];
static void *work(void *a) {
    char p[64], l[128];
    for (int i = 0; i < 40; i++) {
        snprintf(p, 64, "/proc/self/fd/%d", fd[i]);
        ssize_t n = readlink(p, l, 127);
        l[n > 0 ? n : 0] = 0;
        if (strcmp(l, "/etc/hostname"))
            other[(long)a]++;
    }
    return NULL;
}

int main(void) {
    for (int i = 0; i < 40; i++)
        fd[i] = open("/etc/hostname", O_RDONLY);
    pthread_t t[8];
    for (long i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, work, (void *)i);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    long all = 0;
    for (int i = 0; i < 8; i++)
        all += other[i];
    printf("%ld of 320 are not the file\n", all);
    return 0;
}
