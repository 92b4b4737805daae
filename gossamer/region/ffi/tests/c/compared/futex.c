/* futex: a thread waits for a word by futex(2), another one changes and wakes it. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic unsigned word;
static void *wake(void *x) {
    usleep(200000);
    word = 1;
    syscall(SYS_futex, &word, FUTEX_WAKE, 1000, NULL, NULL, 0);
    return NULL;
}

int main(void) {
    pthread_t t;
    pthread_create(&t, NULL, wake, NULL);
    while (word == 0)
        syscall(SYS_futex, &word, FUTEX_WAIT, 0, NULL, NULL, 0);
    pthread_join(t, NULL);
    printf("woken\n");
    return 0;
}
