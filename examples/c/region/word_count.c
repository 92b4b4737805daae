/* word_count: how often each word of a text occurs, and the ten most frequent ones. A word is a run of letters; case is
 * ignored.
 *
 * The text is divided by bytes, one part for each thread; a word belongs to the part in which its first letter lies. A
 * thread counts into a list of its own, whose entries lie one after the other in pages of its own, and finds them by a
 * private hash index. When all have ended, the main thread merges the lists.
 *
 *     cc -O2 word_count.c -o word_count -pthread
 *     ./word_count --threads 4 --size 1000000       a generated text of a million bytes
 *     ./word_count --threads 4 book.txt             a text in ASCII
 */
#include "common.h"

enum { TOP = 10, VOCABULARY = 20000 };

struct entry {
    uint64_t start; /* in the text */
    uint32_t length, count;
};

/* Words, each once, in order of first occurrence. */
struct words {
    size_t used;
    struct entry entries[];
};

/* Index of `words`: 1 + the number of a word, or 0. `mask` is a power of two less 1. */
struct index {
    struct words *words;
    size_t mask;
    uint32_t *slots;
};

static struct options options = {
    .what = "Counts the words of a text.",
    .unit = "bytes of text", .file = "a text in ASCII",
    .size = (size_t)32 << 20, .least = 1, .most = (size_t)1 << 32,
};
static const char *text;
static size_t list_bytes; /* bytes of `lists` for each thread */
static unsigned char *lists;

static struct words *list_of(int thread) {
    return (struct words *)(lists + (size_t)thread * list_bytes);
}

static int is_letter(char c) {
    return (c | 32) >= 'a' && (c | 32) <= 'z';
}

static uint64_t hash(const struct entry *word) {
    uint64_t sum = FNV_BEGIN;
    for (size_t i = 0; i < word->length; i++) {
        sum = fnv(sum, (uint64_t)(text[word->start + i] | 32));
    }
    return sum ^ sum >> 29;
}

/* Alphabetical order. */
static int compare(const struct entry *a, const struct entry *b) {
    int order = strncasecmp(text + a->start, text + b->start, a->length < b->length ? a->length : b->length);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static void new_slots(struct index *index, size_t slots) {
    free(index->slots);
    index->mask = slots - 1;
    index->slots = calloc(slots, sizeof *index->slots);
    check(index->slots ? 0 : ENOMEM, "calloc");
}

static uint32_t *slot_of(const struct index *index, const struct entry *word) {
    size_t at = hash(word) & index->mask;
    while (index->slots[at] && compare(&index->words->entries[index->slots[at] - 1], word) != 0) {
        at = (at + 1) & index->mask;
    }
    return &index->slots[at];
}

static void add(struct index *index, struct entry word) {
    struct words *words = index->words;
    uint32_t *slot = slot_of(index, &word);
    if (*slot) {
        words->entries[*slot - 1].count += word.count;
        return;
    }
    words->entries[words->used++] = word;
    *slot = (uint32_t)words->used;
    if (words->used * 2 > index->mask) {
        new_slots(index, (index->mask + 1) * 2);
        for (size_t i = 0; i < words->used; i++) {
            *slot_of(index, &words->entries[i]) = (uint32_t)i + 1;
        }
    }
}

static void *count(void *number) {
    int thread = (int)(intptr_t)number;
    struct index index = {.words = list_of(thread)};
    new_slots(&index, 1024);
    size_t at = part_begin(options.size, options.threads, thread);
    size_t end = part_begin(options.size, options.threads, thread + 1);
    while (at > 0 && at < end && is_letter(text[at - 1]) && is_letter(text[at])) {
        at++; /* the rest of a word that began in the part before */
    }
    while (at < end) {
        size_t start = at;
        while (at < options.size && is_letter(text[at])) {
            at++;
        }
        if (at > start) {
            add(&index, (struct entry){.start = start, .length = (uint32_t)(at - start), .count = 1});
        }
        at++;
    }
    free(index.slots);
    return NULL;
}

/* Words of a vocabulary, the early ones more often, spelled as numbers to the base 26. */
static void generate(void) {
    uint64_t state = options.seed;
    char *made = new_pages(options.size);
    for (size_t at = 0; at < options.size; at++) {
        uint32_t first = draw(&state), rank = first % (1 + draw(&state) % VOCABULARY);
        for (uint32_t left = rank + 26; left > 0 && at < options.size; left /= 26) {
            made[at++] = (char)((left % 2 ? 'a' : 'A') + (char)(left % 26));
        }
        if (at < options.size) {
            made[at] = rank % 8 ? ' ' : '\n';
        }
    }
    text = made;
}

static int more_frequent(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count ? 1 : -1) : compare(x, y);
}

int main(int argc, char **argv) {
    read_options(&options, argc, argv);
    if (options.path) {
        text = map_file(options.path, 1, &options.size);
    } else {
        generate();
    }
    /* Room for the most words possible: each takes a letter and a separator. Only used pages take memory. */
    size_t most = options.size / (size_t)options.threads / 2 + 2;
    list_bytes = whole_pages(sizeof(struct words) + most * sizeof(struct entry));
    size_t all_bytes = list_bytes * (size_t)options.threads;
    lists = new_pages(all_bytes);
#ifdef GOSSAMER_REGION
    check(gsm_region_share((void *)text, whole_pages(options.size)), "gsm_region_share");
    check(gsm_region_share(lists, all_bytes), "gsm_region_share");
#endif
    run_threads(options.threads, count);

    size_t merged_bytes = sizeof(struct words);
    for (int thread = 0; thread < options.threads; thread++) {
        merged_bytes += list_of(thread)->used * sizeof(struct entry);
    }
    struct index merged = {.words = new_pages(merged_bytes)};
    new_slots(&merged, 1024);
    for (int thread = 0; thread < options.threads; thread++) {
        for (size_t i = 0; i < list_of(thread)->used; i++) {
            add(&merged, list_of(thread)->entries[i]);
        }
    }
    struct words *words = merged.words;
    uint64_t total = 0, checksum = 0;
    for (size_t i = 0; i < words->used; i++) {
        total += words->entries[i].count;
        checksum += hash(&words->entries[i]) * words->entries[i].count;
    }
    qsort(words->entries, words->used, sizeof(struct entry), more_frequent);
    printf("words %" PRIu64 ", different %zu\n", total, words->used);
    for (size_t i = 0; i < words->used && i < TOP; i++) {
        const struct entry *word = &words->entries[i];
        for (size_t letter = 0; letter < word->length; letter++) {
            putchar(text[word->start + letter] | 32);
        }
        printf(" %" PRIu32 "\n", word->count);
    }
    printf("checksum %016" PRIx64 "\n", checksum);
    free(merged.slots);
    munmap(words, merged_bytes);
    munmap((void *)text, options.size);
    munmap(lists, all_bytes);
}
