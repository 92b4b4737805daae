// thread_local_counts: destructors of thread_local objects add to a sum before their threads are joined.
#include <cstdio>
#include <unistd.h>
#include <mutex>
#include <thread>
#include <vector>

static std::mutex m;
static long total;
static int ended;
struct Local {
    long n = 0;
    ~Local() {
        usleep(20000);
        std::lock_guard<std::mutex> g(m);
        total += n;
        ended++;
    }
};
static thread_local Local local_count;
int main() {
    std::vector<std::thread> ts;
    for (int i = 0; i < 6; i++)
        ts.emplace_back([] {
            for (int k = 0; k < 1000; k++)
                local_count.n++;
        });
    for (auto &t : ts)
        t.join();
    std::lock_guard<std::mutex> g(m);
    printf("total %ld ended %d\n", total, ended);
    return 0;
}
