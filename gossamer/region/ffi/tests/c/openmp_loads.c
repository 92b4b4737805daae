/* openmp_loads: threads of all machines, that were there before, use a library with teams of OpenMP. It is the file
 * PLUGIN. */
#include "verdict.h"

#include <dlfcn.h>

static long (*add_up)(void);
static pthread_barrier_t loaded;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *use(void *number) {
    (void)number;
    pthread_barrier_wait(&loaded);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2; i++) {
        CHECK(add_up() == 5 * (499500 + 4) + 4 * (1 + 2 + 3 + 4 + 5));
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    pthread_t users[MOST_THREADS];
    CHECK(pthread_barrier_init(&loaded, NULL, (unsigned)threads + 1) == 0);
    for (int i = 0; i < threads; i++) {
        CHECK(pthread_create(&users[i], NULL, use, NULL) == 0);
    }
    void *library = dlopen(getenv("PLUGIN"), RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    *(void **)&add_up = dlsym(library, "add_up");
    CHECK(add_up != NULL);
    use(NULL);
    for (int i = 0; i < threads; i++) {
        CHECK(pthread_join(users[i], NULL) == 0);
    }
    return verdict("openmp_loads");
}
