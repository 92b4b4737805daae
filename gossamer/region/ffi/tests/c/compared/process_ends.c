/* process_ends: each way to end a process (first argument), by main, or by a thread (a second argument). */
#define _GNU_SOURCE
#include <assert.h>
#include <err.h>
#include <errno.h>
#include <error.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *how;
static void bye(void) {
    printf("atexit ran\n");
}

static void at_quick(void) {
    printf("at_quick_exit ran\n");
    fflush(stdout);
}

static void end(void) {
    printf("before the end by %s\n", how);
    if (!strcmp(how, "err")) {
        errno = ENOENT;
        err(3, "file");
    }
    if (!strcmp(how, "errx"))
        errx(4, "wrong");
    if (!strcmp(how, "error"))
        error(5, 0, "wrong");
    if (!strcmp(how, "_Exit")) {
        fflush(stdout);
        _Exit(6);
    }
    if (!strcmp(how, "quick")) {
        fflush(stdout);
        quick_exit(7);
    }
    if (!strcmp(how, "abort")) {
        fflush(stdout);
        abort();
    }
    if (!strcmp(how, "assert")) {
        fflush(stdout);
        assert(how == NULL);
    }
    if (!strcmp(how, "segv")) {
        fflush(stdout);
        *(volatile int *)8 = 1;
    }
    if (!strcmp(how, "exit"))
        exit(9);
    if (!strcmp(how, "kill")) {
        fflush(stdout);
        kill(getpid(), SIGTERM);
        pause();
    }
    if (!strcmp(how, "exec")) {
        fflush(stdout);
        execl("/bin/echo", "echo", "executed", NULL);
    }
    if (!strcmp(how, "pexit"))
        pthread_exit(NULL);
}

static void *run(void *x) {
    end();
    return NULL;
}

int main(int argc, char **argv) {
    how = argv[1];
    int thread = argc > 2;
    atexit(bye);
    at_quick_exit(at_quick);
    if (thread) {
        pthread_t t;
        pthread_create(&t, NULL, run, NULL);
        pthread_join(t, NULL);
    } else
        end();
    return 0;
}
