/* libc: functions of the C library that allocate or keep things, in threads of all machines. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <search.h>
#include <regex.h>
#include <wchar.h>
#include <locale.h>

static int cmp(const void *a, const void *b) {
    return *(int *)a - *(int *)b;
}

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static char *out[8];
static long bad;
static void *run(void *x) {
    long id = (long)x;
    int *v = malloc(400000);
    unsigned s = id + 1;
    for (int i = 0; i < 100000; i++)
        v[i] = rand_r(&s) % 1000000;
    qsort(v, 100000, 4, cmp);
    for (int i = 1; i < 100000; i++)
        if (v[i - 1] > v[i])
            bad++;
    free(v);
    char *buf = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&buf, &len);
    for (int i = 0; i < 1000; i++)
        fprintf(f, "%d,%f;", i, i * 0.5);
    fclose(f);
    FILE *g = fmemopen(buf, len, "r");
    char *line = NULL;
    size_t n = 0;
    ssize_t got = getdelim(&line, &n, ';', g);
    long items = 0;
    while (got > 0) {
        items++;
        got = getdelim(&line, &n, ';', g);
    }
    fclose(g);
    free(line);
    if (items != 1000)
        bad++;
    char name[] = "/tmp/libc-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    FILE *h = fdopen(fd, "w+");
    fwrite(buf, 1, len, h);
    rewind(h);
    char *back = malloc(len);
    if (fread(back, 1, len, h) != len || memcmp(back, buf, len))
        bad++;
    fclose(h);
    free(back);
    free(buf);
    char *a;
    if (asprintf(&a, "thread %ld done", id) < 0)
        bad++;
    regex_t r;
    if (regcomp(&r, "t(h+)read ([0-9]+)", REG_EXTENDED) || regexec(&r, a, 0, NULL, 0))
        bad++;
    regfree(&r);
    struct tm tm;
    time_t t0 = 86400;
    gmtime_r(&t0, &tm);
    if (tm.tm_mday != 2)
        bad++;
    errno = 0;
    if (read(-1, name, 1) != -1 || errno != EBADF)
        bad++;
    void *tree = NULL;
    int keys[50];
    for (int i = 0; i < 50; i++) {
        keys[i] = (i * 7) % 50;
        tsearch(&keys[i], &tree, cmp);
    }
    for (int i = 0; i < 50; i++)
        tdelete(&keys[i], &tree, cmp);
    pthread_mutex_lock(&m);
    out[id] = a;
    pthread_mutex_unlock(&m);
    return NULL;
}

int main(void) {
    pthread_t t[8];
    for (long i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, run, (void *)i);
    for (int i = 0; i < 8; i++)
        pthread_join(t[i], NULL);
    for (int i = 0; i < 8; i++) {
        puts(out[i]);
        free(out[i]);
    }
    printf("bad %ld\n", bad);
    return 0;
}
