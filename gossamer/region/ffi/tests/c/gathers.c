/* gathers: threads of two machines write one page; with `--move self` the one that is alone goes to the others, and
 * nobody waits for the page any more. The first argument is 2 where they have to meet (1: the answer alone); with a
 * second one they go on until the standard input ends. If that is "pairs", two pages are written by two threads each,
 * and two threads change places. */
#include "verdict.h"

#include <sys/resource.h>

#include "gossamer_region.h"

enum { THREADS = 3, PAIRED = 4, ROUNDS = 6000, INTERVALS = 5 };

/* The page that all write; of pairs, the second ones write the second page. */
static struct {
    _Alignas(4096) atomic_long rounds;
} shared[PAIRED / 2];

static int workers = THREADS, pages = 1;

/* Each thread's, on a page of its own. */
static struct {
    _Alignas(4096) atomic_int machine;
    long intervals;
    atomic_long apart, together; /* faults in an interval, and 1: the most while apart, the fewest while together */
    double sum;
} seen[PAIRED];

static atomic_int is_over;

static double sum(long from, long turns) {
    double sum = 0;
    for (long at = from; at < from + turns; at++) {
        sum += 1.0 / (double)(at + 1);
    }
    return sum;
}

/* Faults of the calling thread on this machine. */
static long faults(void) {
    struct rusage used;
    CHECK(getrusage(RUSAGE_THREAD, &used) == 0);
    return used.ru_minflt + used.ru_majflt;
}

/* 1 if all threads that write a thread's page are on its machine, 0 if others are not, -1 before all have begun. */
static int are_together(long own) {
    int are = 1;
    for (long other = own % pages; other < workers; other += pages) {
        int machine = seen[other].machine - 1;
        if (machine < 0) {
            return -1;
        }
        are = are && machine == gsm_thread_machine();
    }
    return are;
}

static void interval(long own) {
    int machine = gsm_thread_machine(), before = are_together(own);
    long had = faults();
    for (int round = 0; round < ROUNDS; round++) {
        double found = sum(own, 3000);
        CHECK(seen[own].sum == 0 || found == seen[own].sum);
        if (seen[own].sum == 0) {
            seen[own].sum = found;
        }
        shared[own % pages].rounds++;
    }
    long has = faults() - had + 1;
    if (machine != gsm_thread_machine()) {
        return; /* they are those of two machines */
    }
    if (before == 0 && has > seen[own].apart) {
        seen[own].apart = has;
    }
    if (before == 1 && are_together(own) == 1 && (seen[own].together == 0 || has < seen[own].together)) {
        seen[own].together = has;
    }
}

static void *works(void *number) {
    long own = (long)number;
    while (!is_over || seen[own].intervals < INTERVALS) {
        int machine = 1 + gsm_thread_machine();
        if (seen[own].machine != machine) {
            seen[own].machine = machine;
        }
        interval(own);
        seen[own].intervals++;
    }
    return NULL;
}

static int have_met(void) {
    int have = 1;
    for (int own = 0; own < workers; own++) {
        have = have && seen[own].together != 0;
    }
    return have;
}

int main(int argc, char **argv) {
    int have_to_meet = argc > 1 && atoi(argv[1]) > 1;
    if (argc > 2 && strcmp(argv[2], "pairs") == 0) {
        workers = PAIRED;
        pages = PAIRED / 2;
    }
    pthread_t ids[PAIRED];
    for (long own = 0; own < workers; own++) {
        CHECK(pthread_create(&ids[own], NULL, works, (void *)own) == 0);
    }
    while (argc > 2 && getchar() != EOF) {
    }
    for (int look = 0; look < 1000 && have_to_meet && !have_met(); look++) {
        usleep(50000);
    }
    is_over = 1;
    long rounds = 0;
    double all = 0;
    for (int own = 0; own < workers; own++) {
        CHECK(pthread_join(ids[own], NULL) == 0);
        rounds += seen[own].intervals * ROUNDS;
        all += own < THREADS ? seen[own].sum : 0; /* the answer is the same */
    }
    CHECK(shared[0].rounds + shared[1].rounds == rounds);
    /* The first thread stays, unless the third begins late. */
    if (have_to_meet) {
        fprintf(stderr, "%ld faults apart, %ld together\n", seen[0].apart - 1, seen[0].together - 1);
        CHECK(have_met() && seen[0].apart > 4 * seen[0].together);
    }
    printf("%.17g\n", all);
    return verdict("gathers");
}
