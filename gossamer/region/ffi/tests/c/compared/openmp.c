/* openmp: OpenMP: one parallel loop of four threads with a reduction. */
#include <stdio.h>
#include <omp.h>

int main(void) {
    long sum = 0;
#pragma omp parallel for reduction(+ : sum) num_threads(4)
    for (long i = 0; i < 1000000; i++)
        sum += i;
    printf("sum %ld\n", sum);
    return 0;
}
