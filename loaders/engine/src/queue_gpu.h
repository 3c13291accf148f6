/* A GPU as requesters of a queue use it: its primary context, kernels, streams, control word. */
#ifndef WL_QUEUE_GPU_H
#define WL_QUEUE_GPU_H

#include "cuda.h"
#include "queue.h"

/* Threads of a block. Four warps fill the schedulers of a multiprocessor evenly. */
enum { WL_BLOCK_THREADS = 128 };

typedef struct {
    const wl_cuda *cuda;
    wl_cu_device device;
    wl_cu_context context;
    bool is_retained;
    wl_cu_module module;
    wl_cu_stream stream, side; /* of the kernels, and of the control word beside them */
    wl_cu_pointer control;     /* set by whoever allocates it */
} wl_gpu_base;

/* Loads the kernels of `image` into the primary context, current for this thread from then on.
 * Other work of the process waits for neither stream. */
int32_t wl_gpu_enter(wl_gpu_base *base, const char *address, const void *image, wl_error *error);
/* Releases what has been entered; nothing may use it any more. */
void wl_gpu_leave(wl_gpu_base *base);
int32_t wl_gpu_function(const wl_gpu_base *base, const char *name, wl_cu_function *function,
                        wl_error *error);
/* WL_GPU_MEMORY with the bytes, for `what`, if the GPU has no room. */
int32_t wl_gpu_allocate(const wl_gpu_base *base, wl_cu_pointer *memory, size_t bytes,
                        const char *what, wl_error *error);
/* A cache of `view->cache_sets` sets of blocks, whose words and hands have `state_bytes` and are to be
 * zeroed. */
int32_t wl_gpu_allocate_cache(const wl_gpu_base *base, wl_queue_view *view, wl_cu_pointer *cache,
                              size_t *state_bytes, wl_error *error);
/* Maps the queue's memory, and puts its addresses into a view. */
int32_t wl_gpu_map_queue(const wl_gpu_base *base, const wl_queue *queue, wl_queue_view *view,
                         bool *is_mapped, wl_error *error);
/* Starts a kernel on a view of any kind, by so many threads. */
int32_t wl_gpu_launch(const wl_gpu_base *base, wl_cu_function kernel, uint64_t threads, void *view,
                      wl_error *error);
/* Pins memory of the host; WL_NOT_PINNED with its bytes if the driver refuses. */
int32_t wl_gpu_map_host(const wl_gpu_base *base, void *memory, size_t bytes, bool *is_mapped,
                        wl_cu_pointer *address, wl_error *error);
int32_t wl_gpu_write_word(const wl_gpu_base *base, wl_queue *queue, uint32_t word,
                          wl_error *error);
/* 1 when the kernels have returned, 0 before, -1 on an error. */
int32_t wl_gpu_poll(const wl_gpu_base *base, wl_error *error);
static inline size_t wl_gpu_line_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

#endif
