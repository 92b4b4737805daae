/* histogram: how often each value of red, green and blue occurs in a picture.
 *
 * The pixels are divided into one run for each thread. A thread counts into tables of its own, which begin on a page of
 * their own, so no two threads write to one page. The main thread adds the tables when all have ended.
 *
 *     cc -O2 histogram.c -o histogram -pthread
 *     ./histogram --threads 4 --size 1000000        a million generated pixels
 *     ./histogram --threads 4 picture.bmp           an uncompressed bitmap of 24 bits a pixel
 */
#include "common.h"

enum { COLOURS = 3, VALUES = 256 };

/* The order of colours in a bitmap. */
static const char *const NAMES[COLOURS] = {"blue", "green", "red"};

/* One thread's counts: a whole number of pages. */
union tables {
    uint64_t counts[COLOURS][VALUES];
    unsigned char pages[2 * PAGE];
};

static struct options options = {
    .what = "Counts how often each value of red, green and blue occurs in a picture.",
    .unit = "pixels", .file = "an uncompressed bitmap (BMP) of 24 bits a pixel",
    .size = 16000000, .least = 1, .most = (size_t)1 << 36,
};
static const unsigned char *picture; /* the file, or the generated pixels */
static size_t start, row_pixels, row_bytes, rows; /* pixels in the picture; a row of a bitmap is padded to 4 bytes */
static union tables *tables; /* one for each thread */

static void *count(void *number) {
    int thread = (int)(intptr_t)number;
    uint64_t(*counts)[VALUES] = tables[thread].counts;
    size_t pixel = part_begin(rows * row_pixels, options.threads, thread);
    size_t end = part_begin(rows * row_pixels, options.threads, thread + 1);
    while (pixel < end) {
        /* The rest of the row, or of this thread's part. */
        size_t row = pixel / row_pixels, column = pixel % row_pixels;
        size_t left = row_pixels - column < end - pixel ? row_pixels - column : end - pixel;
        const unsigned char *at = picture + start + row * row_bytes + column * COLOURS;
        for (size_t i = 0; i < left; i++, at += COLOURS) {
            counts[0][at[0]]++;
            counts[1][at[1]]++;
            counts[2][at[2]]++;
        }
        pixel += left;
    }
    return NULL;
}

static uint32_t little_endian(const unsigned char *at, int bytes) {
    uint32_t value = 0;
    while (bytes--) {
        value = value << 8 | at[bytes];
    }
    return value;
}

/* Finds the pixels in a bitmap; its header has 54 bytes. */
static size_t read_bitmap(const char *path) {
    size_t bytes;
    picture = map_file(path, 54, &bytes);
    if (picture[0] != 'B' || picture[1] != 'M' || little_endian(picture + 28, 2) != 24 ||
        little_endian(picture + 30, 4) != 0) {
        refuse_file(path, "not an uncompressed bitmap of 24 bits a pixel");
    }
    start = little_endian(picture + 10, 4);
    row_pixels = little_endian(picture + 18, 4);
    int32_t height = (int32_t)little_endian(picture + 22, 4); /* negative: the top row is first */
    rows = (size_t)llabs(height);
    row_bytes = (row_pixels * COLOURS + 3) / 4 * 4;
    if (start > bytes || row_pixels == 0 || rows == 0 || (bytes - start) / row_bytes < rows) {
        refuse_file(path, "the file is shorter than its header says");
    }
    return bytes;
}

static size_t generate(void) {
    uint64_t state = options.seed;
    rows = 1;
    row_pixels = options.size;
    row_bytes = row_pixels * COLOURS;
    unsigned char *pixels = new_pages(row_bytes);
    for (size_t i = 0; i < row_bytes; i += COLOURS) {
        uint32_t drawn = draw(&state);
        pixels[i] = (unsigned char)drawn;
        pixels[i + 1] = (unsigned char)(drawn >> 8);
        pixels[i + 2] = (unsigned char)(drawn >> 16);
    }
    picture = pixels;
    return row_bytes;
}

int main(int argc, char **argv) {
    read_options(&options, argc, argv);
    size_t bytes = options.path ? read_bitmap(options.path) : generate();
    size_t table_bytes = (size_t)options.threads * sizeof *tables;
    tables = new_pages(table_bytes);
#ifdef GOSSAMER_REGION
    check(gsm_region_share((void *)picture, whole_pages(bytes)), "gsm_region_share");
    check(gsm_region_share(tables, table_bytes), "gsm_region_share");
#endif
    run_threads(options.threads, count);

    uint64_t checksum = FNV_BEGIN;
    printf("pixels %zu\n", rows * row_pixels);
    for (int colour = 0; colour < COLOURS; colour++) {
        uint64_t sums[VALUES] = {0};
        int fullest = 0;
        for (int value = 0; value < VALUES; value++) {
            for (int thread = 0; thread < options.threads; thread++) {
                sums[value] += tables[thread].counts[colour][value];
            }
            fullest = sums[value] > sums[fullest] ? value : fullest;
            checksum = fnv(checksum, sums[value]);
        }
        printf("%s most often %d, %" PRIu64 " times\n", NAMES[colour], fullest, sums[fullest]);
    }
    printf("checksum %016" PRIx64 "\n", checksum);
    munmap((void *)picture, bytes);
    munmap(tables, table_bytes);
}
