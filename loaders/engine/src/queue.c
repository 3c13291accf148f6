/* The queue's memory, its stages, and what they found. */
#include "queue.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pattern.h"
#include "stamps.h"

enum { POLLER_LIMIT = 256, BLOCK_LIMIT = 65536, READ_LIMIT = 1 << 20 };
enum { REQUESTER_LIMIT = 65536, SIZE_LIMIT = 65536, PAIR_LIMIT = 1024 };
#define TABLE_LIMIT ((uint64_t)1 << 32)
/* What memory holds where nothing was delivered. */
enum { PATTERN = 0xa5 };
/* How often the end of requesters is looked for, and whether a target answers. */
enum { END_NS = 20000, WATCH_NS = 50000000, ABANDON_NS = 1000000000 };
/* After so many empty passes a requester of the CPU yields, and after so many, some milliseconds,
 * it sleeps: a delay that is small beside what the answer has taken by then. */
enum { SPINS = 64, YIELDS = 4096, REST_NS = 50000 };
/* As of wl_gpu_progress. */
enum { WL_STAGE_CHECKING = 1, WL_STAGE_CHECKED, WL_STAGE_TIMED, WL_STAGE_OVER, WL_STAGE_DONE };
/* Stamps of the table; its blocks are never on a drive. */
#define TABLE_NONCE 0x7461626c65u
/* How much longer than `hang_ms` a requester waits for its own answer: it leaves by itself only if
 * nobody asks it to, or if its request is lost among others that are answered. */
enum { OWN_WAIT = 2 };

static bool is_power_of_2(uint64_t value) { return value && !(value & (value - 1)); }

static uint64_t line_up(uint64_t bytes) { return wl_round_up(bytes, WL_PAGE_BYTES); }

wl_source wl_source_of(const wl_queue *queue, uint32_t number) {
    return queue->delivery == WL_DELIVER_SLOT ? queue->files[number].source : queue->table_source;
}

/* Regions have a block for each warp, in the table too where it is read. */
static const char *check_targets(const wl_queue_setup *setup) {
    uint64_t parts = setup->pattern == WL_PATTERN_REGIONS ? setup->requesters / WL_WARP : 1;
    if (setup->engine != WL_QUEUE_STORAGE && setup->table_bytes / setup->block_bytes < parts)
        return "table_bytes must hold a block for each warp";
    for (uint32_t i = 0; setup->engine == WL_QUEUE_STORAGE && i < setup->target_count; i++) {
        uint64_t reads = setup->targets[i].bytes / setup->read_bytes;
        if (reads == 0 || reads * (setup->read_bytes / setup->block_bytes) < parts)
            return "a target must hold a read, and a block for each warp";
    }
    return NULL;
}

static int32_t check_setup(const wl_queue_setup *setup, wl_error *error) {
    const char *wrong = NULL;
    if (setup->struct_bytes != sizeof *setup)
        wrong = "struct_bytes is that of another version";
    else if (setup->engine > WL_QUEUE_STORAGE || setup->pattern > WL_PATTERN_ZIPF)
        wrong = "engine or pattern is unknown";
    else if (!is_power_of_2(setup->block_bytes) || setup->block_bytes < WL_UNIT_BYTES ||
             setup->block_bytes > BLOCK_LIMIT)
        wrong = "block_bytes must be a power of two, 512 to 65536";
    else if (!is_power_of_2(setup->read_bytes) || setup->read_bytes < setup->block_bytes ||
             setup->read_bytes > READ_LIMIT)
        wrong = "read_bytes must be a power of two, block_bytes to 1 MiB";
    else if (!setup->requesters || setup->requesters % WL_WARP ||
             setup->requesters > REQUESTER_LIMIT)
        wrong = "requesters must be a multiple of 32, up to 65536";
    else if (!is_power_of_2(setup->queue_size) || setup->queue_size > SIZE_LIMIT ||
             setup->queue_size < setup->requesters)
        wrong = "queue_size must be a power of two up to 65536, at least requesters";
    else if (!is_power_of_2(setup->table_bytes) || setup->table_bytes < BLOCK_LIMIT ||
             setup->table_bytes > TABLE_LIMIT)
        wrong = "table_bytes must be a power of two, 64 KiB to 4 GiB";
    else if (!setup->sample_every)
        wrong = "sample_every must be 1 or more";
    else if (setup->cache_bytes && (!setup->gpu || setup->engine == WL_QUEUE_NULL))
        wrong = "a cache is in the memory of a GPU, for blocks that are delivered";
    else if (setup->cache_bytes && setup->cache_bytes / setup->block_bytes < WL_WAYS)
        wrong = "cache_bytes must hold 16 blocks";
    else
        wrong = check_targets(setup);
    return wrong ? wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "%s", wrong) : WL_OK;
}

/* What every kind of requests has. */
static int32_t check_common(const wl_queue_setup *setup, uint32_t warps, wl_error *error) {
    const char *wrong = NULL;
    if (!setup->target_count || setup->target_count > WL_QUEUE_TARGETS)
        wrong = "there must be 1 to 64 targets or files";
    else if (!setup->queue_pairs || setup->queue_pairs > PAIR_LIMIT)
        wrong = "queue_pairs must be 1 to 1024";
    else if (!setup->pollers || setup->pollers > POLLER_LIMIT ||
             setup->pollers > setup->queue_pairs * setup->target_count)
        wrong = "pollers must be 1 to 256, at most all queue pairs";
    else if (!setup->gpu && !setup->requester_threads)
        wrong = "requesters of the CPU need threads";
    else if (!setup->hang_ms)
        wrong = "hang_ms must be 1 or more";
    else if ((uint64_t)warps * WL_WARP * setup->read_bytes > WL_QUEUE_PIECES * WL_PIECE_BYTES)
        wrong = "the slots of all requests must be at most 64 GiB";
    return wrong ? wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "%s", wrong) : WL_OK;
}

uint8_t *wl_queue_map(size_t bytes, wl_error *error) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        wl_fail(error, errno, NULL, WL_NOWHERE, "allocating %zu bytes", bytes);
        return NULL;
    }
    madvise(memory, bytes, MADV_HUGEPAGE); /* fewer entries in the GPU's and the kernel's tables */
    /* After a fork the parent's next write would move it to another page than the pinned one. */
    madvise(memory, bytes, MADV_DONTFORK);
    return memory;
}

/* Random bytes under stamps, so that a table is read as a file would be. */
static int32_t fill_table(wl_queue *queue, wl_error *error) {
    if (!queue->table_bytes)
        return WL_OK;
    queue->table = wl_queue_map(queue->table_bytes, error);
    if (!queue->table)
        return error->code;
    for (uint64_t i = 0; i < queue->table_bytes / 8; i++) {
        uint64_t word = wl_draw(TABLE_NONCE, i);
        memcpy(queue->table + i * 8, &word, sizeof word);
    }
    wl_seal(queue->table, queue->table_bytes, 0, TABLE_NONCE, 0, 0, WL_UNIT_BYTES);
    queue->table_source = (wl_source){.blocks = queue->table_bytes / queue->block_bytes,
                                      .nonce = TABLE_NONCE};
    return WL_OK;
}

static int32_t lay_out(wl_queue *queue, wl_error *error) {
    uint64_t entries = (uint64_t)queue->pair_count * queue->size;
    uint64_t requests = WL_PAGE_BYTES, laps = requests + line_up(entries * sizeof(wl_request));
    uint64_t completions = laps + line_up(entries * sizeof(uint32_t));
    uint64_t slots = completions + line_up((uint64_t)wl_slot_count(queue) * sizeof(uint32_t));
    queue->memory_bytes = slots + line_up((uint64_t)wl_slot_count(queue) * queue->slot_bytes);
    queue->memory = wl_queue_map(queue->memory_bytes, error);
    if (!queue->memory)
        return error->code;
    queue->word = (uint32_t *)(void *)queue->memory;
    queue->requests = (wl_request *)(void *)(queue->memory + requests);
    queue->laps = (_Atomic uint32_t *)(void *)(queue->memory + laps);
    queue->completions = (_Atomic uint32_t *)(void *)(queue->memory + completions);
    queue->slots = queue->memory + slots;
    memset(queue->memory, 0, slots);
    memset(queue->slots, PATTERN, queue->memory_bytes - slots);
    return WL_OK;
}

static int32_t open_file(wl_queue *queue, wl_queue_file *file, const wl_queue_target *target,
                         wl_error *error) {
    struct stat state;
    file->path = strdup(target->path);
    file->fd = open(target->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (file->fd < 0 && errno == EINVAL)
        return wl_fail(error, WL_NOT_DIRECT, target->path, WL_NOWHERE, "open");
    if (file->fd < 0 || !file->path || fstat(file->fd, &state))
        return wl_fail(error, errno, target->path, WL_NOWHERE, "open");
    if (S_ISREG(state.st_mode) && (uint64_t)state.st_size < target->bytes)
        return wl_fail(error, WL_OTHER_SIZE, target->path, (uint64_t)state.st_size, "shorter");
    file->source = (wl_source){
        .blocks = target->bytes / queue->slot_bytes * (queue->slot_bytes / queue->block_bytes),
        .nonce = target->nonce,
        .word = target->word,
        .first_block = target->first_block};
    file->align = queue->slot_bytes;
    file->end_byte = target->bytes / queue->slot_bytes * queue->slot_bytes;
    return WL_OK;
}

/* Pair p of all is served by poller p modulo their number. */
static int32_t place_pairs(wl_queue *queue, wl_error *error) {
    for (uint32_t i = 0; i < queue->pair_count; i++) {
        wl_pair *pair = &queue->all_pairs[i];
        wl_queue_poller *poller = &queue->pollers[i % queue->poller_count];
        pair->requests = queue->requests + (size_t)i * queue->size;
        pair->laps = queue->laps + (size_t)i * queue->size;
        pair->mask = queue->size - 1;
        pair->shift = queue->view.queue_shift;
        pair->target = i / queue->pairs;
        wl_pair **more =
            realloc(poller->pairs, (poller->pair_count + 1) * sizeof(wl_pair *));
        if (!more)
            return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating pollers");
        poller->pairs = more;
        poller->pairs[poller->pair_count++] = pair;
        poller->queue = queue;
    }
    return WL_OK;
}

static void *zeroed_lines(size_t bytes) {
    void *memory = aligned_alloc(WL_QUEUE_LINE, bytes);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

static int32_t allocate(wl_queue *queue, const wl_queue_setup *setup, wl_error *error) {
    queue->files = calloc(queue->target_count, sizeof *queue->files);
    queue->flights = calloc(wl_slot_count(queue), sizeof *queue->flights);
    queue->all_pairs = zeroed_lines(queue->pair_count * sizeof(wl_pair));
    queue->pollers = zeroed_lines(queue->poller_count * sizeof(wl_queue_poller));
    for (uint32_t i = 0; queue->files && i < queue->target_count; i++)
        queue->files[i].fd = -1;
    if (!queue->files || !queue->flights || !queue->all_pairs || !queue->pollers)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating lists");
    if (lay_out(queue, error) || fill_table(queue, error) || place_pairs(queue, error))
        return error->code;
    for (uint32_t i = 0; i < queue->target_count && queue->engine == WL_QUEUE_STORAGE; i++)
        if (open_file(queue, &queue->files[i], &setup->targets[i], error))
            return error->code;
    return WL_OK;
}

int wl_queue_thread(const wl_queue *queue, pthread_t *thread, void *(*run)(void *),
                    void *argument) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (CPU_COUNT(&queue->cpus))
        pthread_attr_setaffinity_np(&attributes, sizeof queue->cpus, &queue->cpus);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(thread, &attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return code;
}

/* Returns when all pollers wait for the next stage. */
void wl_queue_wait_for_pollers(wl_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    while (queue->parked_pollers < queue->poller_threads)
        pthread_cond_wait(&queue->changed, &queue->mutex);
    pthread_mutex_unlock(&queue->mutex);
}

static int32_t start_pollers(wl_queue *queue, wl_error *error) {
    for (; queue->poller_threads < queue->poller_count; queue->poller_threads++) {
        wl_queue_poller *poller = &queue->pollers[queue->poller_threads];
        int code = wl_queue_thread(queue, &poller->thread, wl_queue_poller_main, poller);
        if (code)
            return wl_fail(error, code, NULL, WL_NOWHERE, "starting poller %u of %u",
                           queue->poller_threads + 1, queue->poller_count);
    }
    wl_queue_wait_for_pollers(queue);
    *error = queue->error;
    return error->code;
}

static uint32_t wait_limit_ms(uint32_t hang_ms) {
    uint64_t limit_ms = (uint64_t)hang_ms * OWN_WAIT;
    return limit_ms < UINT32_MAX ? (uint32_t)limit_ms : UINT32_MAX;
}

static void describe(wl_queue *queue, const wl_queue_setup *setup) {
    queue->view = (wl_queue_view){.seed = setup->seed,
                                  .pairs = queue->pairs,
                                  .queue_shift = (uint32_t)__builtin_ctz(queue->size),
                                  .warps_per_target = queue->warps_per_target,
                                  .warps = queue->warps,
                                  .block_bytes = queue->block_bytes,
                                  .slot_bytes = queue->slot_bytes,
                                  .sample_every = setup->sample_every,
                                  .wait_limit_ms = wait_limit_ms(setup->hang_ms),
                                  .table_blocks = queue->table_bytes / queue->block_bytes};
}

static int32_t open_all(wl_queue *queue, const wl_queue_setup *setup, wl_error *error) {
    for (uint32_t i = 0; i < setup->cpu_count; i++) {
        if (setup->cpus[i] >= CPU_SETSIZE)
            return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "cpus must be below 1024");
        CPU_SET(setup->cpus[i], &queue->cpus);
    }
    describe(queue, setup);
    /* Memory comes from the node of the CPU that first writes to it. */
    cpu_set_t before;
    bool is_known = !sched_getaffinity(0, sizeof before, &before);
    if (CPU_COUNT(&queue->cpus) && sched_setaffinity(0, sizeof queue->cpus, &queue->cpus))
        return wl_fail(error, errno, NULL, WL_NOWHERE, "running on the CPUs of the queue");
    int32_t failed = allocate(queue, setup, error);
    if (!failed)
        failed = queue->requesters->open(queue, setup, error);
    if (!failed)
        failed = start_pollers(queue, error);
    if (is_known)
        sched_setaffinity(0, sizeof before, &before);
    return failed;
}

int32_t wl_queue_make(const wl_queue_setup *setup, const wl_requesters *requesters, void *own,
                      uint32_t warps, wl_queue **made, wl_error *error) {
    if (check_common(setup, warps, error))
        return error->code;
    wl_queue *queue = calloc(1, sizeof *queue);
    if (!queue)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating a queue");
    queue->requesters = requesters;
    queue->own = own;
    queue->engine = setup->engine;
    queue->pairs = setup->queue_pairs;
    queue->size = setup->queue_size;
    queue->target_count = setup->target_count;
    queue->pair_count = setup->queue_pairs * setup->target_count;
    queue->warps_per_target = setup->requesters / WL_WARP;
    queue->warps = warps;
    queue->block_bytes = setup->block_bytes;
    queue->slot_bytes = setup->read_bytes;
    queue->poller_count = setup->pollers;
    queue->trace_every = setup->trace_every;
    queue->timed_fault = setup->fault;
    queue->pattern = setup->pattern;
    queue->duration_ns = setup->duration_ns;
    queue->ceiling_ns = setup->ceiling_ns;
    queue->hang_ns = (uint64_t)setup->hang_ms * 1000000u;
    queue->first_number = setup->first_number;
    queue->table_bytes = setup->table_bytes;
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->changed, NULL);
    int32_t failed = open_all(queue, setup, error);
    if (failed)
        wl_queue_close(queue);
    else
        *made = queue;
    return failed;
}

int32_t wl_queue_open(const wl_queue_setup *setup, wl_queue **opened, wl_error *error) {
    if (check_setup(setup, error))
        return error->code;
    return wl_queue_make(setup, setup->gpu ? &wl_gpu_requesters : &wl_cpu_requesters, NULL,
                         setup->requesters / WL_WARP * setup->target_count, opened, error);
}

/* Before a stage: completion words hold the generation before a requester's first, so that none is
 * taken for its answer. */
void wl_queue_reset(wl_queue *queue) {
    uint32_t before = ((uint32_t)queue->view.first_number & WL_GENERATION_MASK) << WL_ERRNO_BITS;
    size_t entries = (size_t)queue->pair_count * queue->size;
    memset((void *)queue->laps, 0, entries * sizeof(uint32_t));
    for (uint32_t i = 0; i < wl_slot_count(queue); i++)
        atomic_store_explicit(&queue->completions[i], before, memory_order_relaxed);
    memset(queue->failures, 0, sizeof queue->failures);
    for (uint32_t i = 0; i < queue->pair_count; i++) {
        wl_pair *pair = &queue->all_pairs[i];
        pair->tail = queue->view.first_position;
        wl_set(&pair->taken, 0);
        wl_set(&pair->answered, 0);
        memset(&pair->reads, 0, sizeof pair->reads);
        pair->reads.latencies.min_ns = UINT64_MAX;
    }
    for (uint32_t i = 0; i < queue->poller_count; i++) {
        wl_queue_poller *poller = &queue->pollers[i];
        poller->number = 0;
        wl_set(&poller->taken, 0);
        wl_set(&poller->answered, 0);
        wl_set(&poller->busy_ns, 0);
        wl_set(&poller->cpu_ns, 0);
        wl_trace_free(&poller->trace);
        wl_trace_init(&poller->trace, queue->trace_every, WL_TRACE_LIMIT / queue->poller_count);
    }
}

void wl_queue_let_pollers(wl_queue *queue, bool serve) {
    pthread_mutex_lock(&queue->mutex);
    atomic_store_explicit(&queue->is_serving, serve, memory_order_release);
    if (serve) {
        queue->parked_pollers = 0;
        queue->stage_number++;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->mutex);
}

static bool has_failed(wl_queue *queue, wl_error *error) {
    pthread_mutex_lock(&queue->mutex);
    *error = queue->error;
    pthread_mutex_unlock(&queue->mutex);
    return error->code != WL_OK;
}

void wl_queue_nap(uint64_t ns) {
    struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u),
                            .tv_nsec = (long)(ns % 1000000000u)};
    nanosleep(&time, NULL);
}

void wl_queue_give_way(uint32_t empty_passes) {
    if (empty_passes > YIELDS)
        wl_queue_nap(REST_NS);
    else if (empty_passes > SPINS)
        sched_yield();
}

/* A stage in which requesters ask. `pulls`: without the queue. */
typedef struct {
    uint32_t delivery;
    bool pulls, is_timed;
    uint64_t duration_ns;

    uint64_t start_ns, deadline_ns, end_ns;
    wl_queue_watch watch;
    bool is_ending;
} queue_stage;

/* What a target has answered, and whether there is more to answer: requests that a poller has taken,
 * or has still to take. */
static uint64_t answered_of(const wl_queue *queue, uint32_t target, bool *has_more) {
    uint64_t sum = 0;
    *has_more = false;
    for (uint32_t i = target * queue->pairs; i < (target + 1) * queue->pairs; i++) {
        wl_pair *pair = &queue->all_pairs[i];
        uint64_t answered = wl_own(&pair->answered), taken = wl_own(&pair->taken);
        sum += answered;
        *has_more |= taken != answered ||
                     wl_is_asked(pair, queue->view.first_position + (uint32_t)taken);
    }
    return sum;
}

static bool hangs(wl_queue *queue, wl_queue_watch *watch) {
    uint64_t now_ns = wl_now_ns(), oldest_ns = now_ns;
    for (uint32_t i = 0; i < queue->target_count; i++) {
        bool has_more;
        uint64_t count = answered_of(queue, i, &has_more);
        if (count != watch->seen[i] || !watch->seen_ns[i] || !has_more) {
            watch->seen[i] = count;
            watch->seen_ns[i] = now_ns;
        }
        oldest_ns = watch->seen_ns[i] < oldest_ns ? watch->seen_ns[i] : oldest_ns;
    }
    return now_ns - oldest_ns >= queue->hang_ns;
}

int32_t wl_queue_name_hanging(wl_queue *queue, wl_error *error) {
    uint64_t open[WL_QUEUE_TARGETS] = {0};
    uint32_t worst = 0;
    for (uint32_t i = 0; i < queue->pair_count; i++) {
        wl_pair *pair = &queue->all_pairs[i];
        open[pair->target] += wl_own(&pair->taken) - wl_own(&pair->answered);
    }
    for (uint32_t i = 1; i < queue->target_count; i++)
        worst = open[i] > open[worst] ? i : worst;
    return wl_fail(error, WL_HANGS, queue->files[worst].path, open[worst], "no answer");
}

int32_t wl_queue_look(wl_queue *queue, wl_queue_watch *watch, wl_error *error) {
    int32_t ended = queue->requesters->poll(queue, error);
    if (ended)
        return ended;
    if (has_failed(queue, error))
        return -1;
    if (!watch || !hangs(queue, watch))
        return 0;
    wl_queue_name_hanging(queue, error);
    return -1;
}

static bool is_over(wl_queue *queue, const queue_stage *stage, uint64_t now_ns) {
    return now_ns >= stage->deadline_ns ||
           atomic_load_explicit(&queue->is_stopped, memory_order_relaxed);
}

/* Tells the requesters to stop when their time is over, and waits for them. */
static int32_t follow(wl_queue *queue, queue_stage *stage, wl_error *error) {
    for (;;) {
        uint64_t now_ns = wl_now_ns();
        if (!stage->is_ending && is_over(queue, stage, now_ns)) {
            if (queue->requesters->control(queue, WL_STOP, error))
                return error->code;
            stage->is_ending = true;
        }
        int32_t ended = wl_queue_look(queue, stage->pulls ? NULL : &stage->watch, error);
        if (ended < 0)
            return error->code;
        if (ended) {
            stage->end_ns = wl_now_ns();
            return WL_OK;
        }
        uint64_t left_ns = stage->is_ending ? END_NS : stage->deadline_ns - now_ns;
        wl_queue_nap(left_ns < WATCH_NS ? left_ns : WATCH_NS);
    }
}

int32_t wl_queue_leave(wl_queue *queue, uint32_t word, wl_error *error) {
    uint64_t limit_ns = wl_now_ns() + ABANDON_NS;
    int32_t ended = queue->requesters->control(queue, word, error) ? -1 : 0;
    while (!ended && !(ended = queue->requesters->poll(queue, error)) && wl_now_ns() < limit_ns)
        wl_queue_nap(END_NS);
    return ended;
}

static bool are_parked(wl_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    bool are = queue->parked_pollers >= queue->poller_threads;
    pthread_mutex_unlock(&queue->mutex);
    return are;
}

void wl_queue_abandon(wl_queue *queue) {
    wl_error error;
    wl_queue_leave(queue, WL_STOP, &error);
    wl_queue_leave(queue, WL_ABANDON, &error);
    wl_queue_let_pollers(queue, false);
    uint64_t limit_ns = wl_now_ns() + ABANDON_NS;
    while (!are_parked(queue) && wl_now_ns() < limit_ns)
        wl_queue_nap(END_NS);
}

static void begin_clock(wl_queue *queue, queue_stage *stage) {
    stage->start_ns = wl_now_ns();
    stage->deadline_ns = stage->start_ns + stage->duration_ns;
    if (!stage->is_timed)
        return;
    queue->start_ns = stage->start_ns;
    queue->deadline_ns = stage->deadline_ns;
    atomic_store_explicit(&queue->stage, WL_STAGE_TIMED, memory_order_release);
}

static int32_t run_stage(wl_queue *queue, queue_stage *stage, wl_error *error) {
    queue->delivery = stage->delivery;
    queue->fault = stage->is_timed ? queue->timed_fault : WL_FAULT_NONE;
    queue->view.delivery = stage->delivery;
    queue->view.pattern = stage->is_timed ? queue->pattern : WL_PATTERN_UNIFORM;
    queue->view.first_number = stage->is_timed ? queue->first_number : 0;
    queue->view.first_position = (uint32_t)(queue->view.first_number * WL_WARP);
    wl_queue_reset(queue);
    if (!stage->pulls)
        wl_queue_let_pollers(queue, true);
    begin_clock(queue, stage);
    int32_t failed = queue->requesters->launch(queue, stage->pulls, error);
    if (!failed)
        failed = follow(queue, stage, error);
    if (failed) {
        wl_queue_abandon(queue);
    } else if (!stage->pulls) {
        wl_queue_let_pollers(queue, false);
        wl_queue_wait_for_pollers(queue);
    }
    return failed;
}

static uint64_t block_of(const wl_queue *queue, uint32_t slot, uint64_t number) {
    const wl_queue_view *view = &queue->view;
    uint32_t warp = slot / WL_WARP;
    uint64_t count = wl_source_of(queue, warp / view->warps_per_target).blocks, first = 0;
    if (view->pattern == WL_PATTERN_REGIONS) {
        count /= view->warps_per_target;
        first = warp % view->warps_per_target * count;
    }
    return first + wl_block_of(view->pattern, wl_draw(wl_draw(view->seed, slot), number), count);
}

/* Every byte of the last block of each requester, as the requester has it. A warp with a failed or
 * unanswered request is left out: which of its blocks is the last delivered is not known. */
static int32_t compare(wl_queue *queue, const wl_warp_counts *warps, wl_queue_result *result,
                       wl_error *error) {
    uint8_t *block = malloc(queue->block_bytes);
    int32_t failed = block ? WL_OK : wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "a block");
    for (uint32_t slot = 0; slot < wl_slot_count(queue) && !failed; slot++) {
        const wl_warp_counts *warp = &warps[slot / WL_WARP];
        uint64_t requests = warp->requests[slot % WL_WARP];
        if (warp->failed || warp->unanswered || !requests)
            continue;
        uint64_t number = queue->first_number + requests - 1;
        wl_source source = wl_source_of(queue, slot / WL_WARP / queue->warps_per_target);
        uint64_t offset = block_of(queue, slot, number) * queue->block_bytes;
        failed = queue->requesters->output(queue, slot, block, error);
        if (failed)
            break;
        result->compared_bytes += queue->block_bytes;
        result->bad_blocks += wl_bad_blocks(block, queue->block_bytes, offset, source.nonce,
                                            source.word, source.first_block, WL_UNIT_BYTES);
    }
    free(block);
    return failed;
}

static uint64_t requests_of(const wl_warp_counts *warp) {
    uint64_t sum = 0;
    for (uint32_t lane = 0; lane < WL_WARP; lane++)
        sum += warp->requests[lane];
    return sum;
}

static void add_warps(const wl_queue *queue, const wl_warp_counts *warps,
                      wl_queue_result *result) {
    for (uint32_t i = 0; i < queue->warps; i++) {
        const wl_warp_counts *warp = &warps[i];
        if (warp->wrong && !result->wrong) {
            result->wrong_target = i / queue->warps_per_target;
            result->wrong_offset = warp->wrong_block * queue->block_bytes;
        }
        result->requests += requests_of(warp);
        result->asked += warp->asked;
        result->coalesced += warp->coalesced;
        result->hits += warp->hits;
        result->merged += warp->merged;
        result->bypassed += warp->bypassed;
        result->delivered += warp->delivered;
        result->failed += warp->failed;
        result->wrong += warp->wrong;
        result->unanswered += warp->unanswered;
    }
}

void wl_queue_add_pollers(wl_queue *queue, uint64_t *taken, uint64_t *answered, uint64_t *cpu_ns,
                          wl_queue_failure *failures) {
    for (uint32_t i = 0; i < queue->poller_count; i++) {
        *taken += wl_own(&queue->pollers[i].taken);
        *answered += wl_own(&queue->pollers[i].answered);
        *cpu_ns += wl_own(&queue->pollers[i].cpu_ns);
    }
    pthread_mutex_lock(&queue->mutex);
    memcpy(failures, queue->failures, sizeof queue->failures);
    pthread_mutex_unlock(&queue->mutex);
}

/* How fast requesters pull, or how fast the queue is with nothing to deliver. */
static int32_t find_ceiling(wl_queue *queue, wl_warp_counts *warps, bool pulls, uint64_t *requests,
                            uint64_t *ns, wl_error *error) {
    uint64_t counts[WL_BUCKETS] = {0};
    queue_stage stage = {.delivery = pulls ? WL_DELIVER_TABLE : WL_DELIVER_NOTHING,
                         .pulls = pulls,
                         .duration_ns = queue->ceiling_ns};
    if (run_stage(queue, &stage, error) ||
        queue->requesters->collect(queue, warps, counts, error))
        return error->code;
    uint32_t open = 0;
    for (uint32_t i = 0; i < queue->warps; i++) {
        *requests += requests_of(&warps[i]);
        open += warps[i].unanswered;
    }
    *ns = stage.end_ns - stage.start_ns;
    return open ? wl_fail(error, WL_HANGS, NULL, open, "no answer") : WL_OK;
}

static int32_t find_ceilings(wl_queue *queue, wl_warp_counts *warps, wl_queue_result *result,
                             wl_error *error) {
    if (!queue->ceiling_ns)
        return WL_OK;
    if (queue->requesters == &wl_gpu_requesters &&
        find_ceiling(queue, warps, true, &result->pull_requests, &result->pull_ns, error))
        return error->code;
    result->clock_step_ns = warps->clock_step_ns;
    return find_ceiling(queue, warps, false, &result->null_requests, &result->null_ns, error);
}

static void wait_for_start(wl_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    atomic_store_explicit(&queue->stage, WL_STAGE_CHECKED, memory_order_release);
    while (!queue->is_started)
        pthread_cond_wait(&queue->changed, &queue->mutex);
    pthread_mutex_unlock(&queue->mutex);
}

static int32_t run_timed(wl_queue *queue, wl_warp_counts *warps, wl_queue_result *result,
                         wl_error *error) {
    static const uint32_t deliveries[] = {WL_DELIVER_NOTHING, WL_DELIVER_TABLE, WL_DELIVER_SLOT};
    queue_stage stage = {.delivery = deliveries[queue->engine],
                         .is_timed = true,
                         .duration_ns = queue->duration_ns};
    uint64_t cpu_ns = wl_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    int32_t failed = run_stage(queue, &stage, error);
    atomic_store_explicit(&queue->stage, WL_STAGE_OVER, memory_order_release);
    result->cpu_ns = wl_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    result->start_ns = stage.start_ns;
    result->end_ns = stage.end_ns ? stage.end_ns : wl_now_ns();
    if (failed && failed != WL_HANGS)
        return failed;
    wl_error other;
    if (queue->requesters->collect(queue, warps, result->counts, &other)) {
        *error = failed ? *error : other;
        return error->code;
    }
    uint64_t pollers_ns = 0; /* a part of the process's */
    add_warps(queue, warps, result);
    wl_queue_add_pollers(queue, &result->taken, &result->answered, &pollers_ns, result->failures);
    for (uint32_t i = 0; i < queue->pair_count; i++)
        result->operations += queue->all_pairs[i].reads.operations;
    if (failed || result->unanswered)
        return wl_queue_name_hanging(queue, error);
    return queue->engine == WL_QUEUE_NULL ? WL_OK : compare(queue, warps, result, error);
}

void wl_queue_start(wl_queue *queue) {
    pthread_mutex_lock(&queue->mutex);
    queue->is_started = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

void wl_queue_stop(wl_queue *queue) {
    atomic_store_explicit(&queue->is_stopped, true, memory_order_relaxed);
    wl_queue_start(queue);
}

int32_t wl_queue_run(wl_queue *queue, wl_queue_result *result, wl_error *error) {
    memset(result, 0, sizeof *result);
    memset(error, 0, sizeof *error);
    wl_warp_counts *warps = calloc(queue->warps, sizeof *warps);
    if (!warps)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating counts");
    atomic_store_explicit(&queue->stage, WL_STAGE_CHECKING, memory_order_release);
    int32_t failed = find_ceilings(queue, warps, result, error);
    if (!failed) {
        wait_for_start(queue);
        failed = run_timed(queue, warps, result, error);
    }
    atomic_store_explicit(&queue->stage, WL_STAGE_DONE, memory_order_release);
    free(warps);
    return failed;
}

void wl_queue_progress_of(wl_queue *queue, wl_gpu_progress *progress) {
    *progress = (wl_gpu_progress){
        .stage = atomic_load_explicit(&queue->stage, memory_order_acquire)};
    if (progress->stage < WL_STAGE_TIMED)
        return;
    wl_queue_failure failures[WL_QUEUE_FAILURES];
    uint64_t taken = 0, cpu_ns = 0, failed = 0;
    wl_queue_add_pollers(queue, &taken, &progress->ended, &cpu_ns, failures);
    for (uint32_t i = 0; i < WL_QUEUE_FAILURES; i++)
        failed += failures[i].count;
    /* Failures are counted before their answers. */
    progress->reads = progress->ended > failed ? progress->ended - failed : 0;
    progress->start_ns = queue->start_ns;
    progress->deadline_ns = queue->deadline_ns;
}

void wl_queue_target_of(const wl_queue *queue, uint32_t target, wl_queue_reads *sum) {
    memset(sum, 0, sizeof *sum);
    sum->latencies.min_ns = UINT64_MAX;
    for (uint32_t i = 0; i < queue->pair_count; i++) {
        const wl_queue_reads *reads = &queue->all_pairs[i].reads;
        if (target != WL_QUEUE_TARGETS && target != queue->all_pairs[i].target)
            continue;
        sum->operations += reads->operations;
        sum->read_bytes += reads->read_bytes;
        wl_add_latencies(&sum->latencies, &reads->latencies);
    }
    if (!sum->operations)
        sum->latencies.min_ns = 0;
}

void wl_queue_poller_of(wl_queue *queue, uint32_t number, wl_queue_poller_result *result) {
    wl_queue_poller *poller = &queue->pollers[number];
    *result = (wl_queue_poller_result){.answered = wl_own(&poller->answered),
                                       .busy_ns = wl_own(&poller->busy_ns)};
}

const wl_trace_row *wl_queue_trace(wl_queue *queue, uint64_t *row_count) {
    wl_trace *parts[POLLER_LIMIT];
    for (uint32_t i = 0; i < queue->poller_count; i++)
        parts[i] = &queue->pollers[i].trace;
    free(queue->rows);
    queue->rows = wl_trace_merge(parts, queue->poller_count, row_count);
    return queue->rows;
}

void wl_queue_close(wl_queue *queue) {
    queue->requesters->close(queue);
    pthread_mutex_lock(&queue->mutex);
    atomic_store(&queue->is_leaving, true);
    atomic_store(&queue->is_serving, false);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    for (uint32_t i = 0; i < queue->poller_threads; i++)
        pthread_join(queue->pollers[i].thread, NULL);
    for (uint32_t i = 0; queue->pollers && i < queue->poller_count; i++) {
        wl_trace_free(&queue->pollers[i].trace);
        free(queue->pollers[i].pairs);
    }
    for (uint32_t i = 0; queue->files && i < queue->target_count; i++) {
        if (queue->files[i].fd >= 0)
            close(queue->files[i].fd);
        free(queue->files[i].path);
    }
    if (queue->memory)
        munmap(queue->memory, queue->memory_bytes);
    if (queue->table)
        munmap(queue->table, queue->table_bytes);
    free(queue->files);
    free(queue->flights);
    free(queue->all_pairs);
    free(queue->pollers);
    free(queue->rows);
    pthread_mutex_destroy(&queue->mutex);
    pthread_cond_destroy(&queue->changed);
    free(queue);
}
