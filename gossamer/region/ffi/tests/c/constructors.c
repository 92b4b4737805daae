/* constructors: memory, keys, locks and settings that constructors make before main are one for the threads of all
 * machines; constructors run once, and destructors see the threads' work. */
#include "verdict.h"

#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <wchar.h>

/* Upper bits of the addresses of their blocks, where there are several machines. */
enum { MAPPED = 3 * 4096, OF_CONSTRUCTORS = 0x18 };

struct list {
    struct list *next;
    int number;
};

static int *settings, *mapped, constructed;
static char *text, own[PATH_MAX + 64];
static struct list *list;
static _Thread_local int local = 1;
static pthread_key_t key;
static sem_t semaphore;
static pthread_barrier_t barrier;
static pthread_mutex_t recursive;
static atomic_int taken;

static void take(int signal) {
    (void)signal;
    taken = 1;
}

static void end(void *value) {
    __atomic_fetch_add((int *)value, 1, __ATOMIC_SEQ_CST);
}

__attribute__((constructor)) static void construct(int argc, char **argv) {
    const char *folder = getenv("TMPDIR"), *name = argc > 0 ? strrchr(argv[0], '/') : NULL;
    snprintf(own, sizeof own, "%s/%s-%d", folder ? folder : "/tmp", name ? name + 1 : "program", (int)getppid());
    int file = open(own, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(file >= 0 && close(file) == 0);
    constructed++;
    settings = calloc(4, sizeof *settings);
    settings[0] = 1;
    text = strdup("a text that is longer than a few bytes");
    mapped = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    mapped[1] = 5;
    for (int i = 0; i < 1000; i++) {
        struct list *one = malloc(sizeof *one);
        *one = (struct list){.next = list, .number = i};
        list = one;
    }
    free(malloc(100000));
    local = 7;
    CHECK(pthread_key_create(&key, end) == 0 && pthread_setspecific(key, &settings[3]) == 0);
    CHECK(sem_init(&semaphore, 0, 2) == 0 && sem_wait(&semaphore) == 0 && sem_post(&semaphore) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
    pthread_mutexattr_t attributes;
    CHECK(pthread_mutexattr_init(&attributes) == 0);
    CHECK(pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE) == 0);
    CHECK(pthread_mutex_init(&recursive, &attributes) == 0 && pthread_mutexattr_destroy(&attributes) == 0);
    CHECK(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_unlock(&recursive) == 0);
    CHECK(setenv("CONSTRUCTED", "yes", 1) == 0);
    char *chosen = setlocale(LC_ALL, "C.UTF-8");
    CHECK(chosen != NULL && strcmp(chosen, "C.UTF-8") == 0);
    /* New threads read the locale, also while blocks of constructors become shared: it is none of them. */
    locale_t used = duplocale(LC_GLOBAL_LOCALE);
    CHECK(used != NULL && (uintptr_t)used->__locales[LC_CTYPE] >> 40 != OF_CONSTRUCTORS);
    freelocale(used);
    umask(027);
    struct sigaction action = {.sa_handler = take};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
}

static atomic_int ended;

/* The last: threads have counted up. */
__attribute__((destructor)) static void destruct(void) {
    if (settings[1] != threads || ended != 1 || strcmp(text, "changed by a thread, and much longer than before") != 0) {
        fprintf(stderr, "constructors: the destructor finds %d, %d and %s\n", settings[1], ended, text);
        _exit(9);
    }
    free(settings);
    free(text);
}

static void at_end(void) {
    ended = 1;
}

static void *work(void *number) {
    wchar_t wide[8];
    CHECK(settings[0] == 2 && mapped[1] == 6 && local == 1);
    CHECK(pthread_getspecific(key) == NULL && pthread_setspecific(key, &settings[2]) == 0);
    CHECK(mbstowcs(wide, "\xc3\xa9t\xc3\xa9", 8) == 3);
    CHECK(umask(027) == 027);
    CHECK(raise(SIGUSR1) == 0);
    CHECK(getenv("CONSTRUCTED") != NULL && strcmp(getenv("CONSTRUCTED"), "yes") == 0);
    CHECK(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_lock(&recursive) == 0);
    settings[1]++;
    int sum = 0;
    for (struct list *one = list; one != NULL; one = one->next) {
        sum += one->number;
    }
    CHECK(sum == 999 * 500);
    /* Each takes one off the list and puts one on. */
    struct list *one = list;
    list = one->next;
    int value = one->number;
    free(one);
    one = malloc(sizeof *one);
    *one = (struct list){.next = list, .number = value};
    list = one;
    CHECK(pthread_mutex_unlock(&recursive) == 0 && pthread_mutex_unlock(&recursive) == 0);
    if ((intptr_t)number == 0) {
        text = realloc(text, 100);
        strcpy(text, "changed by a thread, and much longer than before");
    }
    CHECK(sem_wait(&semaphore) == 0 && sem_post(&semaphore) == 0);
    return NULL;
}

static void *meet(void *number) {
    (void)number;
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    CHECK(unlink(own) == 0);
    CHECK(constructed == 1 && local == 7 && pthread_getspecific(key) == &settings[3]);
    CHECK(pthread_setspecific(key, NULL) == 0);
    CHECK(atexit(at_end) == 0);
    settings[0] = 2;
    mapped[1]++;
    run_threads(threads, work);
    run_threads(2, meet);
    int value = -1;
    CHECK(settings[1] == threads && settings[2] == threads);
    CHECK(sem_getvalue(&semaphore, &value) == 0 && value == 2);
    CHECK(munmap(mapped, MAPPED) == 0);
    while (list != NULL) {
        struct list *next = list->next;
        free(list);
        list = next;
    }
    return verdict("constructors");
}
