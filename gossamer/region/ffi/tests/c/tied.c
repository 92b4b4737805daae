/* tied: each reason for which a thread stays on its machine; the argument names one. The error is EBUSY, and a message
 * says to what the thread is tied. Prints "tied: ok", if the thread goes once the reason is gone. */
#include "verdict.h"

#include "gossamer_region.h"

#include <dlfcn.h>
#include <iconv.h>
#include <link.h>
#include <langinfo.h>
#include <locale.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

static const char *reason, *path;

static int is(const char *one) { return strcmp(reason, one) == 0; }

static int other(void) { return 1 - gsm_thread_machine(); }

static void tied(void) {
    int machine = gsm_thread_machine();
    CHECK(gsm_thread_move(other()) == EBUSY && gsm_thread_machine() == machine);
}

static void goes(void) {
    int to = other();
    CHECK(gsm_thread_move(to) == 0 && gsm_thread_machine() == to);
}

static void on_signal(int signal) {
    (void)signal;
    tied();
}

/* A handler of a fault, on the thread's stack for signals. */
static sigjmp_buf back;

static void on_fault(int signal) {
    (void)signal;
    tied();
    siglongjmp(back, 1);
}

static void faults(void) {
    static char *volatile nowhere;
    stack_t signals = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    struct sigaction action = {.sa_handler = on_fault, .sa_flags = SA_ONSTACK}, found;
    CHECK(sigaltstack(&signals, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
    CHECK(sigaction(SIGSEGV, NULL, &found) == 0 && found.sa_handler == on_fault);
    if (!sigsetjmp(back, 1)) {
        *nowhere = 1;
    }
}

/* Names by which the C++ library calls them. */
extern locale_t __newlocale(int mask, const char *name, locale_t base);
extern locale_t __duplocale(locale_t locale);
extern void __freelocale(locale_t locale);

/* Makes locales and a conversion, in each way, and frees them. */
static void makes_locales(void) {
    locale_t own = newlocale(LC_ALL_MASK, "C.UTF-8", NULL);
    CHECK(own && strcmp(nl_langinfo_l(CODESET, own), "UTF-8") == 0);
    tied();
    own = newlocale(LC_NUMERIC_MASK, "C", own); /* the same, or another in its place */
    CHECK(own && newlocale(LC_ALL_MASK, "no such locale", own) == NULL);
    locale_t other = duplocale(own);
    tied();
    freelocale(own);
    tied();
    CHECK(other && strcmp(nl_langinfo_l(CODESET, other), "UTF-8") == 0);
    freelocale(other);
    own = __newlocale(LC_ALL_MASK, "C.UTF-8", NULL);
    other = __duplocale(own);
    freelocale(own);
    tied();
    __freelocale(other);
    freelocale(newlocale(LC_ALL_MASK, "C", NULL));
    CHECK(newlocale(LC_ALL_MASK, "C", NULL) != NULL); /* it is the same everywhere */
}

static void makes_conversion(void) {
    char from[] = "h\xc3\xa9llo", to[16], *in = from, *out = to;
    size_t left = 6, room = sizeof to;
    iconv_t conversion = iconv_open("ISO-8859-1", "UTF-8");
    CHECK(conversion != (iconv_t)-1 && iconv_open("no such", "UTF-8") == (iconv_t)-1);
    tied();
    CHECK(iconv(conversion, &in, &left, &out, &room) == 0 && to[1] == '\xe9' && iconv_close(conversion) == 0);
}

/* Called by the C library, which holds a lock; and by one that sorts, which holds none. */
static int on_object(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)info, (void)size, (void)argument;
    tied();
    return 1;
}

static int compare(const void *one, const void *other) {
    goes();
    return *(const int *)one - *(const int *)other;
}

static void is_called_back(void) {
    int numbers[] = {3, 1, 2};
    CHECK(dl_iterate_phdr(on_object, NULL) == 1);
    qsort(numbers, 3, sizeof *numbers, compare);
    CHECK(numbers[0] == 1 && numbers[1] == 2 && numbers[2] == 3);
    int two = 2;
    CHECK(bsearch(&two, numbers, 3, sizeof *numbers, compare) == numbers + 1);
}

static pthread_key_t key;

static void gone(void *value) {
    (void)value;
    tied();
}

static char *top;

/* A stack has its guard where its thread is: the overflow ends there, and does not go on in other memory. */
static void on_overflow(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    long below = top - (char *)info->si_addr;
    int is_at_guard = below > 7 << 20 && below < (8 << 20) + 8192;
    const char *told = is_at_guard ? "tied: ok\n" : "tied: failed\n";
    _exit(write(STDOUT_FILENO, told, strlen(told)) < 0 || !is_at_guard);
}

/* Overflows the stack. */
__attribute__((noinline)) static int falls(volatile char *above) {
    volatile char bytes[1024];
    bytes[0] = *above;
    if (bytes[0] == 0) {
        return 0;
    }
    return falls(bytes) + bytes[0];
}

static void *run(void *unused) {
    (void)unused;
    if (is("overflow_unhandled")) {
        goes();
        volatile char first = 1;
        return (void *)(long)falls(&first);
    }
    if (is("overflow")) {
        stack_t signals = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
        struct sigaction action = {.sa_sigaction = on_overflow, .sa_flags = SA_SIGINFO | SA_ONSTACK};
        CHECK(sigaltstack(&signals, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
        goes();
        volatile char first = 1;
        top = (char *)&first;
        return (void *)(long)falls(&first);
    }
    if (is("hold")) {
        gsm_thread_hold();
        tied();
        gsm_thread_free();
    } else if (is("handler")) {
        raise(SIGUSR1);
    } else if (is("end")) {
        pthread_setspecific(key, &key);
    } else if (is("locale")) {
        locale_t own = newlocale(LC_ALL_MASK, "C", NULL);
        uselocale(own);
        tied();
        uselocale(LC_GLOBAL_LOCALE);
        freelocale(own);
    } else if (is("made_locale")) {
        makes_locales();
    } else if (is("conversion")) {
        makes_conversion();
    } else if (is("callback")) {
        is_called_back();
    } else if (is("fault")) {
        faults();
        return NULL; /* as after another handler that was left */
    } else if (is("processors")) {
        cpu_set_t all, one;
        CHECK(pthread_getaffinity_np(pthread_self(), sizeof all, &all) == 0);
        CPU_ZERO(&one);
        CPU_SET(0, &one);
        CHECK(pthread_setaffinity_np(pthread_self(), sizeof one, &one) == 0);
        tied();
        CHECK(pthread_setaffinity_np(pthread_self(), sizeof all, &all) == 0);
    } else if (is("policy")) {
        struct sched_param none = {0};
        CHECK(pthread_setschedparam(pthread_self(), SCHED_BATCH, &none) == 0);
        tied();
        CHECK(pthread_setschedparam(pthread_self(), SCHED_OTHER, &none) == 0);
    } else if (is("user")) {
        CHECK(setuid(getuid()) == -1 && errno == ENOTSUP);
    } else if (is("library")) {
        CHECK(dlopen("libz.so.1", RTLD_NOW) || dlopen("libzstd.so.1", RTLD_NOW) || dlopen("liblzma.so.5", RTLD_NOW));
        tied();
        return NULL;
    } else if (is("constructor")) {
        if (gsm_thread_machine() != 0) {
            goes(); /* there the thread itself loads */
        }
        void *library = dlopen(path, RTLD_NOW);
        int *asked = library ? dlsym(library, "loaded_asked") : NULL;
        CHECK(asked && *asked == EBUSY && gsm_thread_machine() == 0);
        _exit(verdict("tied") || fflush(stdout));
    } else if (is("no_library")) {
        CHECK(dlopen("./no such library", RTLD_NOW) == NULL);
    }
    goes();
    goes();
    return NULL;
}

int main(int argc, char **argv) {
    reason = argc > 1 ? argv[1] : "";
    path = argc > 2 ? argv[2] : "";
    CHECK(pthread_key_create(&key, gone) == 0 && signal(SIGUSR1, on_signal) != SIG_ERR);
    if (is("main")) {
        tied();
        return verdict("tied");
    }
    for (int round = 0; round < 2; round++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, run, NULL) == 0 && pthread_join(thread, NULL) == 0);
    }
    return verdict("tied");
}
