/* storage: main, or a thread of another machine, loads libraries with thread-local variables, among them one more for
 * each after the first; threads of all machines, also those that ran before, have their own. The libraries are the
 * files PLUGIN and OTHER. */
#include "verdict.h"

#include <dlfcn.h>

static void *libraries[2];
static int (*counts[2])(void);
static int *(*places[2])(void);
static pthread_barrier_t before, loaded, counted;

static void load_one(int which, const char *file) {
    libraries[which] = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (libraries[which] == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(3);
    }
    *(void **)&counts[which] = dlsym(libraries[which], "count");
    *(void **)&places[which] = dlsym(libraries[which], "place_of_shown");
}

static void *load(void *number) {
    (void)number;
    load_one(0, getenv("PLUGIN"));
    return NULL;
}

static void *load_other(void *number) {
    (void)number;
    load_one(1, getenv("OTHER"));
    return NULL;
}

static void *use(void *of) {
    const int number = (int)(intptr_t)of;
    pthread_barrier_wait(&before);
    pthread_barrier_wait(&loaded);
    for (int which = 0; which < 2; which++) {
        for (int i = 0; i <= number; i++) {
            CHECK(counts[which]() == 6 + i);
        }
        int *shown = dlsym(libraries[which], "shown");
        CHECK(shown == places[which]() && (uintptr_t)shown % 64 == 0 && *shown == 7);
        *shown = 100 + number;
    }
    pthread_barrier_wait(&counted);
    for (int which = 0; which < 2; which++) {
        CHECK(counts[which]() == 7 + number && *places[which]() == 100 + number);
    }
    return NULL;
}

static void *loads_of_main(void *number) {
    pthread_barrier_wait(&before);
    pthread_t id;
    /* With an even number main loads the first one, with an odd one another thread. */
    if (threads % 2 == 0) {
        load(NULL);
        CHECK(pthread_create(&id, NULL, load_other, NULL) == 0);
    } else {
        CHECK(pthread_create(&id, NULL, load, NULL) == 0);
    }
    CHECK(pthread_join(id, NULL) == 0);
    if (threads % 2 != 0) {
        load_other(NULL);
    }
    pthread_barrier_wait(&loaded);
    pthread_barrier_wait(&counted);
    return number;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    pthread_barrier_init(&before, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&loaded, NULL, (unsigned)threads + 1);
    pthread_barrier_init(&counted, NULL, (unsigned)threads + 1);
    pthread_t ids[MOST_THREADS];
    for (int i = 0; i < threads; i++) {
        CHECK(pthread_create(&ids[i], NULL, use, (void *)(intptr_t)i) == 0);
    }
    loads_of_main(NULL);
    for (int i = 0; i < threads; i++) {
        CHECK(pthread_join(ids[i], NULL) == 0);
    }
    CHECK(counts[0]() == 6 && *places[1]() == 7);
    return verdict("storage");
}
