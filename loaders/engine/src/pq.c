/* Product quantization (Jegou, Douze, Schmid 2011): k-means of each chunk, codes, and look-ups. */
#include <errno.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "avx2.h"
#include "distance.h"
#include "permutation.h"

enum { ENCODED_AT_ONCE = 256, PARTS = 8, LANES = 64 };

/* Adds the squares of value - column to 256 sums. */
static inline void add_squares_plain(const float *column, float value, float *sums) {
    for (uint32_t i = 0; i < WL_CENTROIDS; i++) {
        float apart = value - column[i];
        sums[i] += apart * apart;
    }
}

/* The first of the least of 256 numbers. */
static inline uint32_t least_of_plain(const float *numbers) {
    float least[LANES];
    uint32_t places[LANES];
    for (uint32_t i = 0; i < LANES; i++) {
        least[i] = numbers[i];
        places[i] = i;
    }
    for (uint32_t first = LANES; first < WL_CENTROIDS; first += LANES)
        for (uint32_t i = 0; i < LANES; i++) {
            places[i] = numbers[first + i] < least[i] ? first + i : places[i];
            least[i] = numbers[first + i] < least[i] ? numbers[first + i] : least[i];
        }
    for (uint32_t half = LANES / 2; half; half /= 2)
        for (uint32_t i = 0; i < half; i++) {
            int is_less = (least[half + i] < least[i]) |
                          ((least[half + i] == least[i]) & (places[half + i] < places[i]));
            places[i] = is_less ? places[half + i] : places[i];
            least[i] = is_less ? least[half + i] : least[i];
        }
    return places[0];
}

/* Takes the least of two for each of 256 distances, and returns their sum, added up pairwise. */
static inline float lower_plain(float *distances, const float *others) {
    float sums[WL_CENTROIDS];
    for (uint32_t i = 0; i < WL_CENTROIDS; i++)
        sums[i] = distances[i] = others[i] < distances[i] ? others[i] : distances[i];
    for (uint32_t half = WL_CENTROIDS / 2; half; half /= 2)
        for (uint32_t i = 0; i < half; i++)
            sums[i] += sums[half + i];
    return sums[0];
}

WITH_AVX2 static void add_squares_avx2(const float *column, float value, float *sums) {
    add_squares_plain(column, value, sums);
}
WITH_AVX2 static uint32_t least_of_avx2(const float *numbers) {
    return least_of_plain(numbers);
}
WITH_AVX2 static float lower_avx2(float *distances, const float *others) {
    return lower_plain(distances, others);
}

static void add_squares(const float *column, float value, float *sums) {
    (has_avx2() ? add_squares_avx2 : add_squares_plain)(column, value, sums);
}
static uint32_t least_of(const float *numbers) {
    return (has_avx2() ? least_of_avx2 : least_of_plain)(numbers);
}
static float lower(float *distances, const float *others) {
    return (has_avx2() ? lower_avx2 : lower_plain)(distances, others);
}

typedef struct {
    const float *vectors;
    uint64_t count, room, seed; /* room: count, up to a multiple of 256 */
    uint32_t dim, iterations, width; /* width: of the widest chunk */
    const uint32_t *offsets;
    float *pivots;
    uint8_t *memory; /* of each thread, `bytes` */
    uint64_t bytes;
} training;

/* One chunk: `columns` are its numbers by dimension, `centroids` the same of its centroids. */
typedef struct {
    uint64_t count, room;
    uint32_t width;
    double *sums;
    float *columns, *centroids, *distances, *totals;
} chunk;

/* A vector by a probability that rises with the squared distance to its nearest centroid. */
static uint64_t draw_vector(const chunk *of, uint64_t bits) {
    double all = 0, before = 0, drawn = (double)(bits >> 11) * 0x1p-53;
    uint64_t blocks = of->room / WL_CENTROIDS, block = 0;
    for (uint64_t i = 0; i < blocks; i++)
        all += of->totals[i];
    if (all == 0)
        return wl_scale(bits, of->count); /* fewer vectors differ than there are centroids */
    drawn *= all;
    while (block + 1 < blocks && before + of->totals[block] <= drawn)
        before += of->totals[block++];
    uint64_t at = block * WL_CENTROIDS, end = at + WL_CENTROIDS, found = at;
    for (; at < end && (before <= drawn || of->distances[found] == 0); at++)
        if (of->distances[at] > 0) {
            before += of->distances[at];
            found = at;
        }
    return found;
}

/* k-means++ (Arthur, Vassilvitskii 2007). */
static void seed_centroids(const chunk *of, uint64_t seed) {
    for (uint64_t i = 0; i < of->room; i++)
        of->distances[i] = i < of->count ? FLT_MAX : 0;
    uint64_t drawn = wl_scale(wl_draw(seed, 0), of->count);
    for (uint32_t row = 0; row < WL_CENTROIDS; row++) {
        for (uint32_t j = 0; j < of->width; j++)
            of->centroids[j * WL_CENTROIDS + row] = of->columns[j * of->room + drawn];
        for (uint64_t first = 0; first < of->room; first += WL_CENTROIDS) {
            float squares[WL_CENTROIDS] = {0};
            for (uint32_t j = 0; j < of->width; j++)
                add_squares(of->columns + j * of->room + first,
                            of->centroids[j * WL_CENTROIDS + row], squares);
            of->totals[first / WL_CENTROIDS] = lower(of->distances + first, squares);
        }
        drawn = draw_vector(of, wl_draw(seed, row + 1));
    }
}

/* One iteration of Lloyd's: centroids move to the mean of the vectors that are nearest to them. One
 * without vectors stays. */
static void move_centroids(const chunk *of) {
    uint64_t members[WL_CENTROIDS] = {0};
    memset(of->sums, 0, of->width * WL_CENTROIDS * sizeof *of->sums);
    for (uint64_t i = 0; i < of->count; i++) {
        float squares[WL_CENTROIDS] = {0};
        for (uint32_t j = 0; j < of->width; j++)
            add_squares(of->centroids + j * WL_CENTROIDS, of->columns[j * of->room + i], squares);
        uint32_t row = least_of(squares);
        members[row]++;
        for (uint32_t j = 0; j < of->width; j++)
            of->sums[row * of->width + j] += of->columns[j * of->room + i];
    }
    for (uint32_t row = 0; row < WL_CENTROIDS; row++)
        for (uint32_t j = 0; j < of->width && members[row]; j++)
            of->centroids[j * WL_CENTROIDS + row] =
                (float)(of->sums[row * of->width + j] / (double)members[row]);
}

static void train_chunks(void *context, uint64_t first, uint64_t end, uint32_t thread) {
    const training *all = context;
    chunk of = {.count = all->count, .room = all->room};
    of.sums = (double *)(void *)(all->memory + thread * all->bytes);
    of.centroids = (float *)(of.sums + (uint64_t)all->width * WL_CENTROIDS);
    of.distances = of.centroids + (uint64_t)all->width * WL_CENTROIDS;
    of.totals = of.distances + all->room;
    of.columns = of.totals + all->room / WL_CENTROIDS;
    for (uint64_t number = first; number < end; number++) {
        uint32_t start = all->offsets[number];
        of.width = all->offsets[number + 1] - start;
        memset(of.columns, 0, of.width * of.room * sizeof *of.columns);
        for (uint64_t i = 0; i < of.count; i++)
            for (uint32_t j = 0; j < of.width; j++)
                of.columns[j * of.room + i] = all->vectors[i * all->dim + start + j];
        seed_centroids(&of, wl_draw(all->seed, number));
        for (uint32_t i = 0; i < all->iterations; i++)
            move_centroids(&of);
        for (uint32_t row = 0; row < WL_CENTROIDS; row++)
            for (uint32_t j = 0; j < of.width; j++)
                all->pivots[row * (uint64_t)all->dim + start + j] =
                    of.centroids[j * WL_CENTROIDS + row];
    }
}

int32_t wl_pq_train(const float *vectors, uint64_t count, uint32_t dim, const uint32_t *offsets,
                    uint32_t chunks, uint32_t iterations, uint64_t seed, uint32_t threads,
                    float *pivots, wl_error *error) {
    training all = {.vectors = vectors, .count = count, .seed = seed, .dim = dim,
                    .iterations = iterations, .offsets = offsets, .pivots = pivots};
    threads = threads < chunks ? threads : chunks;
    for (uint32_t i = 0; i < chunks; i++)
        if (offsets[i + 1] - offsets[i] > all.width)
            all.width = offsets[i + 1] - offsets[i];
    all.room = (count + WL_CENTROIDS - 1) / WL_CENTROIDS * WL_CENTROIDS;
    all.bytes = all.width * WL_CENTROIDS * (sizeof(double) + sizeof(float)) +
                (all.room * (all.width + 1) + all.room / WL_CENTROIDS) * sizeof(float);
    all.bytes = (all.bytes + 63) / 64 * 64;
    all.memory = malloc(threads * all.bytes);
    if (!all.memory)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE,
                       "allocating %llu bytes to train the codes of vectors",
                       (unsigned long long)(threads * all.bytes));
    wl_for_ranges(threads, chunks, 1, train_chunks, &all);
    free(all.memory);
    return WL_OK;
}

typedef struct {
    const void *vectors;
    uint32_t type, dim, chunks;
    const float *centroid;
    const uint32_t *offsets;
    float *columns; /* pivots, transposed */
    uint8_t *codes;
} encoding;

static void encode_range(void *context, uint64_t first, uint64_t end, uint32_t thread) {
    const encoding *all = context;
    (void)thread;
    for (uint32_t number = 0; number < all->chunks; number++)
        for (uint64_t i = first; i < end; i++) {
            float squares[WL_CENTROIDS] = {0};
            for (uint32_t j = all->offsets[number]; j < all->offsets[number + 1]; j++) {
                uint64_t at = i * all->dim + j;
                float value = all->type == WL_UINT8 ? ((const uint8_t *)all->vectors)[at]
                                                    : ((const float *)all->vectors)[at];
                add_squares(all->columns + (uint64_t)j * WL_CENTROIDS, value - all->centroid[j],
                            squares);
            }
            all->codes[i * all->chunks + number] = (uint8_t)least_of(squares);
        }
}

int32_t wl_pq_encode(const void *vectors, uint32_t type, uint64_t count, uint32_t dim,
                     const float *centroid, const uint32_t *offsets, uint32_t chunks,
                     const float *pivots, uint32_t threads, uint8_t *codes, wl_error *error) {
    encoding all = {vectors, type, dim, chunks, centroid, offsets, NULL, codes};
    uint64_t bytes = (uint64_t)dim * WL_CENTROIDS * sizeof *all.columns;
    all.columns = malloc(bytes);
    if (!all.columns)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE,
                       "allocating %llu bytes to encode vectors", (unsigned long long)bytes);
    for (uint32_t row = 0; row < WL_CENTROIDS; row++)
        for (uint32_t j = 0; j < dim; j++)
            all.columns[(uint64_t)j * WL_CENTROIDS + row] = pivots[row * (uint64_t)dim + j];
    wl_for_ranges(threads, count, ENCODED_AT_ONCE, encode_range, &all);
    free(all.columns);
    return WL_OK;
}

void wl_pq_table(const float *query, const float *centroid, const uint32_t *offsets,
                 uint32_t chunks, const float *columns, float *table) {
    memset(table, 0, (uint64_t)chunks * WL_CENTROIDS * sizeof *table);
    for (uint32_t number = 0; number < chunks; number++)
        for (uint32_t j = offsets[number]; j < offsets[number + 1]; j++)
            add_squares(columns + (uint64_t)j * WL_CENTROIDS, query[j] - centroid[j],
                        table + (uint64_t)number * WL_CENTROIDS);
}

static inline float look_up(const float *table, uint32_t chunks, const uint8_t *code) {
    float sums[PARTS] = {0};
    uint32_t number = 0;
    for (; number + PARTS <= chunks; number += PARTS, table += PARTS * WL_CENTROIDS) {
        uint64_t eight;
        memcpy(&eight, code + number, sizeof eight);
        for (uint32_t i = 0; i < PARTS; i++)
            sums[i] += table[i * WL_CENTROIDS + (eight >> 8 * i & 255)];
    }
    for (uint32_t i = 0; number < chunks; number++, i++)
        sums[i] += table[i * WL_CENTROIDS + code[number]];
    return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

/* A load of each code brings it into the cache before it is needed: a prefetch that misses the TLB
 * may be dropped. */
void wl_pq_distances(const float *table, uint32_t chunks, const uint8_t *codes,
                     const uint32_t *ids, uint64_t count, float *distances) {
    for (uint64_t i = 0; ids && i < count; i++) {
        const volatile uint8_t *code = codes + (uint64_t)ids[i] * chunks;
        (void)code[0];
        (void)code[chunks - 1];
    }
    for (uint64_t i = 0; i < count; i++)
        distances[i] = look_up(table, chunks, codes + (ids ? ids[i] : i) * (uint64_t)chunks);
}
