// storage: thread-local objects of a library that is loaded while the program runs are made for each thread of all
// machines that asks for them, and destroyed with it. The library is the file PLUGIN.
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <thread>
#include <vector>

int main(int argc, char **argv) {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 4;
    void *library = dlopen(std::getenv("PLUGIN"), RTLD_NOW);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    const auto count = reinterpret_cast<int (*)()>(dlsym(library, "count"));
    const auto destroyed = reinterpret_cast<int (*)()>(dlsym(library, "destroyed_calls"));
    std::vector<int> counts(static_cast<unsigned>(threads));
    std::vector<std::thread> all;
    for (int number = 0; number < threads; number++) {
        all.emplace_back([&counts, count, number] {
            for (int i = 0; i <= number; i++) {
                counts[static_cast<unsigned>(number)] = count();
            }
        });
    }
    for (std::thread &thread : all) {
        thread.join();
    }
    int sum = 0;
    for (int number = 0; number < threads; number++) {
        sum += counts[static_cast<unsigned>(number)] == number + 1 ? number + 1 : 0;
    }
    const bool is_right = sum == threads * (threads + 1) / 2 && destroyed() == sum && count() == 1;
    std::printf("storage: %s\n", is_right ? "ok" : "failed");
    return !is_right;
}
