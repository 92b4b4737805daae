// iostream: threads write to std::cout and to a file that main has opened, and read std::cin, in order.
#include <fstream>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

static std::mutex mutex;

int main(int, char **argv) {
    std::ofstream file(argv[1]);
    std::cout << "begins ";
    for (int i = 0; i < 6; i++) {
        std::thread([&, i] {
            int value = 0;
            std::cin >> value;
            std::cout << "thread " << i << " has " << value << (i % 2 ? "\n" : ", ");
        }).join();
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
        threads.emplace_back([&, i] {
            for (int line = 0; line < 500; line++) {
                std::lock_guard<std::mutex> lock(mutex);
                file << "thread " << i << " line " << line << "\n";
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    file.close();
    std::ifstream written(argv[1]);
    std::string line;
    int lines = 0;
    while (std::getline(written, line)) {
        lines++;
    }
    std::cout << lines << " lines" << std::endl;
}
