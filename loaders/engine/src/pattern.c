#include "pattern.h"

void wl_pattern_init(wl_pattern *pattern, const wl_plan *plan) {
    *pattern = (wl_pattern){.plan = plan, .mode = WL_IN_SEQUENCE};
    if (plan->order == WL_LISTED)
        pattern->mode = WL_BY_LIST;
    if (plan->order != WL_RANDOM)
        return;
    uint64_t seed = wl_mix(plan->seed ^ 0x5851f42d4c957f2du);
    pattern->seed = wl_draw(seed, 0);
    pattern->mode = wl_plan_is_one_pass(plan) ? WL_PERMUTED : WL_UNIFORM;
    if (plan->block_count)
        wl_permutation_init(&pattern->permutation, seed, plan->block_count);
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
        block = pattern->mode == WL_BY_LIST    ? plan->listed[operation]
                : pattern->mode == WL_PERMUTED ? wl_permute(&pattern->permutation, operation)
                : wl_scale(wl_draw(pattern->seed, operation), plan->block_count);
        index = extent_of(plan, block);
    }
    const wl_extent *extent = &plan->extents[index];
    uint64_t within = (block - extent->first_block) * plan->block_bytes;
    uint64_t left = extent->length - within;
    return (wl_block){
        .number = pattern->mode == WL_BY_LIST ? operation : block,
        .offset = extent->offset + within,
        .length = left < plan->block_bytes ? (uint32_t)left : plan->block_bytes,
        .extent = index,
    };
}
