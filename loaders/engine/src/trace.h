/* The sampled trace: one operation in `step`, thinned when it grows too long. */
#ifndef WL_TRACE_H
#define WL_TRACE_H

#include "wattload_engine.h"

typedef struct {
    wl_trace_row row;
    uint64_t number; /* of the operation; thinning keeps multiples of the step */
} wl_traced;

/* One poller's part of a job's trace. */
typedef struct {
    wl_traced *rows;
    uint32_t count, capacity, limit;
    uint64_t step; /* 0: no trace */
    uint64_t next; /* no operation before this number is traced */
} wl_trace;

void wl_trace_init(wl_trace *trace, uint32_t every, uint32_t limit);
void wl_trace_free(wl_trace *trace);
void wl_trace_add(wl_trace *trace, uint64_t number, wl_trace_row row);

/* Merges the parts into one array, sorted by time of submission; NULL if there are no rows. */
wl_trace_row *wl_trace_merge(wl_trace **parts, uint32_t part_count, uint64_t *row_count);

/* Whether the operation is to be traced. Numbers come in rising order. */
static inline int wl_trace_takes(wl_trace *trace, uint64_t number) {
    if (number < trace->next)
        return 0;
    uint64_t rest = number % trace->step;
    trace->next = number - rest + trace->step;
    return rest == 0;
}

#endif
