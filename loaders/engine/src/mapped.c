/* Random reads of mapped files: threads copy one block after another, and page faults fetch them.
 *
 * A read that fails arrives as SIGBUS on the thread that touched the page. The thread then jumps back
 * to its loop, counts the failure, and goes on with its next block. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"
#include "faults.h"
#include "histogram.h"
#include "pattern.h"
#include "queue.h"
#include "stamps.h"
#include "trace.h"

enum { THREAD_LIMIT = 1024, BLOCK_LIMIT = 65536, REQUESTER_LIMIT = 65536, LINE = 64 };
/* Everything before has been stored, and nothing after has been loaded: a fault may leave here. */
#define FAULT_EDGE() __asm__ volatile("" ::: "memory")

typedef struct {
    int fd;
    const uint8_t *memory;
    uint64_t bytes, blocks;
    uint64_t nonce, word, first_block;
    char *path;
} mapped_file;

typedef struct {
    _Alignas(LINE) _Atomic uint64_t reads; /* succeeded */
    wl_mapped *mapped;
    pthread_t handle;
    uint8_t *output;
    uint32_t slot, first_slot;
    uint64_t lap, number; /* of the slot's block, and of all blocks of this thread */
    uint32_t target;      /* of the block that is read now */
    uint64_t block;
    uint64_t operations[WL_MAPPED_TARGETS];
    uint64_t failed, wrong, wrong_offset, bad_blocks;
    uint32_t wrong_target;
    wl_latencies latencies;
    wl_trace trace;
} mapped_thread;

struct wl_mapped {
    mapped_file *files;
    mapped_thread *threads;
    uint64_t *streams;
    uint32_t file_count, thread_count, running;
    uint32_t requesters, pattern, block_bytes, sample_every;
    _Atomic bool is_stopped;
    bool handles_faults;
    uint64_t start_ns;
    pthread_mutex_t mutex; /* of what follows */
    wl_queue_failure failures[WL_QUEUE_FAILURES];
    wl_trace_row *rows;
};

static void handle_faults(wl_mapped *mapped, bool handle) {
    if (mapped->handles_faults == handle)
        return;
    mapped->handles_faults = handle;
    wl_handle_faults(handle);
}

static void choose_block(mapped_thread *own) {
    const wl_mapped *mapped = own->mapped;
    uint32_t warps = mapped->requesters / WL_WARP;
    own->target = own->slot / mapped->requesters;
    uint64_t count = mapped->files[own->target].blocks, first = 0;
    if (mapped->pattern == WL_PATTERN_REGIONS) {
        count /= warps;
        first = own->slot / WL_WARP % warps * count;
    }
    own->block = first + wl_draw(mapped->streams[own->slot], own->lap) % count;
}

static void go_on(mapped_thread *own) {
    const wl_mapped *mapped = own->mapped;
    own->number++;
    own->slot += mapped->thread_count;
    if (own->slot < mapped->requesters * mapped->file_count)
        return;
    own->slot = own->first_slot;
    own->lap++;
}

static void compare(mapped_thread *own, const mapped_file *file, uint64_t offset) {
    const wl_mapped *mapped = own->mapped;
    uint64_t bad = wl_bad_blocks(own->output, mapped->block_bytes, offset, file->nonce, file->word,
                                 file->first_block, WL_UNIT_BYTES);
    if (!bad)
        return;
    own->bad_blocks += bad;
    uint64_t number = file->first_block + offset / WL_UNIT_BYTES;
    for (uint32_t at = 0; at < mapped->block_bytes; at += WL_UNIT_BYTES, number++) {
        uint64_t stamp[3];
        memcpy(stamp, own->output + at, sizeof stamp);
        if (stamp[0] == file->nonce && stamp[1] == file->word && stamp[2] == number)
            continue;
        if (!own->wrong++) {
            own->wrong_target = own->target;
            own->wrong_offset = offset;
        }
        return;
    }
}

static void note_latency(mapped_thread *own, uint64_t begin_ns, uint64_t offset) {
    uint64_t latency_ns = wl_now_ns() - begin_ns;
    wl_add_latency(&own->latencies, latency_ns);
    if (wl_trace_takes(&own->trace, own->number))
        wl_trace_add(&own->trace, own->number,
                     (wl_trace_row){.submit_ns = begin_ns,
                                    .offset = offset,
                                    .latency_ns = latency_ns < UINT32_MAX ? (uint32_t)latency_ns
                                                                          : UINT32_MAX,
                                    .file = own->target});
}

static void read_next(mapped_thread *own) {
    const wl_mapped *mapped = own->mapped;
    choose_block(own);
    const mapped_file *file = &mapped->files[own->target];
    uint64_t offset = own->block * mapped->block_bytes;
    bool is_sampled = own->number % mapped->sample_every == 0;
    uint64_t begin_ns = is_sampled ? wl_now_ns() : 0;
    FAULT_EDGE();
    memcpy(own->output, file->memory + offset, mapped->block_bytes);
    FAULT_EDGE();
    if (is_sampled)
        note_latency(own, begin_ns, offset);
    compare(own, file, offset);
    own->operations[own->target]++;
    wl_count(&own->reads, 1);
    go_on(own);
}

static void note_failure(mapped_thread *own) {
    wl_mapped *mapped = own->mapped;
    const mapped_file *file = &mapped->files[own->target];
    uint64_t offset = own->block * mapped->block_bytes;
    struct stat state;
    bool is_short = !fstat(file->fd, &state) &&
                    (uint64_t)state.st_size < offset + mapped->block_bytes;
    int32_t code = is_short ? WL_SHORT_READ : EIO;
    own->failed++;
    pthread_mutex_lock(&mapped->mutex);
    wl_count_failure(mapped->failures, code, own->target, offset);
    pthread_mutex_unlock(&mapped->mutex);
    go_on(own);
}

static void *thread_main(void *argument) {
    mapped_thread *own = argument;
    sigjmp_buf place;
    if (sigsetjmp(place, 1))
        note_failure(own);
    wl_escape = &place;
    while (!atomic_load_explicit(&own->mapped->is_stopped, memory_order_relaxed))
        read_next(own);
    wl_escape = NULL;
    return NULL;
}

static int32_t check_setup(const wl_mapped_setup *setup, wl_error *error) {
    const char *wrong = NULL;
    if (setup->struct_bytes != sizeof *setup)
        wrong = "struct_bytes is that of another version";
    else if (!setup->threads || setup->threads > THREAD_LIMIT)
        wrong = "threads must be 1 to 1024";
    else if (!setup->block_bytes || setup->block_bytes % WL_UNIT_BYTES ||
             setup->block_bytes > BLOCK_LIMIT)
        wrong = "block_bytes must be a multiple of 512, up to 65536";
    else if (!setup->requesters || setup->requesters % WL_WARP ||
             setup->requesters > REQUESTER_LIMIT)
        wrong = "requesters must be a multiple of 32, up to 65536";
    else if (!setup->target_count || setup->target_count > WL_MAPPED_TARGETS)
        wrong = "target_count must be 1 to 64";
    else if (setup->pattern > WL_PATTERN_REGIONS || setup->advice > WL_ADVICE_RANDOM)
        wrong = "pattern or advice is unknown";
    else if (!setup->sample_every)
        wrong = "sample_every must be 1 or more";
    uint64_t parts = setup->pattern == WL_PATTERN_REGIONS ? setup->requesters / WL_WARP : 1;
    for (uint32_t i = 0; !wrong && i < setup->target_count; i++)
        if (setup->targets[i].bytes / setup->block_bytes < parts)
            wrong = "a target has less than a block for each region";
    return wrong ? wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "%s", wrong) : WL_OK;
}

static int32_t map_file(const wl_mapped *mapped, mapped_file *file, const wl_queue_target *target,
                        uint32_t advice, wl_error *error) {
    struct stat state;
    *file = (mapped_file){.bytes = target->bytes,
                          .blocks = target->bytes / mapped->block_bytes,
                          .nonce = target->nonce,
                          .word = target->word,
                          .first_block = target->first_block,
                          .path = strdup(target->path)};
    file->fd = open(target->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file->fd < 0 || !file->path || fstat(file->fd, &state))
        return wl_fail(error, errno, target->path, WL_NOWHERE, "open");
    if (S_ISREG(state.st_mode) && (uint64_t)state.st_size < target->bytes)
        return wl_fail(error, WL_OTHER_SIZE, target->path, (uint64_t)state.st_size, "shorter");
    void *memory = mmap(NULL, file->bytes, PROT_READ, MAP_SHARED, file->fd, 0);
    if (memory == MAP_FAILED)
        return wl_fail(error, errno, target->path, WL_NOWHERE, "mmap");
    file->memory = memory;
    if (madvise(memory, file->bytes, advice == WL_ADVICE_RANDOM ? MADV_RANDOM : MADV_NORMAL))
        return wl_fail(error, errno, target->path, WL_NOWHERE, "madvise");
    return WL_OK;
}

static int32_t allocate(wl_mapped *mapped, const wl_mapped_setup *setup, wl_error *error) {
    uint32_t slots = mapped->requesters * setup->target_count;
    mapped->thread_count = setup->threads < slots ? setup->threads : slots;
    mapped->files = calloc(setup->target_count, sizeof *mapped->files);
    mapped->streams = calloc(slots, sizeof *mapped->streams);
    mapped->threads = aligned_alloc(LINE, mapped->thread_count * sizeof *mapped->threads);
    if (mapped->threads)
        memset((void *)mapped->threads, 0, mapped->thread_count * sizeof *mapped->threads);
    if (!mapped->files || !mapped->streams || !mapped->threads)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating lists");
    for (uint32_t slot = 0; slot < slots; slot++)
        mapped->streams[slot] = wl_draw(setup->seed, slot);
    for (uint32_t i = 0; i < mapped->thread_count; i++) {
        mapped_thread *thread = &mapped->threads[i];
        thread->mapped = mapped;
        thread->slot = thread->first_slot = i;
        thread->latencies.min_ns = UINT64_MAX;
        thread->output = malloc(mapped->block_bytes);
        if (!thread->output)
            return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating a block");
        wl_trace_init(&thread->trace, setup->trace_every, WL_TRACE_LIMIT / mapped->thread_count);
    }
    for (; mapped->file_count < setup->target_count; mapped->file_count++)
        if (map_file(mapped, &mapped->files[mapped->file_count],
                     &setup->targets[mapped->file_count], setup->advice, error)) {
            mapped->file_count++; /* what there is of it is released */
            return error->code;
        }
    return WL_OK;
}

int32_t wl_mapped_open(const wl_mapped_setup *setup, wl_mapped **opened, wl_error *error) {
    if (check_setup(setup, error))
        return error->code;
    wl_mapped *mapped = calloc(1, sizeof *mapped);
    if (!mapped)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating mapped files");
    mapped->requesters = setup->requesters;
    mapped->pattern = setup->pattern;
    mapped->block_bytes = setup->block_bytes;
    mapped->sample_every = setup->sample_every;
    pthread_mutex_init(&mapped->mutex, NULL);
    int32_t failed = allocate(mapped, setup, error);
    if (failed)
        wl_mapped_close(mapped);
    else
        *opened = mapped;
    return failed;
}

/* The threads take no signals but their own faults. */
int32_t wl_mapped_start(wl_mapped *mapped, wl_error *error) {
    sigset_t others, before;
    int code = 0;
    handle_faults(mapped, true);
    sigfillset(&others);
    sigdelset(&others, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    mapped->start_ns = wl_now_ns();
    for (; mapped->running < mapped->thread_count; mapped->running++) {
        mapped_thread *thread = &mapped->threads[mapped->running];
        code = pthread_create(&thread->handle, NULL, thread_main, thread);
        if (code)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!code)
        return WL_OK;
    return wl_fail(error, code, NULL, WL_NOWHERE, "starting thread %u of %u", mapped->running + 1,
                   mapped->thread_count);
}

uint64_t wl_mapped_reads(wl_mapped *mapped) {
    uint64_t reads = 0;
    for (uint32_t i = 0; i < mapped->thread_count; i++)
        reads += wl_own(&mapped->threads[i].reads);
    return reads;
}

static void stop(wl_mapped *mapped) {
    atomic_store(&mapped->is_stopped, true);
    while (mapped->running)
        pthread_join(mapped->threads[--mapped->running].handle, NULL);
    handle_faults(mapped, false);
}

static void add_thread(wl_mapped_result *result, const mapped_thread *thread) {
    for (uint32_t i = 0; i < WL_MAPPED_TARGETS; i++) {
        result->target_operations[i] += thread->operations[i];
        result->operations += thread->operations[i];
    }
    if (thread->wrong && !result->wrong) {
        result->wrong_target = thread->wrong_target;
        result->wrong_offset = thread->wrong_offset;
    }
    result->failed += thread->failed;
    result->wrong += thread->wrong;
    result->bad_blocks += thread->bad_blocks;
    wl_add_latencies(&result->latencies, &thread->latencies);
}

void wl_mapped_finish(wl_mapped *mapped, wl_mapped_result *result) {
    stop(mapped);
    *result = (wl_mapped_result){.start_ns = mapped->start_ns,
                                 .end_ns = wl_now_ns(),
                                 .latencies.min_ns = UINT64_MAX};
    for (uint32_t i = 0; i < mapped->thread_count; i++)
        add_thread(result, &mapped->threads[i]);
    if (result->latencies.min_ns == UINT64_MAX)
        result->latencies.min_ns = 0;
    memcpy(result->failures, mapped->failures, sizeof result->failures);
}

const wl_trace_row *wl_mapped_trace(wl_mapped *mapped, uint64_t *row_count) {
    wl_trace *parts[THREAD_LIMIT];
    for (uint32_t i = 0; i < mapped->thread_count; i++)
        parts[i] = &mapped->threads[i].trace;
    free(mapped->rows);
    mapped->rows = wl_trace_merge(parts, mapped->thread_count, row_count);
    return mapped->rows;
}

void wl_mapped_close(wl_mapped *mapped) {
    stop(mapped);
    for (uint32_t i = 0; mapped->threads && i < mapped->thread_count; i++) {
        free(mapped->threads[i].output);
        wl_trace_free(&mapped->threads[i].trace);
    }
    for (uint32_t i = 0; i < mapped->file_count; i++) {
        if (mapped->files[i].memory)
            munmap((void *)(uintptr_t)mapped->files[i].memory, mapped->files[i].bytes);
        if (mapped->files[i].fd >= 0)
            close(mapped->files[i].fd);
        free(mapped->files[i].path);
    }
    free(mapped->files);
    free(mapped->threads);
    free(mapped->streams);
    free(mapped->rows);
    pthread_mutex_destroy(&mapped->mutex);
    free(mapped);
}
