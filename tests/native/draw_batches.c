/* Draws batches of a graph whose node v has the sources v + 1, v + 2, ... and prints how many nodes
 * each has. Every fifth has a seed twice, and prints the error's code.
 *
 *   draw_batches THREADS */
#include <stdio.h>
#include <stdlib.h>

#include "wattload_engine.h"

enum { NODES = 20000, DEGREE = 12, SEEDS = 100, LAYERS = 3, BATCHES = 20 };

int main(int argc, char **argv) {
    static uint64_t indptr[NODES + 1];
    static uint32_t indices[NODES * DEGREE];
    static wl_error error;
    for (uint32_t i = 0; i <= NODES; i++)
        indptr[i] = (uint64_t)i * DEGREE;
    for (uint32_t i = 0; i < NODES * DEGREE; i++)
        indices[i] = (i / DEGREE + (i % DEGREE + 1) * 7919) % NODES;
    uint64_t node_count = NODES;
    wl_relation relation = {.indptr = indptr, .indices = indices};
    uint32_t fanouts[LAYERS] = {5, 5, DEGREE}, seeds[SEEDS];
    wl_sampler_setup setup = {
        .struct_bytes = sizeof setup,
        .threads = argc == 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : 0,
        .type_count = 1,
        .relation_count = 1,
        .layer_count = LAYERS,
        .seed = 7,
        .node_counts = &node_count,
        .relations = &relation,
        .fanouts = fanouts,
    };
    wl_sampler *sampler;
    if (wl_sampler_open(&setup, &sampler, &error))
        return 2;
    for (uint32_t batch = 0; batch < BATCHES; batch++) {
        for (uint32_t i = 0; i < SEEDS; i++)
            seeds[i] = 31 * i + batch;
        if (batch % 5 == 3)
            seeds[SEEDS / 2] = seeds[2];
        const uint32_t *counts;
        int32_t code = wl_sampler_draw(sampler, batch, seeds, SEEDS, &error);
        wl_sampler_nodes(sampler, 0, &counts);
        printf("%ld\n", code ? (long)code : (long)counts[LAYERS]);
    }
    wl_sampler_close(sampler);
    return 0;
}
