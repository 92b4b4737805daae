/* prelude: helpers of all scenes. A scene says its results to a text of its own, which main prints after it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(condition)                                                                                  \
    do {                                                                                                 \
        if (!(condition)) {                                                                              \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, strerror(errno));                 \
            abort();                                                                                     \
        }                                                                                                \
    } while (0)

enum { MOST_SCENES = 16, TEXT_BYTES = 2048, MOST_THREADS = 16 };
static char text[MOST_SCENES][TEXT_BYTES];

__attribute__((format(printf, 2, 3), unused)) static void say(int scene, const char *format, ...) {
    size_t length = strlen(text[scene]);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text[scene] + length, TEXT_BYTES - length, format, arguments);
    va_end(arguments);
}

__attribute__((unused)) static unsigned mix(unsigned sum, unsigned value) {
    return (sum ^ value) * 16777619u + (sum >> 15);
}

__attribute__((unused)) static unsigned draw(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Runs threads with numbers from 0 on, and waits for all; the sum of their results. */
__attribute__((unused)) static unsigned long run(int count, void *(*body)(void *)) {
    pthread_t ids[MOST_THREADS];
    unsigned long sum = 0;
    for (int i = 0; i < count; i++)
        MUST(pthread_create(&ids[i], NULL, body, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < count; i++) {
        void *result;
        MUST(pthread_join(ids[i], &result) == 0);
        sum += (unsigned long)(uintptr_t)result;
    }
    return sum;
}

__attribute__((unused)) static int temporary(void) {
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s/scene-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    int file = mkstemp(name);
    MUST(file >= 0 && unlink(name) == 0);
    return file;
}
