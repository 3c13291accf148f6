// In place of the kernels' own memory.cuh: the same loads, stores and fences on a CPU.
#ifndef WL_MEMORY_CUH
#define WL_MEMORY_CUH

#include "warp.h"

// EMULATED_CLOCK_STEP_NS makes it as coarse as the clocks of some GPUs.
static uint64_t clock_ns() {
    static const char *step = getenv("EMULATED_CLOCK_STEP_NS");
    static const uint64_t step_ns = step ? strtoull(step, nullptr, 10) : 1;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return now_ns - now_ns % step_ns;
}

static uint32_t load_device(uint64_t address) {
    return __atomic_load_n((uint32_t *)address, __ATOMIC_RELAXED);
}

static uint32_t load_acquire_system(uint64_t address) {
    return __atomic_load_n((uint32_t *)address, __ATOMIC_ACQUIRE);
}

static uint4 load_lane(uint64_t address) { return *(const uint4 *)address; }

static inline uint64_t load_device_word(uint64_t address) {
    return __atomic_load_n((uint64_t *)address, __ATOMIC_RELAXED);
}

static inline uint4 load_device_lane(uint64_t address) { return *(const uint4 *)address; }

static inline void store_device(uint64_t address, uint32_t value) {
    __atomic_store_n((uint32_t *)address, value, __ATOMIC_RELAXED);
}

static inline void fence_device() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

static void store_request(uint64_t address, uint64_t block, uint32_t slot, uint32_t generation) {
    *(wl_request *)address = wl_request{block, slot, generation};
}

static void store_system(uint64_t address, uint32_t value) {
    __atomic_store_n((uint32_t *)address, value, __ATOMIC_RELAXED);
}

static void fence_system() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

#endif
