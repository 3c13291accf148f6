/* Opening and closing an engine: its memory, its threads, and the registrations granted. */
#include "engine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_LIMIT = 4096, POLLER_LIMIT = 64, REGION_LIMIT = 1024, THREAD_LIMIT = 4096 };

#define BLOCK_LIMIT (1u << 30)
#define REFUSE(...) wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, __VA_ARGS__)

#ifndef WL_SOURCES
#define WL_SOURCES ""
#endif

uint32_t wl_abi(void) { return WL_ABI; }

const char *wl_sources(void) { return WL_SOURCES; }

static int32_t check_regions(const wl_setup *setup, wl_error *error) {
    uint64_t slots = (uint64_t)setup->depth * setup->pollers * setup->block_bytes;
    if (!setup->regions || setup->region_count < 1 || setup->region_count > REGION_LIMIT)
        return REFUSE("region_count must be 1 to %d, got %u", REGION_LIMIT, setup->region_count);
    for (uint32_t i = 0; i < setup->region_count; i++)
        if (!setup->regions[i].base || !setup->regions[i].bytes)
            return REFUSE("region %u is empty", i);
    if (setup->regions[0].bytes < slots)
        return REFUSE("region 0 has %llu bytes, the slots need %llu",
                      (unsigned long long)setup->regions[0].bytes, (unsigned long long)slots);
    return WL_OK;
}

static int32_t check(const wl_setup *setup, wl_error *error) {
    if (setup->struct_bytes != sizeof *setup)
        return REFUSE("struct_bytes must be %zu, got %u", sizeof *setup, setup->struct_bytes);
    if (setup->depth < 1 || setup->depth > DEPTH_LIMIT)
        return REFUSE("depth must be 1 to %d, got %u", DEPTH_LIMIT, setup->depth);
    if (setup->pollers < 1 || setup->pollers > POLLER_LIMIT)
        return REFUSE("pollers must be 1 to %d, got %u", POLLER_LIMIT, setup->pollers);
    if (setup->block_bytes < 512 || setup->block_bytes > BLOCK_LIMIT)
        return REFUSE("block_bytes must be 512 to %u, got %u", BLOCK_LIMIT, setup->block_bytes);
    const wl_backend_ops *backend = wl_backend_find(setup->backend);
    if (!backend)
        return REFUSE("unknown backend %.64s", setup->backend ? setup->backend : "NULL");
    if (backend->info.flags & WL_B_SYNC && setup->depth * setup->pollers > THREAD_LIMIT)
        return REFUSE("depth x pollers must be %d threads at most, got %u", THREAD_LIMIT,
                      setup->depth * setup->pollers);
    int32_t code = check_regions(setup, error);
    return code ? code : backend->probe(error);
}

static bool make_poller(wl_engine *engine, uint32_t number, uint32_t depth, uint32_t per_poller) {
    wl_poller *poller = &engine->threads[number];
    poller->engine = engine;
    poller->number = number;
    poller->member = number % per_poller;
    poller->depth = depth;
    poller->slots = (uint8_t *)engine->regions[0].base +
                    (size_t)number * depth * engine->block_bytes;
    poller->ops = calloc(depth, sizeof *poller->ops);
    poller->free_ops = calloc(depth, sizeof *poller->free_ops);
    poller->queued = calloc(depth, sizeof *poller->queued);
    poller->done = calloc(depth, sizeof *poller->done);
    for (uint32_t i = 0; poller->free_ops && i < depth; i++)
        poller->free_ops[i] = depth - 1 - i;
    poller->free_count = depth;
    poller->facts = (wl_facts){.buffers_refused = -1, .files_refused = -1};
    return poller->ops && poller->free_ops && poller->queued && poller->done &&
           wl_slot_sums_init(&poller->sums, depth, engine->block_bytes);
}

static void destroy(wl_engine *engine) {
    for (uint32_t i = 0; engine->threads && i < engine->thread_count; i++) {
        wl_poller *poller = &engine->threads[i];
        free(poller->ops);
        free(poller->free_ops);
        free(poller->queued);
        free(poller->done);
        wl_slot_sums_free(&poller->sums);
    }
    free(engine->threads);
    free(engine->regions);
    wl_workers_free(&engine->workers);
    pthread_cond_destroy(&engine->work);
    pthread_cond_destroy(&engine->ready);
    pthread_mutex_destroy(&engine->mutex);
    free(engine);
}

static wl_engine *make(const wl_setup *setup) {
    wl_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return NULL;
    pthread_mutex_init(&engine->mutex, NULL);
    pthread_cond_init(&engine->work, NULL);
    pthread_cond_init(&engine->ready, NULL);
    engine->backend = wl_backend_find(setup->backend);
    wl_workers_init(&engine->workers, engine->backend->has_workers);
    engine->depth = setup->depth;
    engine->pollers = setup->pollers;
    engine->block_bytes = setup->block_bytes;
    engine->flags = setup->flags;
    engine->signal = setup->signal;
    engine->region_count = setup->region_count;
    uint32_t per_poller = engine->backend->info.flags & WL_B_SYNC ? setup->depth : 1;
    engine->thread_count = setup->pollers * per_poller;
    engine->regions = calloc(setup->region_count, sizeof *engine->regions);
    engine->threads = calloc(engine->thread_count, sizeof *engine->threads);
    bool is_made = engine->regions && engine->threads;
    if (is_made)
        memcpy(engine->regions, setup->regions, setup->region_count * sizeof *engine->regions);
    for (uint32_t i = 0; is_made && i < engine->thread_count; i++)
        is_made = make_poller(engine, i, setup->depth / per_poller, per_poller);
    if (is_made)
        return engine;
    destroy(engine);
    return NULL;
}

/* Starts the threads with all signals blocked; returns how many started. */
static uint32_t start(wl_engine *engine, int *code) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    uint32_t started = 0;
    for (*code = 0; started < engine->thread_count; started++) {
        wl_poller *poller = &engine->threads[started];
        if ((*code = pthread_create(&poller->thread, NULL, wl_poller_main, poller)))
            break;
        char name[16];
        snprintf(name, sizeof name, "wl-poller-%u", poller->number);
        pthread_setname_np(poller->thread, name);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static void end_threads(wl_engine *engine, uint32_t started) {
    pthread_mutex_lock(&engine->mutex);
    engine->closing = true;
    wl_jobs_halt(engine);
    pthread_cond_broadcast(&engine->work);
    pthread_mutex_unlock(&engine->mutex);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(engine->threads[i].thread, NULL);
}

/* Waits until all backends are open; fills in what they were granted, or the first error. */
static int32_t gather(wl_engine *engine, uint32_t started, wl_error *error) {
    pthread_mutex_lock(&engine->mutex);
    while (engine->opened < started)
        pthread_cond_wait(&engine->ready, &engine->mutex);
    pthread_mutex_unlock(&engine->mutex);
    if (started)
        engine->facts = engine->threads[0].facts;
    engine->facts.threads = started;
    for (uint32_t i = 0; i < started; i++) {
        const wl_poller *poller = &engine->threads[i];
        if (poller->code) {
            if (error)
                *error = poller->error;
            return poller->code;
        }
        if (poller->facts.buffers_refused > 0)
            engine->facts.buffers_refused = poller->facts.buffers_refused;
        if (poller->facts.files_refused > 0)
            engine->facts.files_refused = poller->facts.files_refused;
    }
    return WL_OK;
}

int32_t wl_engine_open(const wl_setup *setup, wl_engine **out, wl_error *error) {
    int32_t code = check(setup, error);
    if (code)
        return code;
    wl_engine *engine = make(setup);
    if (!engine)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "out of memory for an engine");
    int thread_code;
    uint32_t started = start(engine, &thread_code);
    code = gather(engine, started, error);
    if (!code && thread_code)
        code = wl_fail(error, thread_code, NULL, WL_NOWHERE, "only %u of %u threads started",
                       started, engine->thread_count);
    if (!code) {
        *out = engine;
        return WL_OK;
    }
    end_threads(engine, started);
    destroy(engine);
    return code;
}

void wl_engine_facts(const wl_engine *engine, wl_facts *facts) { *facts = engine->facts; }

void wl_engine_refilled(wl_engine *engine) {
    atomic_fetch_add_explicit(&engine->filling, 1, memory_order_relaxed);
}

void wl_engine_close(wl_engine *engine) {
    if (!engine)
        return;
    end_threads(engine, engine->thread_count);
    destroy(engine);
}
