/* Handles completed operations: count them, continue partial ones, or fail the job. */
#include <errno.h>
#include <string.h>

#include "engine.h"
#include "histogram.h"

enum { RETRY_LIMIT = 1000 };

typedef enum { MOVED, AGAIN, FAILED } outcome;

static outcome fail(const wl_op *op, int32_t code, const char *text) {
    wl_error error;
    wl_fail(&error, code, op->file->path, op->offset + op->moved, "%s%s%s",
            op->kind == WL_READ ? "read" : "write", *text ? ": " : "", text);
    wl_job_fail(op->share->job, &error);
    return FAILED;
}

/* Handles a result shorter than the request. With O_DIRECT a partial block means the end of the
 * file; without, only an empty result does. */
static outcome judge(wl_op *op, int32_t result) {
    const wl_plan *plan = &op->share->job->plan;
    if (result == -EINTR || result == -EAGAIN) {
        if (op->retries++ < RETRY_LIMIT)
            return AGAIN;
    }
    if (result < 0)
        return fail(op, -result, strerror(-result));
    op->moved += (uint32_t)result;
    if (op->moved >= (op->kind == WL_READ ? op->length : op->requested))
        return MOVED;
    bool is_torn = plan->flags & WL_DIRECT && (uint32_t)result % plan->align;
    if (result && !is_torn)
        return AGAIN;
    return op->kind == WL_READ ? fail(op, WL_SHORT_READ, "the file ends before the extent")
                               : fail(op, WL_SHORT_WRITE, "the device wrote a partial block");
}

static void check(wl_poller *poller, wl_share *share, const wl_op *op) {
    const wl_plan *plan = &share->job->plan;
    const wl_extent *extent = op->extent;
    uint64_t compared = op->length;
    if (plan->flags & WL_SAMPLE)
        share->bad_blocks += wl_bad_samples(op->memory, op->length, op->offset, plan->stamp_nonce,
                                            extent->word, plan->stamp_first, plan->stamp_unit,
                                            extent->offset, extent->length, plan->seed, &compared);
    else
        share->bad_blocks += wl_bad_blocks(op->memory, op->length, op->offset, plan->stamp_nonce,
                                           extent->word, plan->stamp_first, plan->stamp_unit);
    poller->touched_bytes += compared;
    share->compared_bytes += compared;
}

static void trace(wl_share *share, const wl_op *op, uint64_t latency_ns) {
    wl_trace_add(&share->trace, op->number,
                 (wl_trace_row){
                     .submit_ns = op->submit_ns,
                     .offset = op->offset,
                     .latency_ns = latency_ns < UINT32_MAX ? (uint32_t)latency_ns : UINT32_MAX,
                     .file = (uint32_t)(op->file - share->job->files),
                 });
}

static void account(wl_poller *poller, wl_share *share, const wl_op *op) {
    uint64_t latency_ns = poller->now_ns - (op->due_ns ? op->due_ns : op->submit_ns);
    wl_count(&share->latency_sum_ns, latency_ns);
    if (latency_ns < wl_own(&share->latency_min_ns))
        wl_set(&share->latency_min_ns, latency_ns);
    if (latency_ns > wl_own(&share->latency_max_ns))
        wl_set(&share->latency_max_ns, latency_ns);
    wl_count(&share->counts[wl_bucket(latency_ns)], 1); /* last: whoever sees it, sees the rest */
    share->last_io_ns = poller->now_ns;
    wl_count(&share->bytes, op->length);
    wl_count(&share->operations, 1);
    if (op->traced)
        trace(share, op, poller->now_ns - op->submit_ns);
    if (share->job->plan.flags & WL_CHECK)
        check(poller, share, op);
}

/* Whether this was the last block of its file. */
static bool ends_file(const wl_job *job, wl_file *file) {
    return job->is_one_pass && !job->is_diskless &&
           atomic_fetch_sub_explicit(&file->left, 1, memory_order_acq_rel) == 1;
}

void wl_complete(wl_poller *poller, wl_done done) {
    wl_op *op = &poller->ops[done.op];
    wl_share *share = op->share;
    wl_file *file = op->file;
    outcome what = MOVED;
    if (op->kind == WL_OP_SYNC) {
        wl_op_free(poller, done.op);
        wl_sync_done(poller, share, file, done.result);
        return;
    }
    if (done.result != (int32_t)(op->requested - op->moved))
        what = judge(op, done.result);
    if (what == AGAIN) {
        wl_op_queue(poller, done.op);
        return;
    }
    if (what == MOVED)
        account(poller, share, op);
    wl_op_free(poller, done.op);
    if (what == MOVED && ends_file(share->job, file))
        wl_file_finish(poller, share, file);
    share->inflight--;
    if (!share->inflight && !share->issuing)
        wl_share_release(poller, share);
}
