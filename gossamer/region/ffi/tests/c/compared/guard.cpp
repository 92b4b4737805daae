// guard: a static of a function that takes a second to initialise, asked for by threads of two machines: it is made
// once.
#include <cstdio>
#include <pthread.h>
#include <unistd.h>

static int made;
static int make() {
    usleep(1000000);
    return 5 * ++made;
}

static int get() {
    static int value = make();
    return value;
}

static int got[2];
static void *ask(void *n) {
    usleep((long)n * 200000);
    got[(long)n] = get();
    return nullptr;
}

int main() {
    pthread_t t[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&t[i], nullptr, ask, (void *)i);
    for (auto x : t)
        pthread_join(x, nullptr);
    printf("made %d, got %d %d\n", made, got[0], got[1]);
}
