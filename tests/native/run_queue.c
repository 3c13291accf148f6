/* Runs a queue with requesters on the CPU and prints what came of it, as one JSON line.
 *
 *   run_queue [NAME=VALUE ...] FILE ...
 *
 * Names are fields of wl_queue_setup, and `stop_ms`: when another thread ends the run, which also
 * reads its progress meanwhile. Files carry the stamps of nonce 7 and word 1, of 512 bytes each. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "wattload_engine.h"

enum { FILES = 8 };

static uint64_t stop_ms;

static void *watch(void *queue) {
    wl_gpu_progress progress;
    for (uint64_t ms = 0; ms < stop_ms; ms++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        wl_queue_progress_of(queue, &progress);
    }
    if (stop_ms)
        wl_queue_stop(queue);
    return NULL;
}

static int set(wl_queue_setup *setup, const char *name, uint64_t value) {
    const struct {
        const char *name;
        uint32_t *narrow;
        uint64_t *wide;
    } fields[] = {
        {"engine", &setup->engine, NULL},
        {"block_bytes", &setup->block_bytes, NULL},
        {"read_bytes", &setup->read_bytes, NULL},
        {"requesters", &setup->requesters, NULL},
        {"queue_pairs", &setup->queue_pairs, NULL},
        {"queue_size", &setup->queue_size, NULL},
        {"pollers", &setup->pollers, NULL},
        {"pattern", &setup->pattern, NULL},
        {"requester_threads", &setup->requester_threads, NULL},
        {"trace_every", &setup->trace_every, NULL},
        {"fault", &setup->fault, NULL},
        {"hang_ms", &setup->hang_ms, NULL},
        {"first_number", NULL, &setup->first_number},
        {"duration_ns", NULL, &setup->duration_ns},
        {"ceiling_ns", NULL, &setup->ceiling_ns},
        {"stop_ms", NULL, &stop_ms},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!strcmp(fields[i].name, name)) {
            if (fields[i].wide)
                *fields[i].wide = value;
            else
                *fields[i].narrow = (uint32_t)value;
            return 1;
        }
    return 0;
}

int main(int argc, char **argv) {
    static wl_queue_result result;
    static wl_queue_reads target;
    static wl_error error;
    wl_queue_target files[FILES] = {0};
    wl_queue_setup setup = {.struct_bytes = sizeof setup, .block_bytes = 512, .read_bytes = 512,
                            .requesters = 64, .queue_pairs = 2, .queue_size = 64, .pollers = 1,
                            .requester_threads = 2, .sample_every = 8, .hang_ms = 10000,
                            .table_bytes = 1 << 20, .duration_ns = 200000000u, .seed = 3,
                            .targets = files};
    for (int i = 1; i < argc; i++) {
        struct stat state;
        char *value = strchr(argv[i], '=');
        if (value && argv[i][0] != '/') {
            *value = 0;
            if (!set(&setup, argv[i], strtoull(value + 1, NULL, 10)))
                return 2;
        } else if (setup.target_count == FILES || stat(argv[i], &state)) {
            return 2;
        } else {
            files[setup.target_count++] = (wl_queue_target){
                .path = argv[i], .bytes = (uint64_t)state.st_size, .nonce = 7, .word = 1};
        }
    }
    wl_queue *queue;
    uint64_t rows = 0, operations = 0;
    int32_t code = wl_queue_open(&setup, &queue, &error);
    if (!code) {
        pthread_t watcher;
        if (pthread_create(&watcher, NULL, watch, queue))
            return 2;
        if (!stop_ms)
            wl_queue_start(queue);
        code = wl_queue_run(queue, &result, &error);
        pthread_join(watcher, NULL);
        for (uint32_t i = 0; i < setup.target_count; i++) {
            wl_queue_target_of(queue, i, &target);
            operations += target.operations;
        }
        wl_queue_trace(queue, &rows);
        wl_queue_close(queue);
    }
    printf("{\"code\": %d, \"requests\": %" PRIu64 ", \"taken\": %" PRIu64
           ", \"answered\": %" PRIu64 ", \"operations\": %" PRIu64 ", \"delivered\": %" PRIu64 ", \"failed\": %" PRIu64
           ", \"wrong\": %" PRIu64 ", \"unanswered\": %" PRIu64 ", \"bad\": %" PRIu64
           ", \"rows\": %" PRIu64 ", \"ceiling\": %" PRIu64 ", \"by_target\": %" PRIu64 "}\n",
           code, result.requests, result.taken, result.answered, result.operations,
           result.delivered, result.failed, result.wrong, result.unanswered, result.bad_blocks,
           rows, result.null_requests, operations);
    return 0;
}
