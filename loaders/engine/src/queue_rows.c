/* Gathers of rows: their memory, their stages, and what they found. */
#include "queue_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ROW_LIMIT = 65536, OUTSTANDING_LIMIT = 65536 };
/* How often the end of a gather is looked for. */
enum { LOOK_NS = 20000 };

static int32_t check_setup(const wl_rows_setup *setup, wl_error *error) {
    const char *wrong = NULL;
    if (setup->struct_bytes != sizeof *setup)
        wrong = "struct_bytes is that of another version";
    else if (!setup->row_bytes || setup->row_bytes % WL_UNIT_BYTES || setup->row_bytes > ROW_LIMIT)
        wrong = "row_bytes must be a multiple of 512, up to 65536";
    else if (!setup->outstanding || setup->outstanding % WL_WARP ||
             setup->outstanding > OUTSTANDING_LIMIT)
        wrong = "outstanding must be a multiple of 32, up to 65536";
    else if (!setup->file_count || setup->file_count > WL_QUEUE_TARGETS)
        wrong = "file_count must be 1 to 64";
    else if (!setup->gpu && setup->cache_rows)
        wrong = "requesters of the CPU have no cache";
    else if (!setup->row_count || setup->row_count >= WL_ROW_IS_KEPT || !setup->batch_rows ||
             setup->batch_rows >= WL_ROW_IS_KEPT)
        wrong = "row_count and batch_rows must be 1 to 2^31 - 1";
    else if (setup->kept_rows > setup->row_count)
        wrong = "kept_rows must be at most row_count";
    for (uint32_t i = 0; !wrong && i < setup->file_count; i++)
        if (setup->files[i].offset_bytes % WL_LANE_BYTES)
            wrong = "rows of a file must begin at a multiple of 16 bytes";
    return wrong ? wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "%s", wrong) : WL_OK;
}

/* What is read of a file for a row, at most. */
static uint64_t read_bytes_of(const wl_rows_setup *setup, const wl_rows_file *file) {
    uint64_t most = 0, step = setup->row_bytes;
    for (uint64_t i = 0; i < WL_ROW_ALIGN / WL_UNIT_BYTES; i++) {
        uint64_t start = (file->offset_bytes + i * step) % WL_ROW_ALIGN;
        uint64_t bytes = wl_round_up(start + step, WL_ROW_ALIGN);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static uint32_t power_of_2(uint64_t least) {
    return least < 2 ? 1 : (uint32_t)1 << (64 - wl_leading_zeros(least - 1));
}

static int32_t lay_out(wl_rows *rows, wl_error *error) {
    const wl_queue *queue = rows->queue;
    uint64_t list = wl_round_up(rows->view.room * sizeof(uint64_t), WL_PAGE_BYTES);
    uint64_t cursors = queue->pair_count + WL_ROW_CURSORS;
    rows->zeros_bytes = wl_round_up(cursors * WL_HEAD_STRIDE * sizeof(uint32_t), WL_PAGE_BYTES);
    rows->memory_bytes = list + rows->zeros_bytes +
                         wl_round_up(WL_ROWS_WARPS_LIMIT * sizeof(wl_row_counts), WL_PAGE_BYTES);
    rows->kept_bytes = wl_round_up(rows->kept_room * queue->block_bytes, WL_PAGE_BYTES);
    rows->memory = wl_queue_map(rows->memory_bytes, error);
    if (!rows->memory)
        return error->code;
    if (rows->kept_bytes)
        rows->kept = wl_queue_map(rows->kept_bytes, error);
    if (rows->kept_bytes && !rows->kept)
        return error->code;
    rows->list = (uint64_t *)(void *)rows->memory;
    rows->zeros = rows->memory + list;
    rows->counts = (wl_row_counts *)(void *)(rows->zeros + rows->zeros_bytes);
    return WL_OK;
}

static int32_t open_queue(wl_rows *rows, const wl_rows_setup *setup, wl_error *error) {
    wl_queue_target targets[WL_QUEUE_TARGETS];
    uint64_t read_bytes = 0;
    for (uint32_t i = 0; i < setup->file_count; i++) {
        const wl_rows_file *file = &setup->files[i];
        uint64_t bytes = read_bytes_of(setup, file);
        read_bytes = bytes > read_bytes ? bytes : read_bytes;
        targets[i] = (wl_queue_target){
            .path = file->path, .bytes = file->offset_bytes + file->row_count * setup->row_bytes};
    }
    wl_queue_setup queue = {.engine = WL_QUEUE_STORAGE,
                            .block_bytes = setup->row_bytes,
                            .read_bytes = power_of_2(read_bytes),
                            .queue_pairs = setup->queue_pairs,
                            .queue_size = power_of_2(setup->outstanding),
                            .pollers = setup->pollers,
                            .requester_threads = setup->requester_threads,
                            .sample_every = 1,
                            .fault = setup->fault,
                            .hang_ms = setup->hang_ms,
                            .targets = targets,
                            .target_count = setup->file_count,
                            .gpu = setup->gpu,
                            .image = setup->image};
    if (wl_queue_make(&queue, rows->gatherers->requesters, rows, setup->outstanding / WL_WARP,
                      &rows->queue, error)) {
        rows->queue = NULL; /* closed already */
        return error->code;
    }
    rows->queue->delivery = WL_DELIVER_SLOT;
    rows->queue->fault = setup->fault;
    return WL_OK;
}

int32_t wl_rows_open(const wl_rows_setup *setup, wl_rows **opened, wl_error *error) {
    if (check_setup(setup, error))
        return error->code;
    wl_rows *rows = calloc(1, sizeof *rows);
    if (!rows)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating gathers");
    rows->gatherers = setup->gpu ? &wl_gpu_gatherers : &wl_cpu_gatherers;
    rows->row_count = setup->row_count;
    rows->kept_room = setup->kept_rows;
    rows->cache_rows = setup->cache_rows;
    for (uint32_t i = 0; i < setup->file_count; i++)
        rows->files[i] = (wl_row_file){setup->files[i].first_row, setup->files[i].offset_bytes};
    rows->view.file_count = setup->file_count;
    rows->view.is_striped = setup->is_striped;
    rows->view.room = setup->batch_rows;
    int32_t failed = open_queue(rows, setup, error);
    if (failed)
        wl_rows_close(rows);
    else
        *opened = rows;
    return failed;
}

int32_t wl_rows_prepare(wl_rows *rows, wl_queue *queue, wl_error *error) {
    rows->queue = queue;
    for (uint32_t i = 0; i < queue->target_count; i++) {
        wl_queue_file *file = &queue->files[i];
        file->first_byte = rows->files[i].offset_bytes;
        file->align = WL_ROW_ALIGN;
    }
    return lay_out(rows, error);
}

uint8_t *wl_rows_kept(wl_rows *rows) { return rows->kept; }

static int32_t set_list(wl_rows *rows, const uint64_t *list, uint64_t count, wl_error *error) {
    if (count > rows->view.room)
        return wl_fail(error, WL_BAD_PLAN, NULL, count, "more rows than batch_rows");
    memcpy(rows->list, list, count * sizeof *list);
    rows->view.count = count;
    return WL_OK;
}

int32_t wl_rows_keep(wl_rows *rows, const uint64_t *list, uint64_t count, wl_error *error) {
    for (uint64_t done = 0; done < count;) {
        uint64_t part = count - done < rows->view.room ? count - done : rows->view.room;
        rows->view.first_place = done;
        if (set_list(rows, list + done, part, error) ||
            rows->gatherers->keep(rows, done + part, error))
            return error->code;
        done += part;
    }
    return WL_OK;
}

int32_t wl_rows_expect(wl_rows *rows, const uint64_t *list, uint64_t count, wl_error *error) {
    if (!rows->gatherers->expect)
        return WL_OK;
    if (set_list(rows, list, count, error))
        return error->code;
    return rows->gatherers->expect(rows, error);
}

int32_t wl_rows_start(wl_rows *rows, const uint64_t *list, uint64_t count, uint64_t into,
                      uint32_t is_expected, wl_error *error) {
    wl_queue *queue = rows->queue;
    if (set_list(rows, list, count, error))
        return error->code;
    rows->view.into = into;
    rows->view.is_expected = is_expected;
    wl_queue_reset(queue);
    memset(&rows->watch, 0, sizeof rows->watch);
    rows->start_ns = wl_now_ns();
    rows->is_gathering = true;
    wl_queue_let_pollers(queue, true);
    if (rows->gatherers->start(rows, error)) {
        wl_error first = *error;
        wl_rows_abandon(rows);
        *error = first;
    }
    return error->code;
}

static void add_warps(const wl_rows *rows, wl_rows_result *result) {
    for (uint32_t i = 0; i < rows->view.all_warps; i++) {
        const wl_row_counts *warp = &rows->counts[i];
        result->kept += warp->kept;
        result->hits += warp->hits;
        result->merged += warp->merged;
        result->asked += warp->asked;
        result->bypassed += warp->bypassed;
        result->delivered += warp->delivered;
        result->failed += warp->failed;
        result->unanswered += warp->unanswered;
    }
}

static void end(wl_rows *rows, wl_rows_result *result) {
    wl_queue *queue = rows->queue;
    result->start_ns = rows->start_ns;
    result->end_ns = wl_now_ns();
    wl_queue_let_pollers(queue, false);
    wl_queue_wait_for_pollers(queue);
    rows->is_gathering = false;
    if (rows->gatherers->end)
        result->cpu_ns = rows->gatherers->end(rows);
    add_warps(rows, result);
    wl_queue_add_pollers(queue, &result->taken, &result->answered, &result->cpu_ns,
                         result->failures);
    wl_queue_target_of(queue, WL_QUEUE_TARGETS, &result->reads);
}

int32_t wl_rows_wait(wl_rows *rows, uint32_t timeout_ms, uint32_t *is_over,
                     wl_rows_result *result, wl_error *error) {
    uint64_t limit_ns = wl_now_ns() + (uint64_t)timeout_ms * 1000000u;
    memset(error, 0, sizeof *error);
    memset(result, 0, sizeof *result);
    *is_over = 0;
    do {
        int32_t ended = wl_queue_look(rows->queue, &rows->watch, error);
        if (ended < 0) {
            wl_rows_abandon(rows);
            return error->code;
        }
        if (ended) {
            *is_over = 1;
            end(rows, result);
            if (result->unanswered)
                return wl_fail(error, WL_HANGS, NULL, result->unanswered, "no answer");
            return WL_OK;
        }
        wl_queue_nap(LOOK_NS);
    } while (wl_now_ns() < limit_ns);
    return WL_OK;
}

void wl_rows_abandon(wl_rows *rows) {
    if (!rows->is_gathering)
        return;
    rows->is_gathering = false;
    wl_queue_abandon(rows->queue);
    if (rows->gatherers->end)
        rows->gatherers->end(rows);
}

int32_t wl_rows_pull(wl_rows *rows, uint64_t into, uint64_t duration_ns, uint64_t *row_count,
                     uint64_t *took_ns, wl_error *error) {
    wl_queue *queue = rows->queue;
    *row_count = 0;
    if (!rows->gatherers->pull)
        return wl_fail(error, WL_BAD_PLAN, NULL, WL_NOWHERE, "only a GPU pulls");
    rows->view.into = into;
    memset(error, 0, sizeof *error);
    uint64_t start_ns = wl_now_ns();
    if (rows->gatherers->pull(rows, error))
        return error->code;
    wl_queue_nap(duration_ns);
    int32_t ended = wl_queue_leave(queue, WL_STOP, error);
    *took_ns = wl_now_ns() - start_ns;
    if (ended < 0)
        return error->code;
    if (!ended)
        return wl_fail(error, WL_HANGS, NULL, WL_NOWHERE, "the kernel does not end");
    for (uint32_t i = 0; i < rows->view.all_warps; i++)
        *row_count += rows->counts[i].kept;
    return WL_OK;
}

void wl_rows_close(wl_rows *rows) {
    wl_rows_abandon(rows);
    if (rows->queue)
        wl_queue_close(rows->queue);
    if (rows->memory)
        munmap(rows->memory, rows->memory_bytes);
    if (rows->kept)
        munmap(rows->kept, rows->kept_bytes);
    free(rows);
}
