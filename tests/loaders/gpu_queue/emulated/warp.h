// Warps of 32 lanes on a CPU, for the kernels' own source: each warp is a thread, its lanes take
// turns, and a lane gives way to the next wherever the warp has to meet.
#ifndef WARP_H
#define WARP_H

#include <sched.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#include "queue_abi.h"

#define __device__
#define __global__

struct uint4 {
    uint32_t x, y, z, w;
};

struct emulated_warp {
    ucontext_t scheduler, lanes[WL_WARP];
    uint64_t given[WL_WARP], seen[WL_WARP]; // what each lane brings to a meeting, and finds there
    uint32_t number, lane, arrived, meetings, ended;
};

extern thread_local emulated_warp *warp_here;

struct thread_number {
    uint32_t x;
};
static inline thread_number lane_here() { return {warp_here->lane}; }
static inline thread_number block_here() { return {warp_here->number}; }
#define threadIdx lane_here()
#define blockIdx block_here()
static const thread_number blockDim = {WL_WARP};

static void give_way() {
    emulated_warp *warp = warp_here;
    uint32_t lane = warp->lane;
    swapcontext(&warp->lanes[lane], &warp->scheduler);
}

static const uint64_t *meet(uint64_t value) {
    emulated_warp *warp = warp_here;
    uint32_t meeting = warp->meetings;
    warp->given[warp->lane] = value;
    if (++warp->arrived == WL_WARP) {
        memcpy(warp->seen, warp->given, sizeof warp->seen);
        warp->arrived = 0;
        warp->meetings++;
    }
    while (warp->meetings == meeting)
        give_way();
    return warp->seen;
}

template <typename T> static T __shfl_sync(uint32_t, T value, uint32_t lane) {
    return (T)meet((uint64_t)value)[lane];
}

static uint32_t __ballot_sync(uint32_t, bool value) {
    const uint64_t *seen = meet(value);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < WL_WARP; i++)
        bits |= (uint32_t)(seen[i] != 0) << i;
    return bits;
}

static inline uint32_t __match_any_sync(uint32_t, uint64_t value) {
    const uint64_t *seen = meet(value);
    uint32_t bits = 0;
    for (uint32_t i = 0; i < WL_WARP; i++)
        bits |= (uint32_t)(seen[i] == value) << i;
    return bits;
}

static bool __all_sync(uint32_t all, bool value) { return __ballot_sync(all, value) == ~0u; }
static bool __any_sync(uint32_t all, bool value) { return __ballot_sync(all, value) != 0; }
static void __syncwarp() { meet(0); }
static int __popc(uint32_t bits) { return __builtin_popcount(bits); }
static inline int __ffs(uint32_t bits) { return __builtin_ffs((int)bits); }

static void __nanosleep(uint32_t) {
    if (!warp_here->lane)
        sched_yield();
}

template <typename T> static T atomicAdd(T *at, T more) {
    return __atomic_fetch_add(at, more, __ATOMIC_ACQ_REL);
}
static uint32_t atomicAdd(uint32_t *at, int more) { return atomicAdd(at, (uint32_t)more); }
template <typename T> static inline T atomicOr(T *at, T bits) {
    return __atomic_fetch_or(at, bits, __ATOMIC_ACQ_REL);
}
template <typename T> static inline T atomicAnd(T *at, T bits) {
    return __atomic_fetch_and(at, bits, __ATOMIC_ACQ_REL);
}
template <typename T> static inline T atomicCAS(T *at, T expected, T wanted) {
    __atomic_compare_exchange_n(at, &expected, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return expected;
}

#endif
