/* Product quantization (Jegou, Douze, Schmid 2011): codes, tables of distances, and look-ups. */
#include <string.h>

#include "avx2.h"
#include "distance.h"

enum { ENCODED_AT_ONCE = 256, PARTS = 8 };

/* Adds the squares of value - column to 256 sums. */
static void add_squares(const float *column, float value, float *sums) {
    for (uint32_t i = 0; i < WL_CENTROIDS; i++) {
        float apart = value - column[i];
        sums[i] += apart * apart;
    }
}

/* The first of the least of 256 numbers, which have no sign: their bits rise with them. */
static uint32_t least_of(const float *numbers) {
    uint32_t bits[WL_CENTROIDS], least = UINT32_MAX, place = WL_CENTROIDS;
    memcpy(bits, numbers, sizeof bits);
    for (uint32_t i = 0; i < WL_CENTROIDS; i++)
        least = bits[i] < least ? bits[i] : least;
    for (uint32_t i = 0; i < WL_CENTROIDS; i++) {
        uint32_t at = bits[i] == least ? i : WL_CENTROIDS;
        place = at < place ? at : place;
    }
    return place;
}

WITH_AVX2 static void add_squares_avx2(const float *column, float value, float *sums) {
    add_squares(column, value, sums);
}

WITH_AVX2 static uint32_t least_of_avx2(const float *numbers) {
    return least_of(numbers);
}

typedef struct {
    const void *vectors;
    uint32_t type, dim, chunks;
    const float *centroid, *columns;
    const uint32_t *offsets;
    uint8_t *codes;
} encoding;

static void encode_range(void *context, uint64_t first, uint64_t end, uint32_t thread) {
    const encoding *all = context;
    void (*add)(const float *, float, float *) = has_avx2() ? add_squares_avx2 : add_squares;
    uint32_t (*least)(const float *) = has_avx2() ? least_of_avx2 : least_of;
    (void)thread;
    for (uint32_t number = 0; number < all->chunks; number++)
        for (uint64_t i = first; i < end; i++) {
            float squares[WL_CENTROIDS] = {0};
            for (uint32_t j = all->offsets[number]; j < all->offsets[number + 1]; j++) {
                uint64_t at = i * all->dim + j;
                float value = all->type == WL_UINT8 ? ((const uint8_t *)all->vectors)[at]
                                                    : ((const float *)all->vectors)[at];
                add(all->columns + (uint64_t)j * WL_CENTROIDS, value - all->centroid[j], squares);
            }
            all->codes[i * all->chunks + number] = (uint8_t)least(squares);
        }
}

void wl_pq_encode(const void *vectors, uint32_t type, uint64_t count, uint32_t dim,
                  const float *centroid, const uint32_t *offsets, uint32_t chunks,
                  const float *columns, uint32_t threads, uint8_t *codes) {
    encoding all = {vectors, type, dim, chunks, centroid, columns, offsets, codes};
    wl_for_ranges(threads, count, ENCODED_AT_ONCE, encode_range, &all);
}

void wl_pq_table(const float *query, const float *centroid, const uint32_t *offsets,
                 uint32_t chunks, const float *columns, float *table) {
    void (*add)(const float *, float, float *) = has_avx2() ? add_squares_avx2 : add_squares;
    memset(table, 0, (uint64_t)chunks * WL_CENTROIDS * sizeof *table);
    for (uint32_t number = 0; number < chunks; number++, table += WL_CENTROIDS)
        for (uint32_t j = offsets[number]; j < offsets[number + 1]; j++)
            add(columns + (uint64_t)j * WL_CENTROIDS, query[j] - centroid[j], table);
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
