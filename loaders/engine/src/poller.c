/* A poller thread: issue, hand over, look at what has completed; sleep while there is nothing. */
#include <sys/prctl.h>

#include "engine.h"

/* The longest wait for a completion while a new job could be begun meanwhile, and the longest for
 * an operation to become due while its job could be stopped. */
#define PATIENCE_NS 2000000u
#define NAP_NS 20000000u

/* Some 10 us of summing. */
#define PUSH_BYTES (256u << 10)

/* The processor's own prefetching has begun by then. */
#define FETCH_BYTES 2048u
#define LINE_BYTES 64u

static bool is_busy(const wl_poller *poller) {
    return poller->inflight > (poller->is_holding ? 1u : 0u);
}

/* Sleeps until a job has come; false if the engine closes and none is left. */
static bool wait_for_work(wl_poller *poller) {
    wl_engine *engine = poller->engine;
    pthread_mutex_lock(&engine->mutex);
    while (engine->serials == poller->serial && !engine->closing)
        pthread_cond_wait(&engine->work, &engine->mutex);
    bool is_there = engine->serials != poller->serial;
    pthread_mutex_unlock(&engine->mutex);
    return is_there;
}

static uint64_t time_left_ns(const wl_poller *poller) {
    uint64_t now_ns = wl_now_ns();
    uint64_t left = poller->held_due_ns > now_ns ? poller->held_due_ns - now_ns : 0;
    return left < NAP_NS ? left : NAP_NS;
}

static void nap(const wl_poller *poller) {
    struct timespec rest = {.tv_nsec = (long)time_left_ns(poller)};
    nanosleep(&rest, NULL);
}

static void set_submit_times(wl_poller *poller) {
    uint64_t now_ns = wl_now_ns();
    poller->touched_bytes = 0;
    for (uint32_t i = 0; i < poller->queued_count; i++) {
        wl_op *op = &poller->ops[poller->queued[i]];
        if (!op->submit_ns) /* else it is the rest of one */
            op->submit_ns = now_ns;
    }
}

void wl_push(wl_poller *poller) {
    if (!poller->engine->backend->push)
        return;
    set_submit_times(poller);
    poller->engine->backend->push(poller);
}

void wl_push_in_time(wl_poller *poller) {
    if (poller->touched_bytes >= PUSH_BYTES)
        wl_push(poller);
}

static uint32_t hand_over(wl_poller *poller) {
    uint64_t timeout_ns = WL_NO_TIMEOUT;
    if (poller->is_holding)
        timeout_ns = time_left_ns(poller);
    else if (!poller->share)
        timeout_ns = PATIENCE_NS;
    set_submit_times(poller);
    uint32_t count = poller->engine->backend->enter(poller, 1, timeout_ns);
    poller->now_ns = wl_now_ns();
    wl_workers_keep(&poller->engine->workers, poller->now_ns);
    return count;
}

/* Fetches the beginning of the block that is compared next into the cache. It was written by the
 * drive, and waiting for memory takes longer than adding it up. */
static void fetch(const wl_op *op) {
    if (op->kind != WL_READ || !(op->share->job->plan.flags & WL_CHECK))
        return;
    uint32_t bytes = op->length < FETCH_BYTES ? op->length : FETCH_BYTES;
    for (uint32_t at = 0; at < bytes; at += LINE_BYTES)
        __builtin_prefetch(op->memory + at);
}

/* Between two completions, blocks whose sums took long are issued again. */
static void complete_all(wl_poller *poller, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (i + 1 < count)
            fetch(&poller->ops[poller->done[i + 1].op]);
        wl_complete(poller, poller->done[i]);
        if (poller->touched_bytes >= PUSH_BYTES && i + 1 < count) {
            wl_issue(poller);
            wl_push_in_time(poller);
        }
    }
}

static void run(wl_poller *poller) {
    for (;;) {
        wl_issue(poller);
        if (is_busy(poller)) {
            complete_all(poller, hand_over(poller));
        } else if (poller->is_holding) {
            nap(poller);
        } else if (!poller->sync_first && !wait_for_work(poller)) {
            return;
        }
    }
}

void *wl_poller_main(void *argument) {
    wl_poller *poller = argument;
    wl_engine *engine = poller->engine;
    prctl(PR_SET_TIMERSLACK, 1); /* not 50 us late for an operation that is due */
    poller->code = engine->backend->open(poller, &poller->error);
    pthread_mutex_lock(&engine->mutex);
    engine->opened++;
    pthread_cond_signal(&engine->ready);
    pthread_mutex_unlock(&engine->mutex);
    if (!poller->code)
        run(poller);
    engine->backend->close(poller);
    return NULL;
}
