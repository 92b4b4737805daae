/* ordered: threads that take turns, by a lock or by a join, read lines of standard input and write to standard output:
 * in order, without fflush. */
#include "verdict.h"

static int turn;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

enum { ROUNDS = 50 };

static void *work(void *number) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&mutex);
        while (turn % threads != (int)(intptr_t)number) {
            pthread_cond_wait(&changed, &mutex);
        }
        int value = -1;
        CHECK(scanf("%d", &value) == 1);
        printf("turn %d: %d\n", turn, value);
        if (round % 10 == 0) {
            fprintf(stderr, "turn %d\n", turn);
        }
        turn++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void *last(void *unused) {
    (void)unused;
    CHECK(getchar() == '\n' && getchar() == EOF);
    printf("last ");
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    printf("begins ");
    run_threads(threads, work);
    run_threads(1, last);
    return verdict("ordered");
}
