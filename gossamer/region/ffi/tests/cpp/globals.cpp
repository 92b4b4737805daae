/* globals: objects of a C++ program and of its library that are made before main are one for the threads of all
 * machines; their destructors see the threads' work. */
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::map<std::string, int> table{{"one", 1}, {"two", 2}, {"three", 3}};
static std::vector<std::string> lines{"a line that is too long for the object itself"};
static std::string word = "begun before main, and long enough for a block";
static std::mutex mutex;

struct Last {
    std::unique_ptr<int> count = std::make_unique<int>(0);
    ~Last() { std::printf("destroyed after %d\n", *count); }
};
static Last last;

static int length(const std::string &text) {
    if (text.empty()) {
        throw std::runtime_error("empty");
    }
    return static_cast<int>(text.size());
}

int main(int argc, char **argv) {
    const int threads = argc > 1 ? std::atoi(argv[1]) : 4;
    std::vector<std::thread> all;
    std::ostringstream said;
    for (int number = 0; number < threads; number++) {
        all.emplace_back([number, &said] {
            for (int i = 0; i < 100; i++) {
                std::lock_guard<std::mutex> guard(mutex);
                table["thread " + std::to_string(number) + " " + std::to_string(i)] = i;
                ++*last.count;
            }
            std::lock_guard<std::mutex> guard(mutex);
            lines.push_back(std::string(60, static_cast<char>('a' + number)));
            word += ", " + std::to_string(number);
            said << number << ' ';
            try {
                length("");
            } catch (const std::runtime_error &error) {
                lines.push_back(error.what());
            }
            const std::regex expression("t(h+)read ([0-9]+)");
            lines.push_back(std::regex_match("thread 17", expression) ? "matches" : "does not match");
            std::cout.precision(12); /* of the object that all share */
            std::cerr << "";
        });
    }
    for (std::thread &thread : all) {
        thread.join();
    }
    int sum = 0, matches = 0;
    for (const auto &entry : table) {
        sum += entry.second;
    }
    for (const std::string &line : lines) {
        matches += line == "matches";
    }
    const bool is_right = table.size() == 3 + 100u * static_cast<unsigned>(threads) && sum == 6 + threads * 4950 &&
                          lines.size() == 1 + 3u * static_cast<unsigned>(threads) && matches == threads &&
                          said.str().size() == 2u * static_cast<unsigned>(threads) && std::cout.precision() == 12 &&
                          std::locale().name() == "C";
    std::cout << "globals: " << (is_right ? "ok" : "failed") << std::endl;
    return !is_right;
}
