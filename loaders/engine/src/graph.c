/* Synthetic graphs and their features: pure functions of seeds and numbers, in integers. */
#include "permutation.h"
#include "wattload_engine.h"

#include <string.h>

/* The last step in [low, high] that starts at `number` or before. */
static uint32_t step_of(const uint64_t *starts, uint32_t low, uint32_t high, uint64_t number) {
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        if (starts[middle] <= number)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

void wl_graph_degrees(const wl_degree_steps *steps, uint64_t seed, uint64_t first_node,
                      uint64_t count, uint32_t *degrees) {
    wl_permutation nodes;
    wl_permutation_init(&nodes, seed, steps->first_ranks[steps->count]);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t rank = wl_permute_back(&nodes, first_node + i);
        degrees[i] = steps->degrees[step_of(steps->first_ranks, 0, steps->count - 1, rank)];
    }
}

void wl_graph_neighbours(const wl_degree_steps *steps, uint64_t node_seed, uint64_t edge_seed,
                         uint64_t first_edge, uint64_t count, uint32_t *neighbours) {
    wl_permutation nodes;
    wl_permutation_init(&nodes, node_seed, steps->first_ranks[steps->count]);
    uint64_t edge_count = steps->first_edges[steps->count];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t edge = wl_scale(wl_draw(edge_seed, first_edge + i), edge_count);
        const uint32_t *guide = steps->guide + (edge >> steps->guide_shift);
        uint32_t step = step_of(steps->first_edges, guide[0], guide[1], edge);
        uint64_t within = (edge - steps->first_edges[step]) / steps->degrees[step];
        neighbours[i] = (uint32_t)wl_permute(&nodes, steps->first_ranks[step] + within);
    }
}

enum { WIDTH = WL_ROW_BYTES / sizeof(float), SIGN_WORDS = WIDTH / 64, HALF = 1 << 23 };

typedef struct {
    uint64_t row_seed, class_seed;
    uint64_t signs[WL_CLASSES][SIGN_WORDS];
} features;

static void init_features(features *of, uint64_t seed) {
    of->row_seed = wl_draw(seed, 0);
    of->class_seed = wl_draw(seed, 1);
    uint64_t sign_seed = wl_draw(seed, 2);
    for (uint32_t i = 0; i < WL_CLASSES * SIGN_WORDS; i++)
        of->signs[i / SIGN_WORDS][i % SIGN_WORDS] = wl_draw(sign_seed, i);
}

static uint32_t class_of(const features *of, uint64_t row) {
    return (uint32_t)wl_scale(wl_draw(of->class_seed, row), WL_CLASSES);
}

/* 24 random bits in [-1, 1), moved by 1/4 to the side of the class: exact in a float. */
static inline float value_of(uint64_t bits, uint64_t sign) {
    int32_t whole = (int32_t)(bits & 0xffffff) - HALF + (sign & 1 ? HALF / 4 : -HALF / 4);
    return (float)whole * (1.0f / HALF);
}

static void make_row(const features *of, uint64_t row, float *values) {
    const uint64_t *signs = of->signs[class_of(of, row)];
    uint64_t seed = wl_draw(of->row_seed, row);
    for (uint32_t i = 0; i < WIDTH / 2; i++) {
        uint64_t bits = wl_draw(seed, i), sign = signs[i / 32] >> (2 * i % 64);
        values[2 * i] = value_of(bits, sign);
        values[2 * i + 1] = value_of(bits >> 40, sign >> 1);
    }
}

void wl_graph_rows(uint64_t seed, const uint64_t *rows, uint64_t count, float *values) {
    features of;
    init_features(&of, seed);
    for (uint64_t i = 0; i < count; i++)
        make_row(&of, rows[i], values + i * WIDTH);
}

void wl_graph_classes(uint64_t seed, const uint64_t *rows, uint64_t count, int64_t *classes) {
    features of;
    init_features(&of, seed);
    for (uint64_t i = 0; i < count; i++)
        classes[i] = class_of(&of, rows[i]);
}

uint64_t wl_graph_wrong_row(uint64_t seed, const uint64_t *rows, uint64_t count, uint64_t every,
                            const float *values) {
    features of;
    float row[WIDTH];
    init_features(&of, seed);
    for (uint64_t i = 0; i < count; i += every) {
        make_row(&of, rows[i], row);
        if (memcmp(row, values + i * WIDTH, sizeof row))
            return i;
    }
    return count;
}

void wl_graph_permute(uint64_t seed, uint64_t count, uint64_t *numbers, uint64_t number_count) {
    wl_permutation permutation;
    wl_permutation_init(&permutation, seed, count);
    for (uint64_t i = 0; i < number_count; i++)
        numbers[i] = wl_permute(&permutation, numbers[i]);
}

enum { SCORES_AHEAD = 24 };

/* Threads add to the same scores: sums of integers do not depend on their order. */
void wl_graph_scores(const uint64_t *indptr, const uint32_t *indices, uint32_t fanout,
                     uint64_t *scores, uint64_t first_node, uint64_t end_node) {
    uint64_t end_edge = indptr[end_node];
    for (uint64_t node = first_node; node < end_node; node++) {
        uint64_t degree = indptr[node + 1] - indptr[node];
        uint64_t share = degree > fanout ? ((uint64_t)fanout << 32) / degree : (uint64_t)1 << 32;
        for (uint64_t edge = indptr[node]; edge < indptr[node + 1]; edge++) {
            if (edge + SCORES_AHEAD < end_edge)
                __builtin_prefetch(scores + indices[edge + SCORES_AHEAD], 1);
            __atomic_fetch_add(scores + indices[edge], share, __ATOMIC_RELAXED);
        }
    }
}

static int sort_edge(const wl_edge_way *way, uint64_t source, uint64_t destination) {
    uint64_t at = way->next[destination];
    if (way->ends && at >= way->ends[destination])
        return 0;
    way->next[destination] = at + 1;
    if (way->sources)
        way->sources[at] = (uint32_t)source;
    return 1;
}

uint64_t wl_graph_sort_edges(const int64_t *edges, uint64_t count, const uint64_t node_counts[2],
                             int32_t drops_loops, const wl_edge_way *forward,
                             const wl_edge_way *back) {
    for (uint64_t i = 0; i < count; i++) {
        if (i + SCORES_AHEAD < count) {
            uint64_t ahead = (uint64_t)edges[2 * (i + SCORES_AHEAD) + 1];
            __builtin_prefetch(forward->next + (ahead < node_counts[1] ? ahead : 0), 1);
        }
        uint64_t first = (uint64_t)edges[2 * i], second = (uint64_t)edges[2 * i + 1];
        if (first >= node_counts[0] || second >= node_counts[1])
            return i;
        if (drops_loops && first == second)
            continue;
        if (!sort_edge(forward, first, second) || (back && !sort_edge(back, second, first)))
            return i;
    }
    return count;
}
