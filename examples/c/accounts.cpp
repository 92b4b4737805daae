// accounts: C++ objects entrusted to the workers of a pool; transfers between them from several threads.
//
//     c++ -std=c++17 accounts.cpp $(pkg-config --cflags --libs trust) -pthread && ./a.out
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <trust.hpp>
#include <vector>

namespace {

struct Account {
    explicit Account(long balance) : balance(balance) {}
    long balance;
    std::map<int, std::string> log;

    bool withdraw(long amount) {
        if (amount > balance) {
            return false;
        }
        balance -= amount;
        log[static_cast<int>(log.size())] = "out";
        return true;
    }
};

constexpr int accounts = 8, threads = 3, transfers = 2000;

} // namespace

int main() try {
    trust::Attached attached;
    trust::Pool pool(2);
    std::vector<trust::Trust<Account>> bank;
    for (std::size_t i = 0; i < accounts; i++) {
        bank.push_back(trust::entrust<Account>(pool.trustee(i % pool.workers()), 1000));
    }

    std::vector<std::thread> all;
    for (int number = 0; number < threads; number++) {
        all.emplace_back([&bank, number] {
            trust::Attached attached;
            unsigned random = static_cast<unsigned>(number);
            int done = 0, refused = 0;
            for (int i = 0; i < transfers; i++) {
                random = random * 1664525u + 1013904223u;
                long amount = random >> 8 & 63;
                const auto &from = bank[random >> 20 & 7], &to = bank[random >> 24 & 7];
                // The money is out when the callback is called, and goes on to the other account from there.
                from.apply_then([amount](Account &account) { return account.withdraw(amount); },
                                [&to, &done, &refused, amount](const trust::Outcome<bool> &out) {
                                    if (!out || !*out) {
                                        refused++;
                                        return;
                                    }
                                    to.apply_then([amount](Account &account) { account.balance += amount; },
                                                  [&done](const trust::Outcome<void> &) { done++; });
                                });
            }
            while (done + refused < transfers) {
                trust::check(trust_yield());
            }
        });
    }
    for (auto &thread : all) {
        thread.join();
    }

    long sum = 0, entries = 0;
    for (const auto &account : bank) {
        sum += account.apply([](Account &account) { return account.balance; });
        entries += account.apply([](Account &account) { return static_cast<long>(account.log.size()); });
    }

    // A latched one: lambdas launched on it may wait for other objects.
    auto total = trust::entrust<long, true>(pool.trustee(0), 0);
    trust_t first = bank[0].get();
    long seen = total.apply([first](long &total) {
        trust::Trust<Account> account(trust_clone(first));
        total += account.apply([](Account &account) { return account.balance; });
        return total;
    });
    bool refused = false;
    try {
        trust::entrust<int>(~trust_trustee{0}, 1);
    } catch (const trust::Error &error) {
        refused = error.status() == TRUST_GONE;
    }
    std::printf("%ld in all, %ld transfers\n", sum, entries);
    return sum == accounts * 1000 && seen == bank[0].apply([](Account &account) { return account.balance; }) && refused ? 0 : 1;
} catch (const trust::Error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
