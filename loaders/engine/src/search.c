/* Queries, their candidates and rounds; threads that read by a ring, by pread or by page faults. */
#include "search.h"

#include <errno.h>
#include <float.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "distance.h"
#include "faults.h"
#include "permutation.h"
#include "queue.h"
#include "stamps.h"

enum { SECTOR_BYTES = 4096, NAP_NS = 50000000, NO_TIMEOUT_NS = 1000000000, START_NAP_NS = 50000 };
#define NEVER UINT64_MAX

typedef struct {
    uint32_t node, within; /* the node's place in the bytes */
    uint64_t offset;       /* of the read; 0: the node is in memory */
    const uint8_t *bytes;
} search_read;

/* Candidates and answers are sorted keys: the bits of a distance, which is not negative, above the
 * node times two, plus one in a candidate that was expanded. */
typedef struct {
    uint64_t number, from_ns;
    uint32_t index, traced;  /* in the lists of the run */
    uint32_t count, waiting; /* nodes of this round, and their reads under way */
    uint32_t candidate_count, answer_count;
    uint32_t next; /* no candidate before it is unexpanded */
    const float *vector;
    uint64_t *candidates, *answers;
    float *table;
    uint8_t *slots;
    search_read reads[WL_BEAM_LIMIT];
} search_query;

typedef struct {
    wl_search_setup setup;
    wl_search_run run;
    const uint32_t *stop;
    wl_distance *distance, *to_medoid;
    _Atomic uint64_t next;
    _Atomic uint32_t ready;
    _Atomic bool has_failed;
    pthread_mutex_t gate; /* shut until all threads are ready */
    uint64_t start_ns, deadline_ns;
    size_t list_words; /* of a query */
} search;

typedef struct {
    search *all;
    pthread_t handle;
    search_query *queries;
    uint32_t free[WL_SEARCH_INFLIGHT], free_count;
    uint32_t queued; /* reads that the kernel has not taken yet */
    uint64_t held;   /* the number of a query that is not due yet; NEVER: none */
    uint64_t delivered;
    uint64_t offset; /* of the latest read of a mapping */
    wl_ring ring;
    wl_search_result *result;
    wl_error error;
} search_thread;

static inline uint64_t key_of(float distance, uint32_t node) {
    uint32_t bits;
    memcpy(&bits, &distance, sizeof bits);
    return (uint64_t)bits << 32 | node * 2;
}

/* Puts a key into a sorted list, which drops its last one at the limit; returns its place. A key is
 * there once, and one that was dropped is beyond the limit for good: that is why a query need not
 * know what it has seen. */
static inline uint32_t insert(uint64_t *keys, uint32_t *count, uint32_t limit, uint64_t key) {
    uint32_t low = 0, high = *count;
    if (high == limit && keys[high - 1] < key)
        return limit;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < *count && keys[low] >> 1 == key >> 1)
        return limit;
    *count += *count < limit;
    memmove(keys + low + 1, keys + low, (*count - 1 - low) * sizeof *keys);
    keys[low] = key;
    return low;
}

/* Adds nodes to the candidates, by the distances of their codes. */
static void add(const wl_search_setup *setup, search_query *query, const uint32_t *nodes,
                uint32_t count) {
    float distances[WL_DEGREE_LIMIT];
    wl_pq_distances(query->table, setup->chunks, setup->codes, nodes, count, distances);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = insert(query->candidates, &query->candidate_count, setup->search_list,
                             key_of(distances[i], nodes[i]));
        query->next = at < query->next ? at : query->next;
    }
}

/* From the nearest medoid. */
static void begin_search(const search *all, search_query *query) {
    const wl_search_setup *setup = &all->setup;
    const float *medoid = setup->medoid_vectors;
    float nearest = FLT_MAX, distance;
    uint32_t start = setup->medoids[0];
    query->vector = all->run.queries + (size_t)query->index * setup->dim;
    query->candidate_count = query->answer_count = query->next = 0;
    for (uint32_t i = 0; i < setup->medoid_count; i++, medoid += setup->dim)
        if ((distance = all->to_medoid(query->vector, medoid, setup->dim)) < nearest) {
            nearest = distance;
            start = setup->medoids[i];
        }
    wl_pq_table(query->vector, setup->centroid, setup->offsets, setup->chunks, setup->columns,
                query->table);
    add(setup, query, &start, 1);
}

static uint32_t take_candidates(uint32_t beam, search_query *query, uint32_t *nodes) {
    uint32_t count = 0;
    for (; query->next < query->candidate_count; query->next++) {
        uint64_t *candidate = &query->candidates[query->next];
        if (*candidate & 1)
            continue;
        if (count == beam)
            break;
        *candidate |= 1;
        nodes[count++] = (uint32_t)*candidate >> 1;
    }
    return count;
}

/* Adds a node to the answers, and its neighbours to the candidates. */
static int32_t expand(const search *all, search_query *query, const search_read *read,
                      wl_error *error) {
    const wl_search_setup *setup = &all->setup;
    const uint8_t *bytes = read->bytes + read->within;
    const uint8_t *edges = bytes + setup->node_bytes - (setup->degree + 1) * sizeof(uint32_t);
    uint32_t degree, neighbours[WL_DEGREE_LIMIT];
    memcpy(&degree, edges, sizeof degree);
    if (degree > setup->degree)
        return wl_fail(error, WL_BAD_NODE, setup->path, read->node,
                       "has %u neighbours, and the index has room for %u", degree, setup->degree);
    memcpy(neighbours, edges + sizeof degree, degree * sizeof degree);
    for (uint32_t i = 0; i < degree; i++)
        if (neighbours[i] >= setup->node_count)
            return wl_fail(error, WL_BAD_NODE, setup->path, read->node,
                           "has a neighbour %u, and the index has %llu nodes", neighbours[i],
                           (unsigned long long)setup->node_count);
    float distance = all->distance(query->vector, bytes, setup->dim);
    insert(query->answers, &query->answer_count, setup->k, key_of(distance, read->node));
    add(setup, query, neighbours, degree);
    return WL_OK;
}

static void compare(search_thread *own, const search_read *read) {
    const wl_search_setup *setup = &own->all->setup;
    const wl_search_run *run = &own->all->run;
    uint64_t wrong;
    if (own->delivered++ % setup->check_every || (!run->is_walk && !setup->digests))
        return;
    if (run->is_walk)
        wrong = wl_bad_blocks(read->bytes, SECTOR_BYTES, read->offset, run->nonce, run->word,
                              run->first_block, SECTOR_BYTES);
    else
        wrong = wl_sum(read->bytes + read->within, setup->node_bytes) != setup->digests[read->node];
    own->result->compared++;
    if (wrong && !own->result->wrong++)
        own->result->wrong_node = read->node;
}

/* Works on the nodes of the round that was read. */
static void expand_round(search_thread *own, search_query *query) {
    const wl_search_run *run = &own->all->run;
    for (uint32_t i = 0; i < query->count && !own->error.code; i++) {
        const search_read *read = &query->reads[i];
        own->result->expanded++;
        if (read->offset)
            compare(own, read);
        else
            own->result->cached++;
        if (run->is_walk)
            continue;
        if (run->trace && query->traced < run->trace_stride)
            run->trace[(size_t)query->index * run->trace_stride + query->traced++] =
                read->node | (i + 1 == query->count ? WL_ROUND_END : 0);
        expand(own->all, query, read, &own->error);
    }
    if (!run->is_walk || !query->count)
        return;
    uint64_t end_ns = wl_clock_ns(CLOCK_THREAD_CPUTIME_ID) + run->compute_ns[query->index];
    while (wl_clock_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns)
        ;
}

/* The next round of a traced query, elsewhere in the file. */
static uint32_t follow(const wl_search_run *run, search_query *query, uint32_t *nodes) {
    const uint32_t *trace = run->trace + (size_t)query->index * run->trace_stride;
    uint64_t stream = wl_draw(run->seed, query->number);
    uint32_t count = 0, traced = 0;
    while (!(traced & WL_ROUND_END) && count < WL_BEAM_LIMIT &&
           query->traced < run->trace_stride && trace[query->traced] != WL_NO_NODE) {
        traced = trace[query->traced++];
        uint32_t node = traced & ~WL_ROUND_END;
        bool is_hot = run->hot[node / 8] >> node % 8 & 1;
        uint64_t part = is_hot ? 0 : wl_draw(stream, node) % run->spread;
        nodes[count++] = node + (uint32_t)(part * run->walk_nodes);
    }
    return count;
}

static int by_number(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static void choose_round(const search *all, search_query *query) {
    const wl_search_setup *setup = &all->setup;
    uint32_t nodes[WL_BEAM_LIMIT], sharing = setup->nodes_per_sector;
    query->count = all->run.is_walk ? follow(&all->run, query, nodes)
                                    : take_candidates(setup->beam, query, nodes);
    for (uint32_t i = 0; i < query->count; i++) {
        search_read *read = &query->reads[i];
        uint64_t sector = sharing ? nodes[i] / sharing : nodes[i];
        const uint32_t *cached =
            bsearch(&nodes[i], setup->cached, setup->cached_count, sizeof *nodes, by_number);
        *read = (search_read){.node = nodes[i]};
        if (cached) {
            size_t row = setup->cached_rows[cached - setup->cached];
            read->bytes = setup->cached_nodes + row * setup->node_bytes;
        } else {
            read->offset = SECTOR_BYTES + sector * setup->read_bytes;
            read->within = sharing ? nodes[i] % sharing * setup->node_bytes : 0;
        }
    }
}

static void end_read(search_thread *own, const search_read *read, int64_t result) {
    const wl_search_setup *setup = &own->all->setup;
    if (result == setup->read_bytes) {
        own->result->read_bytes += (uint64_t)result;
        __atomic_store_n(&own->result->reads, own->result->reads + 1, __ATOMIC_RELAXED);
    } else if (result < 0) {
        wl_fail(&own->error, (int32_t)-result, setup->path, read->offset, "read");
    } else {
        wl_fail(&own->error, WL_SHORT_READ, setup->path, read->offset + (uint64_t)result, "read");
    }
}

static void queue_read(search_thread *own, const search_read *read, uint32_t number) {
    wl_ring *ring = &own->ring;
    uint32_t tail = atomic_load_explicit(ring->sq_tail, memory_order_relaxed);
    ring->sqes[tail & ring->sq_mask] =
        (wl_sqe){.opcode = ring->fixes_buffers ? WL_URING_READ_FIXED : WL_URING_READ,
                 .flags = ring->fixes_files ? WL_SQE_FIXED_FILE : 0,
                 .fd = ring->fixes_files ? 0 : own->all->setup.fd,
                 .off = read->offset,
                 .addr = (uint64_t)(uintptr_t)read->bytes,
                 .len = own->all->setup.read_bytes,
                 .user_data = number};
    atomic_store_explicit(ring->sq_tail, tail + 1, memory_order_release);
    own->queued++;
}

/* Reads the nodes of a round that are not in memory; a ring is only given them. */
static void read_round(search_thread *own, search_query *query) {
    const wl_search_setup *setup = &own->all->setup;
    uint32_t first = (uint32_t)(query - own->queries) * setup->beam, reads = 0;
    for (uint32_t i = 0; i < query->count && !own->error.code; i++) {
        search_read *read = &query->reads[i];
        uint8_t *slot = query->slots + (size_t)i * setup->read_bytes;
        if (!read->offset)
            continue;
        reads++;
        read->bytes = setup->access == WL_BY_MAPPING ? setup->mapped + read->offset : slot;
        if (setup->access == WL_BY_RING) {
            queue_read(own, read, first + i);
            query->waiting++;
        } else if (setup->access == WL_BY_PREAD) {
            int64_t result = pread(setup->fd, slot, setup->read_bytes, (off_t)read->offset);
            end_read(own, read, result < 0 ? -errno : result);
        } else {
            own->offset = read->offset;
            for (uint32_t at = 0; at < setup->read_bytes; at += SECTOR_BYTES)
                (void)*(const volatile uint8_t *)(read->bytes + at);
            end_read(own, read, setup->read_bytes);
        }
    }
    own->result->rounds += reads > 0;
}

static void end_query(search_thread *own, search_query *query) {
    const wl_search_run *run = &own->all->run;
    uint32_t k = own->all->setup.k;
    own->free[own->free_count++] = (uint32_t)(query - own->queries);
    if (query->count) {
        own->result->cut++;
        return;
    }
    for (uint32_t i = 0; i < k && !run->is_walk; i++)
        run->answers[(size_t)query->index * k + i] =
            i < query->answer_count ? (uint32_t)query->answers[i] >> 1 : WL_NO_NODE;
    own->result->queries++;
    wl_add_latency(&own->result->latencies, wl_now_ns() - query->from_ns);
}

static bool is_stopped(search_thread *own) {
    if (own->error.code)
        own->all->has_failed = true;
    return own->all->has_failed || __atomic_load_n(own->all->stop, __ATOMIC_RELAXED);
}

/* Goes on with a query that has all it waited for, until it waits again or has ended. */
static void go_on(search_thread *own, search_query *query) {
    const search *all = own->all;
    uint64_t *compute_ns = all->run.is_walk ? NULL : all->run.compute_ns;
    do {
        uint64_t cpu_ns = compute_ns ? wl_clock_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
        if (query->count || all->run.is_walk)
            expand_round(own, query);
        else
            begin_search(all, query);
        choose_round(all, query);
        if (compute_ns)
            compute_ns[query->index] += wl_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
        if (is_stopped(own) || !query->count || wl_now_ns() >= all->deadline_ns) {
            end_query(own, query);
            return;
        }
        read_round(own, query);
    } while (!query->waiting);
}

/* Begins what is due, while there is room; returns when the next one is due, NEVER if none is. A
 * thread holds the query that it waits for, so that no others wake for it. */
static uint64_t begin_queries(search_thread *own) {
    const wl_search_run *run = &own->all->run;
    while (own->free_count && !is_stopped(own)) {
        if (own->held == NEVER)
            own->held = atomic_fetch_add_explicit(&own->all->next, 1, memory_order_relaxed);
        if (own->held >= run->most)
            break;
        uint64_t now_ns = wl_now_ns();
        uint64_t due_ns = run->due_ns ? own->all->start_ns + run->due_ns[own->held] : now_ns;
        if (due_ns >= own->all->deadline_ns)
            break;
        if (due_ns > now_ns)
            return due_ns;
        if (now_ns - due_ns > own->result->late_ns)
            own->result->late_ns = now_ns - due_ns;
        search_query *query = &own->queries[own->free[--own->free_count]];
        query->number = own->held;
        query->index = (uint32_t)(query->number % run->query_count);
        query->from_ns = due_ns;
        query->count = query->traced = 0;
        if (run->compute_ns && !run->is_walk)
            run->compute_ns[query->index] = 0;
        own->held = NEVER;
        go_on(own, query);
    }
    return NEVER;
}

/* Submits what is queued, and waits until a round may be complete, or for the next arrival. */
static bool hand_over(search_thread *own, uint64_t wait_ns) {
    uint32_t wait = own->all->setup.beam;
    for (uint32_t i = 0; i < own->all->setup.inflight_per_thread; i++)
        if (own->queries[i].waiting && own->queries[i].waiting < wait)
            wait = own->queries[i].waiting;
    int taken = wl_ring_enter(&own->ring, own->queued, wait, wait_ns);
    if (taken >= 0)
        own->queued -= (uint32_t)taken;
    if (taken >= 0 || taken == -EINTR || taken == -EAGAIN || taken == -EBUSY || taken == -ETIME)
        return true;
    wl_fail(&own->error, -taken, own->all->setup.path, WL_NOWHERE, "io_uring_enter");
    own->all->has_failed = true;
    return false;
}

static void reap(search_thread *own) {
    wl_ring *ring = &own->ring;
    uint32_t beam = own->all->setup.beam;
    uint32_t head = atomic_load_explicit(ring->cq_head, memory_order_relaxed);
    while (head != atomic_load_explicit(ring->cq_tail, memory_order_acquire)) {
        wl_cqe done = ring->cqes[head++ & ring->cq_mask];
        atomic_store_explicit(ring->cq_head, head, memory_order_release);
        search_query *query = &own->queries[done.user_data / beam];
        end_read(own, &query->reads[done.user_data % beam], done.res);
        if (--query->waiting)
            continue;
        /* No round waits while another one is worked on. */
        int taken = own->queued ? wl_ring_submit(ring, own->queued) : 0;
        own->queued -= taken > 0 ? (uint32_t)taken : 0;
        go_on(own, query);
    }
}

static void serve(search_thread *own) {
    for (;;) {
        uint64_t due_ns = begin_queries(own), now_ns = wl_now_ns(), wait_ns = NO_TIMEOUT_NS;
        if (due_ns != NEVER) {
            wait_ns = due_ns > now_ns ? due_ns - now_ns : 0;
            wait_ns = wait_ns < NAP_NS ? wait_ns : NAP_NS;
        }
        bool is_idle = own->free_count == own->all->setup.inflight_per_thread;
        if ((is_idle && due_ns == NEVER) || (!is_idle && !hand_over(own, wait_ns)))
            return;
        if (is_idle)
            wl_queue_nap(wait_ns);
        else
            reap(own);
    }
}

static void open_ring(search_thread *own) {
    const wl_search_setup *setup = &own->all->setup;
    uint32_t entries = setup->inflight_per_thread * setup->beam;
    struct iovec slots = {own->queries->slots, (size_t)entries * setup->read_bytes};
    int code = wl_ring_open(&own->ring, entries);
    if (code) {
        wl_fail(&own->error, WL_UNAVAILABLE, NULL, WL_NOWHERE, "io_uring_setup failed: %s; "
                "use loader.engine=pread", strerror(-code));
        return;
    }
    own->ring.fixes_buffers = !wl_ring_register(&own->ring, WL_REG_BUFFERS, &slots, 1);
    own->ring.fixes_files = !wl_ring_register(&own->ring, WL_REG_FILES, &setup->fd, 1);
}

static void *thread_main(void *argument) {
    search_thread *own = argument;
    search *all = own->all;
    sigjmp_buf place;
    if (all->setup.access == WL_BY_RING)
        open_ring(own);
    all->ready++;
    pthread_mutex_lock(&all->gate);
    pthread_mutex_unlock(&all->gate);
    uint64_t cpu_ns = wl_clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (sigsetjmp(place, 1)) {
        wl_fail(&own->error, EIO, all->setup.path, own->offset, "read");
        all->has_failed = true;
    } else {
        wl_escape = &place;
        serve(own);
    }
    wl_escape = NULL;
    own->result->start_ns = all->start_ns;
    own->result->end_ns = wl_now_ns();
    own->result->cpu_ns = wl_clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
    if (own->result->latencies.min_ns == UINT64_MAX)
        own->result->latencies.min_ns = 0;
    if (all->setup.access == WL_BY_RING)
        wl_ring_close(&own->ring);
    return NULL;
}

/* Lets all threads begin at once, and waits for them. They take no signals but their own faults. */
static void run_threads(search *all, search_thread *threads, wl_error *error) {
    uint32_t started = 0;
    sigset_t others, before;
    sigfillset(&others);
    sigdelset(&others, SIGBUS);
    error->code = WL_OK;
    wl_handle_faults(true);
    pthread_mutex_init(&all->gate, NULL);
    pthread_mutex_lock(&all->gate);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    for (; started < all->setup.threads && !error->code; started += !error->code) {
        int code = pthread_create(&threads[started].handle, NULL, thread_main, &threads[started]);
        if (code)
            wl_fail(error, code, NULL, WL_NOWHERE, "starting thread %u", started + 1);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    while (all->ready < started)
        wl_queue_nap(START_NAP_NS);
    all->has_failed = error->code != WL_OK;
    all->start_ns = wl_now_ns();
    all->deadline_ns = all->start_ns + all->run.duration_ns;
    pthread_mutex_unlock(&all->gate);
    for (uint32_t i = 0; i < started; i++) {
        pthread_join(threads[i].handle, NULL);
        if (threads[i].error.code)
            *error = threads[i].error;
    }
    pthread_mutex_destroy(&all->gate);
    wl_handle_faults(false);
}

/* Gives each thread its queries, and each query its lists and its part of the memory for reads. */
static void lay_out(search *all, search_thread *threads, search_query *queries, uint64_t *lists,
                    wl_search_result *results) {
    const wl_search_setup *setup = &all->setup;
    for (uint32_t i = 0; i < setup->threads * setup->inflight_per_thread; i++) {
        search_thread *own = &threads[i / setup->inflight_per_thread];
        search_query *query = &queries[i];
        query->slots = setup->memory + (size_t)i * setup->beam * setup->read_bytes;
        query->candidates = lists + i * all->list_words;
        query->answers = query->candidates + setup->search_list;
        query->table = (float *)(void *)(query->answers + setup->k);
        own->free[own->free_count++] = i % setup->inflight_per_thread;
    }
    for (uint32_t i = 0; i < setup->threads; i++) {
        threads[i].all = all;
        threads[i].held = NEVER;
        threads[i].queries = queries + (size_t)i * setup->inflight_per_thread;
        threads[i].result = &results[i];
        results[i] = (wl_search_result){.latencies.min_ns = UINT64_MAX};
    }
}

int32_t wl_search(const wl_search_setup *setup, const wl_search_run *run, const uint32_t *stop,
                  wl_search_result *results, wl_error *error) {
    if (setup->struct_bytes != sizeof *setup || run->struct_bytes != sizeof *run)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "struct_bytes is another version's");
    if (!setup->threads || setup->threads > WL_SEARCH_THREADS || !setup->inflight_per_thread ||
        setup->inflight_per_thread > WL_SEARCH_INFLIGHT || !setup->beam || !setup->k ||
        setup->beam > WL_BEAM_LIMIT || setup->degree > WL_DEGREE_LIMIT ||
        setup->node_count > INT32_MAX || !run->query_count || !setup->check_every)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "a field is out of its range");
    search all = {.setup = *setup, .run = *run, .stop = stop};
    all.distance = wl_distance_to(setup->type);
    all.to_medoid = wl_distance_to(WL_FLOAT32);
    all.list_words = setup->search_list + setup->k + setup->chunks * WL_CENTROIDS / 2;
    size_t count = (size_t)setup->threads * setup->inflight_per_thread;
    search_thread *threads = calloc(setup->threads, sizeof *threads);
    search_query *queries = calloc(count, sizeof *queries);
    uint64_t *lists = calloc(count, all.list_words * sizeof *lists);
    if (threads && queries && lists) {
        lay_out(&all, threads, queries, lists, results);
        run_threads(&all, threads, error);
    } else {
        wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating %zu queries", count);
    }
    free(threads);
    free(queries);
    free(lists);
    return error->code;
}
