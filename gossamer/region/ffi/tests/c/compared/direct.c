/* A thread of the first machine reads a file with O_DIRECT, where the file system has that, into memory that nobody has
 * touched; one of the other machine follows it closely, and fetches pages in advance while the device fills them. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 64 << 10, BLOCKS = 64, ROUNDS = 4 };

static char *buffers;
static sem_t filled;
static int file;

static void *fill(void *unused) {
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        for (int at = 0; at < BLOCKS; at++) {
            char *buffer = buffers + (round * BLOCKS + at) * (size_t)BLOCK;
            if (pread(file, buffer, BLOCK, at * (off_t)BLOCK) != BLOCK) abort();
            sem_post(&filled);
        }
    }
    return NULL;
}

static void *look(void *unused) {
    (void)unused;
    long wrong = 0;
    for (int at = 0; at < ROUNDS * BLOCKS; at++) {
        while (sem_wait(&filled)) {}
        const char *buffer = buffers + at * (size_t)BLOCK;
        for (int byte = 0; byte < BLOCK; byte += 512) wrong += buffer[byte] != 1 + at % BLOCKS;
    }
    return (void *)wrong;
}

int main(void) {
    char path[] = "direct-XXXXXX";
    int made = mkstemp(path);
    if (made < 0) return 1;
    static char block[BLOCK];
    for (int at = 0; at < BLOCKS; at++) {
        memset(block, 1 + at, BLOCK);
        if (write(made, block, BLOCK) != BLOCK) return 1;
    }
    fsync(made);
    close(made);
    file = open(path, O_RDONLY | O_DIRECT);
    if (file < 0) file = open(path, O_RDONLY);
    unlink(path);
    if (file < 0 || sem_init(&filled, 0, 0)) return 1;
    buffers = aligned_alloc(4096, ROUNDS * BLOCKS * (size_t)BLOCK);
    pthread_t threads[2];
    void *wrong;
    pthread_create(&threads[1], NULL, look, NULL);
    pthread_create(&threads[0], NULL, fill, NULL);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], &wrong);
    printf("%ld sectors are wrong\n", (long)wrong);
    return 0;
}
