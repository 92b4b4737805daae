/* atomics: counters, a ticket lock, and three litmus tests (store buffering, message passing, independent reads of
 * independent writes) that look for outcomes which C11 forbids. Each variable of a litmus test has a page of its
 * own. LITMUS_ROUNDS in the environment says how often each litmus test is tried, if not 1000 times. */
#include "verdict.h"
#include <sched.h>

enum { ADDS = 2000, LITMUS_THREADS = 4, SPINS = 5000 };

static struct {
    atomic_uint next, serving;
} ticket;
static long guarded;
static atomic_long added, swapped;
static atomic_uchar bits[64];

static void *count(void *number) {
    int thread = (int)(intptr_t)number;
    for (int i = 0; i < ADDS; i++) {
        atomic_fetch_add(&added, 1);
        long seen = atomic_load(&swapped);
        while (!atomic_compare_exchange_weak(&swapped, &seen, seen + 2)) {
        }
        unsigned mine = atomic_fetch_add_explicit(&ticket.next, 1, memory_order_relaxed);
        while (atomic_load_explicit(&ticket.serving, memory_order_acquire) != mine) {
            sched_yield();
        }
        guarded++;
        atomic_store_explicit(&ticket.serving, mine + 1, memory_order_release);
        atomic_fetch_xor(&bits[i % 64], (unsigned char)(1u << thread % 8));
    }
    return NULL;
}

static struct variable {
    _Alignas(4096) atomic_int value;
} x, y;
static atomic_int arrived;
static int seen[LITMUS_THREADS][2];
static int forbidden[3];
static int rounds = 1000;

/* The current test, and the number of threads that take part. */
static int test, parties;
static const int PARTIES[3] = {2, 2, LITMUS_THREADS};

/* Waits until all threads have come for the `times`-th time. It spins, so that all go on at nearly the same moment:
 * after a barrier that wakes them one by one, even stores without any order look ordered. */
static void meet(int times) {
    atomic_fetch_add(&arrived, 1);
    for (int spins = 0; atomic_load(&arrived) < times * parties; spins++) {
        if (spins % SPINS == SPINS - 1) {
            sched_yield();
        }
    }
}

/* A thread's part of the test; the values it reads go to `seen`. */
static void act(int thread) {
    int *mine = seen[thread];
    mine[0] = mine[1] = -1;
    if (test == 0) { /* SB: both see the other's old value */
        atomic_store(thread ? &y.value : &x.value, 1);
        mine[0] = atomic_load(thread ? &x.value : &y.value);
    } else if (test == 1 && thread == 0) { /* MP: the flag is seen, and the data it announces is not */
        atomic_store_explicit(&x.value, 1, memory_order_relaxed);
        atomic_store_explicit(&y.value, 1, memory_order_release);
    } else if (test == 1) {
        mine[0] = atomic_load_explicit(&y.value, memory_order_acquire);
        mine[1] = atomic_load_explicit(&x.value, memory_order_relaxed);
    } else if (test == 2 && thread < 2) { /* IRIW: two readers see two writes in different orders */
        atomic_store(thread ? &y.value : &x.value, 1);
    } else if (test == 2) {
        mine[0] = atomic_load(thread == 2 ? &x.value : &y.value);
        mine[1] = atomic_load(thread == 2 ? &y.value : &x.value);
    }
}

static int is_forbidden(void) {
    switch (test) {
    case 0: return seen[0][0] == 0 && seen[1][0] == 0;
    case 1: return seen[1][0] == 1 && seen[1][1] == 0;
    default: return seen[2][0] == 1 && seen[2][1] == 0 && seen[3][0] == 1 && seen[3][1] == 0;
    }
}

static void *litmus(void *number) {
    int thread = (int)(intptr_t)number;
    for (int round = 0; round < rounds; round++) {
        meet(2 * round + 1);
        act(thread);
        meet(2 * round + 2);
        if (thread == 0) {
            forbidden[test] += is_forbidden();
            atomic_store(&x.value, 0);
            atomic_store(&y.value, 0);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    rounds = getenv("LITMUS_ROUNDS") ? atoi(getenv("LITMUS_ROUNDS")) : rounds;
    CHECK(rounds > 0);
    run_threads(threads, count);
    CHECK(added == (long)threads * ADDS && swapped == 2 * added && guarded == added);
    CHECK(ticket.next == ticket.serving && ticket.next == (unsigned)added);
    for (int bit = 0; bit < 64; bit++) {
        unsigned expected = 0;
        for (int thread = 0; thread < threads; thread++) {
            int flips = ADDS / 64 + (bit < ADDS % 64);
            expected ^= flips % 2 ? 1u << thread % 8 : 0;
        }
        CHECK(bits[bit] == expected);
    }
    for (test = 0; test < 3; test++) {
        arrived = 0;
        parties = PARTIES[test];
        run_threads(parties, litmus);
    }
    CHECK(forbidden[0] == 0); /* SB */
    CHECK(forbidden[1] == 0); /* MP */
    CHECK(forbidden[2] == 0); /* IRIW */
    return verdict("atomics");
}
