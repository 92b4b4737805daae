// promise: a thread keeps a promise of main's.
#include <cstdio>
#include <future>
#include <thread>
#include <unistd.h>

int main() {
    std::promise<int> p;
    auto f = p.get_future();
    std::thread t([&p] {
        usleep(200000);
        p.set_value(7);
    });
    printf("got %d\n", f.get());
    t.join();
    return 0;
}
