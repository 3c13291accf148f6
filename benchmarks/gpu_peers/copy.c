/* The most memory traffic of this machine by copying: a thread pinned to each allowed CPU copies
 * memory that no cache holds, with stores that bypass the caches.
 *
 *   copy BYTES_PER_THREAD SECONDS TIMES
 *
 * One line of JSON: the best of TIMES, in bytes per second that were read and written. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { CHUNK = 1 << 20 };

static struct {
    size_t bytes;
    uint64_t duration_ns;
    int times;
    uint64_t begin_ns;
    pthread_barrier_t barrier;
} shared;

typedef struct {
    pthread_t thread;
    int cpu;
    uint64_t copied, spent_ns;
} copier;

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

#if defined(__x86_64__)
__attribute__((target("avx"))) static void copy_avx(char *to, const char *from) {
    for (size_t i = 0; i < CHUNK; i += 128)
        for (size_t j = 0; j < 128; j += 32)
            _mm256_stream_si256((__m256i *)(to + i + j),
                                _mm256_load_si256((const __m256i *)(from + i + j)));
    _mm_sfence();
}

static void copy_sse(char *to, const char *from) {
    for (size_t i = 0; i < CHUNK; i += 16)
        _mm_stream_si128((__m128i *)(to + i), _mm_load_si128((const __m128i *)(from + i)));
    _mm_sfence();
}

static void copy_chunk(char *to, const char *from) {
    if (__builtin_cpu_supports("avx"))
        copy_avx(to, from);
    else
        copy_sse(to, from);
}
#else
static void copy_chunk(char *to, const char *from) {
    memcpy(to, from, CHUNK);
}
#endif

static void *run_copier(void *argument) {
    copier *self = argument;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(self->cpu, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    /* First touched here, so that it is on this CPU's node. */
    char *memory = mmap(NULL, 2 * shared.bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        exit(1);
    madvise(memory, 2 * shared.bytes, MADV_HUGEPAGE);
    memset(memory, 1, 2 * shared.bytes);
    for (int time = 0; time < shared.times; time++) {
        uint64_t copied = 0, begin, end;
        pthread_barrier_wait(&shared.barrier);
        begin = now_ns();
        do {
            size_t at = copied % shared.bytes;
            copy_chunk(memory + shared.bytes + at, memory + at);
            copied += CHUNK;
            end = now_ns();
        } while (end - begin < shared.duration_ns);
        self->copied = copied;
        self->spent_ns = end - begin;
        pthread_barrier_wait(&shared.barrier);
        pthread_barrier_wait(&shared.barrier); /* the figures are taken */
    }
    return NULL;
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    shared.bytes = (size_t)atoll(arguments[1]) / CHUNK * CHUNK;
    shared.duration_ns = (uint64_t)(atof(arguments[2]) * 1e9);
    shared.times = atoi(arguments[3]);
    cpu_set_t allowed;
    if (!shared.bytes || sched_getaffinity(0, sizeof allowed, &allowed))
        return 2;
    int copiers_count = CPU_COUNT(&allowed), place = 0;
    copier *copiers = calloc((size_t)copiers_count, sizeof *copiers);
    pthread_barrier_init(&shared.barrier, NULL, (unsigned)copiers_count + 1);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed)) {
            copiers[place].cpu = cpu;
            if (pthread_create(&copiers[place].thread, NULL, run_copier, &copiers[place]))
                return 1;
            place++;
        }
    double best = 0;
    for (int time = 0; time < shared.times; time++) {
        pthread_barrier_wait(&shared.barrier);
        pthread_barrier_wait(&shared.barrier);
        double traffic = 0;
        for (int i = 0; i < copiers_count; i++)
            traffic += 2.0 * (double)copiers[i].copied / ((double)copiers[i].spent_ns / 1e9);
        best = traffic > best ? traffic : best;
        pthread_barrier_wait(&shared.barrier);
    }
    printf("{\"threads\": %d, \"bytes_per_s\": %.0f}\n", copiers_count, best);
    return 0;
}
