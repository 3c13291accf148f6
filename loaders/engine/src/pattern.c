#include "pattern.h"

__extension__ typedef unsigned __int128 u128;

/* A number below `count` from 64 random bits, without a division (Lemire 2019). */
static uint64_t scale(uint64_t bits, uint64_t count) {
    return (uint64_t)(((u128)bits * count) >> 64);
}

void wl_pattern_init(wl_pattern *pattern, const wl_plan *plan) {
    *pattern = (wl_pattern){.plan = plan, .mode = WL_IN_SEQUENCE};
    if (plan->order != WL_RANDOM)
        return;
    uint64_t seed = wl_mix(plan->seed ^ 0x5851f42d4c957f2du);
    for (uint32_t i = 0; i < 8; i++)
        pattern->keys[i] = wl_draw(seed, i);
    pattern->mode = wl_plan_is_one_pass(plan) ? WL_PERMUTED : WL_UNIFORM;
    if (plan->block_count > 1)
        pattern->bits = 64 - (uint32_t)__builtin_clzll(plan->block_count - 1);
}

/* Adding, multiplying by an odd number and xoring in higher bits each permute [0, 2^bits). */
static uint64_t shuffle(const wl_pattern *pattern, uint64_t x) {
    uint64_t mask = ((uint64_t)1 << pattern->bits) - 1;
    uint32_t shift = (pattern->bits + 1) / 2;
    for (uint32_t round = 0; round < 4; round++) {
        x = (x + pattern->keys[2 * round]) & mask;
        x = (x * (pattern->keys[2 * round + 1] | 1)) & mask;
        x ^= x >> shift;
    }
    return x;
}

/* Cycle walking: a number outside is permuted again until it falls inside, twice on average at
 * most (Black, Rogaway 2002). */
static uint64_t permute(const wl_pattern *pattern, uint64_t number) {
    if (!pattern->bits)
        return 0;
    do
        number = shuffle(pattern, number);
    while (number >= pattern->plan->block_count);
    return number;
}

static uint32_t extent_of(const wl_plan *plan, uint64_t block) {
    uint32_t low = 0, high = plan->extent_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (plan->extents[middle].first_block <= block)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void move_cursor(const wl_plan *plan, wl_cursor *cursor, uint64_t operation) {
    if (operation != cursor->next_number) {
        cursor->block = operation % plan->block_count;
        cursor->extent = extent_of(plan, cursor->block);
    } else if (++cursor->block == plan->block_count) {
        cursor->block = 0;
        cursor->extent = 0;
    } else if (cursor->block == plan->extents[cursor->extent + 1].first_block) {
        cursor->extent++;
    }
    cursor->next_number = operation + 1;
}

wl_block wl_pattern_block(const wl_pattern *pattern, wl_cursor *cursor, uint64_t operation) {
    const wl_plan *plan = pattern->plan;
    uint64_t block;
    uint32_t index;
    if (pattern->mode == WL_IN_SEQUENCE) {
        move_cursor(plan, cursor, operation);
        block = cursor->block;
        index = cursor->extent;
    } else {
        block = pattern->mode == WL_PERMUTED
                    ? permute(pattern, operation)
                    : scale(wl_draw(pattern->keys[0], operation), plan->block_count);
        index = extent_of(plan, block);
    }
    const wl_extent *extent = &plan->extents[index];
    uint64_t within = (block - extent->first_block) * plan->block_bytes;
    uint64_t left = extent->length - within;
    return (wl_block){
        .number = block,
        .offset = extent->offset + within,
        .length = left < plan->block_bytes ? (uint32_t)left : plan->block_bytes,
        .file = extent->file,
    };
}
