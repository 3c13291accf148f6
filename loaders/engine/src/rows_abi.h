/* Gathers of rows through the queue of queue_abi.h: what requesters and the host agree on. CUDA's
 * runtime compiler reads this header too.
 *
 * Rows of all files have one numbering. Each row has a word in the requesters' memory: its place in
 * the buffer of host memory, or how many of the gathers to come need it. A gather first splits its
 * list: rows of the host buffer go to the front of `entries`, the others to the back. Then the warps
 * that have slots ask for the others, a row a lane, and all warps copy rows of the buffer. */
#ifndef WL_ROWS_ABI_H
#define WL_ROWS_ABI_H

#include "queue_abi.h"

/* Of a word: the row is in the host buffer, and the rest is its place there. */
#define WL_ROW_IS_KEPT 0x80000000u
/* Reads begin and end at multiples of it. */
enum { WL_ROW_ALIGN = 4096 };

typedef struct {
    uint32_t row, place; /* in its list; a row of the host buffer has its place there as `row` */
} wl_row_entry;

/* Row `first_row` begins at `offset_bytes` of the file; the next are 1 or, striped, as many as there
 * are files further. */
typedef struct {
    uint64_t first_row, offset_bytes;
} wl_row_file;

/* Cursors into `entries`, WL_HEAD_STRIDE apart: how many the split has made of either kind, and how
 * many warps have taken. */
enum { WL_MADE_KEPT, WL_MADE_OTHERS, WL_TAKEN_KEPT, WL_TAKEN_OTHERS, WL_ROW_CURSORS };

/* By a warp. Each row is in one of the first four; `bypassed` are those of `asked` that took no page
 * of the cache. `delivered` are all that were copied to their places. */
typedef struct {
    uint64_t kept, hits, merged, asked;
    uint64_t bypassed, delivered, failed, unanswered;
} wl_row_counts;

/* All addresses are valid for the requesters. Of `queue` only what requests, waits and the cache
 * need is set. */
typedef struct {
    wl_queue_view queue;
    uint64_t list;    /* uint64_t[count]: rows; host memory */
    uint64_t words;   /* uint32_t[rows] */
    uint64_t kept;    /* uint8_t[][row_bytes]: the host buffer; host memory */
    uint64_t entries; /* wl_row_entry[room] */
    uint64_t cursors; /* uint32_t[WL_ROW_CURSORS][WL_HEAD_STRIDE] */
    uint64_t files;   /* wl_row_file[file_count] */
    uint64_t counts;  /* wl_row_counts[all_warps]; host memory */
    uint64_t into;    /* uint8_t[count][row_bytes] */
    uint64_t count, room;
    uint64_t first_place; /* of the list's rows in the host buffer, where it is filled */
    uint64_t pulled_rows; /* in the host buffer, where pulls are timed */
    uint32_t file_count, is_striped;
    uint32_t all_warps;   /* the first queue.warps of them have slots */
    uint32_t is_expected; /* the words count this gather */
} wl_rows_view;

#endif
