/* environ: the program's environment variables are there on all machines, and pass to the programs it starts. */
#include "verdict.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

static void *look(void *number) {
    CHECK(environ != NULL && getenv("TMPDIR") != NULL);
    char *words[] = {"sh", "-c", "test \"$GIVEN\" = yes", NULL};
    pid_t child;
    int status = -1;
    CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    (void)number;
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    int count = 0;
    for (char **variable = environ; *variable != NULL; variable++) {
        count += strchr(*variable, '=') != NULL;
    }
    CHECK(count > 0);
    CHECK(setenv("GIVEN", "yes", 1) == 0);
    run_threads(threads, look);
    return verdict("environ");
}
