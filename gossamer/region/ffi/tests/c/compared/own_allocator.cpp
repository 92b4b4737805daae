/* own_allocator: a program with an allocator of its own, also by the C library's inner names, as mimalloc has them; its
 * first block makes a key, and sets its value. Libraries allocate before it, in their constructors. */
#include <cstdio>
#include <cstring>
#include <pthread.h>
#include <string>
#include <thread>
#include <vector>

alignas(4096) static unsigned char memory[64 << 20];
static size_t used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t key;
static bool has_key;

/* A block with its size before it; none is used again. */
static void *take(size_t align, size_t bytes) {
    pthread_mutex_lock(&lock);
    if (!has_key) {
        has_key = true;
        pthread_key_create(&key, nullptr);
        pthread_setspecific(key, memory);
    }
    size_t least = align < 16 ? 16 : align;
    size_t start = (used + 16 + least - 1) / least * least;
    used = start + bytes;
    pthread_mutex_unlock(&lock);
    if (start + bytes > sizeof memory)
        return nullptr;
    memcpy(memory + start - 16, &bytes, sizeof bytes);
    return memory + start;
}

static void *again(void *block, size_t bytes) {
    void *grown = take(16, bytes);
    size_t had = 0;
    if (block && grown) {
        memcpy(&had, (unsigned char *)block - 16, sizeof had);
        memcpy(grown, block, had < bytes ? had : bytes);
    }
    return grown;
}

extern "C" {
void *malloc(size_t bytes) { return take(16, bytes); }
void *calloc(size_t count, size_t bytes) { return take(16, count * bytes); }
void *realloc(void *block, size_t bytes) { return again(block, bytes); }
void free(void *) {}
void *memalign(size_t align, size_t bytes) { return take(align, bytes); }
void *aligned_alloc(size_t align, size_t bytes) { return take(align, bytes); }
int posix_memalign(void **block, size_t align, size_t bytes) {
    *block = take(align, bytes);
    return 0;
}
void *__libc_malloc(size_t bytes) { return take(16, bytes); }
void *__libc_calloc(size_t count, size_t bytes) { return take(16, count * bytes); }
void *__libc_realloc(void *block, size_t bytes) { return again(block, bytes); }
void *__libc_memalign(size_t align, size_t bytes) { return take(align, bytes); }
void __libc_free(void *) {}
}

int main() {
    std::vector<std::string> words(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&words, i] {
            for (int turn = 0; turn < 1000; turn++)
                words[i] += std::to_string(turn % 7);
        });
    for (auto &thread : threads)
        thread.join();
    size_t sum = 0;
    for (auto &word : words)
        sum += word.size();
    printf("%zu bytes, own blocks %d\n", sum, (unsigned char *)words.data() >= memory);
    return 0;
}
