// latch: a latch and a counting semaphore of C++20.
#include <cstdio>
#include <latch>
#include <barrier>
#include <semaphore>
#include <thread>
#include <vector>
#include <unistd.h>

static std::latch l(4);
static std::counting_semaphore<16> s(0);
static int done[4];
int main() {
    std::vector<std::thread> ts;
    for (int i = 0; i < 4; i++)
        ts.emplace_back([i] {
            usleep(50000 * i);
            done[i] = 1;
            l.arrive_and_wait();
            s.release();
        });
    for (int i = 0; i < 4; i++)
        s.acquire();
    for (auto &t : ts)
        t.join();
    printf("done %d\n", done[0] + done[1] + done[2] + done[3]);
    return 0;
}
