// anywhere: C++ threads go to other machines amid exceptions and destructors, as another thread asks; over machines,
// with `--move asked`. Arguments: machines and moves.
#include "gossamer_region.h"

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

std::atomic<int> is_over{0}, rounds{0}, failed{0};
thread_local long kept = 0;

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            failed++;                                                                    \
            std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
        }                                                                                \
    } while (0)

// An action of the last signal, from before `main`: the one for moves is another one, on all machines alike.
constexpr int last = 64;
std::atomic<int> came{0};
[[gnu::constructor]] void takes_last() {
    std::signal(last, [](int) { came++; });
}

struct Counted {
    long *count;
    explicit Counted(long *count) : count(count) { ++*count; }
    ~Counted() { --*count; }
};

[[gnu::noinline]] long spin(long turns) {
    volatile long sum = 0;
    for (long at = 0; at < turns; at++) {
        sum = sum + at;
    }
    return sum;
}

[[gnu::noinline]] void deep(int depth, long *count) {
    Counted here(count);
    if (depth == 0) {
        spin(2000);
        throw std::runtime_error("deep");
    }
    try {
        deep(depth - 1, count);
    } catch (const std::exception &) {
        spin(2000);
        throw; // the same one, on another machine perhaps
    }
}

void throws() {
    while (!is_over) {
        long count = 0;
        std::string what;
        try {
            deep(20, &count);
        } catch (const std::exception &error) {
            spin(5000);
            what = error.what();
        }
        CHECK(what == "deep" && count == 0 && std::uncaught_exceptions() == 0);
        kept++;
        std::vector<std::string> words(10, std::string(100, 'x'));
        spin(1000);
        CHECK(words.back().size() == 100);
        rounds++;
    }
    CHECK(kept > 0);
    CHECK(std::raise(last) == 0 && came == 1);
}

} // namespace

int main(int argc, char **argv) {
    const int machines = argc > 1 ? std::atoi(argv[1]) : 2, moves = argc > 2 ? std::atoi(argv[2]) : 100;
    std::thread thread(throws);
    for (int turn = 0; turn < moves; turn++) {
        int error = ETIMEDOUT; // where the host has much else to do
        for (int time = 0; time < 20 && error == ETIMEDOUT; time++) {
            error = gsm_thread_move_other(thread.native_handle(), turn % machines);
        }
        CHECK(error == 0);
    }
    const int so_far = rounds;
    while (rounds < so_far + 2) {
        std::this_thread::yield();
    }
    is_over = 1;
    thread.join();
    std::printf("anywhere: %s\n", failed ? "failed" : "ok");
    return failed != 0;
}
