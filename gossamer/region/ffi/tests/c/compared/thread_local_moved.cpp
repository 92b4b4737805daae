// thread_local_moved: destructors of thread_local vectors move their strings to a list of all.
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>
#include <string>

static std::mutex m;
static std::vector<std::string> *all;
struct Local {
    std::vector<std::string> v;
    ~Local() {
        std::lock_guard<std::mutex> g(m);
        for (auto &s : v)
            all->push_back(s + " which is long enough to be allocated");
    }
};
static thread_local Local l;
int main() {
    all = new std::vector<std::string>;
    std::vector<std::thread> ts;
    for (int i = 0; i < 4; i++)
        ts.emplace_back([i] {
            for (int k = 0; k < 50; k++)
                l.v.push_back("thread " + std::to_string(i) + " item " + std::to_string(k));
        });
    for (auto &t : ts)
        t.join();
    long chars = 0;
    for (auto &s : *all)
        chars += s.size();
    printf("%zu strings %ld chars\n", all->size(), chars);
    return 0;
}
