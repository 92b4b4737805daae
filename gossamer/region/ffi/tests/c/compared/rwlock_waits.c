/* rwlock_waits: read locks beside a waiting writer, locks in memory that is used again, and a second lock of the
 * writer. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
static volatile int w, r2;
static void *writer(void *x) {
    pthread_rwlock_wrlock(&l);
    w = 1;
    pthread_rwlock_unlock(&l);
    return NULL;
}

int main(void) {
    pthread_t t;
    pthread_rwlock_rdlock(&l);
    pthread_create(&t, NULL, writer, NULL);
    usleep(200000);
    printf("second read lock: %s\n", strerror(pthread_rwlock_tryrdlock(&l)));
    pthread_rwlock_rdlock(&l);
    pthread_rwlock_unlock(&l);
    pthread_rwlock_unlock(&l);
    pthread_rwlock_unlock(&l);
    pthread_join(t, NULL);
    // a lock in memory that is freed while locked, and used again
    for (int i = 0; i < 3; i++) {
        pthread_rwlock_t *p = malloc(sizeof *p);
        pthread_rwlock_init(p, NULL);
        printf("try new %d\n", pthread_rwlock_trywrlock(p));
        free(p);
    }
    pthread_rwlock_wrlock(&l);
    alarm(3);
    printf("own second: %s\n", strerror(pthread_rwlock_wrlock(&l)));
    return 0;
}
