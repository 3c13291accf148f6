/* Types shared by the parts of gathers of rows: what both kinds of requesters need. */
#ifndef WL_QUEUE_ROWS_H
#define WL_QUEUE_ROWS_H

#include "queue.h"
#include "rows_abi.h"

/* Who gathers, besides what wl_requesters has. */
typedef struct {
    const wl_requesters *requesters;
    /* Once the buffer of host memory is there and filled: makes it valid for the requesters. */
    int32_t (*keep)(wl_rows *rows, uint64_t count, wl_error *error);
    /* The list holds `view.count` rows of a gather to come; NULL without a cache. */
    int32_t (*expect)(wl_rows *rows, wl_error *error);
    /* Starts all requesters on `view`. */
    int32_t (*start)(wl_rows *rows, wl_error *error);
    /* After the end: CPU time of the requesters' own threads; NULL without. */
    uint64_t (*end)(wl_rows *rows);
    /* Starts pulls until the control word ends them; NULL where there are none. */
    int32_t (*pull)(wl_rows *rows, wl_error *error);
} wl_gatherers;

extern const wl_gatherers wl_gpu_gatherers, wl_cpu_gatherers;

struct wl_rows {
    const wl_gatherers *gatherers;
    wl_queue *queue;
    void *own; /* of the gatherers */
    uint64_t row_count, kept_room, cache_rows;
    wl_row_file files[WL_QUEUE_TARGETS];

    uint8_t *memory; /* the list, zeros, counts of warps */
    size_t memory_bytes, zeros_bytes;
    uint64_t *list;
    uint8_t *zeros;
    wl_row_counts *counts;
    uint8_t *kept; /* the buffer of host memory */
    size_t kept_bytes;

    wl_rows_view view; /* of the requesters */
    wl_queue_watch watch;
    uint64_t start_ns;
    bool is_gathering;
};

/* By the requesters when they are opened: the memory of gathers beside the queue's own. */
int32_t wl_rows_prepare(wl_rows *rows, wl_queue *queue, wl_error *error);

/* Warps with counts: those of the GPU that only pull are more than those with slots. */
enum { WL_ROWS_WARPS_LIMIT = 8192 };

#endif
