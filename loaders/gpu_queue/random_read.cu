/* Random reads by the threads of a GPU, through the queue of queue_abi.h. NVRTC compiles this
 * file at run time; histogram.h is that of the engine. */
#include "queue_abi.h"
#include "histogram.h"
#include "memory.cuh"
#include "cache.cuh"
#include "queue.cuh"

/* Waits until requests of `lanes` are answered, and returns whose; their words are in `word`. Those
 * of a warp are answered one by one but nearly at once, so it returns with all of them, or with
 * those that it has seen twice. Returns 0 if the wait was given up. */
static __device__ uint32_t wait(const wl_queue_view &view, uint32_t lanes, uint32_t slot,
                                uint32_t generation, uint32_t *word) {
    bool is_waiting = lanes >> threadIdx.x % WL_WARP & 1;
    uint32_t sleep_ns = 64, spins = 0, before = 0;
    uint64_t since_ns = 0;
    for (;;) {
        if (is_waiting)
            *word = load_acquire_system(view.completions + (uint64_t)slot * 4);
        uint32_t answered =
            __ballot_sync(ALL, is_waiting && *word >> WL_ERRNO_BITS == generation);
        if (answered && (answered == lanes || answered == before)) {
            __syncwarp(); /* what one lane has acquired, all lanes read */
            return answered;
        }
        before = answered;
        if (answered)
            continue;
        if (++spins % 64 == 0) {
            since_ns = since_ns ? since_ns : clock_ns();
            if (is_abandoned(view, since_ns))
                return 0;
        }
        __nanosleep(sleep_ns);
        if (sleep_ns < 2048)
            sleep_ns *= 2;
    }
}

/* Copies the blocks of `lanes` into the GPU's memory, from the host's or its own; each lane brings
 * the addresses and the number of its own block. Returns whose stamps are wrong. */
template <bool of_host>
static __device__ uint32_t pull(const wl_queue_view &view, const wl_source &source, uint32_t lanes,
                                uint64_t from, uint64_t to, uint64_t block) {
    uint32_t lane = threadIdx.x % WL_WARP, part = lane * WL_LANE_BYTES;
    uint32_t unit_count = view.block_bytes / WL_UNIT_BYTES, unit = 0, wrong = 0;
    uint64_t first = block * unit_count + source.first_block;
    while (lanes) {
        uint4 parts[LOADS];
        uint32_t owners[LOADS], units[LOADS];
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            owners[i] = lanes ? __ffs(lanes) - 1 : WL_WARP;
            units[i] = unit;
            if (!lanes)
                continue;
            uint64_t at = __shfl_sync(ALL, from, owners[i]) + unit * WL_UNIT_BYTES;
            parts[i] = load_part<of_host>(at + part);
            unit = unit + 1 < unit_count ? unit + 1 : 0;
            lanes = unit ? lanes : lanes & (lanes - 1);
        }
#pragma unroll
        for (uint32_t i = 0; i < LOADS; i++) {
            if (owners[i] == WL_WARP)
                continue;
            uint4 v = parts[i];
            uint64_t number = __shfl_sync(ALL, first, owners[i]) + units[i];
            uint64_t at = __shfl_sync(ALL, to, owners[i]) + units[i] * WL_UNIT_BYTES;
            *(uint4 *)(at + part) = v;
            uint64_t low = v.x | (uint64_t)v.y << 32, high = v.z | (uint64_t)v.w << 32;
            bool is_right = lane == 0   ? low == source.nonce && high == source.word
                            : lane == 1 ? low == number
                                        : true;
            if (!__all_sync(ALL, is_right))
                wrong |= 1u << owners[i];
        }
    }
    return wrong;
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

/* Blocks of `lanes` were copied, and those of `wrong` have other stamps. */
static __device__ void count_blocks(wl_warp_counts *counts, uint32_t lanes, uint32_t wrong,
                                    uint64_t block) {
    uint64_t first = __shfl_sync(ALL, block, wrong ? __ffs(wrong) - 1 : 0);
    counts->delivered += __popc(lanes & ~wrong);
    if (wrong && !counts->wrong)
        counts->wrong_block = first;
    counts->wrong += __popc(wrong);
}

static __device__ void count_latency(const wl_queue_view &view, uint64_t start_ns) {
    uint64_t took_ns = clock_ns() - start_ns;
    atomicAdd((unsigned long long *)view.latencies + wl_bucket(took_ns), 1ull);
}

static __device__ void end_warp(const wl_queue_view &view, const requester &own,
                                wl_warp_counts counts, uint64_t requests) {
    wl_warp_counts *to = (wl_warp_counts *)view.counts + own.warp;
    counts.wrong_target = own.target;
    if (!own.lane)
        *to = counts;
    __syncwarp();
    to->requests[own.lane] = requests;
}

/* Each lane asks again as soon as its block is delivered. */
extern "C" __global__ void random_read(const wl_queue_view view) {
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / WL_WARP;
    if (warp >= view.warps)
        return;
    const requester own = requester_of(view, warp);
    wl_warp_counts counts = {};
    uint32_t turn = (uint32_t)((own.own + view.first_number) % view.pairs);
    uint64_t number = view.first_number, next = block_of(view, own, number), block = 0;
    uint64_t start_ns = 0;
    uint32_t generation = 0, word = 0, asking = goes_on(view) ? ALL : 0, waiting = 0;
    for (;;) {
        if (asking >> own.lane & 1) {
            block = next;
            generation = (uint32_t)(number + 1) & WL_GENERATION_MASK;
            start_ns = (number + own.own) % view.sample_every ? 0 : clock_ns();
            number++;
        }
        if (asking) {
            submit(view, own.target * view.pairs + turn, asking, block, own.slot, generation);
            counts.asked += __popc(asking);
            /* The division of the next block passes while the queue works. */
            next = block_of(view, own, number);
            turn = turn + 1 < view.pairs ? turn + 1 : 0;
            waiting |= asking;
        }
        if (!waiting)
            break;
        uint32_t answered = wait(view, waiting, own.slot, generation, &word);
        if (!answered) {
            counts.unanswered = __popc(waiting);
            break;
        }
        bool is_answered = answered >> own.lane & 1;
        uint32_t failed = __ballot_sync(ALL, is_answered && word & WL_ERRNO_MASK);
        counts.failed += __popc(failed);
        if (view.delivery != WL_DELIVER_NOTHING) {
            uint32_t read = answered & ~failed;
            uint32_t wrong = pull<true>(view, own.source, read, address_of(view, own.slot, block),
                                        output_of(view, own.slot), block);
            count_blocks(&counts, read, wrong, block);
        }
        if (is_answered && start_ns)
            count_latency(view, start_ns);
        waiting &= ~answered;
        asking = goes_on(view) ? answered : 0;
    }
    end_warp(view, own, counts, number - view.first_number);
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
        uint32_t want = claim_page(view, draw(0, key) & (view.cache_sets - 1), key, &page,
                                   keep_none{});
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
    uint32_t missed = leaders_that(own, its, WANT_MISS), read = asking & ~failed;
    uint64_t to = output_of(view, own.slot);
    uint32_t wrong = pull<true>(view, own.source, read, address_of(view, own.slot, its.block), to,
                                its.block);
    count_blocks(counts, read, wrong, its.block);
    /* A page takes wrong blocks too: whoever finds one compares it, and counts it. */
    pull<false>(view, own.source, missed & ~failed, to, page_address(view, its.page), its.block);
    for (uint32_t rest = missed; rest; rest &= rest - 1) {
        uint32_t lane = __ffs(rest) - 1;
        end_page(view, __shfl_sync(ALL, its.page, lane), !(failed >> lane & 1));
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
    uint32_t found = leaders_that(own, its, WANT_HIT) | leaders_that(own, its, WANT_MERGED);
    uint32_t filled = 0;
    for (uint32_t rest = found; rest; rest &= rest - 1) {
        uint32_t lane = __ffs(rest) - 1;
        uint64_t word = 0;
        if (!wait_for_page(view, __shfl_sync(ALL, its.page, lane), &word))
            return false;
        filled |= (word & PAGE_HAS_FAILED ? 0 : 1u) << lane;
    }
    fence_device(); /* the pages' bytes were written before their words */
    __syncwarp();
    uint32_t wrong = pull<false>(view, own.source, filled, page_address(view, its.page),
                                 output_of(view, own.slot), its.block);
    count_blocks(counts, filled, wrong, its.block);
    *failed |= found & ~filled;
    return true;
}

/* The blocks that another lane has asked for. Each lane copies what it has written itself. */
static __device__ void deliver_coalesced(const wl_queue_view &view, const requester &own,
                                         const wanted &its, uint32_t *failed,
                                         wl_warp_counts *counts) {
    uint32_t alike = __ballot_sync(ALL, its.leader != own.lane);
    uint32_t lost = alike & __ballot_sync(ALL, *failed >> its.leader & 1), read = alike & ~lost;
    uint64_t from = output_of(view, own.warp * WL_WARP + its.leader);
    uint32_t wrong =
        pull<false>(view, own.source, read, from, output_of(view, own.slot), its.block);
    count_blocks(counts, read, wrong, its.block);
    *failed |= lost;
}

/* Through a cache: the lanes of a warp ask together, and again when all have their blocks. Requests
 * are coalesced, hits, merged, missed or bypassed; only the last two go through the queue.
 * Generations are counted by lane, since not all ask. */
extern "C" __global__ void random_read_cached(const wl_queue_view view) {
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / WL_WARP;
    if (warp >= view.warps)
        return;
    const requester own = requester_of(view, warp);
    wl_warp_counts counts = {};
    uint64_t made = view.first_number, number = view.first_number;
    for (; goes_on(view); number++) {
        bool is_sampled = (number + own.own) % view.sample_every == 0;
        uint64_t start_ns = is_sampled ? clock_ns() : 0;
        wanted its = look_up(view, own, block_of(view, own, number));
        uint32_t bypassed = leaders_that(own, its, WANT_BYPASSED);
        uint32_t asking = bypassed | leaders_that(own, its, WANT_MISS), word = 0;
        made += asking >> own.lane & 1;
        uint32_t generation = (uint32_t)made & WL_GENERATION_MASK;
        counts.asked += __popc(asking);
        counts.bypassed += __popc(bypassed);
        counts.hits += __popc(leaders_that(own, its, WANT_HIT));
        counts.merged += __popc(leaders_that(own, its, WANT_MERGED));
        counts.coalesced += __popc(__ballot_sync(ALL, its.leader != own.lane));
        if (asking) {
            uint32_t pair = (uint32_t)((own.own + number) % view.pairs);
            submit(view, own.target * view.pairs + pair, asking, its.block, own.slot, generation);
            uint32_t waiting = asking, answered;
            while (waiting && (answered = wait(view, waiting, own.slot, generation, &word)))
                waiting &= ~answered;
            counts.unanswered = __popc(waiting);
            if (waiting) {
                number++;
                break;
            }
        }
        uint32_t failed = deliver_reads(view, own, its, asking, word, &counts);
        if (!deliver_pages(view, own, its, &failed, &counts)) {
            number++;
            break;
        }
        deliver_coalesced(view, own, its, &failed, &counts);
        counts.failed += __popc(failed);
        fence_device(); /* all bytes were read before the pages are given up */
        __syncwarp();
        if (its.leader == own.lane && its.want != WANT_BYPASSED)
            atomicAdd(page_word(view, its.page), ~0ull);
        if (is_sampled)
            count_latency(view, start_ns);
    }
    end_warp(view, own, counts, number - view.first_number);
}

/* The step of the clock: between 1 and 1024 ns, by the GPU. */
static __device__ uint64_t clock_step_ns() {
    uint64_t before = clock_ns(), least = ~0ull;
    for (uint32_t changes = 0; changes < 16;) {
        uint64_t now = clock_ns();
        if (now == before)
            continue;
        least = now - before < least ? now - before : least;
        before = now;
        changes++;
    }
    return least;
}

/* What the link carries without a queue: blocks of the table, drawn and pulled as above. */
extern "C" __global__ void random_pull(const wl_queue_view view) {
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / WL_WARP;
    if (warp >= view.warps)
        return;
    const requester own = requester_of(view, warp);
    wl_warp_counts counts = {};
    uint64_t number = 0;
    if (!warp)
        counts.clock_step_ns = clock_step_ns();
    for (; goes_on(view); number++) {
        uint64_t block = draw(own.stream, number) % view.table_blocks;
        uint32_t wrong = pull<true>(view, own.source, ALL, view.slots + block * view.block_bytes,
                                    output_of(view, own.slot), block);
        count_blocks(&counts, ALL, wrong, block);
    }
    end_warp(view, own, counts, number);
}
