/* jit: code that is written at run time, in memory that is executable and writable. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <pthread.h>

static int (*f)(void);
static void *run(void *x) {
    return (void *)(long)f();
}

int main(void) {
    unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    memcpy(p, code, sizeof code);
    f = (int (*)(void))p;
    printf("%d\n", f());
    fflush(stdout);
    pthread_t t;
    void *r;
    pthread_create(&t, NULL, run, NULL);
    pthread_join(t, &r);
    printf("%ld\n", (long)r);
    return 0;
}
