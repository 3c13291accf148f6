/* The calls about one job: from the plan's bytes to its outcome. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine.h"

enum { BATCH_LIMIT = 32, COSTLY_BYTES = 16 << 10, LARGE_BYTES = 64 << 10 };

#define REFUSE(...) wl_fail(error, WL_BAD_PLAN, NULL, WL_NOWHERE, __VA_ARGS__)

static bool is_aligned(const void *base, uint64_t offset, uint32_t align) {
    return ((uintptr_t)base + offset) % align == 0;
}

/* Checks a plan against this engine's limits. */
static int32_t check(const wl_engine *engine, const wl_plan *plan, wl_error *error) {
    if (plan->depth > engine->depth)
        return REFUSE("depth must be 1 to the engine's %u, got %u", engine->depth, plan->depth);
    if (!(plan->flags & WL_DESTINATION)) {
        if (plan->block_bytes > engine->block_bytes)
            return REFUSE("block length must be at most the engine's %u, got %u",
                          engine->block_bytes,
                          plan->block_bytes);
        if (!is_aligned(engine->regions[0].base, 0, plan->align) ||
            engine->block_bytes % plan->align)
            return REFUSE("the engine's slots are not aligned to %u", plan->align);
        return WL_OK;
    }
    if (plan->destination_region >= engine->region_count)
        return REFUSE("the destination is in region %u of %u", plan->destination_region,
                      engine->region_count);
    wl_region region = engine->regions[plan->destination_region];
    uint64_t span = wl_plan_span(plan);
    if (plan->destination_offset > region.bytes || span > region.bytes - plan->destination_offset)
        return REFUSE("%llu bytes do not fit at %llu of a region of %llu",
                      (unsigned long long)span, (unsigned long long)plan->destination_offset,
                      (unsigned long long)region.bytes);
    if (!is_aligned(region.base, plan->destination_offset, plan->align))
        return REFUSE("the destination is not aligned to %u", plan->align);
    return WL_OK;
}

static int make_files(wl_job *job) {
    const wl_plan *plan = &job->plan;
    job->files = calloc((size_t)plan->file_count + 1, sizeof *job->files);
    if (!job->files)
        return 0;
    for (uint32_t i = 0; i < plan->file_count; i++) {
        job->files[i].path = plan->files[i].path;
        job->files[i].end = plan->files[i].end;
        job->files[i].start = UINT64_MAX;
        atomic_init(&job->files[i].fd, -1);
    }
    for (uint32_t i = 0; i < plan->extent_count; i++) {
        const wl_extent *extent = &plan->extents[i];
        wl_file *file = &job->files[extent->file];
        file->start = extent->offset < file->start ? extent->offset : file->start;
        uint64_t left = atomic_load_explicit(&file->left, memory_order_relaxed);
        atomic_init(&file->left, left + extent[1].first_block - extent->first_block);
    }
    return wl_folders_find(job);
}

static uint64_t total_of(const wl_plan *plan) {
    if (!plan->block_count)
        return 0;
    if (plan->order == WL_LISTED)
        return plan->listed_count;
    if (plan->operation_count)
        return plan->operation_count;
    return plan->duration_ns ? UINT64_MAX / 2 : plan->block_count;
}

/* Few at a time if several pollers share a plan, so that they end together. */
static uint32_t chunk_of(const wl_engine *engine, const wl_plan *plan) {
    if (plan->rate_bytes_per_s || engine->backend->info.flags & WL_B_SYNC)
        return 1;
    return engine->thread_count > 1 ? 8 : 64;
}

/* Random operations of 16 KiB and more are few enough to be replaced at once. */
static bool is_costly(const wl_plan *plan) {
    return plan->order == WL_RANDOM && plan->block_bytes >= COSTLY_BYTES;
}

/* Submitting several operations at once saves work, above all on virtual devices: a quarter of the
 * depth, at most 32 (eight cost 8 % more CPU time at 4 KiB and a depth of 128). A poller waits
 * until that many are free. So with direct I/O, from a depth of 8 on, between three quarters of the
 * depth and all of it is in flight. For large blocks, batches of two or three save nothing. Costly
 * operations go together only with those that completed in the meantime, so that all of the depth
 * is in flight. */
static uint32_t batch_of(const wl_plan *plan) {
    uint32_t quarter = plan->depth / 4;
    uint32_t least = plan->block_bytes >= LARGE_BYTES ? 4 : 2;
    if (is_costly(plan) || plan->rate_bytes_per_s || !(plan->flags & WL_DIRECT) || quarter < least)
        return 1;
    return quarter < BATCH_LIMIT ? quarter : BATCH_LIMIT;
}

/* How many prepared operations are submitted although more follow: a device that completes the
 * whole queue together would be idle until the last one is prepared. */
static uint32_t push_of(const wl_plan *plan, uint32_t batch) {
    if (batch > 1)
        return (batch + 1) / 2;
    return is_costly(plan) && plan->depth > 1 ? plan->depth / 2 : plan->depth;
}

/* Adding a descriptor to a ring's table takes a system call, and so does removing it. */
static bool pays_to_fix_files(const wl_job *job) {
    uint64_t files = job->plan.file_count;
    return files <= WL_FIXED_FILES_LIMIT && job->total >= 8 * files;
}

static void make_shares(wl_job *job) {
    uint32_t limit = WL_TRACE_LIMIT / job->share_count;
    for (uint32_t i = 0; i < job->share_count; i++) {
        wl_share *share = &job->shares[i];
        share->job = job;
        atomic_init(&share->latency_min_ns, UINT64_MAX);
        wl_trace_init(&share->trace, job->plan.trace_every, limit < 16 ? 16 : limit);
    }
}

static void destroy(wl_job *job) {
    for (uint32_t i = 0; i < job->share_count; i++)
        wl_trace_free(&job->shares[i].trace);
    wl_folders_free(job);
    wl_plan_free(&job->plan);
    free(job->files);
    free(job->rows);
    pthread_cond_destroy(&job->done);
    pthread_mutex_destroy(&job->mutex);
    pthread_mutex_destroy(&job->opening);
    free(job);
}

static wl_job *make(wl_engine *engine, const wl_plan *plan) {
    wl_job *job = calloc(1, sizeof *job + engine->thread_count * sizeof(wl_share));
    if (!job)
        return NULL;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&job->done, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&job->mutex, NULL);
    pthread_mutex_init(&job->opening, NULL);
    job->engine = engine;
    job->plan = *plan;
    job->total = total_of(plan);
    job->chunk = chunk_of(engine, plan);
    job->batch = engine->backend->info.flags & WL_B_SYNC ? 1 : batch_of(plan);
    job->push = push_of(plan, job->batch);
    job->share_count = engine->thread_count;
    job->is_one_pass = wl_plan_is_one_pass(plan);
    job->fixes_files = engine->backend->info.flags & WL_B_FIXED_FILES && pays_to_fix_files(job);
    job->is_diskless = engine->backend->info.flags & WL_B_DISKLESS;
    wl_pattern_init(&job->pattern, &job->plan);
    make_shares(job);
    if (make_files(job))
        return job;
    memset(&job->plan, 0, sizeof job->plan); /* still owned by the caller */
    destroy(job);
    return NULL;
}

int32_t wl_job_submit(wl_engine *engine, const uint8_t *bytes, size_t length, wl_job **out,
                      wl_error *error) {
    wl_plan plan;
    int32_t code = wl_plan_parse(&plan, bytes, length, error);
    if (code)
        return code;
    wl_job *job = NULL;
    code = check(engine, &plan, error);
    if (!code && !(job = make(engine, &plan)))
        code = wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "out of memory for a job");
    if (code) {
        wl_plan_free(&plan);
        return code;
    }
    wl_fail(error, WL_OK, NULL, WL_NOWHERE, "%s", "");
    *out = job;
    wl_jobs_add(job);
    return WL_OK;
}

void wl_job_fail(wl_job *job, const wl_error *error) {
    pthread_mutex_lock(&job->mutex);
    if (!job->error.code)
        job->error = *error;
    atomic_store_explicit(&job->halted, true, memory_order_relaxed);
    pthread_mutex_unlock(&job->mutex);
}

/* The job may be freed as soon as its mutex is released. */
void wl_job_end(wl_job *job) {
    static const uint64_t one = 1;
    int32_t signal = job->engine->signal;
    pthread_mutex_lock(&job->mutex);
    job->end_ns = wl_now_ns();
    atomic_store_explicit(&job->is_done, true, memory_order_release);
    pthread_cond_broadcast(&job->done);
    if (signal >= 0 && write(signal, &one, sizeof one) < 0)
        signal = -1; /* its count is at its limit, so whoever waits for it sees it */
    pthread_mutex_unlock(&job->mutex);
}

void wl_job_stop(wl_job *job) {
    pthread_mutex_lock(&job->mutex);
    bool was_done = atomic_load_explicit(&job->is_done, memory_order_relaxed);
    if (!was_done) {
        job->stopped = true;
        atomic_store_explicit(&job->halted, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&job->mutex);
    if (!was_done && wl_jobs_withdraw(job))
        wl_job_end(job);
}

int32_t wl_job_wait(wl_job *job, uint32_t timeout_ms) {
    uint64_t until_ns = wl_now_ns() + (uint64_t)timeout_ms * 1000000u;
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    int code = 0;
    pthread_mutex_lock(&job->mutex);
    while (timeout_ms && !atomic_load_explicit(&job->is_done, memory_order_relaxed) && !code)
        code = pthread_cond_timedwait(&job->done, &job->mutex, &until);
    bool is_done = atomic_load_explicit(&job->is_done, memory_order_relaxed);
    pthread_mutex_unlock(&job->mutex);
    return is_done;
}

void wl_job_free(wl_job *job) {
    if (!job)
        return;
    wl_job_stop(job);
    while (!wl_job_wait(job, 1000))
        ;
    destroy(job);
}
