/* The I/O engine's C interface: plans in, counts, latencies and errors out.
 *
 * An engine is a set of poller threads, each with its own ring, over memory that the caller owns. A
 * job is the execution of one plan. Jobs of one engine run in the order of submission, with `depth`
 * operations in flight per poller, across the border between two jobs too. Every call returns at
 * once, except wl_job_wait, which returns within its timeout, and wl_engine_close and wl_job_free,
 * which wait for operations in flight. Pollers block all signals.
 */
#ifndef WATTLOAD_ENGINE_H
#define WATTLOAD_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "histogram.h"

#define WL_ABI 14u

#if defined(__GNUC__)
#define WL_API __attribute__((visibility("default")))
#else
#define WL_API
#endif

typedef struct wl_engine wl_engine;
typedef struct wl_job wl_job;

/* Errors. `code` is an errno (above 0), or one of these (below 0); `offset` is the position in
 * `path`, in bytes, and UINT64_MAX where there is none. `text` is an English clause that names the
 * operation or the field, for use in the caller's error message. */
enum {
    WL_OK = 0,
    WL_BAD_PLAN = -1,     /* the encoded plan is inconsistent */
    WL_BAD_SETUP = -2,    /* a field of wl_setup is out of range */
    WL_UNAVAILABLE = -3,  /* this backend can't run here; text has the reason */
    WL_SHORT_READ = -4,   /* the file ends before the extent does */
    WL_CHANGED = -5,      /* size, mtime or ctime of a file changed while it was read */
    WL_NOT_DIRECT = -6,   /* the file system refused O_DIRECT, or dropped it */
    WL_SHORT_WRITE = -7,  /* the device wrote a partial block */
    WL_BAD_PAGE = -8,     /* a Parquet page is cut short, or is of another encoding */
    WL_BAD_ID = -9,       /* text that is not 8 hex digits */
    WL_OTHER_DEVICE = -10, /* what was opened is not the plan's device; nothing was moved */
    WL_NO_LIBRARY = -11,   /* a library of NVIDIA's, or a function of it, is missing */
    WL_CUDA = -12,         /* a call of the CUDA driver failed; detail is the CUresult */
    WL_CUFILE = -13,       /* a call of cuFile failed; detail is its code */
    WL_GPU_MEMORY = -14,   /* a GPU has too little free memory */
    WL_OTHER_SIZE = -15,   /* a file is shorter than planned; offset is its size */
    WL_NO_GPU = -16,       /* CUDA shows this process no such GPU */
    WL_NOT_PINNED = -17,   /* CUDA pins no memory of `offset` bytes */
    WL_TOO_MANY = -18,     /* more requesters than the GPU runs at once, which are `offset` */
    WL_HANGS = -19,        /* `offset` requests for `path` were not answered in time */
    WL_BAD_NODE = -20      /* node `offset` of the index at `path` */
};

typedef struct {
    int32_t code;
    int32_t detail; /* of WL_CUDA and WL_CUFILE; else 0 */
    uint64_t offset;
    char path[4096];
    char text[512];
} wl_error;

/* Properties of a backend, as fio declares its engines: callers check these flags, never names. */
enum {
    WL_B_DISKLESS = 1,       /* accesses no file */
    WL_B_SYNC = 2,           /* one operation at a time per thread: depth becomes threads */
    WL_B_FIXED_BUFFERS = 4,  /* can register the caller's memory */
    WL_B_FIXED_FILES = 8     /* can register descriptors */
};

typedef struct {
    const char *name; /* "io_uring", "pread", "memory", "null" */
    uint32_t flags;
    uint32_t reserved;
} wl_backend_info;

/* A piece of the caller's memory, which must outlive the engine. Region 0 holds the slots:
 * `depth` x `pollers` of `block_bytes` each, used by plans without a destination. */
typedef struct {
    void *base;
    uint64_t bytes;
} wl_region;

/* wl_setup.flags: what to try; wl_facts has what was granted. */
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
    int32_t signal; /* an eventfd to which 1 is added at the end of each job; -1 for none */
} wl_setup;

/* What an engine was granted: 0 for a registration that succeeded, its errno if it was refused,
 * -1 if it was not tried. */
typedef struct {
    int32_t buffers_refused;
    int32_t files_refused;
    uint32_t threads;    /* threads that move bytes */
    uint32_t ring_flags; /* IORING_SETUP_* granted; 0 without a ring */
} wl_facts;

/* What has moved so far; may be read while the job runs. */
typedef struct {
    uint64_t bytes;
    uint64_t operations;
    uint32_t done; /* 1 when nothing is in flight any more, whatever the outcome */
    uint32_t reserved;
} wl_progress;

/* The outcome of a job that is done; zeros before. Times are CLOCK_MONOTONIC. `cpu_ns` is CPU
 * time from the job's first operation to its last; while several jobs of an engine are under way,
 * it counts for the one that ends first. It is the time of the pollers and of the kernel's io_uring
 * workers of this process, which do writes that extend a file, I/O through the page cache, and
 * fsync. The workers' time is 0 where the kernel has no /proc/self/task/N/schedstat. It counts for
 * every engine that is active meanwhile, since in a container the owner of a worker is unknown.
 * `latency_sum_ns`, `latency_min_ns` and `latency_max_ns` cover completed operations, from just
 * before an operation is handed to the kernel until its completion is seen; under a rate limit from
 * when it was due, so that the time for which it waited for others counts. `bad_blocks` counts the
 * blocks read (WL_CHECK) that are not what WL_STAMP writes; `compared_bytes` are those that were
 * compared. */
typedef struct {
    uint64_t bytes;
    uint64_t operations;
    uint64_t start_ns;
    uint64_t end_ns; /* after the fsync, if the plan has one */
    uint64_t last_io_ns;
    uint64_t cpu_ns;
    uint64_t bad_blocks;
    uint64_t compared_bytes;
    uint64_t latency_sum_ns;
    uint64_t latency_min_ns;
    uint64_t latency_max_ns;
    uint64_t synced_files; /* whose fsync succeeded */
    uint64_t open_ns;      /* opening, checking and closing files, summed over threads */
    uint64_t opened_files;
    uint32_t extending_files; /* not preallocated or overwritten as the plan requires */
    uint32_t stopped;         /* 1 after wl_job_stop */
    wl_error error;           /* of the first failed operation; code WL_OK if none failed */
} wl_result;

/* One in `trace_every` operations: its submission (CLOCK_MONOTONIC), its offset, and its latency
 * from its submission, under a rate limit too: both ends of the time that it was in flight. A job
 * has at most WL_TRACE_LIMIT rows; beyond that every second row is dropped and the step doubles. */
#define WL_TRACE_LIMIT 65536u
typedef struct {
    uint64_t submit_ns;
    uint64_t offset;
    uint32_t latency_ns; /* UINT32_MAX for anything longer */
    uint32_t file;
} wl_trace_row;

/* What a job has done until `time_ns` (CLOCK_MONOTONIC), all from its start; may be taken while it
 * runs. Of a job that is done, `time_ns` is its end and the figures are those of wl_result. Latencies
 * as there; without operations all three are 0. `counts` is a latency histogram. Pollers do not stop
 * for it: operations that complete meanwhile may be in some of the figures only. Extremes and sum
 * cover all that `counts` holds. */
typedef struct {
    uint64_t time_ns;
    uint64_t bytes;
    uint64_t operations;
    uint64_t latency_sum_ns;
    uint64_t latency_min_ns;
    uint64_t latency_max_ns;
    uint64_t counts[WL_BUCKETS];
} wl_reading;

/* The plan: little-endian, at these offsets, with no padding except as listed. Lengths in bytes.
 *
 *   0 u32 magic 0x31504c57 ("WLP1")     4 u32 total length of the plan
 *   8 u8  kind  (WL_READ, WL_WRITE)     9 u8  order (WL_SEQUENTIAL, WL_RANDOM, WL_LISTED)
 *  10 u8  allocation (WL_PREALLOCATED, WL_OVERWRITE, WL_EXTENDING; of writes)
 *  11 u8  reserved                     12 u32 flags (WL_FSYNC ...)
 *  16 u32 block length                 20 u32 alignment of offsets, lengths and memory: power of 2
 *  24 u32 depth, 1 to wl_setup.depth   28 u32 trace_every, 0 for none
 *  32 u64 operation count, 0: every block of every extent once
 *  40 u64 duration in ns, 0: none; nothing is issued after it
 *  48 u64 rate limit in bytes per second, 0: none
 *  56 u64 seed (WL_RANDOM, WL_SAMPLE)  64 u64 stamp nonce
 *  72 u64 number of the first block    80 u32 destination region
 *  84 u32 unit of stamps: 512 or 4096  88 u64 destination offset in that region (WL_DESTINATION)
 *  96 u32 file count                  100 u32 extent count
 * 104 u32 length of all paths         108 u32 count of listed blocks (WL_LISTED)
 * 112 u64 size of the device          120 u32 major number  124 u32 minor number
 * 128 u64 disk sequence of the device (BLKGETDISKSEQ), 0 if it is unknown
 *     these four with WL_DEVICE, else 0
 * 136 files: u64 end (where a written file ends; 0 for reads), u32 offset of the path among the
 *     paths, u32 length of the path (no NUL in it)
 *     extents: u32 file, u32 reserved, u64 offset, u64 length, u64 stamp word or place
 *     listed blocks: u64 number, from the first block of the first extent on
 *     paths
 *
 * Sequential: extent after extent, block after block, repeated until the operation count or the
 * duration is reached. Random: each operation takes a block of the extents, uniformly; without
 * count and duration every block once, in an order drawn from the seed (a permutation). Listed: the
 * listed blocks in their order; a read without count and duration. A block
 * whose end is unaligned, at the end of a file, is moved rounded up: a read may return less, and a
 * written file is cut to `end` afterwards. With WL_DESTINATION block i of the plan is moved to or
 * from destination + i x block length, and so is block i of a list; no slot is used, and the plan
 * must fit. With WL_PLACED too, of reads that are not compared, each extent has its own place: its
 * block j is read to destination + word + j x block length.
 *
 * Reads do not update access times where the kernel permits it. A written file is created if it is
 * missing. With WL_OVERWRITE it must exist, and keeps its length if it is longer than the plan.
 * WL_EXTENDING first cuts it to the start of its first extent. Every file of a plan is opened when
 * its first block is issued, and closed after its last one; files without blocks are opened at the
 * end, unless there is a count or a duration.
 *
 * With WL_DEVICE the plan has one file, a block device, and no extent ends behind its size. Nothing
 * is created, preallocated or cut, and fsync does not extend to a folder. The job fails with
 * WL_OTHER_DEVICE, before its first operation, if what was opened is not a block device of that
 * number, sequence and size. A plan without WL_DEVICE may read a block device, and fails with
 * WL_OTHER_DEVICE instead of writing to one. Jobs with WL_STAMP keep the sums of what is in the
 * slots: whoever else changes the slots, a destination there included, calls wl_engine_refilled
 * while no job runs. */
enum { WL_READ = 0, WL_WRITE = 1 };
enum { WL_SEQUENTIAL = 0, WL_RANDOM = 1, WL_LISTED = 2 };
enum { WL_PREALLOCATED = 0, WL_OVERWRITE = 1, WL_EXTENDING = 2 };
enum {
    WL_FSYNC = 1,        /* files and their folders */
    WL_DIRECT = 2,       /* open with O_DIRECT */
    WL_STAMP = 4,        /* stamp each 4096-byte block: nonce, word, number, sum of its rest */
    WL_CHECK = 8,        /* count the 4096-byte blocks with another stamp or another sum */
    WL_DESTINATION = 16,
    WL_NO_CHANGE = 32,   /* fail with WL_CHANGED if a read file changes meanwhile */
    WL_DEVICE = 64,      /* the one file is the block device that the header describes */
    WL_SAMPLE = 128,     /* WL_CHECK looks at three blocks of each extent; see wl_bad_samples */
    WL_PLACED = 256      /* the word of each extent is its place, from the destination on */
};

WL_API uint32_t wl_abi(void);
/* A hash of this library's sources, set by the build; "" without one. */
WL_API const char *wl_sources(void);
/* The backend with that number, NULL after the last. */
WL_API const wl_backend_info *wl_backend(uint32_t number);
/* WL_OK if it can run here, else WL_UNAVAILABLE (io_uring switched off by sysctl or seccomp). */
WL_API int32_t wl_backend_probe(const char *name, wl_error *error);

WL_API int32_t wl_engine_open(const wl_setup *setup, wl_engine **engine, wl_error *error);
WL_API void wl_engine_facts(const wl_engine *engine, wl_facts *facts);
WL_API void wl_engine_refilled(wl_engine *engine);
WL_API void wl_engine_close(wl_engine *engine);

/* Parses the plan and queues it; opens no file yet, so WL_BAD_PLAN is the only error of the
 * plan. */
WL_API int32_t wl_job_submit(wl_engine *engine, const uint8_t *plan, size_t plan_bytes,
                             wl_job **job, wl_error *error);
/* Waits until the job is done or the timeout has passed; returns 1 if it is done, else 0. */
WL_API int32_t wl_job_wait(wl_job *job, uint32_t timeout_ms);
WL_API void wl_job_progress(const wl_job *job, wl_progress *progress);
/* Issues no more operations. Those in flight are finished and files are closed, without fsync. As
 * after a failure, a written file is not cut to size: a preallocated one keeps its full length,
 * whatever was written. */
WL_API void wl_job_stop(wl_job *job);
WL_API void wl_job_result(const wl_job *job, wl_result *result);
WL_API void wl_job_read(const wl_job *job, wl_reading *reading);
/* Rows by time of submission; valid until the job is freed. */
WL_API const wl_trace_row *wl_job_trace(const wl_job *job, uint64_t *row_count);
/* Stops and waits for a job that is not done. */
WL_API void wl_job_free(wl_job *job);

/* Reads into GPU memory: threads with one read in flight each, on the host's CPUs. CUDA and cuFile
 * are opened by dlopen when the first of these functions is called.
 *
 * Reader t of `readers` reads file t modulo the number of files, into the memory of that file's GPU.
 * Its n-th read, from 0 on, checked ones included, is that of block
 *
 *   draw(draw(seed, t), n) modulo (the whole blocks of the file), all modulo 2^64, with
 *   draw(s, i) = mix(s + (i + 1) x 0x9e3779b97f4a7c15), the i-th output of splitmix64, and
 *   mix(x): x ^= x >> 30, x *= 0xbf58476d1ce4e5b9, x ^= x >> 27, x *= 0x94d049bb133111eb,
 *           x ^= x >> 31
 *
 * so that every way reads the same blocks. A read begins before the first call that serves it and
 * ends when its bytes are in the GPU's memory. A failed one is counted and not repeated; the reader
 * goes on with its next block. An error of CUDA ends all of them.
 *
 * Each reader first makes `checked_reads` reads. Then the clock starts for all of them, and no read
 * begins after the deadline. At the end each reader makes `checked_reads` reads again. Checked reads
 * go the same way as timed ones, into memory that is overwritten with a pattern before each. They,
 * and the last timed read of each reader, are copied back and compared with the file's stamps. */
enum {
    WL_WAY_BOUNCE = 0, /* pread to a pinned buffer, a copy and a wait on the thread's own stream */
    WL_WAY_RING = 1,   /* pollers: io_uring to pinned slots, copies of several slots together */
    WL_WAY_CUFILE = 2  /* cuFileRead to a registered buffer */
};

typedef struct {
    const char *path;
    uint64_t bytes; /* as planned; the file may be longer */
    uint32_t gpu;   /* number in `gpus` */
    uint32_t reserved;
    uint64_t nonce, word, first_block; /* of its stamps, one per 512 bytes */
} wl_gpu_file;

typedef struct {
    const char *address;  /* PCI: "0000:65:00.0" */
    const uint32_t *cpus; /* where its threads run, below 1024 */
    uint32_t cpu_count;   /* 0: anywhere */
    uint32_t reserved;
} wl_gpu_place;

typedef struct {
    uint32_t struct_bytes; /* sizeof(wl_gpu_setup) */
    uint32_t way;
    uint32_t readers;       /* 1 to 65536 */
    uint32_t pollers;       /* of WL_WAY_RING, for each GPU: 1 to 64 */
    uint32_t block_bytes;   /* a multiple of 4096, to 1 GiB */
    uint32_t checked_reads; /* before, and again after, the timed window */
    uint32_t file_count;
    uint32_t gpu_count; /* each with at least one reader */
    uint64_t duration_ns;
    uint64_t seed;
    const wl_gpu_file *files;
    const wl_gpu_place *gpus;
} wl_gpu_setup;

/* The reads that a library counted in this process, by their path, summed over GPUs. */
typedef struct {
    uint64_t total, p2p, nvfs, posix, peer;
} wl_library_reads;

/* Failed reads by code: above 0 an errno; WL_SHORT_READ; below -5000 a code of cuFile, negated. The
 * last place counts all codes for which there was no room, as code 0. */
#define WL_FAILURES 16
typedef struct {
    int32_t code;
    uint32_t reserved;
    uint64_t count;
} wl_gpu_failure;

/* What has been done so far; may be taken while the readers run. */
typedef struct {
    uint64_t reads; /* timed ones that ended before the deadline */
    uint64_t bytes;
    uint64_t ended; /* of all reads, failed and checked ones too */
    uint32_t stage; /* 0 ready, 1 checking, 2 checked, 3 timed, 4 all timed reads ended, 5 done */
    uint32_t reserved;
    uint64_t start_ns; /* CLOCK_MONOTONIC; both 0 before the clock starts */
    uint64_t deadline_ns;
} wl_gpu_progress;

/* `operations`, `bytes` and the latencies are those of timed reads that ended before the deadline.
 * `start_ns` and `end_ns` (CLOCK_MONOTONIC) are the start of the clock and the deadline, or the time
 * of the error that ended the reads; `cpu_ns` is the CPU time of this process between them. `reads`
 * and `read_bytes` count every read that succeeded. `pinned_copies` are copies from pinned host
 * memory to a GPU that the driver accepted, `pinned_bytes` their bytes. `library` is valid if
 * `has_library` is not 0. */
typedef struct {
    uint64_t start_ns, end_ns, cpu_ns;
    uint64_t operations, bytes;
    uint64_t reads, read_bytes;
    uint64_t pinned_copies, pinned_bytes;
    uint64_t compared_bytes, bad_blocks;
    uint64_t cut_ns; /* of the reads in flight at the deadline, the time until then */
    wl_library_reads library;
    uint32_t has_library;
    uint32_t reserved;
    wl_gpu_failure failures[WL_FAILURES];
    wl_latencies latencies;
} wl_gpu_result;

typedef struct {
    char address[16]; /* "0000:65:00.0" */
    char name[256];
} wl_gpu;

typedef struct wl_gpu_reads wl_gpu_reads;

/* The GPUs that CUDA shows to this process, by ordinal, and the CUDA version of the driver: 1000 x
 * major + 10 x minor. */
WL_API int32_t wl_cuda_gpus(wl_gpu *gpus, uint32_t room, uint32_t *count, int32_t *version,
                            wl_error *error);
/* The compute capability of the GPU with a PCI address, as 90 for 9.0. */
WL_API int32_t wl_cuda_capability(const char *address, uint32_t *capability, wl_error *error);
/* Opens and closes cuFile's driver; `version` is 1000 x major + 10 x minor, 0 if it is unknown.
 * libcufile 1.20 does not return where there is no CUDA driver. */
WL_API int32_t wl_cufile_try(int32_t *version, wl_error *error);

/* cuFile's statistics of this process, where another library calls cuFile. The first begins to count,
 * with cuFile's driver open; the second adds up the reads of all GPUs since then. Both return 0 if
 * this libcufile has no statistics of a known layout, or refuses. */
WL_API int32_t wl_cufile_begin(void);
WL_API int32_t wl_cufile_reads(wl_library_reads *reads);

/* The version of libcufile as above, 0 if it is unknown or not installed. */
WL_API int32_t wl_cufile_number(void);

/* The number of the block that a reader reads; `blocks` is above 0. */
WL_API uint64_t wl_gpu_block(uint64_t seed, uint64_t reader, uint64_t number, uint64_t blocks);
/* Opens the files, allocates and registers all memory, and starts the threads. Takes seconds with
 * many registered buffers. */
WL_API int32_t wl_gpu_open(const wl_gpu_setup *setup, wl_gpu_reads **reads, wl_error *error);
/* Lets the clock start, as soon as the first reads have been checked; on any thread. */
WL_API void wl_gpu_start(wl_gpu_reads *reads);
/* Makes all reads, once; returns when the last one has ended and everything is compared. Between the
 * checked reads and the timed ones it waits for wl_gpu_start. */
WL_API int32_t wl_gpu_run(wl_gpu_reads *reads, wl_gpu_result *result, wl_error *error);
WL_API void wl_gpu_progress_of(const wl_gpu_reads *reads, wl_gpu_progress *progress);
/* Timed operations of each file, in the order of the setup; after wl_gpu_run. */
WL_API void wl_gpu_file_operations(const wl_gpu_reads *reads, uint64_t *operations);
/* Ends the threads and releases everything; waits for reads in flight. */
WL_API void wl_gpu_close(wl_gpu_reads *reads);

/* Random reads that requesters ask for through queue pairs in memory, and pollers serve; queue_abi.h
 * has the protocol. Requesters are the threads of a GPU, or of the CPU in their place. Each has one
 * request in flight. Requester r of all, from 0 on, belongs to target r / (requesters of a target);
 * its n-th request is for block draw(draw(seed, r), n) of its target modulo the blocks there (see
 * above for draw), or of its warp's part of the target with WL_PATTERN_REGIONS.
 *
 * wl_queue_run measures in stages: with a GPU first what it pulls from the table without a queue,
 * then the queue with nothing to deliver, each for `ceiling_ns`; then, after wl_queue_start, the
 * requests themselves until the deadline and the last answer. Every stamp is compared where the
 * requester is; the last block of each is then compared whole on the CPU. */
enum { WL_QUEUE_NULL = 0, WL_QUEUE_MEMORY = 1, WL_QUEUE_STORAGE = 2 };

/* For tests: what pollers do wrong with one answer in 1000, or from the 1000th request on. */
enum {
    WL_FAULT_NONE = 0,
    WL_FAULT_LOST = 1,   /* none is given */
    WL_FAULT_TWICE = 2,  /* it is counted as two */
    WL_FAULT_SWAPPED = 3, /* another block is read */
    WL_FAULT_SILENT = 4   /* from then on none is given for the last target */
};

typedef struct {
    const char *path; /* of WL_QUEUE_STORAGE */
    uint64_t bytes;   /* as planned; the file may be longer */
    uint64_t nonce, word, first_block; /* of its stamps, one per 512 bytes */
} wl_queue_target;

typedef struct {
    uint32_t struct_bytes; /* sizeof(wl_queue_setup) */
    uint32_t engine;
    uint32_t block_bytes;  /* of a request: 512 to 65536, a power of two */
    uint32_t read_bytes;   /* of a read: at least block_bytes, a power of two */
    uint32_t requesters;   /* of each target: a multiple of 32 */
    uint32_t queue_pairs;  /* of each target */
    uint32_t queue_size;   /* of each pair: a power of two, at least `requesters` */
    uint32_t pollers;      /* 1 to all queue pairs */
    uint32_t pattern;      /* of queue_abi.h */
    uint32_t requester_threads; /* of the CPU */
    uint32_t sample_every; /* a requester's latency is taken once in so many requests */
    uint32_t trace_every;  /* 0: none */
    uint32_t fault;
    uint32_t hang_ms;      /* without any answer for so long, a target hangs */
    uint64_t first_number; /* of each requester's requests */
    uint64_t table_bytes;  /* of the stamped table in host memory: a power of two */
    uint64_t cache_bytes;  /* of the GPU's memory, for blocks: at least 16; 0: no cache */
    uint64_t duration_ns, ceiling_ns;
    uint64_t seed;
    const wl_queue_target *targets;
    uint32_t target_count; /* 1 to 64 */
    uint32_t cpu_count;
    const uint32_t *cpus;  /* of pollers and requester threads, below 1024; none: any */
    const char *gpu;       /* PCI address; NULL: requesters on the CPU */
    const void *image;     /* the kernels, compiled for this GPU */
} wl_queue_setup;

/* Requests of one target that failed with one code, and where the first did. There is room for two
 * codes of each of 64 targets; the last row counts all that find none. */
#define WL_QUEUE_FAILURES 128
typedef struct {
    int32_t code; /* an errno, or WL_SHORT_READ */
    uint32_t target;
    uint64_t offset;
    uint64_t count;
} wl_queue_failure;

/* Of the timed stage. `requests` are counted by requesters, and so are those `asked` through the queue:
 * all of them without a cache. With one, requests = coalesced + hits + merged + asked, and of those
 * asked `bypassed` found all pages of their set in use. `taken` and `answered` are counted by pollers,
 * `operations` are reads that succeeded, by the kernel's completions. `delivered` blocks had the
 * right stamp where the requester is, `wrong` ones another: the first at `wrong_offset`. `counts` are
 * sampled latencies from the request until the block is there. */
typedef struct {
    uint64_t start_ns, end_ns, cpu_ns;
    uint64_t requests, taken, answered, operations;
    uint64_t delivered, failed, wrong, unanswered;
    uint64_t asked, coalesced, hits, merged, bypassed;
    uint64_t wrong_offset;
    uint32_t wrong_target, reserved;
    uint64_t compared_bytes, bad_blocks; /* of 512 bytes */
    uint64_t pull_requests, pull_ns;     /* 0 without a GPU */
    uint64_t null_requests, null_ns;
    uint64_t clock_step_ns;              /* of the GPU that took `counts`; 0 without */
    wl_queue_failure failures[WL_QUEUE_FAILURES];
    uint64_t counts[WL_BUCKETS];
} wl_queue_result;

/* Reads that succeeded, with latencies from taking a request to the end of its read; none without
 * storage. */
typedef struct {
    uint64_t operations, read_bytes;
    wl_latencies latencies;
} wl_queue_reads;

typedef struct {
    uint64_t answered;
    uint64_t busy_ns; /* of the timed stage: CPU time with something to do */
} wl_queue_poller_result;

typedef struct wl_queue wl_queue;

WL_API int32_t wl_queue_open(const wl_queue_setup *setup, wl_queue **opened, wl_error *error);
/* Lets the timed stage start once the ceilings are known; on any thread. */
WL_API void wl_queue_start(wl_queue *queue);
/* Ends the timed stage early; on any thread. */
WL_API void wl_queue_stop(wl_queue *queue);
/* Runs all stages, once. `result` is valid after WL_HANGS too. */
WL_API int32_t wl_queue_run(wl_queue *queue, wl_queue_result *result, wl_error *error);
/* As of wl_gpu_progress_of: `reads` are requests of the timed stage that succeeded, or fewer while
 * some fail; `bytes` is not set. */
WL_API void wl_queue_progress_of(wl_queue *queue, wl_gpu_progress *progress);
/* Of one target, or of all with the number 64. */
WL_API void wl_queue_target_of(const wl_queue *queue, uint32_t target, wl_queue_reads *reads);
WL_API void wl_queue_poller_of(wl_queue *queue, uint32_t poller, wl_queue_poller_result *result);
/* Rows by time; valid until the queue is closed. */
WL_API const wl_trace_row *wl_queue_trace(wl_queue *queue, uint64_t *row_count);
WL_API void wl_queue_close(wl_queue *queue);

/* Gathers of rows that requesters ask for through queue pairs in memory, and pollers serve; rows_abi.h
 * has what a gather does. Requesters are the threads of a GPU, which fill its memory, or of the CPU.
 * Pollers sleep between gathers. All calls are of one thread at a time. Until a gather has ended, its
 * memory must not be used or released; after an error that wl_rows_wait returns, or
 * wl_rows_abandon, there is no other gather. */
typedef struct {
    const char *path;
    uint64_t row_count, first_row, offset_bytes; /* of the file; its number; where it begins */
} wl_rows_file;

typedef struct {
    uint32_t struct_bytes; /* sizeof(wl_rows_setup) */
    uint32_t row_bytes;    /* a multiple of 512, up to 65536 */
    uint32_t outstanding;  /* reads in flight: a multiple of 32, up to 65536 */
    uint32_t queue_pairs;  /* of each file */
    uint32_t pollers;      /* 1 to all queue pairs */
    uint32_t requester_threads; /* of the CPU */
    uint32_t fault;        /* of pollers, for tests */
    uint32_t hang_ms;      /* without any answer for so long, a file hangs */
    uint32_t is_striped;   /* row r is row r / file_count of file r modulo file_count */
    uint32_t file_count;   /* 1 to 64; else by first_row, rising */
    uint64_t row_count;    /* below 2^31 */
    uint64_t batch_rows;   /* of a gather, at most */
    uint64_t kept_rows;    /* room of the buffer of host memory; 0: none */
    uint64_t cache_rows;   /* of the GPU's memory: whole sets of 16 are used; 0: no cache */
    const wl_rows_file *files;
    const char *gpu;       /* PCI address; NULL: requesters on the CPU */
    const void *image;     /* the kernels, compiled for this GPU */
} wl_rows_setup;

/* Rows of a gather are each in one of `kept` (in the buffer of host memory), `hits` (of the cache),
 * `merged` (to a read under way) and `asked`, of which `bypassed` took no page. `taken` and `answered`
 * are counted by pollers. `cpu_ns` is that of pollers and of requesters on the CPU. */
typedef struct {
    uint64_t start_ns, end_ns, cpu_ns;
    uint64_t kept, hits, merged, asked, bypassed, delivered, failed, unanswered;
    uint64_t taken, answered;
    wl_queue_reads reads;
    wl_queue_failure failures[WL_QUEUE_FAILURES];
} wl_rows_result;

typedef struct wl_rows wl_rows;

WL_API int32_t wl_rows_open(const wl_rows_setup *setup, wl_rows **opened, wl_error *error);
/* The buffer of host memory, kept_rows x row_bytes, for the caller to fill. */
WL_API uint8_t *wl_rows_kept(wl_rows *rows);
/* The rows that the buffer holds, in its order; once, before the first gather. */
WL_API int32_t wl_rows_keep(wl_rows *rows, const uint64_t *list, uint64_t count, wl_error *error);
/* A gather to come needs these rows: their pages are not evicted before. */
WL_API int32_t wl_rows_expect(wl_rows *rows, const uint64_t *list, uint64_t count,
                              wl_error *error);
/* Starts a gather into memory of the requesters; `is_expected` if wl_rows_expect has had it. */
WL_API int32_t wl_rows_start(wl_rows *rows, const uint64_t *list, uint64_t count, uint64_t into,
                             uint32_t is_expected, wl_error *error);
/* Waits for its end, `timeout_ms` at most: `is_over` says whether it has come. Reads that fail are
 * counted in the result. */
WL_API int32_t wl_rows_wait(wl_rows *rows, uint32_t timeout_ms, uint32_t *is_over,
                            wl_rows_result *result, wl_error *error);
/* Ends a gather early, so that its memory may be released. */
WL_API void wl_rows_abandon(wl_rows *rows);
/* What a GPU pulls from the buffer of host memory, or without one from its slots, into memory of
 * batch_rows rows, in `duration_ns` or a little more. */
WL_API int32_t wl_rows_pull(wl_rows *rows, uint64_t into, uint64_t duration_ns, uint64_t *row_count,
                            uint64_t *took_ns, wl_error *error);
WL_API void wl_rows_close(wl_rows *rows);

/* Random reads of mapped files by threads of the CPU. They read the blocks that the requesters of a
 * queue ask for (see wl_queue_open): thread t stands for requesters t, t + `threads`, ... and takes
 * the next block of each in turn. Each block is copied to the thread's memory, and there every byte
 * is compared with the file's stamps, one per 512 bytes. A read that fails is counted and not
 * repeated. While threads run, SIGBUS of this process is theirs. */
enum { WL_ADVICE_NORMAL = 0, WL_ADVICE_RANDOM = 1 }; /* of madvise: with read-ahead, or without */
#define WL_MAPPED_TARGETS 64u

typedef struct {
    uint32_t struct_bytes; /* sizeof(wl_mapped_setup) */
    uint32_t threads;      /* 1 to 1024; no more than all requesters are started */
    uint32_t block_bytes;  /* a multiple of 512, up to 65536 */
    uint32_t requesters;   /* of each target: a multiple of 32 */
    uint32_t pattern;      /* of queue_abi.h */
    uint32_t advice;
    uint32_t sample_every; /* a thread's latency is taken once in so many reads */
    uint32_t trace_every;  /* 0: none; else a multiple of sample_every */
    uint64_t seed;
    const wl_queue_target *targets;
    uint32_t target_count; /* 1 to 64 */
    uint32_t reserved;
} wl_mapped_setup;

/* `operations` succeeded; every byte of them was compared. `wrong` blocks had another stamp, the
 * first at `wrong_offset`; `bad_blocks` of 512 bytes had another stamp or another sum. Latencies of
 * sampled reads are from the first touch until the block is copied. */
typedef struct {
    uint64_t start_ns, end_ns;
    uint64_t operations, failed, wrong, wrong_offset, bad_blocks;
    uint32_t wrong_target, reserved;
    uint64_t target_operations[WL_MAPPED_TARGETS];
    wl_queue_failure failures[WL_QUEUE_FAILURES];
    wl_latencies latencies;
} wl_mapped_result;

typedef struct wl_mapped wl_mapped;

WL_API int32_t wl_mapped_open(const wl_mapped_setup *setup, wl_mapped **opened, wl_error *error);
/* Starts the threads, once. */
WL_API int32_t wl_mapped_start(wl_mapped *mapped, wl_error *error);
/* The reads that have succeeded so far. */
WL_API uint64_t wl_mapped_reads(wl_mapped *mapped);
/* Ends the threads, each after its read. */
WL_API void wl_mapped_finish(wl_mapped *mapped, wl_mapped_result *result);
/* Rows by time, after wl_mapped_finish; valid until the files are closed. */
WL_API const wl_trace_row *wl_mapped_trace(wl_mapped *mapped, uint64_t *row_count);
WL_API void wl_mapped_close(wl_mapped *mapped);

/* Failed reads of files that were mapped by somebody else, whose threads touch them. From begin to
 * end, a fault in one of the mappings puts zeros in place of all of it, so that the threads go on.
 * wl_guard_end returns the address of the first fault, 0 for none: after one, what was read must
 * not be used, and the file has to be mapped again. One guard at a time. */
#define WL_GUARD_LIMIT 64u

typedef struct {
    uint64_t address, bytes; /* whole pages */
} wl_mapping;

WL_API int32_t wl_guard_begin(const wl_mapping *mappings, uint32_t count, wl_error *error);
WL_API uint64_t wl_guard_end(void);

/* Criteo's TSV. A cell is one field as 64 bits: 0 if it is empty; an integer is 1 << 32 | its 32
 * bits; an id is its 8 characters in memory order. Column c of the cells is at cells + c x stride.
 *
 * Both functions read whole lines, each ended by a line feed, until `row_limit` rows or the end of
 * the text, and return the number of rows; 64 bytes beyond the text are read and must exist. A line
 * that is no row is left out and counted, and without `drops` it is the last one read. `done`
 * accumulates over calls; the offsets in it count from the text of the first one. */
#define WL_TSV_BAD_LIMIT 8
typedef struct {
    uint64_t taken_bytes;
    uint64_t bad_count;
    uint64_t bad_offsets[WL_TSV_BAD_LIMIT]; /* of the first ones */
} wl_tsv_progress;

WL_API uint32_t wl_tsv_read(const uint8_t *text, size_t bytes, uint64_t *cells, size_t stride,
                            uint32_t row_limit, int32_t drops, wl_tsv_progress *done);
/* The same as packed rows of 40 int32 (facebookresearch/dlrm): an empty or negative integer and an
 * empty id are 0, an id is its number modulo 40,000,000, or with `whole_ids` its 32 bits. */
WL_API uint32_t wl_tsv_pack(const uint8_t *text, size_t bytes, int32_t *packed, uint32_t row_limit,
                            int32_t drops, int32_t whole_ids, wl_tsv_progress *done);

/* Ids of one column in the order of their first appearance, found by hashing. The memory is the
 * caller's: `slots` starts as zeros and has more room than `limit`. */
typedef struct {
    uint32_t *slots;  /* 1 + the place of an id in the next two, 0 for none */
    uint32_t *ids;    /* `limit` of them */
    uint32_t *counts; /* how often each appeared; it stops at UINT32_MAX */
    uint32_t slot_count;
    uint32_t limit;
    uint32_t used;
} wl_id_table;

/* Counts ids. Those that the full table has no room for are copied to `left`, in their order;
 * returns how many. */
WL_API size_t wl_ids_count(wl_id_table *table, const uint32_t *ids, size_t count, uint32_t *left);
/* Replaces ids that wl_ids_count has seen by the number at their place. Those that it left take the
 * next of `left_numbers`. */
WL_API void wl_ids_number(const wl_id_table *table, const int32_t *numbers,
                          const int32_t *left_numbers, const uint32_t *ids, size_t count,
                          int32_t *numbered);

/* Text like Criteo's, for as many rows as are left, read as from a file: what does not fit is held
 * for the next call. Row r of all is drawn from stream r modulo WL_SYNTHETIC_LANES. A field is empty
 * for `gap` of 2^31 draws; else its rank is distributed like Zipf's with exponent 1, from 1 to
 * `most`. An id is a hash of its rank, an integer the text number rank + `first`. */
enum { WL_SYNTHETIC_LANES = 64, WL_SYNTHETIC_HELD = WL_SYNTHETIC_LANES * 320 + 8 };
typedef struct {
    uint32_t gap;
    uint32_t most;  /* below 2^31 */
    uint32_t first; /* of integers only */
    float octaves;  /* log2(most + 1) / (2^31 - gap) */
} wl_synthetic_column;
typedef struct {
    uint32_t streams[4][WL_SYNTHETIC_LANES]; /* the states, none of them all zeros */
    wl_synthetic_column columns[39];         /* all but the label */
    const uint64_t *integers; /* texts of 1 to 5 characters and a tab, padded with zeros; 0: empty */
    uint64_t row_count;       /* that are left */
    uint32_t ones;            /* of 2^31 draws, those that make a label 1 */
    uint32_t held_start;
    uint32_t held_end;
    uint8_t held[WL_SYNTHETIC_HELD];
} wl_synthetic;

/* Returns the number of bytes: less than asked for only at the end. */
WL_API size_t wl_synthetic_read(wl_synthetic *from, uint8_t *text, size_t bytes);

/* Synthetic graphs. Nodes of a type have ranks, 0 the most popular, and a permutation by `node_seed`
 * of their type spreads them: node = permutation of rank. Degrees fall with the rank, in steps of
 * ranks of equal degree; the popularity of a node as a neighbour is its degree in the relation the
 * other way. Edges are numbered in the order of their destinations (CSC). */
typedef struct {
    const uint64_t *first_ranks; /* of each step, then the number of nodes */
    const uint64_t *first_edges; /* of each step in the order of ranks, then the number of edges */
    const uint32_t *degrees;     /* of each step, falling */
    const uint32_t *guide;       /* the step of edge i << guide_shift; the last ends the search */
    uint32_t count;              /* of steps, 1 or more */
    uint32_t guide_shift;
} wl_degree_steps;

/* Degrees of the nodes from `first_node` on. */
WL_API void wl_graph_degrees(const wl_degree_steps *steps, uint64_t node_seed, uint64_t first_node,
                             uint64_t count, uint32_t *degrees);
/* Sources of the edges from `first_edge` on: each is the node of one edge of `steps`, which are
 * those of the source type, drawn uniformly. */
WL_API void wl_graph_neighbours(const wl_degree_steps *steps, uint64_t node_seed, uint64_t edge_seed,
                                uint64_t first_edge, uint64_t count, uint32_t *neighbours);

/* Features: rows of 1024 float32 between -1.25 and 1.25, drawn by the number of the row. Each row
 * has one of 19 classes, which shows in its values: they are moved by 1/4 to the class's side. */
#define WL_ROW_BYTES 4096u
#define WL_CLASSES 19u
WL_API void wl_graph_rows(uint64_t seed, const uint64_t *rows, uint64_t count, float *values);
WL_API void wl_graph_classes(uint64_t seed, const uint64_t *rows, uint64_t count, int64_t *classes);
/* Compares the rows at 0, `every`, ... bit by bit; the place of the first other one, else `count`. */
WL_API uint64_t wl_graph_wrong_row(uint64_t seed, const uint64_t *rows, uint64_t count,
                                   uint64_t every, const float *values);

/* Replaces numbers below `count` by those that a permutation of [0, count) takes them to. */
WL_API void wl_graph_permute(uint64_t seed, uint64_t count, uint64_t *numbers,
                             uint64_t number_count);
/* Adds min(1, fanout / degree of the destination), in multiples of 2^-32 rounded down, to the score
 * of the source of each edge into the nodes from `first_node` to before `end_node`. Several threads
 * may add to the same scores. */
WL_API void wl_graph_scores(const uint64_t *indptr, const uint32_t *indices, uint32_t fanout,
                            uint64_t *scores, uint64_t first_node, uint64_t end_node);

/* One way of the edges of a list: lists of sources by destination. */
typedef struct {
    uint64_t *next;        /* by destination: its degree, or where its next source goes */
    const uint64_t *ends;  /* where each destination's sources end; NULL while edges are counted */
    uint32_t *sources;     /* NULL while edges are counted */
} wl_edge_way;

/* Counts (`ends` is NULL) or sorts edges, pairs of nodes below node_counts: `forward` has them from
 * the first to the second node of a pair, `back`, unless it is NULL, the other way. Edges of a node
 * with itself are left out with `drops_loops`. The place of the first edge with a node that does
 * not exist, or without room, else `count`. */
WL_API uint64_t wl_graph_sort_edges(const int64_t *edges, uint64_t count,
                                    const uint64_t node_counts[2], int32_t drops_loops,
                                    const wl_edge_way *forward, const wl_edge_way *back);

/* Batches of neighbours. A batch starts with its seeds: nodes of one type, each once. Layer 0 draws
 * edges into them, each further layer into all nodes that the batch has by then, relation by
 * relation. Sources that are new to the batch are appended to the nodes of their type, in the order
 * of their first edge; the next layer draws for them too.
 *
 * A node with at most `fan-out` edges keeps all of them, in their order. Of another one's, `fan-out`
 * are drawn without replacement: number j is wl_draw(key, j) scaled to degree - fan-out + j + 1, or
 * the last one of these where that was drawn before (Floyd), with the key
 * wl_draw(wl_draw(wl_draw(seed, batch), layer x relations + relation), node). */
enum { WL_FANOUT_LIMIT = 1024, WL_SAMPLER_THREADS = 256 };

typedef struct {
    uint32_t source, destination; /* types of nodes */
    const uint64_t *indptr;       /* rising; one more than destinations */
    const uint32_t *indices;      /* sources, all of them there */
} wl_relation;

/* The arrays are copied, those of relations must stay. */
typedef struct {
    uint32_t struct_bytes; /* sizeof(wl_sampler_setup) */
    uint32_t threads;      /* 1 to WL_SAMPLER_THREADS, the caller's included */
    uint32_t type_count, relation_count, layer_count, reserved;
    uint64_t seed;
    const uint64_t *node_counts; /* by type */
    const wl_relation *relations;
    const uint32_t *fanouts; /* by layer and relation, up to WL_FANOUT_LIMIT */
} wl_sampler_setup;

typedef struct wl_sampler wl_sampler;

WL_API int32_t wl_sampler_open(const wl_sampler_setup *setup, wl_sampler **opened, wl_error *error);
/* Seeds are nodes of the first type. One call at a time; its results stay until the next one. */
WL_API int32_t wl_sampler_draw(wl_sampler *sampler, uint64_t batch, const uint32_t *seeds,
                               uint32_t seed_count, wl_error *error);
/* Nodes of a type, and how many there were when each layer began and at the end. */
WL_API const uint32_t *wl_sampler_nodes(const wl_sampler *sampler, uint32_t type,
                                        const uint32_t **counts);
/* Sources as places in the nodes of their type; those of a destination follow each other from its
 * offset on. There is one more offset than the destination type has nodes when the layer begins. */
WL_API const uint32_t *wl_sampler_edges(const wl_sampler *sampler, uint32_t layer,
                                        uint32_t relation, const uint32_t **offsets);
WL_API void wl_sampler_close(wl_sampler *sampler);

/* Pages of a Parquet file (parquet.apache.org/docs/file-format, "Data Pages" and "Encodings"): flat
 * optional columns, data pages of version 1, before compression and without their headers. */
enum {
    WL_INT32 = 0,  /* an integer as it is */
    WL_TEXT = 1,   /* an id as a byte array of its 8 characters */
    WL_NUMBER = 2, /* an id as int32: its number modulo 40,000,000 */
    WL_WHOLE = 3   /* as WL_TEXT, decoded to its 32 bits instead of modulo 40,000,000 */
};

/* A column chunk: a dictionary page (empty for plain values) and one data page. Values that are
 * nearly all different, or few, are smaller without a dictionary. */
typedef struct {
    uint64_t dictionary_bytes;
    uint64_t data_bytes;
    uint32_t dictionary_count;
    uint32_t null_count;
    int32_t least; /* of the values of WL_INT32; both 0 without one */
    int32_t most;
} wl_column;

/* Bytes that each page of `rows` rows may need, and that `scratch` needs. */
WL_API uint64_t wl_column_page_bytes(uint32_t rows);
WL_API uint64_t wl_column_scratch_bytes(uint32_t rows);
WL_API void wl_column_encode(const uint64_t *cells, uint32_t rows, int32_t kind, uint8_t *scratch,
                             uint8_t *dictionary, uint8_t *data, wl_column *column);

/* Decodes pages of any writer to packed int32 (see wl_tsv_pack). A dictionary page of `count`
 * values becomes `values`; a data page of `count` rows becomes `packed`, from `values` if it has
 * indices (else NULL), and its missing values are added to `null_count`. `scratch` has room for
 * 2 x count + 1 numbers. WL_OK, or WL_BAD_PAGE; WL_BAD_ID for text that is not 8 hex digits. */
WL_API int32_t wl_dictionary_decode(const uint8_t *page, size_t bytes, uint32_t count, int32_t kind,
                                    int32_t *values);
WL_API int32_t wl_data_decode(const uint8_t *page, size_t bytes, uint32_t count, int32_t kind,
                              int32_t is_optional, const int32_t *values, uint32_t value_count,
                              uint32_t *scratch, int32_t *packed, uint32_t *null_count);
/* Rows of 40 int32 from columns that are `stride` apart. */
WL_API void wl_rows_pack(const int32_t *columns, size_t stride, uint32_t rows, int32_t *packed);

/* A load on the host: threads that copy memory and compute, each pinned to one CPU with buffers of
 * its own, which it touches first. Its work is counted in copied bytes (each is read once and
 * written once) and in units of 1024 rounds of integer arithmetic. */
typedef struct wl_load wl_load;

enum {
    WL_LOAD_STOP = 0,
    WL_LOAD_COPY = 1,   /* every thread copies as fast as it can */
    WL_LOAD_COMPUTE = 2, /* every thread computes as fast as it can */
    WL_LOAD_QUOTAS = 3  /* so much per thread and period; what is missed is not made up for */
};

typedef struct {
    uint32_t struct_bytes; /* sizeof(wl_load_setup) */
    uint32_t threads;      /* 1 to 65536 */
    uint32_t period_us;    /* 1000 to 1000000 */
    uint32_t reserved;
    uint64_t thread_bytes; /* both buffers of a thread, at least 256 KiB */
    const uint32_t *cpus;  /* of each thread */
} wl_load_setup;

/* Over all threads since the load was opened; `due_` is what the quotas of the periods asked for
 * that have begun. May be read at any time. */
typedef struct {
    uint64_t time_ns; /* CLOCK_MONOTONIC */
    uint64_t copied_bytes;
    uint64_t due_bytes;
    uint64_t units;
    uint64_t due_units;
} wl_load_counts;

/* How this CPU copies, in words. */
WL_API const char *wl_load_copier(void);
/* Returns when all threads wait with their buffers touched; WL_OK, WL_BAD_SETUP or an errno. */
WL_API int32_t wl_load_open(const wl_load_setup *setup, wl_load **opened, wl_error *error);
/* The quotas count with WL_LOAD_QUOTAS only; `copy_bytes` is rounded down to a multiple of 128. */
WL_API void wl_load_set(wl_load *load, uint32_t mode, uint64_t copy_bytes, uint64_t units);
WL_API void wl_load_read(const wl_load *load, wl_load_counts *total);
/* Ends the threads, within a period. */
WL_API void wl_load_close(wl_load *load);

/* For how long this process did not run since the first call of wl_heartbeat_start, by a thread that
 * should wake up every 50 ms: by lateness over 250 ms. A forked process has no such thread. */
WL_API int32_t wl_heartbeat_start(wl_error *error);
WL_API uint64_t wl_heartbeat_missed_ns(void);

/* Parses a plan and discards it: for tests and fuzzing. */
WL_API int32_t wl_plan_check(const uint8_t *plan, size_t plan_bytes, wl_error *error);

#endif
