// atexit_of_threads: handlers at exit and static objects that threads have registered run at the end, once.
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

struct Log {
    long n = 0;
    ~Log() {
        printf("log of %ld entries is written\n", n);
        fflush(stdout);
    }
};
static Log &log_() {
    static Log l;
    return l;
}

int main() {
    std::thread a([] {
        log_().n += 5;
        atexit([] {
            printf("registered by a thread\n");
            fflush(stdout);
        });
    });
    a.join();
    log_().n += 5;
    return 0;
}
