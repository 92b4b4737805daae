/* moves: threads go on on other machines by their own calls, with all that is theirs; over machines, with
 * `--move asked`. Moves are as many as the argument says. */
#include "verdict.h"

#include "gossamer_region.h"

#include <ctype.h>
#include <fenv.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>

static int moves = 1000;
static int machines;
static __thread long counter = 41;
static __thread char filled[4096] = "filled";
static pthread_key_t key;
static atomic_int destroyed, cleaned, handled;
static atomic_int destroyed_on = -1;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checked = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_barrier_t barrier;

static int other(void) { return (gsm_thread_machine() + 1) % machines; }

/* Goes to another machine, and checks that it is there. */
static void move(void) {
    int to = other();
    CHECK(gsm_thread_move(to) == 0 && gsm_thread_machine() == to);
}

static double term(long at) { return 1.0 / (double)(at + 1) + (double)(at % 7); }

static double plain_sum(void) {
    double sum = 0;
    for (long at = 0; at < moves; at++) {
        sum += term(at);
    }
    return sum;
}

/* A sum, with a move after each term. */
static void *sums(void *unused) {
    (void)unused;
    double sum = 0;
    for (long at = 0; at < moves; at++) {
        sum += term(at);
        counter++;
        move();
    }
    CHECK(sum == plain_sum() && counter == 41 + moves && strcmp(filled, "filled") == 0);
    return NULL;
}

/* A frame with a canary: the compiler has it checked as the function returns. */
__attribute__((noinline)) static int with_canary(void) {
    volatile char text[40];
    memset((char *)text, 7, sizeof text);
    move();
    return text[39];
}

static void on_signal(int signal) {
    (void)signal;
    handled++;
}

static void gone(void *value) {
    CHECK((long)value == 5);
    destroyed++;
    destroyed_on = gsm_thread_machine();
}

static void clean(void *number) {
    cleaned += (int)(long)number;
}

/* What a thread has goes along. */
static void *carries(void *unused) {
    (void)unused;
    int *error = &errno;
    long *own = &counter;
    pthread_t self = pthread_self();
    volatile double one = 1;
    char name[16] = "", before[16] = "";

    errno = 77;
    CHECK(pthread_setname_np(self, "traveller") == 0 && pthread_getname_np(self, before, sizeof before) == 0);
    CHECK(with_canary() == 7);
    CHECK(error == &errno && errno == 77 && own == &counter && *own == 41 && pthread_equal(self, pthread_self()));
    CHECK(pthread_getname_np(pthread_self(), name, sizeof name) == 0 && strcmp(name, before) == 0);

    fesetround(FE_UPWARD);
    double up = one / 3;
    move();
    CHECK(fegetround() == FE_UPWARD && one / 3 == up);
    fesetround(FE_TONEAREST);
    CHECK(one / 3 < up);

    jmp_buf back;
    volatile int jumps = 0;
    if (!setjmp(back)) {
        move();
        jumps = jumps + 1;
        longjmp(back, 1);
    }
    CHECK(jumps == 1);

    /* Locks know their holder. */
    CHECK(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_lock(&checked) == 0);
    move();
    CHECK(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_unlock(&recursive) == 0);
    CHECK(pthread_mutex_lock(&checked) == EDEADLK && pthread_mutex_unlock(&checked) == 0);
    CHECK(pthread_mutex_unlock(&recursive) == 0 && pthread_mutex_unlock(&checked) == EPERM);

    /* Memory, stdio and the C library's tables. */
    char *block = malloc(100);
    strcpy(block, "block");
    FILE *file = tmpfile();
    CHECK(file && fprintf(file, "%s on machine %d\n", block, 0) > 0);
    char *grows = malloc(50000); /* on pages of its own */
    memset(grows, 7, 50000);
    move();
    CHECK(strcmp(block, "block") == 0);
    free(block);
    grows = realloc(grows, 3000000);
    CHECK(grows && grows[0] == 7 && grows[49999] == 7);
    move();
    free(grows);
    for (int at = 0; at < 200; at++) {
        free(malloc((size_t)at * 10));
    }
    CHECK(fprintf(file, "and on another\n") > 0 && fflush(file) == 0);
    rewind(file);
    char line[80] = "";
    CHECK(fgets(line, sizeof line, file) && strcmp(line, "block on machine 0\n") == 0);
    move();
    CHECK(fgets(line, sizeof line, file) && strcmp(line, "and on another\n") == 0 && fclose(file) == 0);
    CHECK(isalpha('x') && toupper('x') == 'X' && strtod("2.5", NULL) == 2.5 && sched_getcpu() >= 0);

    /* Signals: those that it blocks, and its own. */
    sigset_t set, found;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
    move();
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &found) == 0);
    CHECK(sigismember(&found, SIGUSR2) && !sigismember(&found, SIGUSR1));
    int so_far = handled;
    CHECK(raise(SIGUSR1) == 0 && handled == so_far + 1);
    CHECK(pthread_kill(pthread_self(), SIGUSR1) == 0 && handled == so_far + 2);

    /* Its niceness, and its stack for signals. */
    int nicer = getpriority(PRIO_PROCESS, 0) + 3;
    CHECK(setpriority(PRIO_PROCESS, 0, nicer) == 0);
    move();
    CHECK(getpriority(PRIO_PROCESS, 0) == nicer);
    stack_t signals = {.ss_sp = malloc(SIGSTKSZ), .ss_size = SIGSTKSZ}, now;
    CHECK(sigaltstack(&signals, NULL) == 0);
    move();
    CHECK(sigaltstack(NULL, &now) == 0 && now.ss_sp == signals.ss_sp && now.ss_flags == 0);
    signals.ss_flags = SS_DISABLE;
    CHECK(sigaltstack(&signals, NULL) == 0);
    free(signals.ss_sp);

    /* It stays while it is held. */
    int machine = gsm_thread_machine();
    CHECK(gsm_thread_hold() == 0 && gsm_thread_hold() == 0 && gsm_thread_free() == 0);
    CHECK(gsm_thread_move(other()) == EBUSY && gsm_thread_machine() == machine && gsm_thread_move(machine) == 0);
    CHECK(gsm_thread_free() == 0 && gsm_thread_free() == EINVAL);
    CHECK(gsm_thread_move(-1) == EINVAL && gsm_thread_move(machines) == EINVAL);

    /* Others wait for it. */
    move();
    pthread_barrier_wait(&barrier);
    move();
    pthread_barrier_wait(&barrier);
    return (void *)9;
}

/* Values of keys and pushed handlers come along; it ends on another machine than it begins. */
static void *ends(void *unused) {
    (void)unused;
    CHECK(pthread_setspecific(key, (void *)5) == 0);
    int first = gsm_thread_machine();
    pthread_cleanup_push(clean, (void *)3);
    move();
    CHECK(pthread_getspecific(key) == (void *)5 && gsm_thread_machine() != first);
    pthread_exit((void *)8);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Its name is asked for while it moves. */
static void *roams(void *unused) {
    CHECK(pthread_setname_np(pthread_self(), "roams") == 0);
    pthread_barrier_wait(&barrier);
    for (int at = 0; at < moves / 4; at++) {
        move();
    }
    return unused;
}

static void *swaps(void *unused) {
    (void)unused;
    for (int at = 0; at < moves / 4; at++) {
        move();
        counter++;
    }
    CHECK(counter == 41 + moves / 4);
    return NULL;
}

static atomic_int last_machine;

static void *detached(void *unused) {
    move();
    last_machine = gsm_thread_machine() + 1;
    return unused;
}

/* Fills much of its stack on both machines. */
__attribute__((noinline)) static long deep(int depth) {
    volatile char bytes[1000];
    bytes[depth % 1000] = (char)depth;
    if (depth % 64 == 63) {
        move();
    }
    long below = depth ? deep(depth - 1) : 0;
    return below + bytes[depth % 1000];
}

static void *digs(void *unused) {
    (void)unused;
    long expected = 0;
    for (int depth = 0; depth <= 500; depth++) {
        expected += (char)depth;
    }
    CHECK(deep(500) == expected);
    return NULL;
}

int main(int argc, char **argv) {
    machines = argc > 1 ? atoi(argv[1]) : 2;
    moves = argc > 2 ? atoi(argv[2]) : moves;
    pthread_t one, two;
    void *result = NULL;
    CHECK(gsm_thread_machine() == 0 && gsm_thread_move(0) == 0);
    CHECK(pthread_key_create(&key, gone) == 0 && pthread_barrier_init(&barrier, NULL, 2) == 0);
    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR && signal(SIGUSR1, on_signal) == on_signal);
    struct sigaction action;
    CHECK(sigaction(SIGUSR1, NULL, &action) == 0 && action.sa_handler == on_signal);

    for (int round = 0; round < machines; round++) { /* threads begin on all machines */
        counter = 1000;
        CHECK(pthread_create(&one, NULL, sums, NULL) == 0 && pthread_join(one, NULL) == 0);
        CHECK(pthread_create(&one, NULL, carries, NULL) == 0);
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        CHECK(pthread_join(one, &result) == 0 && result == (void *)9);
        CHECK(pthread_create(&one, NULL, digs, NULL) == 0 && pthread_join(one, NULL) == 0);
        destroyed = cleaned = 0;
        CHECK(pthread_create(&one, NULL, ends, NULL) == 0 && pthread_join(one, &result) == 0 && result == (void *)8);
        CHECK(destroyed == 1 && cleaned == 3);
        CHECK(pthread_create(&one, NULL, swaps, NULL) == 0 && pthread_create(&two, NULL, swaps, NULL) == 0);
        CHECK(pthread_join(one, NULL) == 0 && pthread_join(two, NULL) == 0);
        CHECK(pthread_create(&one, NULL, roams, NULL) == 0);
        pthread_barrier_wait(&barrier);
        for (int at = 0; at < 20; at++) {
            char name[16] = "roams";
            int error = pthread_getname_np(one, name, sizeof name);
            CHECK((error == 0 || error == ESRCH) && strcmp(name, "roams") == 0); /* it may have ended */
        }
        CHECK(pthread_join(one, NULL) == 0);
        last_machine = 0;
        CHECK(pthread_create(&one, NULL, detached, NULL) == 0 && pthread_detach(one) == 0);
        while (!last_machine) {
            sched_yield();
        }
        CHECK(pthread_create(&one, NULL, detached, NULL) == 0 && pthread_join(one, NULL) == 0); /* the next in turn */
    }
    return verdict("moves");
}
