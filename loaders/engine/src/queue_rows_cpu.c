/* Gathers by threads of the CPU: each has slots of its own, one row in flight for each, and copies
 * rows of the buffer of host memory as it comes to them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "queue_rows.h"

typedef struct {
    uint8_t *to;
    const uint8_t *from;
    uint32_t generation;
    bool is_waiting;
} cpu_slot;

typedef struct cpu_side cpu_side;

typedef struct {
    _Alignas(WL_QUEUE_LINE) cpu_side *side;
    uint32_t first_slot, slot_count, turn;
    uint64_t cpu_ns;
} cpu_thread;

struct cpu_side {
    wl_rows *rows;
    cpu_thread *threads;
    cpu_slot *slots;
    uint32_t *words;
    _Alignas(WL_QUEUE_LINE) _Atomic uint64_t taken; /* of the list */
};

static void submit(cpu_side *side, cpu_thread *thread, uint32_t file, uint64_t number,
                   uint32_t slot, uint32_t generation) {
    wl_queue *queue = side->rows->queue;
    uint32_t number_of_pair = file * queue->pairs + thread->turn;
    wl_pair *pair = &queue->all_pairs[number_of_pair];
    wl_ask(pair, wl_team_take(queue->team, number_of_pair, 1),
           (wl_request){.block = number, .slot = slot, .generation = generation});
    thread->turn = thread->turn + 1 < queue->pairs ? thread->turn + 1 : 0;
}

static uint32_t file_of(const wl_rows *rows, uint64_t row, uint64_t *number) {
    uint32_t file = rows->view.file_count - 1;
    if (rows->view.is_striped) {
        *number = row / rows->view.file_count;
        return (uint32_t)(row % rows->view.file_count);
    }
    while (file && rows->files[file].first_row > row)
        file--;
    *number = row - rows->files[file].first_row;
    return file;
}

/* Takes rows of the list until one has to be read; whether it has found one. */
static bool ask(cpu_thread *thread, uint32_t slot_number, wl_row_counts *counts) {
    cpu_side *side = thread->side;
    wl_rows *rows = side->rows;
    size_t row_bytes = rows->queue->block_bytes;
    cpu_slot *slot = &side->slots[slot_number];
    for (;;) {
        uint64_t place = atomic_fetch_add_explicit(&side->taken, 1, memory_order_relaxed), number;
        if (place >= rows->view.count)
            return false;
        uint64_t row = rows->list[place];
        uint32_t word = side->words ? side->words[row] : 0;
        slot->to = (uint8_t *)(uintptr_t)rows->view.into + place * row_bytes;
        if (word & WL_ROW_IS_KEPT) {
            memcpy(slot->to, rows->kept + (word & ~WL_ROW_IS_KEPT) * row_bytes, row_bytes);
            counts->kept++;
            counts->delivered++;
            continue;
        }
        uint32_t file = file_of(rows, row, &number);
        uint64_t offset = rows->files[file].offset_bytes + number * row_bytes;
        slot->from = rows->queue->slots + (size_t)slot_number * rows->queue->slot_bytes +
                     offset % WL_ROW_ALIGN;
        slot->generation = (slot->generation + 1) & WL_GENERATION_MASK;
        slot->is_waiting = true;
        counts->asked++;
        counts->bypassed++;
        submit(side, thread, file, number, slot_number, slot->generation);
        return true;
    }
}

static bool deliver(const cpu_side *side, uint32_t slot_number, wl_row_counts *counts) {
    const wl_queue *queue = side->rows->queue;
    cpu_slot *slot = &side->slots[slot_number];
    uint32_t word =
        atomic_load_explicit(&queue->completions[slot_number], memory_order_acquire);
    if (word >> WL_ERRNO_BITS != slot->generation)
        return false;
    slot->is_waiting = false;
    if (word & WL_ERRNO_MASK) {
        counts->failed++;
        return true;
    }
    memcpy(slot->to, slot->from, queue->block_bytes);
    counts->delivered++;
    return true;
}

static void *thread_main(void *argument) {
    cpu_thread *thread = argument;
    cpu_side *side = thread->side;
    wl_team *team = side->rows->queue->team;
    wl_row_counts counts = {0};
    uint32_t waiting = 0, empty = 0;
    bool has_more = true;
    uint32_t end = thread->first_slot + thread->slot_count;
    do {
        /* The first request to leave is for those that are still answered. */
        uint32_t control = atomic_load_explicit(&team->control, memory_order_relaxed);
        bool has_done = false;
        for (uint32_t i = thread->first_slot; i < end; i++) {
            if (side->slots[i].is_waiting) {
                if (!deliver(side, i, &counts))
                    continue;
                waiting--;
                has_done = true;
            }
            if (!has_more)
                continue;
            has_more = control == WL_GO_ON && ask(thread, i, &counts);
            waiting += has_more;
            has_done = true;
        }
        if (!has_done && control == WL_ABANDON)
            break;
        empty = has_done ? 0 : empty + 1;
        wl_queue_give_way(empty);
    } while (has_more || waiting);
    counts.unanswered = waiting;
    side->rows->counts[thread - side->threads] = counts;
    thread->cpu_ns = wl_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    wl_team_finish(team);
    return NULL;
}

static int32_t open_cpu(wl_queue *queue, const wl_queue_setup *setup, wl_error *error) {
    wl_rows *rows = queue->own;
    uint32_t slots = wl_slot_count(queue);
    cpu_side *side = aligned_alloc(WL_QUEUE_LINE, sizeof *side);
    if (!side)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating requesters");
    memset(side, 0, sizeof *side);
    rows->own = side;
    side->rows = rows;
    if (wl_team_open(queue, setup->requester_threads,
                     slots < WL_ROWS_WARPS_LIMIT ? slots : WL_ROWS_WARPS_LIMIT, error))
        return error->code;
    side->threads = aligned_alloc(WL_QUEUE_LINE, queue->team->count * sizeof *side->threads);
    side->slots = calloc(slots, sizeof *side->slots);
    side->words = rows->kept_room ? calloc(rows->row_count, sizeof *side->words) : NULL;
    if (!side->threads || !side->slots || (rows->kept_room && !side->words))
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating requesters");
    return wl_rows_prepare(rows, queue, error);
}

static int32_t keep_cpu(wl_rows *rows, uint64_t count, wl_error *error) {
    cpu_side *side = rows->own;
    (void)error;
    for (uint64_t place = rows->view.first_place; place < count; place++)
        side->words[rows->list[place - rows->view.first_place]] =
            WL_ROW_IS_KEPT | (uint32_t)place;
    return WL_OK;
}

static int32_t start_cpu(wl_rows *rows, wl_error *error) {
    cpu_side *side = rows->own;
    wl_queue *queue = rows->queue;
    uint32_t slots = wl_slot_count(queue), count = queue->team->count;
    memset(side->slots, 0, slots * sizeof *side->slots);
    memset(rows->counts, 0, count * sizeof *rows->counts);
    rows->view.all_warps = count;
    atomic_store(&side->taken, 0);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = (uint32_t)((uint64_t)slots * i / count);
        uint32_t end = (uint32_t)((uint64_t)slots * (i + 1) / count);
        side->threads[i] =
            (cpu_thread){.side = side, .first_slot = first, .slot_count = end - first};
    }
    return wl_team_start(queue, thread_main, side->threads, sizeof *side->threads, error);
}

static uint64_t end_cpu(wl_rows *rows) {
    cpu_side *side = rows->own;
    wl_team *team = rows->queue->team;
    uint64_t cpu_ns = 0;
    uint32_t count = team->running;
    wl_team_join(team);
    for (uint32_t i = 0; i < count; i++)
        cpu_ns += side->threads[i].cpu_ns;
    return cpu_ns;
}

static void close_cpu(wl_queue *queue) {
    wl_rows *rows = queue->own;
    cpu_side *side = rows->own;
    if (!side)
        return;
    wl_team_close(queue);
    free(side->threads);
    free(side->slots);
    free(side->words);
    free(side);
    rows->own = NULL;
}

static const wl_requesters requesters = {
    .open = open_cpu, .control = wl_team_control, .poll = wl_team_poll, .close = close_cpu};

const wl_gatherers wl_cpu_gatherers = {.requesters = &requesters,
                                       .keep = keep_cpu,
                                       .start = start_cpu,
                                       .end = end_cpu};
