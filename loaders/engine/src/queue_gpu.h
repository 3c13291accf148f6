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
/* Pins memory of the host; WL_NOT_PINNED with its bytes if the driver refuses. */
int32_t wl_gpu_map_host(const wl_gpu_base *base, void *memory, size_t bytes, bool *is_mapped,
                        wl_cu_pointer *address, wl_error *error);
int32_t wl_gpu_write_word(const wl_gpu_base *base, wl_queue *queue, uint32_t word,
                          wl_error *error);
/* 1 when the kernels have returned, 0 before, -1 on an error. */
int32_t wl_gpu_poll(const wl_gpu_base *base, wl_error *error);
static inline size_t wl_gpu_line_up(size_t bytes) { return (bytes + 255) / 256 * 256; }

#endif
