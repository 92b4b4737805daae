/* fails: ends by the C library's `errx`, by main after its threads (status 5) or by a thread of them (argument; status
 * 3), amid calls of other machines: the handlers at exit run, and buffers are written. */
#include "verdict.h"

#include <err.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long count;

static void at_exit(void) {
    printf("at exit\n");
}

static void *work(void *ends) {
    for (int i = 0; i < 300; i++) {
        pthread_mutex_lock(&mutex);
        count++;
        pthread_mutex_unlock(&mutex);
    }
    if (ends != NULL) {
        errx(3, "a thread has failed");
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t ids[4];
    (void)argv;
    CHECK(atexit(at_exit) == 0);
    printf("begins\n");
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&ids[i], NULL, work, argc > 1 && i == 2 ? &count : NULL) == 0);
    }
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(ids[i], NULL) == 0);
    }
    errx(failed ? 1 : 5, "main has failed after %ld", count);
}
