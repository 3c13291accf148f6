/* The end of files and jobs. A file that is done is cut to its size and synced by an operation of
 * its own; a job ends, on the last poller to leave it, with the files that are left and with the
 * folders. */
#include <string.h>

#include "engine.h"

static bool is_halted(const wl_job *job) {
    return atomic_load_explicit(&job->halted, memory_order_relaxed);
}

/* A file that is read in one block belongs to the poller that took it, so that several pollers open
 * files at the same time. */
static bool is_shared(const wl_job *job, const wl_file *file) {
    return job->plan.kind != WL_READ || !job->is_one_pass ||
           atomic_load_explicit(&file->left, memory_order_acquire) != 1;
}

/* Opens a file, once; the error is the job's. */
int32_t wl_file_prepare(wl_share *share, wl_file *file) {
    wl_job *job = share->job;
    wl_error error;
    int32_t code = WL_OK;
    bool locks = is_shared(job, file);
    if (locks)
        pthread_mutex_lock(&job->opening);
    if (is_halted(job)) {
        code = WL_UNAVAILABLE;
    } else if (atomic_load_explicit(&file->fd, memory_order_relaxed) < 0) {
        uint64_t start_ns = wl_now_ns();
        code = file->is_folder ? wl_folder_open(file, &error)
                               : wl_file_open(file, &job->plan, &job->extending_files, &error);
        share->open_ns += wl_now_ns() - start_ns;
        share->opened_files += !code && !file->is_folder;
    }
    if (locks)
        pthread_mutex_unlock(&job->opening);
    if (code && !is_halted(job))
        wl_job_fail(job, &error);
    return code;
}

static void queue_sync(wl_poller *poller, wl_share *share, wl_file *file) {
    file->share = share;
    file->next = NULL;
    if (poller->sync_first)
        poller->sync_last->next = file;
    else
        poller->sync_first = file;
    poller->sync_last = file;
    share->inflight++;
}

void wl_file_finish(wl_poller *poller, wl_share *share, wl_file *file) {
    wl_job *job = share->job;
    wl_error error;
    file->is_finished = 1;
    if (is_halted(job)) {
        wl_file_close(file);
        return;
    }
    if (atomic_load_explicit(&file->fd, memory_order_acquire) < 0 && wl_file_prepare(share, file))
        return;
    uint64_t start_ns = wl_now_ns();
    int32_t code = wl_file_settle(file, &job->plan, &error);
    if (code)
        wl_job_fail(job, &error);
    if (!code && job->plan.flags & WL_FSYNC)
        queue_sync(poller, share, file);
    else
        wl_file_close(file);
    share->open_ns += wl_now_ns() - start_ns;
}

void wl_sync_done(wl_poller *poller, wl_share *share, wl_file *file, int32_t result) {
    if (result < 0) {
        wl_error error;
        wl_fail(&error, -result, file->path, WL_NOWHERE, "fsync: %s", strerror(-result));
        wl_job_fail(share->job, &error);
    } else {
        share->synced_files += !file->is_folder;
    }
    wl_file_close(file);
    share->inflight--;
    if (!share->inflight && !share->issuing)
        wl_share_release(poller, share);
}

/* Files without blocks are created too, except those that a count or a duration did not reach. */
static void finish_files(wl_poller *poller, wl_share *share) {
    wl_job *job = share->job;
    for (uint32_t i = 0; i < job->plan.file_count; i++) {
        wl_file *file = &job->files[i];
        bool is_open = atomic_load_explicit(&file->fd, memory_order_acquire) >= 0;
        if (!file->is_finished && (is_open || job->is_one_pass))
            wl_file_finish(poller, share, file);
    }
}

static void sync_folders(wl_poller *poller, wl_share *share) {
    wl_job *job = share->job;
    for (uint32_t i = 0; i < job->folder_count && !is_halted(job); i++)
        if (!wl_file_prepare(share, &job->folders[i]))
            queue_sync(poller, share, &job->folders[i]);
}

/* Of jobs in flight together, a poller's time counts for the one that it leaves first. */
static void charge(wl_poller *poller, wl_share *share) {
    uint64_t now_ns = wl_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    uint64_t start_ns = share->cpu_start_ns;
    share->cpu_ns += now_ns - (start_ns > poller->charged_ns ? start_ns : poller->charged_ns);
    poller->charged_ns = now_ns;
}

/* Runs the stages in order; each continues here when its last sync is done. */
static void advance(wl_poller *poller, wl_share *share) {
    wl_job *job = share->job;
    while (!share->inflight && job->stage != WL_ENDED) {
        job->stage++;
        if (job->stage == WL_SETTLING)
            finish_files(poller, share);
        else if (job->stage == WL_SYNCING_FOLDERS)
            sync_folders(poller, share);
    }
    charge(poller, share);
    if (share->inflight)
        return;
    job->workers_ns = wl_jobs_workers_ns(job);
    wl_job_end(job);
}

void wl_share_release(wl_poller *poller, wl_share *share) {
    wl_job *job = share->job;
    if (job->stage == WL_MOVING) {
        charge(poller, share);
        if (job->fixes_files)
            poller->engine->backend->forget(poller, job);
        if (!wl_jobs_leave(job))
            return;
    }
    if (job->is_diskless)
        job->stage = WL_SYNCING_FOLDERS;
    advance(poller, share);
}
