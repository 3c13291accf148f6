/* A parsed and checked plan; none of its sums overflow. */
#ifndef WL_PLAN_H
#define WL_PLAN_H

#include "wattload_engine.h"

#define WL_PAGE_BYTES 4096u
#define WL_SECTOR_BYTES 512u

typedef struct {
    const char *path; /* ends in NUL; in wl_plan.paths */
    uint64_t end;
} wl_plan_file;

typedef struct {
    uint64_t offset;
    uint64_t length;
    uint64_t first_block; /* blocks of all extents before */
    uint64_t word;        /* of the stamps */
    uint32_t file;
} wl_extent;

typedef struct {
    uint8_t kind, order, allocation;
    uint32_t flags;
    uint32_t block_bytes;
    uint32_t align;
    uint32_t depth;
    uint32_t trace_every;
    uint64_t operation_count; /* 0: none */
    uint64_t duration_ns;     /* 0: none */
    uint64_t rate_bytes_per_s;
    uint64_t seed;
    uint64_t stamp_nonce, stamp_first;
    uint32_t stamp_unit; /* of stamped plans: 512 or 4096 */
    uint32_t destination_region;
    uint64_t destination_offset;
    uint64_t device_bytes, device_sequence; /* of WL_DEVICE; sequence 0: unknown */
    uint32_t device_major, device_minor;
    uint32_t file_count;
    uint32_t extent_count; /* without empty ones */
    uint32_t listed_count;
    uint64_t block_count;
    wl_plan_file *files;
    wl_extent *extents; /* one more than extent_count: its first_block is block_count */
    uint64_t *listed; /* numbers of blocks, of WL_LISTED */
    char *paths;
} wl_plan;

/* Validates everything: any bytes give a plan that is safe to run, or an error. */
int32_t wl_plan_parse(wl_plan *plan, const uint8_t *bytes, size_t length, wl_error *error);
void wl_plan_free(wl_plan *plan);

/* The bytes from a plan's destination to the end of its last block as moved or stamped. */
uint64_t wl_plan_span(const wl_plan *plan);

static inline uint64_t wl_round_up(uint64_t value, uint64_t power_of_2) {
    return (value + power_of_2 - 1) & ~(power_of_2 - 1);
}

/* Whether the plan moves each of its blocks once. */
static inline int wl_plan_is_one_pass(const wl_plan *plan) {
    return plan->order != WL_LISTED && !plan->operation_count && !plan->duration_ns;
}

#endif
