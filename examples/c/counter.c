/* counter: threads of a C program add to one number, which is entrusted to a pool's worker. No locks.
 *
 *     cc counter.c $(pkg-config --cflags --libs trust) -pthread && ./a.out
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <trust.h>

enum { THREADS = 4, ADDITIONS = 10000 };

/* Ends the program if a call has failed. */
static void check(trust_status status, const char *call) {
    if (status != TRUST_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, trust_status_name(status), trust_error_message());
        exit(1);
    }
}

/* Runs at the trustee: nothing else touches the number meanwhile. */
static void add(void *property, const void *arguments, size_t length, trust_result *result) {
    long *number = property;
    (void)length;
    *number += *(const long *)arguments;
    trust_result_put(result, number, sizeof *number);
}

/* Called on the calling thread of the request, with the number after its addition. */
static void then(void *context, trust_status status, const void *result, size_t length) {
    long *largest = context;
    if (status == TRUST_OK && length == sizeof(long) && *(const long *)result > *largest) {
        *largest = *(const long *)result;
    }
}

static void *thread(void *argument) {
    trust_t counter = *(trust_t *)argument;
    long one = 1, largest = 0;
    check(trust_attach(NULL), "trust_attach");
    for (int i = 0; i < ADDITIONS; i++) {
        /* Does not wait: many additions travel in one batch. */
        check(trust_apply_then(counter, add, &one, sizeof one, then, &largest), "trust_apply_then");
    }
    /* Requests to one trustee run in order, so this one comes last, and all callbacks have been called before its
     * answer. */
    long zero = 0, number = 0;
    size_t room = sizeof number;
    check(trust_apply(counter, add, &zero, sizeof zero, &number, &room), "trust_apply");
    if (largest < ADDITIONS || largest > number) {
        fprintf(stderr, "a thread saw %ld, and then %ld\n", largest, number);
        exit(1);
    }
    trust_drop(counter);
    check(trust_detach(), "trust_detach");
    return NULL;
}

int main(void) {
    trust_pool_options options = {.size = sizeof options, .workers = 1, .name = "counter"};
    trust_pool *pool = NULL;
    trust_trustee trustee = 0;
    trust_t counter;
    check(trust_attach(NULL), "trust_attach");
    check(trust_pool_start(&options, &pool), "trust_pool_start");
    check(trust_pool_trustee(pool, 0, &trustee), "trust_pool_trustee");
    check(trust_entrust(trustee, calloc(1, sizeof(long)), free, &counter), "trust_entrust");

    pthread_t threads[THREADS];
    trust_t clones[THREADS];
    for (int i = 0; i < THREADS; i++) {
        clones[i] = trust_clone(counter);
        if (pthread_create(&threads[i], NULL, thread, &clones[i]) != 0) {
            perror("pthread_create");
            return 1;
        }
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }

    long zero = 0, number = 0;
    size_t room = sizeof number;
    check(trust_apply(counter, add, &zero, sizeof zero, &number, &room), "trust_apply");
    trust_drop(counter);
    check(trust_pool_stop(pool), "trust_pool_stop");
    check(trust_detach(), "trust_detach");
    printf("%ld\n", number);
    return number == (long)THREADS * ADDITIONS ? 0 : 1;
}
