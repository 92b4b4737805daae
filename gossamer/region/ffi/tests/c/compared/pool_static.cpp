// pool_static: a pool of threads in a static of a function; its destructor joins them at exit.
#include <cstdio>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

struct Pool {
    std::mutex m;
    std::condition_variable cv;
    std::deque<std::function<void()>> q;
    bool stop = false;
    std::vector<std::thread> ts;
    long done = 0;
    Pool() {
        for (int i = 0; i < 3; i++)
            ts.emplace_back([this] {
                for (;;) {
                    std::function<void()> f;
                    {
                        std::unique_lock<std::mutex> g(m);
                        cv.wait(g, [this] { return stop || !q.empty(); });
                        if (q.empty())
                            return;
                        f = std::move(q.front());
                        q.pop_front();
                    }
                    f();
                    std::lock_guard<std::mutex> g(m);
                    done++;
                }
            });
    }
    void run(std::function<void()> f) {
        {
            std::lock_guard<std::mutex> g(m);
            q.push_back(std::move(f));
        }
        cv.notify_one();
    }
    ~Pool() {
        {
            std::lock_guard<std::mutex> g(m);
            stop = true;
        }
        cv.notify_all();
        for (auto &t : ts)
            t.join();
        printf("pool done %ld\n", done);
        fflush(stdout);
    }
};
static Pool &pool() {
    static Pool p;
    return p;
}

int main() {
    for (int i = 0; i < 100; i++)
        pool().run([i] {
            volatile int x = i;
            (void)x;
        });
    printf("main ends\n");
    return 3;
}
