/* list: threads build one sorted list under a mutex, change and free each other's nodes, and grow one array by
 * realloc. */
#include "verdict.h"

enum { EACH = 200 };

struct node {
    struct node *next;
    int key;
    char *text;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t built;
static struct node *head;
static int *array;
static size_t array_used, array_room;

static void append(int key) {
    if (array_used == array_room) {
        array_room = array_room ? array_room * 2 : 4;
        array = realloc(array, array_room * sizeof *array);
    }
    array[array_used++] = key;
}

static void insert(int key) {
    struct node *node = calloc(1, sizeof *node), **at = &head;
    CHECK(node->next == NULL && node->key == 0);
    node->key = key;
    node->text = strdup("key");
    while (*at && (*at)->key < key) {
        at = &(*at)->next;
    }
    node->next = *at;
    *at = node;
}

/* Frees the first node whose key leaves `rest`; the text of the next one grows. */
static int take(int rest) {
    struct node **at = &head;
    while (*at && (*at)->key % 3 != rest) {
        at = &(*at)->next;
    }
    struct node *node = *at;
    if (!node) {
        return 0;
    }
    *at = node->next;
    if (node->next) {
        size_t length = strlen(node->next->text);
        node->next->text = realloc(node->next->text, length + 2);
        memcpy(node->next->text + length, "+", 2);
    }
    free(node->text);
    free(node);
    return 1;
}

static void *work(void *number) {
    int thread = (int)(intptr_t)number, went_on = 1;
    for (int i = 0; i < EACH; i++) {
        pthread_mutex_lock(&mutex);
        insert(i * threads + thread);
        append(i * threads + thread);
        pthread_mutex_unlock(&mutex);
        /* Unused memory keeps the allocator busy meanwhile. */
        char *scratch = malloc((size_t)(16 + i * 37 % 5000));
        memset(scratch, thread, 16);
        CHECK(scratch[15] == (char)thread);
        free(scratch);
    }
    pthread_barrier_wait(&built);
    while (went_on) {
        pthread_mutex_lock(&mutex);
        went_on = take(thread % 2);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    int keys = threads * EACH, left = 0, last = -1;
    pthread_barrier_init(&built, NULL, (unsigned)threads);
    run_threads(threads, work);
    for (struct node *node = head, *next; node; node = next, left++) {
        CHECK(node->key % 3 == 2 && node->key > last);
        CHECK(strncmp(node->text, "key", 3) == 0 && strspn(node->text + 3, "+") == strlen(node->text + 3));
        last = node->key;
        next = node->next;
        free(node->text);
        free(node);
    }
    CHECK(left == keys / 3);
    long long sum = 0;
    for (size_t i = 0; i < array_used; i++) {
        sum += array[i];
    }
    CHECK(array_used == (size_t)keys && sum == (long long)keys * (keys - 1) / 2);
    free(array);
    pthread_barrier_destroy(&built);
    return verdict("list");
}
