/* mappings: memory calls do on all machines what they do in one process: parts of mappings are unmapped, mapped over,
 * emptied and moved, and a thread runs on the stack that it is given. */
#include "verdict.h"

#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 16, ROUNDS = 8 };

struct area {
    unsigned char *start;
    size_t bytes;
    unsigned char first, last;
};

static unsigned char *map(size_t bytes) {
    void *found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(found != MAP_FAILED);
    return found;
}

static int holds(const unsigned char *start, size_t bytes, unsigned char value) {
    for (size_t i = 0; i < bytes; i++) {
        if (start[i] != value) {
            return 0;
        }
    }
    return 1;
}

/* Maps more than it wants, and unmaps what is too much: an address at a multiple of its size. */
static unsigned char *aligned(size_t bytes) {
    unsigned char *raw = map(2 * bytes);
    unsigned char *at = (unsigned char *)(((uintptr_t)raw + bytes - 1) / bytes * bytes);
    if (at > raw) {
        CHECK(munmap(raw, (size_t)(at - raw)) == 0);
    }
    CHECK(munmap(at + bytes, (size_t)(raw + bytes - at)) == 0);
    return at;
}

/* The first page has `first`, all others `last`. */
static void check(const struct area *area) {
    CHECK(holds(area->start, PAGE, area->first) && holds(area->start + PAGE, area->bytes - PAGE, area->last));
}

static struct area moved, kept;

static void *work(void *number) {
    unsigned char thread = (unsigned char)(intptr_t)number + 1;
    unsigned char *blocks[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        blocks[i] = aligned(PAGES * PAGE);
        memset(blocks[i], thread, PAGES * PAGE);
    }
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(holds(blocks[i], PAGES * PAGE, thread));
        CHECK(munmap(blocks[i] + PAGE, PAGE) == 0 && munmap(blocks[i] + 3 * PAGE, PAGE) == 0);
    }
    /* A guard page, on this machine, does not outlive its mapping. */
    unsigned char *guarded = map(4 * PAGE);
    memset(guarded, thread, 4 * PAGE);
    CHECK(mprotect(guarded, PAGE, PROT_NONE) == 0 && munmap(guarded, 4 * PAGE) == 0);
    guarded = map(4 * PAGE);
    CHECK(holds(guarded, 4 * PAGE, 0) && munmap(guarded, 4 * PAGE) == 0);
    /* A part that is unmapped and mapped again stays when the rest goes. */
    unsigned char *again = map(4 * PAGE);
    CHECK(munmap(again + PAGE, PAGE) == 0);
    CHECK(mmap(again + PAGE, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          (void *)(again + PAGE));
    memset(again + PAGE, thread, PAGE);
    CHECK(munmap(again, PAGE) == 0 && munmap(again + 2 * PAGE, 2 * PAGE) == 0);
    unsigned char *other = map(PAGES * PAGE);
    CHECK(holds(again + PAGE, PAGE, thread) && munmap(again + PAGE, PAGE) == 0);
    CHECK(holds(other, PAGES * PAGE, 0));
    memset(other, 0xff, PAGES * PAGE);
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(holds(blocks[i], PAGE, thread) && holds(blocks[i] + 2 * PAGE, PAGE, thread));
        CHECK(munmap(blocks[i], PAGES * PAGE) == 0);
    }
    CHECK(holds(other, PAGES * PAGE, 0xff) && munmap(other, PAGES * PAGE) == 0);
    check(&moved);
    check(&kept);
    return NULL;
}

/* Changes the mappings that main has made, and leaves others. */
static void *change(void *number) {
    unsigned char *new = mremap(moved.start, moved.bytes, 2 * moved.bytes, MREMAP_MAYMOVE);
    CHECK(new != MAP_FAILED && holds(new, moved.bytes, moved.last) && holds(new + moved.bytes, moved.bytes, 0));
    moved = (struct area){new, 2 * moved.bytes, (unsigned char)(intptr_t)number, 9};
    memset(new + PAGE, 9, moved.bytes - PAGE);
    memset(new, moved.first, PAGE);
    CHECK(mremap(new, moved.bytes, moved.bytes / 2, 0) == (void *)new);
    moved.bytes /= 2;

    CHECK(madvise(kept.start, PAGE, MADV_DONTNEED) == 0 && kept.start[0] == 0);
    kept.first = 0;
    unsigned char *over = mmap(kept.start + PAGE, PAGE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(over == kept.start + PAGE && holds(over, PAGE, 0));
    memset(over, kept.last, PAGE);
    return NULL;
}

static unsigned char *stack;
enum { STACK = 2 << 20 };

static void *stands(void *number) {
    unsigned char here = 1;
    (void)number;
    return &here >= stack && &here < stack + STACK ? NULL : number;
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    moved = (struct area){map(4 * PAGE), 4 * PAGE, 7, 7};
    kept = (struct area){map(PAGES * PAGE), PAGES * PAGE, 8, 8};
    memset(moved.start, 7, moved.bytes);
    memset(kept.start, 8, kept.bytes);
    run_threads(1, change);
    moved.first = 9;
    memset(moved.start, 9, PAGE);
    run_threads(threads, work);
    CHECK(munmap(moved.start, moved.bytes) == 0 && munmap(kept.start, kept.bytes) == 0);

    pthread_attr_t attributes;
    CHECK(posix_memalign((void **)&stack, PAGE, STACK) == 0 && pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstack(&attributes, stack, STACK) == 0);
    for (intptr_t number = 1; number <= threads; number++) {
        pthread_t thread;
        void *answer = stack;
        CHECK(pthread_create(&thread, &attributes, stands, (void *)number) == 0);
        CHECK(pthread_join(thread, &answer) == 0 && answer == NULL);
    }
    CHECK(pthread_attr_destroy(&attributes) == 0);
    free(stack);
    return verdict("mappings");
}
