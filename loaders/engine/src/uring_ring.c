/* Setting a ring up, and the system calls on it. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "uring.h"

/* Best first. With DEFER_TASKRUN (Linux 6.1) completions are worked on only when this thread asks
 * for them, with COOP_TASKRUN (5.19) at its next system call, and never by an interrupt. */
static const uint32_t setups[] = {
    WL_RING_SINGLE_ISSUER | WL_RING_DEFER_TASKRUN | WL_RING_SUBMIT_ALL,
    WL_RING_COOP_TASKRUN | WL_RING_SUBMIT_ALL,
    0,
};

static int set_up(uint32_t entries, wl_uring_params *params) {
    int fd = -1;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        *params = (wl_uring_params){.flags = setups[i]};
        fd = (int)syscall(WL_NR_URING_SETUP, entries, params);
        if (fd >= 0 || errno != EINVAL)
            break;
    }
    return fd < 0 ? -errno : fd;
}

static void *map(const wl_ring *ring, size_t bytes, off_t offset) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
                        offset);
    return memory == MAP_FAILED ? NULL : memory;
}

static int map_rings(wl_ring *ring) {
    const wl_uring_params *params = &ring->params;
    const wl_sq_offsets *sq = &params->sq_off;
    const wl_cq_offsets *cq = &params->cq_off;
    size_t sq_bytes = sq->array + params->sq_entries * sizeof(uint32_t);
    size_t cq_bytes = cq->cqes + params->cq_entries * sizeof(wl_cqe);
    ring->rings_bytes = sq_bytes > cq_bytes ? sq_bytes : cq_bytes;
    ring->sqes_bytes = params->sq_entries * sizeof(wl_sqe);
    ring->rings = map(ring, ring->rings_bytes, WL_MAP_SQ_RING);
    ring->sqes = ring->rings ? map(ring, ring->sqes_bytes, WL_MAP_SQES) : NULL;
    if (!ring->sqes)
        return -errno;
    ring->sq_head = (_Atomic uint32_t *)(void *)(ring->rings + sq->head);
    ring->sq_tail = (_Atomic uint32_t *)(void *)(ring->rings + sq->tail);
    ring->cq_head = (_Atomic uint32_t *)(void *)(ring->rings + cq->head);
    ring->cq_tail = (_Atomic uint32_t *)(void *)(ring->rings + cq->tail);
    ring->sq_mask = params->sq_entries - 1;
    ring->cq_mask = params->cq_entries - 1;
    ring->cqes = (wl_cqe *)(void *)(ring->rings + cq->cqes);
    uint32_t *array = (uint32_t *)(void *)(ring->rings + sq->array);
    for (uint32_t i = 0; i < params->sq_entries; i++)
        array[i] = i;
    return 0;
}

int wl_ring_open(wl_ring *ring, uint32_t entries) {
    memset(ring, 0, sizeof *ring);
    ring->fd = set_up(entries, &ring->params);
    if (ring->fd < 0)
        return ring->fd;
    ring->enter_fd = ring->fd;
    ring->features = ring->params.features;
    int code = ring->features & WL_FEATURE_SINGLE_MMAP ? map_rings(ring) : -EOPNOTSUPP;
    if (code)
        wl_ring_close(ring);
    return code;
}

void wl_ring_close(wl_ring *ring) {
    if (ring->sqes)
        munmap(ring->sqes, ring->sqes_bytes);
    if (ring->rings)
        munmap(ring->rings, ring->rings_bytes);
    if (ring->fd >= 0)
        close(ring->fd);
    ring->fd = -1;
    ring->sqes = NULL;
    ring->rings = NULL;
}

int wl_ring_register(const wl_ring *ring, uint32_t what, const void *argument, uint32_t count) {
    long result = syscall(WL_NR_URING_REGISTER, ring->fd, what, argument, count);
    return result < 0 ? -errno : (int)result;
}

int wl_ring_submit(const wl_ring *ring, uint32_t count) {
    long result = syscall(WL_NR_URING_ENTER, ring->enter_fd, count, 0, ring->enter_flags, NULL, 0);
    return result < 0 ? -errno : (int)result;
}

int wl_ring_enter(const wl_ring *ring, uint32_t submit, uint32_t wait, uint64_t timeout_ns) {
    wl_kernel_timespec time = {.tv_nsec = (int64_t)timeout_ns};
    wl_getevents_arg extended = {.sigmask_bytes = 8, .timeout = (uint64_t)(uintptr_t)&time};
    uint32_t flags = ring->enter_flags | WL_ENTER_GETEVENTS;
    void *argument = NULL;
    size_t argument_bytes = 0;
    if (wait && timeout_ns < 1000000000u && ring->features & WL_FEATURE_EXT_ARG) {
        flags |= WL_ENTER_EXT_ARG;
        argument = &extended;
        argument_bytes = sizeof extended;
    }
    long result = syscall(WL_NR_URING_ENTER, ring->enter_fd, submit, wait, flags, argument,
                          argument_bytes);
    return result < 0 ? -errno : (int)result;
}
