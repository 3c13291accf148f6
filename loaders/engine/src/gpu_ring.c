/* The best path through host memory that we know: pollers with one io_uring each, pinned slots that
 * both the driver and the kernel have registered, and copies of many slots together.
 *
 * Completed slots that are neighbours become one copy, and all copies that begin together one batch
 * with one event, so that calls of the driver are paid once for many reads. A slot is free, and its
 * read has ended, when the event of its batch is done. While a batch is on its way, the next
 * completions are collected. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "gpu_reads.h"
#include "uring.h"

enum { BATCHES = 4, ENTRY_LIMIT = 4096 };

typedef struct {
    wl_cu_event event;
    uint32_t *slots;
    uint32_t count;
} batch;

typedef struct {
    wl_ring ring;
    uint32_t inflight;  /* in the kernel */
    uint32_t queued;    /* entries that it has not taken yet */
    uint8_t *completed; /* per slot: whether its bytes are in host memory */
    batch batches[BATCHES];
    uint32_t first, batch_count; /* on their way, the oldest first */
} gpu_ring;

/* Slot i becomes buffer i: the kernel then does not look up the memory of each read. */
static bool register_slots(const wl_worker *worker, const gpu_ring *own) {
    uint32_t block = worker->reads->block_bytes;
    struct iovec *pieces = calloc(worker->slot_count, sizeof *pieces);
    if (!pieces)
        return false;
    for (uint32_t i = 0; i < worker->slot_count; i++)
        pieces[i] = (struct iovec){.iov_base = worker->slots[i].host, .iov_len = block};
    int code = wl_ring_register(&own->ring, WL_REG_BUFFERS, pieces, worker->slot_count);
    free(pieces);
    return !code;
}

static int32_t open_batches(wl_worker *worker, gpu_ring *own, wl_error *error) {
    const wl_cuda *cuda = worker->reads->cuda;
    for (uint32_t i = 0; i < BATCHES; i++) {
        wl_cu_result code = cuda->event_create(&own->batches[i].event, WL_CU_EVENT_DISABLE_TIMING);
        if (code)
            return wl_cuda_fail(error, code, "cuEventCreate");
        own->batches[i].slots = calloc(worker->slot_count, sizeof *own->batches[i].slots);
        if (!own->batches[i].slots)
            return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating a batch");
    }
    return WL_OK;
}

static int32_t begin_ring(wl_worker *worker, wl_error *error) {
    if (worker->slot_count > ENTRY_LIMIT)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE,
                       "a poller has %u readers, and at most %d fit in a ring", worker->slot_count,
                       ENTRY_LIMIT);
    gpu_ring *own = calloc(1, sizeof *own);
    if (!own)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating a ring");
    own->ring.fd = -1;
    worker->ring = own;
    own->completed = calloc(worker->slot_count, sizeof *own->completed);
    if (!own->completed)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating a ring");
    int code = wl_ring_open(&own->ring, worker->slot_count);
    if (code)
        return wl_fail(error, WL_UNAVAILABLE, NULL, WL_NOWHERE, "io_uring_setup failed: %s",
                       strerror(-code));
    if (!register_slots(worker, own))
        return wl_fail(error, WL_UNAVAILABLE, NULL, WL_NOWHERE,
                       "io_uring does not register %u buffers of %u bytes: RLIMIT_MEMLOCK",
                       worker->slot_count, worker->reads->block_bytes);
    wl_cu_result refused =
        worker->reads->cuda->stream_create(&worker->stream, WL_CU_STREAM_NON_BLOCKING);
    if (refused)
        return wl_cuda_fail(error, refused, "cuStreamCreate");
    return open_batches(worker, own, error);
}

static void end_ring(wl_worker *worker) {
    const wl_cuda *cuda = worker->reads->cuda;
    gpu_ring *own = worker->ring;
    if (!own)
        return;
    for (uint32_t i = 0; i < BATCHES; i++) {
        if (own->batches[i].event)
            cuda->event_destroy(own->batches[i].event);
        free(own->batches[i].slots);
    }
    if (worker->stream)
        cuda->stream_destroy(worker->stream);
    wl_ring_close(&own->ring);
    free(own->completed);
    free(own);
}

static void queue(wl_worker *worker, gpu_ring *own, uint32_t index) {
    wl_read_slot *slot = &worker->slots[index];
    uint32_t tail = atomic_load_explicit(own->ring.sq_tail, memory_order_relaxed);
    wl_slot_next(worker, slot);
    slot->start_ns = wl_now_ns();
    own->ring.sqes[tail & own->ring.sq_mask] = (wl_sqe){
        .opcode = WL_URING_READ_FIXED,
        .fd = slot->file->fd,
        .off = slot->offset,
        .addr = (uint64_t)(uintptr_t)slot->host,
        .len = worker->reads->block_bytes,
        .buf_index = (uint16_t)index,
        .user_data = index,
    };
    atomic_store_explicit(own->ring.sq_tail, tail + 1, memory_order_release);
    own->queued++;
}

/* The slot's read has ended; it begins the next one while there is time. */
static void end_slot(wl_worker *worker, gpu_ring *own, uint32_t index, int32_t code,
                     uint64_t now_ns, bool is_timed) {
    wl_slot_ended(worker, &worker->slots[index], code, now_ns, is_timed);
    if (is_timed && wl_reads_go_on(worker->reads, now_ns))
        queue(worker, own, index);
}

static void fail(wl_worker *worker, const char *call, int code) {
    wl_error error;
    wl_fail(&error, -code, NULL, WL_NOWHERE, "%s", call);
    wl_reads_halt(worker->reads, &error);
}

/* Hands over what is queued, and waits for a completion if `wait` is 1. A kernel that takes no
 * entries for a while is asked again. */
static void hand_over(wl_worker *worker, gpu_ring *own, uint32_t wait) {
    int taken = wl_ring_enter(&own->ring, own->queued, wait, WL_NO_TIMEOUT);
    if (taken >= 0) {
        own->queued -= (uint32_t)taken;
        own->inflight += (uint32_t)taken;
    } else if (taken != -EINTR && taken != -EAGAIN && taken != -EBUSY) {
        /* Nothing in flight will be reported any more. */
        fail(worker, "io_uring_enter", taken);
        own->queued = own->inflight = 0;
    }
}

/* Marks the slots whose reads have completed; returns their number. */
static uint32_t reap(wl_worker *worker, gpu_ring *own, bool is_timed) {
    uint32_t head = atomic_load_explicit(own->ring.cq_head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(own->ring.cq_tail, memory_order_acquire);
    uint32_t count = 0, block = worker->reads->block_bytes;
    for (; head != tail; head++) {
        const wl_cqe *cqe = &own->ring.cqes[head & own->ring.cq_mask];
        uint32_t index = (uint32_t)cqe->user_data;
        own->inflight--;
        if (cqe->res == (int32_t)block) {
            own->completed[index] = 1;
            count++;
        } else {
            end_slot(worker, own, index, cqe->res < 0 ? -cqe->res : WL_SHORT_READ, wl_now_ns(),
                     is_timed);
        }
    }
    atomic_store_explicit(own->ring.cq_head, head, memory_order_release);
    return count;
}

/* The number of neighbours from `first` on that have completed. */
static uint32_t run_length(const wl_worker *worker, const gpu_ring *own, uint32_t first) {
    uint32_t end = first;
    while (end < worker->slot_count && own->completed[end])
        end++;
    return end - first;
}

static bool copy_run(wl_worker *worker, gpu_ring *own, batch *into, uint32_t first,
                     uint32_t count) {
    size_t bytes = (size_t)count * worker->reads->block_bytes;
    const wl_read_slot *slot = &worker->slots[first];
    wl_cu_result code =
        worker->reads->cuda->copy_in(slot->memory, slot->host, bytes, worker->stream);
    if (code) {
        wl_reads_halt_by_cuda(worker->reads, code, "cuMemcpyHtoDAsync");
        return false;
    }
    worker->pinned_copies++;
    worker->pinned_bytes += bytes;
    for (uint32_t i = first; i < first + count; i++) {
        own->completed[i] = 0;
        into->slots[into->count++] = i;
    }
    return true;
}

static void begin_batch(wl_worker *worker, gpu_ring *own) {
    batch *new = &own->batches[(own->first + own->batch_count) % BATCHES];
    new->count = 0;
    for (uint32_t i = 0, count; i < worker->slot_count; i += count ? count : 1) {
        count = run_length(worker, own, i);
        if (count && !copy_run(worker, own, new, i, count))
            return;
    }
    wl_cu_result code = worker->reads->cuda->event_record(new->event, worker->stream);
    if (code)
        wl_reads_halt_by_cuda(worker->reads, code, "cuEventRecord");
    else
        own->batch_count++;
}

/* Ends the oldest batch if it is done, or with `wait` when it is; false if it is not. */
static bool end_batch(wl_worker *worker, gpu_ring *own, bool wait, bool is_timed) {
    const wl_cuda *cuda = worker->reads->cuda;
    batch *oldest = &own->batches[own->first];
    wl_cu_result code =
        wait ? cuda->event_wait(oldest->event) : cuda->event_query(oldest->event);
    if (code == WL_CU_NOT_READY)
        return false;
    own->first = (own->first + 1) % BATCHES;
    own->batch_count--;
    if (code) {
        wl_reads_halt_by_cuda(worker->reads, code, "a copy to the GPU");
        return true;
    }
    uint64_t now_ns = wl_now_ns();
    for (uint32_t i = 0; i < oldest->count; i++)
        end_slot(worker, own, oldest->slots[i], 0, now_ns, is_timed);
    return true;
}

/* Sleeps in the kernel only while no copy is on its way: a copy is done before the next read. */
static void read_ring(wl_worker *worker, bool is_timed) {
    gpu_ring *own = worker->ring;
    memset(own->completed, 0, worker->slot_count);
    own->first = own->batch_count = 0;
    for (uint32_t i = 0; i < worker->slot_count; i++)
        queue(worker, own, i);
    while (own->queued || own->inflight || own->batch_count) {
        if (own->queued || own->inflight)
            hand_over(worker, own, !own->batch_count);
        uint32_t count = reap(worker, own, is_timed);
        if (count && !wl_reads_is_halted(worker->reads))
            begin_batch(worker, own);
        bool wait = !count || own->batch_count == BATCHES;
        while (own->batch_count && end_batch(worker, own, wait, is_timed))
            wait = false;
    }
}

const wl_way wl_way_ring = {
    .needs_host = true, .has_pollers = true, .begin = begin_ring, .read = read_ring,
    .end = end_ring};
