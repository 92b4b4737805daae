/* The contender of `gossamer-bench durable` over libpmemobj (PMDK): a hash map and a binary search tree in a pool, each
 * change a transaction with an undo log. `gossamer-bench durable` compiles it with `cc` where the library is there (on
 * Debian: libpmemobj-dev).
 *
 *     put FILE KEYS MILLIS    puts one after the other into a new pool for that time: {"ops": .., "seconds": ..}
 *     get FILE KEY ..         the number in the value of each key, 0 for none
 *     map FILE COUNT READS    inserts COUNT scattered keys, then looks for them: inserts and reads a second
 *     bst FILE COUNT          the same into the tree, inserts alone
 *
 * Values are as in `puts.rs`: 64 bytes that begin with the number of their put. Places in the pool are kept as offsets,
 * which saves the search for the pool that `pmemobj_direct` makes. */

#define _POSIX_C_SOURCE 199309L
#include <inttypes.h>
#include <libpmemobj.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LAYOUT "gossamer-bench"
#define POOL_BYTES ((size_t)96 << 20)
#define BUCKETS ((size_t)1 << 16)
#define VALUE_BYTES 64

struct entry {
    uint64_t key, next;
    uint8_t value[VALUE_BYTES];
};

struct node {
    uint64_t key, value, children[2];
};

struct root {
    uint64_t tree, buckets[BUCKETS];
};

static PMEMobjpool *pool;

static void *at(uint64_t offset) { return (char *)pool + offset; }

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, pmemobj_errormsg());
    exit(1);
}

static struct root *open_pool(const char *file, int is_new) {
    pool = is_new ? pmemobj_create(file, LAYOUT, POOL_BYTES, 0600) : pmemobj_open(file, LAYOUT);
    if (pool == NULL) fail(file);
    PMEMoid root = pmemobj_root(pool, sizeof(struct root));
    if (OID_IS_NULL(root)) fail("the root");
    return pmemobj_direct(root);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Another key for each number. */
static uint64_t scattered(uint64_t number) { return number * UINT64_C(0x9e3779b97f4a7c15); }

static uint64_t *bucket(struct root *root, uint64_t key) { return &root->buckets[(scattered(key) >> 40) % BUCKETS]; }

static struct entry *find(struct root *root, uint64_t key) {
    for (uint64_t offset = *bucket(root, key); offset != 0;) {
        struct entry *entry = at(offset);
        if (entry->key == key) return entry;
        offset = entry->next;
    }
    return NULL;
}

static void put(struct root *root, uint64_t key, uint64_t number) {
    uint8_t value[VALUE_BYTES] = {0};
    memcpy(value, &number, sizeof number);
    TX_BEGIN(pool) {
        struct entry *entry = find(root, key);
        if (entry != NULL) {
            pmemobj_tx_add_range_direct(entry->value, VALUE_BYTES);
            memcpy(entry->value, value, VALUE_BYTES);
        } else {
            PMEMoid oid = pmemobj_tx_alloc(sizeof(struct entry), 1);
            uint64_t *first = bucket(root, key);
            entry = at(oid.off);
            entry->key = key;
            entry->next = *first;
            memcpy(entry->value, value, VALUE_BYTES);
            pmemobj_tx_add_range_direct(first, sizeof *first);
            *first = oid.off;
        }
    }
    TX_ONABORT { fail("a put"); }
    TX_END
}

static void insert(struct root *root, uint64_t key) {
    TX_BEGIN(pool) {
        uint64_t *place = &root->tree;
        while (*place != 0) {
            struct node *node = at(*place);
            place = &node->children[key > node->key];
        }
        PMEMoid oid = pmemobj_tx_zalloc(sizeof(struct node), 2);
        struct node *node = at(oid.off);
        node->key = node->value = key;
        pmemobj_tx_add_range_direct(place, sizeof *place);
        *place = oid.off;
    }
    TX_ONABORT { fail("an insert"); }
    TX_END
}

static void print_rate(const char *name, uint64_t ops, double seconds, const char *end) {
    printf("\"%s\": %.1f%s", name, (double)ops / (seconds > 0 ? seconds : 1e-9), end);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: put FILE KEYS MILLIS | get FILE KEY .. | map FILE COUNT READS | bst FILE COUNT\n");
        return 2;
    }
    const char *command = argv[1];
    int is_get = strcmp(command, "get") == 0;
    uint64_t first = argc > 3 ? strtoull(argv[3], NULL, 10) : 0, second = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    struct root *root = open_pool(argv[2], !is_get);
    double began = now_s();
    if (is_get) {
        for (int index = 3; index < argc; index++) {
            struct entry *entry = find(root, strtoull(argv[index], NULL, 10));
            uint64_t number = 0;
            if (entry != NULL) memcpy(&number, entry->value, sizeof number);
            printf("%" PRIu64 "\n", number);
        }
    } else if (strcmp(command, "put") == 0 && first > 0) {
        uint64_t number = 0;
        do {
            number++;
            put(root, number % first, number);
        } while (now_s() - began < (double)second / 1e3);
        printf("{\"ops\": %" PRIu64 ", \"seconds\": %.9f}\n", number, now_s() - began);
    } else if (strcmp(command, "map") == 0 && first > 0) {
        for (uint64_t number = 0; number < first; number++) put(root, scattered(number), number + 1);
        double filled = now_s();
        uint64_t sum = 0;
        for (uint64_t read = 0; read < second; read++) {
            uint64_t number = 0;
            uint64_t wanted = (scattered(read) >> 40) % first;
            struct entry *entry = find(root, scattered(wanted));
            if (entry != NULL) memcpy(&number, entry->value, sizeof number);
            if (number != wanted + 1) fail("a key is not there");
            sum += number;
        }
        double ended = now_s();
        printf("{");
        print_rate("inserts", first, filled - began, ", ");
        print_rate("reads", second, ended - filled, ", ");
        printf("\"sum\": %" PRIu64 "}\n", sum);
    } else if (strcmp(command, "bst") == 0) {
        for (uint64_t number = 0; number < first; number++) insert(root, scattered(number));
        printf("{");
        print_rate("inserts", first, now_s() - began, "}\n");
    } else {
        fprintf(stderr, "%s: not a command, or no number\n", command);
        return 2;
    }
    pmemobj_close(pool);
    return 0;
}
