/* openmp: a library's own threads, barriers, locks and tasks. */
#include "verdict.h"

#include <omp.h>
#include <sched.h>

enum { LENGTH = 1 << 16, ROUNDS = 10, FIBONACCI = 15 };

static double numbers[LENGTH];

static long fibonacci(int number) {
    if (number < 2) {
        return number;
    }
    long one, other;
#pragma omp task shared(one) if (number > 10)
    one = fibonacci(number - 1);
#pragma omp task shared(other) if (number > 10)
    other = fibonacci(number - 2);
#pragma omp taskwait
    return one + other;
}

static void loops(void) {
    for (int round = 0; round < ROUNDS; round++) {
        double sum = 0;
#pragma omp parallel for schedule(dynamic, 4096) reduction(+ : sum)
        for (int i = 0; i < LENGTH; i++) {
            numbers[i] += i;
            sum += numbers[i];
        }
        CHECK(sum == (double)(round + 1) * LENGTH * (LENGTH - 1) / 2);
    }
}

/* Adds one in steps between which others would come in. */
static void add(volatile int *count) {
    int before = *count;
    sched_yield();
    *count = before + 1;
}

static void sections(void) {
    long double wide = 0;
    int in_critical = 0, in_named = 0, in_atomic = 0, in_single = 0, in_lock = 0, team = 0;
    omp_lock_t lock;
    omp_init_lock(&lock);
#pragma omp parallel
    {
#pragma omp master
        team = omp_get_num_threads();
        for (int round = 0; round < ROUNDS; round++) {
#pragma omp critical
            add(&in_critical);
#pragma omp critical(named)
            add(&in_named);
#pragma omp atomic
            in_atomic++;
#pragma omp atomic
            wide += 1;
#pragma omp single
            in_single++;
            omp_set_lock(&lock);
            add(&in_lock);
            omp_unset_lock(&lock);
#pragma omp barrier
        }
    }
    omp_destroy_lock(&lock);
    CHECK(team == threads);
    CHECK(in_critical == threads * ROUNDS && in_named == threads * ROUNDS && in_atomic == threads * ROUNDS);
    CHECK(wide == threads * ROUNDS);
    CHECK(in_single == ROUNDS && in_lock == threads * ROUNDS);
}

static void nested(void) {
    int inner = 0, before = omp_in_parallel();
    CHECK(!before);
    omp_set_max_active_levels(2);
#pragma omp parallel num_threads(2)
#pragma omp parallel num_threads(3)
#pragma omp atomic
    inner++;
    CHECK(inner == 6);
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    CHECK(omp_get_num_procs() == processors || processors > 64);
    CHECK(omp_get_max_threads() == processors || getenv("OMP_NUM_THREADS") != NULL);
    omp_set_num_threads(threads);
    loops();
    sections();
    nested();
    long found = 0;
#pragma omp parallel
#pragma omp single
    found = fibonacci(FIBONACCI);
    CHECK(found == 610);
    return verdict("openmp");
}
