/* Reads into GPU memory: memory and threads, the clock, and what was delivered. */
#include "gpu_reads.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"
#include "queue_abi.h"

enum { READER_LIMIT = 65536, POLLER_LIMIT = 64, BLOCK_LIMIT = 1 << 30 };
/* Of a thread: there may be thousands, and cuFile and the driver need little of it. */
enum { STACK_BYTES = 512 << 10 };
/* From here on a thread that waits for a copy sleeps. A spinning wait costs as much CPU time as the
 * copy takes (26 us a MiB on an H100, and more while copies queue up); one that sleeps ends 10 to 30
 * us later, which is much for 4 KiB and little for a block that the drive reads in milliseconds. */
enum { SLEEP_BYTES = 512 << 10 };
/* What the memory holds where nothing was delivered: the GPU's, and that of a copy back. */
enum { GPU_PATTERN = 0xa5, HOST_PATTERN = 0x5a };

uint64_t wl_gpu_block(uint64_t seed, uint64_t reader, uint64_t number, uint64_t blocks) {
    return wl_draw(wl_draw(seed, reader), number) % blocks;
}

void wl_slot_next(wl_worker *worker, wl_read_slot *slot) {
    uint64_t block = wl_draw(slot->stream, slot->next++) % slot->file->blocks;
    slot->offset = block * worker->reads->block_bytes;
}

static void count_failure(wl_gpu_reads *reads, int32_t code) {
    pthread_mutex_lock(&reads->mutex);
    uint32_t i = 0;
    while (i < WL_FAILURES - 1 && reads->failures[i].code && reads->failures[i].code != code)
        i++;
    reads->failures[i].code = i < WL_FAILURES - 1 ? code : 0;
    reads->failures[i].count++;
    pthread_mutex_unlock(&reads->mutex);
}

void wl_slot_ended(wl_worker *worker, wl_read_slot *slot, int32_t code, uint64_t end_ns,
                   bool is_timed) {
    slot->is_delivered = !code;
    if (is_timed && end_ns > worker->reads->deadline_ns)
        worker->cut_ns += worker->reads->deadline_ns - slot->start_ns;
    if (code) {
        wl_count(&worker->failed, 1);
        count_failure(worker->reads, code);
        return;
    }
    wl_count(&worker->succeeded, 1);
    if (!is_timed || end_ns > worker->reads->deadline_ns)
        return;
    slot->operations++;
    wl_add_latency(&worker->latencies, end_ns - slot->start_ns);
    wl_count(&worker->operations, 1);
}

void wl_reads_halt(wl_gpu_reads *reads, const wl_error *error) {
    pthread_mutex_lock(&reads->mutex);
    if (!reads->error.code) {
        reads->error = *error;
        reads->halted_ns = wl_now_ns();
    }
    atomic_store_explicit(&reads->is_halted, true, memory_order_relaxed);
    pthread_mutex_unlock(&reads->mutex);
}

void wl_reads_halt_by_cuda(wl_gpu_reads *reads, wl_cu_result code, const char *call) {
    wl_error error;
    wl_cuda_fail(&error, code, call);
    wl_reads_halt(reads, &error);
}

/* The worker waits until the stage may be entered; false if it never will be. */
static bool enter(wl_gpu_reads *reads, uint32_t stage) {
    pthread_mutex_lock(&reads->mutex);
    if (++reads->arrived == reads->worker_count)
        pthread_cond_broadcast(&reads->changed);
    while (reads->opened < stage && !reads->is_closing)
        pthread_cond_wait(&reads->changed, &reads->mutex);
    bool is_open = !reads->is_closing;
    pthread_mutex_unlock(&reads->mutex);
    return is_open;
}

static void open_stage(wl_gpu_reads *reads, uint32_t stage) {
    pthread_mutex_lock(&reads->mutex);
    reads->arrived = 0;
    reads->opened = stage;
    atomic_store_explicit(&reads->stage, stage, memory_order_release);
    pthread_cond_broadcast(&reads->changed);
    pthread_mutex_unlock(&reads->mutex);
}

/* Waits until all workers have arrived, or until the deadline if it is not 0. */
static void wait_for_workers(wl_gpu_reads *reads, uint64_t deadline_ns) {
    struct timespec at = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                          .tv_nsec = (long)(deadline_ns % 1000000000u)};
    int code = 0;
    pthread_mutex_lock(&reads->mutex);
    while (reads->arrived < reads->worker_count && code != ETIMEDOUT)
        code = deadline_ns ? pthread_cond_timedwait(&reads->changed, &reads->mutex, &at)
                           : pthread_cond_wait(&reads->changed, &reads->mutex);
    pthread_mutex_unlock(&reads->mutex);
}

/* The driver may return before the GPU has done it, on the default stream. */
static wl_cu_result overwrite(const wl_cuda *cuda, wl_cu_pointer memory, size_t bytes) {
    wl_cu_result code = cuda->set(memory, GPU_PATTERN, bytes);
    return code ? code : cuda->stream_wait(NULL);
}

static void compare_slot(wl_worker *worker, wl_read_slot *slot) {
    wl_gpu_reads *reads = worker->reads;
    wl_read_gpu *gpu = worker->gpu;
    const wl_read_file *file = slot->file;
    pthread_mutex_lock(&gpu->checking);
    memset(gpu->checked, HOST_PATTERN, reads->block_bytes);
    wl_cu_result code = reads->cuda->copy_out(gpu->checked, slot->memory, reads->block_bytes);
    if (code) {
        wl_reads_halt_by_cuda(reads, code, "cuMemcpyDtoH");
    } else {
        worker->compared_bytes += reads->block_bytes;
        worker->bad_blocks += wl_bad_blocks(gpu->checked, reads->block_bytes, slot->offset,
                                            file->nonce, file->word, file->first_block,
                                            WL_UNIT_BYTES);
    }
    pthread_mutex_unlock(&gpu->checking);
    slot->is_delivered = false;
}

static void compare(wl_worker *worker) {
    for (uint32_t i = 0; i < worker->slot_count; i++)
        if (worker->slots[i].is_delivered && !wl_reads_is_halted(worker->reads))
            compare_slot(worker, &worker->slots[i]);
}

static void check(wl_worker *worker) {
    wl_gpu_reads *reads = worker->reads;
    size_t bytes = (size_t)worker->slot_count * reads->block_bytes;
    for (uint32_t i = 0; i < reads->checked_reads && !wl_reads_is_halted(reads); i++) {
        wl_cu_result code = overwrite(reads->cuda, worker->slots->memory, bytes);
        if (code)
            wl_reads_halt_by_cuda(reads, code, "cuMemsetD8");
        else
            reads->way->read(worker, false);
        compare(worker);
    }
}

static void begin(wl_worker *worker) {
    wl_gpu_reads *reads = worker->reads;
    wl_error error;
    wl_cu_result code = reads->cuda->context_set(worker->gpu->context);
    if (code)
        wl_reads_halt_by_cuda(reads, code, "cuCtxSetCurrent");
    else if (reads->way->begin(worker, &error))
        wl_reads_halt(reads, &error);
}

static void *worker_main(void *argument) {
    wl_worker *worker = argument;
    wl_gpu_reads *reads = worker->reads;
    begin(worker);
    if (enter(reads, WL_CHECKING)) {
        check(worker);
        if (enter(reads, WL_TIMED)) {
            reads->way->read(worker, true);
            if (enter(reads, WL_OVERTIME)) {
                compare(worker);
                check(worker);
                enter(reads, WL_DONE + 1);
            }
        }
    }
    reads->way->end(worker);
    return NULL;
}

static void collect(const wl_gpu_reads *reads, wl_gpu_result *result) {
    result->latencies.min_ns = UINT64_MAX;
    for (uint32_t i = 0; i < reads->worker_count; i++) {
        wl_worker *worker = &reads->workers[i];
        result->operations += wl_own(&worker->operations);
        result->reads += wl_own(&worker->succeeded);
        result->pinned_copies += worker->pinned_copies;
        result->pinned_bytes += worker->pinned_bytes;
        result->compared_bytes += worker->compared_bytes;
        result->bad_blocks += worker->bad_blocks;
        result->cut_ns += worker->cut_ns;
        wl_add_latencies(&result->latencies, &worker->latencies);
    }
    if (!result->operations)
        result->latencies.min_ns = 0;
    result->bytes = result->operations * reads->block_bytes;
    result->read_bytes = result->reads * reads->block_bytes;
    memcpy(result->failures, reads->failures, sizeof result->failures);
}

void wl_gpu_start(wl_gpu_reads *reads) {
    pthread_mutex_lock(&reads->mutex);
    reads->is_started = true;
    pthread_cond_broadcast(&reads->changed);
    pthread_mutex_unlock(&reads->mutex);
}

static void wait_for_start(wl_gpu_reads *reads) {
    pthread_mutex_lock(&reads->mutex);
    atomic_store_explicit(&reads->stage, WL_CHECKED, memory_order_release);
    while (!reads->is_started)
        pthread_cond_wait(&reads->changed, &reads->mutex);
    pthread_mutex_unlock(&reads->mutex);
}

int32_t wl_gpu_run(wl_gpu_reads *reads, wl_gpu_result *result, wl_error *error) {
    memset(result, 0, sizeof *result);
    open_stage(reads, WL_CHECKING);
    wait_for_workers(reads, 0);
    wait_for_start(reads);
    uint64_t cpu_ns = wl_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    reads->start_ns = wl_now_ns();
    reads->deadline_ns = reads->start_ns + reads->duration_ns;
    open_stage(reads, WL_TIMED);
    wait_for_workers(reads, reads->deadline_ns);
    result->cpu_ns = wl_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
    wait_for_workers(reads, 0);
    open_stage(reads, WL_OVERTIME);
    wait_for_workers(reads, 0);
    atomic_store_explicit(&reads->stage, WL_DONE, memory_order_release);
    result->start_ns = reads->start_ns;
    result->end_ns = reads->error.code ? reads->halted_ns : reads->deadline_ns;
    collect(reads, result);
    if (reads->is_counting)
        result->has_library = (uint32_t)wl_cufile_counted(reads->cufile, &result->library);
    *error = reads->error;
    return error->code;
}

void wl_gpu_progress_of(const wl_gpu_reads *reads, wl_gpu_progress *progress) {
    *progress = (wl_gpu_progress){
        .stage = atomic_load_explicit(&reads->stage, memory_order_acquire)};
    for (uint32_t i = 0; i < reads->worker_count; i++) {
        progress->reads += wl_own(&reads->workers[i].operations);
        progress->ended += wl_own(&reads->workers[i].succeeded);
        progress->ended += wl_own(&reads->workers[i].failed);
    }
    progress->bytes = progress->reads * reads->block_bytes;
    if (progress->stage >= WL_TIMED) {
        progress->start_ns = reads->start_ns;
        progress->deadline_ns = reads->deadline_ns;
    }
}

void wl_gpu_file_operations(const wl_gpu_reads *reads, uint64_t *operations) {
    memset(operations, 0, reads->file_count * sizeof *operations);
    for (uint32_t i = 0; i < reads->slot_count; i++)
        operations[reads->slots[i].file - reads->files] += reads->slots[i].operations;
}

static int32_t check_setup(const wl_gpu_setup *setup, wl_error *error) {
    const char *wrong = NULL;
    if (setup->struct_bytes != sizeof *setup)
        wrong = "struct_bytes is that of another version";
    else if (setup->way > WL_WAY_CUFILE)
        wrong = "way is unknown";
    else if (!setup->readers || setup->readers > READER_LIMIT)
        wrong = "readers must be 1 to 65536";
    else if (!setup->block_bytes || setup->block_bytes % WL_PAGE_BYTES ||
             setup->block_bytes > BLOCK_LIMIT)
        wrong = "block_bytes must be a multiple of 4096, at most 1 GiB";
    else if (!setup->pollers || setup->pollers > POLLER_LIMIT)
        wrong = "pollers must be 1 to 64";
    else if (!setup->file_count || setup->file_count > setup->readers)
        wrong = "file_count must be 1 to readers";
    else if (!setup->gpu_count || setup->gpu_count > setup->file_count)
        wrong = "gpu_count must be 1 to file_count";
    for (uint32_t i = 0; !wrong && i < setup->file_count; i++)
        if (setup->files[i].gpu >= setup->gpu_count)
            wrong = "a file's gpu is unknown";
        else if (setup->files[i].bytes < setup->block_bytes)
            wrong = "a file is smaller than a block";
    return wrong ? wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "%s", wrong) : WL_OK;
}

static int32_t open_file(wl_gpu_reads *reads, wl_read_file *file, const wl_gpu_file *plan,
                         wl_error *error) {
    struct stat state;
    file->fd = open(plan->path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (file->fd < 0 && errno == EINVAL)
        return wl_fail(error, WL_NOT_DIRECT, plan->path, WL_NOWHERE, "open");
    if (file->fd < 0 || fstat(file->fd, &state))
        return wl_fail(error, errno, plan->path, WL_NOWHERE, "open");
    if ((uint64_t)state.st_size < plan->bytes)
        return wl_fail(error, WL_OTHER_SIZE, plan->path, (uint64_t)state.st_size, "shorter");
    file->blocks = plan->bytes / reads->block_bytes;
    file->nonce = plan->nonce;
    file->word = plan->word;
    file->first_block = plan->first_block;
    if (!reads->way->needs_cufile)
        return WL_OK;
    wl_cufile_description description = {.type = WL_CUFILE_OPAQUE_FD, .handle.fd = file->fd};
    wl_cufile_result result = reads->cufile->handle_register(&file->handle, &description);
    if (result.code)
        return wl_cufile_fail(error, result, plan->path, "cuFileHandleRegister");
    file->is_registered = true;
    return WL_OK;
}

static int32_t open_libraries(wl_gpu_reads *reads, wl_error *error) {
    reads->cuda = wl_cuda_open(error);
    if (!reads->cuda)
        return error->code;
    if (!reads->way->needs_cufile)
        return WL_OK;
    reads->cufile = wl_cufile_open(error);
    if (!reads->cufile)
        return error->code;
    wl_cufile_result result = reads->cufile->driver_open();
    if (result.code)
        return wl_cufile_fail(error, result, NULL, "cuFileDriverOpen");
    reads->is_driver_open = true;
    reads->is_counting = wl_cufile_count(reads->cufile);
    return WL_OK;
}

static int32_t too_little(const wl_read_gpu *gpu, const char *address, size_t free_bytes,
                          size_t needed, wl_error *error) {
    return wl_fail(error, WL_GPU_MEMORY, NULL, WL_NOWHERE,
                   "GPU %d (%s) has %zu MB free, and the buffers of %u threads need %zu MB",
                   gpu->device, address, free_bytes / 1000000, gpu->slot_count,
                   (needed + 999999) / 1000000);
}

static int32_t allocate(wl_gpu_reads *reads, wl_read_gpu *gpu, const char *address,
                        wl_error *error) {
    const wl_cuda *cuda = reads->cuda;
    size_t bytes = (size_t)gpu->slot_count * reads->block_bytes, free_bytes = 0, total_bytes = 0;
    wl_cu_result code = cuda->memory_info(&free_bytes, &total_bytes);
    if (code)
        return wl_cuda_fail(error, code, "cuMemGetInfo");
    code = free_bytes < bytes ? WL_CU_OUT_OF_MEMORY : cuda->allocate(&gpu->memory, bytes);
    if (code == WL_CU_OUT_OF_MEMORY)
        return too_little(gpu, address, free_bytes, bytes, error);
    if (!code)
        code = overwrite(cuda, gpu->memory, bytes);
    return code ? wl_cuda_fail(error, code, "cuMemAlloc") : WL_OK;
}

static uint8_t *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static int32_t pin(wl_gpu_reads *reads, wl_read_gpu *gpu, wl_error *error) {
    size_t bytes = (size_t)gpu->slot_count * reads->block_bytes;
    gpu->host = map(bytes);
    if (!gpu->host)
        return wl_fail(error, errno, NULL, WL_NOWHERE, "allocating %zu bytes", bytes);
    /* The kernel pins large pages with less work for each read; without them it takes small ones. */
    madvise(gpu->host, bytes, MADV_HUGEPAGE);
    memset(gpu->host, HOST_PATTERN, bytes);
    wl_cu_result code = reads->cuda->host_register(gpu->host, bytes, WL_CU_HOST_PORTABLE);
    if (code)
        return wl_cuda_fail(error, code, "cuMemHostRegister");
    gpu->is_host_registered = true;
    return WL_OK;
}

/* On the CPUs of the GPU's threads, so that the memory is on their node. */
static int32_t open_gpu(wl_gpu_reads *reads, wl_read_gpu *gpu, const wl_gpu_place *place,
                        wl_error *error) {
    const wl_cuda *cuda = reads->cuda;
    wl_cu_result code = cuda->device_by_address(&gpu->device, place->address);
    if (code)
        return wl_fail(error, WL_NO_GPU, NULL, WL_NOWHERE, "CUDA shows no GPU %s",
                       place->address);
    if (reads->block_bytes >= SLEEP_BYTES)
        code = cuda->context_flags(gpu->device, WL_CU_CONTEXT_BLOCKING);
    if (code)
        return wl_cuda_fail(error, code, "cuDevicePrimaryCtxSetFlags");
    code = cuda->context_retain(&gpu->context, gpu->device);
    if (code)
        return wl_cuda_fail(error, code, "cuDevicePrimaryCtxRetain");
    gpu->is_retained = true;
    code = cuda->context_set(gpu->context);
    if (code)
        return wl_cuda_fail(error, code, "cuCtxSetCurrent");
    if (CPU_COUNT(&gpu->cpus) && sched_setaffinity(0, sizeof gpu->cpus, &gpu->cpus))
        return wl_fail(error, errno, NULL, WL_NOWHERE, "running on the CPUs of GPU %s",
                       place->address);
    gpu->checked = map(reads->block_bytes);
    if (!gpu->checked)
        return wl_fail(error, errno, NULL, WL_NOWHERE, "allocating a block");
    int32_t failed = allocate(reads, gpu, place->address, error);
    return !failed && reads->way->needs_host ? pin(reads, gpu, error) : failed;
}

static int32_t open_gpus(wl_gpu_reads *reads, const wl_gpu_setup *setup, wl_error *error) {
    cpu_set_t before;
    bool is_known = !sched_getaffinity(0, sizeof before, &before);
    int32_t failed = WL_OK;
    for (uint32_t i = 0; i < reads->gpu_count && !failed; i++)
        failed = open_gpu(reads, &reads->gpus[i], &setup->gpus[i], error);
    if (is_known)
        sched_setaffinity(0, sizeof before, &before);
    return failed;
}

/* Slots by GPU, so that those of a GPU are neighbours, and within it by number of their reader. */
static void place_slots(wl_gpu_reads *reads, const wl_gpu_setup *setup) {
    uint32_t at = 0;
    for (uint32_t g = 0; g < reads->gpu_count; g++) {
        wl_read_gpu *gpu = &reads->gpus[g];
        for (uint32_t t = 0, own = 0; t < setup->readers; t++) {
            uint32_t file = t % reads->file_count;
            if (setup->files[file].gpu != g)
                continue;
            uint64_t start = (uint64_t)own++ * reads->block_bytes;
            reads->slots[at++] = (wl_read_slot){
                .file = &reads->files[file],
                .host = gpu->host ? gpu->host + start : NULL,
                .memory = gpu->memory + start,
                .stream = wl_draw(reads->seed, t),
            };
        }
    }
}

static uint32_t workers_of(const wl_gpu_reads *reads, const wl_read_gpu *gpu) {
    if (!reads->way->has_pollers)
        return gpu->slot_count;
    return gpu->slot_count < reads->pollers ? gpu->slot_count : reads->pollers;
}

static void place_workers(wl_gpu_reads *reads) {
    wl_read_slot *slot = reads->slots;
    wl_worker *worker = reads->workers;
    for (uint32_t g = 0; g < reads->gpu_count; g++) {
        wl_read_gpu *gpu = &reads->gpus[g];
        uint32_t count = workers_of(reads, gpu);
        for (uint32_t i = 0; i < count; i++, worker++) {
            worker->reads = reads;
            worker->gpu = gpu;
            worker->slots = slot;
            worker->slot_count = gpu->slot_count / count + (i < gpu->slot_count % count);
            worker->latencies.min_ns = UINT64_MAX;
            slot += worker->slot_count;
        }
    }
}

static int start_thread(wl_worker *worker) {
    const wl_read_gpu *gpu = worker->gpu;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (CPU_COUNT(&gpu->cpus))
        pthread_attr_setaffinity_np(&attributes, sizeof gpu->cpus, &gpu->cpus);
    int code = pthread_create(&worker->thread, &attributes, worker_main, worker);
    pthread_attr_destroy(&attributes);
    return code;
}

/* They take no signals: those are the caller's. */
static int32_t start_threads(wl_gpu_reads *reads, wl_error *error) {
    sigset_t all, before;
    int code = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (uint32_t i = 0; i < reads->worker_count && !code; i++) {
        code = start_thread(&reads->workers[i]);
        reads->thread_count += !code;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code)
        return wl_fail(error, code, NULL, WL_NOWHERE, "starting thread %u of %u",
                       reads->thread_count + 1, reads->worker_count);
    wait_for_workers(reads, 0);
    *error = reads->error;
    return error->code;
}

static int32_t allocate_lists(wl_gpu_reads *reads, const wl_gpu_setup *setup, wl_error *error) {
    reads->files = calloc(setup->file_count, sizeof *reads->files);
    reads->gpus = calloc(setup->gpu_count, sizeof *reads->gpus);
    reads->slots = aligned_alloc(WL_CACHE_LINE, setup->readers * sizeof *reads->slots);
    if (!reads->files || !reads->gpus || !reads->slots)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating lists");
    reads->file_count = setup->file_count;
    reads->gpu_count = setup->gpu_count;
    reads->slot_count = setup->readers;
    for (uint32_t i = 0; i < setup->file_count; i++)
        reads->files[i].fd = -1;
    for (uint32_t i = 0; i < setup->gpu_count; i++)
        pthread_mutex_init(&reads->gpus[i].checking, NULL);
    for (uint32_t t = 0; t < setup->readers; t++)
        reads->gpus[setup->files[t % setup->file_count].gpu].slot_count++;
    return WL_OK;
}

static int32_t find_places(wl_gpu_reads *reads, const wl_gpu_setup *setup, wl_error *error) {
    for (uint32_t g = 0; g < reads->gpu_count; g++) {
        const wl_gpu_place *place = &setup->gpus[g];
        if (!reads->gpus[g].slot_count)
            return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "a GPU has no reader");
        for (uint32_t i = 0; i < place->cpu_count; i++) {
            if (place->cpus[i] >= CPU_SETSIZE)
                return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "cpus must be below 1024");
            CPU_SET(place->cpus[i], &reads->gpus[g].cpus);
        }
        reads->worker_count += workers_of(reads, &reads->gpus[g]);
    }
    reads->workers = calloc(reads->worker_count, sizeof *reads->workers);
    return reads->workers ? WL_OK
                          : wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating threads");
}

static int32_t open_all(wl_gpu_reads *reads, const wl_gpu_setup *setup, wl_error *error) {
    int32_t failed = allocate_lists(reads, setup, error);
    if (!failed)
        failed = find_places(reads, setup, error);
    if (!failed)
        failed = open_libraries(reads, error);
    if (!failed)
        failed = open_gpus(reads, setup, error);
    for (uint32_t i = 0; i < setup->file_count && !failed; i++)
        failed = open_file(reads, &reads->files[i], &setup->files[i], error);
    if (failed)
        return failed;
    place_slots(reads, setup);
    place_workers(reads);
    return start_threads(reads, error);
}

int32_t wl_gpu_open(const wl_gpu_setup *setup, wl_gpu_reads **opened, wl_error *error) {
    static const wl_way *const ways[] = {&wl_way_bounce, &wl_way_ring, &wl_way_cufile};
    if (check_setup(setup, error))
        return error->code;
    wl_gpu_reads *reads = calloc(1, sizeof *reads);
    if (!reads)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating readers");
    reads->way = ways[setup->way];
    reads->block_bytes = setup->block_bytes;
    reads->checked_reads = setup->checked_reads;
    reads->pollers = setup->pollers;
    reads->duration_ns = setup->duration_ns;
    reads->seed = setup->seed;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&reads->changed, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&reads->mutex, NULL);
    int32_t failed = open_all(reads, setup, error);
    if (failed)
        wl_gpu_close(reads);
    else
        *opened = reads;
    return failed;
}

static void close_gpu(wl_gpu_reads *reads, wl_read_gpu *gpu) {
    const wl_cuda *cuda = reads->cuda;
    pthread_mutex_destroy(&gpu->checking);
    if (gpu->is_retained) {
        cuda->context_set(gpu->context);
        if (gpu->is_host_registered)
            cuda->host_unregister(gpu->host);
        if (gpu->memory)
            cuda->release(gpu->memory);
        cuda->context_release(gpu->device);
    }
    if (gpu->host)
        munmap(gpu->host, (size_t)gpu->slot_count * reads->block_bytes);
    if (gpu->checked)
        munmap(gpu->checked, reads->block_bytes);
}

void wl_gpu_close(wl_gpu_reads *reads) {
    pthread_mutex_lock(&reads->mutex);
    reads->is_closing = true;
    pthread_cond_broadcast(&reads->changed);
    pthread_mutex_unlock(&reads->mutex);
    for (uint32_t i = 0; i < reads->thread_count; i++)
        pthread_join(reads->workers[i].thread, NULL);
    for (uint32_t i = 0; i < reads->file_count; i++) {
        if (reads->files[i].is_registered)
            reads->cufile->handle_deregister(reads->files[i].handle);
        if (reads->files[i].fd >= 0)
            close(reads->files[i].fd);
    }
    if (reads->is_driver_open)
        reads->cufile->driver_close();
    for (uint32_t i = 0; i < reads->gpu_count; i++)
        close_gpu(reads, &reads->gpus[i]);
    free(reads->files);
    free(reads->gpus);
    free(reads->slots);
    free(reads->workers);
    pthread_mutex_destroy(&reads->mutex);
    pthread_cond_destroy(&reads->changed);
    free(reads);
}
