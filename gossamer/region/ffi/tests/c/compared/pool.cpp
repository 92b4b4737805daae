// pool: a pool of threads with a queue of closures, shared pointers and exceptions.
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <stdexcept>
#include <thread>
#include <cstdio>
#include <string>
#include <unordered_map>

int main() {
    std::mutex m;
    std::condition_variable cv;
    std::queue<std::function<void()>> q;
    bool end = false;
    std::vector<std::thread> t;
    std::unordered_map<std::string, std::shared_ptr<int>> out;
    int caught = 0;
    for (int i = 0; i < 4; i++)
        t.emplace_back([&] {
            for (;;) {
                std::function<void()> f;
                {
                    std::unique_lock l(m);
                    cv.wait(l, [&] { return end || !q.empty(); });
                    if (q.empty())
                        return;
                    f = q.front();
                    q.pop();
                }
                try {
                    f();
                } catch (const std::runtime_error &e) {
                    std::lock_guard l(m);
                    caught++;
                }
            }
        });
    for (int i = 0; i < 200; i++) {
        std::lock_guard l(m);
        q.push([&, i] {
            if (i % 50 == 0)
                throw std::runtime_error("x" + std::to_string(i));
            auto p = std::make_shared<int>(i);
            std::lock_guard l(m);
            out[std::to_string(i)] = p;
        });
        cv.notify_one();
    }
    {
        std::lock_guard l(m);
        end = true;
    }
    cv.notify_all();
    for (auto &x : t)
        x.join();
    long s = 0;
    for (auto &e : out)
        s += *e.second;
    std::printf("%s: %zu %ld caught %d\n", out.size() == 196 && caught == 4 && s == 19600 ? "right" : "WRONG",
                out.size(), s, caught);
}
