/* heap: blocks of all sizes, allocated by threads of each machine, changed in size and freed by others, with their
 * contents checked; freed memory serves other sizes, and nothing is lost when threads end. */
#include "verdict.h"

#include <malloc.h>

enum { PLACES = 512, ROUNDS = 3, EACH = 400, PAGE = 4096 };

/* A block that is under way from one thread to another. */
struct parcel {
    unsigned char *bytes;
    size_t length;
    unsigned seed;
};

static struct parcel places[PLACES];
static pthread_mutex_t mutexes[16] = {[0 ... 15] = PTHREAD_MUTEX_INITIALIZER};

static unsigned next(unsigned *state) {
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8;
}

/* Most are small; some are large, some are none. */
static size_t a_length(unsigned *state) {
    unsigned kind = next(state) % 32;
    return kind == 0 ? next(state) % (300 * 1024) : kind < 4 ? next(state) % (40 * 1024) : next(state) % 300;
}

static void fill(struct parcel *parcel) {
    for (size_t i = 0; i < parcel->length; i += i < 64 ? 1 : 509) {
        parcel->bytes[i] = (unsigned char)(parcel->seed + i);
    }
}

static int is_whole(const struct parcel *parcel, size_t length) {
    int is = 1;
    for (size_t i = 0; i < length; i += i < 64 ? 1 : 509) {
        is &= parcel->bytes[i] == (unsigned char)(parcel->seed + i);
    }
    return is;
}

static void make(struct parcel *parcel, unsigned *state) {
    parcel->length = a_length(state);
    parcel->seed = next(state);
    size_t align = 1;
    switch (next(state) % 4) {
    case 0:
        align = (size_t)16 << next(state) % 9;
        parcel->bytes = memalign(align, parcel->length);
        break;
    case 1:
        parcel->bytes = calloc(1, parcel->length);
        for (size_t i = 0; parcel->bytes && i < parcel->length; i += 61) {
            CHECK(parcel->bytes[i] == 0);
        }
        break;
    default:
        parcel->bytes = malloc(parcel->length);
    }
    CHECK(parcel->bytes != NULL && (uintptr_t)parcel->bytes % (align < 16 ? 16 : align) == 0);
    CHECK(malloc_usable_size(parcel->bytes) >= parcel->length);
    fill(parcel);
}

static void *work(void *number) {
    unsigned state = (unsigned)(intptr_t)number * 7919 + 17;
    for (int i = 0; i < EACH; i++) {
        unsigned place = next(&state) % PLACES;
        struct parcel mine;
        make(&mine, &state);
        if (next(&state) % 4 == 0) {
            size_t length = a_length(&state), both = length < mine.length ? length : mine.length;
            unsigned char *moved = realloc(mine.bytes, length + 1);
            CHECK(moved != NULL);
            mine.bytes = moved;
            CHECK(is_whole(&mine, both));
            mine.length = length;
            fill(&mine);
        }
        pthread_mutex_lock(&mutexes[place % 16]);
        struct parcel other = places[place];
        places[place] = mine;
        pthread_mutex_unlock(&mutexes[place % 16]);
        CHECK(is_whole(&other, other.length));
        free(other.bytes);
    }
    return NULL;
}

/* All memory that there is goes through one size after the other: what served one serves the next. */
static void *sizes(void *unused) {
    static const size_t lengths[] = {24, 200, 3000, 20000, 70000, 900000, 40, 3 << 20, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        size_t count = (6 << 20) / (lengths[i] + 64);
        void **blocks = calloc(count, sizeof *blocks);
        for (size_t k = 0; k < count; k++) {
            blocks[k] = malloc(lengths[i]);
            CHECK(blocks[k] != NULL);
        }
        for (size_t k = 0; k < count; k++) {
            free(blocks[k]);
        }
        free(blocks);
    }
    return unused;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    for (int round = 0; round < ROUNDS; round++) {
        run_threads(threads, work);
    }
    for (int i = 0; i < PLACES; i++) {
        CHECK(is_whole(&places[i], places[i].length));
        free(places[i].bytes);
    }
    for (int i = 0; i < 4; i++) { /* on each machine in turn */
        pthread_t id;
        CHECK(pthread_create(&id, NULL, sizes, NULL) == 0 && pthread_join(id, NULL) == 0);
    }
    return verdict("heap");
}
