/* Selects what a poller issues next: syncs first, then the operations of the current job. */
#include "engine.h"

static uint32_t limit_of(const wl_poller *poller, const wl_job *job) {
    return job->plan.depth < poller->depth ? job->plan.depth : poller->depth;
}

static void issue_syncs(wl_poller *poller) {
    while (poller->sync_first && poller->free_count) {
        wl_file *file = poller->sync_first;
        poller->sync_first = file->next;
        uint32_t index = wl_op_take(poller);
        poller->ops[index] = (wl_op){.share = file->share, .file = file, .kind = WL_OP_SYNC};
        wl_op_queue(poller, index);
    }
}

static bool next_chunk(wl_poller *poller, wl_job *job) {
    uint64_t first = atomic_fetch_add_explicit(&job->next, job->chunk, memory_order_relaxed);
    if (first >= job->total)
        return false;
    uint64_t left = job->total - first;
    poller->chunk_next = first;
    poller->chunk_end = first + (left < job->chunk ? left : job->chunk);
    return true;
}

static void stamp(wl_poller *poller, const wl_job *job, const wl_op *op, uint32_t index) {
    const wl_plan *plan = &job->plan;
    uint64_t number = plan->stamp_first + op->offset / plan->stamp_unit;
    if (plan->flags & WL_DESTINATION || plan->stamp_unit != WL_PAGE_BYTES) {
        poller->sums.known[index] = 0;
        wl_seal(op->memory, op->length, 0, plan->stamp_nonce, op->extent->word, number,
                plan->stamp_unit);
        poller->touched_bytes += op->length;
        return;
    }
    uint64_t filling = atomic_load_explicit(&poller->engine->filling, memory_order_relaxed);
    wl_seal_slot(&poller->sums, index, filling, op->memory, op->length, plan->stamp_nonce,
                 op->extent->word, number);
}

/* Fills in the operation; false, with the job failed, if its file can't be opened. */
static bool prepare(wl_poller *poller, wl_share *share, uint32_t index, uint64_t number) {
    wl_job *job = share->job;
    const wl_plan *plan = &job->plan;
    wl_block block = wl_pattern_block(&job->pattern, &poller->cursor, number);
    const wl_extent *extent = &plan->extents[block.extent];
    wl_file *file = &job->files[extent->file];
    if (!job->is_diskless && atomic_load_explicit(&file->fd, memory_order_acquire) < 0 &&
        wl_file_prepare(share, file))
        return false;
    uint8_t *memory;
    if (plan->flags & WL_DESTINATION)
        memory = (uint8_t *)poller->engine->regions[plan->destination_region].base +
                 plan->destination_offset +
                 (plan->flags & WL_PLACED ? extent->word + block.offset - extent->offset
                                          : block.number * plan->block_bytes);
    else
        memory = poller->slots + (size_t)index * poller->engine->block_bytes;
    wl_op *op = &poller->ops[index];
    *op = (wl_op){
        .share = share,
        .file = file,
        .extent = extent,
        .memory = memory,
        .offset = block.offset,
        .number = number,
        .length = block.length,
        .requested = (uint32_t)wl_round_up(block.length, plan->align),
        .region = plan->flags & WL_DESTINATION ? plan->destination_region : 0,
        .kind = plan->kind,
        .traced = wl_trace_takes(&share->trace, number),
    };
    if (plan->flags & WL_STAMP)
        stamp(poller, job, op, index);
    else if (plan->kind == WL_READ)
        poller->sums.known[index] = 0;
    return true;
}

/* When an operation may be issued, if all earlier ones kept exactly to the rate. */
static uint64_t due_ns(wl_job *job, uint32_t length) {
    uint64_t before = atomic_fetch_add_explicit(&job->paced, length, memory_order_relaxed);
    double ns = (double)before * 1e9 / (double)job->plan.rate_bytes_per_s;
    return ns < 9e18 ? job->start_ns + (uint64_t)ns : UINT64_MAX;
}

static bool is_over(const wl_job *job) {
    return atomic_load_explicit(&job->halted, memory_order_relaxed) ||
           (job->deadline_ns && wl_now_ns() >= job->deadline_ns);
}

/* Issues what the depth allows; false when the job has nothing more to issue. */
static bool issue_from(wl_poller *poller, wl_share *share) {
    wl_job *job = share->job;
    uint32_t limit = limit_of(poller, job);
    if (is_over(job))
        return false;
    if (poller->inflight && poller->inflight + job->batch > limit)
        return true; /* for more to complete first */
    while (poller->inflight < limit) {
        if (poller->chunk_next == poller->chunk_end && !next_chunk(poller, job))
            return false;
        if (poller->queued_count >= job->push)
            wl_push(poller); /* the device starts while the rest is prepared */
        uint64_t number = poller->chunk_next++;
        uint32_t index = wl_op_take(poller);
        if (!prepare(poller, share, index, number)) {
            wl_op_free(poller, index);
            return false;
        }
        share->inflight++;
        if (job->plan.rate_bytes_per_s) {
            poller->held_due_ns = due_ns(job, poller->ops[index].length);
            poller->ops[index].due_ns = poller->held_due_ns;
            poller->held = index;
            poller->is_holding = true;
            return true;
        }
        wl_op_queue(poller, index);
        wl_push_in_time(poller);
    }
    return true;
}

/* Lets a held operation go once it is due, or drops it if its job is over; false: not yet. */
static bool let_go(wl_poller *poller) {
    wl_share *share = poller->share;
    bool over = is_over(share->job);
    if (!over && wl_now_ns() < poller->held_due_ns)
        return false;
    poller->is_holding = false;
    if (!over) {
        wl_op_queue(poller, poller->held);
        return true;
    }
    wl_op_free(poller, poller->held);
    share->inflight--;
    return true;
}

static void finish_issuing(wl_poller *poller) {
    wl_share *share = poller->share;
    poller->share = NULL;
    share->issuing = false;
    wl_jobs_exhaust(share->job);
    if (!share->inflight)
        wl_share_release(poller, share);
}

void wl_issue(wl_poller *poller) {
    for (;;) {
        issue_syncs(poller); /* before the next job takes, and perhaps holds, all that is free */
        if (poller->is_holding && !let_go(poller))
            return;
        if (!poller->share && !(poller->share = wl_jobs_join(poller)))
            return;
        if (!issue_from(poller, poller->share))
            finish_issuing(poller);
        else if (!poller->is_holding)
            return;
    }
}
