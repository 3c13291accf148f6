/* Reads files into the memory of a GPU and prints what came of it, as one JSON line.
 *
 *   read_gpu WAY READERS POLLERS FILE ...
 *
 * Files are read in blocks of 4096, for 0.2 s; all are for the GPU 0000:65:00.0. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "wattload_engine.h"

enum { FILES = 8 };

int main(int argc, char **argv) {
    static wl_gpu_result result;
    static wl_error error;
    wl_gpu_file files[FILES] = {0};
    uint32_t cpu = 0, count = (uint32_t)argc - 4;
    wl_gpu_place gpu = {.address = "0000:65:00.0", .cpus = &cpu, .cpu_count = 0};
    wl_gpu_reads *reads;
    wl_gpu_progress progress;
    uint64_t operations[FILES];
    if (argc < 5 || count > FILES)
        return 2;
    for (uint32_t i = 0; i < count; i++) {
        struct stat state;
        if (stat(argv[4 + i], &state))
            return 2;
        files[i] = (wl_gpu_file){.path = argv[4 + i], .bytes = (uint64_t)state.st_size,
                                 .nonce = 7, .word = 1, .first_block = 5};
    }
    wl_gpu_setup setup = {
        .struct_bytes = sizeof setup, .way = (uint32_t)atoi(argv[1]),
        .readers = (uint32_t)atoi(argv[2]), .pollers = (uint32_t)atoi(argv[3]),
        .block_bytes = 4096, .checked_reads = 1, .file_count = count, .gpu_count = 1,
        .duration_ns = 200000000u, .seed = 3, .files = files, .gpus = &gpu};
    int32_t code = wl_gpu_open(&setup, &reads, &error);
    if (!code) {
        wl_gpu_start(reads);
        code = wl_gpu_run(reads, &result, &error);
        wl_gpu_progress_of(reads, &progress);
        wl_gpu_file_operations(reads, operations);
        wl_gpu_close(reads);
    }
    printf("{\"code\": %d, \"operations\": %" PRIu64 ", \"reads\": %" PRIu64
           ", \"compared\": %" PRIu64 ", \"bad\": %" PRIu64 "}\n",
           code, result.operations, result.reads, result.compared_bytes / 4096,
           result.bad_blocks);
    return 0;
}
