/* constructor: a constructor allocates settings before main, main changes them, threads read and change them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static int *settings;
__attribute__((constructor)) static void init(void) {
    settings = malloc(64);
    settings[0] = 1;
}

static void *run(void *x) {
    settings[1] += 10;
    return (void *)(long)settings[0];
}

int main(void) {
    settings[0] = 2;
    settings[1] = 0;
    for (int i = 0; i < 2; i++) {
        pthread_t t;
        void *r;
        pthread_create(&t, NULL, run, NULL);
        pthread_join(t, &r);
        printf("thread saw %ld, main sees %d\n", (long)r, settings[1]);
    }
    return 0;
}
