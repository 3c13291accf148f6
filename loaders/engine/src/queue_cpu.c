/* Requesters on threads of the CPU, by the same protocol as the kernel's: lanes of a warp that are
 * answered ask again together. A thread takes its warps in turn and never waits for one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pattern.h"
#include "queue.h"

typedef struct {
    uint64_t number, block, start_ns, stream; /* of its next request; of its last one */
    uint32_t generation;
} wl_cpu_lane;

typedef struct {
    wl_cpu_lane lanes[WL_WARP];
    uint64_t first, block_count;
    uint32_t warp, target, own, turn;
    uint32_t waiting, seen; /* lanes: not answered yet; answered when last looked at */
    bool is_over;
    wl_warp_counts counts;
} wl_cpu_warp;

typedef struct wl_cpu_side wl_cpu_side;

typedef struct {
    wl_cpu_side *side;
    uint32_t number;
    uint64_t latencies[WL_BUCKETS];
} wl_cpu_thread;

struct wl_cpu_side {
    wl_queue *queue;
    wl_cpu_warp *warps;
    wl_cpu_thread *threads;
    wl_source *sources;
    uint8_t *output;
};

int32_t wl_team_open(wl_queue *queue, uint32_t count, uint32_t most, wl_error *error) {
    wl_team *team = queue->team = calloc(1, sizeof *team);
    if (!team)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating requesters");
    team->count = count < most ? count : most;
    team->threads = calloc(team->count, sizeof *team->threads);
    team->heads = calloc((size_t)queue->pair_count * WL_HEAD_STRIDE, sizeof *team->heads);
    return team->threads && team->heads
               ? WL_OK
               : wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating requesters");
}

int32_t wl_team_start(wl_queue *queue, void *(*run)(void *), void *first, size_t size,
                      wl_error *error) {
    wl_team *team = queue->team;
    memset((void *)team->heads, 0, (size_t)queue->pair_count * WL_HEAD_STRIDE * 4);
    atomic_store(&team->control, WL_GO_ON);
    atomic_store(&team->finished, 0);
    for (team->running = 0; team->running < team->count; team->running++) {
        int code = wl_queue_thread(queue, &team->threads[team->running], run,
                                   (uint8_t *)first + team->running * size);
        if (code)
            return wl_fail(error, code, NULL, WL_NOWHERE, "starting requester thread %u of %u",
                           team->running + 1, team->count);
    }
    return WL_OK;
}

void wl_team_finish(wl_team *team) {
    atomic_fetch_add_explicit(&team->finished, 1, memory_order_release);
}

uint32_t wl_team_take(const wl_team *team, uint32_t pair, uint32_t count) {
    return atomic_fetch_add_explicit(team->heads + (size_t)pair * WL_HEAD_STRIDE, count,
                                     memory_order_acq_rel);
}

void wl_team_join(wl_team *team) {
    while (team->running)
        pthread_join(team->threads[--team->running], NULL);
}

void wl_team_close(wl_queue *queue) {
    wl_team *team = queue->team;
    if (!team)
        return;
    atomic_store(&team->control, WL_ABANDON);
    wl_team_join(team);
    free(team->threads);
    free((void *)team->heads);
    free(team);
}

int32_t wl_team_control(wl_queue *queue, uint32_t word, wl_error *error) {
    (void)error;
    atomic_store_explicit(&queue->team->control, word, memory_order_relaxed);
    return WL_OK;
}

int32_t wl_team_poll(wl_queue *queue, wl_error *error) {
    (void)error;
    return atomic_load_explicit(&queue->team->finished, memory_order_acquire) ==
           queue->team->running;
}

static inline uint8_t *at(uint64_t address) { return (uint8_t *)(uintptr_t)address; }

/* Submits the requests of `lanes` to the pair whose turn it is. */
static void submit(wl_cpu_side *side, wl_cpu_warp *warp, uint32_t lanes) {
    const wl_queue_view *view = &side->queue->view;
    uint32_t number = warp->target * view->pairs + warp->turn;
    const wl_pair *pair = &side->queue->all_pairs[number];
    uint32_t position = view->first_position +
                        wl_team_take(side->queue->team, number,
                                     (uint32_t)__builtin_popcount(lanes));
    for (; lanes; lanes &= lanes - 1, position++) {
        uint32_t lane = (uint32_t)__builtin_ctz(lanes);
        wl_ask(pair, position,
               (wl_request){.block = warp->lanes[lane].block,
                            .slot = warp->warp * WL_WARP + lane,
                            .generation = warp->lanes[lane].generation});
    }
    warp->turn = warp->turn + 1 < view->pairs ? warp->turn + 1 : 0;
}

static void ask(wl_cpu_side *side, wl_cpu_warp *warp, uint32_t lanes) {
    const wl_queue_view *view = &side->queue->view;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        uint32_t number = (uint32_t)__builtin_ctz(rest);
        wl_cpu_lane *lane = &warp->lanes[number];
        bool is_sampled = (lane->number + warp->own) % view->sample_every == 0;
        lane->block = warp->first + wl_block_of(view->pattern, wl_draw(lane->stream, lane->number),
                                                warp->block_count);
        lane->start_ns = is_sampled ? wl_now_ns() : 0;
        lane->number++;
        lane->generation = (uint32_t)lane->number & WL_GENERATION_MASK;
        warp->counts.requests[number]++;
        warp->counts.asked++;
    }
    submit(side, warp, lanes);
    warp->waiting |= lanes;
    warp->seen = 0;
}

static bool pull(const wl_queue_view *view, const wl_source *source, const uint8_t *from,
                 uint8_t *to, uint64_t block) {
    uint64_t number = block * (view->block_bytes / WL_UNIT_BYTES) + source->first_block;
    bool is_right = true;
    memcpy(to, from, view->block_bytes);
    for (uint32_t unit = 0; unit < view->block_bytes; unit += WL_UNIT_BYTES, number++) {
        uint64_t stamp[3];
        memcpy(stamp, to + unit, sizeof stamp);
        is_right &= stamp[0] == source->nonce && stamp[1] == source->word && stamp[2] == number;
    }
    return is_right;
}

static const uint8_t *place_of(const wl_queue_view *view, uint32_t slot, uint64_t block) {
    uint64_t offset = block * view->block_bytes;
    if (view->delivery == WL_DELIVER_TABLE)
        return at(view->slots) + offset;
    return at(view->slots) + (size_t)slot * view->slot_bytes + offset % view->slot_bytes;
}

/* The waiting lanes that are answered; their words go to `words`. */
static uint32_t answered_of(const wl_queue_view *view, const wl_cpu_warp *warp, uint32_t *words) {
    _Atomic uint32_t *completions = (_Atomic uint32_t *)(void *)at(view->completions);
    uint32_t answered = 0;
    for (uint32_t rest = warp->waiting; rest; rest &= rest - 1) {
        uint32_t lane = (uint32_t)__builtin_ctz(rest);
        words[lane] = atomic_load_explicit(&completions[warp->warp * WL_WARP + lane],
                                           memory_order_acquire);
        answered |= (uint32_t)(words[lane] >> WL_ERRNO_BITS == warp->lanes[lane].generation)
                    << lane;
    }
    return answered;
}

static void deliver(wl_cpu_thread *thread, wl_cpu_warp *warp, uint32_t answered,
                    const uint32_t *words) {
    wl_cpu_side *side = thread->side;
    const wl_queue_view *view = &side->queue->view;
    for (uint32_t rest = answered; rest; rest &= rest - 1) {
        uint32_t number = (uint32_t)__builtin_ctz(rest), slot = warp->warp * WL_WARP + number;
        wl_cpu_lane *lane = &warp->lanes[number];
        if (words[number] & WL_ERRNO_MASK)
            warp->counts.failed++;
        else if (view->delivery == WL_DELIVER_NOTHING)
            ;
        else if (pull(view, &side->sources[warp->target], place_of(view, slot, lane->block),
                      side->output + (size_t)slot * view->block_bytes, lane->block))
            warp->counts.delivered++;
        else if (!warp->counts.wrong++)
            warp->counts.wrong_block = lane->block;
        if (lane->start_ns)
            thread->latencies[wl_bucket(wl_now_ns() - lane->start_ns)]++;
    }
}

/* One step of a warp; whether there was something to do. Those of a warp are answered one by one
 * but nearly at once, so it goes on with all of them, or with those that it has seen twice. */
static bool step(wl_cpu_thread *thread, wl_cpu_warp *warp) {
    wl_cpu_side *side = thread->side;
    uint32_t control = atomic_load_explicit(&side->queue->team->control, memory_order_relaxed);
    uint32_t words[WL_WARP], answered = answered_of(&side->queue->view, warp, words);
    if (!answered && control == WL_ABANDON) {
        warp->counts.unanswered = (uint32_t)__builtin_popcount(warp->waiting);
        warp->is_over = true;
        return true;
    }
    if (!answered || (answered != warp->waiting && answered != warp->seen)) {
        warp->seen = answered;
        return answered;
    }
    deliver(thread, warp, answered, words);
    warp->waiting &= ~answered;
    if (control == WL_GO_ON)
        ask(side, warp, answered);
    warp->is_over = !warp->waiting;
    return true;
}

static void *thread_main(void *argument) {
    wl_cpu_thread *thread = argument;
    wl_cpu_side *side = thread->side;
    uint32_t empty = 0, step_by = side->queue->team->count;
    for (uint32_t i = thread->number; i < side->queue->warps; i += step_by)
        ask(side, &side->warps[i], ~0u);
    for (bool goes_on = true; goes_on;) {
        bool has_done = goes_on = false;
        for (uint32_t i = thread->number; i < side->queue->warps; i += step_by) {
            wl_cpu_warp *warp = &side->warps[i];
            if (warp->is_over)
                continue;
            goes_on = true;
            has_done |= step(thread, warp);
        }
        empty = has_done ? 0 : empty + 1;
        wl_queue_give_way(empty);
    }
    wl_team_finish(side->queue->team);
    return NULL;
}

static int32_t open_cpu(wl_queue *queue, const wl_queue_setup *setup, wl_error *error) {
    wl_cpu_side *side = calloc(1, sizeof *side);
    if (!side)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating requesters");
    queue->own = side;
    side->queue = queue;
    if (wl_team_open(queue, setup->requester_threads, queue->warps, error))
        return error->code;
    side->warps = calloc(queue->warps, sizeof *side->warps);
    side->threads = calloc(queue->team->count, sizeof *side->threads);
    side->sources = calloc(queue->target_count, sizeof *side->sources);
    side->output = calloc(wl_slot_count(queue), queue->block_bytes);
    if (!side->warps || !side->threads || !side->sources || !side->output)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating requesters");
    queue->view.completions = (uintptr_t)queue->completions;
    return WL_OK;
}

static void place_warps(wl_cpu_side *side) {
    const wl_queue_view *view = &side->queue->view;
    for (uint32_t i = 0; i < view->warps; i++) {
        wl_cpu_warp *warp = &side->warps[i];
        uint32_t target = i / view->warps_per_target, own = i % view->warps_per_target;
        uint64_t count = side->sources[target].blocks;
        bool has_region = view->pattern == WL_PATTERN_REGIONS;
        count = has_region ? count / view->warps_per_target : count;
        *warp = (wl_cpu_warp){.warp = i,
                              .target = target,
                              .own = own,
                              .turn = (uint32_t)((own + view->first_number) % view->pairs),
                              .first = has_region ? own * count : 0,
                              .block_count = count};
        warp->counts.wrong_target = target;
        for (uint32_t lane = 0; lane < WL_WARP; lane++)
            warp->lanes[lane] = (wl_cpu_lane){.number = view->first_number,
                                              .stream = wl_draw(view->seed, i * WL_WARP + lane)};
    }
}

static int32_t launch_cpu(wl_queue *queue, bool pulls, wl_error *error) {
    wl_cpu_side *side = queue->own;
    (void)pulls; /* never asked of a CPU, whose loads are no link's */
    for (uint32_t i = 0; i < queue->target_count; i++)
        side->sources[i] = wl_source_of(queue, i);
    queue->view.slots =
        (uintptr_t)(queue->delivery == WL_DELIVER_TABLE ? queue->table : queue->slots);
    place_warps(side);
    for (uint32_t i = 0; i < queue->team->count; i++)
        side->threads[i] = (wl_cpu_thread){.side = side, .number = i};
    return wl_team_start(queue, thread_main, side->threads, sizeof *side->threads, error);
}

static int32_t collect_cpu(wl_queue *queue, wl_warp_counts *warps, uint64_t *counts,
                           wl_error *error) {
    wl_cpu_side *side = queue->own;
    (void)error;
    wl_team_join(queue->team);
    for (uint32_t i = 0; i < queue->warps; i++)
        warps[i] = side->warps[i].counts;
    for (uint32_t i = 0; i < queue->team->count; i++)
        for (uint32_t k = 0; k < WL_BUCKETS; k++)
            counts[k] += side->threads[i].latencies[k];
    return WL_OK;
}

static int32_t output_cpu(wl_queue *queue, uint32_t slot, uint8_t *block, wl_error *error) {
    wl_cpu_side *side = queue->own;
    (void)error;
    memcpy(block, side->output + (size_t)slot * queue->block_bytes, queue->block_bytes);
    return WL_OK;
}

static void close_cpu(wl_queue *queue) {
    wl_cpu_side *side = queue->own;
    if (!side)
        return;
    wl_team_close(queue);
    free(side->warps);
    free(side->threads);
    free(side->sources);
    free(side->output);
    free(side);
}

const wl_requesters wl_cpu_requesters = {.open = open_cpu,
                                         .launch = launch_cpu,
                                         .control = wl_team_control,
                                         .poll = wl_team_poll,
                                         .collect = collect_cpu,
                                         .output = output_cpu,
                                         .close = close_cpu};
