// A CUDA driver for tests on machines without a GPU: device memory is malloc, and an asynchronous
// copy is done when its stream or an event behind it is waited for, never at once, so that a
// reader that does not wait delivers wrong bytes. Calls other than cuInit and those of the version
// need cuInit; memory, streams and copies need a context that is current on the calling thread.
//
//   STUB_CUDA_NO_DEVICE=1       cuInit returns CUDA_ERROR_NO_DEVICE
//   STUB_CUDA_GPUS=n            GPUs, 1 to 16 (default 1)
//   STUB_CUDA_PCI=a,b           their PCI addresses (default 0000:65:00.0, 0000:66:00.0, ...)
//   STUB_CUDA_NAME=text         the name of each (default "Stub GPU")
//   STUB_CUDA_VERSION=n         what cuDriverGetVersion says (default 13000)
//   STUB_CUDA_FREE_BYTES=n      device memory of each GPU (default 8 GiB)
//   STUB_CUDA_REGISTER_ERROR=n  cuMemHostRegister returns n, such as 2 (out of memory)
//   STUB_CUDA_LOSE_AFTER=n      copy number n, counted from 1, and every call after it fails with
//                               STUB_CUDA_LOSE_CODE (default 999, as of a GPU off the bus)
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    INVALID_HANDLE = 400,
    NOT_READY = 600,
    NOT_SUPPORTED = 801,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
};

enum { MAX_GPUS = 16, ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_UNIFIED_ADDRESSING = 41 };

typedef unsigned long long deviceptr;

struct context {
    int gpu;
};

struct range {
    struct range *next;
    uintptr_t start;
    size_t size;
    int gpu;
};

struct copy {
    struct copy *next;
    void *to;
    const void *from;
    size_t size;
};

struct stream {
    pthread_mutex_t lock;
    struct copy *first, *last;
    uint64_t queued, finished; // copies so far
};

struct event {
    struct stream *stream;
    uint64_t after; // ready when this many copies of its stream are finished
    int queried;
};

static struct context contexts[MAX_GPUS];
static struct stream legacy_stream = {.lock = PTHREAD_MUTEX_INITIALIZER};
static _Thread_local struct context *current;
static atomic_int is_initialized;
static atomic_llong copies;
static atomic_int lost;
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *device_memory, *pinned_memory;
static size_t used_bytes[MAX_GPUS];

static long long number(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoll(text) : otherwise;
}

static int gpus(void) {
    return (int)number("STUB_CUDA_GPUS", 1);
}

static int device_status(int device) {
    if (!is_initialized)
        return NOT_INITIALIZED;
    if (lost)
        return lost;
    return device < 0 || device >= gpus() ? INVALID_DEVICE : SUCCESS;
}

static int context_status(void) {
    if (!is_initialized)
        return NOT_INITIALIZED;
    if (lost)
        return lost;
    return current ? SUCCESS : INVALID_CONTEXT;
}

static int count_copy(void) {
    long long last = number("STUB_CUDA_LOSE_AFTER", 0);
    if (last && atomic_fetch_add(&copies, 1) + 1 >= last)
        lost = (int)number("STUB_CUDA_LOSE_CODE", 999);
    return lost;
}

static struct range *find(struct range *list, const void *address, size_t size) {
    uintptr_t start = (uintptr_t)address;
    for (; list; list = list->next)
        if (start >= list->start && start + size <= list->start + list->size)
            return list;
    return NULL;
}

static int is_device_memory(const void *address, size_t size) {
    pthread_mutex_lock(&memory_lock);
    int is_known = find(device_memory, address, size) != NULL;
    pthread_mutex_unlock(&memory_lock);
    return is_known;
}

static void add(struct range **list, const void *address, size_t size, int gpu) {
    struct range *range = malloc(sizeof *range);
    *range = (struct range){*list, (uintptr_t)address, size, gpu};
    *list = range;
}

// Takes the range that starts at the address out of the list; the caller frees it.
static struct range *take(struct range **list, const void *address) {
    for (; *list; list = &(*list)->next)
        if ((*list)->start == (uintptr_t)address) {
            struct range *range = *list;
            *list = range->next;
            return range;
        }
    return NULL;
}

// For the stub of libcufile: the GPU that has this memory, -1 for none.
int stub_cuda_gpu_of(const void *address, size_t size) {
    pthread_mutex_lock(&memory_lock);
    struct range *range = find(device_memory, address, size);
    int gpu = range ? range->gpu : -1;
    pthread_mutex_unlock(&memory_lock);
    return gpu;
}

int cuInit(unsigned flags) {
    if (flags)
        return INVALID_VALUE;
    if (getenv("STUB_CUDA_NO_DEVICE"))
        return NO_DEVICE;
    for (int i = 0; i < MAX_GPUS; i++)
        contexts[i].gpu = i;
    is_initialized = 1;
    return SUCCESS;
}

int cuDriverGetVersion(int *version) {
    *version = (int)number("STUB_CUDA_VERSION", 13000);
    return SUCCESS;
}

int cuDeviceGetCount(int *count) {
    *count = gpus();
    return device_status(0);
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return device_status(ordinal);
}

int cuDeviceGetName(char *name, int size, int device) {
    const char *text = getenv("STUB_CUDA_NAME");
    snprintf(name, (size_t)size, "%s", text ? text : "Stub GPU");
    return device_status(device);
}

int cuDeviceGetPCIBusId(char *address, int size, int device) {
    int status = device_status(device);
    if (status)
        return status;
    const char *list = getenv("STUB_CUDA_PCI");
    for (int i = 0; list && i < device; i++)
        list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL;
    if (list)
        snprintf(address, (size_t)size, "%.*s", (int)strcspn(list, ","), list);
    else
        snprintf(address, (size_t)size, "0000:%02x:00.0", 0x65 + device);
    return SUCCESS;
}

int cuDeviceGetByPCIBusId(int *device, const char *address) {
    char known[32];
    int status = device_status(0);
    for (int i = 0; !status && i < gpus(); i++) {
        cuDeviceGetPCIBusId(known, sizeof known, i);
        if (!strcasecmp(known, address)) {
            *device = i;
            return SUCCESS;
        }
    }
    return status ? status : INVALID_DEVICE;
}

int cuDeviceGetUuid_v2(void *uuid, int device) {
    memset(uuid, 0xa0 + device, 16);
    return device_status(device);
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = (size_t)number("STUB_CUDA_FREE_BYTES", 8LL << 30);
    return device_status(device);
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == ATTRIBUTE_MULTIPROCESSORS ? 132 : attribute == ATTRIBUTE_UNIFIED_ADDRESSING;
    return device_status(device);
}

int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
    (void)flags;
    return device_status(device);
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    int status = device_status(device);
    if (!status)
        *context = &contexts[device];
    return status;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    return device_status(device);
}

int cuCtxSetCurrent(void *context) {
    if (!is_initialized)
        return NOT_INITIALIZED;
    current = context;
    return SUCCESS;
}

int cuCtxGetCurrent(void **context) {
    if (!is_initialized)
        return NOT_INITIALIZED;
    *context = current;
    return SUCCESS;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    int status = context_status();
    if (status)
        return status;
    *total_bytes = (size_t)number("STUB_CUDA_FREE_BYTES", 8LL << 30);
    pthread_mutex_lock(&memory_lock);
    *free_bytes = *total_bytes - used_bytes[current->gpu];
    pthread_mutex_unlock(&memory_lock);
    return SUCCESS;
}

int cuMemAlloc_v2(deviceptr *memory, size_t size) {
    int status = context_status();
    if (status)
        return status;
    if (!size)
        return INVALID_VALUE;
    void *address = NULL;
    pthread_mutex_lock(&memory_lock);
    size_t total = (size_t)number("STUB_CUDA_FREE_BYTES", 8LL << 30);
    if (used_bytes[current->gpu] + size > total || posix_memalign(&address, 512, size))
        status = OUT_OF_MEMORY;
    else {
        memset(address, 0xdb, size); // whoever compares memory that no copy reached finds this
        used_bytes[current->gpu] += size;
        add(&device_memory, address, size, current->gpu);
        *memory = (deviceptr)(uintptr_t)address;
    }
    pthread_mutex_unlock(&memory_lock);
    return status;
}

int cuMemFree_v2(deviceptr memory) {
    int status = context_status();
    if (status)
        return status;
    pthread_mutex_lock(&memory_lock);
    struct range *range = take(&device_memory, (void *)(uintptr_t)memory);
    if (range)
        used_bytes[range->gpu] -= range->size;
    pthread_mutex_unlock(&memory_lock);
    if (!range)
        return INVALID_VALUE;
    free((void *)range->start);
    free(range);
    return SUCCESS;
}

int cuMemsetD8_v2(deviceptr memory, unsigned char value, size_t size) {
    int status = context_status();
    if (status)
        return status;
    if (!is_device_memory((void *)(uintptr_t)memory, size))
        return INVALID_VALUE;
    memset((void *)(uintptr_t)memory, value, size);
    return SUCCESS;
}

int cuMemHostRegister_v2(void *memory, size_t size, unsigned flags) {
    (void)flags;
    int status = context_status();
    if (!status)
        status = (int)number("STUB_CUDA_REGISTER_ERROR", SUCCESS);
    if (status)
        return status;
    pthread_mutex_lock(&memory_lock);
    if (find(pinned_memory, memory, 1))
        status = HOST_MEMORY_ALREADY_REGISTERED;
    else
        add(&pinned_memory, memory, size, 0);
    pthread_mutex_unlock(&memory_lock);
    return status;
}

int cuMemHostUnregister(void *memory) {
    int status = context_status();
    if (status)
        return status;
    pthread_mutex_lock(&memory_lock);
    struct range *range = take(&pinned_memory, memory);
    pthread_mutex_unlock(&memory_lock);
    status = range ? SUCCESS : HOST_MEMORY_NOT_REGISTERED;
    free(range);
    return status;
}

int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    int status = context_status();
    if (status)
        return status;
    struct stream *made = calloc(1, sizeof *made);
    pthread_mutex_init(&made->lock, NULL);
    *stream = made;
    return SUCCESS;
}

// Does the copies of a stream until as many are finished.
static void finish(struct stream *stream, uint64_t until) {
    pthread_mutex_lock(&stream->lock);
    while (stream->finished < until && stream->first) {
        struct copy *copy = stream->first;
        memcpy(copy->to, copy->from, copy->size);
        stream->first = copy->next;
        stream->finished++;
        free(copy);
    }
    pthread_mutex_unlock(&stream->lock);
}

static struct stream *stream_of(void *handle) {
    return handle ? handle : &legacy_stream;
}

int cuStreamSynchronize(void *handle) {
    int status = context_status();
    if (!status)
        finish(stream_of(handle), UINT64_MAX);
    return status;
}

int cuStreamDestroy_v2(void *handle) {
    int status = context_status();
    if (status)
        return status;
    finish(handle, UINT64_MAX);
    free(handle);
    return SUCCESS;
}

static int queue_copy(void *to, const void *from, size_t size, void *handle) {
    struct copy *copy = malloc(sizeof *copy);
    *copy = (struct copy){NULL, to, from, size};
    struct stream *stream = stream_of(handle);
    pthread_mutex_lock(&stream->lock);
    if (stream->first)
        stream->last->next = copy;
    else
        stream->first = copy;
    stream->last = copy;
    stream->queued++;
    pthread_mutex_unlock(&stream->lock);
    return SUCCESS;
}

int cuMemcpyHtoDAsync_v2(deviceptr to, const void *from, size_t size, void *stream) {
    int status = context_status();
    if (!status && !is_device_memory((void *)(uintptr_t)to, size))
        status = INVALID_VALUE;
    if (!status)
        status = count_copy();
    return status ? status : queue_copy((void *)(uintptr_t)to, from, size, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, deviceptr from, size_t size, void *stream) {
    int status = context_status();
    if (!status && !is_device_memory((void *)(uintptr_t)from, size))
        status = INVALID_VALUE;
    if (!status)
        status = count_copy();
    return status ? status : queue_copy(to, (void *)(uintptr_t)from, size, stream);
}

int cuMemcpyHtoD_v2(deviceptr to, const void *from, size_t size) {
    int status = cuMemcpyHtoDAsync_v2(to, from, size, NULL);
    return status ? status : cuStreamSynchronize(NULL);
}

int cuMemcpyDtoH_v2(void *to, deviceptr from, size_t size) {
    int status = cuMemcpyDtoHAsync_v2(to, from, size, NULL);
    return status ? status : cuStreamSynchronize(NULL);
}

int cuEventCreate(void **event, unsigned flags) {
    (void)flags;
    int status = context_status();
    if (!status)
        *event = calloc(1, sizeof(struct event));
    return status;
}

int cuEventRecord(void *handle, void *stream) {
    int status = context_status();
    if (status)
        return status;
    struct event *event = handle;
    event->stream = stream_of(stream);
    event->queried = 0;
    pthread_mutex_lock(&event->stream->lock);
    event->after = event->stream->queued;
    pthread_mutex_unlock(&event->stream->lock);
    return SUCCESS;
}

// The first query after a record finds the copies unfinished, the second one has them done.
int cuEventQuery(void *handle) {
    int status = context_status();
    struct event *event = handle;
    if (status || !event->stream)
        return status;
    if (!event->queried++)
        return NOT_READY;
    finish(event->stream, event->after);
    return SUCCESS;
}

int cuEventSynchronize(void *handle) {
    int status = context_status();
    struct event *event = handle;
    if (!status && event->stream)
        finish(event->stream, event->after);
    return status;
}

int cuEventDestroy_v2(void *handle) {
    int status = context_status();
    if (!status)
        free(handle);
    return status;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {HOST_MEMORY_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int error_text(int code, const char **text, int is_name) {
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == code) {
            *text = is_name ? errors[i].name : errors[i].text;
            return SUCCESS;
        }
    *text = NULL;
    return INVALID_VALUE;
}

int cuGetErrorString(int code, const char **text) {
    return error_text(code, text, 0);
}

int cuGetErrorName(int code, const char **name) {
    return error_text(code, name, 1);
}

// There is no GPU, so kernels and the memory that they see are refused.
int cuMemHostGetDevicePointer_v2(deviceptr *address, void *memory, unsigned flags) {
    (void)address, (void)memory, (void)flags;
    return NOT_SUPPORTED;
}

int cuStreamQuery(void *handle) {
    (void)handle;
    return NOT_SUPPORTED;
}

int cuModuleLoadData(void **module, const void *image) {
    (void)module, (void)image;
    return NOT_SUPPORTED;
}

int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)function, (void)module, (void)name;
    return NOT_SUPPORTED;
}

int cuModuleUnload(void *module) {
    (void)module;
    return NOT_SUPPORTED;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads,
                                                size_t shared_bytes) {
    (void)blocks, (void)function, (void)threads, (void)shared_bytes;
    return NOT_SUPPORTED;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream,
                   void **arguments, void **extra) {
    (void)function, (void)x, (void)y, (void)z, (void)block_x, (void)block_y, (void)block_z;
    (void)shared_bytes, (void)stream, (void)arguments, (void)extra;
    return NOT_SUPPORTED;
}
