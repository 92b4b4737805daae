/* openmp_copyin: variables of their own that the threads of a team take over from the one that starts it, more than
 * fit beside our own functions' stacks. */
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <omp.h>

enum { COUNT = 1 << 17, ROUNDS = 4, THREADS = 4, STACK = 256 << 10 };

static double many[COUNT];
static int few[3];
static int one;
#pragma omp threadprivate(many, few, one)

static double sum(void) {
    double sum = one + few[0] + few[1] + few[2];
    for (int i = 0; i < COUNT; i++) {
        sum += many[i];
    }
    return sum;
}

static void run(void) {
    for (int round = 1; round <= ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++) {
            many[i] = round * i;
        }
        few[0] = few[1] = few[2] = one = round;
        double all = 0, loop = 0;
        int *volatile opaque = few, *mine = opaque;
#pragma omp parallel num_threads(THREADS) copyin(many, few, one) reduction(+ : all)
        {
            all += sum();
            many[omp_get_thread_num()] = few[1] = one = -1;
        }
#pragma omp parallel for schedule(dynamic, 1) num_threads(THREADS) copyin(few) reduction(+ : loop)
        for (int i = 0; i < 100; i++) {
            loop += few[2] + (i % 7);
        }
        /* By a pointer, in teams of one thread and of several. */
#pragma omp parallel if (round < 0)
        mine[0] += 10;
#pragma omp parallel num_threads(THREADS)
#pragma omp single
        mine[2] += 20;
        printf("%d: %.0f, %.0f, %d %d %d %d, %d\n", round, all, loop, few[0], few[1], few[2], one, mine == few);
    }
}

int main(void) {
    run();
    /* The same on a stack of the program's own. */
    ucontext_t own, other;
    void *stack = malloc(STACK);
    if (stack == NULL || getcontext(&other) != 0) return 1;
    other.uc_stack.ss_sp = stack;
    other.uc_stack.ss_size = STACK;
    other.uc_link = &own;
    makecontext(&other, run, 0);
    if (swapcontext(&own, &other) != 0) return 1;
    free(stack);
}
