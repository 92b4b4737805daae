/* log: main opens three logs, threads append lines to the third. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <string.h>
#include <unistd.h>

static int log_fd;
static void *work(void *a) {
    char line[64];
    long bad = 0;
    for (int i = 0; i < 2000; i++) {
        int n = snprintf(line, 64, "thread %ld line %d\n", (long)a, i);
        if (write(log_fd, line, n) != n)
            bad++;
    }
    return (void *)bad;
}

int main(void) {
    char folder[] = "/tmp/log-XXXXXX", p[64];
    if (!mkdtemp(folder))
        return 2;
    for (int i = 0; i < 3; i++) {
        snprintf(p, 64, "%s/%d", folder, i);
        log_fd = open(p, O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
        unlink(p);
    }
    rmdir(folder);
    pthread_t t[4];
    long bad = 0;
    void *r;
    for (long i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, work, (void *)i);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], &r);
        bad += (long)r;
    }
    struct stat about;
    fstat(log_fd, &about);
    printf("%ld bytes, ", (long)about.st_size);
    printf("%ld of 8000 writes failed\n", bad);
    return bad != 0;
}
