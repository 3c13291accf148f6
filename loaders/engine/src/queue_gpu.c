/* Requesters on a GPU: the kernels of loaders/gpu_queue/random_read.cu, on a stream of their own
 * that no other work waits for. The queue, the slots and the table are host memory that the
 * driver has mapped; heads, control word, counts and delivered blocks are the GPU's. */
#include <stdlib.h>
#include <string.h>

#include "queue_gpu.h"

typedef struct {
    wl_gpu_base base;
    wl_cu_function read, read_cached, pull;
    wl_cu_pointer memory;
    wl_cu_pointer heads, sources, counts, latencies, output;
    size_t heads_bytes, sources_bytes, counts_bytes, latencies_bytes;
    wl_cu_pointer slots, table;
} wl_gpu_side;

static wl_gpu_side *side_of(const wl_queue *queue) { return queue->own; }

int32_t wl_gpu_map_host(wl_gpu_base *base, void *memory, size_t bytes, wl_cu_pointer *address,
                        wl_error *error) {
    wl_cu_result code =
        base->cuda->host_register(memory, bytes, WL_CU_HOST_PORTABLE | WL_CU_HOST_MAPPED);
    if (code) {
        wl_cuda_fail(error, code, "cuMemHostRegister");
        return wl_fail(error, WL_NOT_PINNED, NULL, bytes, "%s",
                       code == WL_CU_OUT_OF_MEMORY ? "the driver pins no more memory"
                                                   : "the driver refuses to pin memory");
    }
    base->mapped[base->mapped_count++] = memory;
    code = base->cuda->host_address(address, memory, 0);
    return code ? wl_cuda_fail(error, code, "cuMemHostGetDevicePointer") : WL_OK;
}

int32_t wl_gpu_current(const wl_gpu_base *base, wl_error *error) {
    wl_cu_result code = base->cuda->context_set(base->context);
    return code ? wl_cuda_fail(error, code, "cuCtxSetCurrent") : WL_OK;
}

int32_t wl_gpu_multiprocessors(const wl_gpu_base *base, uint32_t *count, wl_error *error) {
    int32_t found = 0;
    wl_cu_result code = base->cuda->device_attribute(&found, WL_CU_MULTIPROCESSORS, base->device);
    *count = (uint32_t)found;
    return code ? wl_cuda_fail(error, code, "cuDeviceGetAttribute") : WL_OK;
}

int32_t wl_gpu_function(const wl_gpu_base *base, const char *name, wl_cu_function *function,
                        wl_error *error) {
    wl_cu_result code = base->cuda->module_function(function, base->module, name);
    return code ? wl_cuda_fail(error, code, "cuModuleGetFunction") : WL_OK;
}

int32_t wl_gpu_allocate(wl_gpu_base *base, wl_cu_pointer *memory, size_t bytes,
                        const char *what, wl_error *error) {
    wl_cu_result code = base->cuda->allocate(memory, bytes);
    if (code == WL_CU_OUT_OF_MEMORY)
        return wl_fail(error, WL_GPU_MEMORY, NULL, bytes, "%s", what);
    if (code)
        return wl_cuda_fail(error, code, "cuMemAlloc");
    base->allocated[base->allocated_count++] = *memory;
    return WL_OK;
}

int32_t wl_gpu_allocate_cache(wl_gpu_base *base, wl_queue_view *view, wl_error *error) {
    if (!view->cache_sets)
        return WL_OK;
    size_t words = wl_gpu_line_up(view->cache_sets * WL_WAYS * sizeof(uint64_t));
    size_t hands = wl_gpu_line_up(view->cache_sets * sizeof(uint32_t));
    size_t pages = view->cache_sets * WL_WAYS * view->block_bytes;
    if (wl_gpu_allocate(base, &view->cache_words, words + hands + pages, "the cache", error))
        return error->code;
    view->cache_hands = view->cache_words + words;
    view->cache_pages = view->cache_hands + hands;
    return WL_OK;
}

wl_cu_result wl_gpu_clear_cache(const wl_gpu_base *base, const wl_queue_view *view) {
    if (!view->cache_sets)
        return 0;
    return base->cuda->set(view->cache_words, 0, view->cache_pages - view->cache_words);
}

int32_t wl_gpu_map_queue(wl_gpu_base *base, const wl_queue *queue, wl_queue_view *view,
                         wl_error *error) {
    wl_cu_pointer memory = 0;
    if (wl_gpu_map_host(base, queue->memory, queue->memory_bytes, &memory, error))
        return error->code;
    view->requests = memory + (size_t)((uint8_t *)queue->requests - queue->memory);
    view->laps = memory + (size_t)((uint8_t *)(void *)queue->laps - queue->memory);
    view->completions = memory + (size_t)((uint8_t *)(void *)queue->completions - queue->memory);
    view->slots = memory + (size_t)(queue->slots - queue->memory);
    return WL_OK;
}

int32_t wl_gpu_launch(const wl_gpu_base *base, wl_cu_function kernel, uint64_t threads, void *view,
                      wl_error *error) {
    void *arguments[] = {view};
    uint32_t blocks = (uint32_t)((threads + WL_BLOCK_THREADS - 1) / WL_BLOCK_THREADS);
    wl_cu_result code = base->cuda->launch(kernel, blocks, 1, 1, WL_BLOCK_THREADS, 1, 1, 0,
                                           base->stream, arguments, NULL);
    return code ? wl_cuda_fail(error, code, "cuLaunchKernel") : WL_OK;
}

static int32_t open_streams(wl_gpu_base *base, wl_error *error) {
    wl_cu_result code = base->cuda->stream_create(&base->stream, WL_CU_STREAM_NON_BLOCKING);
    if (!code)
        code = base->cuda->stream_create(&base->side, WL_CU_STREAM_NON_BLOCKING);
    return code ? wl_cuda_fail(error, code, "cuStreamCreate") : WL_OK;
}

int32_t wl_gpu_enter(wl_gpu_base *base, wl_queue *queue, const wl_queue_setup *setup,
                     wl_error *error) {
    queue->gpu = base;
    const wl_cuda *cuda = base->cuda = wl_cuda_open(error);
    if (!cuda)
        return error->code;
    if (cuda->device_by_address(&base->device, setup->gpu))
        return wl_fail(error, WL_NO_GPU, NULL, WL_NOWHERE, "CUDA shows no GPU %s", setup->gpu);
    wl_cu_result code = cuda->context_retain(&base->context, base->device);
    if (code)
        return wl_cuda_fail(error, code, "cuDevicePrimaryCtxRetain");
    base->is_retained = true;
    if (wl_gpu_current(base, error))
        return error->code;
    code = cuda->module_load(&base->module, setup->image);
    return code ? wl_cuda_fail(error, code, "cuModuleLoadData") : open_streams(base, error);
}

void wl_gpu_leave(wl_gpu_base *base) {
    const wl_cuda *cuda = base->cuda;
    if (!base->is_retained)
        return;
    cuda->context_set(base->context);
    if (base->stream)
        cuda->stream_wait(base->stream);
    while (base->mapped_count)
        cuda->host_unregister(base->mapped[--base->mapped_count]);
    while (base->allocated_count)
        cuda->release(base->allocated[--base->allocated_count]);
    if (base->stream)
        cuda->stream_destroy(base->stream);
    if (base->side)
        cuda->stream_destroy(base->side);
    if (base->module)
        cuda->module_unload(base->module);
    cuda->context_release(base->device);
}

static int32_t load_kernels(wl_gpu_side *side, wl_error *error) {
    const wl_gpu_base *base = &side->base;
    if (wl_gpu_function(base, "random_read", &side->read, error) ||
        wl_gpu_function(base, "random_read_cached", &side->read_cached, error))
        return error->code;
    return wl_gpu_function(base, "random_pull", &side->pull, error);
}

/* A grid that is not wholly on the GPU would wait for requests of blocks that can't run. */
static int32_t check_grid(const wl_queue *queue, wl_error *error) {
    wl_gpu_side *side = side_of(queue);
    uint32_t multiprocessors;
    int32_t blocks = 0;
    if (wl_gpu_multiprocessors(&side->base, &multiprocessors, error))
        return error->code;
    wl_cu_result code = side->base.cuda->occupancy(
        &blocks, queue->view.cache_sets ? side->read_cached : side->read, WL_BLOCK_THREADS, 0);
    if (code)
        return wl_cuda_fail(error, code, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    uint64_t most = multiprocessors * (uint64_t)blocks * WL_BLOCK_THREADS;
    if (wl_slot_count(queue) <= most)
        return WL_OK;
    return wl_fail(error, WL_TOO_MANY, NULL, most, "%u requesters, and the GPU runs %llu at once",
                   wl_slot_count(queue), (unsigned long long)most);
}

static int32_t allocate(wl_queue *queue, wl_error *error) {
    wl_gpu_side *side = side_of(queue);
    side->heads_bytes = wl_gpu_line_up((size_t)queue->pair_count * WL_HEAD_STRIDE * sizeof(uint32_t));
    side->sources_bytes = wl_gpu_line_up(queue->target_count * sizeof(wl_source));
    side->counts_bytes = wl_gpu_line_up(queue->warps * sizeof(wl_warp_counts));
    side->latencies_bytes = wl_gpu_line_up(WL_BUCKETS * sizeof(uint64_t));
    size_t output_bytes = (size_t)wl_slot_count(queue) * queue->block_bytes;
    size_t bytes = side->heads_bytes + 256 + side->sources_bytes + side->counts_bytes +
                   side->latencies_bytes + output_bytes;
    if (wl_gpu_allocate(&side->base, &side->memory, bytes, "the requesters", error))
        return error->code;
    side->heads = side->memory;
    side->base.control = side->heads + side->heads_bytes;
    side->sources = side->base.control + 256;
    side->counts = side->sources + side->sources_bytes;
    side->latencies = side->counts + side->counts_bytes;
    side->output = side->latencies + side->latencies_bytes;
    return WL_OK;
}

/* As many sets as fit, a power of two. */
static uint64_t sets_of(uint64_t cache_bytes, uint32_t block_bytes) {
    uint64_t sets = cache_bytes / ((uint64_t)WL_WAYS * block_bytes);
    return sets ? (uint64_t)1 << (63 - wl_leading_zeros(sets)) : 0;
}

static int32_t open_gpu(wl_queue *queue, const wl_queue_setup *setup, wl_error *error) {
    wl_gpu_side *side = calloc(1, sizeof *side);
    if (!side)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "allocating requesters");
    queue->own = side;
    if (wl_gpu_enter(&side->base, queue, setup, error))
        return error->code;
    wl_queue_view *view = &queue->view;
    view->cache_sets = sets_of(setup->cache_bytes, queue->block_bytes);
    if (load_kernels(side, error) || check_grid(queue, error) || allocate(queue, error) ||
        wl_gpu_allocate_cache(&side->base, view, error) ||
        wl_gpu_map_queue(&side->base, queue, view, error) ||
        wl_gpu_map_host(&side->base, queue->table, queue->table_bytes, &side->table, error))
        return error->code;
    side->slots = view->slots;
    view->heads = side->heads;
    view->control = side->base.control;
    view->sources = side->sources;
    view->counts = side->counts;
    view->latencies = side->latencies;
    view->output = side->output;
    return WL_OK;
}

int32_t wl_gpu_control(wl_queue *queue, uint32_t word, wl_error *error) {
    const wl_gpu_base *base = queue->gpu;
    *queue->word = word;
    wl_cu_result code = base->cuda->copy_in(base->control, queue->word, sizeof word, base->side);
    if (!code)
        code = base->cuda->stream_wait(base->side);
    return code ? wl_cuda_fail(error, code, "writing the control word") : WL_OK;
}

static int32_t launch_gpu(wl_queue *queue, bool pulls, wl_error *error) {
    wl_gpu_side *side = side_of(queue);
    const wl_cuda *cuda = side->base.cuda;
    if (wl_gpu_current(&side->base, error))
        return error->code;
    wl_source *sources = calloc(queue->target_count, sizeof *sources);
    if (!sources)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "allocating sources");
    for (uint32_t i = 0; i < queue->target_count; i++)
        sources[i] = wl_source_of(queue, i);
    size_t bytes = side->heads_bytes + 256 + side->sources_bytes + side->counts_bytes +
                   side->latencies_bytes;
    wl_cu_result code = cuda->set(side->memory, 0, bytes);
    if (!code)
        code = wl_gpu_clear_cache(&side->base, &queue->view);
    if (!code)
        code = cuda->copy_in(side->sources, sources, queue->target_count * sizeof *sources, NULL);
    if (!code)
        code = cuda->stream_wait(NULL);
    free(sources);
    if (code)
        return wl_cuda_fail(error, code, "cuMemcpyHtoD");
    queue->view.slots = queue->delivery == WL_DELIVER_TABLE ? side->table : side->slots;
    if (wl_gpu_control(queue, WL_GO_ON, error))
        return error->code;
    bool is_cached = queue->view.cache_sets && queue->delivery != WL_DELIVER_NOTHING;
    wl_cu_function kernel = pulls ? side->pull : is_cached ? side->read_cached : side->read;
    return wl_gpu_launch(&side->base, kernel, wl_slot_count(queue), &queue->view, error);
}

int32_t wl_gpu_poll(wl_queue *queue, wl_error *error) {
    wl_cu_result code = queue->gpu->cuda->stream_query(queue->gpu->stream);
    if (code == WL_CU_NOT_READY)
        return 0;
    if (!code)
        return 1;
    wl_cuda_fail(error, code, "the kernel");
    return -1;
}

static int32_t collect_gpu(wl_queue *queue, wl_warp_counts *warps, uint64_t *counts,
                           wl_error *error) {
    wl_gpu_side *side = side_of(queue);
    uint64_t sampled[WL_BUCKETS];
    wl_cu_result code =
        side->base.cuda->copy_out(warps, side->counts, queue->warps * sizeof *warps);
    if (!code)
        code = side->base.cuda->copy_out(sampled, side->latencies, sizeof sampled);
    if (code)
        return wl_cuda_fail(error, code, "cuMemcpyDtoH");
    for (uint32_t i = 0; i < WL_BUCKETS; i++)
        counts[i] += sampled[i];
    return WL_OK;
}

static int32_t output_gpu(wl_queue *queue, uint32_t slot, uint8_t *block, wl_error *error) {
    wl_gpu_side *side = side_of(queue);
    wl_cu_pointer from = side->output + (uint64_t)slot * queue->block_bytes;
    wl_cu_result code = side->base.cuda->copy_out(block, from, queue->block_bytes);
    return code ? wl_cuda_fail(error, code, "cuMemcpyDtoH") : WL_OK;
}

static void close_gpu(wl_queue *queue) {
    wl_gpu_side *side = side_of(queue);
    if (!side)
        return;
    wl_gpu_leave(&side->base);
    free(side);
}

const wl_requesters wl_gpu_requesters = {.open = open_gpu,
                                         .launch = launch_gpu,
                                         .control = wl_gpu_control,
                                         .poll = wl_gpu_poll,
                                         .collect = collect_gpu,
                                         .output = output_gpu,
                                         .close = close_gpu};
