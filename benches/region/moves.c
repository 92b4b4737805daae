/* Threads that move, for `gossamer-bench region-moves`: `gossamer-launch run --local 2 --region auto --move never|asked
 * moves page|call|signal|allocate TIMES`.
 *
 * page: a thread of machine 1 writes 2 x TIMES pages, and one of machine 0 reads every second one, from the last to the
 * first, so that none comes unasked.
 * call: a thread goes to the other machine and back, TIMES moves in all.
 * signal: one that computes, and calls nothing, is sent from one to the other.
 * allocate: a thread allocates and frees TIMES blocks.
 * Prints the median of a page or move in nanoseconds, for blocks the mean, and how many were right. */
#define _GNU_SOURCE
#include <gossamer_region.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { PAGE = 4096, BLOCK = 64 };

static long times;
static uint64_t *samples, median, answer;
static unsigned char *pages;
static atomic_long turns;
static atomic_int is_over;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void must(int error, const char *what) {
    if (error) {
        fprintf(stderr, "moves: %s: %s\n", what, strerror(error));
        exit(1);
    }
}

static int is_less(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return a < b ? -1 : a > b;
}

static void take_median(void) {
    qsort(samples, (size_t)times, sizeof *samples, is_less);
    median = samples[times / 2];
}

/* Runs this in a thread of its own: threads begin on machines 0 and 1 in turn. */
static void in_thread(void *(*body)(void *)) {
    pthread_t id;
    must(pthread_create(&id, NULL, body, NULL), "pthread_create");
    must(pthread_join(id, NULL), "pthread_join");
}

static void *writes(void *unused) {
    for (long at = 0; at < 2 * times; at++) {
        pages[at * PAGE] = (unsigned char)at;
    }
    return unused;
}

static void *nothing(void *unused) {
    return unused;
}

static void *reads(void *unused) {
    for (long at = times - 1; at >= 0; at--) {
        uint64_t begun = now_ns();
        unsigned char found = *(volatile unsigned char *)(pages + 2 * at * PAGE);
        samples[at] = now_ns() - begun;
        answer += found == (unsigned char)(2 * at);
    }
    return unused;
}

static void *goes(void *unused) {
    int began = gsm_thread_machine();
    uint64_t right = 0; /* no page of the program's data comes along */
    for (long at = 0; at < times; at++) {
        int to = (began + (int)at + 1) % 2;
        uint64_t begun = now_ns();
        must(gsm_thread_move(to), "gsm_thread_move");
        samples[at] = now_ns() - begun;
        right += gsm_thread_machine() == to;
    }
    answer += right;
    return unused;
}

static void *computes(void *unused) {
    long own = 0;
    while (!atomic_load_explicit(&is_over, memory_order_relaxed)) {
        own++;
    }
    atomic_store(&turns, own);
    return unused;
}

static void send(void) {
    pthread_t id;
    must(pthread_create(&id, NULL, computes, NULL), "pthread_create");
    for (long at = 0; at < times; at++) {
        usleep(1000);
        uint64_t begun = now_ns();
        int error;
        while ((error = gsm_thread_move_other(id, (int)(at + 1) % 2)) == EAGAIN) {
        }
        must(error, "gsm_thread_move_other");
        samples[at] = now_ns() - begun;
        answer++;
    }
    atomic_store(&is_over, 1);
    must(pthread_join(id, NULL), "pthread_join");
    answer -= atomic_load(&turns) == 0;
}

static void *allocates(void *unused) {
    uint64_t begun = now_ns();
    for (long at = 0; at < times; at++) {
        char *volatile block = malloc(BLOCK);
        answer += block != NULL;
        free(block);
    }
    median = (now_ns() - begun) * 1000 / (uint64_t)times;
    return unused;
}

int main(int argc, char **argv) {
    const char *what = argc > 2 ? argv[1] : "";
    times = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    if (times <= 0) {
        fprintf(stderr, "usage: %s page|call|signal|allocate TIMES\n", argv[0]);
        return 2;
    }
    samples = calloc((size_t)times, sizeof *samples);
    pages = aligned_alloc(PAGE, 2 * (size_t)times * PAGE);
    must(samples && pages ? 0 : ENOMEM, "memory");
    if (strcmp(what, "allocate") == 0) {
        in_thread(allocates);
        printf("{\"ns\": %.3f, \"digest\": %llu}\n", (double)median / 1e3, (unsigned long long)answer);
        return 0;
    }
    if (strcmp(what, "page") == 0) {
        in_thread(nothing);
        in_thread(writes);
        in_thread(reads);
    } else if (strcmp(what, "call") == 0) {
        in_thread(goes);
    } else if (strcmp(what, "signal") == 0) {
        send();
    } else {
        return 2;
    }
    take_median();
    printf("{\"ns\": %llu, \"digest\": %llu}\n", (unsigned long long)median, (unsigned long long)answer);
    return 0;
}
