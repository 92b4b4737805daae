/* linear_regression: the straight line that lies nearest to many points (least squares).
 *
 * The line follows from five sums over all points. The points are divided into one run for each thread; a thread adds
 * up its run in local variables and writes the five sums once, to a page of its own. Coordinates are bytes, so the sums
 * are exact, and the same for any number of threads.
 *
 *     cc -O2 linear_regression.c -o linear_regression -pthread
 *     ./linear_regression --threads 4 --size 1000000    a million generated points
 *     ./linear_regression --threads 4 points.bin        a file of points, two bytes each: x, y
 */
#include "common.h"

struct point {
    unsigned char x, y;
};

/* One thread's results: a whole page. */
union sums {
    struct {
        uint64_t x, y, xx, yy, xy;
    };
    unsigned char page[PAGE];
};

static struct options options = {
    .what = "Finds the straight line that lies nearest to many points.",
    .unit = "points", .file = "points of two bytes each: x, y",
    .size = 32000000, .least = 1, .most = (size_t)1 << 36,
};
static const struct point *points;
static union sums *sums; /* one for each thread */

static void *add_up(void *number) {
    int thread = (int)(intptr_t)number;
    size_t end = part_begin(options.size, options.threads, thread + 1);
    uint64_t x = 0, y = 0, xx = 0, yy = 0, xy = 0;
    for (size_t i = part_begin(options.size, options.threads, thread); i < end; i++) {
        unsigned px = points[i].x, py = points[i].y;
        x += px;
        y += py;
        xx += px * px;
        yy += py * py;
        xy += px * py;
    }
    union sums *mine = &sums[thread];
    mine->x = x, mine->y = y, mine->xx = xx, mine->yy = yy, mine->xy = xy;
    return NULL;
}

/* Points around y = x / 2 + 32. */
static struct point *generate(void) {
    uint64_t state = options.seed;
    struct point *made = new_pages(options.size * sizeof *made);
    for (size_t i = 0; i < options.size; i++) {
        uint32_t drawn = draw(&state);
        unsigned x = drawn & 255, noise = drawn >> 8 & 63;
        made[i] = (struct point){.x = (unsigned char)x, .y = (unsigned char)(x / 2 + noise)};
    }
    return made;
}

int main(int argc, char **argv) {
    read_options(&options, argc, argv);
    size_t bytes;
    if (options.path) {
        points = map_file(options.path, sizeof *points, &bytes);
        options.size = bytes / sizeof *points;
    } else {
        points = generate();
        bytes = options.size * sizeof *points;
    }
    size_t sums_bytes = (size_t)options.threads * sizeof *sums;
    sums = new_pages(sums_bytes);
#ifdef GOSSAMER_REGION
    check(gsm_region_share((void *)points, whole_pages(bytes)), "gsm_region_share");
    check(gsm_region_share(sums, sums_bytes), "gsm_region_share");
#endif
    run_threads(options.threads, add_up);

    uint64_t x = 0, y = 0, xx = 0, yy = 0, xy = 0;
    for (int thread = 0; thread < options.threads; thread++) {
        x += sums[thread].x, y += sums[thread].y;
        xx += sums[thread].xx, yy += sums[thread].yy, xy += sums[thread].xy;
    }
    printf("points %zu\n", options.size);
    double n = (double)options.size, mean_x = (double)x / n, mean_y = (double)y / n;
    double spread_x = (double)xx / n - mean_x * mean_x, spread_y = (double)yy / n - mean_y * mean_y;
    double both = (double)xy / n - mean_x * mean_y;
    if (spread_x > 0) {
        printf("y = %.4f x + %.4f\n", both / spread_x, mean_y - both / spread_x * mean_x);
    } else {
        printf("no line: all points have one x\n");
    }
    if (spread_x > 0 && spread_y > 0) {
        printf("r2 %.4f\n", both * both / (spread_x * spread_y));
    }
    printf("checksum %016" PRIx64 "\n", fnv(fnv(fnv(fnv(fnv(FNV_BEGIN, x), y), xx), yy), xy));
    munmap((void *)points, bytes);
    munmap(sums, sums_bytes);
}
