// cxx_locks: the locks of C++17, counts of shared_ptr, and an exception that is handed to main.
#include <cstdio>
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::shared_mutex sm;
static std::timed_mutex tm_;
static std::mutex m;
static std::condition_variable cv;
static std::condition_variable_any cva;
static std::recursive_mutex rm;
static std::map<int, std::string> table;
static long n;
static int turn;
static std::exception_ptr ep;
int main() {
    const int T = 6;
    std::vector<std::thread> ts;
    auto sp = std::make_shared<long>(5);
    for (int i = 0; i < T; i++)
        ts.emplace_back([i, sp] {
            for (int k = 0; k < 40; k++) {
                {
                    std::unique_lock<std::shared_mutex> g(sm);
                    table[i * 100 + k] = "value " + std::to_string(k);
                }
                {
                    std::shared_lock<std::shared_mutex> g(sm);
                    if (table.empty())
                        abort();
                }
                while (!tm_.try_lock_for(std::chrono::milliseconds(50)))
                    ;
                n++;
                tm_.unlock();
                {
                    std::lock_guard<std::recursive_mutex> a(rm);
                    std::lock_guard<std::recursive_mutex> b(rm);
                    n++;
                    n--;
                }
                std::shared_ptr<long> copy = sp;
                std::weak_ptr<long> w = copy;
                if (!w.lock())
                    abort();
            }
            std::unique_lock<std::mutex> g(m);
            cv.wait(g, [i] { return turn == i; });
            turn++;
            cv.notify_all();
            cva.notify_all();
            if (i == 3) {
                g.unlock();
                try {
                    throw std::runtime_error("thrown on another machine, long enough to be allocated");
                } catch (...) {
                    ep = std::current_exception();
                }
            }
        });
    {
        std::unique_lock<std::mutex> g(m);
        cva.wait(g, [] { return turn == T; });
    }
    for (auto &t : ts)
        t.join();
    std::string what;
    try {
        std::rethrow_exception(ep);
    } catch (const std::exception &e) {
        what = e.what();
    }
    printf("table %zu n %ld uses %ld what %s\n", table.size(), n, sp.use_count(), what.c_str());
    return 0;
}
