#include "cufile.h"

#include <pthread.h>
#include <string.h>

enum { GPU_LIMIT = 16, LEVEL = 3 };

/* cuFileStatsLevel3: level 1, two histograms of sizes, the number of GPUs, and a block for each.
 * Level 1 has 512 bytes in 1.15, and 624 in 1.20, which counts vectors too. */
enum { LEVEL1_BYTES_1_15 = 512, LEVEL1_BYTES_1_20 = 624, SIZES_BYTES = 512 };

typedef struct {
    char uuid[16];
    uint64_t read_bytes, read_bytes_per_s, read_utilization, read_duration_us;
    uint64_t total_reads, p2p_reads, nvfs_reads, posix_reads, unaligned_reads, routed_reads;
    uint64_t sparse_regions, inline_regions, failed_reads;
    uint64_t writes_and_buffers[16];
} gpu_reads;

_Static_assert(sizeof(gpu_reads) == 248, "cuFile's layout");

typedef struct {
    uint8_t level2[LEVEL1_BYTES_1_20 + SIZES_BYTES];
    uint64_t gpu_count;
    gpu_reads gpus[GPU_LIMIT];
} statistics;

static const wl_symbol symbols[] = {
    {"cuFileDriverOpen", offsetof(wl_cufile, driver_open)},
    {"cuFileDriverClose_v2", offsetof(wl_cufile, driver_close)},
    {"cuFileHandleRegister", offsetof(wl_cufile, handle_register)},
    {"cuFileHandleDeregister", offsetof(wl_cufile, handle_deregister)},
    {"cuFileBufRegister", offsetof(wl_cufile, buffer_register)},
    {"cuFileBufDeregister", offsetof(wl_cufile, buffer_deregister)},
    {"cuFileRead", offsetof(wl_cufile, read)},
};
static const wl_symbol newer[] = {
    {"cuFileGetVersion", offsetof(wl_cufile, version)},
    {"cuFileSetStatsLevel", offsetof(wl_cufile, set_level)},
    {"cuFileStatsStart", offsetof(wl_cufile, start)},
    {"cuFileGetStatsL3", offsetof(wl_cufile, level3)},
};

static wl_cufile library;
static wl_error failure;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void open_library(void) {
    static const char name[] = "libcufile.so.0";
    if (wl_library_open(name, symbols, sizeof symbols / sizeof symbols[0], &library, &failure))
        return;
    for (size_t i = 0; i < sizeof newer / sizeof newer[0]; i++)
        wl_library_open(name, &newer[i], 1, &library, NULL);
}

const wl_cufile *wl_cufile_open(wl_error *error) {
    pthread_once(&opened, open_library);
    if (!failure.code)
        return &library;
    if (error)
        *error = failure;
    return NULL;
}

int32_t wl_cufile_version(const wl_cufile *cufile) {
    int32_t version = 0;
    return cufile->version && !cufile->version(&version).code ? version : 0;
}

int32_t wl_cufile_fail(wl_error *error, wl_cufile_result result, const char *path,
                       const char *call) {
    if (result.code == WL_CUFILE_CUDA_ERROR)
        wl_fail(error, WL_CUFILE, path, WL_NOWHERE, "%s failed: %d, with CUDA's %d", call,
                result.code, result.cu_code);
    else
        wl_fail(error, WL_CUFILE, path, WL_NOWHERE, "%s failed: %d", call, result.code);
    error->detail = result.code;
    return WL_CUFILE;
}

static size_t level1_bytes(const wl_cufile *cufile) {
    if (!cufile->set_level || !cufile->start || !cufile->level3)
        return 0;
    switch (wl_cufile_version(cufile) / 10) {
    case 115:
        return LEVEL1_BYTES_1_15;
    case 120:
        return LEVEL1_BYTES_1_20;
    default:
        return 0;
    }
}

int wl_cufile_count(const wl_cufile *cufile) {
    return level1_bytes(cufile) && !cufile->set_level(LEVEL).code && !cufile->start().code;
}

int wl_cufile_counted(const wl_cufile *cufile, wl_library_reads *reads) {
    statistics all;
    memset(&all, 0, sizeof all);
    if (cufile->level3(&all).code)
        return 0;
    const uint8_t *at = (const uint8_t *)&all + level1_bytes(cufile) + SIZES_BYTES;
    uint32_t count;
    memcpy(&count, at, sizeof count);
    if (count > GPU_LIMIT)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        gpu_reads gpu;
        memcpy(&gpu, at + sizeof all.gpu_count + i * sizeof gpu, sizeof gpu);
        reads->total += gpu.total_reads;
        reads->p2p += gpu.p2p_reads;
        reads->nvfs += gpu.nvfs_reads;
        reads->posix += gpu.posix_reads;
        reads->peer += gpu.routed_reads;
    }
    return 1;
}

int32_t wl_cufile_begin(void) {
    const wl_cufile *cufile = wl_cufile_open(NULL);
    return cufile && wl_cufile_count(cufile);
}

int32_t wl_cufile_reads(wl_library_reads *reads) {
    const wl_cufile *cufile = wl_cufile_open(NULL);
    memset(reads, 0, sizeof *reads);
    return cufile && level1_bytes(cufile) && wl_cufile_counted(cufile, reads);
}

int32_t wl_cufile_number(void) {
    const wl_cufile *cufile = wl_cufile_open(NULL);
    return cufile ? wl_cufile_version(cufile) : 0;
}

int32_t wl_cufile_try(int32_t *version, wl_error *error) {
    *version = 0;
    const wl_cufile *cufile = wl_cufile_open(error);
    if (!cufile)
        return error->code;
    *version = wl_cufile_version(cufile);
    wl_cufile_result result = cufile->driver_open();
    if (result.code)
        return wl_cufile_fail(error, result, NULL, "cuFileDriverOpen");
    cufile->driver_close();
    return WL_OK;
}
