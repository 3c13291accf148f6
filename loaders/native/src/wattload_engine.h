/* The I/O engine's C interface: plans in, counts, latencies and errors out.
 *
 * An engine is a set of poller threads, each with its own ring, over memory that the caller owns. A
 * job is one plan under way. Jobs of one engine are served in the order in which they were
 * submitted, `depth` operations in flight per poller, over the border between two jobs too. Every
 * call returns at once but for wl_job_wait, which returns within its timeout, and the two close
 * calls, which wait for what is in flight. Pollers block all signals.
 */
#ifndef WATTLOAD_ENGINE_H
#define WATTLOAD_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#define WL_ABI 2u

#if defined(__GNUC__)
#define WL_API __attribute__((visibility("default")))
#else
#define WL_API
#endif

typedef struct wl_engine wl_engine;
typedef struct wl_job wl_job;

/* Errors. `code` is an errno (above 0), or one of these (below 0); `offset` is where in `path` it
 * happened, in bytes, and UINT64_MAX where that has no meaning. `text` is an English half sentence
 * that names the operation or the field, for the caller to make a sentence of. */
enum {
    WL_OK = 0,
    WL_BAD_PLAN = -1,     /* the plan's bytes do not hold together */
    WL_BAD_SETUP = -2,    /* a number of wl_setup is outside its range */
    WL_UNAVAILABLE = -3,  /* this backend can't run here; text says why */
    WL_SHORT_READ = -4,   /* the file ends before the extent does */
    WL_CHANGED = -5,      /* size, mtime or ctime of a read file changed while it was read */
    WL_NOT_DIRECT = -6,   /* the file system refused O_DIRECT, or dropped it */
    WL_SHORT_WRITE = -7   /* the device took no whole blocks */
};

typedef struct {
    int32_t code;
    uint32_t reserved;
    uint64_t offset;
    char path[4096];
    char text[512];
} wl_error;

/* What a backend is, as fio declares its engines: the core acts on these flags, never on names. */
enum {
    WL_B_DISKLESS = 1,       /* moves nothing to or from a file */
    WL_B_SYNC = 2,           /* one operation at a time per thread: depth becomes threads */
    WL_B_FIXED_BUFFERS = 4,  /* can register the caller's memory */
    WL_B_FIXED_FILES = 8     /* can register descriptors */
};

typedef struct {
    const char *name; /* "io_uring", "pread", "memory", "null" */
    uint32_t flags;
    uint32_t reserved;
} wl_backend_info;

/* A piece of the caller's memory, which outlives the engine. Region 0 holds the slots: `depth` x
 * `pollers` of `block_bytes` each, used where a plan names no destination. */
typedef struct {
    void *base;
    uint64_t bytes;
} wl_region;

/* wl_setup.flags: what to try; what was granted is in wl_facts. */
enum { WL_REGISTER_BUFFERS = 1, WL_REGISTER_FILES = 2 };

typedef struct {
    uint32_t struct_bytes; /* sizeof(wl_setup) */
    uint32_t depth;        /* operations in flight per poller, 1 to 4096 */
    uint32_t pollers;      /* 1 to 64 */
    uint32_t block_bytes;  /* the largest block of any plan, 512 to 1 GiB */
    uint32_t region_count; /* 1 to 1024 */
    uint32_t flags;
    const wl_region *regions;
    const char *backend;
} wl_setup;

/* What an engine got. A registration that was refused leaves its errno; 0: granted, -1: not tried. */
typedef struct {
    int32_t buffers_refused;
    int32_t files_refused;
    uint32_t threads;    /* that move bytes */
    uint32_t ring_flags; /* IORING_SETUP_* granted; 0 without a ring */
} wl_facts;

/* What has moved so far, readable while the job runs. */
typedef struct {
    uint64_t bytes;
    uint64_t operations;
    uint32_t done; /* 1 once nothing is in flight any more, whatever the outcome */
    uint32_t reserved;
} wl_progress;

/* The outcome of a job that is done; zeros of one that is not. Times are CLOCK_MONOTONIC. `cpu_ns`
 * is CPU time from the job's first operation to its last, jobs that overlap included: the pollers',
 * and that of the kernel's io_uring workers of this process, which do what extends a file, goes to
 * the page cache or is an fsync (0 for them where the kernel has no /proc/self/task/N/schedstat;
 * they count with every engine that is at work meanwhile, as whose they are can't be told in a
 * container). `latency_sum_ns`, `latency_min_ns`, `latency_max_ns` are over completed
 * operations, from just before an operation is handed to the kernel to when its completion is seen:
 * what it is late by under a rate limit is not in them. `checksum` is the sum, modulo 2^64, of the
 * little-endian 64-bit words written (WL_STAMP) or read (WL_CHECK), a last part of a word padded
 * with zeros; only where a flag asked for it. */
typedef struct {
    uint64_t bytes;
    uint64_t operations;
    uint64_t start_ns;
    uint64_t end_ns; /* after the fsync, if one was asked for */
    uint64_t last_io_ns;
    uint64_t cpu_ns;
    uint64_t checksum;
    uint64_t bad_blocks;
    uint64_t latency_sum_ns;
    uint64_t latency_min_ns;
    uint64_t latency_max_ns;
    uint64_t sync_ns; /* the longest fsync of a file */
    uint32_t extending_files; /* not preallocated, or overwritten past their end, unasked */
    uint32_t stopped;         /* 1 after wl_job_stop */
    wl_error error;           /* of the operation that failed first; code WL_OK if none did */
} wl_result;

/* One in `trace_every` operations: when it was submitted (CLOCK_MONOTONIC), where, and for how long.
 * At most WL_TRACE_LIMIT rows a job; past that every second row is dropped and the step doubles. */
#define WL_TRACE_LIMIT 65536u
typedef struct {
    uint64_t submit_ns;
    uint64_t offset;
    uint32_t latency_ns; /* UINT32_MAX stands for all that is longer */
    uint32_t file;
} wl_trace_row;

/* Latency histogram, log-linear: values below 64 ns have a bucket each, above that every octave has
 * 64. Bucket of v >= 64: e = floor(log2 v), index = (e - 5) * 64 + ((v >> (e - 6)) - 64). The last
 * bucket, WL_BUCKETS - 1, also holds all that is longer than 2^41 ns (36 minutes). */
#define WL_BUCKETS_PER_OCTAVE 64u
#define WL_BUCKETS 2304u

/* The plan: little-endian, at the offsets given, no padding but what is named. Lengths are in bytes.
 *
 *   0 u32 magic 0x31504c57 ("WLP1")     4 u32 total length of the plan
 *   8 u8  kind  (WL_READ, WL_WRITE)     9 u8  order (WL_SEQUENTIAL, WL_RANDOM)
 *  10 u8  allocation (WL_PREALLOCATED, WL_OVERWRITE, WL_EXTENDING; of writes)
 *  11 u8  reserved                     12 u32 flags (WL_FSYNC ...)
 *  16 u32 block length                 20 u32 alignment of offsets, lengths and memory: power of 2
 *  24 u32 depth, 1 to wl_setup.depth   28 u32 trace_every, 0 for none
 *  32 u64 operation count, 0: every block of every extent once
 *  40 u64 duration in ns, 0: none; nothing is issued after it
 *  48 u64 rate limit in bytes per second, 0: none
 *  56 u64 seed (WL_RANDOM)
 *  64 u64 stamp nonce                  72 u64 stamp word
 *  80 u64 number of the first block    88 u32 destination region
 *  92 u32 reserved                     96 u64 destination offset in that region (WL_DESTINATION)
 * 104 u32 file count                  108 u32 extent count
 * 112 u32 length of all paths         116 u32 reserved      120 u64 reserved
 * 128 files: u64 end (where a written file ends; 0 for reads), u32 offset of the path among the
 *     paths, u32 length of the path (no NUL in it)
 *     extents: u32 file, u32 reserved, u64 offset, u64 length
 *     paths
 *
 * Sequential: extent after extent, block after block; again from the start while an operation count
 * or a duration asks for more. Random: each operation takes a block of the extents, uniformly; with
 * no count and no duration every block once, in an order drawn from the seed (a permutation).
 * A block that ends off the alignment at the end of a file is moved rounded up: a read may come
 * back shorter, a written file is cut to `end` afterwards. With WL_DESTINATION block i of the plan
 * goes to or from destination + i x block length, no slot is used, and the plan has to fit.
 *
 * Reads leave no access time behind where that is allowed. A written file that isn't there is made,
 * but with WL_OVERWRITE, where it has to be there and stays as long as it was if it ends later than
 * the plan; WL_EXTENDING first cuts it to where its first extent begins. Every file of a plan is
 * opened when its first block is issued, and closed after its last one; those without blocks are
 * opened at the end, unless there is a count or a duration. While a job with WL_STAMP runs, nobody
 * else may change the slots: their sums are kept from one block to the next. */
enum { WL_READ = 0, WL_WRITE = 1 };
enum { WL_SEQUENTIAL = 0, WL_RANDOM = 1 };
enum { WL_PREALLOCATED = 0, WL_OVERWRITE = 1, WL_EXTENDING = 2 };
enum {
    WL_FSYNC = 1,        /* files, and the folders they lie in */
    WL_DIRECT = 2,       /* open with O_DIRECT */
    WL_STAMP = 4,        /* stamp each 4096-byte block before it is written: nonce, word, number */
    WL_CHECK = 8,        /* count the 4096-byte blocks that bear another stamp, sum the words */
    WL_DESTINATION = 16,
    WL_NO_CHANGE = 32    /* fail with WL_CHANGED if a read file changes meanwhile */
};

WL_API uint32_t wl_abi(void);
/* A hash of the sources that this library was built from, as the build names it; "" if it didn't. */
WL_API const char *wl_sources(void);
/* The backend of that number, NULL past the last. */
WL_API const wl_backend_info *wl_backend(uint32_t number);
/* WL_OK if it can run here, else WL_UNAVAILABLE (io_uring switched off by sysctl or seccomp). */
WL_API int32_t wl_backend_probe(const char *name, wl_error *error);

WL_API int32_t wl_engine_open(const wl_setup *setup, wl_engine **engine, wl_error *error);
WL_API void wl_engine_facts(const wl_engine *engine, wl_facts *facts);
WL_API void wl_engine_close(wl_engine *engine);

/* Parses the plan and queues it; opens no file yet, so WL_BAD_PLAN is the one error of the plan. */
WL_API int32_t wl_job_submit(wl_engine *engine, const uint8_t *plan, size_t plan_bytes,
                             wl_job **job, wl_error *error);
/* Waits until the job is done, at most so long; returns 1 if it is, else 0. */
WL_API int32_t wl_job_wait(wl_job *job, uint32_t timeout_ms);
WL_API void wl_job_progress(const wl_job *job, wl_progress *progress);
/* Issues no more of it; what is in flight is finished, files are closed, no fsync is made. A written
 * file is not cut to size then, nor after a failure: one that was preallocated has its full length,
 * whatever of it was written. */
WL_API void wl_job_stop(wl_job *job);
WL_API void wl_job_result(const wl_job *job, wl_result *result);
WL_API void wl_job_histogram(const wl_job *job, uint64_t counts[WL_BUCKETS]);
/* Rows by time of submission; valid until the job is freed. */
WL_API const wl_trace_row *wl_job_trace(const wl_job *job, uint64_t *row_count);
/* Stops and waits for a job that is not done. */
WL_API void wl_job_free(wl_job *job);

/* Parses a plan and throws it away: for tests and fuzzing. */
WL_API int32_t wl_plan_check(const uint8_t *plan, size_t plan_bytes, wl_error *error);

#endif
