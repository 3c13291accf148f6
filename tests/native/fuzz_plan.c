/* Throws bytes at the parser of plans. A plan that it takes has to stay within its own bounds:
 * every operation lies in an extent, every extent in its file. Run by libFuzzer, or by fuzz_main.c
 * where there is none. */
#include <stdint.h>
#include <stdlib.h>

#include "pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static void require(int holds) {
    if (!holds)
        abort();
}

static void check_block(const wl_plan *plan, const wl_block *block) {
    require(block->extent < plan->extent_count &&
            block->number < (plan->order == WL_LISTED ? plan->listed_count : plan->block_count));
    require(block->length > 0 && block->length <= plan->block_bytes);
    require(block->offset % plan->align == 0);
    require(block->offset + block->length <= (uint64_t)INT64_MAX - plan->align);
    const wl_extent *extent = &plan->extents[block->extent];
    require(extent->file < plan->file_count && block->offset >= extent->offset &&
            block->offset + block->length <= extent->offset + extent->length);
}

static void check_plan(const wl_plan *plan) {
    wl_pattern pattern;
    wl_cursor cursor = WL_CURSOR_START;
    wl_pattern_init(&pattern, plan);
    uint64_t limit = plan->order == WL_LISTED      ? plan->listed_count
                     : wl_plan_is_one_pass(plan) ? plan->block_count
                                                 : UINT64_MAX / 2;
    for (uint64_t i = 0; plan->block_count && i < 100 && i < limit; i++) {
        uint64_t number = i % 3 ? i : limit - 1 - i;
        wl_block block = wl_pattern_block(&pattern, &cursor, number);
        check_block(plan, &block);
        require(wl_plan_span(plan) >= block.length);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    wl_plan plan;
    wl_error error;
    int32_t code = wl_plan_parse(&plan, bytes, length, &error);
    require(wl_plan_check(bytes, length, &error) == code && error.code == code);
    if (!code) {
        check_plan(&plan);
        wl_plan_free(&plan);
    }
    return 0;
}
