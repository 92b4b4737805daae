/* common.h: shared by the seven programs: options, input, memory in whole pages, threads, the clock. Include it first.
 *
 * Compiled with -DGOSSAMER_REGION the programs name the ranges that their threads share, by `gsm_region_share`. Without
 * it they are plain pthread programs.
 */
#define _GNU_SOURCE
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#ifdef GOSSAMER_REGION
#include "gossamer_region.h"
#endif

enum { PAGE = 4096, MOST_THREADS = 1024 };

/* ---- Errors ---- */

/* Ends the program where `call` failed with `error`, an errno or a negative one. */
static inline void check(int error, const char *call) {
    if (error) {
        fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, call, strerror(abs(error)));
        exit(1);
    }
}

static inline _Noreturn void refuse_file(const char *file, const char *why) {
    fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, file, why);
    exit(1);
}

/* ---- Options ---- */

struct options {
    /* Set by the program: its purpose, the unit that `--size` counts, and the limits of that. `file` describes the
     * contents of a named file, or is NULL where the program takes none. */
    const char *what, *unit, *file;
    size_t size, least, most;
    /* Set by `read_options`. */
    int threads;
    uint64_t seed;
    const char *path; /* NULL: the input is generated */
    int sized;
};

static inline uint64_t parse_number(struct argp_state *state, const char *name, const char *text, uint64_t least,
                                    uint64_t most) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || number < least || number > most) {
        argp_error(state, "--%s takes a number from %" PRIu64 " to %" PRIu64 ", not '%s'", name, least, most, text);
    }
    return number;
}

static inline error_t parse_option(int key, char *text, struct argp_state *state) {
    struct options *options = state->input;
    switch (key) {
    case 't': options->threads = (int)parse_number(state, "threads", text, 1, MOST_THREADS); return 0;
    case 'n':
        options->size = parse_number(state, "size", text, options->least, options->most);
        options->sized = 1;
        return 0;
    case 's': options->seed = parse_number(state, "seed", text, 0, UINT64_MAX); return 0;
    case ARGP_KEY_ARG:
        if (!options->file || options->path) {
            argp_error(state, "'%s' is one argument too many", text);
        }
        options->path = text;
        return 0;
    case ARGP_KEY_END:
        if (options->path && options->sized) {
            argp_error(state, "--size is for generated input: leave it out beside a file");
        }
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* Reads the command line. Answers --help itself, and ends with status 2 if an argument is wrong. */
static inline void read_options(struct options *options, int argc, char **argv) {
    char size[128], doc[512];
    snprintf(size, sizeof size, "Generate N %s (default %zu)", options->unit, options->size);
    snprintf(doc, sizeof doc, "%s%s%s", options->what, options->file ? "\vFILE: " : "",
             options->file ? options->file : "");
    const struct argp_option list[] = {
        {.name = "threads", .key = 't', .arg = "N", .doc = "Number of threads (default: one for each processor)"},
        {.name = "size", .key = 'n', .arg = "N", .doc = size},
        {.name = "seed", .key = 's', .arg = "N", .doc = "Seed of the generated input (default 1)"},
        {0},
    };
    const struct argp argp = {
        .options = list, .parser = parse_option, .args_doc = options->file ? "[FILE]" : NULL, .doc = doc};
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    options->threads = processors < 1 ? 1 : processors > MOST_THREADS ? MOST_THREADS : (int)processors;
    options->seed = 1;
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, options);
}

/* ---- Input and memory ---- */

/* A linear congruential generator (Knuth's MMIX constants): the same seed gives the same input everywhere. 31 bits a
 * call. */
static inline uint32_t draw(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static inline size_t whole_pages(size_t bytes) {
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* Zeroed memory that begins on a page of its own. */
static inline void *new_pages(size_t bytes) {
    void *pages = mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(pages == MAP_FAILED ? errno : 0, "mmap");
    return pages;
}

/* Maps a file and stores its length in `bytes`. Refuses a file of fewer than `least` bytes. */
static inline void *map_file(const char *path, size_t least, size_t *bytes) {
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &about) != 0) {
        refuse_file(path, strerror(errno));
    }
    if (!S_ISREG(about.st_mode)) {
        refuse_file(path, "not a regular file");
    }
    *bytes = (size_t)about.st_size;
    if (*bytes < least) {
        refuse_file(path, "too short");
    }
    void *pages = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (pages == MAP_FAILED) {
        refuse_file(path, strerror(errno));
    }
    close(file);
    return pages;
}

/* ---- Threads, time, checksums ---- */

/* Returns the start of part `number` of `parts` nearly equal parts; it ends where the next one begins. */
static inline size_t part_begin(size_t total, int parts, int number) {
    return (size_t)((unsigned __int128)total * (unsigned)number / (unsigned)parts);
}

/* Starts `threads` threads, numbered from 0 on, and waits for all of them. Prints on stderr how long that took. */
static inline void run_threads(int threads, void *(*body)(void *number)) {
    pthread_t ids[MOST_THREADS];
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < threads; i++) {
        check(pthread_create(&ids[i], NULL, body, (void *)(intptr_t)i), "pthread_create");
    }
    for (int i = 0; i < threads; i++) {
        check(pthread_join(ids[i], NULL), "pthread_join");
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double ms = (double)(end.tv_sec - begin.tv_sec) * 1e3 + (double)(end.tv_nsec - begin.tv_nsec) / 1e6;
    fprintf(stderr, "%s: %.3f ms with %d threads\n", program_invocation_short_name, ms, threads);
}

/* FNV-1a, a word at a time. Begin with FNV_BEGIN. */
#define FNV_BEGIN 14695981039346656037u
static inline uint64_t fnv(uint64_t sum, uint64_t word) {
    return (sum ^ word) * 1099511628211u;
}
