// A CUDA driver that runs the kernels' own source on the CPU, for tests of the queue without a GPU.
// It knows one GPU, 0000:65:00.0, of MULTIPROCESSORS x 128 threads; device memory is malloc, and
// copies are done at once. Kernels come from their own sources, whatever image is loaded.
#include <pthread.h>
#include <stdlib.h>
#include <strings.h>

#include <atomic>
#include <functional>
#include <vector>

#include "memory.cuh"

#include "random_read.cu"

#include "feature_rows.cu"

thread_local emulated_warp *warp_here;

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, NOT_FOUND = 500, NOT_READY = 600 };
enum { MULTIPROCESSORS = 16, STACK_BYTES = 65536, MEMORY_BYTES = 1 << 30 };

struct stream {
    std::vector<pthread_t> warps;
    std::atomic<unsigned> running{0};
};

struct launched {
    std::function<void()> run;
    uint32_t number;
    stream *in;
};

// A kernel as it is called, with a copy of its argument.
typedef std::function<void()> bind(const void *argument);
template <typename view, void run(const view)> static std::function<void()> bound(const void *of) {
    const view copy = *(const view *)of;
    return [copy] { run(copy); };
}

static const struct {
    const char *name;
    bind *of;
} kernels[] = {
    {"random_read", bound<wl_queue_view, random_read>},
    {"random_read_cached", bound<wl_queue_view, random_read_cached>},
    {"random_pull", bound<wl_queue_view, random_pull>},
    {"keep_rows", bound<wl_rows_view, keep_rows>},
    {"expect_rows", bound<wl_rows_view, expect_rows>},
    {"split_rows", bound<wl_rows_view, split_rows>},
    {"gather_rows", bound<wl_rows_view, gather_rows>},
    {"pull_rows", bound<wl_rows_view, pull_rows>},
};

static thread_local const launched *launch_here;

static void lane_main() {
    emulated_warp *warp = warp_here;
    launch_here->run();
    warp->ended |= 1u << warp->lane;
    for (;;)
        give_way();
}

static void *warp_main(void *argument) {
    launched *launch = (launched *)argument;
    emulated_warp *warp = new emulated_warp();
    char *stacks = (char *)malloc(WL_WARP * STACK_BYTES);
    warp->number = launch->number;
    warp_here = warp;
    launch_here = launch;
    for (uint32_t i = 0; i < WL_WARP; i++) {
        ucontext_t *lane = &warp->lanes[i];
        getcontext(lane);
        lane->uc_stack.ss_sp = stacks + i * STACK_BYTES;
        lane->uc_stack.ss_size = STACK_BYTES;
        lane->uc_link = NULL;
        makecontext(lane, lane_main, 0);
    }
    while (warp->ended != ~0u)
        for (warp->lane = 0; warp->lane < WL_WARP; warp->lane++)
            if (!(warp->ended >> warp->lane & 1))
                swapcontext(&warp->scheduler, &warp->lanes[warp->lane]);
    free(stacks);
    delete warp;
    launch->in->running--;
    delete launch;
    return NULL;
}

static void join(stream *in) {
    for (pthread_t warp : in->warps)
        pthread_join(warp, NULL);
    in->warps.clear();
}

static char handle_of_none; // of contexts and modules

extern "C" {
typedef unsigned long long deviceptr;

int cuInit(unsigned) { return SUCCESS; }
int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cuGetErrorString(int, const char **text) { return *text = "an emulated error", SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int *device, int ordinal) { return *device = ordinal, SUCCESS; }
int cuDeviceGetByPCIBusId(int *device, const char *address) {
    return *device = 0, strcasecmp(address, "0000:65:00.0") ? INVALID_DEVICE : SUCCESS;
}
int cuDeviceGetPCIBusId(char *address, int, int) {
    return strcpy(address, "0000:65:00.0"), SUCCESS;
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
    return *value = attribute == 16 ? MULTIPROCESSORS : attribute == 75 ? 9 : 0, SUCCESS;
}
int cuDeviceGetName(char *name, int, int) { return strcpy(name, "Emulated GPU"), SUCCESS; }
int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return SUCCESS; }
int cuDevicePrimaryCtxRetain(void **context, int) { return *context = &handle_of_none, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
int cuCtxSetCurrent(void *) { return SUCCESS; }
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    return *free_bytes = *total = MEMORY_BYTES, SUCCESS;
}
int cuMemAlloc_v2(deviceptr *memory, size_t bytes) {
    if (bytes > MEMORY_BYTES)
        return OUT_OF_MEMORY;
    return *memory = (deviceptr)aligned_alloc(512, (bytes + 511) / 512 * 512), SUCCESS;
}
int cuMemFree_v2(deviceptr memory) { return free((void *)memory), SUCCESS; }
int cuMemsetD8_v2(deviceptr memory, unsigned char value, size_t bytes) {
    return memset((void *)memory, value, bytes), SUCCESS;
}
int cuMemHostRegister_v2(void *, size_t, unsigned) { return SUCCESS; }
int cuMemHostGetDevicePointer_v2(deviceptr *address, void *memory, unsigned) {
    return *address = (deviceptr)memory, SUCCESS;
}
int cuMemHostUnregister(void *) { return SUCCESS; }
// The control word is copied while a kernel reads it.
int cuMemcpyHtoDAsync_v2(deviceptr to, const void *from, size_t bytes, void *) {
    if (bytes == sizeof(uint32_t))
        __atomic_store_n((uint32_t *)to, *(const uint32_t *)from, __ATOMIC_RELAXED);
    else
        memcpy((void *)to, from, bytes);
    return SUCCESS;
}
int cuMemcpyDtoH_v2(void *to, deviceptr from, size_t bytes) {
    return memcpy(to, (const void *)from, bytes), SUCCESS;
}
int cuStreamCreate(void **made, unsigned) { return *made = new stream(), SUCCESS; }
int cuStreamSynchronize(void *handle) {
    if (handle)
        join((stream *)handle);
    return SUCCESS;
}
int cuStreamQuery(void *handle) { return ((stream *)handle)->running ? NOT_READY : SUCCESS; }
int cuStreamDestroy_v2(void *handle) {
    join((stream *)handle);
    delete (stream *)handle;
    return SUCCESS;
}
int cuModuleLoadData(void **module, const void *) { return *module = &handle_of_none, SUCCESS; }
int cuModuleGetFunction(void **function, void *, const char *name) {
    for (const auto &each : kernels)
        if (!strcmp(each.name, name))
            return *function = (void *)each.of, SUCCESS;
    return NOT_FOUND;
}
int cuModuleUnload(void *) { return SUCCESS; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int, size_t) {
    return *blocks = 1, SUCCESS;
}
int cuLaunchKernel(void *function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                   unsigned, unsigned, void *handle, void **arguments, void **) {
    stream *in = (stream *)handle;
    std::function<void()> run = ((bind *)function)(arguments[0]);
    unsigned warps = blocks * threads / WL_WARP;
    join(in);
    in->running = warps;
    for (uint32_t i = 0; i < warps; i++) {
        pthread_t warp;
        launched *launch = new launched{run, i, in};
        pthread_create(&warp, NULL, warp_main, launch);
        in->warps.push_back(warp);
    }
    return SUCCESS;
}
int cuEventCreate(void **, unsigned) { return NOT_FOUND; }
int cuEventRecord(void *, void *) { return NOT_FOUND; }
int cuEventQuery(void *) { return NOT_FOUND; }
int cuEventSynchronize(void *) { return NOT_FOUND; }
int cuEventDestroy_v2(void *) { return NOT_FOUND; }
}
