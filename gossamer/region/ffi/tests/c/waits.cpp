// waits: functions of C++ by which a thread waits for another one, none of them POSIX's.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <latch>
#include <mutex>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

static int threads = 4;
static std::atomic<int> failed;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            failed++;                                                                              \
            std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);    \
        }                                                                                          \
    } while (0)

// All threads begin together.
template <typename Body> static void each(Body body) {
    static std::atomic<int> ready;
    ready = 0;
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++) {
        all.emplace_back([i, body] {
            for (ready++; ready < threads;) {
                std::this_thread::yield();
            }
            body(i);
        });
    }
    for (auto &thread : all) {
        thread.join();
    }
}

static std::atomic<int> made, refused;

struct Slow {
    int value;
    Slow() {
        std::this_thread::sleep_for(50ms);
        if (refused++ < 2) {
            throw std::runtime_error("not yet");
        }
        made++;
        value = 42;
    }
};

static Slow &instance() {
    static Slow slow;
    return slow;
}

// A function's static is made once; where its constructor throws, the next thread makes it.
static void statics() {
    static std::atomic<int> caught;
    each([](int) {
        for (;;) {
            try {
                CHECK(instance().value == 42);
                return;
            } catch (const std::runtime_error &error) {
                CHECK(std::string(error.what()) == "not yet");
                caught++;
            }
        }
    });
    CHECK(made == 1 && caught == 2);
}

static std::once_flag once;
static std::atomic<int> calls;

static void calls_once() {
    static std::atomic<int> caught;
    each([](int) {
        for (;;) {
            try {
                std::call_once(once, [] {
                    std::this_thread::sleep_for(20ms);
                    if (++calls < 3) {
                        throw std::runtime_error("once more");
                    }
                });
                CHECK(calls == 3);
                return;
            } catch (const std::runtime_error &) {
                caught++;
            }
        }
    });
    CHECK(calls == 3 && caught == 2);
}

static std::atomic<int> turn;
static std::atomic<long> wide;

static void atomics() {
    enum { ROUNDS = 50 };
    each([](int own) {
        for (int round = 0; round < ROUNDS; round++) {
            for (int now = turn; now != round * threads + own; now = turn) {
                turn.wait(now);
            }
            turn++;
            turn.notify_all();
        }
    });
    CHECK(turn == ROUNDS * threads);
    each([](int own) {
        for (long now = wide; now != own; now = wide) {
            wide.wait(now);
        }
        wide++;
        wide.notify_all();
    });
    CHECK(wide == threads);
}

static void futures() {
    std::promise<std::string> promise;
    std::shared_future<std::string> shared = promise.get_future().share();
    std::vector<std::future<long>> all;
    for (int i = 0; i < threads; i++) {
        all.push_back(std::async(std::launch::async, [i, shared] {
            if (i == 1) {
                throw std::runtime_error("one has failed, and says so at some length");
            }
            return static_cast<long>(shared.get().size()) + i;
        }));
    }
    CHECK(all[0].wait_for(20ms) == std::future_status::timeout);
    std::thread([&promise] { promise.set_value("eight..."); }).join();
    long sum = 0;
    std::string told;
    for (auto &one : all) {
        try {
            sum += one.get();
        } catch (const std::runtime_error &error) {
            told = error.what();
        }
    }
    CHECK(sum == 8L * (threads - 1) + threads * (threads - 1) / 2 - 1);
    CHECK(told == "one has failed, and says so at some length");
    std::packaged_task<int(int)> task([](int number) { return number + 1; });
    auto answer = task.get_future();
    std::thread(std::move(task), 6).join();
    CHECK(answer.get() == 7);
}

static void meetings() {
    enum { ROUNDS = 30 };
    static std::latch latch(threads);
    static std::counting_semaphore<64> done(0);
    static std::binary_semaphore one(1);
    static std::atomic<long> phases;
    static long sum;
    static std::vector<long> cells(threads);
    auto next = []() noexcept { phases++; };
    static std::barrier barrier(threads, next);
    each([](int own) {
        latch.arrive_and_wait();
        for (int round = 0; round < ROUNDS; round++) {
            cells[own] = round;
            barrier.arrive_and_wait();
            for (long cell : cells) {
                CHECK(cell == round);
            }
            one.acquire();
            sum++;
            one.release();
            barrier.arrive_and_wait();
        }
        done.release();
    });
    for (int i = 0; i < threads; i++) {
        done.acquire();
    }
    CHECK(!done.try_acquire_for(5ms));
    CHECK(sum == static_cast<long>(ROUNDS) * threads && phases == 2 * ROUNDS);
}

int main(int argc, char **argv) {
    threads = argc > 1 ? std::atoi(argv[1]) : threads;
    if (argc > 2 || threads < 2 || threads > 64) {
        std::fprintf(stderr, "usage: %s [THREADS], from 2 to 64\n", argv[0]);
        return 2;
    }
    statics();
    calls_once();
    atomics();
    futures();
    meetings();
    std::printf("waits: %s\n", failed ? "failed" : "ok");
    return failed != 0;
}
