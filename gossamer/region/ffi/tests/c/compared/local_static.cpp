// local_static: a singleton that all threads ask for at once; its constructor takes 300 ms.
#include <cstdio>
#include <thread>
#include <vector>
#include <atomic>
#include <unistd.h>

struct Slow {
    int v;
    Slow() {
        usleep(300000);
        v = 42;
    }
};
static Slow &instance() {
    static Slow s;
    return s;
}

static std::atomic<int> ready, sum;
int main() {
    std::vector<std::thread> ts;
    for (int i = 0; i < 4; i++)
        ts.emplace_back([] {
            ready++;
            while (ready < 4)
                usleep(1000);
            sum += instance().v;
        });
    for (auto &t : ts)
        t.join();
    printf("sum %d\n", sum.load());
    return 0;
}
