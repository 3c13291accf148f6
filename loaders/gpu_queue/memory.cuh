/* Loads, stores and fences of the kernels, in PTX. Those of host memory say `sys`, and none is
 * cached: a slot is read again with other bytes in it by the same kernel. */
#ifndef WL_MEMORY_CUH
#define WL_MEMORY_CUH

#include "types.h"

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

static __device__ uint32_t load_acquire_system(uint64_t address) {
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
    return value;
}

/* What a lane reads of a block. */
static __device__ uint4 load_lane(uint64_t address) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

static __device__ void store_request(uint64_t address, uint64_t block, uint32_t slot,
                                     uint32_t generation) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address),
                 "r"((uint32_t)block), "r"((uint32_t)(block >> 32)), "r"(slot), "r"(generation)
                 : "memory");
}

static __device__ void store_system(uint64_t address, uint32_t value) {
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/* Of the GPU's own memory, past the caches of its multiprocessors. */
static __device__ uint64_t load_device_word(uint64_t address) {
    uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(address) : "memory");
    return value;
}

static __device__ uint4 load_device_lane(uint64_t address) {
    uint4 v;
    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

static __device__ void store_device(uint64_t address, uint32_t value) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

static __device__ void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

static __device__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

#endif
