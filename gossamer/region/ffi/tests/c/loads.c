/* loads: main, or a thread of another machine, loads a library; threads of all machines call its functions, look up
 * names, and share its variables. The library is the file PLUGIN. */
#include "verdict.h"

#include <dlfcn.h>

static void *library;
static int (*plug)(void);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *load(void *number) {
    (void)number;
    CHECK(dlopen("/nowhere/plugin.so", RTLD_NOW) == NULL);
    const char *error = dlerror();
    CHECK(error != NULL && strstr(error, "/nowhere/plugin.so") != NULL && dlerror() == NULL);
    library = dlopen(getenv("PLUGIN"), RTLD_LAZY | RTLD_LOCAL);
    CHECK(library != NULL);
    *(void **)&plug = dlsym(library, "plug");
    CHECK(plug != NULL && dlopen(getenv("PLUGIN"), RTLD_NOW) == library && dlclose(library) == 0);
    return NULL;
}

static void *use(void *number) {
    (void)number;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 10; i++) {
        CHECK(plug() > 0);
    }
    int *shown = dlsym(library, "shown");
    CHECK(shown != NULL && dlsym(library, "no_such_name") == NULL && dlerror() != NULL);
    ++*shown;
    CHECK(dlsym(RTLD_DEFAULT, "malloc") != NULL);
    pthread_mutex_unlock(&lock);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    if (threads % 2 == 0) {
        load(NULL);
    } else {
        run_threads(1, load);
    }
    run_threads(threads, use);
    int *constructed = dlsym(library, "constructed"), *shown = dlsym(library, "shown");
    CHECK(plug() == 10 * threads + 1 && *constructed == 1 && *shown == 5 + threads);
    return verdict("loads");
}
