/* vfork_exits: a child by vfork that only calls _exit. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    int st;
    pid_t p = vfork();
    if (p == 0)
        _exit(0);
    waitpid(p, &st, 0);
    printf("the work goes on, child %d\n", WEXITSTATUS(st));
    return 5;
}
