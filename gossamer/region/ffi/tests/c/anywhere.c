/* anywhere: threads that call nothing go to other machines amid their code, as another thread asks; over machines, with
 * `--move asked`. Arguments: machines, and moves of the first thread; with a third one it measures moves, too. */
#include "verdict.h"

#include "gossamer_region.h"

#include <fenv.h>
#include <poll.h>
#include <signal.h>
#include <ucontext.h>
#include <x86intrin.h>

static int machines = 2, moves = 200;
static atomic_int is_over, begun, rounds;
static __thread long own = 41;

typedef double vector __attribute__((vector_size(64)));

/* A sum in wide registers. */
__attribute__((noinline)) static double sum(long from) {
    vector all = {0}, step = {1, 2, 3, 4, 5, 6, 7, 8};
    for (long at = from; at < from + 200000; at++) {
        all += step / (double)(at + 1);
    }
    double result = 0;
    for (int at = 0; at < 8; at++) {
        result += all[at];
    }
    return result;
}

static double expected;

static void *sums(void *unused) {
    while (!is_over) {
        double found = sum(7);
        CHECK(memcmp(&found, &expected, sizeof found) == 0);
        own++;
        rounds++;
    }
    CHECK(own > 41);
    return unused;
}

static int compare(const void *one, const void *other) {
    unsigned a = *(const unsigned *)one, b = *(const unsigned *)other;
    return a < b ? -1 : a > b;
}

/* The C library's function is on the stack, below the program's. */
static void *sorts(void *unused) {
    static unsigned numbers[4000];
    while (!is_over) {
        for (unsigned at = 0; at < 4000; at++) {
            numbers[at] = at * 2654435761u;
        }
        qsort(numbers, 4000, sizeof *numbers, compare);
        for (unsigned at = 1; at < 4000; at++) {
            CHECK(numbers[at - 1] < numbers[at]);
        }
        rounds++;
    }
    return unused;
}

/* The state of the old arithmetic: rounding, and values on its stack. */
static void *rounds_up(void *unused) {
    fesetround(FE_UPWARD);
    volatile long double one = 1, three = 3;
    long double first = one / three;
    feclearexcept(FE_ALL_EXCEPT);
    while (!is_over) {
        for (int at = 0; at < 50000; at++) {
            CHECK(one / three == first);
        }
        CHECK(fegetround() == FE_UPWARD && fetestexcept(FE_INEXACT) && !fetestexcept(FE_DIVBYZERO));
        rounds++;
    }
    return unused;
}

static ucontext_t inside, outside;
static long turns;

static void coroutine(void) {
    for (;;) {
        double found = sum(7);
        CHECK(memcmp(&found, &expected, sizeof found) == 0);
        turns++;
        swapcontext(&inside, &outside);
    }
}

/* A stack that the program has made. */
static void *switches(void *unused) {
    void *stack = malloc(256 << 10);
    CHECK(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = stack;
    inside.uc_stack.ss_size = 256 << 10;
    makecontext(&inside, coroutine, 0);
    long so_far = 0;
    while (!is_over) {
        swapcontext(&outside, &inside);
        CHECK(turns == ++so_far);
        rounds++;
    }
    free(stack);
    return unused;
}

/* Results that the C library has in variables of its own, and errno. */
static void *keeps(void *unused) {
    sigset_t all;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, NULL) == 0); /* it moves all the same */
    for (long turn = 0; !is_over; turn++) {
        time_t at = (turn % 100) * 31557600 + 86400;
        int *error = &errno;
        char words[] = "one two three";
        struct tm *time = gmtime(&at);
        char *word = strtok(words, " ");
        errno = 77;
        CHECK(poll(NULL, 0, 1) == 0); /* no call is interrupted */
        double found = sum(7);
        CHECK(found == expected && errno == 77 && error == &errno);
        CHECK(time->tm_year == (int)(70 + turn % 100) && strcmp(word, "one") == 0);
        CHECK(strcmp(strtok(NULL, " "), "two") == 0 && strcmp(asctime(time), ctime(&at)) == 0);
        char *block = malloc(100 + (size_t)turn % 5000);
        memset(block, 7, 100);
        free(block);
        rounds++;
    }
    return unused;
}

enum { CHARACTERS = 4000 }; /* fewer than a stream's buffer holds */

__attribute__((noinline)) static void spin(int turns) {
    for (volatile int at = 0; at < turns; at++) {
    }
}

/* Puts characters into a locked stream, and gets them, by code of the header. */
static void *prints(void *unused) {
    FILE *all = tmpfile();
    CHECK(all != NULL);
    for (int turn = 0; !is_over; turn++) {
        rewind(all);
        flockfile(all);
        for (int at = 0; at < CHARACTERS; at++) {
            spin(500);
            putc_unlocked((at + turn) % 251, all);
        }
        funlockfile(all);
        rewind(all);
        flockfile(all);
        for (int at = 0; at < CHARACTERS; at++) {
            spin(500);
            CHECK(getc_unlocked(all) == (at + turn) % 251);
        }
        funlockfile(all);
        rounds++;
    }
    CHECK(fclose(all) == 0);
    return unused;
}

static void computes_long(int signal) {
    (void)signal;
    begun = 1;
    while (!is_over) {
        CHECK(sum(7) == expected);
    }
}

/* While a handler runs its thread stays. */
static void *handles(void *unused) {
    CHECK(raise(SIGUSR1) == 0);
    while (is_over < 2) {
        CHECK(sum(7) == expected);
    }
    return unused;
}

/* Where the host has much else to do, a thread may not come to compute within two seconds. */
static int go(pthread_t it, int to) {
    int error = ETIMEDOUT;
    for (int time = 0; time < 20 && error == ETIMEDOUT; time++) {
        error = gsm_thread_move_other(it, to);
    }
    if (error) {
        fprintf(stderr, "to machine %d: %s\n", to, strerror(error));
    }
    return error;
}

/* A thread that computes goes back and forth. */
static void goes(void *(*body)(void *), int times) {
    pthread_t it;
    is_over = 0;
    CHECK(pthread_create(&it, NULL, body, NULL) == 0);
    for (int turn = 0; turn < times; turn++) {
        CHECK(go(it, turn % machines) == 0);
    }
    int so_far = rounds;
    while (rounds < so_far + 3) {
        usleep(100);
    }
    is_over = 1;
    CHECK(pthread_join(it, NULL) == 0);
}

static void *short_one(void *unused) {
    CHECK(sum(7) == expected);
    return unused;
}

/* Two swap their machines, while others begin and end: their hosts run one thread after another. */
static void swap(int times) {
    pthread_t one, two, other;
    is_over = 0;
    CHECK(pthread_create(&one, NULL, sums, NULL) == 0 && pthread_create(&two, NULL, sums, NULL) == 0);
    for (int turn = 0; turn < times; turn++) {
        CHECK(go(one, turn % machines) == 0 && go(two, (turn + 1) % machines) == 0);
        if (turn % 4 == 0) {
            CHECK(pthread_create(&other, NULL, short_one, NULL) == 0 && pthread_join(other, NULL) == 0);
        }
    }
    is_over = 1;
    CHECK(pthread_join(one, NULL) == 0 && pthread_join(two, NULL) == 0);
}

static void stays(void) {
    pthread_t it;
    is_over = begun = 0;
    CHECK(signal(SIGUSR1, computes_long) != SIG_ERR && pthread_create(&it, NULL, handles, NULL) == 0);
    while (!begun) {
        usleep(100);
    }
    int away = gsm_thread_move_other(it, 0) == 0 ? 1 : 0;
    CHECK(gsm_thread_move_other(it, away) == EBUSY);
    is_over = 1;
    CHECK(go(it, away) == 0);
    is_over = 2;
    CHECK(pthread_join(it, NULL) == 0);
}

static atomic_long longest; /* time between two looks at the counter */

static void *looks(void *unused) {
    for (long last = (long)__rdtsc(); !is_over;) {
        long now = (long)__rdtsc();
        if (now - last > longest) {
            longest = now - last;
        }
        last = now;
    }
    return unused;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int is_less(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return a < b ? -1 : a > b;
}

static void tell(const char *what, double *times, int count) {
    qsort(times, (size_t)count, sizeof *times, is_less);
    printf("%s: median %.0f us\n", what, times[count / 2] * 1e6);
}

enum { TIMED = 301 };

static void *moves_itself(void *unused) {
    static double times[TIMED];
    for (int turn = 0; turn < TIMED; turn++) {
        double begun = seconds();
        CHECK(gsm_thread_move((turn + 1) % machines) == 0);
        times[turn] = seconds() - begun;
    }
    tell("a move at a call", times, TIMED);
    return unused;
}

/* Prints how long moves take. */
static void measure(void) {
    static double gaps[TIMED], asks[TIMED];
    pthread_t it;
    CHECK(pthread_create(&it, NULL, moves_itself, NULL) == 0 && pthread_join(it, NULL) == 0);
    long first = (long)__rdtsc();
    double begun = seconds();
    is_over = 0;
    CHECK(pthread_create(&it, NULL, looks, NULL) == 0);
    for (int turn = 0; turn < TIMED; turn++) {
        CHECK(go(it, turn % machines) == 0);
        usleep(200);
        longest = 0;
        double asked = seconds();
        CHECK(go(it, (turn + 1) % machines) == 0);
        asks[turn] = seconds() - asked;
        usleep(1000);
        gaps[turn] = (double)longest;
    }
    is_over = 1;
    CHECK(pthread_join(it, NULL) == 0);
    double ticks = (double)((long)__rdtsc() - first) / (seconds() - begun);
    for (int turn = 0; turn < TIMED; turn++) {
        gaps[turn] /= ticks;
    }
    tell("a move by a signal, until the thread goes on", gaps, TIMED);
    tell("a move by a signal, from the question to its answer", asks, TIMED);
}

int main(int argc, char **argv) {
    machines = argc > 1 ? atoi(argv[1]) : machines;
    moves = argc > 2 ? atoi(argv[2]) : moves;
    expected = sum(7);
    struct sigaction action = {.sa_handler = SIG_IGN};
    CHECK(sigaction(SIGRTMAX, &action, NULL) == 0 && sigaction(64, &action, NULL) == -1 && errno == EINVAL);
    goes(sums, moves);
    void *(*bodies[])(void *) = {sorts, rounds_up, switches, keeps, prints};
    for (size_t at = 0; at < sizeof bodies / sizeof *bodies; at++) {
        goes(bodies[at], moves / 10);
    }
    swap(moves / 4);
    stays();
    if (argc > 3) {
        measure();
    }
    return verdict("anywhere");
}
