/* futex_private: two threads wait by FUTEX_WAIT_PRIVATE and are woken together. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic int go;
static void *work(void *a) {
    while (!go)
        syscall(SYS_futex, &go, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    return (void *)1;
}

int main(void) {
    pthread_t t[2];
    long ok = 0;
    void *r;
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, work, NULL);
    usleep(200000);
    go = 1;
    syscall(SYS_futex, &go, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(t[i], &r);
        ok += (long)r;
    }
    printf("%s: %ld\n", ok == 2 ? "right" : "WRONG", ok);
    return 0;
}
