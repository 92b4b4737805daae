/* The contender of `gossamer-bench durable` over RocksDB, by its C API. `gossamer-bench durable` compiles it with `cc`
 * where the library is there (on Debian: librocksdb-dev).
 *
 *     put FOLDER KEYS MILLIS THREADS BATCH    each thread commits BATCH puts at a time for MILLIS:
 *                                             {"puts": [..], "seconds": ..}
 *     get FOLDER KEY ..                       the number in the value of each key, 0 for none
 *
 * Keys and values are as in `puts.rs`: each thread has its own keys, values are 64 bytes that begin with the number of
 * their put. Each commit is synced before it is acknowledged; RocksDB gathers those of threads that wait at the same
 * time. All other settings are the library's defaults. */

#define _POSIX_C_SOURCE 200112L
#include <inttypes.h>
#include <pthread.h>
#include <rocksdb/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VALUE_BYTES 64
#define KEY_BYTES 8
#define STACK_BYTES ((size_t)256 << 10)

struct client {
    pthread_t thread;
    uint64_t number, puts;
};

static rocksdb_t *map;
static rocksdb_writeoptions_t *synced;
static pthread_barrier_t start;
static uint64_t keys, clients, batch;
static double duration_s;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Most significant byte first, so that keys are in the order of numbers. */
static void encode(uint64_t key, char bytes[KEY_BYTES]) {
    for (int index = 0; index < KEY_BYTES; index++) bytes[index] = (char)(key >> (8 * (KEY_BYTES - 1 - index)));
}

static void *run(void *argument) {
    struct client *client = argument;
    uint64_t own = keys / clients > 0 ? keys / clients : 1;
    rocksdb_writebatch_t *puts = rocksdb_writebatch_create();
    pthread_barrier_wait(&start);
    double end = now_s() + duration_s;
    do {
        rocksdb_writebatch_clear(puts);
        for (uint64_t number = client->puts + 1; number <= client->puts + batch; number++) {
            char key[KEY_BYTES], value[VALUE_BYTES] = {0};
            encode(client->number * own + number % own, key);
            memcpy(value, &number, sizeof number);
            rocksdb_writebatch_put(puts, key, sizeof key, value, sizeof value);
        }
        char *error = NULL;
        rocksdb_write(map, synced, puts, &error);
        if (error != NULL) fail("a commit", error);
        client->puts += batch;
    } while (now_s() < end);
    rocksdb_writebatch_destroy(puts);
    return NULL;
}

static void put(void) {
    struct client *all = calloc(clients, sizeof *all);
    pthread_attr_t small;
    if (all == NULL || pthread_attr_init(&small) != 0 || pthread_attr_setstacksize(&small, STACK_BYTES) != 0 ||
        pthread_barrier_init(&start, NULL, (unsigned)clients + 1) != 0)
        fail("threads", "no room for them");
    for (uint64_t index = 0; index < clients; index++) {
        all[index].number = index;
        if (pthread_create(&all[index].thread, &small, run, &all[index]) != 0) fail("a thread", "it cannot be started");
    }
    pthread_barrier_wait(&start);
    double began = now_s();
    for (uint64_t index = 0; index < clients; index++) pthread_join(all[index].thread, NULL);
    printf("{\"seconds\": %.9f, \"puts\": [", now_s() - began);
    for (uint64_t index = 0; index < clients; index++) printf("%s%" PRIu64, index > 0 ? ", " : "", all[index].puts);
    printf("]}\n");
    free(all);
}

static void get(int count, char **wanted) {
    rocksdb_readoptions_t *options = rocksdb_readoptions_create();
    for (int index = 0; index < count; index++) {
        char key[KEY_BYTES], *error = NULL;
        encode(strtoull(wanted[index], NULL, 10), key);
        size_t len = 0;
        char *value = rocksdb_get(map, options, key, sizeof key, &len, &error);
        if (error != NULL) fail("a read", error);
        uint64_t number = 0;
        if (value != NULL && len == VALUE_BYTES) memcpy(&number, value, sizeof number);
        printf("%" PRIu64 "\n", number);
        rocksdb_free(value);
    }
    rocksdb_readoptions_destroy(options);
}

int main(int argc, char **argv) {
    int is_put = argc == 7 && strcmp(argv[1], "put") == 0;
    if (is_put) {
        keys = strtoull(argv[3], NULL, 10);
        duration_s = (double)strtoull(argv[4], NULL, 10) / 1e3;
        clients = strtoull(argv[5], NULL, 10);
        batch = strtoull(argv[6], NULL, 10);
    }
    if (is_put ? keys == 0 || clients == 0 || batch == 0 : argc < 3 || strcmp(argv[1], "get") != 0) {
        fprintf(stderr, "usage: put FOLDER KEYS MILLIS THREADS BATCH | get FOLDER KEY ..\n");
        return 2;
    }
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, (unsigned char)is_put);
    char *error = NULL;
    map = rocksdb_open(options, argv[2], &error);
    if (error != NULL) fail(argv[2], error);
    synced = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(synced, 1);
    if (is_put)
        put();
    else
        get(argc - 3, argv + 3);
    rocksdb_writeoptions_destroy(synced);
    rocksdb_close(map);
    rocksdb_options_destroy(options);
    return 0;
}
