/* Types shared by the parts of the queue: its memory, the pollers, and both kinds of requesters. */
#ifndef WL_QUEUE_H
#define WL_QUEUE_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "queue_abi.h"
#include "trace.h"
#include "uring.h"

enum { WL_QUEUE_LINE = 64 };
/* Of registered memory, of WL_PIECE_BYTES each: slots are a power of two, so none crosses two. */
enum { WL_QUEUE_PIECES = 64 };
enum { WL_QUEUE_TARGETS = 64 };

typedef struct wl_queue_poller wl_queue_poller;

/* Threads of the CPU that request, as many as there are in `count`. */
typedef struct {
    pthread_t *threads;
    uint32_t count, running;
    _Atomic uint32_t *heads; /* of all pairs */
    _Atomic uint32_t control, finished;
} wl_team;

/* A queue pair from its poller's side. */
typedef struct {
    _Alignas(WL_QUEUE_LINE) wl_request *requests;
    _Atomic uint32_t *laps;
    uint32_t tail; /* position of the next request; it wraps */
    uint32_t mask, shift; /* of the ring's size: the place of a position, and its lap less 1 */
    uint32_t target;
    _Atomic uint64_t taken, answered;
    wl_queue_reads reads;
} wl_pair;

/* The request of a slot while its read is in flight. */
typedef struct {
    wl_request request;
    uint64_t start_ns, number;
    uint32_t pair, read_bytes, needed_bytes; /* of its read, and of it up to the file's end */
    bool is_traced;
} wl_flight;

struct wl_queue_poller {
    _Alignas(WL_QUEUE_LINE) wl_queue *queue;
    pthread_t thread;
    wl_ring ring;
    bool has_ring;
    wl_pair **pairs;
    uint32_t pair_count, first_pair, entries, inflight, queued;
    uint64_t number; /* of the next request it takes */
    uint64_t idle_since_ns, idle_ns, slept_ns, empty_passes;
    wl_trace trace;
    _Atomic uint64_t taken, answered, busy_ns, cpu_ns;
};

/* Who asks. All of it is called by the thread that runs the queue. */
typedef struct {
    int32_t (*open)(wl_queue *queue, const wl_queue_setup *setup, wl_error *error);
    /* Starts all requesters on `queue->view`; `pulls` without the queue. */
    int32_t (*launch)(wl_queue *queue, bool pulls, wl_error *error);
    int32_t (*control)(wl_queue *queue, uint32_t word, wl_error *error);
    /* 1 when all requesters have returned, 0 before, -1 on an error. */
    int32_t (*poll)(wl_queue *queue, wl_error *error);
    /* After the end: the counts of all warps, and latencies of sampled requests added to
     * `counts`. */
    int32_t (*collect)(wl_queue *queue, wl_warp_counts *warps, uint64_t *counts, wl_error *error);
    /* The last block delivered to a requester. */
    int32_t (*output)(wl_queue *queue, uint32_t slot, uint8_t *block, wl_error *error);
    void (*close)(wl_queue *queue);
} wl_requesters;

extern const wl_requesters wl_gpu_requesters, wl_cpu_requesters;

/* Blocks follow each other from `first_byte` to `end_byte`. A read begins and ends at multiples of
 * `align`, but for one that the file's end cuts short. */
typedef struct {
    int fd;
    wl_source source;
    char *path;
    uint64_t first_byte, end_byte, align;
} wl_queue_file;

struct wl_queue {
    const wl_requesters *requesters;
    void *own; /* of the requesters */
    struct wl_gpu_base *gpu; /* NULL with requesters of the CPU */
    wl_team *team;           /* NULL with those of a GPU */
    uint32_t engine, pairs, size, warps_per_target, warps, target_count;
    uint32_t block_bytes, slot_bytes, trace_every;
    uint32_t timed_fault, fault; /* of the timed stage, and of the one that runs */
    uint32_t pattern;            /* of the timed stage */
    uint64_t duration_ns, ceiling_ns, hang_ns, first_number, table_bytes;
    cpu_set_t cpus;

    uint8_t *memory; /* a word, requests, laps, completions, slots */
    size_t memory_bytes;
    uint32_t *word; /* of requesters, for what they write to their control word */
    wl_request *requests;
    _Atomic uint32_t *laps, *completions;
    uint8_t *slots, *table;
    wl_queue_file *files;
    wl_flight *flights;
    wl_pair *all_pairs;
    uint32_t pair_count;
    wl_queue_poller *pollers;
    uint32_t poller_count, poller_threads;

    wl_queue_view view; /* of the requesters; complete but for the stage's own fields */
    wl_source table_source;

    uint32_t delivery; /* of the stage; set while there are no requesters */
    _Atomic uint32_t stage;
    _Atomic bool is_serving, is_leaving, is_stopped;
    uint64_t start_ns, deadline_ns;

    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t changed;
    uint32_t stage_number, parked_pollers;
    bool is_started;
    wl_error error;
    wl_queue_failure failures[WL_QUEUE_FAILURES];
    wl_trace_row *rows;
};

/* queue_poller.c */
void *wl_queue_poller_main(void *poller);
/* A poller can't go on. */
void wl_queue_fail(wl_queue *queue, const wl_error *error);

/* Opens everything and starts the pollers, for requesters that `warps` warps ask with: the setup
 * must be valid. `own` is theirs. A queue without a table has no `table_bytes`. */
int32_t wl_queue_make(const wl_queue_setup *setup, const wl_requesters *requesters, void *own,
                      uint32_t warps, wl_queue **made, wl_error *error);
/* Zeroed memory that a GPU can map; NULL and an error if there is none. */
uint8_t *wl_queue_map(size_t bytes, wl_error *error);

/* A stage: reset, pollers that serve, requesters that ask, pollers that park. */
void wl_queue_reset(wl_queue *queue);
void wl_queue_let_pollers(wl_queue *queue, bool serve);
void wl_queue_wait_for_pollers(wl_queue *queue);
/* First whoever is answered leaves, so that what is left open tells which target hangs; then the
 * others leave their waits, and pollers park. A poller may be inside the kernel, where a drive that
 * hangs keeps it, and a lost GPU does not leave: neither is waited for longer than a second. */
void wl_queue_abandon(wl_queue *queue);
/* Writes to the control word, and waits a second at most: 1 when all requesters have returned. */
int32_t wl_queue_leave(wl_queue *queue, uint32_t word, wl_error *error);
void wl_queue_nap(uint64_t ns);
/* By a requester of the CPU after so many passes in a row without an answer: others get the CPU.
 * It must sleep in the end. Linux may complete a failed read in a kernel thread, and its scheduler
 * was seen to leave that waiting for seconds beside threads that only yield (6.18). */
void wl_queue_give_way(uint32_t empty_passes);
/* Answers of each target, and when one was last seen. */
typedef struct {
    uint64_t seen[WL_QUEUE_TARGETS], seen_ns[WL_QUEUE_TARGETS];
} wl_queue_watch;

/* 1 when all requesters have returned, 0 before; -1 on an error: a poller can't go on, or a target that
 * has something to answer has not done so for too long. Without a watch none hangs. */
int32_t wl_queue_look(wl_queue *queue, wl_queue_watch *watch, wl_error *error);

/* What all pollers have done, and what failed. */
void wl_queue_add_pollers(wl_queue *queue, uint64_t *taken, uint64_t *answered, uint64_t *cpu_ns,
                          wl_queue_failure *failures);
/* The target with the most requests that pollers have taken and not answered. */
int32_t wl_queue_name_hanging(wl_queue *queue, wl_error *error);

/* Target `number` as requesters see it in this stage. */
wl_source wl_source_of(const wl_queue *queue, uint32_t number);

/* Whether a position of a pair holds a request. Loads of the request come after it. */
static inline bool wl_is_asked(const wl_pair *pair, uint32_t position) {
    uint32_t lap = atomic_load_explicit(&pair->laps[position & pair->mask], memory_order_acquire);
    return lap == (position >> pair->shift) + 1;
}

/* Counts a failed request among others of its target and code, where there is room for a row of its
 * own. */
static inline void wl_count_failure(wl_queue_failure *failures, int32_t code, uint32_t target,
                                    uint64_t offset) {
    uint32_t i = 0;
    while (i < WL_QUEUE_FAILURES - 1 && failures[i].count &&
           (failures[i].code != code || failures[i].target != target))
        i++;
    wl_queue_failure *failure = &failures[i];
    if (!failure->count++)
        *failure = (wl_queue_failure){code, target, offset, 1};
}

/* A requester of the CPU writes a request to a place that it has taken. */
static inline void wl_ask(const wl_pair *pair, uint32_t position, wl_request request) {
    pair->requests[position & pair->mask] = request;
    atomic_store_explicit(&pair->laps[position & pair->mask], (position >> pair->shift) + 1,
                          memory_order_release);
}

/* A thread on the CPUs of the queue, if it has any, that takes no signals: those are the caller's.
 * Returns an errno. */
int wl_queue_thread(const wl_queue *queue, pthread_t *thread, void *(*run)(void *), void *argument);

/* queue_cpu.c: `count` threads at most, no more than `most`. */
int32_t wl_team_open(wl_queue *queue, uint32_t count, uint32_t most, wl_error *error);
/* Starts them: number i runs `run` with the argument at `first` + i * `size`. */
int32_t wl_team_start(wl_queue *queue, void *(*run)(void *), void *first, size_t size,
                      wl_error *error);
/* A thread of the team is done. */
void wl_team_finish(wl_team *team);
/* The position of the next requests of a pair, which the caller takes. */
uint32_t wl_team_take(const wl_team *team, uint32_t pair, uint32_t count);
void wl_team_join(wl_team *team);
void wl_team_close(wl_queue *queue);
/* As wl_requesters says. */
int32_t wl_team_control(wl_queue *queue, uint32_t word, wl_error *error);
int32_t wl_team_poll(wl_queue *queue, wl_error *error);

static inline uint32_t wl_slot_count(const wl_queue *queue) { return queue->warps * WL_WARP; }

#endif
