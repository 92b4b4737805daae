/* pca: the first half of a principal component analysis: the mean of each row of a matrix, and the covariance of each
 * two rows.
 *
 * There are two phases, with a barrier between them. In each the threads take rows from a counter under a mutex until
 * none is left: the covariances form a triangle, so rows are not equally long, and a thread that is done early takes
 * more. Each row of results begins on a page of its own.
 *
 *     cc -O2 pca.c -o pca -pthread
 *     ./pca --threads 4 --size 400      a matrix of 400 rows
 */
#include "common.h"

enum { VALUES = 100 };

/* Shared by the threads beside the matrices, on a page of its own. */
struct progress {
    pthread_mutex_t mutex; /* guards `next` */
    size_t next[2];        /* the next row, for each phase */
    pthread_barrier_t means_done;
};

static struct options options = {
    .what = "Computes the means and covariances of the rows of a matrix.",
    .unit = "rows, and as many columns", .size = 800, .least = 2, .most = 100000,
};
static size_t input_stride, result_stride; /* bytes from one row to the next */
static unsigned char *input;
static unsigned char *results; /* row i: its sum, then n (n - 1) times the covariances with rows i, i + 1, ... */
static struct progress *progress;

static int32_t *input_row(size_t row) {
    return (int32_t *)(input + row * input_stride);
}

static int64_t *result_row(size_t row) {
    return (int64_t *)(results + row * result_stride);
}

static size_t take_row(int phase) {
    check(pthread_mutex_lock(&progress->mutex), "pthread_mutex_lock");
    size_t row = progress->next[phase]++;
    check(pthread_mutex_unlock(&progress->mutex), "pthread_mutex_unlock");
    return row;
}

static void *analyse(void *number) {
    size_t n = options.size;
    (void)number; /* all threads do the same */
    for (size_t i = take_row(0); i < n; i = take_row(0)) {
        int64_t sum = 0;
        for (size_t k = 0; k < n; k++) {
            sum += input_row(i)[k];
        }
        result_row(i)[0] = sum;
    }
    int last = pthread_barrier_wait(&progress->means_done);
    check(last == PTHREAD_BARRIER_SERIAL_THREAD ? 0 : last, "pthread_barrier_wait");
    for (size_t i = take_row(1); i < n; i = take_row(1)) {
        const int32_t *x = input_row(i);
        for (size_t j = i; j < n; j++) {
            const int32_t *y = input_row(j);
            int64_t products = 0;
            for (size_t k = 0; k < n; k++) {
                products += x[k] * y[k];
            }
            /* The sum of (x - mean x) (y - mean y), times n, in whole numbers. */
            result_row(i)[1 + j - i] = (int64_t)n * products - result_row(i)[0] * result_row(j)[0];
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    read_options(&options, argc, argv);
    size_t n = options.size;
    input_stride = whole_pages(n * sizeof(int32_t));
    result_stride = whole_pages((n + 1) * sizeof(int64_t));
    size_t input_bytes = n * input_stride, result_bytes = n * result_stride;
    input = new_pages(input_bytes);
    results = new_pages(result_bytes);
    progress = new_pages(sizeof *progress);
    uint64_t state = options.seed;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < n; k++) {
            input_row(i)[k] = (int32_t)(draw(&state) % VALUES);
        }
    }
#ifdef GOSSAMER_REGION
    check(gsm_region_share(input, input_bytes), "gsm_region_share");
    check(gsm_region_share(results, result_bytes), "gsm_region_share");
    check(gsm_region_share(progress, whole_pages(sizeof *progress)), "gsm_region_share");
#endif
    check(pthread_mutex_init(&progress->mutex, NULL), "pthread_mutex_init");
    check(pthread_barrier_init(&progress->means_done, NULL, (unsigned)options.threads), "pthread_barrier_init");
    run_threads(options.threads, analyse);

    uint64_t checksum = FNV_BEGIN;
    double variance = 0, scale = (double)n * (double)(n - 1);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j <= n - i; j++) {
            checksum = fnv(checksum, (uint64_t)result_row(i)[j]);
        }
        variance += (double)result_row(i)[1] / scale;
    }
    printf("rows %zu\n", n);
    printf("row 0: mean %.4f, variance %.4f, covariance with row 1 %.4f\n", (double)result_row(0)[0] / (double)n,
           (double)result_row(0)[1] / scale, (double)result_row(0)[2] / scale);
    printf("total variance %.2f\n", variance);
    printf("checksum %016" PRIx64 "\n", checksum);
    pthread_barrier_destroy(&progress->means_done);
    pthread_mutex_destroy(&progress->mutex);
    munmap(input, input_bytes);
    munmap(results, result_bytes);
    munmap(progress, sizeof *progress);
}
