/* once: pthread_once runs its function once for all threads, keys and __thread variables are each thread's own, and a
 * key's destructor runs when its thread ends, before it is joined. */
#include "verdict.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static int initialised, *shared;
static atomic_int destroyed;
static __thread int own = 42;
static __thread char zeroed[5000];

static void destroy(void *value) {
    CHECK(*(int *)value >= 1000);
    free(value);
    atomic_fetch_add(&destroyed, 1);
}

static void initialise(void) {
    initialised++;
    shared = malloc(sizeof *shared);
    *shared = 7;
    CHECK(pthread_key_create(&key, destroy) == 0);
}

static void *work(void *number) {
    int thread = (int)(intptr_t)number;
    CHECK(pthread_once(&once, initialise) == 0);
    CHECK(initialised == 1 && *shared == 7);
    CHECK(pthread_getspecific(key) == NULL);
    int *value = malloc(sizeof *value);
    *value = 1000 + thread;
    CHECK(pthread_setspecific(key, value) == 0);
    CHECK(own == 42 && zeroed[0] == 0 && zeroed[sizeof zeroed - 1] == 0);
    for (int i = 0; i <= thread; i++) {
        own++;
        zeroed[i]++;
        CHECK(pthread_once(&once, initialise) == 0);
        CHECK(*(int *)pthread_getspecific(key) == 1000 + thread);
    }
    CHECK(own == 43 + thread && zeroed[thread] == 1);
    errno = thread; /* each thread's own, too */
    CHECK(errno == thread);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    run_threads(threads, work);
    CHECK(initialised == 1 && destroyed == threads);
    CHECK(own == 42 && zeroed[0] == 0 && pthread_getspecific(key) == NULL);
    free(shared);
    return verdict("once");
}
