/* process: attributes that a process has once (actions of signals, working folder, file mode mask, locale) are those
 * that any thread has set; a thread begins with its creator's signal mask and rounding, and waits for the program's
 * signals wherever it runs. */
#include "verdict.h"

#include <fenv.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <sys/stat.h>
#include <wchar.h>

static volatile sig_atomic_t taken;

static void take(int signal) {
    (void)signal;
    taken++;
}

static int rounds;

static void *inherits(void *number) {
    (void)number;
    sigset_t now;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
    CHECK(sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2));
    CHECK(fegetround() == rounds);
    return NULL;
}

static void *awaits(void *number) {
    (void)number;
    sigset_t set;
    siginfo_t info;
    struct timespec none = {0, 0};
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    int signal = 0;
    CHECK(sigwait(&set, &signal) == 0 && signal == SIGUSR1);
    errno = 0;
    CHECK(sigtimedwait(&set, &info, &none) == -1 && errno == EAGAIN);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    CHECK(sigwaitinfo(&set, &info) == SIGUSR1 && info.si_signo == SIGUSR1 && info.si_code == SI_USER);
    return NULL;
}

static char folder[PATH_MAX];

static void *sees(void *number) {
    char own[PATH_MAX], name[16];
    wchar_t wide[8];
    CHECK(getcwd(own, sizeof own) != NULL && strcmp(own, folder) == 0);
    CHECK(mbstowcs(wide, "\xc3\xa9t\xc3\xa9", 8) == 3);
    mode_t mask = umask(027);
    CHECK(mask == 027);
    snprintf(name, sizeof name, "f%d", (int)(intptr_t)number);
    FILE *file = fopen(name, "w");
    struct stat about;
    CHECK(file != NULL && fclose(file) == 0 && stat(name, &about) == 0 && (about.st_mode & 0777) == 0640);
    CHECK(unlink(name) == 0);
    int before = taken;
    CHECK(raise(SIGUSR2) == 0 && taken == before + 1);
    return NULL;
}

/* What a thread of any machine sets holds for all. */
static void *sets(void *number) {
    (void)number;
    CHECK(signal(SIGUSR2, SIG_IGN) != SIG_ERR);
    umask(077);
    CHECK(chdir("..") == 0);
    CHECK(setlocale(LC_ALL, "C") != NULL);
    return NULL;
}

/* One after the other, on all machines. */
static void each(void *(*body)(void *)) {
    for (intptr_t number = 0; number < threads; number++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, body, (void *)number) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TONEAREST};
    for (int mode = 0; mode < 3; mode++) {
        rounds = modes[mode];
        CHECK(fesetround(rounds) == 0);
        each(inherits);
    }
    each(awaits);

    char template[PATH_MAX + 32], own[PATH_MAX];
    snprintf(template, sizeof template, "%s/process-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    CHECK(mkdtemp(template) != NULL && chdir(template) == 0 && getcwd(folder, sizeof folder) != NULL);
    struct sigaction action = {.sa_handler = take};
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL);
    umask(027);
    each(sees);
    CHECK(rmdir(folder) == 0);

    CHECK(chdir("/usr/bin") == 0);
    run_threads(1, sets);
    CHECK(getcwd(own, sizeof own) != NULL && strcmp(own, "/usr") == 0);
    CHECK(umask(022) == 077);
    CHECK(sigaction(SIGUSR2, NULL, &action) == 0 && action.sa_handler == SIG_IGN);
    CHECK(strcmp(setlocale(LC_ALL, NULL), "C") == 0);
    return verdict("process");
}
