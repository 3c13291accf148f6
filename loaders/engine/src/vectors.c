/* Distances of vectors, sums of rows, and threads that share ranges. */
#include "vectors.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "avx2.h"
#include "distance.h"
#include "stamps.h"

enum { LANES = 32, THREAD_LIMIT = 1024 };

/* Without AVX2 a compiler takes two registers for it. */
typedef float eight __attribute__((vector_size(32), aligned(4), may_alias));
static inline const float *widened(const uint8_t *bytes, float *room, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        room[i] = bytes[i];
    return room;
}
#define AS_THEY_ARE(numbers, room, count) (numbers)

#define ADD(sum, lane)                                                                             \
    do {                                                                                           \
        eight apart = *(const eight *)(left + lane) - *(const eight *)(other + lane);              \
        sum += apart * apart;                                                                      \
    } while (0)
/* For each type and CPU: GCC takes vectors apart before it would inline one function into two. */
#define SQUARED_DISTANCE(name, with, stored, as_floats)                                            \
    with static float name(const void *from, const void *to, uint32_t dim) {                       \
        const float *left = from, *other;                                                          \
        const stored *right = to;                                                                  \
        float room[LANES];                                                                         \
        eight sums_a = {0}, sums_b = {0}, sums_c = {0}, sums_d = {0};                              \
        for (; dim >= LANES; dim -= LANES, left += LANES, right += LANES) {                        \
            other = as_floats(right, room, LANES);                                                 \
            ADD(sums_a, 0);                                                                        \
            ADD(sums_b, 8);                                                                        \
            ADD(sums_c, 16);                                                                       \
            ADD(sums_d, 24);                                                                       \
        }                                                                                          \
        for (; dim >= 8; dim -= 8, left += 8, right += 8) {                                        \
            other = as_floats(right, room, 8);                                                     \
            ADD(sums_a, 0);                                                                        \
        }                                                                                          \
        (void)room;                                                                                \
        eight all = (sums_a + sums_c) + (sums_b + sums_d);                                         \
        float sum = ((all[0] + all[4]) + (all[2] + all[6])) + ((all[1] + all[5]) + (all[3] + all[7])); \
        for (uint32_t i = 0; i < dim; i++)                                                         \
            sum += (left[i] - right[i]) * (left[i] - right[i]);                                    \
        return sum;                                                                                \
    }

SQUARED_DISTANCE(to_floats, , float, AS_THEY_ARE)
SQUARED_DISTANCE(to_bytes, , uint8_t, widened)
SQUARED_DISTANCE(to_floats_avx2, WITH_AVX2, float, AS_THEY_ARE)
SQUARED_DISTANCE(to_bytes_avx2, WITH_AVX2, uint8_t, widened)

static float between_bytes(const void *from, const void *to, uint32_t dim) {
    const uint8_t *left = from, *right = to;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < dim; i++) {
        int32_t apart = left[i] - right[i];
        sum += (uint32_t)(apart * apart);
    }
    return (float)sum;
}

wl_distance *wl_distance_to(uint32_t type) {
    if (type == WL_UINT8)
        return has_avx2() ? to_bytes_avx2 : to_bytes;
    return has_avx2() ? to_floats_avx2 : to_floats;
}

wl_distance *wl_distance_between(uint32_t type) {
    return type == WL_UINT8 ? between_bytes : wl_distance_to(type);
}

typedef struct {
    uint64_t count, grain;
    wl_range_work *work;
    void *context;
    _Atomic uint64_t next;
    _Atomic uint32_t threads;
} ranges;

static void *take_ranges(void *argument) {
    ranges *all = argument;
    uint32_t thread = atomic_fetch_add(&all->threads, 1);
    for (uint64_t first; (first = atomic_fetch_add(&all->next, all->grain)) < all->count;) {
        uint64_t rest = all->count - first;
        all->work(all->context, first, first + (rest < all->grain ? rest : all->grain), thread);
    }
    return NULL;
}

void wl_for_ranges(uint32_t threads, uint64_t count, uint64_t grain, wl_range_work *work,
                   void *context) {
    ranges all = {.count = count, .grain = grain, .work = work, .context = context};
    pthread_t started[THREAD_LIMIT];
    uint32_t more = 0;
    while (more + 1 < threads && more < THREAD_LIMIT && (more + 1) * grain < count &&
           !pthread_create(started + more, NULL, take_ranges, &all))
        more++;
    take_ranges(&all);
    while (more)
        pthread_join(started[--more], NULL);
}

void wl_sums(const uint8_t *rows, uint64_t stride, uint64_t length, uint64_t count, uint64_t *sums) {
    for (uint64_t i = 0; i < count; i++)
        sums[i] = wl_sum(rows + i * stride, length);
}
