/* spreads: threads that all begin on machine 0 compute; with `--move self` those of a crowded host go to idle cores.
 * The first argument is the number of machines on which threads have to be seen (1: the answer alone); with a second
 * one they compute until the standard input ends. With "tied" they are tied until each has been asked in vain. */
#include "verdict.h"

#include <locale.h>

#include "gossamer_region.h"

enum { THREADS = 4 };

/* Each thread's, on a page of its own. */
static struct {
    _Alignas(4096) atomic_int machines; /* a bit for each machine where it was */
    double sum;
} seen[THREADS];

static atomic_int is_over, is_tied;

__attribute__((noinline)) static double sum(long from, long turns) {
    double sum = 0;
    for (long at = from; at < from + turns; at++) {
        sum += 1.0 / (double)(at + 1);
    }
    return sum;
}

static void *computes(void *number) {
    long own = (long)number;
    locale_t locale = is_tied ? newlocale(LC_ALL_MASK, "C.UTF-8", NULL) : NULL;
    for (long round = 0; !is_over || round < 5; round++) {
        if (locale && !is_tied) {
            freelocale(locale);
            locale = NULL;
        }
        double found = sum(own, 1000000);
        CHECK(seen[own].sum == 0 || found == seen[own].sum);
        if (seen[own].sum == 0) {
            seen[own].sum = found;
        }
        int machine = 1 << gsm_thread_machine();
        if (!(seen[own].machines & machine)) {
            seen[own].machines |= machine;
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    int wanted = argc > 1 ? atoi(argv[1]) : 1, found = 0;
    pthread_t ids[THREADS];
    is_tied = argc > 2 && strcmp(argv[2], "tied") == 0;
    for (long own = 0; own < THREADS; own++) {
        CHECK(pthread_create(&ids[own], NULL, computes, (void *)own) == 0);
    }
    for (int own = 0; own < THREADS && is_tied; own++) {
        int error = EAGAIN; /* as others ask at the same time */
        for (int times = 0; times < 10 && error == EAGAIN; times++) {
            error = gsm_thread_move_other(ids[own], 1);
        }
        CHECK(error == EBUSY);
    }
    is_tied = 0;
    if (argc > 2) {
        while (getchar() != EOF) {
        }
    }
    for (int look = 0; look < 1000 && __builtin_popcount((unsigned)found) < wanted; look++) {
        for (int own = 0; own < THREADS; own++) {
            found |= seen[own].machines;
        }
        usleep(50000);
    }
    is_over = 1;
    double all = 0;
    for (int own = 0; own < THREADS; own++) {
        CHECK(pthread_join(ids[own], NULL) == 0);
        all += seen[own].sum;
    }
    CHECK(__builtin_popcount((unsigned)found) >= wanted);
    printf("%.17g\n", all);
    return verdict("spreads");
}
