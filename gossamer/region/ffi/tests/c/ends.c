/* ends: destructors of a thread's objects and values run before it is joined, and may give others memory of their
 * stack; so may handlers at exit, which run once, the last first, whichever thread has registered them. */
#include "verdict.h"

extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *);
extern void *__dso_handle;

struct question {
    int number, answer, done;
};

static struct question *asked;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_key_t key;
static pthread_t server;
static int objects, values, handlers;

static void *serve(void *nothing) {
    (void)nothing;
    pthread_mutex_lock(&mutex);
    for (int ends = 0; !ends;) {
        while (asked == NULL) {
            pthread_cond_wait(&changed, &mutex);
        }
        ends = asked->number < 0;
        asked->answer = 2 * asked->number;
        asked->done = 1;
        asked = NULL;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&mutex);
    return NULL;
}

/* The question lies on the stack of the asker. */
static int ask(int number) {
    struct question question = {number, 0, 0};
    pthread_mutex_lock(&mutex);
    while (asked != NULL) {
        pthread_cond_wait(&changed, &mutex);
    }
    asked = &question;
    pthread_cond_broadcast(&changed);
    while (!question.done) {
        pthread_cond_wait(&changed, &mutex);
    }
    pthread_mutex_unlock(&mutex);
    return question.answer;
}

static void destroy_object(void *object) {
    int *numbers = object;
    CHECK(ask(numbers[0]) == 2 * numbers[0]);
    CHECK(numbers[1] == objects % 2); /* the last one that was made first */
    usleep(2000);
    pthread_mutex_lock(&mutex);
    objects++;
    pthread_mutex_unlock(&mutex);
}

static void destroy_value(void *value) {
    CHECK(ask((int)(intptr_t)value) == 2 * (int)(intptr_t)value);
    usleep(2000);
    pthread_mutex_lock(&mutex);
    values++;
    pthread_mutex_unlock(&mutex);
}

static void *work(void *argument) {
    static __thread int first[2], second[2];
    int number = (int)(intptr_t)argument + 1;
    first[0] = second[0] = number;
    first[1] = 1;
    CHECK(__cxa_thread_atexit_impl(destroy_object, first, &__dso_handle) == 0);
    CHECK(__cxa_thread_atexit_impl(destroy_object, second, &__dso_handle) == 0);
    CHECK(pthread_setspecific(key, (void *)(intptr_t)number) == 0);
    if (number % 2 == 0) {
        pthread_exit(NULL);
    }
    return NULL;
}

static void last_handler(void) {
    CHECK(handlers++ == 2);
    CHECK(ask(-1) == -2);
    CHECK(pthread_join(server, NULL) == 0);
    /* By `_exit`, as the status of the program is decided only now. */
    verdict("ends");
    fflush(stdout);
    _exit(failed != 0);
}

static void middle_handler(void) {
    CHECK(handlers++ == 1);
    CHECK(ask(21) == 42);
}

static void first_handler(void) {
    CHECK(handlers++ == 0);
    CHECK(ask(4) == 8);
}

static void *registers(void *number) {
    CHECK(atexit(number == NULL ? middle_handler : first_handler) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    CHECK(pthread_key_create(&key, destroy_value) == 0);
    CHECK(pthread_create(&server, NULL, serve, NULL) == 0);
    for (int number = 0; number < threads; number++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, work, (void *)(intptr_t)number) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        CHECK(objects == 2 * (number + 1) && values == number + 1);
    }
    CHECK(atexit(last_handler) == 0);
    for (intptr_t number = 0; number < 2; number++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, registers, (void *)number) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    return 0;
}
