/* The bare ring with threads of the CPU that ask: each takes its warps in turn. */
#include "ring.h"

typedef struct {
    pthread_t thread;
    uint32_t number;
    uint64_t requests;
} asker;

static uint32_t *heads; /* one of 16, so that rings do not share a cache line */
static int stops;

static uint64_t next_random(uint64_t *state) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1du;
}

static void ask(uint32_t warp, uint32_t tag, uint64_t *random) {
    uint32_t ring = (warp + tag) % shared.rings;
    uint32_t position = __atomic_fetch_add(&heads[ring * 16], WARP, __ATOMIC_RELAXED);
    for (uint32_t lane = 0; lane < WARP; lane++, position++) {
        size_t place = (size_t)ring * shared.places + (position & (shared.places - 1));
        request *asked = &shared.requests[place];
        asked->block = next_random(random) % shared.blocks;
        asked->slot = warp * WARP + lane;
        asked->tag = tag;
        __atomic_store_n(&shared.laps[place], position / shared.places + 1, __ATOMIC_RELEASE);
    }
}

static int is_answered(uint32_t warp, uint32_t tag) {
    for (uint32_t lane = 0; lane < WARP; lane++)
        if (__atomic_load_n(&shared.answers[warp * WARP + lane], __ATOMIC_ACQUIRE) != tag)
            return 0;
    return 1;
}

static void *run_asker(void *argument) {
    asker *self = argument;
    uint32_t warps = shared.requesters / WARP, empty = 0;
    uint32_t *tags = calloc(warps, sizeof *tags);
    uint64_t random = (self->number + 1) * 0x9e3779b97f4a7c15u;
    while (!__atomic_load_n(&stops, __ATOMIC_RELAXED)) {
        empty++;
        for (uint32_t warp = self->number; warp < warps; warp += shared.threads) {
            if (!is_answered(warp, tags[warp]))
                continue;
            self->requests += tags[warp] ? WARP : 0;
            ask(warp, ++tags[warp], &random);
            empty = 0;
        }
        if (empty > PATIENCE)
            sched_yield();
    }
    free(tags);
    return NULL;
}

int main(int count, char **arguments) {
    read_arguments(count, arguments);
    shared.requests = calloc(ring_bytes(), sizeof *shared.requests);
    shared.laps = calloc(ring_bytes(), sizeof *shared.laps);
    shared.answers = calloc(shared.requesters, sizeof *shared.answers);
    heads = calloc(shared.rings * 16, sizeof *heads);
    asker *askers = calloc(shared.threads, sizeof *askers);
    start_pollers();
    double begin_s = clock_s(CLOCK_MONOTONIC), begin_cpu_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    for (uint32_t i = 0; i < shared.threads; i++) {
        askers[i].number = i;
        if (pthread_create(&askers[i].thread, NULL, run_asker, &askers[i]))
            die("pthread_create", i);
    }
    struct timespec rest = {(time_t)shared.seconds,
                            (long)((shared.seconds - (double)(time_t)shared.seconds) * 1e9)};
    nanosleep(&rest, NULL);
    __atomic_store_n(&stops, 1, __ATOMIC_RELAXED);
    uint64_t requests = 0;
    for (uint32_t i = 0; i < shared.threads; i++) {
        pthread_join(askers[i].thread, NULL);
        requests += askers[i].requests;
    }
    double seconds = clock_s(CLOCK_MONOTONIC) - begin_s;
    double cpu_s = clock_s(CLOCK_PROCESS_CPUTIME_ID) - begin_cpu_s;
    end_pollers();
    print_figures(requests, seconds, cpu_s);
    return 0;
}
