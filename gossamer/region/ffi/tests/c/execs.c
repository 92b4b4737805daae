/* execs: a thread of any machine has the process become another program, with its descriptors. */
#include "verdict.h"
#include <fcntl.h>

static void *execs(void *status) {
    CHECK(execl("/nonexistent", "none", (char *)NULL) == -1 && errno == ENOENT);
    CHECK(execlp("/", "none", (char *)NULL) == -1 && errno == EACCES);
    printf("before\n");
    fflush(stdout);
    execlp("sh", "sh", "-c", "read line <&3; echo \"after $line\"; exit $0", (char *)status, (char *)NULL);
    CHECK(!"executed");
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t thread;
    int ends[2], is_thread = argc > 1 && strcmp(argv[1], "thread") == 0;
    CHECK(pipe(ends) == 0 && ends[0] == 3 && write(ends[1], "a pipe\n", 7) == 7);
    if (is_thread) {
        pthread_create(&thread, NULL, execs, "6");
        pthread_join(thread, NULL);
    }
    execs("5");
    return verdict("execs");
}
