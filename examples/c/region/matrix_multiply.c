/* matrix_multiply: the product C = A B of two square matrices.
 *
 * The rows of C are divided into one run for each thread, which needs the same rows of A and all of B. Each row begins
 * on a page of its own, so no two threads write to one page. The elements are small whole numbers, so each sum is
 * exact.
 *
 *     cc -O2 matrix_multiply.c -o matrix_multiply -pthread
 *     ./matrix_multiply --threads 4 --size 500      two matrices of 500 rows
 */
#include "common.h"

enum { SPAN = 64 }; /* rows of B that stay in the cache while the rows of C pass */

static struct options options = {
    .what = "Multiplies two square matrices.",
    .unit = "rows, and as many columns", .size = 800, .least = 1, .most = 100000,
};
static size_t row_bytes;
static unsigned char *a, *b, *c;

static double *row(unsigned char *matrix, size_t number) {
    return (double *)(matrix + number * row_bytes);
}

static void *multiply(void *number) {
    int thread = (int)(intptr_t)number;
    size_t n = options.size;
    size_t begin = part_begin(n, options.threads, thread), end = part_begin(n, options.threads, thread + 1);
    for (size_t span = 0; span < n; span += SPAN) {
        size_t stop = span + SPAN < n ? span + SPAN : n;
        for (size_t i = begin; i < end; i++) {
            const double *from = row(a, i);
            double *to = row(c, i);
            for (size_t k = span; k < stop; k++) {
                const double *by = row(b, k);
                for (size_t j = 0; j < n; j++) {
                    to[j] += from[k] * by[j];
                }
            }
        }
    }
    return NULL;
}

static unsigned char *generate(uint64_t *state) {
    unsigned char *matrix = new_pages(options.size * row_bytes);
    for (size_t i = 0; i < options.size; i++) {
        for (size_t j = 0; j < options.size; j++) {
            row(matrix, i)[j] = (double)(draw(state) % 19) - 9;
        }
    }
    return matrix;
}

int main(int argc, char **argv) {
    read_options(&options, argc, argv);
    size_t n = options.size;
    row_bytes = whole_pages(n * sizeof(double));
    size_t bytes = n * row_bytes;
    uint64_t state = options.seed;
    a = generate(&state);
    b = generate(&state);
    c = new_pages(bytes);
#ifdef GOSSAMER_REGION
    check(gsm_region_share(a, bytes), "gsm_region_share");
    check(gsm_region_share(b, bytes), "gsm_region_share");
    check(gsm_region_share(c, bytes), "gsm_region_share");
#endif
    run_threads(options.threads, multiply);

    uint64_t checksum = FNV_BEGIN;
    double trace = 0;
    for (size_t i = 0; i < n; i++) {
        trace += row(c, i)[i];
        for (size_t j = 0; j < n; j++) {
            checksum = fnv(checksum, (uint64_t)(int64_t)row(c, i)[j]);
        }
    }
    printf("rows %zu\n", n);
    printf("corners %.0f %.0f %.0f %.0f\n", row(c, 0)[0], row(c, 0)[n - 1], row(c, n - 1)[0], row(c, n - 1)[n - 1]);
    printf("trace %.0f\n", trace);
    printf("checksum %016" PRIx64 "\n", checksum);
    munmap(a, bytes);
    munmap(b, bytes);
    munmap(c, bytes);
}
