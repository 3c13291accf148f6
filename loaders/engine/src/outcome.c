/* The calls that read what a job has done so far, and its outcome: the shares of all pollers, put
 * together. */
#include <stdlib.h>
#include <string.h>

#include "engine.h"

static bool is_done(const wl_job *job) {
    return atomic_load_explicit(&job->is_done, memory_order_acquire);
}

static uint64_t seen(const _Atomic uint64_t *figure) {
    return atomic_load_explicit(figure, memory_order_acquire);
}

void wl_job_progress(const wl_job *job, wl_progress *progress) {
    *progress = (wl_progress){.done = is_done(job)};
    for (uint32_t i = 0; i < job->share_count; i++) {
        const wl_share *share = &job->shares[i];
        progress->bytes += seen(&share->bytes);
        progress->operations += seen(&share->operations);
    }
}

/* Counts first: the rest then covers at least what they hold. */
static void read_share(wl_reading *reading, const wl_share *share) {
    for (uint32_t k = 0; k < WL_BUCKETS; k++)
        reading->counts[k] += seen(&share->counts[k]);
    reading->operations += seen(&share->operations);
    reading->bytes += seen(&share->bytes);
    reading->latency_sum_ns += seen(&share->latency_sum_ns);
    uint64_t least = seen(&share->latency_min_ns), most = seen(&share->latency_max_ns);
    if (least < reading->latency_min_ns)
        reading->latency_min_ns = least;
    if (most > reading->latency_max_ns)
        reading->latency_max_ns = most;
}

void wl_job_read(const wl_job *job, wl_reading *reading) {
    *reading = (wl_reading){.time_ns = is_done(job) ? job->end_ns : wl_now_ns(),
                            .latency_min_ns = UINT64_MAX};
    for (uint32_t i = 0; i < job->share_count; i++)
        read_share(reading, &job->shares[i]);
    if (reading->latency_min_ns == UINT64_MAX)
        reading->latency_min_ns = 0;
}

static void add_share(wl_result *result, const wl_share *share) {
    result->cpu_ns += share->cpu_ns;
    result->bad_blocks += share->bad_blocks;
    if (share->last_io_ns > result->last_io_ns)
        result->last_io_ns = share->last_io_ns;
    result->compared_bytes += share->compared_bytes;
    result->synced_files += share->synced_files;
    result->open_ns += share->open_ns;
    result->opened_files += share->opened_files;
}

void wl_job_result(const wl_job *job, wl_result *result) {
    memset(result, 0, sizeof *result);
    if (!is_done(job))
        return;
    wl_reading reading;
    wl_job_read(job, &reading);
    result->bytes = reading.bytes;
    result->operations = reading.operations;
    result->latency_sum_ns = reading.latency_sum_ns;
    result->latency_min_ns = reading.latency_min_ns;
    result->latency_max_ns = reading.latency_max_ns;
    for (uint32_t i = 0; i < job->share_count; i++)
        if (job->shares[i].used)
            add_share(result, &job->shares[i]);
    result->cpu_ns += job->workers_ns;
    result->start_ns = job->start_ns ? job->start_ns : job->end_ns;
    result->end_ns = job->end_ns;
    result->extending_files = job->extending_files;
    result->stopped = job->stopped;
    result->error = job->error;
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
