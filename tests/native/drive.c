/* Runs plans from files through the engine and prints what came of each, one JSON line a job.
 *
 *   drive [name=value ...] plan ...
 *
 * backend= depth= pollers= block= register= as wl_setup; regions=BYTES[,BYTES...] after region 0;
 * fill=FILE what region 0 holds; dump=FILE gets all regions at the end; trace=FILE gets the rows;
 * counts=FILE gets the histograms; read_ms= takes a reading of each job every so many ms; stall_ms=
 * is how long read number stall_at= of pread takes;
 * stop_ms= stops all jobs then; abandon=1 frees them at once; close_ms= closes the engine then; memlock= limits locked memory,
 * for root too; seccomp=1 forbids io_uring; probe=1 only asks. */
#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wattload_engine.h"

enum { REGIONS = 16, PLANS = 64 };

static struct {
    const char *backend, *fill, *dump, *trace, *counts, *plans[PLANS];
    uint32_t depth, pollers, block, flags, plan_count, region_count;
    uint64_t region_bytes[REGIONS];
    long stop_ms, close_ms, memlock, read_ms, stall_ms, stall_at;
    int seccomp, probe, abandon;
} asked = {.backend = "io_uring", .depth = 8, .pollers = 1, .block = 65536, .region_count = 1,
           .stop_ms = -1, .close_ms = -1, .memlock = -1};

static wl_region regions[REGIONS];

static void die(const char *what) {
    fprintf(stderr, "drive: %s: %s\n", what, strerror(errno));
    exit(2);
}

static void parse_regions(char *list) {
    for (char *part = strtok(list, ","); part; part = strtok(NULL, ","))
        asked.region_bytes[asked.region_count++] = strtoull(part, NULL, 10);
}

static void parse(char *argument) {
    char *value = strchr(argument, '=');
    if (!value) {
        asked.plans[asked.plan_count++] = argument;
        return;
    }
    *value++ = 0;
    uint32_t number = (uint32_t)strtoul(value, NULL, 10);
    if (!strcmp(argument, "backend")) asked.backend = value;
    else if (!strcmp(argument, "fill")) asked.fill = value;
    else if (!strcmp(argument, "dump")) asked.dump = value;
    else if (!strcmp(argument, "trace")) asked.trace = value;
    else if (!strcmp(argument, "counts")) asked.counts = value;
    else if (!strcmp(argument, "read_ms")) asked.read_ms = number;
    else if (!strcmp(argument, "stall_ms")) asked.stall_ms = number;
    else if (!strcmp(argument, "stall_at")) asked.stall_at = number;
    else if (!strcmp(argument, "depth")) asked.depth = number;
    else if (!strcmp(argument, "pollers")) asked.pollers = number;
    else if (!strcmp(argument, "block")) asked.block = number;
    else if (!strcmp(argument, "register")) asked.flags = number;
    else if (!strcmp(argument, "regions")) parse_regions(value);
    else if (!strcmp(argument, "stop_ms")) asked.stop_ms = number;
    else if (!strcmp(argument, "close_ms")) asked.close_ms = number;
    else if (!strcmp(argument, "memlock")) asked.memlock = number;
    else if (!strcmp(argument, "seccomp")) asked.seccomp = (int)number;
    else if (!strcmp(argument, "probe")) asked.probe = (int)number;
    else if (!strcmp(argument, "abandon")) asked.abandon = (int)number;
    else die(argument);
}

/* What a container does that forbids io_uring: its three calls fail with EPERM. */
static void forbid_io_uring(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 425, 0, 2),
        BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 427, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, 2, &program))
        die("seccomp");
}

/* Without CAP_IPC_LOCK root is held to the limit, too. */
static void limit_locked_memory(void) {
    struct rlimit limit = {.rlim_cur = (rlim_t)asked.memlock, .rlim_max = (rlim_t)asked.memlock};
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    if (setrlimit(RLIMIT_MEMLOCK, &limit) || syscall(SYS_capget, &header, sets))
        die("memlock");
    sets[0].effective &= ~(1u << CAP_IPC_LOCK);
    sets[0].permitted &= ~(1u << CAP_IPC_LOCK);
    if (syscall(SYS_capset, &header, sets))
        die("capset");
}

static void load(const char *path, void *memory, size_t bytes) {
    FILE *file = fopen(path, "rb");
    if (!file || fread(memory, 1, bytes, file) != bytes)
        die(path);
    fclose(file);
}

static void make_regions(void) {
    asked.region_bytes[0] = (uint64_t)asked.depth * asked.pollers * asked.block;
    for (uint32_t i = 0; i < asked.region_count; i++) {
        size_t bytes = asked.region_bytes[i];
        void *base = mmap(NULL, bytes + (2u << 20), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED)
            die("mmap");
        base = (void *)(((uintptr_t)base + (2u << 20) - 1) & ~(uintptr_t)((2u << 20) - 1));
        madvise(base, bytes, MADV_HUGEPAGE);
        memset(base, 0xa5, bytes);
        regions[i] = (wl_region){.base = base, .bytes = bytes};
    }
    if (asked.fill)
        load(asked.fill, regions[0].base, regions[0].bytes);
}

static void dump_regions(void) {
    FILE *file = fopen(asked.dump, "wb");
    for (uint32_t i = 0; file && i < asked.region_count; i++)
        fwrite(regions[i].base, 1, regions[i].bytes, file);
    if (!file || fclose(file))
        die(asked.dump);
}

static int print_error(const char *what, int32_t code, const wl_error *error) {
    printf("{\"%s\": {\"code\": %d, \"offset\": %" PRIu64 ", \"path\": \"%s\", \"text\": \"%s\"}}\n",
           what, code, error->offset, error->path, error->text);
    return 0;
}

static void sleep_ms(long ms) { usleep((useconds_t)(ms * 1000)); }

/* In place of the C library's: a device that stalls once. */
ssize_t pread(int fd, void *memory, size_t bytes, off_t offset) {
    static _Atomic long reads;
    if (asked.stall_ms && atomic_fetch_add(&reads, 1) == asked.stall_at)
        sleep_ms(asked.stall_ms);
    return syscall(SYS_pread64, fd, memory, bytes, offset);
}

/* No figure of a later reading is smaller, and the extremes cover what is counted. */
static void follow(wl_job *job) {
    static wl_reading before, now;
    wl_job_read(job, &before);
    while (!wl_job_wait(job, (uint32_t)asked.read_ms)) {
        uint64_t counted = 0;
        wl_job_read(job, &now);
        for (uint32_t i = 0; i < WL_BUCKETS; i++) {
            counted += now.counts[i];
            if (now.counts[i] < before.counts[i])
                die("a count went down");
        }
        if (now.time_ns < before.time_ns || now.operations < before.operations ||
            now.bytes < before.bytes || now.latency_sum_ns < before.latency_sum_ns)
            die("a reading went down");
        if (counted && (!now.latency_max_ns || now.latency_min_ns > now.latency_max_ns ||
                        now.latency_sum_ns < counted * now.latency_min_ns))
            die("a reading does not fit its counts");
        before = now;
    }
}

static void print_job(wl_job *job, FILE *trace, FILE *histograms) {
    static wl_reading reading;
    wl_result r;
    wl_progress progress;
    uint64_t counted = 0, rows;
    wl_job_result(job, &r);
    wl_job_progress(job, &progress);
    wl_job_read(job, &reading);
    for (uint32_t i = 0; i < WL_BUCKETS; i++)
        counted += reading.counts[i];
    const wl_trace_row *row = wl_job_trace(job, &rows);
    if (trace)
        fwrite(row, sizeof *row, rows, trace);
    if (histograms)
        fwrite(reading.counts, sizeof reading.counts, 1, histograms);
    if (progress.bytes != r.bytes || progress.operations != r.operations || !progress.done)
        die("progress and result differ");
    if (reading.bytes != r.bytes || reading.latency_max_ns != r.latency_max_ns ||
        reading.time_ns != r.end_ns)
        die("reading and result differ");
    printf("{\"bytes\": %" PRIu64 ", \"operations\": %" PRIu64 ", \"start_ns\": %" PRIu64
           ", \"end_ns\": %" PRIu64 ", \"last_io_ns\": %" PRIu64 ", \"cpu_ns\": %" PRIu64,
           r.bytes, r.operations, r.start_ns, r.end_ns, r.last_io_ns, r.cpu_ns);
    printf(", \"bad_blocks\": %" PRIu64 ", \"latency_sum_ns\": %" PRIu64
           ", \"latency_min_ns\": %" PRIu64 ", \"latency_max_ns\": %" PRIu64
           ", \"synced_files\": %" PRIu64 ", \"compared_bytes\": %" PRIu64,
           r.bad_blocks, r.latency_sum_ns, r.latency_min_ns, r.latency_max_ns,
           r.synced_files, r.compared_bytes);
    printf(", \"extending_files\": %u, \"stopped\": %u, \"counted\": %" PRIu64 ", \"rows\": %" PRIu64
           ", \"code\": %d, \"offset\": %" PRIu64 ", \"path\": \"%s\", \"text\": \"%s\"}\n",
           r.extending_files, r.stopped, counted, rows, r.error.code, r.error.offset,
           r.error.path, r.error.text);
}

static wl_job *submit(wl_engine *engine, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        die(path);
    size_t bytes = (size_t)ftell(file);
    fclose(file);
    uint8_t *plan = malloc(bytes + 1);
    if (!plan)
        die("malloc");
    load(path, plan, bytes);
    wl_error error;
    wl_job *job = NULL;
    int32_t code = wl_job_submit(engine, plan, bytes, &job, &error);
    if (code)
        print_error("submit", code, &error);
    free(plan);
    return job;
}

/* Each job that was taken adds one at its end, however it ends. */
static void check_signals(int signal, uint64_t jobs) {
    uint64_t ended = 0;
    if (jobs && read(signal, &ended, sizeof ended) < 0)
        die("eventfd");
    if (ended != jobs)
        die("the ends of jobs that were signalled and those taken differ");
}

static void run(wl_engine *engine, int signal) {
    wl_job *jobs[PLANS];
    uint64_t taken = 0;
    FILE *trace = asked.trace ? fopen(asked.trace, "wb") : NULL;
    FILE *histograms = asked.counts ? fopen(asked.counts, "wb") : NULL;
    for (uint32_t i = 0; i < asked.plan_count; i++)
        taken += (jobs[i] = submit(engine, asked.plans[i])) != NULL;
    if (asked.stop_ms >= 0)
        sleep_ms(asked.stop_ms);
    for (uint32_t i = 0; i < asked.plan_count && asked.stop_ms >= 0; i++)
        if (jobs[i])
            wl_job_stop(jobs[i]);
    if (asked.close_ms >= 0) {
        sleep_ms(asked.close_ms);
        wl_engine_close(engine);
    }
    for (uint32_t i = 0; i < asked.plan_count; i++) {
        if (!jobs[i])
            continue;
        if (asked.read_ms)
            follow(jobs[i]);
        while (!asked.abandon && !wl_job_wait(jobs[i], 100))
            ;
        if (!asked.abandon)
            print_job(jobs[i], trace, histograms);
        wl_job_free(jobs[i]);
    }
    if (trace)
        fclose(trace);
    if (histograms)
        fclose(histograms);
    if (asked.close_ms < 0)
        wl_engine_close(engine);
    check_signals(signal, taken);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        parse(argv[i]);
    make_regions();
    if (asked.memlock >= 0)
        limit_locked_memory();
    if (asked.seccomp)
        forbid_io_uring();
    wl_error error = {0};
    if (asked.probe)
        return print_error("probe", wl_backend_probe(asked.backend, &error), &error);
    wl_setup setup = {.struct_bytes = sizeof setup, .depth = asked.depth,
                      .pollers = asked.pollers, .block_bytes = asked.block,
                      .region_count = asked.region_count, .flags = asked.flags,
                      .regions = regions, .backend = asked.backend,
                      .signal = eventfd(0, EFD_NONBLOCK)};
    wl_engine *engine = NULL;
    int32_t code = wl_engine_open(&setup, &engine, &error);
    if (code)
        return print_error("open", code, &error);
    wl_facts facts;
    wl_engine_facts(engine, &facts);
    printf("{\"buffers_refused\": %d, \"files_refused\": %d, \"threads\": %u, \"ring_flags\": %u}\n",
           facts.buffers_refused, facts.files_refused, facts.threads, facts.ring_flags);
    run(engine, setup.signal);
    if (asked.dump)
        dump_regions();
    return 0;
}
