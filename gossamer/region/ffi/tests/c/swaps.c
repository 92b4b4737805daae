/* swaps: two threads swap their machines, each by its own calls, as many times as the argument says; over two machines,
 * with `--move asked`. */
#include "verdict.h"

#include "gossamer_region.h"

static long swaps = 100;
static pthread_barrier_t barrier;
static __thread long turns;
static long *turns_of[2], *sum_of[2];
static atomic_int machine_of[2];

static void meet(void) {
    int error = pthread_barrier_wait(&barrier);
    CHECK(error == 0 || error == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* Each reads what the other one has on its stack and in its storage, between two moves of both. */
static void *swap(void *number) {
    long own = (long)number, other = 1 - own, sum = own;
    turns_of[own] = &turns;
    sum_of[own] = &sum;
    for (long turn = 1; turn <= swaps; turn++) {
        int to = 1 - gsm_thread_machine();
        CHECK(gsm_thread_move(to) == 0 && gsm_thread_machine() == to);
        machine_of[own] = to;
        turns++;
        sum += turn;
        meet();
        CHECK(machine_of[0] + machine_of[1] == 1 && *turns_of[other] == turn);
        CHECK(*sum_of[other] == other + turn * (turn + 1) / 2);
        meet();
    }
    CHECK(turns == swaps && turns_of[own] == &turns);
    return NULL;
}

int main(int argc, char **argv) {
    swaps = argc > 1 ? atol(argv[1]) : swaps;
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    pthread_t threads[2];
    for (long at = 0; at < 2; at++) { /* one on each machine */
        CHECK(pthread_create(&threads[at], NULL, swap, (void *)at) == 0);
    }
    for (int at = 0; at < 2; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
    return verdict("swaps");
}
