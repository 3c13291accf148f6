/* Which block an operation moves: a pure function of the plan and the operation's number, so that
 * pollers need no lock to share a plan. */
#ifndef WL_PATTERN_H
#define WL_PATTERN_H

#include "permutation.h"
#include "plan.h"

typedef enum { WL_IN_SEQUENCE, WL_UNIFORM, WL_PERMUTED, WL_BY_LIST } wl_mode;

typedef struct {
    const wl_plan *plan;
    wl_mode mode;
    uint64_t seed; /* of uniform draws */
    wl_permutation permutation;
} wl_pattern;

/* The position of a poller's last sequential operation; the next one needs no search. */
typedef struct {
    uint64_t next_number;
    uint64_t block;
    uint32_t extent;
} wl_cursor;

typedef struct {
    uint64_t number; /* of the block in the plan, or in its list */
    uint64_t offset;
    uint32_t length;
    uint32_t extent;
} wl_block;

void wl_pattern_init(wl_pattern *pattern, const wl_plan *plan);
/* The plan has the operation. `cursor` starts as WL_CURSOR_START. */
wl_block wl_pattern_block(const wl_pattern *pattern, wl_cursor *cursor, uint64_t operation);

#define WL_CURSOR_START ((wl_cursor){.next_number = UINT64_MAX})

#endif
