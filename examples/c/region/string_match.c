/* string_match: which words of a list are passwords, of which only hashes are known?
 *
 * A password's hash is slow on purpose: it goes over the word many times. Each line of the list is hashed and compared
 * with the known ones. The list is divided by bytes, one part for each thread; a word belongs to the part in which its
 * first byte lies, so a thread skips the rest of a word that began in the part before, and finishes the last one that
 * begins in its part. It writes its results to a page of its own.
 *
 *     cc -O2 string_match.c -o string_match -pthread
 *     ./string_match --threads 4 --size 1000000     a million generated words
 *     ./string_match --threads 4 words.txt          a list, a word a line
 */
#include "common.h"

enum { PASSWORDS = 4, ROUNDS = 16, EVERY = 1000 };

static const char *const SECRETS[PASSWORDS] = {"gossamer", "delegate", "trustee", "property"};

/* One thread's results: a whole page. */
union found {
    struct {
        uint64_t words, times[PASSWORDS];
        size_t first[PASSWORDS]; /* the first byte of the word, where it occurs */
    };
    unsigned char page[PAGE];
};

static struct options options = {
    .what = "Looks in a list of words for passwords of which only hashes are known.",
    .unit = "words", .file = "a list, a word a line",
    .size = 2000000, .least = 1, .most = (size_t)1 << 32,
};
static const char *list;
static size_t list_bytes;
static uint64_t hashes[PASSWORDS];
static union found *found; /* one for each thread */

static uint64_t slow_hash(const char *word, size_t length) {
    uint64_t hash = FNV_BEGIN;
    for (int round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < length; i++) {
            hash = fnv(hash, (unsigned char)word[i]);
        }
    }
    return hash;
}

static void *search(void *number) {
    int thread = (int)(intptr_t)number;
    union found *mine = &found[thread];
    size_t at = part_begin(list_bytes, options.threads, thread);
    size_t end = part_begin(list_bytes, options.threads, thread + 1);
    while (at > 0 && at < end && list[at - 1] != '\n') {
        at++;
    }
    while (at < end) {
        const char *stop = memchr(list + at, '\n', list_bytes - at);
        size_t length = stop ? (size_t)(stop - list) - at : list_bytes - at;
        uint64_t hash = slow_hash(list + at, length);
        mine->words += length > 0;
        for (int i = 0; i < PASSWORDS; i++) {
            if (hash == hashes[i] && mine->times[i]++ == 0) {
                mine->first[i] = at;
            }
        }
        at += length + 1;
    }
    return NULL;
}

/* Words of 4 to 11 letters; about one in `EVERY` is a password. */
static void generate(void) {
    uint64_t state = options.seed;
    char *words = new_pages(options.size * 12);
    size_t at = 0;
    for (size_t i = 0; i < options.size; i++) {
        uint32_t drawn = draw(&state);
        if (drawn % EVERY == 0) {
            const char *secret = SECRETS[drawn / EVERY % PASSWORDS];
            memcpy(words + at, secret, strlen(secret));
            at += strlen(secret);
        } else {
            for (uint32_t letters = 4 + (drawn >> 16) % 8; letters > 0; letters--) {
                words[at++] = (char)('a' + draw(&state) % 26);
            }
        }
        words[at++] = '\n';
    }
    list = words;
    list_bytes = at;
}

int main(int argc, char **argv) {
    read_options(&options, argc, argv);
    if (options.path) {
        list = map_file(options.path, 1, &list_bytes);
    } else {
        generate();
    }
    for (int i = 0; i < PASSWORDS; i++) {
        hashes[i] = slow_hash(SECRETS[i], strlen(SECRETS[i]));
    }
    size_t found_bytes = (size_t)options.threads * sizeof *found;
    found = new_pages(found_bytes);
#ifdef GOSSAMER_REGION
    check(gsm_region_share((void *)list, whole_pages(list_bytes)), "gsm_region_share");
    check(gsm_region_share(found, found_bytes), "gsm_region_share");
#endif
    run_threads(options.threads, search);

    uint64_t words = 0, checksum = FNV_BEGIN;
    for (int thread = 0; thread < options.threads; thread++) {
        words += found[thread].words;
    }
    printf("words %" PRIu64 "\n", words);
    for (int i = 0; i < PASSWORDS; i++) {
        uint64_t times = 0;
        size_t first = 0;
        for (int thread = options.threads - 1; thread >= 0; thread--) {
            times += found[thread].times[i];
            first = found[thread].times[i] ? found[thread].first[i] : first;
        }
        if (times) {
            printf("%s %" PRIu64 " times, first at byte %zu\n", SECRETS[i], times, first);
        } else {
            printf("%s not found\n", SECRETS[i]);
        }
        checksum = fnv(fnv(checksum, times), first);
    }
    printf("checksum %016" PRIx64 "\n", checksum);
    munmap((void *)list, list_bytes);
    munmap(found, found_bytes);
}
