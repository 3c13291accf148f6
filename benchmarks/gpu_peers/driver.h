/* The CUDA driver by dlopen, the arguments, the random numbers and the figures of the peers: nothing
 * of wattload is used.
 *
 *   PROGRAM GPU BLOCK_BYTES THREADS SECONDS SEED FILE...
 *
 * GPU is a PCI address. Thread t reads file t modulo their number, one block after another at random
 * aligned offsets, for SECONDS. One line of JSON on standard output: reads, bytes, seconds, CPU
 * seconds of the process meanwhile, the mean latency, and the reads that failed. */
#ifndef PEER_DRIVER_H
#define PEER_DRIVER_H

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long cuda_memory;

static struct {
    int (*init)(unsigned);
    int (*device_by_address)(int *, const char *);
    int (*retain)(void **, int);
    int (*set_current)(void *);
    int (*allocate)(cuda_memory *, size_t);
    int (*pin)(void *, size_t, unsigned);
    int (*stream_create)(void **, unsigned);
    int (*stream_wait)(void *);
    int (*copy)(cuda_memory, const void *, size_t, void *);
} cuda;

static void die(const char *what, long code) {
    fprintf(stderr, "%s: %ld\n", what, code);
    exit(1);
}

static void check(int code, const char *what) {
    if (code)
        die(what, code);
}

static void *function_of(void *library, const char *name) {
    void *function = dlsym(library, name);
    if (!function)
        die(name, -1);
    return function;
}

static void *library_of(const char *name) {
    void *library = dlopen(name, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

static void *open_gpu(const char *address) {
    void *library = library_of("libcuda.so.1"), *context;
    int device;
    cuda.init = function_of(library, "cuInit");
    cuda.device_by_address = function_of(library, "cuDeviceGetByPCIBusId");
    cuda.retain = function_of(library, "cuDevicePrimaryCtxRetain");
    cuda.set_current = function_of(library, "cuCtxSetCurrent");
    cuda.allocate = function_of(library, "cuMemAlloc_v2");
    cuda.pin = function_of(library, "cuMemHostRegister_v2");
    cuda.stream_create = function_of(library, "cuStreamCreate");
    cuda.stream_wait = function_of(library, "cuStreamSynchronize");
    cuda.copy = function_of(library, "cuMemcpyHtoDAsync_v2");
    check(cuda.init(0), "cuInit");
    check(cuda.device_by_address(&device, address), "cuDeviceGetByPCIBusId");
    check(cuda.retain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuda.set_current(context), "cuCtxSetCurrent");
    return context;
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static uint64_t cpu_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* xorshift64* (Vigna 2016); the state is not 0. */
static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

typedef struct reader {
    pthread_t thread;
    void *context;
    const char *path;
    uint64_t blocks, random, deadline_ns;
    uint64_t reads, failed, latency_ns;
    size_t block_bytes;
    pthread_barrier_t *start;
    /* Of the peer itself. */
    int fd;
    char *host;
    cuda_memory memory;
    void *stream, *handle;
} reader;

/* Opens and registers what a reader needs, before the clock. */
static void prepare(reader *self);
/* Reads one block at an offset to GPU memory; returns the bytes, or -1. */
static ssize_t read_block(reader *self, off_t offset);

static void *run_reader(void *argument) {
    reader *self = argument;
    check(cuda.set_current(self->context), "cuCtxSetCurrent");
    prepare(self);
    pthread_barrier_wait(self->start); /* everybody is ready */
    pthread_barrier_wait(self->start); /* the deadline is set */
    for (uint64_t begin = now_ns(), end; begin < self->deadline_ns; begin = end) {
        off_t offset = (off_t)(next_random(&self->random) % self->blocks * self->block_bytes);
        int is_read = read_block(self, offset) == (ssize_t)self->block_bytes;
        end = now_ns();
        if (!is_read)
            self->failed++;
        else if (end <= self->deadline_ns) {
            self->reads++;
            self->latency_ns += end - begin;
        }
    }
    return NULL;
}

static int run_peer(int count, char **arguments, void (*setup)(void)) {
    if (count < 7)
        die("GPU BLOCK_BYTES THREADS SECONDS SEED FILE...", count);
    void *context = open_gpu(arguments[1]);
    if (setup)
        setup();
    size_t block_bytes = (size_t)atoll(arguments[2]);
    int threads = atoi(arguments[3]), files = count - 6;
    uint64_t duration_ns = (uint64_t)(atof(arguments[4]) * 1e9);
    uint64_t seed = (uint64_t)atoll(arguments[5]);
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, (unsigned)threads + 1);
    reader *readers = calloc((size_t)threads, sizeof *readers);
    for (int i = 0; i < threads; i++) {
        struct stat found;
        readers[i].path = arguments[6 + i % files];
        if (stat(readers[i].path, &found))
            die(readers[i].path, errno);
        readers[i].context = context;
        readers[i].blocks = (uint64_t)found.st_size / block_bytes;
        readers[i].block_bytes = block_bytes;
        readers[i].random = (seed + 1) * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xd1b54a32d192ed03u;
        readers[i].start = &start;
        if (pthread_create(&readers[i].thread, NULL, run_reader, &readers[i]))
            die("pthread_create", i);
    }
    pthread_barrier_wait(&start);
    uint64_t begin_ns = now_ns(), begin_cpu_ns = cpu_ns();
    for (int i = 0; i < threads; i++)
        readers[i].deadline_ns = begin_ns + duration_ns;
    pthread_barrier_wait(&start);
    uint64_t left_ns = begin_ns + duration_ns - now_ns();
    struct timespec rest = {(time_t)(left_ns / 1000000000u), (long)(left_ns % 1000000000u)};
    nanosleep(&rest, NULL);
    double seconds = (double)(now_ns() - begin_ns) / 1e9;
    double cpu_s = (double)(cpu_ns() - begin_cpu_ns) / 1e9;
    uint64_t reads = 0, failed = 0, latency_ns = 0;
    for (int i = 0; i < threads; i++) {
        pthread_join(readers[i].thread, NULL);
        reads += readers[i].reads;
        failed += readers[i].failed;
        latency_ns += readers[i].latency_ns;
    }
    printf("{\"reads\": %llu, \"bytes\": %llu, \"seconds\": %.9f, \"cpu_s\": %.9f, "
           "\"mean_latency_s\": %.9f, \"failed\": %llu}\n",
           (unsigned long long)reads, (unsigned long long)(reads * block_bytes), seconds, cpu_s,
           reads ? (double)latency_ns / (double)reads / 1e9 : 0.0, (unsigned long long)failed);
    fflush(stdout);
    _exit(0); /* the driver's own ends take a second, and are nobody's figure */
}

#endif
