/* errors: each error gives a status and a text, and no argument from C ends the process: no thread, null, the wrong
 * kind, waiting where nothing may, trustees that are gone, results that are too long. Also launched functions, fibers
 * and lives of properties. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trust.h>

#define EXPECT(call, wanted)                                                                                      \
    do {                                                                                                          \
        trust_status got = (call);                                                                                \
        if (got != (wanted)) {                                                                                    \
            fprintf(stderr, "%s:%d: %s: %s, expected %s (%s)\n", __FILE__, __LINE__, #call,                      \
                    trust_status_name((int)got), trust_status_name((int)(wanted)), trust_error_message());        \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)
#define REQUIRE(what)                                                                                             \
    do {                                                                                                          \
        if (!(what)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #what);                              \
            exit(1);                                                                                              \
        }                                                                                                         \
    } while (0)

static int made, destroyed;
static void destroy(void *property) {
    __atomic_fetch_add(&destroyed, 1, __ATOMIC_SEQ_CST);
    free(property);
}

static long *number(long value) {
    long *number = malloc(sizeof *number);
    REQUIRE(number);
    *number = value;
    __atomic_fetch_add(&made, 1, __ATOMIC_SEQ_CST);
    return number;
}

static void get(void *property, const void *arguments, size_t length, trust_result *result) {
    (void)arguments;
    (void)length;
    /* Bytes from nowhere are refused, and leave the result to be put. */
    REQUIRE(!trust_result_put(result, NULL, 8));
    REQUIRE(!trust_result_put(NULL, property, sizeof(long)));
    REQUIRE(!trust_result_put(NULL, NULL, 8));
    REQUIRE(trust_result_put(result, property, sizeof(long)));
    REQUIRE(!trust_result_put(result, property, sizeof(long)));
    REQUIRE(trust_result_room(result, 8) == NULL);
}

/* Gives a result of the length in the arguments, each byte the number. */
static void fill(void *property, const void *arguments, size_t length, trust_result *result) {
    REQUIRE(length == sizeof(size_t));
    size_t size = *(const size_t *)arguments;
    char *room = trust_result_room(result, size);
    REQUIRE(room && (uintptr_t)room % 8 == 0);
    memset(room, (int)*(long *)property, size);
}

/* Nothing may wait here; calls that do not wait are queued, also to this very trustee. */
struct inner {
    trust_t self, other;
};
static int inner_called;
static void inner_then(void *context, trust_status status, const void *result, size_t length) {
    (void)context;
    REQUIRE(status == TRUST_OK && length == sizeof(long) && *(const long *)result > 0);
    EXPECT(trust_poll(NULL), TRUST_MAY_NOT_WAIT);
    EXPECT(trust_detach(), TRUST_MAY_NOT_WAIT);
    __atomic_fetch_add(&inner_called, 1, __ATOMIC_SEQ_CST);
}
static void wait_inside(void *property, const void *arguments, size_t length, trust_result *result) {
    const struct inner *inner = arguments;
    long out = 0;
    size_t room = sizeof out;
    (void)property;
    REQUIRE(length == sizeof *inner);
    EXPECT(trust_apply(inner->self, get, NULL, 0, &out, &room), TRUST_MAY_NOT_WAIT);
    EXPECT(trust_apply(inner->other, get, NULL, 0, &out, &room), TRUST_MAY_NOT_WAIT);
    EXPECT(trust_yield(), TRUST_MAY_NOT_WAIT);
    EXPECT(trust_poll(NULL), TRUST_MAY_NOT_WAIT);
    EXPECT(trust_detach(), TRUST_MAY_NOT_WAIT);
    EXPECT(trust_apply_then(inner->self, get, NULL, 0, inner_then, NULL), TRUST_OK);
    EXPECT(trust_apply_then(inner->other, get, NULL, 0, inner_then, NULL), TRUST_OK);
    (void)result;
}

/* Runs in a fiber: may wait, and holds the property exclusively meanwhile. */
static void slowly(void *property, const void *arguments, size_t length, trust_result *result) {
    const trust_t *other = arguments;
    long before = *(long *)property, out = 0;
    size_t room = sizeof out;
    REQUIRE(length == sizeof *other);
    EXPECT(trust_poll(NULL), TRUST_MAY_NOT_WAIT);
    EXPECT(trust_apply(*other, get, NULL, 0, &out, &room), TRUST_OK);
    EXPECT(trust_yield(), TRUST_OK);
    REQUIRE(*(long *)property == before);
    *(long *)property = before + out;
    REQUIRE(trust_result_put(result, property, sizeof(long)));
}

static void count_then(void *context, trust_status status, const void *result, size_t length) {
    (void)result;
    (void)length;
    if (status == TRUST_OK) {
        ++*(int *)context;
    }
}

static void gone_then(void *context, trust_status status, const void *result, size_t length) {
    REQUIRE(status == TRUST_GONE && result == NULL && length == 0);
    REQUIRE(strstr(trust_error_message(), "ended"));
    ++*(int *)context;
}

static void fiber(void *argument) {
    trust_t *trust = argument;
    long out = 0;
    size_t room = sizeof out;
    EXPECT(trust_apply(*trust, get, NULL, 0, &out, &room), TRUST_OK);
    REQUIRE(out == 5);
}

static void *unattached(void *argument) {
    trust_t *trust = argument, made;
    trust_trustee trustee;
    EXPECT(trust_apply(*trust, get, NULL, 0, NULL, NULL), TRUST_NOT_ATTACHED);
    REQUIRE(strstr(trust_error_message(), "trust_attach"));
    EXPECT(trust_apply_then(*trust, get, NULL, 0, NULL, NULL), TRUST_NOT_ATTACHED);
    EXPECT(trust_launch(*trust, get, NULL, 0, NULL, NULL), TRUST_NOT_ATTACHED);
    EXPECT(trust_poll(NULL), TRUST_NOT_ATTACHED);
    EXPECT(trust_detach(), TRUST_NOT_ATTACHED);
    EXPECT(trust_yield(), TRUST_NOT_ATTACHED);
    EXPECT(trust_local_trustee(&trustee), TRUST_NOT_ATTACHED);
    EXPECT(trust_trustee_of(*trust, &trustee), TRUST_OK);
    EXPECT(trust_entrust(trustee, NULL, NULL, &made), TRUST_NOT_ATTACHED);
    /* These are for all threads. */
    trust_drop(trust_clone(*trust));
    return NULL;
}

/* A thread that attaches, entrusts, and ends without detaching. */
static trust_t left_behind;
static void *leave(void *argument) {
    trust_trustee here;
    (void)argument;
    EXPECT(trust_attach(NULL), TRUST_OK);
    EXPECT(trust_attach(NULL), TRUST_ATTACHED);
    EXPECT(trust_local_trustee(&here), TRUST_OK);
    EXPECT(trust_entrust(here, number(1), destroy, &left_behind), TRUST_OK);
    return NULL;
}

static void on_thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, run, argument) == 0);
    pthread_join(thread, NULL);
}

static void on_worker(trust_pool *pool, trust_trustee worker) {
    trust_t plain, latched, local, null = {0};
    trust_trustee here;
    long out = 0;
    size_t room = sizeof out;
    EXPECT(trust_local_trustee(&here), TRUST_OK);
    EXPECT(trust_entrust(worker, number(5), destroy, &plain), TRUST_OK);
    EXPECT(trust_entrust(here, number(7), destroy, &local), TRUST_OK);
    EXPECT(trust_entrust_latched(worker, number(5), destroy, &latched), TRUST_OK);
    on_thread(unattached, &plain);

    EXPECT(trust_apply(plain, get, NULL, 0, &out, &room), TRUST_OK);
    REQUIRE(out == 5 && room == sizeof out);
    EXPECT(trust_apply(local, get, NULL, 0, &out, &room), TRUST_OK);
    REQUIRE(out == 7);
    EXPECT(trust_apply(plain, NULL, NULL, 0, NULL, NULL), TRUST_INVALID);
    EXPECT(trust_apply(plain, get, NULL, 3, NULL, NULL), TRUST_INVALID);
    EXPECT(trust_apply(plain, get, &out, SIZE_MAX, NULL, NULL), TRUST_TOO_LARGE);
    EXPECT(trust_apply(plain, get, NULL, 0, NULL, &room), TRUST_INVALID);
    EXPECT(trust_apply(null, get, NULL, 0, NULL, NULL), TRUST_INVALID);
    EXPECT(trust_apply(latched, get, NULL, 0, NULL, NULL), TRUST_WRONG_KIND);
    EXPECT(trust_launch(plain, get, NULL, 0, NULL, NULL), TRUST_WRONG_KIND);
    EXPECT(trust_launch_then(null, get, NULL, 0, NULL, NULL), TRUST_WRONG_KIND);
    EXPECT(trust_pool_trustee(pool, 9, &worker), TRUST_INVALID);
    EXPECT(trust_entrust(worker ^ (77ull << 32), NULL, NULL, &null), TRUST_GONE);
    trust_drop(null);
    trust_drop(trust_clone(null));

    /* Results around the bounds of slots, here and there. */
    static char large[1 << 20];
    for (size_t size = 0; size <= sizeof large; size = size < 600 ? size + 1 : size * 2 + 1) {
        for (int i = 0; i < 2; i++) {
            size_t length = sizeof large;
            EXPECT(trust_apply(i ? local : plain, fill, &size, sizeof size, large, &length), TRUST_OK);
            REQUIRE(length == size && (size == 0 || (large[0] == (i ? 7 : 5) && large[size - 1] == large[0])));
        }
    }
    size_t size = 100;
    room = sizeof out;
    EXPECT(trust_apply(plain, fill, &size, sizeof size, &out, &room), TRUST_TOO_LARGE);
    REQUIRE(room == 100);

    struct inner inner = {plain, local};
    EXPECT(trust_apply(plain, wait_inside, &inner, sizeof inner, NULL, NULL), TRUST_OK);
    inner = (struct inner){local, plain};
    EXPECT(trust_apply(local, wait_inside, &inner, sizeof inner, NULL, NULL), TRUST_OK);
    for (long i = 0; i < 100000000 && __atomic_load_n(&inner_called, __ATOMIC_SEQ_CST) < 4; i++) {
        EXPECT(trust_yield(), TRUST_OK);
    }
    REQUIRE(__atomic_load_n(&inner_called, __ATOMIC_SEQ_CST) == 4);

    int called = 0;
    for (int i = 0; i < 10; i++) {
        EXPECT(trust_launch_then(latched, slowly, &plain, sizeof plain, count_then, &called), TRUST_OK);
    }
    room = sizeof out;
    EXPECT(trust_launch(latched, slowly, &local, sizeof local, &out, &room), TRUST_OK);
    REQUIRE(out == 5 + 10 * 5 + 7 && called == 10);

    trust_fiber *started;
    EXPECT(trust_spawn(worker, NULL, NULL, NULL), TRUST_INVALID);
    EXPECT(trust_spawn(worker, fiber, &plain, &started), TRUST_OK);
    EXPECT(trust_join(started), TRUST_OK);
    EXPECT(trust_join(NULL), TRUST_INVALID);

    trust_drop(local);
    trust_drop(plain);
    trust_drop(latched);
}

int main(void) {
    trust_pool *pool = NULL;
    trust_pool_options options = {.size = sizeof options, .workers = 2, .dedicated = 3};
    trust_trustee worker;
    REQUIRE(trust_version() >> 16 == TRUST_VERSION_MAJOR);
    EXPECT(trust_pool_start(&options, &pool), TRUST_INVALID);
    REQUIRE(strstr(trust_error_message(), "dedicated"));
    options = (trust_pool_options){.size = 1};
    EXPECT(trust_pool_start(&options, &pool), TRUST_INVALID);
    EXPECT(trust_pool_stop(NULL), TRUST_OK);
    options = (trust_pool_options){
        .size = sizeof options, .workers = 1, .stack_bytes = 64 << 10, .spin_ns = 1, .unpinned = true};
    EXPECT(trust_pool_start(&options, &pool), TRUST_OK);
    REQUIRE(trust_pool_workers(pool) == 1);
    EXPECT(trust_pool_trustee(pool, 0, &worker), TRUST_OK);

    /* With a descriptor, without, and again after that. */
    for (int i = 0; i < 3; i++) {
        int descriptor = -1;
        EXPECT(trust_attach(i == 1 ? NULL : &descriptor), TRUST_OK);
        REQUIRE((descriptor >= 0) == (i != 1));
        on_worker(pool, worker);
        EXPECT(trust_detach(), TRUST_OK);
        EXPECT(trust_detach(), TRUST_NOT_ATTACHED);
        inner_called = 0;
    }

    EXPECT(trust_attach(NULL), TRUST_OK);
    on_thread(leave, NULL);
    int called = 0;
    EXPECT(trust_apply(left_behind, get, NULL, 0, NULL, NULL), TRUST_GONE);
    EXPECT(trust_apply_then(left_behind, get, NULL, 0, gone_then, &called), TRUST_OK);
    REQUIRE(called == 1);
    trust_drop(left_behind);

    /* The end of a pool is the end of its properties, and of trusts that are left. */
    trust_t late;
    EXPECT(trust_entrust(worker, number(3), destroy, &late), TRUST_OK);
    EXPECT(trust_pool_stop(pool), TRUST_OK);
    EXPECT(trust_apply(late, get, NULL, 0, NULL, NULL), TRUST_GONE);
    EXPECT(trust_spawn(worker, fiber, NULL, NULL), TRUST_GONE);
    trust_drop(late);
    REQUIRE(made == 11 && destroyed == made);
    puts("as expected");
    return 0;
}
