/* The bare ring with threads of the first visible GPU that ask, all resident at once. */
#include "ring.h"

enum { BLOCK_THREADS = 64, HEAD_STRIDE = 32 };
/* A warp gives up this long after the end. */
static const uint64_t LATE_NS = 5000000000u;

typedef struct {
    request *requests;
    uint32_t *laps, *answers, *heads;
    unsigned long long *counts; /* of each warp */
    uint32_t warps, rings, places;
    uint64_t blocks, duration_ns;
} view;

static __device__ uint64_t now_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

static __device__ void ask(const view &seen, uint32_t warp, uint32_t tag, uint64_t block) {
    uint32_t lane = threadIdx.x % WARP, ring = (warp + tag) % seen.rings, position = 0;
    if (!lane)
        position = atomicAdd(&seen.heads[ring * HEAD_STRIDE], (uint32_t)WARP);
    position = __shfl_sync(~0u, position, 0) + lane;
    size_t place = (size_t)ring * seen.places + (position & (seen.places - 1));
    uint4 words = make_uint4((uint32_t)block, (uint32_t)(block >> 32), warp * WARP + lane, tag);
    *(uint4 *)&seen.requests[place] = words;
    __threadfence_system();
    *(volatile uint32_t *)&seen.laps[place] = position / seen.places + 1;
}

/* Whether all 32 are answered before it is too late. */
static __device__ bool wait(const view &seen, uint32_t slot, uint32_t tag, uint64_t late_ns) {
    for (uint32_t rest_ns = 64;;) {
        uint32_t word = *(volatile uint32_t *)&seen.answers[slot];
        if (__all_sync(~0u, word == tag))
            return true;
        uint32_t is_late = now_ns() > late_ns;
        if (__any_sync(~0u, is_late))
            return false;
        __nanosleep(rest_ns);
        rest_ns = rest_ns < 2048 ? 2 * rest_ns : rest_ns;
    }
}

__global__ void run_warps(view seen) {
    uint32_t slot = blockIdx.x * blockDim.x + threadIdx.x, warp = slot / WARP;
    if (warp >= seen.warps)
        return;
    uint64_t end_ns = now_ns() + seen.duration_ns, random = (slot + 1) * 0x9e3779b97f4a7c15u;
    unsigned long long count = 0;
    for (uint32_t tag = 1;; tag++) {
        uint32_t is_over = now_ns() >= end_ns;
        if (__shfl_sync(~0u, is_over, 0))
            break;
        random ^= random >> 12;
        random ^= random << 25;
        random ^= random >> 27;
        ask(seen, warp, tag, random * 0x2545f4914f6cdd1du % seen.blocks);
        if (!wait(seen, slot, tag, end_ns + LATE_NS))
            break;
        count += WARP;
    }
    if (threadIdx.x % WARP == 0)
        seen.counts[warp] = count;
}

static void check(cudaError_t code, const char *what) {
    if (code != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(code));
        exit(1);
    }
}

static void *pinned(size_t bytes) {
    void *memory = NULL;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), "cudaHostAlloc");
    memset(memory, 0, bytes);
    return memory;
}

int main(int count, char **arguments) {
    read_arguments(count, arguments);
    view seen = {};
    seen.warps = shared.requesters / WARP;
    seen.rings = shared.rings;
    seen.places = shared.places;
    seen.blocks = shared.blocks;
    seen.duration_ns = (uint64_t)(shared.seconds * 1e9);
    seen.requests = shared.requests = (request *)pinned(ring_bytes() * sizeof(request));
    seen.laps = shared.laps = (uint32_t *)pinned(ring_bytes() * sizeof(uint32_t));
    seen.answers = shared.answers = (uint32_t *)pinned(shared.requesters * sizeof(uint32_t));
    check(cudaMalloc(&seen.heads, shared.rings * HEAD_STRIDE * sizeof(uint32_t)), "cudaMalloc");
    check(cudaMemset(seen.heads, 0, shared.rings * HEAD_STRIDE * sizeof(uint32_t)), "cudaMemset");
    check(cudaMalloc(&seen.counts, seen.warps * sizeof *seen.counts), "cudaMalloc");
    int at_once = 0, processors = 0;
    check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, run_warps, BLOCK_THREADS, 0),
          "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0),
          "cudaDeviceGetAttribute");
    uint32_t blocks = (shared.requesters + BLOCK_THREADS - 1) / BLOCK_THREADS;
    if (blocks > (uint32_t)(at_once * processors))
        die("more requesters than the GPU runs at once", (long)shared.requesters);
    start_pollers();
    double begin_s = clock_s(CLOCK_MONOTONIC), begin_cpu_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    run_warps<<<blocks, BLOCK_THREADS>>>(seen);
    check(cudaGetLastError(), "launching");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    double seconds = clock_s(CLOCK_MONOTONIC) - begin_s;
    double cpu_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - begin_cpu_s;
    end_pollers();
    unsigned long long *counts = (unsigned long long *)calloc(seen.warps, sizeof *counts);
    check(cudaMemcpy(counts, seen.counts, seen.warps * sizeof *counts, cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    uint64_t requests = 0;
    for (uint32_t i = 0; i < seen.warps; i++)
        requests += counts[i];
    print_figures(requests, seconds, cpu_s);
    return 0;
}
