/* Random reads by the threads of a GPU, through the queue of queue_abi.h. NVRTC compiles this
 * file at run time; histogram.h is that of the engine. */
#include "queue_abi.h"
#include "histogram.h"
#include "memory.cuh"
#include "cache.cuh"

#define ALL 0xffffffffu

/* splitmix64; see wl_draw in pattern.h */
static __device__ uint64_t draw(uint64_t seed, uint64_t number) {
    uint64_t x = seed + (number + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* Asks for the blocks of these lanes. */
static __device__ void submit(const wl_queue_view &view, uint32_t pair, uint32_t lanes,
                              uint64_t block, uint32_t slot, uint32_t generation) {
    uint32_t lane = threadIdx.x % WL_WARP, position = 0;
    uint32_t rank = lanes == ALL ? lane : __popc(lanes & ((1u << lane) - 1));
    if (!lane)
        position = atomicAdd((uint32_t *)view.heads + (uint64_t)pair * WL_HEAD_STRIDE,
                             (uint32_t)__popc(lanes));
    position = view.first_position + __shfl_sync(ALL, position, 0) + rank;
    uint64_t place = ((uint64_t)pair << view.queue_shift) +
                     (position & ((1u << view.queue_shift) - 1));
    if (!(lanes >> lane & 1))
        return;
    store_request(view.requests + place * sizeof(wl_request), block, slot, generation);
    fence_system();
    store_system(view.laps + place * 4, (position >> view.queue_shift) + 1);
}

/* Whether the host has given up, or is gone for so long that the warp leaves by itself. */
static __device__ bool is_abandoned(const wl_queue_view &view, uint64_t since_ns) {
    bool is = load_device(view.control) == WL_ABANDON ||
              clock_ns() - since_ns > (uint64_t)view.wait_limit_ms * 1000000u;
    return __any_sync(ALL, is);
}

/* Waits for the completion words of these lanes; false if the wait was given up. */
static __device__ bool wait(const wl_queue_view &view, uint32_t lanes, uint32_t slot,
                            uint32_t generation, uint32_t *word) {
    bool is_waiting = lanes >> threadIdx.x % WL_WARP & 1;
    uint32_t sleep_ns = 64, spins = 0;
    uint64_t since_ns = 0;
    for (;;) {
        if (is_waiting)
            *word = load_acquire_system(view.completions + (uint64_t)slot * 4);
        if (__all_sync(ALL, !is_waiting || *word >> WL_ERRNO_BITS == generation)) {
            __syncwarp(); /* what one lane has acquired, all lanes read */
            return true;
        }
        if (++spins % 64 == 0) {
            since_ns = since_ns ? since_ns : clock_ns();
            if (is_abandoned(view, since_ns))
                return false;
        }
        __nanosleep(sleep_ns);
        if (sleep_ns < 2048)
            sleep_ns *= 2;
    }
}

/* Copies a block into the GPU's memory, from the host's or its own; whether its stamps are
 * right. */
template <bool of_host>
static __device__ bool pull(const wl_queue_view &view, const wl_source &source, uint64_t from,
                            uint64_t to, uint64_t block) {
    uint32_t lane = threadIdx.x % WL_WARP;
    uint64_t number = block * (view.block_bytes / WL_UNIT_BYTES) + source.first_block;
    bool is_right = true;
    for (uint32_t at = 0; at < view.block_bytes; at += WL_UNIT_BYTES, number++) {
        uint64_t part = from + at + lane * WL_LANE_BYTES;
        uint4 v = of_host ? load_lane(part) : load_device_lane(part);
        *(uint4 *)(to + at + lane * WL_LANE_BYTES) = v;
        uint64_t low = v.x | (uint64_t)v.y << 32, high = v.z | (uint64_t)v.w << 32;
        if (lane == 0)
            is_right &= low == source.nonce && high == source.word;
        else if (lane == 1)
            is_right &= low == number;
    }
    return __all_sync(ALL, is_right);
}

static __device__ uint64_t address_of(const wl_queue_view &view, uint32_t slot, uint64_t block) {
    if (view.delivery == WL_DELIVER_TABLE)
        return view.slots + block * view.block_bytes;
    return view.slots + (uint64_t)slot * view.slot_bytes +
           block * view.block_bytes % view.slot_bytes;
}

/* A lane of a warp, and what it reads. */
typedef struct {
    uint32_t warp, lane, slot, target, own;
    wl_source source;
    uint64_t first, count, stream;
} requester;

static __device__ requester requester_of(const wl_queue_view &view, uint32_t warp) {
    requester own = {};
    own.warp = warp;
    own.lane = threadIdx.x % WL_WARP;
    own.slot = warp * WL_WARP + own.lane;
    own.target = warp / view.warps_per_target;
    own.own = warp % view.warps_per_target;
    own.source = ((const wl_source *)view.sources)[own.target];
    own.count = own.source.blocks;
    own.stream = draw(view.seed, own.slot);
    if (view.pattern == WL_PATTERN_REGIONS) {
        own.count /= view.warps_per_target;
        own.first = own.own * own.count;
    }
    return own;
}

static __device__ uint64_t block_of(const wl_queue_view &view, const requester &own,
                                    uint64_t number) {
    return own.first + wl_block_of(view.pattern, draw(own.stream, number), own.count);
}

static __device__ uint64_t output_of(const wl_queue_view &view, uint32_t slot) {
    return view.output + (uint64_t)slot * view.block_bytes;
}

static __device__ bool goes_on(const wl_queue_view &view) {
    uint32_t asked = threadIdx.x % WL_WARP ? 0 : load_device(view.control);
    return __shfl_sync(ALL, asked, 0) == WL_GO_ON;
}

static __device__ void count_block(wl_warp_counts *counts, bool is_right, uint64_t block) {
    if (is_right)
        counts->delivered++;
    else if (!counts->wrong++)
        counts->wrong_block = block;
}

static __device__ void count_latency(const wl_queue_view &view, uint64_t start_ns) {
    uint64_t took_ns = clock_ns() - start_ns;
    atomicAdd((unsigned long long *)view.latencies + wl_bucket(took_ns), 1ull);
}

extern "C" __global__ void random_read(const wl_queue_view view) {
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / WL_WARP;
    if (warp >= view.warps)
        return;
    const requester own = requester_of(view, warp);
    wl_warp_counts counts = {};
    counts.wrong_target = own.target;
    uint32_t turn = (uint32_t)((own.own + view.first_number) % view.pairs);
    uint64_t next = block_of(view, own, view.first_number);
    for (uint64_t number = view.first_number; goes_on(view); number++) {
        uint64_t block = next;
        uint32_t generation = (uint32_t)(number + 1) & WL_GENERATION_MASK, word = 0;
        bool is_sampled = (number + own.own) % view.sample_every == 0;
        uint64_t start_ns = is_sampled ? clock_ns() : 0;
        submit(view, own.target * view.pairs + turn, ALL, block, own.slot, generation);
        counts.requests += WL_WARP;
        /* The division of the next block passes while the queue works. */
        next = block_of(view, own, number + 1);
        turn = turn + 1 < view.pairs ? turn + 1 : 0;
        if (!wait(view, ALL, own.slot, generation, &word)) {
            uint32_t is_open = word >> WL_ERRNO_BITS != generation;
            counts.unanswered = __popc(__ballot_sync(ALL, is_open));
            break;
        }
        uint32_t failed = __ballot_sync(ALL, (word & WL_ERRNO_MASK) != 0);
        counts.failed += __popc(failed);
        for (uint32_t i = 0; i < WL_WARP && view.delivery != WL_DELIVER_NOTHING; i++) {
            uint64_t its = __shfl_sync(ALL, block, i);
            uint32_t slot = warp * WL_WARP + i;
            if (!(failed >> i & 1))
                count_block(&counts,
                            pull<true>(view, own.source, address_of(view, slot, its),
                                       output_of(view, slot), its),
                            its);
        }
        if (is_sampled)
            count_latency(view, start_ns);
    }
    counts.asked = counts.requests;
    if (!own.lane)
        ((wl_warp_counts *)view.counts)[warp] = counts;
}

/* What became of the 32 requests of a warp: of each lane, the lane that asks for its block, how
 * that one found it, and its page. */
typedef struct {
    uint64_t block, page;
    uint32_t leader, want;
} wanted;

static __device__ wanted look_up(const wl_queue_view &view, const requester &own, uint64_t block) {
    wanted its = {};
    its.block = block;
    its.leader = __ffs(__match_any_sync(ALL, (unsigned long long)block)) - 1;
    uint32_t leaders = __ballot_sync(ALL, its.leader == own.lane);
    for (uint32_t rest = leaders; rest; rest &= rest - 1) {
        uint32_t lane = __ffs(rest) - 1;
        uint64_t key = page_key(own.target, __shfl_sync(ALL, block, lane)), page = 0;
        uint32_t want = claim_page(view, draw(0, key) & (view.cache_sets - 1), key, &page);
        if (lane == own.lane) {
            its.want = want;
            its.page = page;
        }
    }
    return its;
}

static __device__ uint32_t leaders_that(const requester &own, const wanted &its, uint32_t want) {
    return __ballot_sync(ALL, its.leader == own.lane && its.want == want);
}

/* The blocks that this warp has read itself; those missed become pages. Returns whose read
 * failed. */
static __device__ uint32_t deliver_reads(const wl_queue_view &view, const requester &own,
                                         const wanted &its, uint32_t asking, uint32_t word,
                                         wl_warp_counts *counts) {
    uint32_t failed = asking & __ballot_sync(ALL, (word & WL_ERRNO_MASK) != 0);
    uint32_t missed = leaders_that(own, its, WANT_MISS);
    for (uint32_t rest = asking; rest; rest &= rest - 1) {
        uint32_t lane = __ffs(rest) - 1, slot = own.warp * WL_WARP + lane;
        uint64_t block = __shfl_sync(ALL, its.block, lane), page = __shfl_sync(ALL, its.page, lane);
        uint64_t to = output_of(view, slot);
        bool is_read = !(failed >> lane & 1), is_right = false;
        if (is_read) {
            is_right = pull<true>(view, own.source, address_of(view, slot, block), to, block);
            count_block(counts, is_right, block);
        }
        if (!(missed >> lane & 1))
            continue;
        if (is_right)
            pull<false>(view, own.source, to, page_address(view, page), block);
        end_page(view, page, is_right);
    }
    return failed;
}

/* Waits until another warp has read a page that is in use; false if the wait was given up. */
static __device__ bool wait_for_page(const wl_queue_view &view, uint64_t page, uint64_t *word) {
    uint64_t since_ns = clock_ns();
    for (uint32_t spins = 1;; spins++) {
        uint64_t seen = 0;
        if (threadIdx.x % WL_WARP == 0)
            seen = load_device_word((uint64_t)page_word(view, page));
        *word = __shfl_sync(ALL, seen, 0);
        if (!(*word & PAGE_IS_READ))
            return true;
        if (spins % 64 == 0 && is_abandoned(view, since_ns))
            return false;
        __nanosleep(256);
    }
}

/* The blocks that pages hold. Adds to `failed`; false if a wait was given up. */
static __device__ bool deliver_pages(const wl_queue_view &view, const requester &own,
                                     const wanted &its, uint32_t *failed, wl_warp_counts *counts) {
    uint32_t found = leaders_that(own, its, WANT_HIT) | leaders_that(own, its, WANT_JOINED);
    for (uint32_t rest = found; rest; rest &= rest - 1) {
        uint32_t lane = __ffs(rest) - 1;
        uint64_t block = __shfl_sync(ALL, its.block, lane), page = __shfl_sync(ALL, its.page, lane);
        uint64_t word = 0;
        if (!wait_for_page(view, page, &word))
            return false;
        fence_device(); /* the page's bytes were written before its word */
        if (word & PAGE_HAS_FAILED)
            *failed |= 1u << lane;
        else
            count_block(counts,
                        pull<false>(view, own.source, page_address(view, page),
                                    output_of(view, own.warp * WL_WARP + lane), block),
                        block);
    }
    return true;
}

/* The blocks that another lane has asked for. Each lane copies what it has written itself. */
static __device__ void deliver_coalesced(const wl_queue_view &view, const requester &own,
                                         const wanted &its, uint32_t *failed,
                                         wl_warp_counts *counts) {
    uint32_t alike = __ballot_sync(ALL, its.leader != own.lane), first = own.warp * WL_WARP;
    for (uint32_t rest = alike; rest; rest &= rest - 1) {
        uint32_t lane = __ffs(rest) - 1, leader = __shfl_sync(ALL, its.leader, lane);
        uint64_t block = __shfl_sync(ALL, its.block, lane);
        if (*failed >> leader & 1)
            *failed |= 1u << lane;
        else
            count_block(counts,
                        pull<false>(view, own.source, output_of(view, first + leader),
                                    output_of(view, first + lane), block),
                        block);
    }
}

/* The same through a cache. Requests are those that are coalesced, hits, joined, missed or passed;
 * only the last two go through the queue. Generations are counted by lane, since not all ask. */
extern "C" __global__ void random_read_cached(const wl_queue_view view) {
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / WL_WARP;
    if (warp >= view.warps)
        return;
    const requester own = requester_of(view, warp);
    wl_warp_counts counts = {};
    counts.wrong_target = own.target;
    uint64_t made = view.first_number;
    for (uint64_t number = view.first_number; goes_on(view); number++) {
        bool is_sampled = (number + own.own) % view.sample_every == 0;
        uint64_t start_ns = is_sampled ? clock_ns() : 0;
        wanted its = look_up(view, own, block_of(view, own, number));
        uint32_t passed = leaders_that(own, its, WANT_PASSED);
        uint32_t asking = passed | leaders_that(own, its, WANT_MISS), word = 0;
        made += asking >> own.lane & 1;
        uint32_t generation = (uint32_t)made & WL_GENERATION_MASK;
        counts.requests += WL_WARP;
        counts.asked += __popc(asking);
        counts.passed += __popc(passed);
        counts.hits += __popc(leaders_that(own, its, WANT_HIT));
        counts.joined += __popc(leaders_that(own, its, WANT_JOINED));
        counts.coalesced += __popc(__ballot_sync(ALL, its.leader != own.lane));
        if (asking) {
            uint32_t pair = (uint32_t)((own.own + number) % view.pairs);
            submit(view, own.target * view.pairs + pair, asking, its.block, own.slot, generation);
            if (!wait(view, asking, own.slot, generation, &word)) {
                bool is_open = asking >> own.lane & 1 && word >> WL_ERRNO_BITS != generation;
                counts.unanswered = __popc(__ballot_sync(ALL, is_open));
                break;
            }
        }
        uint32_t failed = deliver_reads(view, own, its, asking, word, &counts);
        if (!deliver_pages(view, own, its, &failed, &counts))
            break;
        deliver_coalesced(view, own, its, &failed, &counts);
        counts.failed += __popc(failed);
        fence_device(); /* all bytes were read before the pages are given up */
        __syncwarp();
        if (its.leader == own.lane && its.want != WANT_PASSED)
            atomicAdd(page_word(view, its.page), ~0ull);
        if (is_sampled)
            count_latency(view, start_ns);
    }
    if (!own.lane)
        ((wl_warp_counts *)view.counts)[warp] = counts;
}

/* What the link carries without a queue: blocks of the table, drawn and pulled as above. */
extern "C" __global__ void random_pull(const wl_queue_view view) {
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / WL_WARP;
    if (warp >= view.warps)
        return;
    const requester own = requester_of(view, warp);
    wl_warp_counts counts = {};
    for (uint64_t number = 0; goes_on(view); number++) {
        uint64_t block = draw(own.stream, number) % view.table_blocks;
        for (uint32_t i = 0; i < WL_WARP; i++) {
            uint64_t its = __shfl_sync(ALL, block, i);
            count_block(&counts,
                        pull<true>(view, own.source, view.slots + its * view.block_bytes,
                                   output_of(view, warp * WL_WARP + i), its),
                        its);
        }
        counts.requests += WL_WARP;
    }
    if (!own.lane)
        ((wl_warp_counts *)view.counts)[warp] = counts;
}
