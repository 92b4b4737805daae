// storage_plugin: a library with a thread-local object, which `storage` loads.
#include <atomic>
#include <stdexcept>
#include <string>

static std::atomic<int> destroyed{0};

struct Counted {
    std::string text = "a text that is too long for the object itself";
    int calls = 0;
    ~Counted() { destroyed += calls; }
};

static thread_local Counted counted;

// Returns the number of calls by the calling thread so far.
extern "C" int count() {
    try {
        counted.text += '.';
        throw std::runtime_error(counted.text);
    } catch (const std::runtime_error &error) {
        counted.calls += std::string(error.what()).size() == 46u + static_cast<unsigned>(counted.calls);
    }
    return counted.calls;
}

// Returns the number of calls by threads that have ended.
extern "C" int destroyed_calls() { return destroyed; }
