/* openmp_plugin: a library with teams of OpenMP, which its program does not have. */
enum { COUNT = 1000, ROUNDS = 5 };

static int few[4];
#pragma omp threadprivate(few)

long add_up(void);

/* Returns COUNT * (COUNT - 1) / 2 + 4 + 4 * (round + 1), summed up over the rounds from 0 on. */
long add_up(void) {
    long sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        few[3] = round + 1;
#pragma omp parallel for schedule(dynamic, 10) num_threads(4) reduction(+ : sum)
        for (int i = 0; i < COUNT; i++) {
            sum += i;
        }
#pragma omp parallel num_threads(4) copyin(few)
        {
#pragma omp critical
            sum += 1 + few[3];
        }
    }
    return sum;
}
