/* stress: threads that sleep in epoll without a limit of time, each client and trustee of all, with few active
 * requests, so that they fall asleep all the time. A lost wake-up is a hang, which the alarm ends.
 *
 *     stress [ROUNDS]
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <trust.h>
#include <unistd.h>

enum { THREADS = 4 };

struct shard {
    uint64_t sum, served;
    int stopped; /* number of threads without further requests */
};

struct thread {
    pthread_t id;
    int number;
    uint64_t rounds, asked, answered, sum, random;
    struct shard *shard; /* its own; touched by delegated functions alone until it has left its loop */
};

static trust_t shards[THREADS];
static pthread_barrier_t barrier;
static atomic_ullong polls, served;

static void check(trust_status status, const char *call) {
    if (status != TRUST_OK) {
        fprintf(stderr, "%s: %s: %s\n", call, trust_status_name(status), trust_error_message());
        exit(1);
    }
}

static void add(void *property, const void *arguments, size_t length, trust_result *result) {
    struct shard *shard = property;
    const uint64_t *by = arguments;
    if (length % sizeof *by != 0) {
        abort();
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < length / sizeof *by; i++) {
        sum += by[i];
    }
    shard->sum += sum;
    shard->served++;
    uint64_t *room = trust_result_room(result, length + sizeof sum);
    *room = sum;
    for (size_t i = 0; i < length / sizeof *by; i++) {
        room[i + 1] = by[i];
    }
}

static void stop(void *property, const void *arguments, size_t length, trust_result *result) {
    (void)arguments;
    (void)length;
    (void)result;
    ((struct shard *)property)->stopped++;
}

static void ask(struct thread *thread);

static void then(void *context, trust_status status, const void *result, size_t length) {
    struct thread *thread = context;
    const uint64_t *words = result;
    check(status, "then");
    uint64_t sum = 0;
    for (size_t i = 1; i < length / sizeof sum; i++) {
        sum += words[i];
    }
    if (sum != words[0]) {
        fprintf(stderr, "a result of %zu bytes is wrong\n", length);
        exit(1);
    }
    thread->answered++;
    ask(thread);
}

/* From the loop, and from callbacks. */
static void ask(struct thread *thread) {
    if (thread->asked == thread->rounds) {
        if (thread->answered == thread->rounds) {
            for (int i = 0; i < THREADS; i++) {
                check(trust_apply_then(shards[i], stop, NULL, 0, NULL, NULL), "stop");
            }
        }
        return;
    }
    thread->random = thread->random * 6364136223846793005u + 1442695040888963407u;
    uint64_t words[80];
    /* Now and then more than fits a slot. */
    size_t count = thread->random >> 60 ? (thread->random >> 40) % 4 : (thread->random >> 40) % 80;
    for (size_t i = 0; i < count; i++) {
        words[i] = thread->random >> i % 32;
        thread->sum += words[i];
    }
    thread->asked++;
    trust_t shard = shards[(thread->random >> 33) % THREADS];
    check(trust_apply_then(shard, add, words, count * sizeof *words, then, thread), "ask");
}

static void *run(void *argument) {
    struct thread *thread = argument;
    int descriptor = -1;
    trust_trustee here = 0;
    check(trust_attach(&descriptor), "trust_attach");
    check(trust_local_trustee(&here), "trust_local_trustee");
    check(trust_entrust(here, thread->shard, NULL, &shards[thread->number]), "trust_entrust");
    pthread_barrier_wait(&barrier);

    int epoll = epoll_create1(EPOLL_CLOEXEC);
    /* Half of the threads are told of edges only. */
    struct epoll_event event = {.events = thread->number % 2 ? EPOLLIN : EPOLLIN | EPOLLET};
    if (epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) != 0) {
        perror("epoll");
        exit(1);
    }
    for (int i = 0; i <= thread->number && thread->asked < thread->rounds; i++) {
        ask(thread);
    }
    while (thread->shard->stopped < THREADS) {
        if (epoll_wait(epoll, &event, 1, -1) != 1) {
            continue;
        }
        check(trust_poll(NULL), "trust_poll");
        atomic_fetch_add(&polls, 1);
    }
    /* All have reported, so no more requests come; this thread's own reports may still be on their way. */
    close(epoll);
    trust_drop(shards[thread->number]);
    check(trust_detach(), "trust_detach");
    atomic_fetch_add(&served, thread->shard->served);
    return NULL;
}

int main(int count, char **arguments) {
    uint64_t rounds = count > 1 ? strtoull(arguments[1], NULL, 10) : 20000;
    alarm(240);
    struct thread threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.number = i, .rounds = rounds, .random = (uint64_t)i + 1};
        threads[i].shard = calloc(1, sizeof(struct shard));
        if (!threads[i].shard || pthread_create(&threads[i].id, NULL, run, &threads[i]) != 0) {
            perror("thread");
            return 1;
        }
    }
    uint64_t asked = 0, done = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i].id, NULL);
        asked += threads[i].sum;
    }
    for (int i = 0; i < THREADS; i++) {
        done += threads[i].shard->sum;
        free(threads[i].shard);
    }
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%llu served, %llu polls, %ld times asleep; sums %s\n", atomic_load(&served), atomic_load(&polls),
           usage.ru_nvcsw, asked == done ? "agree" : "differ");
    return asked == done && atomic_load(&served) == THREADS * rounds ? 0 : 1;
}
