/* files: several threads read parts of one file straight into shared buffers, and write others' bytes from there. Each
 * thread opens the file itself, by the path that main has made. */
#include "verdict.h"
#include <fcntl.h>
#include <sys/uio.h>

enum { PART = 10000 }; /* no multiple of a page */

static char path[4096];
static unsigned char *input, *output;
static pthread_barrier_t barrier;

static unsigned char expected(size_t at) {
    return (unsigned char)(at * 31 + at / 251);
}

static void *work(void *number) {
    int thread = (int)(intptr_t)number, file = open(path, O_RDWR | O_CLOEXEC);
    size_t begin = (size_t)thread * PART;
    CHECK(file >= 0);
    /* Into pages that the neighbours write to at the same time; one half by pread, one by preadv in two pieces. */
    CHECK(pread(file, input + begin, PART / 2, (off_t)begin) == PART / 2);
    struct iovec pieces[2] = {
        {.iov_base = input + begin + PART / 2, .iov_len = 100},
        {.iov_base = input + begin + PART / 2 + 100, .iov_len = PART / 2 - 100},
    };
    CHECK(preadv(file, pieces, 2, (off_t)(begin + PART / 2)) == PART / 2);
    pthread_barrier_wait(&barrier);
    /* After the input: the next thread's part, with each byte inverted. */
    size_t other = (size_t)((thread + 1) % threads) * PART;
    for (size_t i = 0; i < PART; i++) {
        output[other + i] = (unsigned char)~input[other + i];
    }
    pthread_barrier_wait(&barrier);
    /* From pages that others have written: the kernel reads them. */
    CHECK(pwrite(file, output + begin, PART, (off_t)(begin + (size_t)threads * PART)) == PART);
    CHECK(close(file) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    size_t bytes = (size_t)threads * PART;
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/region-files-XXXXXX", folder ? folder : "/tmp");
    int file = mkstemp(path);
    if (file < 0) {
        perror(path);
        return 1;
    }
    input = malloc(bytes);
    output = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        input[i] = expected(i);
    }
    CHECK(write(file, input, bytes) == (ssize_t)bytes);
    memset(input, 0, bytes);
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    run_threads(threads, work);
    unsigned char *all = malloc(2 * bytes);
    CHECK(pread(file, all, 2 * bytes, 0) == (ssize_t)(2 * bytes));
    for (size_t i = 0; i < bytes; i++) {
        CHECK(input[i] == expected(i) && all[i] == expected(i) && all[bytes + i] == (unsigned char)~expected(i));
    }
    CHECK(unlink(path) == 0 && close(file) == 0);
    pthread_barrier_destroy(&barrier);
    free(all);
    free(input);
    free(output);
    return verdict("files");
}
