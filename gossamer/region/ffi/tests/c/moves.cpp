// moves: C++ of threads that go on on other machines: exceptions under way, thread_local objects, static variables.
#include "gossamer_region.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

static std::atomic<int> failed{0}, made{0}, destroyed{0}, destroyed_on{-1};
static int machines = 2;

#define CHECK(condition)                                                                   \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            failed++;                                                                      \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
        }                                                                                  \
    } while (0)

static void move() {
    int to = (gsm_thread_machine() + 1) % machines;
    CHECK(gsm_thread_move(to) == 0 && gsm_thread_machine() == to);
}

struct Object {
    std::string text = "an object of the thread, longer than a short string";
    Object() { made++; }
    ~Object() {
        destroyed++;
        destroyed_on = gsm_thread_machine();
        // It ends: it stays.
        CHECK(gsm_thread_move((gsm_thread_machine() + 1) % machines) == EBUSY);
    }
};

static thread_local Object object;

struct Counts {
    int *count;
    ~Counts() { ++*count; }
};

static int rethrown() {
    int unwound = 0;
    try {
        Counts counts{&unwound};
        try {
            throw std::runtime_error("seven");
        } catch (std::exception &error) {
            move();
            CHECK(std::string(error.what()) == "seven" && std::uncaught_exceptions() == 0);
            move();
            throw;
        }
    } catch (std::runtime_error &error) {
        move();
        return unwound == 1 && std::string(error.what()) == "seven" ? 7 : 2;
    }
    return 3;
}

struct MovesAmidUnwinding {
    int *at;
    ~MovesAmidUnwinding() {
        CHECK(std::uncaught_exceptions() == 1);
        move();
        *at = std::uncaught_exceptions();
    }
};

static const std::string &made_once() {
    static const std::string text = [] {
        move();
        return std::string("made on the way");
    }();
    return text;
}

static void run() {
    CHECK(object.text.size() > 30);
    std::string *text = &object.text;
    CHECK(rethrown() == 7);
    int uncaught = -1;
    try {
        MovesAmidUnwinding moves{&uncaught};
        throw 5;
    } catch (int five) {
        CHECK(five == 5 && uncaught == 1);
    }
    move();
    CHECK(text == &object.text && object.text == "an object of the thread, longer than a short string");
    CHECK(made_once() == "made on the way");
    std::ostringstream out;
    out << 2.5 << ' ' << std::string(3, 'x');
    move();
    out << ' ' << 7;
    CHECK(out.str() == "2.5 xxx 7");
    std::atexit([] { puts("registered elsewhere"); });
}

int main(int argc, char **argv) {
    machines = argc > 1 ? atoi(argv[1]) : machines;
    for (int round = 0; round < machines; round++) {
        int so_far = destroyed;
        std::thread thread(run);
        thread.join();
        CHECK(made == so_far + 1 && destroyed == so_far + 1);
    }
    printf("moves: %s\n", failed ? "failed" : "ok");
    return failed != 0;
}
