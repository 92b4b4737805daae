/* returned: memory from malloc passes between threads by arguments and by results, threads start threads, and threads
 * write to each other's stacks. */
#include "verdict.h"

struct text {
    int length;
    char *letters;
};

/* Frees main's block, and returns one that main frees. */
static void *turn_around(void *argument) {
    struct text *given = argument, *made = malloc(sizeof *made);
    made->length = given->length;
    made->letters = malloc((size_t)given->length + 1);
    for (int i = 0; i < given->length; i++) {
        made->letters[i] = given->letters[given->length - 1 - i];
    }
    made->letters[made->length] = 0;
    free(given->letters);
    free(given);
    pthread_exit(made);
}

static void texts(void) {
    pthread_t ids[MOST_THREADS];
    for (int i = 0; i < threads; i++) {
        struct text *text = malloc(sizeof *text);
        text->length = asprintf(&text->letters, "text number %d", i + 10);
        CHECK(pthread_create(&ids[i], NULL, turn_around, text) == 0);
    }
    for (int i = threads - 1; i >= 0; i--) {
        void *answer;
        char expected[32] = "__ rebmun txet";
        CHECK(pthread_join(ids[i], &answer) == 0);
        struct text *text = answer;
        expected[0] = (char)('0' + (i + 10) % 10);
        expected[1] = (char)('0' + (i + 10) / 10);
        CHECK(strcmp(text->letters, expected) == 0);
        free(text->letters);
        free(text);
    }
}

struct node {
    struct node *next;
    int depth;
};

/* Starts the next thread, joins it, and puts a node of its own before the list that comes back. */
static void *nest(void *depth) {
    struct node *node = malloc(sizeof *node);
    *node = (struct node){.depth = (int)(intptr_t)depth};
    if (node->depth > 0) {
        pthread_t next;
        void *list = NULL;
        CHECK(pthread_create(&next, NULL, nest, (void *)(intptr_t)(node->depth - 1)) == 0);
        CHECK(pthread_join(next, &list) == 0);
        node->next = list;
    }
    return node;
}

static void nested(void) {
    pthread_t first;
    void *list = NULL;
    int depth = threads;
    CHECK(pthread_create(&first, NULL, nest, (void *)(intptr_t)depth) == 0);
    CHECK(pthread_join(first, &list) == 0);
    for (struct node *node = list, *next; node; node = next) {
        CHECK(node->depth == depth--);
        next = node->next;
        free(node);
    }
    CHECK(depth == -1);
}

static void *fill(void *array) {
    for (int i = 0; i < 1000; i++) {
        ((int *)array)[i] = i;
    }
    return array;
}

/* Another thread fills an array on this stack, which is not main's; that thread has a stack of its own size. */
static void *lend(void *unused) {
    int array[1000] = {0};
    pthread_t other;
    pthread_attr_t attributes;
    void *answer = NULL;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
    CHECK(pthread_create(&other, &attributes, fill, array) == 0);
    CHECK(pthread_join(other, &answer) == 0 && answer == array);
    for (int i = 0; i < 1000; i++) {
        CHECK(array[i] == i);
    }
    pthread_attr_destroy(&attributes);
    (void)unused;
    return NULL;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t one_less = PTHREAD_COND_INITIALIZER;
static int detached;

static void *leave(void *unused) {
    pthread_mutex_lock(&mutex);
    detached--;
    pthread_cond_signal(&one_less);
    pthread_mutex_unlock(&mutex);
    return unused;
}

/* Detached threads, made in both ways. */
static void detach(void) {
    pthread_attr_t attributes;
    pthread_t id;
    detached = 2 * threads;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    for (int i = 0; i < threads; i++) {
        CHECK(pthread_create(&id, &attributes, leave, NULL) == 0);
        CHECK(pthread_create(&id, NULL, leave, NULL) == 0);
        CHECK(pthread_detach(id) == 0);
    }
    pthread_attr_destroy(&attributes);
    pthread_mutex_lock(&mutex);
    while (detached > 0) {
        pthread_cond_wait(&one_less, &mutex);
    }
    pthread_mutex_unlock(&mutex);
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    texts();
    nested();
    run_threads(threads, lend);
    detach();
    return verdict("returned");
}
