// ends_of_threads: what runs at the end of each thread runs once, in the thread itself, in the order of one process:
// thread_local objects (the last first), then values of keys.
#include <cstdio>
#include <cstdlib>
#include <pthread.h>

static thread_local const char *stage = "none";
static pthread_key_t keys[2];

struct Object {
    const char *name;
    pthread_t of = pthread_self();
    explicit Object(const char *name) : name(name) {}
    ~Object() {
        printf("  %s in its thread: %d, after %s\n", name, pthread_equal(of, pthread_self()) != 0, stage);
        stage = name;
    }
};

static thread_local Object early("early object");
static thread_local Object late("late object");

static void gone(void *value) {
    printf("  value %ld, after %s\n", (long)value, stage);
    stage = "a value";
    // Made while the thread ends: destroyed with it, or never.
    if (pthread_getspecific(keys[0]) == nullptr && (long)value < 100)
        pthread_setspecific(keys[0], (void *)((long)value + 100));
}

static void *run(void *number) {
    long at = (long)number;
    printf("thread %ld\n", at);
    pthread_setspecific(keys[0], (void *)(at + 1));
    early.of = pthread_self();
    late.of = pthread_self();
    stage = "its function";
    return nullptr;
}

int main() {
    for (auto &key : keys)
        pthread_key_create(&key, gone);
    for (long at = 0; at < 4; at++) {
        pthread_t thread;
        pthread_create(&thread, nullptr, run, (void *)at);
        pthread_join(thread, nullptr);
    }
    fflush(stdout);
    // Objects of main are destroyed by exit, those of threads have been.
    early.of = pthread_self();
    late.of = pthread_self();
    stage = "main";
    exit(0);
}
