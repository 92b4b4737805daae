/* pipe: a thread wakes main by a pipe, as event loops do. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <errno.h>
#include <string.h>

static int fd[2];
static void *wake(void *a) {
    ssize_t n = write(fd[1], "x", 1);
    if (n != 1)
        fprintf(stderr, "write: %s\n", strerror(errno));
    return (void *)n;
}

int main(void) {
    if (pipe(fd))
        return 2;
    pthread_t t;
    char c;
    pthread_create(&t, NULL, wake, NULL);
    if (read(fd[0], &c, 1) != 1) {
        puts("WRONG: nothing");
        return 1;
    }
    pthread_join(t, NULL);
    puts("right");
    return 0;
}
