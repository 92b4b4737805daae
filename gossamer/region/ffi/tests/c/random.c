/* random: the numbers of rand, random and drand48 are one sequence for the threads of all machines; so is the
 * environment that any of them changes. */
#include "verdict.h"

static int numbers[3 * MOST_THREADS], round_of;
static double fractions[MOST_THREADS];

static void *draw(void *number) {
    int thread = (int)(intptr_t)number;
    if (round_of == 1 && thread == 1) {
        srand(7); /* from the start again, for all */
    }
    for (int i = 0; i < 3; i++) {
        numbers[3 * thread + i] = i == 1 ? (int)random() : rand();
    }
    fractions[thread] = drand48();
    char name[16], value[16];
    snprintf(name, sizeof name, "OF_%d", thread - 1);
    CHECK(thread == 0 || getenv(name) != NULL);
    CHECK(thread == 0 || setenv("LAST", "another", 0) == 0);
    snprintf(name, sizeof name, "OF_%d", thread);
    snprintf(value, sizeof value, "%d", thread);
    CHECK(setenv(name, value, 1) == 0 && strcmp(getenv(name), value) == 0);
    CHECK(setenv("LAST", value, thread == 0) == 0 && strcmp(getenv("LAST"), "0") == 0);
    static char put[] = "PUT=1";
    CHECK(putenv(put) == 0 && unsetenv("NOT=NAME") == -1 && errno == EINVAL && unsetenv("NO_SUCH") == 0);
    return NULL;
}

/* One after the other, on all machines. */
static void draw_all(void) {
    for (intptr_t number = 0; number < threads; number++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, draw, (void *)number) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
}

/* Checks numbers from `first` on against a sequence of that seed. */
static void compare(unsigned seed, int first) {
    struct random_data data = {0};
    char state[128];
    CHECK(initstate_r(seed, state, sizeof state, &data) == 0);
    for (int i = first; i < 3 * threads; i++) {
        int expected = -1;
        CHECK(random_r(&data, &expected) == 0 && expected == numbers[i]);
    }
}

static void *forget(void *number) {
    (void)number;
    CHECK(unsetenv("PUT") == 0 && getenv("PUT") == NULL);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    draw_all();
    compare(1, 0); /* a program that sets no seed has this one */
    srand(5);
    srand48(5);
    draw_all();
    compare(5, 0);
    struct drand48_data data = {0};
    CHECK(srand48_r(5, &data) == 0);
    for (int i = 0; i < threads; i++) {
        double expected = -1;
        CHECK(drand48_r(&data, &expected) == 0 && expected == fractions[i]);
    }
    round_of = 1;
    draw_all();
    compare(7, 3);
    run_threads(1, forget);
    CHECK(getenv("PUT") == NULL);
    static char state[64];
    char *before = initstate(3, state, sizeof state);
    CHECK(before != NULL && setstate(before) == state);
    return verdict("random");
}
