/* table: a hash table in shards, each entrusted to one worker of a pool. Keys and values are strings; a value is copied
 * to each caller that gets it, so each copy has one owner.
 *
 *     cc table.c $(pkg-config --cflags --libs trust) && ./a.out
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trust.h>

enum { SHARDS = 4, BUCKETS = 64, KEYS = 5000 };

struct entry {
    struct entry *next;
    size_t key_length, value_length;
    char bytes[]; /* the key, then the value */
};

/* Private data of a shard's functions. */
struct shard {
    struct entry *buckets[BUCKETS];
    long entries;
};

/* The argument block of a put: this, then the key, then the value. */
struct put {
    uint32_t key_length, value_length;
};

static void check(trust_status status, const char *call) {
    if (status != TRUST_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, trust_status_name(status), trust_error_message());
        exit(1);
    }
}

static uint32_t hash(const char *key, size_t length) {
    uint32_t sum = 2166136261u;
    for (size_t i = 0; i < length; i++) {
        sum = (sum ^ (unsigned char)key[i]) * 16777619u;
    }
    return sum;
}

static struct entry **find(struct shard *shard, const char *key, size_t length) {
    struct entry **at = &shard->buckets[hash(key, length) / SHARDS % BUCKETS];
    while (*at && ((*at)->key_length != length || memcmp((*at)->bytes, key, length) != 0)) {
        at = &(*at)->next;
    }
    return at;
}

/* Delegated: stores a value, which replaces an earlier one. */
static void put(void *property, const void *arguments, size_t length, trust_result *result) {
    struct shard *shard = property;
    const struct put *put = arguments;
    const char *bytes = (const char *)(put + 1);
    struct entry **at = find(shard, bytes, put->key_length);
    struct entry *made = malloc(sizeof *made + put->key_length + put->value_length);
    (void)length;
    (void)result;
    if (!made) {
        abort();
    }
    *made = (struct entry){.key_length = put->key_length, .value_length = put->value_length};
    memcpy(made->bytes, bytes, put->key_length + put->value_length);
    if (*at) {
        struct entry *old = *at;
        made->next = old->next;
        free(old);
    } else {
        shard->entries++;
    }
    *at = made;
}

/* Delegated: copies the value into the response. No result if there is no value. */
static void get(void *property, const void *arguments, size_t length, trust_result *result) {
    struct entry *entry = *find(property, arguments, length);
    if (entry) {
        trust_result_put(result, entry->bytes + entry->key_length, entry->value_length);
    }
}

/* Delegated: counts the values. */
static void count(void *property, const void *arguments, size_t length, trust_result *result) {
    (void)arguments;
    (void)length;
    trust_result_put(result, &((struct shard *)property)->entries, sizeof(long));
}

/* Frees a shard, on its trustee's thread. */
static void destroy(void *property) {
    struct shard *shard = property;
    for (int i = 0; i < BUCKETS; i++) {
        for (struct entry *entry = shard->buckets[i], *next; entry; entry = next) {
            next = entry->next;
            free(entry);
        }
    }
    free(shard);
}

static size_t value_of(int i, char *value, size_t room) {
    return (size_t)snprintf(value, room, "%0*d", 1 + i % 400, i);
}

/* Called with a value: counts it if it is right. */
struct expected {
    int number, right;
};
static void compare(void *context, trust_status status, const void *result, size_t length) {
    struct expected *expected = context;
    char value[512];
    size_t wanted = value_of(expected->number, value, sizeof value);
    expected->right = status == TRUST_OK && length == wanted && memcmp(result, value, wanted) == 0;
}

static struct expected expected[KEYS];

int main(void) {
    trust_pool *pool = NULL;
    trust_pool_options options = {.size = sizeof options, .workers = SHARDS, .dedicated = SHARDS};
    trust_t shards[SHARDS];
    check(trust_attach(NULL), "trust_attach");
    check(trust_pool_start(&options, &pool), "trust_pool_start");
    for (size_t i = 0; i < SHARDS; i++) {
        trust_trustee trustee;
        check(trust_pool_trustee(pool, i, &trustee), "trust_pool_trustee");
        check(trust_entrust(trustee, calloc(1, sizeof(struct shard)), destroy, &shards[i]), "trust_entrust");
    }

    for (int i = 0; i < KEYS; i++) {
        char block[1024];
        char *key = block + sizeof(struct put);
        struct put *head = (struct put *)(void *)block;
        head->key_length = (uint32_t)sprintf(key, "key %d", i);
        head->value_length = (uint32_t)value_of(i, key + head->key_length, 512);
        size_t length = sizeof *head + head->key_length + head->value_length;
        trust_t shard = shards[hash(key, head->key_length) % SHARDS];
        check(trust_apply_then(shard, put, block, length, NULL, NULL), "put");
    }
    for (int i = 0; i < KEYS; i++) {
        char key[32];
        size_t length = (size_t)sprintf(key, "key %d", i);
        expected[i].number = i;
        check(trust_apply_then(shards[hash(key, length) % SHARDS], get, key, length, compare, &expected[i]), "get");
    }

    long entries = 0;
    for (int i = 0; i < SHARDS; i++) {
        long some = 0;
        size_t room = sizeof some;
        check(trust_apply(shards[i], count, NULL, 0, &some, &room), "count");
        entries += some;
        trust_drop(shards[i]);
    }
    int right = 0;
    for (int i = 0; i < KEYS; i++) {
        right += expected[i].right;
    }
    check(trust_pool_stop(pool), "trust_pool_stop");
    check(trust_detach(), "trust_detach");
    printf("%ld entries, %d of them right\n", entries, right);
    return entries == KEYS && right == KEYS ? 0 : 1;
}
