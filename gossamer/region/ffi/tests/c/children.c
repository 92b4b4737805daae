/* children: processes that threads of any machine start are as those of any program: no signal is blocked in them that
 * the program does not block, addresses are random, and no system call is stopped. */
#include "verdict.h"

#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;

/* In the child: a word by name from /proc/self/status. */
#define STATUS "while read name value; do case $name in "
#define CHECKS                                                                                     \
    "Seccomp:|NoNewPrivs:) [ $value = 0 ] || exit 3;; "                                            \
    "SigBlk:) [ $value = 0000000000000800 ] || exit 4;; esac; done < /proc/self/status; "          \
    "[ $(cat /proc/self/personality) = 00000000 ] || exit 5; exit 7"

static char command[] = STATUS CHECKS;

static int exits(int status) {
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void *starts(void *number) {
    (void)number;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    pid_t child;
    int status = 0;
    char *arguments[] = {"sh", "-c", command, NULL};
    CHECK(posix_spawn(&child, "/bin/sh", NULL, NULL, arguments, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && exits(status) == 7);
    CHECK(posix_spawnp(&child, "sh", NULL, NULL, arguments, environ) == 0);
    CHECK(waitpid(child, &status, 0) == child && exits(status) == 7);
    CHECK(posix_spawn(&child, "/nowhere", NULL, NULL, arguments, environ) == ENOENT);
    CHECK(exits(system(command)) == 7);
    CHECK(system(NULL) != 0);
    errno = 0;
    CHECK(popen("true", "nonsense") == NULL && errno == EINVAL);
    FILE *pipe = popen("echo from a child", "r");
    char line[64];
    CHECK(pipe != NULL && fgets(line, sizeof line, pipe) != NULL && strcmp(line, "from a child\n") == 0);
    CHECK(pipe != NULL && pclose(pipe) == 0);
    return NULL;
}

static atomic_int arrived;

/* All signals are blocked that can be, and the thread waits by futex(2) still. */
static void *blocks(void *number) {
    (void)number;
    sigset_t all;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, NULL) == 0);
    CHECK(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
    int now = atomic_fetch_add(&arrived, 1) + 1;
    if (now == threads) {
        syscall(SYS_futex, &arrived, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    }
    for (; now != threads; now = atomic_load(&arrived)) {
        syscall(SYS_futex, &arrived, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, starts, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    run_threads(threads, blocks);
    CHECK(arrived == threads);
    return verdict("children");
}
