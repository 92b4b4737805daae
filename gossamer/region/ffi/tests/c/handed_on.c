/* handed_on: threads of one machine allocate what threads of others free, large and small: with memory for a part of
 * it, it is reused. */
#include "verdict.h"

enum { PLACES = 4, BLOCK = 1 << 20, SMALL = 100, ROUNDS = 600, EACH = 100 };

static struct batch {
    unsigned char *large;
    unsigned char *small[EACH];
} ring[PLACES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int made, freed;

static void *consume(void *nothing) {
    for (int round = 0; round < ROUNDS; round++) {
        pthread_mutex_lock(&mutex);
        while (made == round) {
            pthread_cond_wait(&changed, &mutex);
        }
        pthread_mutex_unlock(&mutex);
        struct batch *batch = &ring[round % PLACES];
        CHECK(batch->large[BLOCK - 1] == (unsigned char)round);
        free(batch->large);
        for (int i = 0; i < EACH; i++) {
            CHECK(batch->small[i][SMALL - 1] == (unsigned char)(round + i));
            free(batch->small[i]);
        }
        pthread_mutex_lock(&mutex);
        freed = round + 1;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
    }
    return nothing;
}

int main(int argc, char **argv) {
    pthread_t consumer;
    read_threads(argc, argv);
    CHECK(pthread_create(&consumer, NULL, consume, NULL) == 0);
    for (int round = 0; round < ROUNDS && !failed; round++) {
        struct batch *batch = &ring[round % PLACES];
        pthread_mutex_lock(&mutex);
        while (round - freed == PLACES) {
            pthread_cond_wait(&changed, &mutex);
        }
        pthread_mutex_unlock(&mutex);
        batch->large = malloc(BLOCK);
        if (batch->large == NULL) {
            fprintf(stderr, "no memory in round %d, with %d MiB in use at most\n", round, PLACES);
            return 1;
        }
        batch->large[BLOCK - 1] = (unsigned char)round;
        for (int i = 0; i < EACH; i++) {
            batch->small[i] = malloc(SMALL);
            batch->small[i][SMALL - 1] = (unsigned char)(round + i);
        }
        pthread_mutex_lock(&mutex);
        made = round + 1;
        pthread_cond_signal(&changed);
        pthread_mutex_unlock(&mutex);
    }
    CHECK(pthread_join(consumer, NULL) == 0);
    return verdict("handed_on");
}
