/* Distances, squares and least numbers by both builds, from addresses of any alignment. Prints how
 * many were compared; aborts if two differ. Without AVX2 there is one build, and 77 is returned. */
#include <stdio.h>
#include <stdlib.h>

#include "pq.c"
#include "vectors.c"

enum { DIMS = 200, OFFSETS = 9 };

static unsigned compared;

static void compare(const void *left, const void *right, size_t bytes) {
    if (memcmp(left, right, bytes))
        abort();
    compared++;
}

static void compare_distances(const float *from, const float *to, const uint8_t *bytes) {
    for (uint32_t dim = 1; dim <= DIMS; dim++) {
        float plain = to_floats(from, to, dim), wide = to_floats_avx2(from, to, dim);
        compare(&plain, &wide, sizeof plain);
        plain = to_bytes(from, bytes, dim);
        wide = to_bytes_avx2(from, bytes, dim);
        compare(&plain, &wide, sizeof plain);
    }
}

static void compare_squares(const float *column, float value, float *plain, float *wide) {
    add_squares(column, value, plain);
    add_squares_avx2(column, value, wide);
    compare(plain, wide, WL_CENTROIDS * sizeof *plain);
    if (least_of(plain) != least_of_avx2(plain))
        abort();
}

int main(void) {
    static float numbers[2 * DIMS + WL_CENTROIDS + OFFSETS], plain[WL_CENTROIDS + 1], wide[WL_CENTROIDS + 1];
    static uint8_t bytes[DIMS + OFFSETS];
    uint64_t drawn = 1;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        drawn = drawn * 6364136223846793005u + 1442695040888963407u;
        numbers[i] = (float)(int32_t)(drawn >> 32) * 1e-8f;
        bytes[i % sizeof bytes] = (uint8_t)(drawn >> 56);
    }
    if (!has_avx2())
        return 77;
    for (uint32_t offset = 0; offset < OFFSETS; offset++) {
        compare_distances(numbers + offset, numbers + DIMS, bytes + offset);
        compare_squares(numbers + offset, numbers[offset], plain + offset % 2, wide + offset % 2);
    }
    printf("%u", compared);
    return 0;
}
