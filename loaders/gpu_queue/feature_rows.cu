/* Rows of features into the GPU's memory: out of a buffer in pinned host memory, a cache of pages in
 * the GPU's, or the slots of the queue, where pollers have read them. NVRTC compiles this file at run
 * time. rows_abi.h has what a gather does.
 *
 * No warp waits for another one of its own launch: pages that are being read belong to warps that
 * run. So the grid need not be wholly on the GPU, which may train meanwhile. */
#include "rows_abi.h"
#include "memory.cuh"
#include "cache.cuh"
#include "queue.cuh"

/* Rows of the host buffer that a warp takes at a time. */
enum { KEPT_ROWS = 8 };

static __device__ uint32_t lane_of_warp() { return threadIdx.x % WL_WARP; }

static __device__ uint32_t rows_warp() {
    return (blockIdx.x * blockDim.x + threadIdx.x) / WL_WARP;
}

static __device__ uint32_t *cursor_of(const wl_rows_view &view, uint32_t which) {
    return (uint32_t *)view.cursors + which * WL_HEAD_STRIDE;
}

/* Moves a cursor on by `count` for the warp; returns where it was. */
static __device__ uint32_t advance(const wl_rows_view &view, uint32_t which, uint32_t count) {
    uint32_t before = 0;
    if (!lane_of_warp())
        before = atomicAdd(cursor_of(view, which), count);
    return __shfl_sync(ALL, before, 0);
}

static __device__ uint32_t *row_word(const wl_rows_view &view, uint64_t row) {
    return (uint32_t *)view.words + row;
}

/* The lane's row of the list in a grid of one lane for each. */
static __device__ bool row_of_list(const wl_rows_view &view, uint64_t *place, uint64_t *row) {
    *place = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (*place >= view.count)
        return false;
    *row = ((const uint64_t *)view.list)[*place];
    return true;
}

/* The rows of the list are in the host buffer, from `first_place` on. */
extern "C" __global__ void keep_rows(const wl_rows_view view) {
    uint64_t place, row;
    if (row_of_list(view, &place, &row))
        *row_word(view, row) = WL_ROW_IS_KEPT | (uint32_t)(view.first_place + place);
}

/* A gather to come needs the rows of the list. */
extern "C" __global__ void expect_rows(const wl_rows_view view) {
    uint64_t place, row;
    if (row_of_list(view, &place, &row) && !(*row_word(view, row) & WL_ROW_IS_KEPT))
        atomicAdd(row_word(view, row), 1u);
}

extern "C" __global__ void split_rows(const wl_rows_view view) {
    uint32_t lane = lane_of_warp(), before = (1u << lane) - 1, word = 0;
    uint64_t place = 0, row = 0;
    bool is_row = row_of_list(view, &place, &row);
    if (is_row)
        word = *row_word(view, row);
    bool is_kept = is_row && word & WL_ROW_IS_KEPT;
    uint32_t kept = __ballot_sync(ALL, is_kept), others = __ballot_sync(ALL, is_row && !is_kept);
    uint32_t first_kept = advance(view, WL_MADE_KEPT, (uint32_t)__popc(kept));
    uint32_t first_other = advance(view, WL_MADE_OTHERS, (uint32_t)__popc(others));
    wl_row_entry *entries = (wl_row_entry *)view.entries;
    if (is_kept)
        entries[first_kept + __popc(kept & before)] =
            wl_row_entry{word & ~WL_ROW_IS_KEPT, (uint32_t)place};
    else if (is_row)
        entries[view.room - 1 - (first_other + __popc(others & before))] =
            wl_row_entry{(uint32_t)row, (uint32_t)place};
}

/* Copies the rows of `lanes` by the whole warp; each lane brings the addresses of its own. Where
 * `page` is not 0 the row goes there too. */
template <bool of_host>
static __device__ void copy_rows(const wl_rows_view &view, uint32_t lanes, uint64_t from,
                                 uint64_t to, uint64_t page) {
    uint32_t part = lane_of_warp() * WL_LANE_BYTES;
    uint32_t unit_count = view.queue.block_bytes / WL_UNIT_BYTES, unit = 0;
    while (lanes) {
        uint4 parts[LOADS];
        uint32_t owners[LOADS], units[LOADS];
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            owners[i] = lanes ? __ffs(lanes) - 1 : WL_WARP;
            units[i] = unit * WL_UNIT_BYTES + part;
            if (!lanes)
                continue;
            parts[i] = load_part<of_host>(__shfl_sync(ALL, from, owners[i]) + units[i]);
            unit = unit + 1 < unit_count ? unit + 1 : 0;
            lanes = unit ? lanes : lanes & (lanes - 1);
        }
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            if (owners[i] == WL_WARP)
                continue;
            *(uint4 *)(__shfl_sync(ALL, to, owners[i]) + units[i]) = parts[i];
            uint64_t also = __shfl_sync(ALL, page, owners[i]);
            if (also)
                *(uint4 *)(also + units[i]) = parts[i];
        }
    }
}

static __device__ uint64_t place_address(const wl_rows_view &view, uint32_t place) {
    return view.into + (uint64_t)place * view.queue.block_bytes;
}

/* Copies rows of the host buffer until all are taken. */
static __device__ void copy_kept(const wl_rows_view &view, wl_row_counts *counts) {
    uint32_t lane = lane_of_warp(), made = load_device((uint64_t)cursor_of(view, WL_MADE_KEPT));
    for (;;) {
        uint32_t first = advance(view, WL_TAKEN_KEPT, KEPT_ROWS);
        if (first >= made)
            return;
        wl_row_entry entry = {};
        bool is_row = lane < KEPT_ROWS && first + lane < made;
        if (is_row)
            entry = ((const wl_row_entry *)view.entries)[first + lane];
        uint32_t lanes = __ballot_sync(ALL, is_row);
        copy_rows<true>(view, lanes, view.kept + (uint64_t)entry.row * view.queue.block_bytes,
                        place_address(view, entry.place), 0);
        counts->kept += __popc(lanes);
        counts->delivered += __popc(lanes);
    }
}

/* A lane's row outside the host buffer: where it goes, where it is, its page of the cache. */
typedef struct {
    uint64_t number, to, page;
    uint32_t row, file, inner; /* the file's number; the first byte within what is read of it */
    bool has_page, fills_page;
} asked_row;

static __device__ void find_row(const wl_rows_view &view, wl_row_entry entry, asked_row *own) {
    const wl_row_file *files = (const wl_row_file *)view.files;
    own->row = entry.row;
    own->to = place_address(view, entry.place);
    if (view.is_striped) {
        own->file = entry.row % view.file_count;
        own->number = entry.row / view.file_count;
    } else {
        own->file = view.file_count - 1;
        while (own->file && files[own->file].first_row > entry.row)
            own->file--;
        own->number = entry.row - files[own->file].first_row;
    }
    uint64_t offset = files[own->file].offset_bytes + own->number * view.queue.block_bytes;
    own->inner = (uint32_t)(offset % WL_ROW_ALIGN);
}

/* One of the gathers to come has come to this row. */
static __device__ void lower_word(uint32_t *word) {
    uint32_t seen = load_device((uint64_t)word);
    while (seen) {
        uint32_t found = atomicCAS(word, seen, seen - 1);
        if (found == seen)
            return;
        seen = found;
    }
}

/* Pages of rows that a gather to come needs are not evicted. */
struct keep_expected {
    uint64_t words;
    __device__ bool keeps(uint64_t key) const {
        return key && load_device(words + (key - 1) * sizeof(uint32_t));
    }
};

/* Finds the rows of `fresh` lanes in the cache, one after the other; returns what the lane found. */
static __device__ uint32_t look_up_rows(const wl_rows_view &view, uint32_t fresh, asked_row *own) {
    uint32_t lane = lane_of_warp(), want = WANT_BYPASSED;
    if (fresh >> lane & 1) {
        own->has_page = own->fills_page = false;
        if (view.is_expected)
            lower_word(row_word(view, own->row));
    }
    if (!view.queue.cache_sets)
        return want;
    __syncwarp();
    const keep_expected kept = {view.words};
    for (uint32_t rest = fresh; rest; rest &= rest - 1) {
        uint32_t owner = __ffs(rest) - 1;
        uint64_t key = (uint64_t)__shfl_sync(ALL, own->row, owner) + 1, page = 0;
        uint32_t found =
            claim_page(view.queue, draw(0, key) % view.queue.cache_sets, key, &page, kept);
        if (lane != owner)
            continue;
        want = found;
        own->page = page;
        own->has_page = found != WANT_BYPASSED;
        own->fills_page = found == WANT_MISS;
    }
    return want;
}

/* Asks for the rows of these lanes, those of one file together. */
static __device__ void ask_rows(const wl_rows_view &view, uint32_t asking, const asked_row &own,
                                uint32_t turn, uint32_t slot, uint32_t generation) {
    for (uint32_t rest = asking; rest;) {
        uint32_t file = __shfl_sync(ALL, own.file, __ffs(rest) - 1);
        uint32_t lanes =
            __ballot_sync(ALL, rest >> lane_of_warp() & 1 && own.file == file);
        submit(view.queue, file * view.queue.pairs + turn, lanes, own.number, slot, generation);
        rest &= ~lanes;
    }
}

/* The pages of these lanes have been read. */
static __device__ void leave_pages(const wl_rows_view &view, uint32_t lanes,
                                   const asked_row &own) {
    fence_device();
    __syncwarp();
    if (lanes >> lane_of_warp() & 1 && own.has_page)
        atomicAdd(page_word(view.queue, own.page), ~0ull);
}

/* Rows that the queue has answered: from their slots to their places and pages. */
static __device__ void deliver_answered(const wl_rows_view &view, uint32_t answered,
                                        const asked_row &own, uint32_t slot, uint32_t word,
                                        wl_row_counts *counts) {
    bool is_mine = answered >> lane_of_warp() & 1;
    uint32_t failed = __ballot_sync(ALL, is_mine && word & WL_ERRNO_MASK);
    uint32_t filling = __ballot_sync(ALL, is_mine && own.fills_page);
    uint64_t from = view.queue.slots + (uint64_t)slot * view.queue.slot_bytes + own.inner;
    uint64_t page = own.fills_page ? page_address(view.queue, own.page) : 0;
    copy_rows<true>(view, answered & ~failed, from, own.to, page);
    for (uint32_t rest = filling; rest; rest &= rest - 1) {
        uint32_t owner = __ffs(rest) - 1;
        end_page(view.queue, __shfl_sync(ALL, own.page, owner), !(failed >> owner & 1));
    }
    leave_pages(view, answered, own);
    counts->delivered += __popc(answered & ~failed);
    counts->failed += __popc(failed);
}

/* Rows of pages that hold them, or whose read has failed. */
static __device__ void deliver_filled(const wl_rows_view &view, uint32_t filled, uint32_t failed,
                                      const asked_row &own, wl_row_counts *counts) {
    fence_device(); /* the pages' bytes were written before their words */
    __syncwarp();
    copy_rows<false>(view, filled & ~failed, page_address(view.queue, own.page), own.to, 0);
    leave_pages(view, filled, own);
    counts->delivered += __popc(filled & ~failed);
    counts->failed += __popc(failed);
}

/* Rows outside the host buffer. A lane takes the next one as soon as its own is delivered. */
static __device__ void gather_others(const wl_rows_view &view, uint32_t warp,
                                     wl_row_counts *counts) {
    const wl_queue_view &queue = view.queue;
    uint32_t lane = lane_of_warp(), slot = warp * WL_WARP + lane, bit = 1u << lane;
    uint32_t made = load_device((uint64_t)cursor_of(view, WL_MADE_OTHERS));
    uint32_t turn = warp % queue.pairs, generation = 0, asked = 0, merged = 0, before = 0;
    uint32_t sleep_ns = 64, spins = 0;
    uint64_t since_ns = 0;
    asked_row own = {};
    bool has_more = true;
    for (;;) {
        uint32_t idle = ~(asked | merged), hits = 0;
        if (has_more && idle) {
            uint32_t first = advance(view, WL_TAKEN_OTHERS, (uint32_t)__popc(idle));
            uint32_t at = first + __popc(idle & (bit - 1));
            bool is_fresh = idle & bit && at < made;
            has_more = first + __popc(idle) < made;
            if (is_fresh)
                find_row(view, ((const wl_row_entry *)view.entries)[view.room - 1 - at], &own);
            uint32_t fresh = __ballot_sync(ALL, is_fresh);
            uint32_t want = look_up_rows(view, fresh, &own);
            hits = __ballot_sync(ALL, is_fresh && want == WANT_HIT);
            uint32_t merging = __ballot_sync(ALL, is_fresh && want == WANT_MERGED);
            uint32_t asking = fresh & ~hits & ~merging;
            if (asking & bit)
                generation = (generation + 1) & WL_GENERATION_MASK;
            ask_rows(view, asking, own, turn, slot, generation);
            turn = turn + 1 < queue.pairs ? turn + 1 : 0;
            counts->hits += __popc(hits);
            counts->merged += __popc(merging);
            counts->asked += __popc(asking);
            counts->bypassed += __popc(__ballot_sync(ALL, asking & bit && want == WANT_BYPASSED));
            asked |= asking;
            merged |= merging;
        }
        if (hits)
            deliver_filled(view, hits, 0, own, counts);
        uint32_t waiting = asked | merged;
        if (!waiting && !has_more)
            return;
        uint32_t word = 0;
        uint64_t state = PAGE_IS_READ;
        if (asked & bit)
            word = load_acquire_system(queue.completions + (uint64_t)slot * 4);
        if (merged & bit)
            state = load_device_word((uint64_t)page_word(queue, own.page));
        uint32_t answered =
            __ballot_sync(ALL, asked & bit && word >> WL_ERRNO_BITS == generation);
        uint32_t filled = __ballot_sync(ALL, merged & bit && !(state & PAGE_IS_READ));
        uint32_t done = answered | filled;
        /* Rows of a warp are answered one by one but nearly at once: it goes on with all of them, or
         * with those that it has seen twice. */
        if (done && done != waiting && done != before && !hits) {
            before = done;
            continue;
        }
        before = 0;
        if (done) {
            __syncwarp(); /* what one lane has acquired, all lanes read */
            if (answered)
                deliver_answered(view, answered, own, slot, word, counts);
            if (filled)
                deliver_filled(view, filled,
                               __ballot_sync(ALL, filled & bit && state & PAGE_HAS_FAILED), own,
                               counts);
            asked &= ~answered;
            merged &= ~filled;
        }
        if (done || hits) {
            sleep_ns = 64;
            spins = 0;
            since_ns = 0;
            continue;
        }
        if (++spins % 64 == 0) {
            since_ns = since_ns ? since_ns : clock_ns();
            if (is_abandoned(queue, since_ns)) {
                counts->unanswered = __popc(waiting);
                return;
            }
        }
        __nanosleep(sleep_ns);
        if (sleep_ns < 2048)
            sleep_ns *= 2;
    }
}

extern "C" __global__ void gather_rows(const wl_rows_view view) {
    uint32_t warp = rows_warp();
    if (warp >= view.all_warps)
        return;
    wl_row_counts counts = {};
    if (warp < view.queue.warps)
        gather_others(view, warp, &counts);
    copy_kept(view, &counts);
    if (!lane_of_warp())
        ((wl_row_counts *)view.counts)[warp] = counts;
}

/* What the link carries: rows of the host buffer, drawn and copied as above until the control word
 * ends it. */
extern "C" __global__ void pull_rows(const wl_rows_view view) {
    uint32_t warp = rows_warp();
    if (warp >= view.all_warps)
        return;
    wl_row_counts counts = {};
    uint64_t stream = draw(0, warp * WL_WARP + lane_of_warp()), round = 0;
    uint32_t lane = lane_of_warp(), lanes = (1u << KEPT_ROWS) - 1, asked = WL_GO_ON;
    for (; asked == WL_GO_ON; round++) {
        uint64_t row = draw(stream, round) % view.pulled_rows;
        uint64_t place = ((round * view.all_warps + warp) * KEPT_ROWS + lane) % view.room;
        copy_rows<true>(view, lanes, view.kept + row * view.queue.block_bytes,
                        place_address(view, (uint32_t)place), 0);
        counts.kept += KEPT_ROWS;
        asked = lane ? 0 : load_device(view.queue.control);
        asked = __shfl_sync(ALL, asked, 0);
    }
    if (!lane)
        ((wl_row_counts *)view.counts)[warp] = counts;
}
