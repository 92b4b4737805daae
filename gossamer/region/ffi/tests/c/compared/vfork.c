/* vfork: threads start programs by vfork, popen and system. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *run(void *x) {
    int st;
    pid_t p = vfork();
    if (p == 0) {
        execl("/bin/true", "true", NULL);
        _exit(9);
    }
    if (p < 0) {
        perror("vfork");
        return NULL;
    }
    waitpid(p, &st, 0);
    printf("vfork child %d\n", WEXITSTATUS(st));
    char line[100];
    FILE *f = popen("echo popened", "r");
    if (f && fgets(line, 100, f))
        printf("%s", line);
    if (f)
        printf("pclose %d\n", pclose(f));
    printf("system %d\n", WEXITSTATUS(system("exit 5")));
    fflush(stdout);
    return NULL;
}

int main(void) {
    pthread_t t;
    for (int i = 0; i < 2; i++) {
        pthread_create(&t, NULL, run, NULL);
        pthread_join(t, NULL);
    }
    run(NULL);
    return 0;
}
