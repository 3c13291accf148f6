/* A bare ring between requesters and pollers, as small as one can be: nothing of wattload is used, and
 * nothing is read or delivered.
 *
 *   PROGRAM REQUESTERS RINGS PLACES POLLERS THREADS BLOCKS SECONDS
 *
 * Requesters come in warps of 32 with one request in flight each. A warp takes 32 places of a ring
 * with one addition; each of its requesters writes a request there, and then the place's lap. The
 * ring's poller answers each request with one word, as soon as it sees it. PLACES is a power of two,
 * at least REQUESTERS, so a ring is never full. THREADS are those that ask, where a CPU does. They ask
 * for random ones of BLOCKS. One line of JSON on standard output: requests, seconds, and CPU seconds of the process meanwhile. */
#ifndef PEER_RING_H
#define PEER_RING_H

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WARP = 32, MOST_RINGS = 256, MOST_POLLERS = 64, BURST = 256, PATIENCE = 1000 };

typedef struct {
    uint64_t block;
    uint32_t slot, tag;
} request;

/* Memory that both sides see. */
static struct {
    request *requests; /* [rings][places] */
    uint32_t *laps;    /* [rings][places] */
    uint32_t *answers; /* [requesters]: the tag of the last request that was answered */
    uint32_t requesters, rings, places, pollers, threads;
    uint64_t blocks;
    double seconds;
    int is_over;
} shared;

static void die(const char *what, long code) {
    fprintf(stderr, "%s: %ld\n", what, code);
    exit(1);
}

static double clock_s(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void read_arguments(int count, char **arguments) {
    if (count != 8)
        die("REQUESTERS RINGS PLACES POLLERS THREADS BLOCKS SECONDS", count);
    shared.requesters = (uint32_t)atoi(arguments[1]);
    shared.rings = (uint32_t)atoi(arguments[2]);
    shared.places = (uint32_t)atoi(arguments[3]);
    shared.pollers = (uint32_t)atoi(arguments[4]);
    shared.threads = (uint32_t)atoi(arguments[5]);
    shared.blocks = (uint64_t)atoll(arguments[6]);
    shared.seconds = atof(arguments[7]);
    if (!shared.requesters || shared.requesters % WARP || !shared.rings ||
        shared.rings > MOST_RINGS || shared.places < shared.requesters ||
        (shared.places & (shared.places - 1)) || !shared.pollers ||
        shared.pollers > MOST_POLLERS || !shared.threads || !shared.blocks)
        die("an argument is out of range", count);
}

static size_t ring_bytes(void) { return (size_t)shared.rings * shared.places; }

/* Pollers take the rings in turn: ring r is that of poller r modulo their number. */
static void *poll_rings(void *argument) {
    uint32_t first = (uint32_t)(uintptr_t)argument, tails[MOST_RINGS] = {0}, empty = 0;
    while (!__atomic_load_n(&shared.is_over, __ATOMIC_RELAXED)) {
        uint32_t found = 0;
        for (uint32_t ring = first; ring < shared.rings; ring += shared.pollers) {
            size_t base = (size_t)ring * shared.places;
            for (uint32_t i = 0; i < BURST; i++, found++, tails[ring]++) {
                size_t place = base + (tails[ring] & (shared.places - 1));
                uint32_t lap = tails[ring] / shared.places + 1;
                if (__atomic_load_n(&shared.laps[place], __ATOMIC_ACQUIRE) != lap)
                    break;
                request asked = shared.requests[place];
                __atomic_store_n(&shared.answers[asked.slot], asked.tag, __ATOMIC_RELEASE);
            }
        }
        empty = found ? 0 : empty + 1;
        if (empty > PATIENCE)
            sched_yield();
    }
    return NULL;
}

static pthread_t poller_threads[MOST_POLLERS];

static void start_pollers(void) {
    for (uint32_t i = 0; i < shared.pollers; i++)
        if (pthread_create(&poller_threads[i], NULL, poll_rings, (void *)(uintptr_t)i))
            die("pthread_create", i);
}

static void end_pollers(void) {
    __atomic_store_n(&shared.is_over, 1, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < shared.pollers; i++)
        pthread_join(poller_threads[i], NULL);
}

static void print_figures(uint64_t requests, double seconds, double cpu_s) {
    printf("{\"requests\": %llu, \"seconds\": %.9f, \"cpu_s\": %.9f}\n",
           (unsigned long long)requests, seconds, cpu_s);
}

#endif
