/* One ring of io_uring, by raw system calls. */
#ifndef WL_URING_H
#define WL_URING_H

#include "engine.h"
#include "uring_abi.h"

/* A piece of registered memory: the kernel accepts at most 1 GiB in one. */
#define WL_PIECE_BYTES ((uint64_t)1 << 30)
enum { WL_FILE_TABLE = WL_FIXED_FILES_LIMIT };

typedef struct {
    const uint8_t *base;
    uint64_t bytes;
    uint32_t first; /* number of its first piece */
} wl_fixed_region;

typedef struct {
    int fd, enter_fd;
    uint32_t enter_flags, features;
    wl_uring_params params;

    uint8_t *rings;
    size_t rings_bytes, sqes_bytes;
    _Atomic uint32_t *sq_head, *sq_tail, *cq_head, *cq_tail;
    uint32_t sq_mask, cq_mask;
    wl_sqe *sqes;
    wl_cqe *cqes;

    uint32_t refusals; /* in a row, without progress */
    int given_up;      /* the negative errno that ended its use, 0 while in use */

    bool fixes_buffers, fixes_files;
    wl_fixed_region *regions;      /* as registered: of slots only this poller's */
    uint64_t owners[WL_FILE_TABLE]; /* the serial of the file in each place, 0: none */
} wl_ring;

int wl_ring_open(wl_ring *ring, uint32_t entries);
void wl_ring_close(wl_ring *ring);
int wl_ring_register(const wl_ring *ring, uint32_t what, const void *argument, uint32_t count);
/* Returns the operations submitted, or a negative errno. Handles completions too. */
int wl_ring_enter(const wl_ring *ring, uint32_t submit, uint32_t wait, uint64_t timeout_ns);
/* Submits only. */
int wl_ring_submit(const wl_ring *ring, uint32_t count);

/* uring_register.c */
void wl_ring_register_all(wl_poller *poller, wl_ring *ring);
/* The number of the registered piece with that memory, -1 if there is none. */
int32_t wl_ring_piece(const wl_ring *ring, const wl_op *op);
/* The place of a file in the ring's table, -1 if it can't be added. */
int32_t wl_ring_file(wl_ring *ring, const wl_op *op);
void wl_ring_forget(wl_ring *ring, const wl_job *job);

#endif
