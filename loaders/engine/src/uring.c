/* The io_uring backend: operations become entries of a ring, completions come back from it. */
#include "uring.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REFUSAL_LIMIT = 1000, REFUSAL_NAP_NS = 1000000 };

static int sysctl_value(void) {
    int value = 0;
    FILE *file = fopen("/proc/sys/kernel/io_uring_disabled", "re");
    if (file && fscanf(file, "%d", &value) != 1)
        value = 0;
    if (file)
        fclose(file);
    return value;
}

static int32_t refuse(wl_error *error, int code) {
    int disabled = sysctl_value();
    if (code == EPERM && disabled)
        return wl_fail(error, WL_UNAVAILABLE, NULL, WL_NOWHERE,
                       "io_uring is switched off by sysctl kernel.io_uring_disabled=%d", disabled);
    const char *reason = code == EPERM    ? ", as under the seccomp filter of a container"
                         : code == ENOMEM ? ", as where RLIMIT_MEMLOCK is too small for a ring"
                         : code == ENOSYS ? ", as under a seccomp filter or a kernel before 5.6"
                                          : "";
    return wl_fail(error, WL_UNAVAILABLE, NULL, WL_NOWHERE, "io_uring_setup failed: %s%s",
                   strerror(code), reason);
}

static bool supports(const wl_probe *probe, uint8_t op) {
    return op <= probe->last_op && probe->ops[op].flags & WL_PROBE_SUPPORTED;
}

static int32_t probe_uring(wl_error *error) {
    wl_ring ring;
    wl_probe probe;
    int code = wl_ring_open(&ring, 1);
    if (code)
        return refuse(error, -code);
    memset(&probe, 0, sizeof probe);
    code = wl_ring_register(&ring, WL_REG_PROBE, &probe, WL_PROBE_OPS);
    wl_ring_close(&ring);
    if (code || !supports(&probe, WL_URING_READ) || !supports(&probe, WL_URING_WRITE) ||
        !supports(&probe, WL_URING_FSYNC))
        return wl_fail(error, WL_UNAVAILABLE, NULL, WL_NOWHERE,
                       "this kernel's io_uring has no READ and WRITE (Linux 5.6)");
    return wl_fail(error, WL_OK, NULL, WL_NOWHERE, "%s", "");
}

static int32_t open_uring(wl_poller *poller, wl_error *error) {
    wl_ring *ring = malloc(sizeof *ring);
    if (!ring)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "out of memory for a ring");
    int code = wl_ring_open(ring, poller->depth);
    if (code) {
        free(ring);
        return refuse(error, -code);
    }
    poller->backend = ring;
    poller->facts.ring_flags = ring->params.flags;
    wl_ring_register_all(poller, ring);
    return WL_OK;
}

static void close_uring(wl_poller *poller) {
    wl_ring *ring = poller->backend;
    if (!ring)
        return;
    wl_ring_close(ring);
    free(ring->regions);
    free(ring);
    poller->backend = NULL;
}

static void fill(wl_ring *ring, wl_sqe *sqe, const wl_op *op, uint32_t index) {
    int32_t place = op->kind == WL_OP_SYNC ? -1 : wl_ring_file(ring, op);
    *sqe = (wl_sqe){
        .flags = place < 0 ? 0 : WL_SQE_FIXED_FILE,
        .fd = place < 0 ? atomic_load_explicit(&op->file->fd, memory_order_acquire) : place,
        .user_data = index,
    };
    if (op->kind == WL_OP_SYNC) {
        sqe->opcode = WL_URING_FSYNC;
        return;
    }
    int32_t piece = wl_ring_piece(ring, op);
    sqe->opcode = op->kind == WL_READ ? WL_URING_READ : WL_URING_WRITE;
    if (piece >= 0) {
        sqe->opcode = op->kind == WL_READ ? WL_URING_READ_FIXED : WL_URING_WRITE_FIXED;
        sqe->buf_index = (uint16_t)piece;
    }
    sqe->addr = (uint64_t)(uintptr_t)(op->memory + op->moved);
    sqe->len = op->requested - op->moved;
    sqe->off = op->offset + op->moved;
}

static uint32_t reap(wl_poller *poller, wl_ring *ring, uint32_t count) {
    uint32_t head = atomic_load_explicit(ring->cq_head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(ring->cq_tail, memory_order_acquire);
    for (; head != tail && count < poller->depth; head++) {
        const wl_cqe *cqe = &ring->cqes[head & ring->cq_mask];
        poller->done[count++] = (wl_done){.op = (uint32_t)cqe->user_data, .result = cqe->res};
    }
    atomic_store_explicit(ring->cq_head, head, memory_order_release);
    return count;
}

/* The kernel takes no more entries, for a reason that will stay: they fail. */
static uint32_t fail_rest(wl_poller *poller, wl_ring *ring, uint32_t count, int code) {
    uint32_t tail = atomic_load_explicit(ring->sq_tail, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        const wl_sqe *sqe = &ring->sqes[(tail - count + i) & ring->sq_mask];
        poller->done[i] = (wl_done){.op = (uint32_t)sqe->user_data, .result = code};
        poller->ops[sqe->user_data].retries = UINT16_MAX;
    }
    atomic_store_explicit(ring->sq_tail, tail - count, memory_order_release);
    return count;
}

/* Makes entries of what is queued; returns how many the kernel has not taken yet, with those that a
 * push could not submit. */
static uint32_t fill_queue(wl_poller *poller, wl_ring *ring) {
    uint32_t tail = atomic_load_explicit(ring->sq_tail, memory_order_relaxed);
    for (uint32_t i = 0; i < poller->queued_count; i++, tail++) {
        uint32_t index = poller->queued[i];
        fill(ring, &ring->sqes[tail & ring->sq_mask], &poller->ops[index], index);
    }
    poller->queued_count = 0;
    atomic_store_explicit(ring->sq_tail, tail, memory_order_release);
    return tail - atomic_load_explicit(ring->sq_head, memory_order_acquire);
}

static void push_uring(wl_poller *poller) {
    wl_ring *ring = poller->backend;
    uint32_t count = fill_queue(poller, ring);
    if (count && !ring->given_up)
        wl_ring_submit(ring, count);
}

/* Fails all operations of the poller: the ring no longer reports their outcome. */
static uint32_t fail_all(wl_poller *poller, wl_ring *ring, int code) {
    uint32_t count = 0;
    ring->given_up = code;
    poller->queued_count = 0;
    for (uint32_t i = 0; i < poller->depth; i++) {
        bool is_used = !(poller->is_holding && poller->held == i);
        for (uint32_t k = 0; is_used && k < poller->free_count; k++)
            is_used = poller->free_ops[k] != i;
        if (!is_used)
            continue;
        poller->ops[i].retries = UINT16_MAX;
        poller->done[count++] = (wl_done){.op = i, .result = code};
    }
    return count;
}

/* The kernel refused a call. What may pass is tried again, for a second if nothing in flight could
 * end it; what stays fails the operations. An error of a call that only waits has no operation to
 * blame: should it stay, the ring is given up. */
static uint32_t refused(wl_poller *poller, wl_ring *ring, uint32_t left, int code) {
    uint32_t count = reap(poller, ring, 0);
    uint32_t busy = poller->inflight - left - (poller->is_holding ? 1u : 0u);
    bool may_pass = !left || code == -EINTR || code == -EAGAIN || code == -EBUSY;
    if (count || code == -EINTR || (code == -ETIME && !left)) {
        ring->refusals = 0;
        return count;
    }
    if (may_pass && ((left && busy) || ring->refusals++ < REFUSAL_LIMIT)) {
        nanosleep(&(struct timespec){.tv_nsec = REFUSAL_NAP_NS}, NULL);
        return 0;
    }
    ring->refusals = 0;
    return left ? fail_rest(poller, ring, left, code) : fail_all(poller, ring, code);
}

static uint32_t enter_uring(wl_poller *poller, uint32_t wait, uint64_t timeout_ns) {
    wl_ring *ring = poller->backend;
    if (ring->given_up)
        return fail_all(poller, ring, ring->given_up);
    uint32_t left = fill_queue(poller, ring);
    if (atomic_load_explicit(ring->cq_tail, memory_order_acquire) !=
        atomic_load_explicit(ring->cq_head, memory_order_relaxed))
        wait = 0;
    int taken = wl_ring_enter(ring, left, wait, timeout_ns);
    if (taken < 0)
        return refused(poller, ring, left, taken);
    ring->refusals = 0;
    return reap(poller, ring, 0); /* what was not taken is handed over with the next ones */
}

static void forget_uring(wl_poller *poller, wl_job *job) {
    wl_ring *ring = poller->backend;
    if (ring->fixes_files)
        wl_ring_forget(ring, job);
}

const wl_backend_ops wl_backend_uring = {
    .info = {.name = "io_uring", .flags = WL_B_FIXED_BUFFERS | WL_B_FIXED_FILES},
    .has_workers = 1,
    .probe = probe_uring,
    .open = open_uring,
    .enter = enter_uring,
    .push = push_uring,
    .forget = forget_uring,
    .close = close_uring,
};
