/* server: main listens and accepts, and a thread for each connection answers. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void *serve(void *a) {
    int s = (int)(long)a;
    if (write(s, "hi\n", 3) != 3)
        perror("write");
    close(s);
    return NULL;
}

int main(void) {
    int l = socket(AF_INET, SOCK_STREAM, 0), ok = 0;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    bind(l, (void *)&at, sizeof at);
    listen(l, 8);
    getsockname(l, (void *)&at, &n);
    for (int i = 0; i < 4; i++) {
        int c = socket(AF_INET, SOCK_STREAM, 0);
        connect(c, (void *)&at, n);
        struct timeval tv = {2, 0};
        setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
        int s = accept(l, NULL, NULL);
        pthread_t t;
        char b[8] = {0};
        pthread_create(&t, NULL, serve, (void *)(long)s);
        pthread_join(t, NULL);
        ok += read(c, b, 3) == 3;
        close(c);
    }
    printf("%s: %d of 4 answered\n", ok == 4 ? "right" : "WRONG", ok);
    return ok != 4;
}
