/* The engine's list of jobs that still have operations to issue, in the order of submission. */
#include "engine.h"

void wl_jobs_add(wl_job *job) {
    wl_engine *engine = job->engine;
    pthread_mutex_lock(&engine->mutex);
    job->serial = ++engine->serials;
    job->first_serial = engine->file_serials + 1;
    engine->file_serials += job->plan.file_count;
    job->listed = true;
    if (engine->first)
        engine->last->link = job;
    else
        engine->first = job;
    engine->last = job;
    atomic_store_explicit(&engine->newest, job->serial, memory_order_release);
    pthread_cond_broadcast(&engine->work);
    pthread_mutex_unlock(&engine->mutex);
}

static void unlink_job(wl_engine *engine, wl_job *job) {
    wl_job *before = NULL;
    if (!job->listed)
        return;
    for (wl_job *at = engine->first; at != job; at = at->link)
        before = at;
    if (before)
        before->link = job->link;
    else
        engine->first = job->link;
    if (engine->last == job)
        engine->last = before;
    job->listed = false;
}

static bool takes_part(const wl_poller *poller, const wl_job *job) {
    return job->serial > poller->serial && poller->member < job->plan.depth;
}

static void begin(wl_poller *poller, wl_job *job) {
    if (!job->start_ns) {
        job->start_ns = wl_now_ns();
        if (job->plan.duration_ns)
            job->deadline_ns = job->start_ns + job->plan.duration_ns;
        job->workers_start_ns = wl_workers_look(&job->engine->workers, job->start_ns);
    }
    wl_share *share = &job->shares[poller->number];
    share->issuing = true;
    share->used = true;
    share->cpu_start_ns = wl_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    poller->cursor = WL_CURSOR_START;
    poller->chunk_next = poller->chunk_end = 0;
}

wl_share *wl_jobs_join(wl_poller *poller) {
    wl_engine *engine = poller->engine;
    if (atomic_load_explicit(&engine->newest, memory_order_acquire) == poller->serial)
        return NULL;
    pthread_mutex_lock(&engine->mutex);
    wl_job *job = engine->first;
    while (job && !takes_part(poller, job))
        job = job->link;
    poller->serial = job ? job->serial : engine->serials;
    if (job) {
        job->users++;
        begin(poller, job);
    }
    pthread_mutex_unlock(&engine->mutex);
    return job ? &job->shares[poller->number] : NULL;
}

uint64_t wl_jobs_workers_ns(wl_job *job) {
    wl_engine *engine = job->engine;
    pthread_mutex_lock(&engine->mutex);
    uint64_t now_ns = wl_workers_look(&engine->workers, wl_now_ns());
    uint64_t start_ns = job->workers_start_ns, charged_ns = engine->workers_charged_ns;
    engine->workers_charged_ns = now_ns;
    pthread_mutex_unlock(&engine->mutex);
    return now_ns - (start_ns > charged_ns ? start_ns : charged_ns);
}

void wl_jobs_exhaust(wl_job *job) {
    pthread_mutex_lock(&job->engine->mutex);
    unlink_job(job->engine, job);
    pthread_mutex_unlock(&job->engine->mutex);
}

bool wl_jobs_leave(wl_job *job) {
    pthread_mutex_lock(&job->engine->mutex);
    bool is_last = --job->users == 0;
    pthread_mutex_unlock(&job->engine->mutex);
    return is_last;
}

bool wl_jobs_withdraw(wl_job *job) {
    pthread_mutex_lock(&job->engine->mutex);
    bool is_untouched = job->listed && !job->users;
    if (is_untouched)
        unlink_job(job->engine, job);
    pthread_mutex_unlock(&job->engine->mutex);
    return is_untouched;
}

void wl_jobs_halt(wl_engine *engine) {
    for (wl_job *job = engine->first; job; job = job->link) {
        atomic_store_explicit(&job->halted, true, memory_order_relaxed);
        pthread_mutex_lock(&job->mutex);
        job->stopped = true;
        pthread_mutex_unlock(&job->mutex);
    }
}
