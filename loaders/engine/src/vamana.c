/* Vamana graphs (Jayaram Subramanya and others 2019), the same at any number of threads: nodes of a
 * batch search a graph that stays as it is until all of them have ended (ParlayANN, Dobson Manohar
 * and others 2024). Distances are squared also where alpha scales them, as in DiskANN. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "distance.h"
#include "permutation.h"

enum { SEARCHED_AT_ONCE = 16, LINKED_AT_ONCE = 1024, AHEAD = 4, BATCHES = 50, BATCH_LIMIT = 1 << 16,
       NEIGHBOURS = 2 * WL_DEGREE_LIMIT };

/* The bits of its distance, which rise with it, its number, and whether it was expanded. */
typedef uint64_t candidate;
#define EXPANDED ((candidate)1)

typedef struct {
    const wl_vamana_setup *setup;
    wl_distance *between;
    size_t vector_bytes, seen_bytes, scratch_bytes;
    uint32_t *graph, *more; /* more: `slack` neighbours of each node over its degree */
    uint32_t slack, most, expanded_limit; /* most: the neighbours of a node at this time */
    float alpha;
    int saturates;
    wl_permutation order;
    uint64_t first;           /* of the batch, in that order */
    uint32_t *lists;          /* of the batch's nodes, as rows of the graph */
    uint32_t *ends, *sources; /* new edges back: those of node i end in `sources` at ends[i] */
    uint8_t *scratch; /* of each thread: a bit for each node, the list of a search, candidates */
    uint64_t *done;
    const uint32_t *stop;
} builder;

static inline const uint8_t *vector_of(const builder *of, uint32_t node) {
    return (const uint8_t *)of->setup->vectors + node * of->vector_bytes;
}

static inline uint32_t *row_of(const builder *of, uint32_t node) {
    return of->graph + node * (uint64_t)(of->setup->degree + 1);
}

static inline candidate *candidates_of(const builder *of, uint32_t thread) {
    return (candidate *)(void *)(of->scratch + thread * of->scratch_bytes + of->seen_bytes);
}

/* Copies a node's neighbours; returns how many there are. */
static inline uint32_t read_neighbours(const builder *of, uint32_t node, uint32_t *neighbours) {
    const uint32_t *row = row_of(of, node);
    uint32_t degree = of->setup->degree, own = *row < degree ? *row : degree;
    memcpy(neighbours, row + 1, own * sizeof *row);
    memcpy(neighbours + own, of->more + node * (uint64_t)of->slack, (*row - own) * sizeof *row);
    return *row;
}

static inline uint32_t node_of(candidate of) {
    return (uint32_t)of >> 1;
}

static inline candidate candidate_of(const builder *of, uint32_t from, uint32_t node) {
    uint32_t bits;
    float distance = of->between(vector_of(of, from), vector_of(of, node), of->setup->dim);
    memcpy(&bits, &distance, sizeof bits);
    return (candidate)bits << 32 | (candidate)node << 1;
}

/* Puts a candidate into a sorted list of up to `limit`; returns its place. */
static uint32_t insert(candidate *list, uint32_t *count, uint32_t limit, candidate added) {
    if (*count == limit && list[limit - 1] < added)
        return limit;
    uint32_t at = *count < limit ? (*count)++ : limit - 1;
    for (; at && list[at - 1] > added; at--)
        list[at] = list[at - 1];
    list[at] = added;
    return at;
}

static inline void fetch(const void *bytes, size_t count) {
    for (size_t i = 0; i < count; i += 64)
        __builtin_prefetch((const uint8_t *)bytes + i);
}

/* Greedy search for a node; returns how many nodes it expanded into `found`. */
static uint32_t search(const builder *of, uint32_t node, uint8_t *seen, candidate *list,
                       candidate *found) {
    uint32_t start = (uint32_t)of->setup->start, limit = of->setup->build_list;
    uint32_t to[NEIGHBOURS], count = 0, found_count = 0;
    insert(list, &count, limit, candidate_of(of, node, start));
    seen[start / 8] |= (uint8_t)(1 << start % 8);
    for (uint32_t at = 0; at < count && found_count < of->expanded_limit;) {
        if (list[at] & EXPANDED) {
            at++;
            continue;
        }
        uint32_t degree = read_neighbours(of, node_of(list[at]), to), fresh = 0;
        found[found_count++] = list[at];
        list[at] |= EXPANDED;
        for (uint32_t i = 0; i < degree; i++) {
            uint32_t each = to[i], bit = 1u << each % 8, byte = seen[each / 8];
            to[fresh] = each;
            fresh += !(byte & bit);
            seen[each / 8] = (uint8_t)(byte | bit);
        }
        for (uint32_t i = 0; i < fresh + AHEAD; i++) {
            if (i < fresh)
                fetch(vector_of(of, to[i]), of->vector_bytes);
            if (i < AHEAD)
                continue;
            candidate added = candidate_of(of, node, to[i - AHEAD]);
            uint32_t place = insert(list, &count, limit, added);
            at = place < at ? place : at;
            if (place < limit)
                fetch(row_of(of, to[i - AHEAD]), of->setup->degree * sizeof *to);
        }
    }
    seen[start / 8] = 0;
    for (uint32_t i = 0; i < found_count; i++)
        for (uint32_t j = read_neighbours(of, node_of(found[i]), to); j--;)
            seen[to[j] / 8] = 0;
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
        uint32_t j = 0, bits = (uint32_t)(all[i] >> 32);
        float distance;
        memcpy(&distance, &bits, sizeof distance);
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

static uint32_t add_candidates(const builder *of, uint32_t node, const uint32_t *nodes,
                               uint32_t node_count, candidate *all, uint32_t count) {
    for (uint32_t i = 0; i < node_count; i++)
        all[count++] = candidate_of(of, node, nodes[i]);
    return count;
}

static void search_range(void *context, uint64_t first, uint64_t end, uint32_t thread) {
    const builder *of = context;
    uint8_t *seen = of->scratch + thread * of->scratch_bytes;
    candidate *list = candidates_of(of, thread), *all = list + of->setup->build_list;
    uint32_t to[NEIGHBOURS];
    for (uint64_t i = first; i < end && !__atomic_load_n(of->stop, __ATOMIC_RELAXED); i++) {
        uint32_t node = (uint32_t)wl_permute(&of->order, of->first + i);
        uint32_t count = search(of, node, seen, list, all);
        for (uint32_t j = 0; j < count; j++)
            all[j] &= ~EXPANDED;
        count = add_candidates(of, node, to, read_neighbours(of, node, to), all, count);
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

/* Adds edges back to the batch's nodes; prunes nodes with more than `most` neighbours. */
static void link_range(void *context, uint64_t first, uint64_t end, uint32_t thread) {
    const builder *of = context;
    candidate *all = candidates_of(of, thread);
    uint32_t to[NEIGHBOURS], limit = of->setup->degree;
    for (uint32_t node = (uint32_t)first; node < end; node++) {
        uint32_t *row = row_of(of, node), degree = read_neighbours(of, node, to), count = 0;
        for (uint32_t i = node ? of->ends[node - 1] : 0; i < of->ends[node]; i++) {
            uint32_t j = 0;
            for (to[degree] = of->sources[i]; to[j] != of->sources[i];)
                j++;
            if (j == degree && degree < of->most)
                degree++;
            else if (j == degree)
                count = add_candidates(of, node, to + j, 1, all, count);
        }
        uint32_t own = degree < limit ? degree : limit;
        memcpy(row + 1, to, own * sizeof *to);
        memcpy(of->more + node * (uint64_t)of->slack, to + own, (degree - own) * sizeof *to);
        *row = degree;
        if (count || degree > of->most)
            prune(of, node, all, add_candidates(of, node, to, degree, all, count), row);
        if (*row < limit)
            memset(row + 1 + *row, 0, (limit - *row) * sizeof *row);
    }
}

int32_t wl_vamana_build(const wl_vamana_setup *setup, uint32_t *graph, uint64_t *done,
                        const uint32_t *stop, wl_error *error) {
    uint64_t count = setup->count, width = setup->degree + 1, batch_limit = count / BATCHES + 1;
    builder of = {.setup = setup, .graph = graph, .done = done, .stop = stop,
                  .slack = setup->degree * 3 / 10 + 1, .expanded_limit = 3 * setup->build_list + 64,
                  .between = wl_distance_between(setup->type),
                  .vector_bytes = setup->dim * (setup->type == WL_UINT8 ? 1 : sizeof(float))};
    batch_limit = batch_limit < BATCH_LIMIT ? batch_limit : BATCH_LIMIT;
    of.seen_bytes = (count / 8 + 64) / 64 * 64;
    of.scratch_bytes = setup->build_list + of.expanded_limit + batch_limit + NEIGHBOURS;
    of.scratch_bytes = of.seen_bytes + (of.scratch_bytes * sizeof(candidate) + 63) / 64 * 64;
    uint64_t bytes = count * of.slack + count + batch_limit * 2 * width;
    bytes = setup->threads * of.scratch_bytes + bytes * sizeof *graph;
    of.scratch = calloc(bytes, 1);
    if (!of.scratch)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "allocating %llu bytes to build a graph",
                       (unsigned long long)bytes);
    of.more = (uint32_t *)(void *)(of.scratch + setup->threads * of.scratch_bytes);
    of.ends = of.more + count * of.slack;
    of.lists = of.ends + count;
    of.sources = of.lists + batch_limit * width;
    memset(graph, 0, count * width * sizeof *graph);
    int is_stopped = 0;
    for (uint32_t pass = 0; pass < 2; pass++) {
        of.alpha = pass ? setup->alpha : 1;
        of.saturates = pass == 1;
        of.most = setup->degree + of.slack;
        wl_permutation_init(&of.order, wl_draw(setup->seed, pass), count);
        uint64_t batch = pass ? batch_limit : 1;
        for (of.first = 0; of.first < count && !is_stopped; of.first += batch, batch *= 2) {
            batch = batch < batch_limit ? batch : batch_limit;
            batch = batch < count - of.first ? batch : count - of.first;
            wl_for_ranges(setup->threads, batch, SEARCHED_AT_ONCE, search_range, &of);
            is_stopped = __atomic_load_n(stop, __ATOMIC_RELAXED) != 0;
            if (!is_stopped) {
                put_edges(&of, batch);
                wl_for_ranges(setup->threads, count, LINKED_AT_ONCE, link_range, &of);
            }
        }
    }
    of.most = setup->degree;
    if (!is_stopped) {
        put_edges(&of, 0);
        wl_for_ranges(setup->threads, count, LINKED_AT_ONCE, link_range, &of);
    }
    free(of.scratch);
    return is_stopped ? wl_fail(error, ECANCELED, NULL, WL_NOWHERE, "building a graph") : WL_OK;
}
