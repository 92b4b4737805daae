/* own_names: a program whose functions and variables have names of the C library's functions, malloc among them. Ours
 * calls the C library's. */
#include "verdict.h"

/* Blocks, each with its size before it, from one array; none is used again. */
static _Alignas(16) unsigned char memory[8 << 20];
static size_t used;
static int calls;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *malloc(size_t bytes) {
    size_t need = 16 + (bytes + 15) / 16 * 16;
    pthread_mutex_lock(&lock);
    calls++;
    size_t start = used;
    used += need <= sizeof memory - used ? need : 0;
    int is_there = used != start;
    pthread_mutex_unlock(&lock);
    if (!is_there) {
        errno = ENOMEM;
        return NULL;
    }
    memcpy(memory + start, &bytes, sizeof bytes);
    return memory + start + 16;
}

void free(void *block) {
    if (block != NULL && ((unsigned char *)block < memory || (unsigned char *)block >= memory + sizeof memory)) {
        abort();
    }
}

void *calloc(size_t count, size_t bytes) {
    return malloc(count * bytes); /* zeros, as no block is used again */
}

void *realloc(void *block, size_t bytes) {
    void *new = malloc(bytes);
    if (new != NULL && block != NULL) {
        size_t had;
        memcpy(&had, (unsigned char *)block - 16, sizeof had);
        memcpy(new, block, had < bytes ? had : bytes);
    }
    return new;
}

static int wrong;

/* A call of ours comes to these by mistake. */
ssize_t write(int file, const void *bytes, size_t count) {
    (void)file, (void)bytes, (void)count;
    wrong++;
    abort();
}

ssize_t read(int file, void *bytes, size_t count) {
    (void)file, (void)bytes, (void)count;
    wrong++;
    abort();
}

int poll(void *files, unsigned long count, int time) {
    (void)files, (void)count, (void)time;
    wrong++;
    abort();
}

int close(int file) {
    (void)file;
    wrong++;
    abort();
}

/* Variables. */
int send = 17, recv = 18;
long ioctl = 22;

static char *texts[MOST_THREADS];

static void *work(void *number) {
    int thread = (int)(intptr_t)number;
    for (int i = 0; i < 100; i++) {
        char *text = strdup("some text");
        CHECK(text != NULL && (unsigned char *)text >= memory && (unsigned char *)text < memory + sizeof memory);
        free(text);
    }
    texts[thread] = malloc(100);
    snprintf(texts[thread], 100, "thread %d", thread);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    run_threads(threads, work);
    for (int i = 0; i < threads; i++) {
        char expected[100];
        snprintf(expected, sizeof expected, "thread %d", i);
        CHECK(texts[i] != NULL && strcmp(texts[i], expected) == 0);
        free(texts[i]);
    }
    CHECK(calls >= 101 * threads && wrong == 0 && send == 17 && recv == 18 && ioctl == 22);
    return verdict("own_names");
}
