/* openmp_rounds: OpenMP: parallel loops with a dynamic schedule and a reduction, and a critical section. */
#include <omp.h>
#include <stdio.h>

static double a[1 << 20];
int main(void) {
    double s = 0;
    int n = 0;
    omp_set_num_threads(4); /* not as many as all machines have processors */
    for (int round = 0; round < 10; round++) {
#pragma omp parallel for schedule(dynamic, 4096) reduction(+ : s)
        for (int i = 0; i < 1 << 20; i++) {
            a[i] += i;
            s += a[i];
        }
#pragma omp parallel
#pragma omp critical
        n++;
    }
    printf("sum %.0f, n %d\n", s, n);
    return 0;
}
