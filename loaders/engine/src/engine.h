/* Types shared by the engine's files: engine, job, a poller's share of a job, poller.
 *
 * Who may touch what: the engine's mutex guards its list of jobs and the fields that say so; a
 * job's two guard the opening of its files and its outcome; everything else of a poller, of its
 * operations and of its share of a job belongs to that poller's thread alone. No lock is taken
 * per operation. */
#ifndef WL_ENGINE_H
#define WL_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "backend.h"
#include "files.h"
#include "pattern.h"
#include "stamps.h"
#include "trace.h"
#include "workers.h"

typedef struct wl_poller wl_poller;

/* One poller's part of one job. Written by that poller; others read it when the job is done, and
 * what is atomic at any time. */
typedef struct wl_share {
    wl_job *job;
    uint32_t inflight; /* operations and syncs that are not finished */
    bool issuing;      /* the poller may still take operations */
    bool used;
    uint64_t cpu_start_ns, cpu_ns;
    uint64_t last_io_ns, bad_blocks, compared_bytes, synced_files;
    uint64_t open_ns, opened_files; /* of opening and closing; see wl_result */
    wl_trace trace;
    _Atomic uint64_t bytes, operations;
    _Atomic uint64_t latency_sum_ns, latency_min_ns, latency_max_ns;
    _Atomic uint64_t counts[WL_BUCKETS];
} wl_share;

/* What is left to do once no poller issues operations any more. */
typedef enum { WL_MOVING, WL_SETTLING, WL_SYNCING_FOLDERS, WL_ENDED } wl_stage;

struct wl_job {
    wl_engine *engine;
    wl_plan plan;
    wl_pattern pattern;
    uint64_t total; /* operations; UINT64_MAX without an end */
    uint32_t chunk; /* operations that a poller takes at a time */
    uint32_t batch; /* operations that it hands over together, while others are in flight */
    uint32_t push;  /* operations at which it hands over what it has prepared so far */
    uint32_t share_count;
    wl_file *files, *folders;
    uint32_t folder_count;
    bool is_one_pass, is_diskless, fixes_files;
    uint64_t first_serial; /* of its files, unique in the engine */

    _Atomic uint64_t next;       /* the number of the next operation */
    _Atomic uint64_t paced;      /* bytes issued, of a plan with a rate */
    _Atomic bool halted;         /* nothing more is issued */
    _Atomic bool is_done;

    /* under the engine's mutex */
    wl_job *link;
    bool listed;
    uint32_t users;
    uint64_t serial, start_ns, deadline_ns;
    uint64_t workers_start_ns;

    wl_stage stage; /* of the one poller that ends the job */

    uint32_t extending_files; /* under `opening` */
    pthread_mutex_t opening; /* held as long as the file system takes */
    pthread_mutex_t mutex;   /* of what follows; never held for long */
    pthread_cond_t done;
    uint64_t end_ns, workers_ns;
    bool stopped;
    wl_error error;

    wl_trace_row *rows; /* merged on first request */
    uint64_t row_count;
    wl_share shares[];
};

typedef struct {
    wl_share *share;
    wl_file *file;
    const wl_extent *extent;
    uint8_t *memory;
    uint64_t offset; /* of the block in its file */
    uint64_t number; /* of the operation in its job */
    uint64_t due_ns;    /* under a rate limit, else 0 */
    uint64_t submit_ns; /* 0 until it is first submitted */
    uint32_t length;    /* payload bytes */
    uint32_t requested; /* length, rounded up to the alignment */
    uint32_t moved;     /* of `requested`, by earlier partial results */
    uint32_t region;
    uint16_t retries;
    uint8_t kind; /* WL_READ, WL_WRITE, WL_OP_SYNC */
    bool traced;
} wl_op;

enum { WL_OP_SYNC = 2 };

struct wl_poller {
    wl_engine *engine;
    pthread_t thread;
    uint32_t number; /* among all threads */
    uint32_t member; /* among the threads of one poller of a synchronous backend */
    uint32_t depth;  /* operations it can hold */
    void *backend;   /* the backend's own */

    wl_op *ops;
    uint32_t *free_ops, free_count;
    uint32_t *queued, queued_count; /* to be handed over */
    uint32_t inflight;              /* operations in use, queued ones too */
    wl_done *done;
    uint64_t touched_bytes;         /* summed since operations were handed over last */
    uint64_t now_ns; /* when the last completions were seen */
    uint64_t charged_ns; /* of its CPU time: counted for some job */

    uint8_t *slots;
    wl_slot_sums sums;

    wl_share *share; /* of the job whose operations are being issued */
    uint64_t serial; /* the last job that was started */
    uint64_t chunk_next, chunk_end;
    wl_cursor cursor;
    bool is_holding; /* one operation is taken, but not due yet */
    uint32_t held;
    uint64_t held_due_ns;
    wl_file *sync_first, *sync_last; /* files to sync, waiting for a free operation */

    wl_facts facts;
    int32_t code;
    wl_error error;
};

struct wl_engine {
    const wl_backend_ops *backend;
    uint32_t depth, pollers, block_bytes, flags, region_count;
    int32_t signal;
    wl_region *regions;
    uint32_t thread_count;
    wl_poller *threads;
    wl_workers workers;

    pthread_mutex_t mutex;
    pthread_cond_t work;  /* new jobs, or the end */
    pthread_cond_t ready; /* a poller has opened its backend, or failed */
    uint32_t opened;
    bool closing;
    wl_job *first, *last; /* jobs with operations left to issue, oldest first */
    uint64_t serials, file_serials;
    uint64_t workers_charged_ns; /* of the workers' CPU time: counted for some job */
    _Atomic uint64_t newest; /* the serial of the last job submitted */
    _Atomic uint64_t filling; /* how often others have filled the slots */
    wl_facts facts;
};

static inline uint64_t wl_clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t wl_now_ns(void) { return wl_clock_ns(CLOCK_MONOTONIC); }

static inline uint64_t wl_own(_Atomic uint64_t *figure) {
    return atomic_load_explicit(figure, memory_order_relaxed);
}

/* Sets a figure that one thread writes and others read. Who reads the new value sees all that was
 * set before; on x86 that costs nothing. */
static inline void wl_set(_Atomic uint64_t *figure, uint64_t value) {
    atomic_store_explicit(figure, value, memory_order_release);
}

static inline void wl_count(_Atomic uint64_t *count, uint64_t more) {
    wl_set(count, wl_own(count) + more);
}

/* poller.c */
void *wl_poller_main(void *poller);
/* Submits what is queued, without waiting. */
void wl_push(wl_poller *poller);
/* The same if enough bytes were summed meanwhile, so that the device does not wait for the CPU. */
void wl_push_in_time(wl_poller *poller);

/* issue.c: what a poller submits next */
void wl_issue(wl_poller *poller);

static inline uint32_t wl_op_take(wl_poller *poller) {
    poller->inflight++;
    return poller->free_ops[--poller->free_count];
}

static inline void wl_op_free(wl_poller *poller, uint32_t index) {
    poller->inflight--;
    poller->free_ops[poller->free_count++] = index;
}

static inline void wl_op_queue(wl_poller *poller, uint32_t index) {
    poller->queued[poller->queued_count++] = index;
}

/* complete.c: completed operations */
void wl_complete(wl_poller *poller, wl_done done);

/* finish.c: the end of files and jobs */
int32_t wl_file_prepare(wl_share *share, wl_file *file);
void wl_share_release(wl_poller *poller, wl_share *share);
void wl_file_finish(wl_poller *poller, wl_share *share, wl_file *file);
void wl_sync_done(wl_poller *poller, wl_share *share, wl_file *file, int32_t result);

/* job.c */
void wl_job_fail(wl_job *job, const wl_error *error);
void wl_job_end(wl_job *job);

/* folders.c */
int wl_folders_find(wl_job *job);
void wl_folders_free(wl_job *job);

/* jobs.c: the engine's list */
void wl_jobs_add(wl_job *job);
bool wl_jobs_withdraw(wl_job *job); /* true if no poller had started it */
void wl_jobs_halt(wl_engine *engine);
wl_share *wl_jobs_join(wl_poller *poller);
uint64_t wl_jobs_workers_ns(wl_job *job); /* their CPU time that counts for a job that ends */
void wl_jobs_exhaust(wl_job *job);
bool wl_jobs_leave(wl_job *job); /* true for the last one to leave */

#endif
