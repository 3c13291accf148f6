// A cuFile library for tests on machines without a GPU, beside the stub of libcuda: reads go
// through pread into memory that the stub of libcuda has, and are counted as the environment says.
// The layouts of statistics are those of the headers of 1.15 and 1.20; return codes, and when counts
// are current (at once; from the level on, without a start; no more after a stop), are those that
// libcufile 1.15.1 returned on an H100 with driver 580 and without nvidia-fs.
//
//   STUB_CUFILE_VERSION=n         what cuFileGetVersion says (default 1150); from 1200 on level 1 of
//                                 the statistics has the counts of readv and writev, and without a
//                                 GPU cuFileDriverOpen does not return, as with the real 1.20
//   STUB_CUFILE_PATH=word         how reads are counted: posix (default), p2p, nvfs, mixed (every
//                                 other one posix, else p2p), peer (p2p, and by dynamic routing),
//                                 none (not at all)
//   STUB_CUFILE_ZEROS=1           zeros are delivered instead of the file's bytes
//   STUB_CUFILE_FAIL_EVERY=n      each nth read returns -1 with STUB_CUFILE_FAIL_CODE (default 5, EIO)
//                                 in errno, where the real one puts its own codes above 5000 too
//   STUB_CUFILE_OPEN_ERROR=n      cuFileDriverOpen returns n
//   STUB_CUFILE_REGISTER_ERROR=n  cuFileHandleRegister returns n, such as 5027
//   STUB_CUFILE_BUFFER_ERROR=n    cuFileBufRegister returns n
//   STUB_CUFILE_HANG=driver_open  cuFileDriverOpen does not return; read: cuFileRead does not
//
// With "allow_compat_mode": false in CUFILE_ENV_PATH_JSON and a path of posix, cuFileDriverOpen and
// cuFileHandleRegister return 5001, as without nvidia-fs; with mixed, files are refused with 5008.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum {
    DRIVER_NOT_INITIALIZED = 5001,
    IO_NOT_SUPPORTED = 5008,
    INVALID_VALUE = 5022,
    MEMORY_ALREADY_REGISTERED = 5023,
    MEMORY_NOT_REGISTERED = 5024,
    CUDA_DRIVER_ERROR = 5011,
    POINTER_RANGE_ERROR = 5014,
    INVALID_MAPPING_RANGE = 5017,
    INVALID_FILE_TYPE = 5018,
    HANDLE_NOT_REGISTERED = 5027,
    HANDLE_ALREADY_REGISTERED = 5028,
    INTERNAL_ERROR = 5030,
    NVFS_SETUP_ERROR = 5033,
};

enum { MAX_GPUS = 16, LEVEL_1_WORDS = 64, LEVEL_1_WORDS_OF_1_20 = 78, HISTOGRAM_WORDS = 64 };

typedef struct {
    int err, cu_err;
} status;

struct descriptor {
    int type;
    union {
        int fd;
        void *handle;
    } handle;
    const void *operations;
};

struct handle {
    struct handle *next;
    int fd;
};

struct gpu_statistics {
    char uuid[16];
    uint64_t read_bytes, read_bw_bytes_per_sec, read_utilization, read_duration_us;
    uint64_t n_total_reads, n_p2p_reads, n_nvfs_reads, n_posix_reads, n_unaligned_reads;
    uint64_t n_dr_reads, n_sparse_regions, n_inline_regions, n_reads_err;
    uint64_t of_writes[11];
    uint64_t n_mmap, n_mmap_ok, n_mmap_err, n_mmap_free, reg_bytes;
};

struct properties {
    struct {
        unsigned major_version, minor_version;
        size_t poll_thresh_size, max_direct_io_size;
        unsigned dstatusflags, dcontrolflags;
    } nvfs;
    unsigned fflags, max_device_cache_size, per_buffer_cache_size, max_device_pinned_mem_size;
    unsigned max_batch_io_size, max_batch_io_timeout_msecs;
};

struct buffer {
    struct buffer *next;
    const void *start;
    size_t size;
    int gpu;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_statistics statistics[MAX_GPUS];
static uint64_t reads_ok, reads_failed, buffers_ok, handles_ok;
static struct buffer *buffers;
static struct handle *handles;
static long open_count;
static int level, is_stopped;
static atomic_llong read_number;

static long long number(const char *name, long long otherwise) {
    const char *text = getenv(name);
    return text && *text ? atoll(text) : otherwise;
}

static int is_set_to(const char *name, const char *word) {
    const char *text = getenv(name);
    return text && !strcmp(text, word);
}

static int version(void) {
    return (int)number("STUB_CUFILE_VERSION", 1150);
}

static status plain(int code) {
    return (status){code, 0};
}

static void *driver_function(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    return library ? dlsym(library, name) : NULL;
}

static int gpu_of(const void *memory, size_t size) {
    int (*function)(const void *, size_t) =
        (int (*)(const void *, size_t))driver_function("stub_cuda_gpu_of");
    return function ? function(memory, size) : -1;
}

static int gpus(void) {
    int count = 0;
    int (*init)(unsigned) = (int (*)(unsigned))driver_function("cuInit");
    int (*function)(int *) = (int (*)(int *))driver_function("cuDeviceGetCount");
    return init && function && !init(0) && !function(&count) ? count : 0;
}

// Whether the run's own configuration forbids compatibility mode.
static int is_compat_forbidden(void) {
    char text[65536];
    const char *path = getenv("CUFILE_ENV_PATH_JSON");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    const char *key = strstr(text, "\"allow_compat_mode\"");
    return key && !strncmp(key + strcspn(key, ":"), ": false", 7);
}

static int is_posix(void) {
    return !getenv("STUB_CUFILE_PATH") || is_set_to("STUB_CUFILE_PATH", "posix");
}

static void hang(void) {
    for (;;)
        pause();
}

status cuFileGetVersion(int *value) {
    if (!value)
        return plain(INVALID_VALUE);
    *value = version();
    return plain(0);
}

status cuFileDriverOpen(void) {
    int error = (int)number("STUB_CUFILE_OPEN_ERROR", 0);
    if (is_set_to("STUB_CUFILE_HANG", "driver_open"))
        hang();
    if (!error && !gpus()) {
        if (version() >= 1200)
            hang();
        if (driver_function("cuInit"))
            return (status){CUDA_DRIVER_ERROR, 100};
        error = NVFS_SETUP_ERROR;
    }
    if (!error && is_compat_forbidden() && is_posix())
        error = DRIVER_NOT_INITIALIZED;
    if (error)
        return plain(error);
    int (*uuid)(void *, int) = (int (*)(void *, int))driver_function("cuDeviceGetUuid_v2");
    pthread_mutex_lock(&lock);
    for (int i = 0; i < gpus(); i++)
        uuid(statistics[i].uuid, i);
    open_count++;
    pthread_mutex_unlock(&lock);
    return plain(0);
}

status cuFileDriverClose_v2(void) {
    pthread_mutex_lock(&lock);
    int error = open_count ? 0 : DRIVER_NOT_INITIALIZED;
    open_count -= !error;
    pthread_mutex_unlock(&lock);
    return plain(error);
}

status cuFileDriverClose(void) {
    return cuFileDriverClose_v2();
}

long cuFileUseCount(void) {
    return open_count;
}

status cuFileDriverGetProperties(struct properties *properties) {
    if (!properties)
        return plain(INVALID_VALUE);
    if (!open_count)
        return plain(DRIVER_NOT_INITIALIZED);
    memset(properties, 0, sizeof *properties);
    properties->nvfs.max_direct_io_size = 16384;
    properties->nvfs.dcontrolflags = 1u << 1;
    properties->max_device_cache_size = 131072;
    properties->per_buffer_cache_size = 1024;
    properties->max_device_pinned_mem_size = 33554432;
    properties->max_batch_io_size = 128;
    return plain(0);
}

static int fstat_error(int fd) {
    struct stat found;
    if (fstat(fd, &found))
        return INVALID_VALUE;
    return S_ISREG(found.st_mode) ? 0 : INVALID_FILE_TYPE;
}

// Opens the driver, as the real one does, if nobody has.
status cuFileHandleRegister(void **handle, struct descriptor *descriptor) {
    if (!handle || !descriptor)
        return plain(INVALID_VALUE);
    if (!open_count) {
        status opened = cuFileDriverOpen();
        if (opened.err)
            return opened;
    }
    int error = (int)number("STUB_CUFILE_REGISTER_ERROR", 0);
    if (!error && descriptor->type != 1)
        error = IO_NOT_SUPPORTED;
    if (!error)
        error = fstat_error(descriptor->handle.fd);
    if (!error && is_compat_forbidden() && is_set_to("STUB_CUFILE_PATH", "mixed"))
        error = IO_NOT_SUPPORTED;
    pthread_mutex_lock(&lock);
    for (struct handle *known = handles; !error && known; known = known->next)
        if (known->fd == descriptor->handle.fd)
            error = HANDLE_ALREADY_REGISTERED;
    if (!error) {
        struct handle *made = malloc(sizeof *made);
        *made = (struct handle){handles, descriptor->handle.fd};
        *handle = handles = made;
        handles_ok++;
    }
    pthread_mutex_unlock(&lock);
    return plain(error);
}

void cuFileHandleDeregister(void *handle) {
    pthread_mutex_lock(&lock);
    for (struct handle **place = &handles; *place; place = &(*place)->next)
        if (*place == handle) {
            *place = (*place)->next;
            free(handle);
            break;
        }
    pthread_mutex_unlock(&lock);
}

static int fd_of(const void *handle) {
    pthread_mutex_lock(&lock);
    struct handle *known = handles;
    while (known && known != handle)
        known = known->next;
    int fd = known ? known->fd : -1;
    pthread_mutex_unlock(&lock);
    return fd;
}

// Memory that is not a GPU's is accepted, and nothing is done with it.
status cuFileBufRegister(const void *memory, size_t size, int flags) {
    (void)flags;
    int error = (int)number("STUB_CUFILE_BUFFER_ERROR", 0);
    if (!error && (!memory || !size))
        error = INVALID_VALUE;
    int gpu = gpu_of(memory, size);
    if (!error && gpu < 0 && gpu_of(memory, 1) >= 0)
        error = POINTER_RANGE_ERROR;
    pthread_mutex_lock(&lock);
    for (struct buffer *buffer = buffers; !error && buffer; buffer = buffer->next)
        if (buffer->start == memory)
            error = MEMORY_ALREADY_REGISTERED;
    if (!error && gpu >= 0) {
        struct buffer *buffer = malloc(sizeof *buffer);
        *buffer = (struct buffer){buffers, memory, size, gpu};
        buffers = buffer;
        buffers_ok++;
        statistics[gpu].n_mmap++;
        statistics[gpu].n_mmap_ok++;
        statistics[gpu].reg_bytes += size;
    }
    pthread_mutex_unlock(&lock);
    return plain(error);
}

status cuFileBufDeregister(const void *memory) {
    int error = MEMORY_NOT_REGISTERED;
    pthread_mutex_lock(&lock);
    for (struct buffer **place = &buffers; *place; place = &(*place)->next)
        if ((*place)->start == memory) {
            struct buffer *buffer = *place;
            *place = buffer->next;
            statistics[buffer->gpu].n_mmap_free++;
            statistics[buffer->gpu].reg_bytes -= buffer->size;
            free(buffer);
            error = 0;
            break;
        }
    pthread_mutex_unlock(&lock);
    return plain(error);
}

static void count(int gpu, long long index, ssize_t done) {
    struct gpu_statistics *of_gpu = &statistics[gpu];
    int is_mixed = is_set_to("STUB_CUFILE_PATH", "mixed");
    if (is_stopped || level < 3 || is_set_to("STUB_CUFILE_PATH", "none"))
        return;
    pthread_mutex_lock(&lock);
    if (done < 0) {
        reads_failed++;
        of_gpu->n_reads_err++;
    } else {
        reads_ok += 2; // as the real one counts them on level 1
        of_gpu->n_total_reads++;
        of_gpu->read_bytes += (uint64_t)done;
        if (is_set_to("STUB_CUFILE_PATH", "nvfs"))
            of_gpu->n_nvfs_reads++;
        else if (is_mixed ? index % 2 : is_posix())
            of_gpu->n_posix_reads++;
        else
            of_gpu->n_p2p_reads++;
        of_gpu->n_dr_reads += is_set_to("STUB_CUFILE_PATH", "peer");
    }
    pthread_mutex_unlock(&lock);
}

static ssize_t read_into(int fd, char *to, size_t size, off_t offset) {
    static _Thread_local char *bounce;
    static _Thread_local size_t bounce_size;
    size_t aligned = (size + 4095) / 4096 * 4096;
    if (bounce_size < aligned) {
        free(bounce);
        if (posix_memalign((void **)&bounce, 4096, aligned))
            return -1;
        bounce_size = aligned;
    }
    ssize_t done = pread(fd, bounce, size, offset);
    if (done < 0)
        return -1;
    if (number("STUB_CUFILE_ZEROS", 0))
        memset(bounce, 0, (size_t)done);
    memcpy(to, bounce, (size_t)done);
    return done;
}

static ssize_t refuse(int error) {
    errno = error;
    return -1;
}

// The errno of a read that is refused: beyond what is registered, or beyond any memory of a GPU.
static int range_error(const void *memory, const char *to, size_t size) {
    pthread_mutex_lock(&lock);
    struct buffer *buffer = buffers;
    while (buffer && buffer->start != memory)
        buffer = buffer->next;
    int is_beyond = buffer && to + size > (const char *)buffer->start + buffer->size;
    pthread_mutex_unlock(&lock);
    return is_beyond ? INVALID_MAPPING_RANGE : EPERM;
}

ssize_t cuFileRead(void *handle, void *memory, size_t size, off_t offset, off_t memory_offset) {
    if (is_set_to("STUB_CUFILE_HANG", "read"))
        hang();
    if (!handle || !memory)
        return refuse(EINVAL);
    int fd = fd_of(handle);
    if (fd < 0)
        return refuse(HANDLE_NOT_REGISTERED);
    if (offset < 0)
        return refuse(INVALID_VALUE);
    char *to = (char *)memory + memory_offset;
    int gpu = gpu_of(to, size);
    if (gpu < 0)
        return refuse(range_error(memory, to, size));
    long long index = atomic_fetch_add(&read_number, 1) + 1;
    long long every = number("STUB_CUFILE_FAIL_EVERY", 0);
    int fails = every && index % every == 0;
    ssize_t done = fails ? -1 : read_into(fd, to, size, offset);
    int error = fails ? (int)number("STUB_CUFILE_FAIL_CODE", EIO) : errno;
    count(gpu, index, done);
    errno = error;
    return done;
}

status cuFileSetStatsLevel(int value) {
    if (value < 0 || value > 3)
        return plain(INVALID_VALUE);
    level = value;
    is_stopped = 0;
    return plain(0);
}

status cuFileGetStatsLevel(int *value) {
    *value = level;
    return plain(0);
}

status cuFileStatsStart(void) {
    if (!open_count)
        return plain(DRIVER_NOT_INITIALIZED);
    return plain(is_stopped ? INTERNAL_ERROR : 0);
}

status cuFileStatsStop(void) {
    if (!open_count)
        return plain(DRIVER_NOT_INITIALIZED);
    is_stopped = 1;
    return plain(0);
}

status cuFileStatsReset(void) {
    if (!open_count)
        return plain(DRIVER_NOT_INITIALIZED);
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_GPUS; i++)
        memset((char *)&statistics[i] + sizeof statistics[i].uuid, 0,
               sizeof statistics[i] - sizeof statistics[i].uuid);
    reads_ok = reads_failed = buffers_ok = handles_ok = 0;
    pthread_mutex_unlock(&lock);
    return plain(0);
}

status cuFileGetStatsL3(void *stats) {
    if (!open_count)
        return plain(DRIVER_NOT_INITIALIZED);
    if (!stats || level < 3 || is_stopped)
        return plain(INVALID_VALUE);
    size_t basic = version() >= 1200 ? LEVEL_1_WORDS_OF_1_20 : LEVEL_1_WORDS;
    uint64_t *words = stats;
    char *of_gpus = (char *)(words + basic + HISTOGRAM_WORDS);
    pthread_mutex_lock(&lock);
    memset(words, 0, (basic + HISTOGRAM_WORDS) * sizeof *words);
    // What is behind the last GPU stays as the caller left it.
    words[0] = reads_ok;
    words[1] = reads_failed;
    words[4] = handles_ok;
    words[8] = buffers_ok;
    *(uint32_t *)of_gpus = (uint32_t)gpus();
    memcpy(of_gpus + sizeof(uint64_t), statistics, (size_t)gpus() * sizeof *statistics);
    pthread_mutex_unlock(&lock);
    return plain(0);
}
