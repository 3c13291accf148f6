/* Vamana graphs (Jayaram Subramanya and others 2019), the same at any number of threads: nodes of a
 * batch search a graph that stays as it is until all of them have ended (ParlayANN, Dobson Manohar
 * and others 2024). Distances are squared also where alpha scales them, as in DiskANN. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "distance.h"
#include "permutation.h"

enum { SEARCHED_AT_ONCE = 16, LINKED_AT_ONCE = 1024, BATCHES = 50, BATCH_LIMIT = 1 << 16, LIST_LIMIT = 1 << 16 };

/* A candidate: the bits of its distance, which rise with it, its number, and whether it was expanded. */
typedef uint64_t candidate;
#define EXPANDED ((candidate)1)

typedef struct {
    const wl_vamana_setup *setup;
    wl_distance *between;
    size_t vector_bytes;
    uint32_t *graph, *more; /* more: `slack` neighbours of each node over its degree */
    uint32_t slack, expanded_limit;
    float alpha;
    int saturates;
    wl_permutation order;
    uint64_t first;    /* of the batch, in that order */
    uint32_t *lists;   /* of the batch's nodes, as rows of the graph */
    uint32_t *ends;    /* of each node's new sources in `sources`, which begin where the last ones end */
    uint32_t *sources;
    uint8_t *scratch;  /* of each thread, scratch_bytes: */
    size_t seen_bytes, scratch_bytes; /* a bit for each node, the list of a search, candidates */
    uint64_t *done;
    const uint32_t *stop;
} builder;

static inline const uint8_t *vector_of(const builder *of, uint32_t node) {
    return (const uint8_t *)of->setup->vectors + node * of->vector_bytes;
}

static inline uint32_t *row_of(const builder *of, uint32_t node) {
    return of->graph + node * (uint64_t)(of->setup->degree + 1);
}

static inline uint32_t *neighbour(const builder *of, uint32_t node, uint32_t i) {
    uint32_t degree = of->setup->degree;
    return i < degree ? row_of(of, node) + 1 + i : of->more + node * (uint64_t)of->slack + i - degree;
}

static inline uint32_t node_of(candidate of) {
    return (uint32_t)of >> 1;
}

static inline float distance_of(candidate of) {
    uint32_t bits = (uint32_t)(of >> 32);
    float distance;
    memcpy(&distance, &bits, sizeof distance);
    return distance;
}

static inline candidate candidate_of(const builder *of, uint32_t from, uint32_t node) {
    uint32_t bits;
    float distance = of->between(vector_of(of, from), vector_of(of, node), of->setup->dim);
    memcpy(&bits, &distance, sizeof bits);
    return (candidate)bits << 32 | (candidate)node << 1;
}

/* Puts a candidate into a sorted list of up to `limit`; returns its place. */
static uint32_t insert(candidate *list, uint32_t *count, uint32_t limit, candidate added) {
    uint32_t low = 0, high = *count;
    if (*count == limit && list[limit - 1] < added)
        return limit;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (list[middle] < added)
            low = middle + 1;
        else
            high = middle;
    }
    *count += *count < limit;
    memmove(list + low + 1, list + low, (*count - 1 - low) * sizeof *list);
    list[low] = added;
    return low;
}

/* Greedy search for a node; returns how many nodes it expanded into `found`. */
static uint32_t search(const builder *of, uint32_t node, uint8_t *seen, candidate *list,
                       candidate *found) {
    uint32_t count = 0, found_count = 0, fresh[2 * WL_DEGREE_LIMIT], start = (uint32_t)of->setup->start;
    insert(list, &count, of->setup->build_list, candidate_of(of, node, start));
    seen[start / 8] |= (uint8_t)(1 << start % 8);
    for (uint32_t at = 0; at < count && found_count < of->expanded_limit;) {
        if (list[at] & EXPANDED) {
            at++;
            continue;
        }
        uint32_t from = node_of(list[at]), degree = *row_of(of, from), fresh_count = 0;
        found[found_count++] = list[at];
        list[at] |= EXPANDED;
        for (uint32_t i = 0; i < degree; i++) {
            uint32_t to = *neighbour(of, from, i);
            if (seen[to / 8] >> to % 8 & 1)
                continue;
            seen[to / 8] |= (uint8_t)(1 << to % 8);
            fresh[fresh_count++] = to;
            __builtin_prefetch(vector_of(of, to));
        }
        for (uint32_t i = 0; i < fresh_count; i++) {
            if (i + 1 < fresh_count)
                for (size_t byte = 0; byte < of->vector_bytes; byte += 64)
                    __builtin_prefetch(vector_of(of, fresh[i + 1]) + byte);
            candidate added = candidate_of(of, node, fresh[i]);
            uint32_t place = insert(list, &count, of->setup->build_list, added);
            at = place < at ? place : at;
        }
    }
    seen[start / 8] = 0;
    for (uint32_t i = 0; i < found_count; i++)
        for (uint32_t j = 0, degree = *row_of(of, node_of(found[i])); j < degree; j++)
            seen[*neighbour(of, node_of(found[i]), j) / 8] = 0;
    return found_count;
}

static int by_distance(const void *left, const void *right) {
    candidate a = *(const candidate *)left, b = *(const candidate *)right;
    return (a > b) - (a < b);
}

/* Robust prune: of the candidates by distance, those that no chosen one is nearer to. Fills `row`. */
static void prune(const builder *of, uint32_t node, candidate *all, uint32_t count, uint32_t *row) {
    uint32_t chosen = 0, different = 0, degree = of->setup->degree, *neighbours = row + 1;
    qsort(all, count, sizeof *all, by_distance);
    for (uint32_t i = 0; i < count; i++)
        if (node_of(all[i]) != node && (!different || all[i] != all[different - 1]))
            all[different++] = all[i];
    for (uint32_t i = 0; i < different && chosen < degree; i++) {
        const uint8_t *vector = vector_of(of, node_of(all[i]));
        float distance = distance_of(all[i]);
        uint32_t j = 0;
        while (j < chosen && of->alpha * of->between(vector, vector_of(of, neighbours[j]),
                                                     of->setup->dim) > distance)
            j++;
        if (j == chosen) {
            neighbours[chosen++] = node_of(all[i]);
            all[i] |= EXPANDED;
        }
    }
    for (uint32_t i = 0; of->saturates && i < different && chosen < degree; i++)
        if (!(all[i] & EXPANDED))
            neighbours[chosen++] = node_of(all[i]);
    *row = chosen;
}

static uint32_t add_neighbours(const builder *of, uint32_t node, candidate *all, uint32_t count) {
    for (uint32_t i = 0, degree = *row_of(of, node); i < degree; i++)
        all[count++] = candidate_of(of, node, *neighbour(of, node, i));
    return count;
}

static void search_range(void *context, uint64_t first, uint64_t end, uint32_t thread) {
    const builder *of = context;
    uint8_t *seen = of->scratch + thread * of->scratch_bytes;
    candidate *list = (candidate *)(void *)(seen + of->seen_bytes);
    candidate *all = list + of->setup->build_list + 1;
    for (uint64_t i = first; i < end && !__atomic_load_n(of->stop, __ATOMIC_RELAXED); i++) {
        uint32_t node = (uint32_t)wl_permute(&of->order, of->first + i);
        uint32_t count = search(of, node, seen, list, all);
        for (uint32_t j = 0; j < count; j++)
            all[j] &= ~EXPANDED;
        count = add_neighbours(of, node, all, count);
        prune(of, node, all, count, of->lists + i * (of->setup->degree + 1));
        __atomic_fetch_add(of->done, 1, __ATOMIC_RELAXED);
    }
}

/* Puts the batch's edges in, and sorts their sources by destination. */
static void put_edges(const builder *of, uint64_t batch) {
    uint32_t width = of->setup->degree + 1, before = 0;
    memset(of->ends, 0, of->setup->count * sizeof *of->ends);
    for (uint64_t i = 0; i < batch; i++) {
        const uint32_t *list = of->lists + i * width;
        memcpy(row_of(of, (uint32_t)wl_permute(&of->order, of->first + i)), list,
               (list[0] + 1) * sizeof *list);
        for (uint32_t j = 1; j <= list[0]; j++)
            of->ends[list[j]]++;
    }
    for (uint64_t node = 0; node < of->setup->count; node++) {
        uint32_t own = of->ends[node];
        of->ends[node] = before;
        before += own;
    }
    for (uint64_t i = 0; i < batch; i++) {
        const uint32_t *list = of->lists + i * width;
        for (uint32_t j = 1; j <= list[0]; j++)
            of->sources[of->ends[list[j]]++] = (uint32_t)wl_permute(&of->order, of->first + i);
    }
}

static int has_neighbour(const builder *of, uint32_t node, uint32_t other) {
    for (uint32_t i = 0, degree = *row_of(of, node); i < degree; i++)
        if (*neighbour(of, node, i) == other)
            return 1;
    return 0;
}

/* Adds edges back to the batch's nodes. */
static void link_range(void *context, uint64_t first, uint64_t end, uint32_t thread) {
    const builder *of = context;
    candidate *all = (candidate *)(void *)(of->scratch + thread * of->scratch_bytes + of->seen_bytes);
    for (uint32_t node = (uint32_t)first; node < end; node++) {
        uint32_t *degree = row_of(of, node), count = 0;
        for (uint32_t i = node ? of->ends[node - 1] : 0; i < of->ends[node]; i++)
            if (has_neighbour(of, node, of->sources[i]))
                continue;
            else if (!count && *degree < of->setup->degree + of->slack)
                *neighbour(of, node, (*degree)++) = of->sources[i];
            else
                all[count++] = candidate_of(of, node, of->sources[i]);
        if (count)
            prune(of, node, all, add_neighbours(of, node, all, count), degree);
    }
}

/* Takes nodes back to their degree. */
static void finish_range(void *context, uint64_t first, uint64_t end, uint32_t thread) {
    const builder *of = context;
    candidate *all = (candidate *)(void *)(of->scratch + thread * of->scratch_bytes + of->seen_bytes);
    for (uint32_t node = (uint32_t)first; node < end; node++) {
        uint32_t *row = row_of(of, node), degree = of->setup->degree;
        if (*row > degree)
            prune(of, node, all, add_neighbours(of, node, all, 0), row);
        memset(row + 1 + *row, 0, (degree - *row) * sizeof *row);
    }
}

static int32_t check(const wl_vamana_setup *setup, wl_error *error) {
    const char *wrong = NULL;
    if (setup->struct_bytes != sizeof *setup || setup->type > WL_UINT8)
        wrong = "the setup of a graph has another size, or an unknown type of vectors";
    else if (!setup->degree || setup->degree > WL_DEGREE_LIMIT)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE,
                       "a node has 1 to %u neighbours, got %u", WL_DEGREE_LIMIT, setup->degree);
    else if (!setup->build_list || setup->build_list > LIST_LIMIT)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE,
                       "a graph is built with a list of 1 to %u nodes, got %u", LIST_LIMIT,
                       setup->build_list);
    else if (!setup->dim || !setup->threads || setup->threads > WL_VECTOR_THREADS)
        wrong = "a graph has vectors of 1 dimension or more, and 1 to 1024 threads build it";
    else if (setup->count > (uint64_t)1 << 31 || setup->start >= setup->count)
        wrong = "a graph has 1 to 2^31 vectors, and starts at one of them";
    return wrong ? wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "%s", wrong) : WL_OK;
}

int32_t wl_vamana_build(const wl_vamana_setup *setup, uint32_t *graph, uint64_t *done,
                        const uint32_t *stop, wl_error *error) {
    int32_t code = check(setup, error);
    if (code)
        return code;
    uint64_t count = setup->count, width = setup->degree + 1, most = count / BATCHES + 1;
    builder of = {.setup = setup, .graph = graph, .done = done, .stop = stop,
                  .slack = setup->degree * 3 / 10 + 1, .expanded_limit = 3 * setup->build_list + 64,
                  .between = wl_distance_between(setup->type),
                  .vector_bytes = setup->dim * (setup->type == WL_UINT8 ? 1 : sizeof(float))};
    most = most < BATCH_LIMIT ? most : BATCH_LIMIT;
    of.seen_bytes = (count / 8 + 64) / 64 * 64;
    of.scratch_bytes = of.seen_bytes + (setup->build_list + 1 + of.expanded_limit + most + width + of.slack) *
                                           sizeof(candidate);
    of.scratch_bytes = (of.scratch_bytes + 63) / 64 * 64;
    uint64_t words = count * of.slack + count + most * (2 * width);
    uint64_t bytes = setup->threads * of.scratch_bytes + words * sizeof *graph;
    of.scratch = calloc(bytes, 1);
    if (!of.scratch)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating %llu bytes to build a graph",
                       (unsigned long long)bytes);
    of.more = (uint32_t *)(void *)(of.scratch + setup->threads * of.scratch_bytes);
    of.ends = of.more + count * of.slack;
    of.lists = of.ends + count;
    of.sources = of.lists + most * width;
    memset(graph, 0, count * width * sizeof *graph);
    int is_stopped = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        of.alpha = pass ? setup->alpha : 1;
        of.saturates = pass == 1;
        wl_permutation_init(&of.order, wl_draw(setup->seed, pass), count);
        uint64_t batch = pass ? most : 1;
        for (of.first = 0; of.first < count && !is_stopped; of.first += batch, batch *= 2) {
            batch = batch < most ? batch : most;
            batch = batch < count - of.first ? batch : count - of.first;
            wl_for_ranges(setup->threads, batch, SEARCHED_AT_ONCE, search_range, &of);
            is_stopped = __atomic_load_n(stop, __ATOMIC_RELAXED) != 0;
            if (is_stopped)
                break;
            put_edges(&of, batch);
            wl_for_ranges(setup->threads, count, LINKED_AT_ONCE, link_range, &of);
        }
    }
    if (!is_stopped)
        wl_for_ranges(setup->threads, count, LINKED_AT_ONCE, finish_range, &of);
    free(of.scratch);
    return is_stopped ? wl_fail(error, ECANCELED, NULL, WL_NOWHERE, "building a graph") : WL_OK;
}
