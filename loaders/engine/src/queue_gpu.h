/* A GPU as requesters of a queue use it: its primary context, kernels, streams, control word. */
#ifndef WL_QUEUE_GPU_H
#define WL_QUEUE_GPU_H

#include "cuda.h"
#include "queue.h"

/* Threads of a block. Four warps fill the schedulers of a multiprocessor evenly. */
enum { WL_BLOCK_THREADS = 128 };

/* Ranges of host memory that requesters map, and allocations that they make, at most. */
enum { WL_GPU_MAPPINGS = 3, WL_GPU_ALLOCATIONS = 2 };

typedef struct wl_gpu_base {
    const wl_cuda *cuda;
    wl_cu_device device;
    wl_cu_context context;
    bool is_retained;
    wl_cu_module module;
    wl_cu_stream stream, side; /* of the kernels, and of the control word beside them */
    wl_cu_pointer control;     /* set by whoever allocates it */
    void *mapped[WL_GPU_MAPPINGS];
    wl_cu_pointer allocated[WL_GPU_ALLOCATIONS];
    uint32_t mapped_count, allocated_count;
} wl_gpu_base;

/* Loads the kernels of `image` into the primary context, current for this thread from then on.
 * Other work of the process waits for neither stream. */
int32_t wl_gpu_enter(wl_gpu_base *base, wl_queue *queue, const wl_queue_setup *setup,
                     wl_error *error);
/* Waits for the kernels, and releases all that has been entered, mapped and allocated. */
void wl_gpu_leave(wl_gpu_base *base);
/* Makes its context that of this thread from then on. */
int32_t wl_gpu_current(const wl_gpu_base *base, wl_error *error);
int32_t wl_gpu_multiprocessors(const wl_gpu_base *base, uint32_t *count, wl_error *error);
int32_t wl_gpu_function(const wl_gpu_base *base, const char *name, wl_cu_function *function,
                        wl_error *error);
/* WL_GPU_MEMORY with the bytes, for `what`, if the GPU has no room. */
int32_t wl_gpu_allocate(wl_gpu_base *base, wl_cu_pointer *memory, size_t bytes,
                        const char *what, wl_error *error);
/* A cache of `view->cache_sets` sets of blocks. */
int32_t wl_gpu_allocate_cache(wl_gpu_base *base, wl_queue_view *view, wl_error *error);
/* Empties it, if there is one. */
wl_cu_result wl_gpu_clear_cache(const wl_gpu_base *base, const wl_queue_view *view);
/* Maps the queue's memory, and puts its addresses into a view. */
int32_t wl_gpu_map_queue(wl_gpu_base *base, const wl_queue *queue, wl_queue_view *view,
                         wl_error *error);
/* Starts a kernel on a view of any kind, by so many threads. */
int32_t wl_gpu_launch(const wl_gpu_base *base, wl_cu_function kernel, uint64_t threads, void *view,
                      wl_error *error);
/* Pins memory of the host; WL_NOT_PINNED with its bytes if the driver refuses. */
int32_t wl_gpu_map_host(wl_gpu_base *base, void *memory, size_t bytes, wl_cu_pointer *address,
                        wl_error *error);
/* As wl_requesters says. */
int32_t wl_gpu_control(wl_queue *queue, uint32_t word, wl_error *error);
int32_t wl_gpu_poll(wl_queue *queue, wl_error *error);
static inline size_t wl_gpu_line_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

#endif
