/* streams: an open FILE is that of the process: threads read and write it by turns and together, and one closes it
 * that another one has opened. */
#include "verdict.h"

enum { LINES = 200 };

static FILE *all;
static char path[4096];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int lines;

static void *writes(void *number) {
    for (int i = 0; i < LINES; i++) {
        if (i % 2) {
            CHECK(fprintf(all, "line %d of %d\n", i, (int)(intptr_t)number) > 0);
        } else {
            flockfile(all);
            CHECK(fputs("line ", all) >= 0 && fprintf(all, "%d of ", i) > 0);
            CHECK(fprintf(all, "%d\n", (int)(intptr_t)number) > 0);
            funlockfile(all);
        }
    }
    return NULL;
}

static void *reads(void *unused) {
    char *line = NULL;
    size_t room = 0;
    int i, thread;
    (void)unused;
    while (getline(&line, &room, all) > 0) {
        CHECK(sscanf(line, "line %d of %d\n", &i, &thread) == 2 && i < LINES && thread < threads);
        atomic_fetch_add(&lines, 1);
    }
    free(line);
    return NULL;
}

/* In turns: each thread goes on where the one before has stopped. */
static void *reads_one(void *number) {
    int i = -1, thread = -1;
    pthread_mutex_lock(&mutex);
    CHECK(fscanf(all, "line %d of %d\n", &i, &thread) == 2 && i >= 0 && thread >= 0);
    int next = getc(all);
    CHECK(next == 'l' && ungetc(next, all) == next);
    pthread_mutex_unlock(&mutex);
    (void)number;
    return NULL;
}

static void *opens(void *unused) {
    (void)unused;
    return fopen(path, "r+");
}

static void *closes(void *file) {
    CHECK(fclose(file) == 0);
    return NULL;
}

static void *in_memory(void *unused) {
    char *text = NULL;
    size_t bytes = 0;
    (void)unused;
    FILE *memory = open_memstream(&text, &bytes);
    CHECK(memory != NULL && fprintf(memory, "%d and %s", 42, "more") > 0 && fflush(memory) == 0);
    CHECK(strcmp(text, "42 and more") == 0 && bytes == 11 && fclose(memory) == 0);
    free(text);
    FILE *none = tmpfile();
    CHECK(none != NULL && fputs("kept\n", none) >= 0 && fseek(none, 1, SEEK_SET) == 0 && getc(none) == 'e');
    CHECK(fclose(none) == 0);
    return NULL;
}

static void *writes_unflushed(void *file) {
    CHECK(fputs("unflushed\n", file) >= 0);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    snprintf(path, sizeof path, "%s/streams-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    all = fdopen(mkstemp(path), "w+");
    run_threads(threads, writes);
    rewind(all);
    run_threads(threads, reads);
    CHECK(lines == threads * LINES);
    rewind(all);
    run_threads(threads, reads_one);
    pthread_t thread;
    for (int i = 0; i < threads; i++) {
        void *opened = NULL;
        CHECK(pthread_create(&thread, NULL, opens, NULL) == 0 && pthread_join(thread, &opened) == 0 && opened);
        CHECK(getc(opened) == 'l' && fseek(opened, 0, SEEK_SET) == 0 && fputs("L", opened) >= 0);
        CHECK(pthread_create(&thread, NULL, closes, opened) == 0 && pthread_join(thread, NULL) == 0);
        opened = fopen(path, "r+");
        CHECK(getc(opened) == 'L' && fseek(opened, 0, SEEK_SET) == 0 && fputs("l", opened) >= 0);
        CHECK(fclose(opened) == 0);
    }
    run_threads(threads, in_memory);
    for (int i = 0; i < threads; i++) {
        FILE *file = fopen(path, "w");
        CHECK(pthread_create(&thread, NULL, writes_unflushed, file) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(ftell(file) == 10 && fflush(NULL) == 0 && fseek(all, 0, SEEK_END) == 0 && ftell(all) == 10);
        CHECK(fclose(file) == 0);
    }
    CHECK(fclose(all) == 0 && unlink(path) == 0);
    return verdict("streams");
}
