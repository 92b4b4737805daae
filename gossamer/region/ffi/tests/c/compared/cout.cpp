// cout: threads write to std::cout in turn, by string streams.
#include <condition_variable>
#include <iostream>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

static std::mutex m;
static std::condition_variable c;
static std::string all;
static int turn;

int main() {
    std::vector<std::thread> ts;
    for (int i = 0; i < 4; i++)
        ts.emplace_back([i] {
            std::unique_lock<std::mutex> g(m);
            c.wait(g, [i] { return turn == i; });
            std::ostringstream o;
            o << "thread " << i << " pi " << 3.14159 << "\n";
            all += o.str();
            std::cout << o.str() << std::flush;
            turn++;
            c.notify_all();
        });
    for (auto &t : ts)
        t.join();
    std::cout << all.size() << " end" << std::endl;
    return 0;
}
