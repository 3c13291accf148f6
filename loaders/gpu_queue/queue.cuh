/* The requesters' side of queue_abi.h on a GPU: how a warp asks, and when it gives up. */
#ifndef WL_QUEUE_CUH
#define WL_QUEUE_CUH

#include "queue_abi.h"
#include "memory.cuh"

#define ALL 0xffffffffu

/* So many loads of a warp are on their way from host memory at once: eight let 4096 requesters fill
 * the link of an H100, which takes twice as many warps with one. */
enum { LOADS = 8 };

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
    __syncwarp(); /* all lanes have read the slots that are asked for again */
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

template <bool of_host> static __device__ uint4 load_part(uint64_t address) {
    return of_host ? load_lane(address) : load_device_lane(address);
}

#endif
