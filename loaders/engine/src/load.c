/* A load on the host: a pinned thread per CPU that copies memory and computes, as much as its
 * quotas allow. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#include "avx2.h"
#include "errors.h"
#include "wattload_engine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LINE 64u
#define CHUNK (64u << 10)
#define NS_PER_S 1000000000ull
#define UNIT_ROUNDS 1024

/* Done and due, written by one thread and read by any. */
typedef struct {
    _Alignas(LINE) _Atomic uint64_t copied_bytes;
    _Atomic uint64_t due_bytes;
    _Atomic uint64_t units;
    _Atomic uint64_t due_units;
} counts;

typedef struct {
    counts counts;
    wl_load *load;
    pthread_t handle;
    uint32_t cpu;
    uint32_t index;
    uint8_t *memory;
    uint64_t at;      /* the position of the next chunk in both buffers */
    uint64_t number;  /* what the arithmetic goes on with */
} worker;

struct wl_load {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    _Atomic uint32_t order; /* counts the calls of wl_load_set */
    uint32_t mode;
    uint64_t copy_bytes; /* of each thread and period */
    uint64_t units;
    uint32_t ready;
    int failure; /* errno of the first thread that could not start */
    uint32_t failed_cpu;
    int ends;
    uint64_t period_ns;
    uint64_t half_bytes;
    uint32_t count;
    worker *workers;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void copy_avx2(uint8_t *to, const uint8_t *from,
                                                      uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += 2 * LINE) {
        const __m256i *in = (const __m256i *)(const void *)(from + i);
        __m256i *out = (__m256i *)(void *)(to + i);
        _mm_prefetch((const char *)(from + i + 1024), _MM_HINT_NTA);
        _mm_prefetch((const char *)(from + i + 1024 + LINE), _MM_HINT_NTA);
        __m256i a = _mm256_load_si256(in), b = _mm256_load_si256(in + 1);
        __m256i c = _mm256_load_si256(in + 2), d = _mm256_load_si256(in + 3);
        _mm256_stream_si256(out, a);
        _mm256_stream_si256(out + 1, b);
        _mm256_stream_si256(out + 2, c);
        _mm256_stream_si256(out + 3, d);
    }
    _mm_sfence();
}

static void copy_sse2(uint8_t *to, const uint8_t *from, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i += LINE) {
        const __m128i *in = (const __m128i *)(const void *)(from + i);
        __m128i *out = (__m128i *)(void *)(to + i);
        _mm_prefetch((const char *)(from + i + 1024), _MM_HINT_NTA);
        __m128i a = _mm_load_si128(in), b = _mm_load_si128(in + 1);
        __m128i c = _mm_load_si128(in + 2), d = _mm_load_si128(in + 3);
        _mm_stream_si128(out, a);
        _mm_stream_si128(out + 1, b);
        _mm_stream_si128(out + 2, c);
        _mm_stream_si128(out + 3, d);
    }
    _mm_sfence();
}
#endif

static void copy(uint8_t *to, const uint8_t *from, uint64_t bytes) {
#if defined(__x86_64__)
    if (has_avx2())
        copy_avx2(to, from, bytes);
    else
        copy_sse2(to, from, bytes);
#else
    memcpy(to, from, bytes);
#endif
}

const char *wl_load_copier(void) {
#if defined(__x86_64__)
    return has_avx2() ? "non-temporal copies (AVX2)" : "non-temporal copies (SSE2)";
#else
    return "copies by memcpy, through the caches";
#endif
}

static void copy_chunk(worker *own, uint64_t bytes) {
    uint64_t half = own->load->half_bytes;
    if (own->at + bytes > half)
        own->at = 0;
    copy(own->memory + half + own->at, own->memory + own->at, bytes);
    own->at += bytes;
    atomic_fetch_add_explicit(&own->counts.copied_bytes, bytes, memory_order_relaxed);
}

/* Each round depends on the one before, so that a unit takes the same cycles on every thread. */
static void compute_unit(worker *own) {
    uint64_t x = own->number;
    for (int i = 0; i < UNIT_ROUNDS; i++)
        x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9u + 1;
    own->number = x;
    atomic_fetch_add_explicit(&own->counts.units, 1, memory_order_relaxed);
}

/* Works until both quotas are done, the period is over, or there is another order. Both kinds
 * advance in proportion, so that a period's traffic is no burst at its start. */
static void work(worker *own, uint64_t end_ns, uint32_t order, uint64_t bytes, uint64_t units) {
    uint64_t copied = 0, computed = 0;
    while (copied < bytes || computed < units) {
        int copies = copied < bytes && (computed >= units ||
                                        (double)copied * (double)units <= (double)computed * (double)bytes);
        if (copies) {
            uint64_t chunk = bytes - copied < CHUNK ? bytes - copied : CHUNK;
            copy_chunk(own, chunk);
            copied += chunk;
        } else {
            compute_unit(own);
            computed++;
        }
        if (now_ns() >= end_ns || atomic_load_explicit(&own->load->order, memory_order_relaxed) != order)
            return;
    }
}

static void sleep_until(uint64_t at_ns) {
    struct timespec at = {(time_t)(at_ns / NS_PER_S), (long)(at_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
}

/* Serves one order in periods of an absolute timeline. The threads' periods begin one after the
 * other. A thread that overslept whole periods owes them, and does not make up for them. */
static void serve_quotas(worker *own, uint32_t order, uint64_t bytes, uint64_t units) {
    wl_load *load = own->load;
    uint64_t period_ns = load->period_ns;
    uint64_t offset_ns = period_ns * own->index / load->count;
    uint64_t number = (now_ns() - offset_ns) / period_ns + 1;
    sleep_until(number * period_ns + offset_ns);
    while (atomic_load_explicit(&load->order, memory_order_relaxed) == order) {
        uint64_t current = (now_ns() - offset_ns) / period_ns;
        uint64_t due = current >= number ? current - number + 1 : 1;
        atomic_fetch_add_explicit(&own->counts.due_bytes, due * bytes, memory_order_relaxed);
        atomic_fetch_add_explicit(&own->counts.due_units, due * units, memory_order_relaxed);
        number += due;
        uint64_t end_ns = number * period_ns + offset_ns;
        work(own, end_ns, order, bytes, units);
        sleep_until(end_ns);
    }
}

static void serve_peak(worker *own, uint32_t order, uint32_t mode) {
    wl_load *load = own->load;
    while (atomic_load_explicit(&load->order, memory_order_relaxed) == order) {
        if (mode == WL_LOAD_COPY)
            copy_chunk(own, CHUNK);
        else
            compute_unit(own);
    }
}

static int start(worker *own) {
    cpu_set_t *cpus = CPU_ALLOC(own->cpu + 1);
    size_t size = CPU_ALLOC_SIZE(own->cpu + 1);
    if (cpus == NULL)
        return ENOMEM;
    CPU_ZERO_S(size, cpus);
    CPU_SET_S(own->cpu, size, cpus);
    int failure = pthread_setaffinity_np(pthread_self(), size, cpus);
    CPU_FREE(cpus);
    if (failure)
        return failure;
    prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
    uint64_t bytes = 2 * own->load->half_bytes;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return errno;
    madvise(memory, bytes, MADV_HUGEPAGE);
    own->memory = memory;
    memset(memory, (int)own->index + 1, bytes); /* first touched here: on this CPU's node */
    return 0;
}

static void *serve(void *argument) {
    worker *own = argument;
    wl_load *load = own->load;
    int failure = start(own);
    pthread_mutex_lock(&load->mutex);
    if (failure && !load->failure) {
        load->failure = failure;
        load->failed_cpu = own->cpu;
    }
    load->ready++;
    pthread_cond_broadcast(&load->changed);
    uint32_t seen = 0;
    while (!load->ends) {
        uint32_t order = atomic_load(&load->order);
        if (order == seen || load->mode == WL_LOAD_STOP || failure) {
            pthread_cond_wait(&load->changed, &load->mutex);
            continue;
        }
        seen = order;
        uint32_t mode = load->mode;
        uint64_t bytes = load->copy_bytes, units = load->units;
        pthread_mutex_unlock(&load->mutex);
        if (mode == WL_LOAD_QUOTAS)
            serve_quotas(own, order, bytes, units);
        else
            serve_peak(own, order, mode);
        pthread_mutex_lock(&load->mutex);
    }
    pthread_mutex_unlock(&load->mutex);
    return NULL;
}

int32_t wl_load_open(const wl_load_setup *setup, wl_load **opened, wl_error *error) {
    if (setup->struct_bytes != sizeof *setup)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "struct_bytes is %u, not %zu",
                       setup->struct_bytes, sizeof *setup);
    if (setup->threads < 1 || setup->threads > 65536 || setup->period_us < 1000 ||
        setup->period_us > 1000000 || setup->thread_bytes < 4 * CHUNK)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE,
                       "threads must be 1 to 65536, period_us 1000 to 1000000 and thread_bytes at "
                       "least %u; got %u, %u and %llu",
                       4 * CHUNK, setup->threads, setup->period_us,
                       (unsigned long long)setup->thread_bytes);
    wl_load *load = calloc(1, sizeof *load);
    void *workers = NULL;
    if (load == NULL || posix_memalign(&workers, LINE, setup->threads * sizeof(worker))) {
        free(load);
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "start of the load");
    }
    memset(workers, 0, setup->threads * sizeof(worker));
    pthread_mutex_init(&load->mutex, NULL);
    pthread_cond_init(&load->changed, NULL);
    load->workers = workers;
    load->period_ns = setup->period_us * 1000ull;
    load->half_bytes = setup->thread_bytes / 2 / CHUNK * CHUNK;
    for (uint32_t i = 0; i < setup->threads; i++) {
        worker *own = &load->workers[i];
        own->load = load;
        own->cpu = setup->cpus[i];
        own->index = i;
        own->number = i + 1;
        int failure = pthread_create(&own->handle, NULL, serve, own);
        if (failure) {
            wl_load_close(load);
            return wl_fail(error, failure, NULL, WL_NOWHERE, "start of thread %u of the load", i);
        }
        load->count++;
    }
    pthread_mutex_lock(&load->mutex);
    while (load->ready < load->count)
        pthread_cond_wait(&load->changed, &load->mutex);
    pthread_mutex_unlock(&load->mutex);
    if (load->failure) {
        int failure = load->failure;
        uint32_t cpu = load->failed_cpu;
        wl_load_close(load);
        return wl_fail(error, failure, NULL, WL_NOWHERE, "start of the load on CPU %u", cpu);
    }
    *opened = load;
    return WL_OK;
}

void wl_load_set(wl_load *load, uint32_t mode, uint64_t copy_bytes, uint64_t units) {
    pthread_mutex_lock(&load->mutex);
    load->mode = mode;
    load->copy_bytes = copy_bytes / (2 * LINE) * (2 * LINE);
    load->units = units;
    atomic_fetch_add(&load->order, 1);
    pthread_cond_broadcast(&load->changed);
    pthread_mutex_unlock(&load->mutex);
}

void wl_load_read(const wl_load *load, wl_load_counts *total) {
    memset(total, 0, sizeof *total);
    total->time_ns = now_ns();
    for (uint32_t i = 0; i < load->count; i++) {
        counts *own = &load->workers[i].counts;
        total->copied_bytes += atomic_load_explicit(&own->copied_bytes, memory_order_relaxed);
        total->due_bytes += atomic_load_explicit(&own->due_bytes, memory_order_relaxed);
        total->units += atomic_load_explicit(&own->units, memory_order_relaxed);
        total->due_units += atomic_load_explicit(&own->due_units, memory_order_relaxed);
    }
}

void wl_load_close(wl_load *load) {
    pthread_mutex_lock(&load->mutex);
    load->ends = 1;
    load->mode = WL_LOAD_STOP;
    atomic_fetch_add(&load->order, 1);
    pthread_cond_broadcast(&load->changed);
    pthread_mutex_unlock(&load->mutex);
    for (uint32_t i = 0; i < load->count; i++) {
        pthread_join(load->workers[i].handle, NULL);
        if (load->workers[i].memory != NULL)
            munmap(load->workers[i].memory, 2 * load->half_bytes);
    }
    pthread_cond_destroy(&load->changed);
    pthread_mutex_destroy(&load->mutex);
    free(load->workers);
    free(load);
}
