/* The part of the kernel's io_uring interface that is used here, since the headers of a build
 * machine may be older than the kernel that the library runs on. Layouts and numbers: io_uring(7),
 * io_uring_setup(2), io_uring_enter(2), io_uring_register(2). */
#ifndef WL_URING_ABI_H
#define WL_URING_ABI_H

#include <stdint.h>

enum { /* the same on all architectures but alpha */
    WL_NR_URING_SETUP = 425,
    WL_NR_URING_ENTER = 426,
    WL_NR_URING_REGISTER = 427
};

typedef struct {
    uint8_t opcode, flags;
    uint16_t ioprio;
    int32_t fd;
    uint64_t off, addr;
    uint32_t len, rw_flags;
    uint64_t user_data;
    uint16_t buf_index, personality;
    int32_t splice_fd_in;
    uint64_t reserved[2];
} wl_sqe;

typedef struct {
    uint64_t user_data;
    int32_t res;
    uint32_t flags;
} wl_cqe;

_Static_assert(sizeof(wl_sqe) == 64 && sizeof(wl_cqe) == 16, "the kernel's layout");

typedef struct {
    uint32_t head, tail, ring_mask, ring_entries, flags, dropped, array, reserved;
    uint64_t user_addr;
} wl_sq_offsets;

typedef struct {
    uint32_t head, tail, ring_mask, ring_entries, overflow, cqes, flags, reserved;
    uint64_t user_addr;
} wl_cq_offsets;

typedef struct {
    uint32_t sq_entries, cq_entries, flags, sq_thread_cpu, sq_thread_idle, features, wq_fd;
    uint32_t reserved[3];
    wl_sq_offsets sq_off;
    wl_cq_offsets cq_off;
} wl_uring_params;

_Static_assert(sizeof(wl_uring_params) == 120, "the kernel's layout");

typedef struct {
    uint64_t sigmask;
    uint32_t sigmask_bytes, reserved;
    uint64_t timeout; /* address of a __kernel_timespec */
} wl_getevents_arg;

typedef struct {
    int64_t tv_sec, tv_nsec;
} wl_kernel_timespec;

typedef struct {
    uint32_t nr, flags;
    uint64_t reserved, data, tags;
} wl_rsrc_register;

typedef struct {
    uint32_t offset, reserved;
    uint64_t data; /* address of the descriptors, or the descriptor of a ring */
} wl_rsrc_update;

typedef struct {
    uint8_t op, reserved;
    uint16_t flags;
    uint32_t reserved2;
} wl_probe_op;

enum { WL_PROBE_OPS = 64, WL_PROBE_SUPPORTED = 1 };

typedef struct {
    uint8_t last_op, ops_len;
    uint16_t reserved;
    uint32_t reserved2[3];
    wl_probe_op ops[WL_PROBE_OPS];
} wl_probe;

enum { /* operations */
    WL_URING_FSYNC = 3,
    WL_URING_READ_FIXED = 4,
    WL_URING_WRITE_FIXED = 5,
    WL_URING_READ = 22,
    WL_URING_WRITE = 23
};

enum { WL_SQE_FIXED_FILE = 1 };

#define WL_RING_COOP_TASKRUN (1u << 8)
#define WL_RING_SUBMIT_ALL (1u << 7)
#define WL_RING_SINGLE_ISSUER (1u << 12)
#define WL_RING_DEFER_TASKRUN (1u << 13)

enum { WL_FEATURE_SINGLE_MMAP = 1, WL_FEATURE_EXT_ARG = 1 << 8 };
enum { WL_ENTER_GETEVENTS = 1, WL_ENTER_EXT_ARG = 8, WL_ENTER_REGISTERED_RING = 16 };

enum {
    WL_REG_BUFFERS = 0,
    WL_REG_FILES = 2,
    WL_REG_FILES_UPDATE = 6,
    WL_REG_PROBE = 8,
    WL_REG_FILES2 = 13,
    WL_REG_RING_FDS = 20
};

enum { WL_RSRC_SPARSE = 1, WL_FILE_SKIP = -2 };

#define WL_MAP_SQ_RING 0
#define WL_MAP_SQES 0x10000000

#endif
