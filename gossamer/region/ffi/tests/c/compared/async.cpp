// async: futures of std::async in threads of all machines: results, an exception, and waits with a time limit.
#include <cstdio>
#include <future>
#include <vector>
#include <stdexcept>
#include <string>
#include <unistd.h>

int main() {
    std::vector<std::future<long>> fs;
    for (int i = 0; i < 8; i++)
        fs.push_back(std::async(std::launch::async, [i] {
            usleep(20000 * i);
            if (i == 5)
                throw std::runtime_error("five has failed, and says so at some length");
            return (long)i * i;
        }));
    long sum = 0;
    std::string what;
    for (auto &f : fs)
        try {
            sum += f.get();
        } catch (const std::runtime_error &e) {
            what = e.what();
        }
    auto g = std::async(std::launch::async, [] {
        usleep(300000);
        return 1;
    });
    int waited = 0;
    while (g.wait_for(std::chrono::milliseconds(2000)) != std::future_status::ready && waited < 3)
        waited++;
    printf("sum %ld what '%s' waited %d\n", sum, what.c_str(), waited);
    return 0;
}
