/* kmeans: divides points in space into clusters, each around the mean of its points (Lloyd's algorithm).
 *
 * Each thread has one run of the points for good. In a round it looks for the mean that is nearest to each of its
 * points, and adds the point to sums of its own, which begin on a page of their own. At the barrier that ends the round
 * one thread adds up all sums and moves the means; a second barrier lets all see them. So in every round all threads
 * read data that one has written, and one reads data that all have written. It ends when no point changes its cluster.
 * Coordinates are whole numbers, so sums are exact.
 *
 *     cc -O2 kmeans.c -o kmeans -pthread
 *     ./kmeans --threads 4 --size 100000        a hundred thousand generated points
 */
#include "common.h"

enum { DIMENSIONS = 3, CLUSTERS = 16, MOST_ROUNDS = 50, EXTENT = 1000, SPREAD = 200 };

struct point {
    int32_t at[DIMENSIONS];
};

/* One thread's results of a round: a whole page. */
union sums {
    struct {
        int64_t at[CLUSTERS][DIMENSIONS], points[CLUSTERS];
        size_t changed;
    };
    unsigned char page[PAGE];
};

/* Read by all threads, and written by one between the barriers. */
struct clusters {
    struct point means[CLUSTERS];
    int64_t points[CLUSTERS];
    size_t rounds, changed;
    pthread_barrier_t barrier;
};

static struct options options = {
    .what = "Divides points in space into 16 clusters.",
    .unit = "points", .size = 400000, .least = CLUSTERS, .most = (size_t)1 << 32,
};
static struct point *points;
static size_t owner_stride;   /* bytes of `owners` for each thread */
static unsigned char *owners; /* the cluster of each point, from 1 on; 0 at first */
static union sums *sums;      /* one for each thread */
static struct clusters *clusters;

static unsigned char nearest(const struct point *point) {
    int64_t least = INT64_MAX;
    int best = 0;
    for (int cluster = 0; cluster < CLUSTERS; cluster++) {
        int64_t distance = 0;
        for (int d = 0; d < DIMENSIONS; d++) {
            int64_t apart = point->at[d] - clusters->means[cluster].at[d];
            distance += apart * apart;
        }
        if (distance < least) {
            least = distance;
            best = cluster;
        }
    }
    return (unsigned char)(best + 1);
}

static void move_means(void) {
    clusters->rounds++;
    clusters->changed = 0;
    for (int thread = 0; thread < options.threads; thread++) {
        clusters->changed += sums[thread].changed;
    }
    for (int cluster = 0; cluster < CLUSTERS; cluster++) {
        int64_t at[DIMENSIONS] = {0}, total = 0;
        for (int thread = 0; thread < options.threads; thread++) {
            total += sums[thread].points[cluster];
            for (int d = 0; d < DIMENSIONS; d++) {
                at[d] += sums[thread].at[cluster][d];
            }
        }
        for (int d = 0; d < DIMENSIONS && total > 0; d++) {
            clusters->means[cluster].at[d] = (int32_t)(at[d] / total);
        }
        clusters->points[cluster] = total;
    }
}

/* True for one of the threads that meet. */
static int meet(void) {
    int answer = pthread_barrier_wait(&clusters->barrier);
    check(answer == PTHREAD_BARRIER_SERIAL_THREAD ? 0 : answer, "pthread_barrier_wait");
    return answer == PTHREAD_BARRIER_SERIAL_THREAD;
}

static void *cluster(void *number) {
    int thread = (int)(intptr_t)number;
    size_t begin = part_begin(options.size, options.threads, thread);
    size_t end = part_begin(options.size, options.threads, thread + 1);
    unsigned char *mine = owners + (size_t)thread * owner_stride;
    union sums *sum = &sums[thread];
    do {
        memset(sum, 0, sizeof *sum);
        for (size_t i = begin; i < end; i++) {
            unsigned char owner = nearest(&points[i]);
            sum->changed += owner != mine[i - begin];
            mine[i - begin] = owner;
            sum->points[owner - 1]++;
            for (int d = 0; d < DIMENSIONS; d++) {
                sum->at[owner - 1][d] += points[i].at[d];
            }
        }
        if (meet()) {
            move_means();
        }
        meet();
    } while (clusters->changed > 0 && clusters->rounds < MOST_ROUNDS);
    return NULL;
}

/* Points around as many centres as there are clusters. The first means are the first points. */
static void generate(void) {
    uint64_t state = options.seed;
    struct point centres[CLUSTERS];
    for (int i = 0; i < CLUSTERS * DIMENSIONS; i++) {
        centres[i / DIMENSIONS].at[i % DIMENSIONS] = (int32_t)(draw(&state) % EXTENT);
    }
    for (size_t i = 0; i < options.size; i++) {
        const struct point *centre = &centres[draw(&state) % CLUSTERS];
        for (int d = 0; d < DIMENSIONS; d++) {
            points[i].at[d] = centre->at[d] + (int32_t)(draw(&state) % SPREAD);
        }
    }
    memcpy(clusters->means, points, sizeof clusters->means);
}

int main(int argc, char **argv) {
    read_options(&options, argc, argv);
    size_t threads = (size_t)options.threads, bytes = whole_pages(options.size * sizeof *points);
    owner_stride = whole_pages(options.size / threads + 1);
    points = new_pages(bytes);
    owners = new_pages(threads * owner_stride);
    sums = new_pages(threads * sizeof *sums);
    clusters = new_pages(sizeof *clusters);
    generate();
#ifdef GOSSAMER_REGION
    check(gsm_region_share(points, bytes), "gsm_region_share");
    check(gsm_region_share(owners, threads * owner_stride), "gsm_region_share");
    check(gsm_region_share(sums, threads * sizeof *sums), "gsm_region_share");
    check(gsm_region_share(clusters, whole_pages(sizeof *clusters)), "gsm_region_share");
#endif
    check(pthread_barrier_init(&clusters->barrier, NULL, (unsigned)options.threads), "pthread_barrier_init");
    run_threads(options.threads, cluster);

    uint64_t checksum = FNV_BEGIN;
    for (int thread = 0; thread < options.threads; thread++) {
        size_t count =
            part_begin(options.size, options.threads, thread + 1) - part_begin(options.size, options.threads, thread);
        for (size_t i = 0; i < count; i++) {
            checksum = fnv(checksum, owners[(size_t)thread * owner_stride + i]);
        }
    }
    printf("points %zu, rounds %zu, changed in the last %zu\n", options.size, clusters->rounds, clusters->changed);
    for (int i = 0; i < CLUSTERS; i++) {
        const int32_t *at = clusters->means[i].at;
        printf("cluster %d: %" PRId64 " points around %d %d %d\n", i, clusters->points[i], at[0], at[1], at[2]);
    }
    printf("checksum %016" PRIx64 "\n", checksum);
    pthread_barrier_destroy(&clusters->barrier);
    munmap(points, bytes);
    munmap(owners, threads * owner_stride);
    munmap(sums, threads * sizeof *sums);
    munmap(clusters, sizeof *clusters);
}
