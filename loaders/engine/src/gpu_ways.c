/* The ways with one synchronous read in flight per thread: through a pinned buffer, and cuFile's. */
#include <errno.h>
#include <unistd.h>

#include "engine.h"
#include "gpu_reads.h"

typedef int32_t read_one(wl_worker *worker, wl_read_slot *slot);

static int32_t outcome(ssize_t got, uint32_t block_bytes) {
    if (got < 0)
        return errno;
    return (uint32_t)got == block_bytes ? 0 : WL_SHORT_READ;
}

static inline uint64_t read_slot(wl_worker *worker, wl_read_slot *slot, read_one *one,
                                 bool is_timed) {
    wl_slot_next(worker, slot);
    slot->start_ns = wl_now_ns();
    int32_t code = one(worker, slot);
    uint64_t end_ns = wl_now_ns();
    wl_slot_ended(worker, slot, code, end_ns, is_timed);
    return end_ns;
}

static inline void read_all(wl_worker *worker, read_one *one, bool is_timed) {
    wl_read_slot *slot = worker->slots;
    if (!is_timed) {
        read_slot(worker, slot, one, false);
        return;
    }
    uint64_t now_ns = wl_now_ns();
    while (wl_reads_go_on(worker->reads, now_ns))
        now_ns = read_slot(worker, slot, one, true);
}

static int32_t bounce_one(wl_worker *worker, wl_read_slot *slot) {
    wl_gpu_reads *reads = worker->reads;
    uint32_t bytes = reads->block_bytes;
    int32_t code = outcome(pread(slot->file->fd, slot->host, bytes, (off_t)slot->offset), bytes);
    if (code)
        return code;
    wl_cu_result refused = reads->cuda->copy_in(slot->memory, slot->host, bytes, worker->stream);
    if (!refused) {
        worker->pinned_copies++;
        worker->pinned_bytes += bytes;
        refused = reads->cuda->stream_wait(worker->stream);
    }
    if (!refused)
        return 0;
    wl_reads_halt_by_cuda(reads, refused, "a copy to the GPU");
    return EIO;
}

static int32_t begin_bounce(wl_worker *worker, wl_error *error) {
    wl_cu_result code =
        worker->reads->cuda->stream_create(&worker->stream, WL_CU_STREAM_NON_BLOCKING);
    return code ? wl_cuda_fail(error, code, "cuStreamCreate") : WL_OK;
}

static void read_bounce(wl_worker *worker, bool is_timed) {
    read_all(worker, bounce_one, is_timed);
}

static void end_bounce(wl_worker *worker) {
    if (worker->stream)
        worker->reads->cuda->stream_destroy(worker->stream);
}

/* A failed cuFileRead returns -1 and sets errno, or returns a negated code; either may be the
 * kernel's or cuFile's own (seen in 1.15: -1 with errno 5017 or 5027). */
static int32_t cufile_one(wl_worker *worker, wl_read_slot *slot) {
    uint32_t bytes = worker->reads->block_bytes;
    void *memory = (void *)(uintptr_t)slot->memory;
    errno = 0; /* cuFile may fail without setting it */
    ssize_t got = worker->reads->cufile->read(slot->file->handle, memory, bytes,
                                              (off_t)slot->offset, 0);
    if (got >= 0)
        return outcome(got, bytes);
    int32_t code = got == -1 ? errno : (int32_t)-got;
    if (!code)
        return EIO;
    return code > WL_CUFILE_BASE ? -code : code;
}

/* One at a time, as applications register them: 5 ms each with cuFile 1.15, 2048 in 12 s. */
static int32_t begin_cufile(wl_worker *worker, wl_error *error) {
    static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;
    wl_gpu_reads *reads = worker->reads;
    const void *memory = (const void *)(uintptr_t)worker->slots->memory;
    pthread_mutex_lock(&registering);
    wl_cufile_result result = reads->cufile->buffer_register(memory, reads->block_bytes, 0);
    pthread_mutex_unlock(&registering);
    if (result.code)
        return wl_cufile_fail(error, result, NULL, "cuFileBufRegister");
    worker->is_buffer_registered = true;
    return WL_OK;
}

static void read_cufile(wl_worker *worker, bool is_timed) {
    read_all(worker, cufile_one, is_timed);
}

static void end_cufile(wl_worker *worker) {
    const void *memory = (const void *)(uintptr_t)worker->slots->memory;
    if (worker->is_buffer_registered)
        worker->reads->cufile->buffer_deregister(memory);
}

const wl_way wl_way_bounce = {
    .needs_host = true, .begin = begin_bounce, .read = read_bounce, .end = end_bounce};
const wl_way wl_way_cufile = {
    .needs_cufile = true, .begin = begin_cufile, .read = read_cufile, .end = end_cufile};
