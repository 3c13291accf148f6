/* The calls that read a job's outcome: the shares of all pollers, put together. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static bool is_done(const wl_job *job) {
    return atomic_load_explicit(&job->is_done, memory_order_acquire);
}

void wl_job_progress(const wl_job *job, wl_progress *progress) {
    *progress = (wl_progress){.done = is_done(job)};
    for (uint32_t i = 0; i < job->share_count; i++) {
        const wl_share *share = &job->shares[i];
        progress->bytes += atomic_load_explicit(&share->bytes, memory_order_relaxed);
        progress->operations += atomic_load_explicit(&share->operations, memory_order_relaxed);
    }
}

static void add_share(wl_result *result, const wl_share *share) {
    result->bytes += atomic_load_explicit(&share->bytes, memory_order_relaxed);
    result->operations += atomic_load_explicit(&share->operations, memory_order_relaxed);
    result->cpu_ns += share->cpu_ns;
    result->bad_blocks += share->bad_blocks;
    result->latency_sum_ns += share->latency_sum_ns;
    if (share->last_io_ns > result->last_io_ns)
        result->last_io_ns = share->last_io_ns;
    if (share->latency_min_ns < result->latency_min_ns)
        result->latency_min_ns = share->latency_min_ns;
    if (share->latency_max_ns > result->latency_max_ns)
        result->latency_max_ns = share->latency_max_ns;
    if (share->sync_ns > result->sync_ns)
        result->sync_ns = share->sync_ns;
}

void wl_job_result(const wl_job *job, wl_result *result) {
    memset(result, 0, sizeof *result);
    if (!is_done(job))
        return;
    result->latency_min_ns = UINT64_MAX;
    for (uint32_t i = 0; i < job->share_count; i++)
        if (job->shares[i].used)
            add_share(result, &job->shares[i]);
    result->cpu_ns += job->workers_ns;
    if (!result->operations)
        result->latency_min_ns = 0;
    result->start_ns = job->start_ns ? job->start_ns : job->end_ns;
    result->end_ns = job->end_ns;
    result->extending_files = job->extending_files;
    result->stopped = job->stopped;
    result->error = job->error;
}

void wl_job_histogram(const wl_job *job, uint64_t counts[WL_BUCKETS]) {
    memset(counts, 0, WL_BUCKETS * sizeof counts[0]);
    if (!is_done(job))
        return;
    for (uint32_t i = 0; i < job->share_count; i++)
        if (job->shares[i].used)
            for (uint32_t k = 0; k < WL_BUCKETS; k++)
                counts[k] += job->shares[i].counts[k];
}

const wl_trace_row *wl_job_trace(const wl_job *job, uint64_t *row_count) {
    *row_count = 0;
    if (!is_done(job))
        return NULL;
    wl_job *own = (wl_job *)(uintptr_t)job; /* the merge is kept, and made once */
    pthread_mutex_lock(&own->mutex);
    if (!own->rows && own->plan.trace_every) {
        wl_trace **parts = malloc(own->share_count * sizeof *parts);
        for (uint32_t i = 0; parts && i < own->share_count; i++)
            parts[i] = &own->shares[i].trace;
        if (parts)
            own->rows = wl_trace_merge(parts, own->share_count, &own->row_count);
        free(parts);
    }
    *row_count = own->row_count;
    pthread_mutex_unlock(&own->mutex);
    return own->rows;
}
