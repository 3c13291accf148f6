#include "trace.h"

#include <stdlib.h>

void wl_trace_init(wl_trace *trace, uint32_t every, uint32_t limit) {
    *trace = (wl_trace){.step = every, .limit = limit, .next = every ? 0 : UINT64_MAX};
}

void wl_trace_free(wl_trace *trace) {
    free(trace->rows);
    trace->rows = NULL;
}

static void thin(wl_trace *trace, uint64_t step) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < trace->count; i++)
        if (trace->rows[i].number % step == 0)
            trace->rows[kept++] = trace->rows[i];
    trace->count = kept;
    trace->step = step;
}

static int grow(wl_trace *trace) {
    uint32_t capacity = trace->capacity ? 2 * trace->capacity : 64;
    wl_traced *rows = realloc(trace->rows, capacity * sizeof *rows);
    if (!rows)
        return 0;
    trace->rows = rows;
    trace->capacity = capacity;
    return 1;
}

void wl_trace_add(wl_trace *trace, uint64_t number, wl_trace_row row) {
    while (trace->count && trace->count >= trace->limit)
        thin(trace, 2 * trace->step);
    if (number % trace->step || (trace->count == trace->capacity && !grow(trace)))
        return;
    trace->rows[trace->count++] = (wl_traced){.row = row, .number = number};
}

static int by_time(const void *left, const void *right) {
    const wl_trace_row *a = left, *b = right;
    if (a->submit_ns != b->submit_ns)
        return a->submit_ns < b->submit_ns ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

static uint64_t even_out(wl_trace **parts, uint32_t part_count) {
    uint64_t step = 1, total;
    for (uint32_t i = 0; i < part_count; i++)
        step = parts[i]->step > step ? parts[i]->step : step;
    for (;; step *= 2) {
        total = 0;
        for (uint32_t i = 0; i < part_count; i++) {
            if (parts[i]->step != step)
                thin(parts[i], step);
            total += parts[i]->count;
        }
        if (total <= WL_TRACE_LIMIT)
            return total;
    }
}

wl_trace_row *wl_trace_merge(wl_trace **parts, uint32_t part_count, uint64_t *row_count) {
    *row_count = 0;
    uint64_t total = even_out(parts, part_count);
    wl_trace_row *rows = total ? malloc(total * sizeof *rows) : NULL;
    if (!rows)
        return NULL;
    for (uint32_t i = 0; i < part_count; i++)
        for (uint32_t k = 0; k < parts[i]->count; k++)
            rows[(*row_count)++] = parts[i]->rows[k].row;
    qsort(rows, *row_count, sizeof *rows, by_time);
    return rows;
}
