// global_map: a global map that is filled before main, and grown by main and by a thread.
#include <thread>
#include <cstdio>
#include <map>
#include <string>

static std::map<std::string, int> table{{"one", 1}, {"two", 2}, {"three", 3}};
int main() {
    for (int i = 0; i < 100; i++)
        table["main" + std::to_string(i)] = i;
    std::thread t([] {
        for (int i = 0; i < 100; i++)
            table["thread" + std::to_string(i)] = i;
        table["one"] = 11;
    });
    t.join();
    long sum = 0;
    size_t n = 0;
    for (auto &e : table) {
        sum += e.second;
        n++;
    }
    std::printf("%s: %zu entries, counted %zu, one=%d, sum %ld\n",
                n == 203 && table.size() == 203 && table["one"] == 11 && sum == 9916 ? "right" : "WRONG", table.size(),
                n, table["one"], sum);
}
