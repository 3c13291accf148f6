/* Pollers: they take requests from their queue pairs and answer them, at once or when a drive has.
 *
 * A poller spins: a request of a GPU can't wake it. It sleeps in the kernel only while all requesters
 * that could ask it wait for the drive. */
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "queue.h"

enum { FAULT_EVERY = 1000 };
enum { BURST = 256, ENTRY_LIMIT = 4096, SPINS = 1000, PIECE_LIMIT = 64 };
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

static bool has_fault(const wl_queue *queue, uint32_t fault, uint64_t number) {
    return queue->fault == fault && number % FAULT_EVERY == FAULT_EVERY - 1;
}

static void answer(wl_queue *queue, uint32_t slot, uint32_t generation, uint32_t code) {
    uint32_t word = generation << WL_ERRNO_BITS | code;
    atomic_store_explicit(&queue->completions[slot], word, memory_order_release);
}

static void count_failure(wl_queue *queue, const wl_pair *pair, uint64_t block, int32_t code) {
    pthread_mutex_lock(&queue->mutex);
    uint32_t i = 0;
    while (i < WL_FAILURES - 1 && queue->failures[i].count &&
           (queue->failures[i].code != code || queue->failures[i].target != pair->target))
        i++;
    wl_queue_failure *failure = &queue->failures[i];
    if (!failure->count++) {
        failure->code = code;
        failure->target = pair->target;
        failure->offset = block * queue->block_bytes;
    }
    pthread_mutex_unlock(&queue->mutex);
}

static void end_read(wl_queue_poller *poller, uint32_t slot, int32_t result, uint64_t now_ns) {
    wl_queue *queue = poller->queue;
    wl_flight flight = queue->flights[slot];
    wl_pair *pair = &queue->all_pairs[flight.pair];
    uint32_t code = 0;
    poller->inflight--;
    if (result < 0)
        code = (uint32_t)-result & WL_ERRNO_MASK;
    else if ((uint32_t)result != queue->slot_bytes)
        code = SHORT_READ;
    if (code) {
        count_failure(queue, pair, flight.block, result < 0 ? -result : WL_SHORT_READ);
    } else {
        uint64_t latency_ns = now_ns - flight.start_ns;
        pair->operations++;
        pair->latency_sum_ns += latency_ns;
        if (latency_ns < pair->latency_min_ns)
            pair->latency_min_ns = latency_ns;
        if (latency_ns > pair->latency_max_ns)
            pair->latency_max_ns = latency_ns;
        pair->counts[wl_bucket(latency_ns)]++;
        if (wl_trace_takes(&poller->trace, flight.number))
            wl_trace_add(&poller->trace, flight.number,
                         (wl_trace_row){.submit_ns = flight.start_ns,
                                        .offset = flight.block * queue->block_bytes,
                                        .latency_ns = latency_ns < UINT32_MAX
                                                          ? (uint32_t)latency_ns
                                                          : UINT32_MAX,
                                        .file = pair->target});
    }
    if (has_fault(queue, WL_FAULT_TWICE, flight.number))
        pair->operations++;
    if (!has_fault(queue, WL_FAULT_LOST, flight.number))
        answer(queue, slot, flight.generation, code);
}

static void queue_read(wl_queue_poller *poller, wl_pair *pair, wl_request request,
                       uint64_t now_ns, uint64_t number) {
    wl_queue *queue = poller->queue;
    uint32_t tail = atomic_load_explicit(poller->ring.sq_tail, memory_order_relaxed);
    uint64_t offset = request.block * queue->block_bytes;
    uint8_t *slot = queue->slots + (size_t)request.slot * queue->slot_bytes;
    queue->flights[request.slot] = (wl_flight){
        .block = request.block,
        .start_ns = now_ns,
        .number = number,
        .generation = request.generation,
        .pair = (uint32_t)(pair - queue->all_pairs),
    };
    poller->ring.sqes[tail & poller->ring.sq_mask] = (wl_sqe){
        .opcode = WL_URING_READ_FIXED,
        .flags = WL_SQE_FIXED_FILE,
        .fd = (int32_t)pair->target,
        .off = offset / queue->slot_bytes * queue->slot_bytes,
        .addr = (uint64_t)(uintptr_t)slot,
        .len = queue->slot_bytes,
        .buf_index = (uint16_t)((uint64_t)(slot - queue->slots) / WL_PIECE_BYTES),
        .user_data = request.slot,
    };
    atomic_store_explicit(poller->ring.sq_tail, tail + 1, memory_order_release);
    poller->queued++;
    poller->inflight++;
}

/* Takes what has been asked of one pair, and answers it if no drive is needed; returns how much. */
static uint32_t take(wl_queue_poller *poller, wl_pair *pair) {
    wl_queue *queue = poller->queue;
    bool is_read = queue->delivery == WL_DELIVER_SLOT;
    uint32_t size = queue->size, room = is_read ? poller->entries - poller->inflight : BURST;
    uint32_t limit = room < BURST ? room : BURST, taken = 0;
    uint64_t now_ns = 0, first = wl_own(&poller->taken);
    for (; taken < limit; taken++, pair->tail++) {
        uint32_t place = pair->tail & (size - 1);
        uint32_t lap = atomic_load_explicit(&pair->laps[place], memory_order_acquire);
        if (lap != pair->tail / size + 1)
            break;
        wl_request request = pair->requests[place];
        uint64_t number = first + taken;
        if (has_fault(queue, WL_FAULT_SWAPPED, number))
            request.block ^= 1;
        if (is_read) {
            now_ns = now_ns ? now_ns : wl_now_ns();
            queue_read(poller, pair, request, now_ns, number);
        } else if (!has_fault(queue, WL_FAULT_LOST, number)) {
            answer(queue, request.slot, request.generation, 0);
        }
    }
    if (!is_read)
        pair->operations += taken;
    return taken;
}

/* Submits what is queued and lets the kernel work on completions; sleeps with `wait` 1. */
static bool hand_over(wl_queue_poller *poller, uint32_t wait) {
    uint64_t before_ns = wait ? wl_now_ns() : 0;
    int taken = wl_ring_enter(&poller->ring, poller->queued, wait, NAP_NS);
    if (wait)
        poller->idle_ns += wl_now_ns() - before_ns;
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

static uint32_t reap(wl_queue_poller *poller) {
    uint32_t head = atomic_load_explicit(poller->ring.cq_head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(poller->ring.cq_tail, memory_order_acquire);
    uint32_t count = tail - head;
    uint64_t now_ns = count ? wl_now_ns() : 0;
    for (; head != tail; head++) {
        const wl_cqe *cqe = &poller->ring.cqes[head & poller->ring.cq_mask];
        end_read(poller, (uint32_t)cqe->user_data, cqe->res, now_ns);
    }
    atomic_store_explicit(poller->ring.cq_head, head, memory_order_release);
    return count;
}

/* Time without anything to do. The clock is read only in passes after one that found nothing. */
static void note_pass(wl_queue_poller *poller, bool is_empty, uint64_t start_ns) {
    if (poller->empty_passes)
        poller->idle_ns += start_ns - poller->idle_since_ns;
    poller->empty_passes = is_empty ? poller->empty_passes + 1 : 0;
    poller->idle_since_ns = start_ns;
    if (is_empty && !start_ns)
        poller->idle_since_ns = wl_now_ns();
}

/* All requesters of a poller's targets that wait for a drive can't ask anything meanwhile. */
static bool all_wait(const wl_queue_poller *poller) {
    return poller->inflight && poller->inflight == wl_slot_count(poller->queue);
}

static bool pass(wl_queue_poller *poller) {
    uint32_t taken = 0, answered = 0;
    uint64_t start_ns = poller->empty_passes ? wl_now_ns() : 0;
    for (uint32_t i = 0; i < poller->pair_count; i++)
        taken += take(poller, poller->pairs[i]);
    if (poller->inflight) {
        bool is_patient = poller->empty_passes > SPINS;
        if (!hand_over(poller, all_wait(poller) || is_patient))
            return false;
        answered = reap(poller);
    } else {
        answered = taken;
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
    uint64_t start_ns = wl_now_ns();
    poller->idle_ns = poller->empty_passes = 0;
    while (atomic_load_explicit(&queue->is_serving, memory_order_acquire))
        if (!pass(poller))
            break;
    note_pass(poller, false, wl_now_ns());
    wl_set(&poller->busy_ns, wl_now_ns() - start_ns - poller->idle_ns);
    /* A read that a drive does not end keeps its memory: it is waited for, and the run is not. */
    while (poller->inflight && !atomic_load_explicit(&queue->is_leaving, memory_order_acquire))
        if (!hand_over(poller, 1) || !reap(poller))
            sched_yield();
}

static bool register_all(wl_queue_poller *poller) {
    wl_queue *queue = poller->queue;
    struct iovec pieces[PIECE_LIMIT];
    int32_t files[WL_FIXED_FILES_LIMIT];
    uint64_t bytes = (uint64_t)wl_slot_count(queue) * queue->slot_bytes;
    uint32_t count = 0;
    for (uint64_t at = 0; at < bytes; at += WL_PIECE_BYTES, count++)
        pieces[count] = (struct iovec){
            .iov_base = queue->slots + at,
            .iov_len = bytes - at < WL_PIECE_BYTES ? bytes - at : WL_PIECE_BYTES};
    for (uint32_t i = 0; i < queue->target_count; i++)
        files[i] = queue->files[i].fd;
    return !wl_ring_register(&poller->ring, WL_REG_BUFFERS, pieces, count) &&
           !wl_ring_register(&poller->ring, WL_REG_FILES, files, queue->target_count);
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
    if (!register_all(poller))
        return wl_fail(error, WL_UNAVAILABLE, NULL, WL_NOWHERE,
                       "io_uring does not register %u slots of %u bytes: RLIMIT_MEMLOCK", most,
                       queue->slot_bytes);
    return WL_OK;
}

void *wl_queue_poller_main(void *argument) {
    wl_queue_poller *poller = argument;
    wl_queue *queue = poller->queue;
    wl_error error;
    if (queue->engine == WL_QUEUE_STORAGE && open_ring(poller, &error))
        wl_queue_fail(queue, &error);
    pthread_mutex_lock(&queue->mutex);
    while (!atomic_load_explicit(&queue->is_leaving, memory_order_relaxed)) {
        queue->ready_pollers++;
        pthread_cond_broadcast(&queue->changed);
        while (!atomic_load_explicit(&queue->is_serving, memory_order_relaxed) &&
               !atomic_load_explicit(&queue->is_leaving, memory_order_relaxed))
            pthread_cond_wait(&queue->changed, &queue->mutex);
        pthread_mutex_unlock(&queue->mutex);
        serve(poller);
        pthread_mutex_lock(&queue->mutex);
    }
    pthread_mutex_unlock(&queue->mutex);
    if (poller->has_ring)
        wl_ring_close(&poller->ring);
    return NULL;
}
