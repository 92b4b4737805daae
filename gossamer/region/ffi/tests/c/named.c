/* named: ranges given to gsm_region_share are one memory of all threads, and all other memory is copied to a machine
 * once, with the first thread that goes to it. Expected values differ as one process, and where machines share all
 * memory: MACHINES in the environment is the number of machines with memory of their own. */
#include "verdict.h"

#include <sys/mman.h>

#include "gossamer_region.h"

enum { PAGE = 4096, PAGES = 100, ROUNDS = 200, FETCHES = 20 };

static int machines = 1;
static _Alignas(PAGE) long shared[PAGES][PAGE / sizeof(long)];
static long own = 1, zeroed_later[3 * PAGE / sizeof(long)] = {5};
static gsm_mutex_t mutex;
static gsm_barrier_t barrier;
static long *from_malloc, *from_mmap;
static char *text;
static atomic_long *late;

/* Checks the data that was there when the first thread came to its machine, and counts in shared memory. */
static void *count(void *number) {
    int thread = (int)(intptr_t)number;
    CHECK(zeroed_later[0] == 0 && zeroed_later[2 * PAGE / sizeof(long)] == 9);
    CHECK(strcmp(text, "a copy of its own") == 0 && text[3 * PAGE] == 'x');
    CHECK(from_malloc[PAGE] == 77 && from_mmap[1] == 78 && shared[0][1] == 79);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(gsm_mutex_lock(&mutex) == 0);
        shared[3][0]++;
        shared[4 + thread][0]++;
        CHECK(gsm_mutex_unlock(&mutex) == 0);
        from_malloc[thread * (PAGE / (int)sizeof(long))]++;
    }
    int answer = gsm_barrier_wait(&barrier);
    CHECK(answer == 0 || answer == GSM_BARRIER_SERIAL_THREAD);
    CHECK(shared[3][0] == (long)threads * ROUNDS);
    for (int i = 0; i < threads; i++) {
        CHECK(shared[4 + i][0] == ROUNDS);
    }
    atomic_fetch_add(late, answer == GSM_BARRIER_SERIAL_THREAD);
    CHECK(machines == 1 || gsm_barrier_wait_fetch(&barrier, from_malloc, PAGE) == EFAULT);
    CHECK(gsm_barrier_wait_fetch(&barrier, (char *)from_malloc + 8, 0) != EFAULT);
    for (int round = 1; round <= FETCHES; round++) {
        shared[4 + thread][1] = thread * 1000 + round;
        size_t fetched = thread % 2 ? (size_t)threads * PAGE : 0;
        answer = gsm_barrier_wait_fetch(&barrier, fetched ? shared[4] : NULL, fetched);
        CHECK(answer == 0 || answer == GSM_BARRIER_SERIAL_THREAD);
        for (int i = 0; i < threads; i++) {
            CHECK(shared[4 + i][1] == i * 1000 + round);
        }
        CHECK(gsm_barrier_wait_fetch(&barrier, &shared[4 + thread][1], sizeof(long)) != EFAULT);
    }
    return NULL;
}

/* Each thread changes its machine's copy; it frees blocks of other machines' copies, and allocates blocks of this
 * machine. */
static void *change(void *number) {
    int thread = (int)(intptr_t)number;
    char *mine = malloc(100);
    void *large = malloc(1 << 20);
    CHECK(mine && large);
    memset(mine, thread, 100);
    own += 10;
    shared[10 + thread][0] = own;
    text = realloc(text, 5 * PAGE);
    CHECK(strcmp(text, "a copy of its own") == 0);
    free(large);
    free(mine);
    return NULL;
}

/* Shares memory of the machine that it runs on. */
static void *name(void *found) {
    atomic_long *pages = aligned_alloc(PAGE, 2 * PAGE);
    memset(pages, 0, 2 * PAGE);
    pages[PAGE / sizeof(long)] = 5;
    CHECK(gsm_region_share(pages, 2 * PAGE) == 0);
    *(atomic_long **)found = pages;
    return NULL;
}

static void refused(void) {
    char *outside = (char *)((uintptr_t)&errno & -(uintptr_t)PAGE);
    CHECK(gsm_region_share((char *)shared + 8, PAGE) == EINVAL);
    CHECK(gsm_region_share(shared, PAGE + 1) == EINVAL);
    CHECK(gsm_region_share(shared, 0) == EINVAL);
    if (machines > 1) {
        CHECK(gsm_region_share(shared, (size_t)1 << 62) == EFAULT);
        CHECK(gsm_region_share(outside, PAGE) == EFAULT);
        CHECK(gsm_region_share(shared, sizeof shared) == 0);
        CHECK(gsm_region_share((char *)shared + PAGE, PAGE) == 0);
    }
}

static void locks(void) {
    struct timespec soon = deadline(10);
    gsm_mutex_t never = {0};
    CHECK(gsm_mutex_lock(&mutex) == 0 && gsm_mutex_lock(&mutex) == EDEADLK);
    CHECK(gsm_mutex_trylock(&mutex) == EBUSY && gsm_mutex_timedlock(&mutex, &soon) == EDEADLK);
    CHECK(gsm_mutex_destroy(&mutex) == EBUSY);
    CHECK(gsm_mutex_unlock(&mutex) == 0 && gsm_mutex_unlock(&mutex) == EPERM);
    CHECK(machines == 1 || gsm_mutex_lock(&never) == EINVAL);
}

int main(int argc, char **argv) {
    read_threads(argc, argv);
    machines = getenv("MACHINES") ? atoi(getenv("MACHINES")) : 1;
    size_t bytes = 9 * PAGE;
    CHECK(threads <= 8);
    from_malloc = aligned_alloc(PAGE, bytes);
    from_mmap = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(from_malloc && from_mmap != MAP_FAILED);
    late = aligned_alloc(PAGE, PAGE);
    memset((void *)late, 0, PAGE);
    memset(from_malloc, 0, bytes);
    from_malloc[PAGE] = 77; /* 8 pages further */
    from_mmap[1] = 78;
    shared[0][1] = 79;
    zeroed_later[0] = 0;
    zeroed_later[2 * PAGE / sizeof(long)] = 9;
    text = calloc(4, PAGE);
    strcpy(text, "a copy of its own");
    text[3 * PAGE] = 'x';
    CHECK(gsm_region_share(shared, sizeof shared) == 0);
    CHECK(gsm_region_share(late, PAGE) == 0);
    void *block = malloc(32 << 10); /* whole pages, or one process */
    CHECK(block && gsm_region_share(block, 32 << 10) == 0);
    CHECK(gsm_mutex_init(&mutex) == 0 && gsm_barrier_init(&barrier, (unsigned)threads) == 0);
    refused();
    locks();
    run_threads(threads, count);
    CHECK(atomic_load(late) == 1);
    for (int i = 0; i < threads; i++) { /* thread i is on machine (i + 1) % machines, and main on machine 0 */
        CHECK(from_malloc[i * (PAGE / (int)sizeof(long))] == ((i + 1) % machines == 0 ? ROUNDS : 0));
    }
    CHECK(gsm_barrier_destroy(&barrier) == 0 && gsm_mutex_destroy(&mutex) == 0);

    /* One after the other, so that threads of one machine, or process, add to one variable. */
    for (int i = 0; i < threads; i++) {
        pthread_t id;
        CHECK(pthread_create(&id, NULL, change, (void *)(intptr_t)i) == 0 && pthread_join(id, NULL) == 0);
    }
    long largest = 0;
    for (int i = 0; i < threads; i++) {
        largest = shared[10 + i][0] > largest ? shared[10 + i][0] : largest;
    }
    int most = (threads + machines - 1) / machines; /* threads of one machine */
    CHECK(largest == 1 + 10L * most);

    /* Shared by a thread of another machine, and seen by all; `found` is in memory that all share. */
    pthread_t id;
    atomic_long **found = (atomic_long **)(void *)&shared[90][0];
    for (int i = 0; i < machines; i++) {
        CHECK(pthread_create(&id, NULL, name, found) == 0 && pthread_join(id, NULL) == 0);
        CHECK(atomic_fetch_add(&(*found)[PAGE / sizeof(long)], 2) == 5 && (*found)[0] == 0);
    }
    return verdict("named");
}
