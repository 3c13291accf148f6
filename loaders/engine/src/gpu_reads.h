/* Types shared by the ways into GPU memory.
 *
 * Who may touch what: a worker's slots and figures belong to its thread; what is atomic may be read
 * at any time, the rest once the workers have arrived at the next stage. */
#ifndef WL_GPU_READS_H
#define WL_GPU_READS_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "cufile.h"
#include "histogram.h"

enum { WL_CACHE_LINE = 64 };

typedef struct wl_worker wl_worker;

typedef struct {
    int fd;
    uint64_t blocks;
    uint64_t nonce, word, first_block;
    wl_cufile_handle handle;
    bool is_registered;
} wl_read_file;

/* A GPU with the memory of its slots: slot i begins at i x block_bytes of both. */
typedef struct {
    cpu_set_t cpus; /* empty: any */
    wl_cu_device device;
    wl_cu_context context;
    bool is_retained;
    wl_cu_pointer memory;
    uint8_t *host; /* NULL for ways that need none */
    bool is_host_registered;
    uint32_t slot_count;
    pthread_mutex_t checking; /* of `checked` */
    uint8_t *checked;         /* a block that was copied back */
} wl_read_gpu;

/* One reader: the place of its one read in flight. Threads of neighbours share no cache line. */
typedef struct {
    _Alignas(WL_CACHE_LINE) wl_read_file *file;
    uint8_t *host;
    wl_cu_pointer memory;
    uint64_t stream; /* of its random numbers */
    uint64_t next;   /* number of its next read */
    uint64_t offset; /* of the last one */
    uint64_t start_ns;
    uint64_t operations; /* timed ones that ended in time */
    bool is_delivered;   /* the last read succeeded, and is not compared yet */
} wl_read_slot;

/* The thread of one reader, or a poller for several. */
struct wl_worker {
    wl_gpu_reads *reads;
    wl_read_gpu *gpu;
    pthread_t thread;
    wl_read_slot *slots;
    uint32_t slot_count;
    wl_cu_stream stream; /* NULL: the default one */
    bool is_buffer_registered;
    void *ring;

    uint64_t pinned_copies, pinned_bytes, compared_bytes, bad_blocks;
    _Atomic uint64_t operations, succeeded, failed; /* in time; and of all reads */
    uint64_t cut_ns;
    wl_latencies latencies;
};

/* A way of the bytes. All of it runs on the worker's own thread, with the GPU's context. */
typedef struct {
    bool needs_host; /* pinned buffers of ours */
    bool has_pollers;
    bool needs_cufile;
    int32_t (*begin)(wl_worker *worker, wl_error *error);
    /* Reads until the deadline, or with `is_timed` false once for each slot. */
    void (*read)(wl_worker *worker, bool is_timed);
    void (*end)(wl_worker *worker);
} wl_way;

extern const wl_way wl_way_bounce, wl_way_ring, wl_way_cufile;

enum { WL_READY, WL_CHECKING, WL_CHECKED, WL_TIMED, WL_OVERTIME, WL_DONE };

struct wl_gpu_reads {
    const wl_way *way;
    const wl_cuda *cuda;
    const wl_cufile *cufile;
    bool is_driver_open, is_counting;
    uint32_t block_bytes, checked_reads, pollers;
    uint64_t duration_ns, seed;
    wl_read_file *files;
    uint32_t file_count;
    wl_read_gpu *gpus;
    uint32_t gpu_count;
    wl_read_slot *slots;
    uint32_t slot_count;
    wl_worker *workers;
    uint32_t worker_count, thread_count;

    uint64_t start_ns, deadline_ns; /* set before the workers enter WL_TIMED */
    _Atomic uint32_t stage;
    _Atomic bool is_halted;         /* by an error: nothing more is read */

    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t changed;
    uint32_t opened;       /* the stage that workers may enter */
    uint32_t arrived;      /* workers that wait for a later one */
    bool is_started; /* by wl_gpu_start */
    bool is_closing;
    uint64_t halted_ns;
    wl_error error;
    wl_gpu_failure failures[WL_FAILURES];
};

/* Draws the slot's next block. */
void wl_slot_next(wl_worker *worker, wl_read_slot *slot);
/* A read of a slot has ended: counts it. `code` is as in wl_gpu_failure, 0 if it succeeded. */
void wl_slot_ended(wl_worker *worker, wl_read_slot *slot, int32_t code, uint64_t end_ns,
                   bool is_timed);
/* An error ends the reads of all workers. */
void wl_reads_halt(wl_gpu_reads *reads, const wl_error *error);
void wl_reads_halt_by_cuda(wl_gpu_reads *reads, wl_cu_result code, const char *call);

static inline bool wl_reads_is_halted(wl_gpu_reads *reads) {
    return atomic_load_explicit(&reads->is_halted, memory_order_relaxed);
}

static inline bool wl_reads_go_on(wl_gpu_reads *reads, uint64_t now_ns) {
    return now_ns < reads->deadline_ns && !wl_reads_is_halted(reads);
}

#endif
