/* Gathers by the threads of a GPU: the kernels of loaders/gpu_queue/feature_rows.cu. Its copies and
 * kernels are on streams of their own: work of the process on other streams, such as training, neither
 * waits for them nor is waited for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "queue_gpu.h"
#include "queue_rows.h"

/* Warps of a multiprocessor that copy rows of the host buffer, besides those with slots. */
enum { PULLING_WARPS = 2 };

typedef struct {
    wl_gpu_base base;
    wl_cu_function keep, expect, split, gather, pull;
    wl_cu_pointer memory;
    wl_cu_pointer zeroed; /* heads, cursors */
    size_t zeroed_bytes;
} gpu_side;

static gpu_side *side_of(const wl_rows *rows) { return rows->own; }

static int32_t load_kernels(gpu_side *side, wl_error *error) {
    const wl_gpu_base *base = &side->base;
    if (wl_gpu_function(base, "keep_rows", &side->keep, error) ||
        wl_gpu_function(base, "expect_rows", &side->expect, error) ||
        wl_gpu_function(base, "split_rows", &side->split, error) ||
        wl_gpu_function(base, "gather_rows", &side->gather, error))
        return error->code;
    return wl_gpu_function(base, "pull_rows", &side->pull, error);
}

/* Words of rows, entries, heads and cursors, files. */
static int32_t allocate(wl_rows *rows, wl_error *error) {
    gpu_side *side = side_of(rows);
    const wl_queue *queue = rows->queue;
    wl_rows_view *view = &rows->view;
    size_t words = wl_gpu_line_up(rows->row_count * sizeof(uint32_t));
    size_t entries = wl_gpu_line_up(view->room * sizeof(wl_row_entry));
    size_t line = WL_HEAD_STRIDE * sizeof(uint32_t);
    side->zeroed_bytes = (queue->pair_count + WL_ROW_CURSORS) * line;
    size_t zeroed = wl_gpu_line_up(side->zeroed_bytes);
    size_t files = wl_gpu_line_up(sizeof rows->files);
    if (wl_gpu_allocate(&side->base, &side->memory, words + entries + zeroed + files + 256,
                        "the index of rows", error))
        return error->code;
    view->words = side->memory;
    view->entries = view->words + words;
    side->zeroed = view->entries + entries;
    view->cursors = side->zeroed + queue->pair_count * line;
    view->files = side->zeroed + zeroed;
    side->base.control = view->files + files;
    wl_cu_result code = side->base.cuda->set(side->memory, 0, words + entries + zeroed);
    if (!code)
        code = side->base.cuda->copy_in(view->files, rows->files, sizeof rows->files, NULL);
    return code ? wl_cuda_fail(error, code, "cuMemcpyHtoD") : WL_OK;
}

static int32_t allocate_cache(wl_rows *rows, wl_error *error) {
    wl_gpu_base *base = &side_of(rows)->base;
    rows->view.queue.cache_sets = rows->cache_rows / WL_WAYS;
    if (wl_gpu_allocate_cache(base, &rows->view.queue, error))
        return error->code;
    wl_cu_result code = wl_gpu_clear_cache(base, &rows->view.queue);
    return code ? wl_cuda_fail(error, code, "cuMemsetD8") : WL_OK;
}

static int32_t map_memory(wl_rows *rows, wl_error *error) {
    gpu_side *side = side_of(rows);
    wl_rows_view *view = &rows->view;
    wl_cu_pointer list = 0;
    if (wl_gpu_map_queue(&side->base, rows->queue, &view->queue, error) ||
        wl_gpu_map_host(&side->base, rows->memory, rows->memory_bytes, &list, error))
        return error->code;
    view->queue.heads = side->zeroed;
    view->queue.control = side->base.control;
    view->list = list;
    view->counts = list + (size_t)((uint8_t *)rows->counts - rows->memory);
    if (!rows->kept)
        return WL_OK;
    return wl_gpu_map_host(&side->base, rows->kept, rows->kept_bytes, &view->kept, error);
}

static int32_t place_warps(wl_rows *rows, wl_error *error) {
    gpu_side *side = side_of(rows);
    uint32_t multiprocessors;
    if (wl_gpu_multiprocessors(&side->base, &multiprocessors, error))
        return error->code;
    rows->view.all_warps = rows->queue->warps + PULLING_WARPS * multiprocessors;
    return rows->view.all_warps <= WL_ROWS_WARPS_LIMIT
               ? WL_OK
               : wl_fail(error, WL_TOO_MANY, NULL, WL_ROWS_WARPS_LIMIT, "%u warps",
                         rows->view.all_warps);
}

static int32_t open_gpu(wl_queue *queue, const wl_queue_setup *setup, wl_error *error) {
    wl_rows *rows = queue->own;
    gpu_side *side = calloc(1, sizeof *side);
    if (!side)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating requesters");
    rows->own = side;
    rows->view.queue = queue->view;
    if (wl_rows_prepare(rows, queue, error) ||
        wl_gpu_enter(&side->base, queue, setup, error) ||
        load_kernels(side, error) || place_warps(rows, error) || allocate(rows, error) ||
        allocate_cache(rows, error) || map_memory(rows, error))
        return error->code;
    /* What has been set and copied so far was on the stream that others wait for. */
    wl_cu_result code = side->base.cuda->stream_wait(NULL);
    return code ? wl_cuda_fail(error, code, "cuStreamSynchronize") : WL_OK;
}

static int32_t launch(wl_rows *rows, wl_cu_function kernel, uint64_t threads, wl_error *error) {
    return wl_gpu_launch(&side_of(rows)->base, kernel, threads, &rows->view, error);
}

/* A kernel over the list, to its end. */
static int32_t run_list(wl_rows *rows, wl_cu_function kernel, wl_error *error) {
    gpu_side *side = side_of(rows);
    if (!rows->view.count)
        return WL_OK;
    if (wl_gpu_current(&side->base, error) || launch(rows, kernel, rows->view.count, error))
        return error->code;
    wl_cu_result code = side->base.cuda->stream_wait(side->base.stream);
    return code ? wl_cuda_fail(error, code, "the kernel") : WL_OK;
}

static int32_t keep_gpu(wl_rows *rows, uint64_t count, wl_error *error) {
    (void)count;
    return run_list(rows, side_of(rows)->keep, error);
}

static int32_t expect_gpu(wl_rows *rows, wl_error *error) {
    return run_list(rows, side_of(rows)->expect, error);
}

static int32_t start_gpu(wl_rows *rows, wl_error *error) {
    gpu_side *side = side_of(rows);
    const wl_cuda *cuda = side->base.cuda;
    memset(rows->counts, 0, rows->view.all_warps * sizeof *rows->counts);
    if (wl_gpu_current(&side->base, error))
        return error->code;
    wl_cu_result code =
        cuda->copy_in(side->zeroed, rows->zeros, side->zeroed_bytes, side->base.stream);
    if (code)
        return wl_cuda_fail(error, code, "cuMemcpyHtoDAsync");
    if (!rows->view.count)
        return WL_OK;
    if (wl_gpu_control(rows->queue, WL_GO_ON, error) ||
        launch(rows, side->split, rows->view.count, error))
        return error->code;
    return launch(rows, side->gather, (uint64_t)rows->view.all_warps * WL_WARP, error);
}

static int32_t pull_gpu(wl_rows *rows, wl_error *error) {
    gpu_side *side = side_of(rows);
    wl_queue *queue = rows->queue;
    uint64_t kept = rows->view.kept;
    memset(rows->counts, 0, rows->view.all_warps * sizeof *rows->counts);
    if (wl_gpu_current(&side->base, error) || wl_gpu_control(queue, WL_GO_ON, error))
        return error->code;
    rows->view.pulled_rows = rows->kept_room;
    if (!rows->kept_room) {
        rows->view.kept = rows->view.queue.slots;
        rows->view.pulled_rows =
            (uint64_t)wl_slot_count(queue) * queue->slot_bytes / queue->block_bytes;
    }
    int32_t failed =
        launch(rows, side->pull, (uint64_t)rows->view.all_warps * WL_WARP, error);
    rows->view.kept = kept;
    return failed;
}

static void close_gpu(wl_queue *queue) {
    wl_rows *rows = queue->own;
    gpu_side *side = side_of(rows);
    if (!side)
        return;
    wl_gpu_leave(&side->base);
    free(side);
    rows->own = NULL;
}

static const wl_requesters requesters = {
    .open = open_gpu, .control = wl_gpu_control, .poll = wl_gpu_poll, .close = close_gpu};

const wl_gatherers wl_gpu_gatherers = {.requesters = &requesters,
                                       .keep = keep_gpu,
                                       .expect = expect_gpu,
                                       .start = start_gpu,
                                       .pull = pull_gpu};
