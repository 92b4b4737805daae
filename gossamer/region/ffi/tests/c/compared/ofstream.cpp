// ofstream: threads write to a file stream that main has opened, and main reads all lines.
#include <fstream>
#include <iostream>
#include <mutex>
#include <stdlib.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

int main() {
    char name[] = "/tmp/ofstream-XXXXXX";
    close(mkstemp(name));
    std::ofstream f(name);
    std::mutex m;
    std::vector<std::thread> t;
    for (int i = 0; i < 4; i++)
        t.emplace_back([&, i] {
            for (int k = 0; k < 500; k++) {
                std::lock_guard l(m);
                f << "thread " << i << " line " << k << "\n";
            }
        });
    for (auto &x : t)
        x.join();
    f.close();
    std::ifstream g(name);
    unlink(name);
    std::string s;
    long n = 0, letters = 0;
    while (std::getline(g, s)) {
        n++;
        letters += s.size();
    }
    std::cout << n << " lines of 2000, " << letters << " letters\n";
}
