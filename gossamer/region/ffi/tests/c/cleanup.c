/* cleanup: pthread_exit runs the handlers of pthread_cleanup_push, the last first, also out of functions from which it
 * was called; a popped handler runs when it is popped, or never. */
#include "verdict.h"

static atomic_int order[MOST_THREADS];

static void note(void *place) {
    atomic_int *at = *(atomic_int **)place;
    int digit = ((int *)place)[2];
    atomic_store(at, atomic_load(at) * 10 + digit);
}

struct note {
    atomic_int *at;
    int digit;
};

static void leave(struct note *notes, int leaves) {
    pthread_cleanup_push(note, &notes[2]);
    pthread_cleanup_push(note, &notes[3]);
    pthread_cleanup_pop(0);
    if (leaves) {
        pthread_exit(notes[0].at);
    }
    pthread_cleanup_pop(1);
}

static void *work(void *number) {
    int thread = (int)(intptr_t)number;
    struct note notes[5];
    for (int i = 0; i < 5; i++) {
        notes[i] = (struct note){.at = &order[thread], .digit = i};
    }
    pthread_cleanup_push(note, &notes[1]);
    pthread_cleanup_push(note, &notes[4]);
    leave(notes, thread % 2 == 0);
    pthread_cleanup_pop(1);
    pthread_cleanup_pop(0);
    return notes[0].at;
}

int main(int argc, char **argv) {
    pthread_t ids[MOST_THREADS];
    read_threads(argc, argv);
    for (int i = 0; i < threads; i++) {
        CHECK(pthread_create(&ids[i], NULL, work, (void *)(intptr_t)i) == 0);
    }
    for (int i = 0; i < threads; i++) {
        void *answer = NULL;
        CHECK(pthread_join(ids[i], &answer) == 0 && answer == &order[i]);
        CHECK(order[i] == (i % 2 == 0 ? 241 : 24));
    }
    return verdict("cleanup");
}
