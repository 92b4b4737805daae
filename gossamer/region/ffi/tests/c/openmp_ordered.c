/* openmp_ordered: what OpenMP's threads do in the order of a loop, which threads of several machines refuse. */
#include "verdict.h"

int main(int argc, char **argv) {
    read_threads(argc, argv);
    long sum = 0;
#pragma omp parallel for ordered schedule(dynamic, 1) num_threads(threads)
    for (int i = 0; i < 100; i++) {
#pragma omp ordered
        sum = 2 * sum % 1000003 + i;
    }
    CHECK(sum == 253008);
    return verdict("openmp_ordered");
}
