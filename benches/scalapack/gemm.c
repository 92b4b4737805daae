/* The matrices of the example `gemm`, multiplied by pdgemm, for `gossamer-bench heap`: ranks hold whole columns, dealt
 * in turn in blocks of equal size. Each rank computes on one thread of OpenBLAS. Arguments: size, rows of a tile (of
 * the checksum only), seed, columns of a block. Prints one JSON object, as the example does. */
#include <inttypes.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void openblas_set_num_threads(int threads);
void Cblacs_get(int context, int what, int *value);
void Cblacs_gridinit(int *context, const char *order, int rows, int columns);
void Cblacs_gridexit(int context);
void descinit_(int *descriptor, const int *rows, const int *columns, const int *block_rows, const int *block_columns,
               const int *first_row, const int *first_column, const int *context, const int *leading, int *info);
void pdgemm_(const char *, const char *, const int *m, const int *n, const int *k, const double *alpha, const double *a,
             const int *ia, const int *ja, const int *of_a, const double *b, const int *ib, const int *jb,
             const int *of_b, const double *beta, double *c, const int *ic, const int *jc, const int *of_c);

static int rank, ranks, size, tile, block;
static uint64_t seed;

/* The finalizer of SplitMix64 (examples/graph/src/random.rs). */
static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* examples/src/gemm/tile.rs */
static double element(uint64_t factor, uint64_t row, uint64_t column) {
    uint64_t random = mix(mix(seed ^ factor << 60) ^ row << 32 ^ column);
    return (double)(random % 17) - 8.0;
}

static void fail(const char *why) {
    fprintf(stderr, "gemm-scalapack: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Returns the number of columns of a rank. */
static int columns_of(int one) {
    int count = 0;
    for (int column = 0; column < size; column++) count += column / block % ranks == one;
    return count;
}

/* Returns the matrix's index of a rank's column. */
static int column_of(int one, int own) {
    return (own / block * ranks + one) * block + own % block;
}

/* Makes this rank's columns of a factor, or zeros. */
static double *make(uint64_t factor, int columns) {
    double *all = malloc((size_t)size * (columns ? columns : 1) * sizeof *all);
    if (!all) fail("there is no memory for a matrix");
    for (int own = 0; own < columns; own++)
        for (int row = 0; row < size; row++)
            all[(size_t)own * size + row] = factor ? element(factor, row, column_of(rank, own)) : 0.0;
    return all;
}

/* Gathers all columns at rank 0. A column is one message. */
static double *gather(const double *product, int columns) {
    double *all = NULL;
    if (rank != 0) {
        for (int own = 0; own < columns; own++) {
            MPI_Send(product + (size_t)own * size, size, MPI_DOUBLE, 0, 0, MPI_COMM_WORLD);
        }
        return NULL;
    }
    all = malloc((size_t)size * size * sizeof *all);
    if (!all) fail("there is no memory for the product");
    for (int one = 0; one < ranks; one++)
        for (int own = 0, count = columns_of(one); own < count; own++) {
            double *to = all + (size_t)column_of(one, own) * size;
            if (one == 0) memcpy(to, product + (size_t)own * size, size * sizeof *to);
            else MPI_Recv(to, size, MPI_DOUBLE, one, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    return all;
}

/* The checksum of the example: tile by tile, each row by row, with zeros beyond the edges. */
static uint64_t checksum(const double *all) {
    uint64_t sum = 0;
    int tiles = (size + tile - 1) / tile;
    for (int number = 0; number < tiles * tiles; number++)
        for (int at = 0; at < tile * tile; at++) {
            int row = number / tiles * tile + at / tile, column = number % tiles * tile + at % tile;
            double value = row < size && column < size ? all[(size_t)column * size + row] + 0.0 : 0.0; /* no -0.0 */
            uint64_t bits;
            memcpy(&bits, &value, sizeof bits);
            sum = mix(sum ^ bits);
        }
    return sum;
}

int main(int argc, char **argv) {
    int context, info, descriptor[9], zero = 0, first = 1;
    double one = 1.0, none = 0.0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 5) fail("give size, rows of a tile, seed and columns of a block");
    size = atoi(argv[1]), tile = atoi(argv[2]), seed = strtoull(argv[3], NULL, 10), block = atoi(argv[4]);
    if (size < 1 || tile < 1 || block < 1) fail("size, tile and block are at least 1");
    openblas_set_num_threads(1);
    Cblacs_get(-1, 0, &context);
    Cblacs_gridinit(&context, "Row", 1, ranks);
    descinit_(descriptor, &size, &size, &size, &block, &zero, &zero, &context, &size, &info);
    if (info != 0) fail("ScaLAPACK takes no such matrix");
    int columns = columns_of(rank);
    double *left = make(1, columns), *right = make(2, columns), *product = make(0, columns);
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    pdgemm_("N", "N", &size, &size, &size, &one, left, &first, &first, descriptor, right, &first, &first, descriptor,
            &none, product, &first, &first, descriptor);
    MPI_Barrier(MPI_COMM_WORLD);
    double seconds = MPI_Wtime() - began;
    double *all = gather(product, columns);
    if (rank == 0) {
        double operations = 2.0 * size * size * size;
        printf("{\"checksum\": \"%016" PRIx64 "\", \"time_s\": %.9f, \"a_second\": %.3f}\n", checksum(all), seconds,
               operations / seconds);
    }
    free(all), free(left), free(right), free(product);
    Cblacs_gridexit(context);
    MPI_Finalize();
    return 0;
}
