/* Random reads by the threads of a GPU, through the queue of queue_abi.h. NVRTC compiles this file at
 * run time; histogram.h is that of the engine. Loads and stores of host memory say `sys` and are
 * never cached: a slot is read again with other bytes in it by the same kernel. */
#include "queue_abi.h"
#include "histogram.h"

#define ALL 0xffffffffu

/* splitmix64; see wl_draw in pattern.h */
static __device__ uint64_t draw(uint64_t seed, uint64_t number) {
    uint64_t x = seed + (number + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static __device__ uint64_t clock_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

static __device__ uint32_t load_device(uint64_t address) {
    uint32_t value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

static __device__ uint32_t load_acquire(uint64_t address) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

static __device__ uint4 load_lane(uint64_t address) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

static __device__ void submit(const wl_queue_view &view, uint32_t pair, uint64_t block,
                              uint32_t slot, uint32_t generation) {
    uint32_t lane = threadIdx.x % WL_WARP, position = 0;
    if (!lane)
        position = atomicAdd((uint32_t *)view.heads + (uint64_t)pair * WL_HEAD_STRIDE, WL_WARP);
    position = view.first_position + __shfl_sync(ALL, position, 0) + lane;
    uint64_t place = ((uint64_t)pair << view.queue_shift) +
                     (position & ((1u << view.queue_shift) - 1));
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(view.requests +
                                                                            place * 16),
                 "r"((uint32_t)block), "r"((uint32_t)(block >> 32)), "r"(slot), "r"(generation)
                 : "memory");
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(view.laps + place * 4),
                 "r"((position >> view.queue_shift) + 1)
                 : "memory");
}

/* Whether the host has given up, or is gone for so long that the warp leaves by itself. */
static __device__ bool is_abandoned(const wl_queue_view &view, uint64_t since_ns) {
    bool is = load_device(view.control) == WL_ABANDON ||
              clock_ns() - since_ns > (uint64_t)view.wait_limit_ms * 1000000u;
    return __any_sync(ALL, is);
}

/* The completion word of the lane's request; false if the wait was given up. */
static __device__ bool wait(const wl_queue_view &view, uint32_t slot, uint32_t generation,
                            uint32_t *word) {
    uint32_t sleep_ns = 64, spins = 0;
    uint64_t since_ns = 0;
    for (;;) {
        *word = load_acquire(view.completions + (uint64_t)slot * 4);
        if (__all_sync(ALL, *word >> WL_ERRNO_BITS == generation))
            return true;
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

/* Pulls a block into the GPU's memory; whether all its stamps are right, for lane 0 to know. */
static __device__ bool pull(const wl_queue_view &view, const wl_source &source, uint64_t from,
                            uint64_t to, uint64_t block) {
    uint32_t lane = threadIdx.x % WL_WARP;
    uint64_t number = block * (view.block_bytes / WL_UNIT_BYTES) + source.first_block;
    bool is_right = true;
    for (uint32_t at = 0; at < view.block_bytes; at += WL_UNIT_BYTES, number++) {
        uint4 v = load_lane(from + at + lane * WL_LANE_BYTES);
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

extern "C" __global__ void random_read(const wl_queue_view view) {
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / WL_WARP;
    uint32_t lane = threadIdx.x % WL_WARP, slot = warp * WL_WARP + lane;
    if (warp >= view.warps)
        return;
    uint32_t target = warp / view.warps_per_target, own = warp % view.warps_per_target;
    const wl_source source = ((const wl_source *)view.sources)[target];
    uint64_t first = 0, count = source.blocks, stream = draw(view.seed, slot);
    if (view.pattern == WL_PATTERN_REGIONS) {
        count /= view.warps_per_target;
        first = own * count;
    }
    wl_warp_counts counts = {};
    counts.wrong_target = target;
    uint32_t turn = (uint32_t)((own + view.first_number) % view.pairs);
    uint64_t next = first + draw(stream, view.first_number) % count;
    for (uint64_t number = view.first_number;; number++) {
        uint32_t asked = lane ? 0 : load_device(view.control);
        if (__shfl_sync(ALL, asked, 0) != WL_GO_ON)
            break;
        uint64_t block = next;
        uint32_t generation = (uint32_t)(number + 1) & WL_GENERATION_MASK, word;
        bool is_sampled = (number + own) % view.sample_every == 0;
        uint64_t start_ns = is_sampled ? clock_ns() : 0;
        submit(view, target * view.pairs + turn, block, slot, generation);
        counts.requests += WL_WARP;
        /* The division of the next block passes while the queue works. */
        next = first + draw(stream, number + 1) % count;
        turn = turn + 1 < view.pairs ? turn + 1 : 0;
        if (!wait(view, slot, generation, &word)) {
            uint32_t is_open = word >> WL_ERRNO_BITS != generation;
            counts.unanswered = __popc(__ballot_sync(ALL, is_open));
            break;
        }
        __syncwarp();
        uint32_t failed = __ballot_sync(ALL, (word & WL_ERRNO_MASK) != 0);
        counts.failed += __popc(failed);
        for (uint32_t i = 0; i < WL_WARP && view.delivery != WL_DELIVER_NOTHING; i++) {
            uint64_t its = __shfl_sync(ALL, block, i);
            uint32_t place = warp * WL_WARP + i;
            if (failed >> i & 1)
                continue;
            if (pull(view, source, address_of(view, place, its),
                     view.output + (uint64_t)place * view.block_bytes, its))
                counts.delivered++;
            else if (!counts.wrong++)
                counts.wrong_block = its;
        }
        if (is_sampled) {
            uint64_t took_ns = clock_ns() - start_ns;
            atomicAdd((unsigned long long *)view.latencies + wl_bucket(took_ns), 1ull);
        }
    }
    if (!lane)
        ((wl_warp_counts *)view.counts)[warp] = counts;
}

/* What the link carries without a queue: blocks of the table, drawn and pulled as above. */
extern "C" __global__ void random_pull(const wl_queue_view view) {
    uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / WL_WARP;
    uint32_t lane = threadIdx.x % WL_WARP, slot = warp * WL_WARP + lane;
    if (warp >= view.warps)
        return;
    const wl_source source = ((const wl_source *)view.sources)[0];
    uint64_t stream = draw(view.seed, slot);
    wl_warp_counts counts = {};
    for (uint64_t number = 0;; number++) {
        uint32_t asked = lane ? 0 : load_device(view.control);
        if (__shfl_sync(ALL, asked, 0) != WL_GO_ON)
            break;
        uint64_t block = draw(stream, number) % view.table_blocks;
        for (uint32_t i = 0; i < WL_WARP; i++) {
            uint64_t its = __shfl_sync(ALL, block, i);
            uint64_t to = view.output + (uint64_t)(warp * WL_WARP + i) * view.block_bytes;
            if (pull(view, source, view.slots + its * view.block_bytes, to, its))
                counts.delivered++;
            else if (!counts.wrong++)
                counts.wrong_block = its;
        }
        counts.requests += WL_WARP;
    }
    if (!lane)
        ((wl_warp_counts *)view.counts)[warp] = counts;
}
