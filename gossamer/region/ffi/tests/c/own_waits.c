/* own_waits: threads wait at objects that each machine has for itself, where the program names what is shared. */
#include "verdict.h"

#include <semaphore.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;

static void *wait_in_vain(void *unused) {
    for (int i = 0; i < 3; i++) {
        struct timespec soon = deadline(5);
        pthread_mutex_lock(&mutex);
        CHECK(pthread_cond_timedwait(&changed, &mutex, &soon) == ETIMEDOUT);
        pthread_mutex_unlock(&mutex);
        CHECK(sem_timedwait(&semaphore, &soon) == -1 && errno == ETIMEDOUT);
    }
    (void)unused;
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    CHECK(sem_init(&semaphore, 0, 0) == 0);
    run_threads(threads, wait_in_vain);
    return verdict("own_waits");
}
