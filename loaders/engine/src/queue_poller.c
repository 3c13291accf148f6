/* Pollers: they take requests from their queue pairs and answer them, at once or when a drive
 * has.
 *
 * A poller spins: a request of a GPU can't wake it. It sleeps in the kernel while its ring is full,
 * and for 50 us at a time after many passes that found nothing. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "queue.h"

enum { FAULT_EVERY = 64 }; /* the slots of the smallest test: a fault is among the first requests */
enum { BURST = 256, ENTRY_LIMIT = 32768, SPINS = 1000 }; /* a ring has at most 32768 entries */
/* For so long a poller may sleep in the kernel without an answer of the drive. */
enum { NAP_NS = 50000 };
/* The 12 bits of a completion word for a read that ended early: no errno of the kernel. */
enum { SHORT_READ = WL_ERRNO_MASK };

static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void wl_queue_fail(wl_queue *queue, const wl_error *error) {
    pthread_mutex_lock(&queue->mutex);
    if (!queue->error.code)
        queue->error = *error;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

static uint32_t fault_of(const wl_queue *queue, const wl_pair *pair) {
    bool answers = queue->fault == WL_FAULT_SILENT && pair->target + 1 < queue->target_count;
    return answers ? WL_FAULT_NONE : queue->fault;
}

static bool has_fault(uint32_t fault, uint64_t number) {
    if (!fault)
        return false;
    return fault == WL_FAULT_SILENT ? number >= FAULT_EVERY - 1
                                    : number % FAULT_EVERY == FAULT_EVERY - 1;
}

/* Completes a request; returns how many answers that counts as, 1 without a fault. */
static inline uint32_t answer(_Atomic uint32_t *completions, wl_request request, uint32_t code,
                              uint32_t fault, uint64_t number) {
    bool is_faulty = has_fault(fault, number);
    if (is_faulty && (fault == WL_FAULT_LOST || fault == WL_FAULT_SILENT))
        return 0;
    atomic_store_explicit(&completions[request.slot], request.generation << WL_ERRNO_BITS | code,
                          memory_order_release);
    return is_faulty && fault == WL_FAULT_TWICE ? 2 : 1;
}

static void count_failure(wl_queue *queue, const wl_pair *pair, uint64_t block, int32_t code) {
    pthread_mutex_lock(&queue->mutex);
    wl_count_failure(queue->failures, code, pair->target,
                     queue->files[pair->target].first_byte + block * queue->block_bytes);
    pthread_mutex_unlock(&queue->mutex);
}

static void count_read(wl_queue_poller *poller, wl_pair *pair, const wl_flight *flight,
                       uint64_t now_ns) {
    uint64_t latency_ns = now_ns - flight->start_ns;
    wl_add_latency(&pair->reads.latencies, latency_ns);
    if (!flight->is_traced)
        return;
    uint32_t short_ns = latency_ns < UINT32_MAX ? (uint32_t)latency_ns : UINT32_MAX;
    wl_trace_add(&poller->trace, flight->number,
                 (wl_trace_row){.submit_ns = flight->start_ns,
                                .offset = flight->request.block * poller->queue->block_bytes,
                                .latency_ns = short_ns,
                                .file = pair->target});
}

static uint32_t end_read(wl_queue_poller *poller, uint32_t slot, int32_t result, uint64_t now_ns) {
    wl_queue *queue = poller->queue;
    wl_flight flight = queue->flights[slot];
    wl_pair *pair = &queue->all_pairs[flight.pair];
    uint32_t code = 0;
    if (result < 0)
        code = (uint32_t)-result & WL_ERRNO_MASK;
    else if ((uint32_t)result < flight.needed_bytes)
        code = SHORT_READ;
    if (code)
        count_failure(queue, pair, flight.request.block, result < 0 ? -result : WL_SHORT_READ);
    else
        count_read(poller, pair, &flight, now_ns);
    /* From here on the slot may be asked for again, and its flight be another poller's. */
    uint32_t count = answer(queue->completions, flight.request, code, fault_of(queue, pair),
                            flight.number);
    if (!code) {
        pair->reads.operations += count;
        pair->reads.read_bytes += flight.read_bytes;
    }
    wl_count(&pair->answered, count);
    return count;
}

static void queue_read(wl_queue_poller *poller, wl_pair *pair, wl_request request,
                       uint64_t now_ns) {
    wl_queue *queue = poller->queue;
    uint32_t tail = atomic_load_explicit(poller->ring.sq_tail, memory_order_relaxed);
    const wl_queue_file *file = &queue->files[pair->target];
    uint64_t number = poller->number++;
    uint64_t offset = file->first_byte + request.block * queue->block_bytes;
    uint8_t *slot = queue->slots + (size_t)request.slot * queue->slot_bytes;
    if (queue->fault == WL_FAULT_SWAPPED && has_fault(queue->fault, number))
        offset ^= queue->slot_bytes;
    uint64_t start = offset & ~(file->align - 1);
    uint64_t end = wl_round_up(offset + queue->block_bytes, file->align);
    uint64_t needed = (end < file->end_byte ? end : file->end_byte) - start;
    queue->flights[request.slot] = (wl_flight){
        .request = request,
        .start_ns = now_ns,
        .number = number,
        .pair = (uint32_t)(pair - queue->all_pairs),
        .read_bytes = (uint32_t)(end - start),
        .needed_bytes = (uint32_t)needed,
        .is_traced = wl_trace_takes(&poller->trace, number),
    };
    poller->ring.sqes[tail & poller->ring.sq_mask] = (wl_sqe){
        .opcode = WL_URING_READ_FIXED,
        .flags = WL_SQE_FIXED_FILE,
        .fd = (int32_t)pair->target,
        .off = start,
        .addr = (uint64_t)(uintptr_t)slot,
        .len = (uint32_t)(end - start),
        .buf_index = (uint16_t)((uint64_t)(slot - queue->slots) / WL_PIECE_BYTES),
        .user_data = request.slot,
    };
    atomic_store_explicit(poller->ring.sq_tail, tail + 1, memory_order_release);
    poller->queued++;
    poller->inflight++;
}

/* Warps submit 32 requests at once, in 8 cache lines that the requester has written. */
static inline void prefetch_warp(const wl_request *first) {
    for (uint32_t i = 0; i < WL_WARP; i += WL_QUEUE_LINE / sizeof *first)
        __builtin_prefetch(first + i);
}

/* Takes what has been asked of a pair and queues its reads; returns how much. */
static uint32_t take_reads(wl_queue_poller *poller, wl_pair *pair) {
    uint32_t room = poller->entries - poller->inflight, taken = 0;
    uint32_t limit = room < BURST ? room : BURST;
    uint64_t now_ns = 0;
    for (; taken < limit && wl_is_asked(pair, pair->tail); taken++, pair->tail++) {
        now_ns = now_ns ? now_ns : wl_now_ns();
        queue_read(poller, pair, pair->requests[pair->tail & pair->mask], now_ns);
    }
    if (taken)
        wl_count(&pair->taken, taken);
    return taken;
}

/* The same without a drive: each request is answered at once. This loop is the ceiling of the
 * queue; it holds all it needs in registers. */
static uint32_t answer_at_once(wl_queue_poller *poller, wl_pair *pair, uint32_t *answered) {
    const wl_request *requests = pair->requests;
    _Atomic uint32_t *completions = poller->queue->completions;
    uint32_t fault = fault_of(poller->queue, pair), mask = pair->mask;
    uint32_t first = pair->tail, tail = first, count = 0;
    uint64_t number = poller->number;
    for (; tail - first < BURST && wl_is_asked(pair, tail); tail++, number++) {
        uint32_t place = tail & mask;
        if (place % WL_WARP == 0)
            prefetch_warp(requests + place);
        count += answer(completions, requests[place], 0, fault, number);
    }
    pair->tail = tail;
    poller->number = number;
    if (tail != first) {
        pair->reads.operations += count;
        wl_count(&pair->taken, tail - first);
        wl_count(&pair->answered, count);
    }
    *answered += count;
    return tail - first;
}

/* Submits what is queued and lets the kernel work on completions. If it `may_sleep`, for NAP_NS at
 * most: a kernel before 5.11 takes no limit, and would sleep through the end of a run. */
static bool hand_over(wl_queue_poller *poller, bool may_sleep) {
    bool sleeps = may_sleep && poller->ring.features & WL_FEATURE_EXT_ARG;
    uint64_t before_ns = sleeps ? wl_now_ns() : 0;
    int taken = wl_ring_enter(&poller->ring, poller->queued, sleeps, NAP_NS);
    if (sleeps)
        poller->slept_ns += wl_now_ns() - before_ns;
    if (taken >= 0) {
        poller->queued -= (uint32_t)taken;
        return true;
    }
    if (taken == -EINTR || taken == -EAGAIN || taken == -EBUSY || taken == -ETIME)
        return true;
    wl_error error;
    wl_fail(&error, -taken, NULL, WL_NOWHERE, "io_uring_enter");
    wl_queue_fail(poller->queue, &error);
    return false;
}

/* Ends the reads that the kernel has completed; returns how many answers were given. */
static uint32_t reap(wl_queue_poller *poller, bool answers) {
    uint32_t head = atomic_load_explicit(poller->ring.cq_head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(poller->ring.cq_tail, memory_order_acquire);
    uint64_t now_ns = head != tail ? wl_now_ns() : 0;
    uint32_t count = 0;
    poller->inflight -= tail - head;
    for (; answers && head != tail; head++) {
        const wl_cqe *cqe = &poller->ring.cqes[head & poller->ring.cq_mask];
        count += end_read(poller, (uint32_t)cqe->user_data, cqe->res, now_ns);
    }
    atomic_store_explicit(poller->ring.cq_head, tail, memory_order_release);
    return count;
}

/* Time without anything to do: all of an empty pass, and of another the time asleep. The clock is
 * read only in passes after an empty one: `start_ns` is 0 in the others. */
static void note_pass(wl_queue_poller *poller, bool is_empty, uint64_t start_ns) {
    if (poller->empty_passes)
        poller->idle_ns += start_ns - poller->idle_since_ns;
    if (!is_empty || !start_ns)
        poller->idle_ns += poller->slept_ns;
    poller->slept_ns = 0;
    poller->empty_passes = is_empty ? poller->empty_passes + 1 : 0;
    poller->idle_since_ns = is_empty && !start_ns ? wl_now_ns() : start_ns;
}

/* Takes from every pair in turn. Each pass begins with another one, so that none is left waiting
 * where a ring has fewer entries than there are requesters. */
static uint32_t take(wl_queue_poller *poller, uint32_t *answered) {
    bool reads = poller->queue->delivery == WL_DELIVER_SLOT;
    uint32_t taken = 0, at = poller->first_pair;
    for (uint32_t i = 0; i < poller->pair_count; i++) {
        wl_pair *pair = poller->pairs[at];
        taken += reads ? take_reads(poller, pair) : answer_at_once(poller, pair, answered);
        at = at + 1 < poller->pair_count ? at + 1 : 0;
    }
    poller->first_pair = at + 1 < poller->pair_count ? at + 1 : 0;
    return taken;
}

static bool pass(wl_queue_poller *poller) {
    uint64_t start_ns = poller->empty_passes ? wl_now_ns() : 0;
    uint32_t answered = 0, taken = take(poller, &answered);
    if (poller->inflight) {
        /* With its ring full it can take nothing before the drive answers. */
        bool is_full = poller->inflight == poller->entries;
        if (!hand_over(poller, is_full || poller->empty_passes > SPINS))
            return false;
        answered = reap(poller, true);
    }
    if (taken)
        wl_count(&poller->taken, taken);
    if (answered)
        wl_count(&poller->answered, answered);
    note_pass(poller, !taken && !answered, start_ns);
    if (poller->empty_passes)
        relax();
    if (poller->empty_passes && poller->empty_passes % SPINS == 0)
        sched_yield(); /* to a requester, where both share a CPU */
    return true;
}

static void serve(wl_queue_poller *poller) {
    wl_queue *queue = poller->queue;
    uint64_t start_ns = wl_now_ns(), start_cpu_ns = wl_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    poller->idle_ns = poller->slept_ns = poller->empty_passes = 0;
    while (atomic_load_explicit(&queue->is_serving, memory_order_acquire))
        if (!pass(poller))
            break;
    uint64_t end_ns = wl_now_ns();
    note_pass(poller, false, poller->empty_passes ? end_ns : 0);
    /* The kernel may keep it asleep in a submission, until the drive's queue has room again. */
    uint64_t active_ns = end_ns - start_ns - poller->idle_ns;
    uint64_t cpu_ns = wl_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_cpu_ns;
    wl_set(&poller->busy_ns, cpu_ns < active_ns ? cpu_ns : active_ns);
    wl_set(&poller->cpu_ns, cpu_ns);
}

/* Reads in flight at the end of a stage that failed. They keep the memory of their slots, so
 * they are waited for, until the queue is closed: the kernel holds pages that a drive may still
 * write to. Their requesters have left, and the stage's figures are read meanwhile. */
static void drain(wl_queue_poller *poller) {
    while (poller->inflight &&
           !atomic_load_explicit(&poller->queue->is_leaving, memory_order_acquire)) {
        if (!hand_over(poller, true))
            return;
        reap(poller, false);
    }
}

static int register_all(wl_queue_poller *poller) {
    wl_queue *queue = poller->queue;
    struct iovec pieces[WL_QUEUE_PIECES];
    int32_t files[WL_FIXED_FILES_LIMIT];
    uint64_t bytes = (uint64_t)wl_slot_count(queue) * queue->slot_bytes;
    uint32_t count = 0;
    for (uint64_t at = 0; at < bytes; at += WL_PIECE_BYTES, count++)
        pieces[count] = (struct iovec){
            .iov_base = queue->slots + at,
            .iov_len = bytes - at < WL_PIECE_BYTES ? bytes - at : WL_PIECE_BYTES};
    for (uint32_t i = 0; i < queue->target_count; i++)
        files[i] = queue->files[i].fd;
    int code = wl_ring_register(&poller->ring, WL_REG_BUFFERS, pieces, count);
    return code ? code
                : wl_ring_register(&poller->ring, WL_REG_FILES, files, queue->target_count);
}

/* On the poller's own thread: the kernel takes submissions from the ring's maker alone. */
static int32_t open_ring(wl_queue_poller *poller, wl_error *error) {
    wl_queue *queue = poller->queue;
    uint32_t most = wl_slot_count(queue);
    poller->entries = most < ENTRY_LIMIT ? most : ENTRY_LIMIT;
    int code = wl_ring_open(&poller->ring, poller->entries);
    if (code)
        return wl_fail(error, WL_UNAVAILABLE, NULL, WL_NOWHERE, "io_uring_setup failed: %s",
                       strerror(-code));
    poller->has_ring = true;
    code = register_all(poller);
    if (code == -ENOMEM)
        return wl_fail(error, WL_NOT_PINNED, NULL, (uint64_t)most * queue->slot_bytes,
                       "io_uring, for each of %u pollers: RLIMIT_MEMLOCK", queue->poller_count);
    return code ? wl_fail(error, WL_UNAVAILABLE, NULL, WL_NOWHERE,
                          "io_uring does not register %u slots of %u bytes: %s", most,
                          queue->slot_bytes, strerror(-code))
                : WL_OK;
}

void *wl_queue_poller_main(void *argument) {
    wl_queue_poller *poller = argument;
    wl_queue *queue = poller->queue;
    wl_error error;
    uint32_t stage = 0;
    if (queue->engine == WL_QUEUE_STORAGE && open_ring(poller, &error))
        wl_queue_fail(queue, &error);
    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        queue->parked_pollers++;
        pthread_cond_broadcast(&queue->changed);
        pthread_mutex_unlock(&queue->mutex);
        drain(poller);
        pthread_mutex_lock(&queue->mutex);
        /* By its number: a short stage may be over before this thread wakes. */
        while (queue->stage_number == stage && !queue->is_leaving)
            pthread_cond_wait(&queue->changed, &queue->mutex);
        if (queue->is_leaving)
            break;
        stage = queue->stage_number;
        pthread_mutex_unlock(&queue->mutex);
        serve(poller);
        pthread_mutex_lock(&queue->mutex);
    }
    pthread_mutex_unlock(&queue->mutex);
    if (poller->has_ring)
        wl_ring_close(&poller->ring);
    return NULL;
}
