/* build_graph THREADS TYPE: codes and a graph of drawn vectors, as one sum each; then a build that is
 * stopped. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "permutation.h"
#include "stamps.h"
#include "vectors.h"

enum { COUNT = 700, DIM = 19, CHUNKS = 5, DEGREE = 9, WIDTH = DEGREE + 1 };

static float floats[COUNT * DIM], centroid[DIM];
static uint8_t bytes[COUNT * DIM], codes[COUNT * CHUNKS];
static uint32_t graph[COUNT * WIDTH];
static const uint32_t offsets[CHUNKS + 1] = {0, 4, 8, 12, 16, 19};

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    uint32_t threads = (uint32_t)atoi(arguments[1]), type = (uint32_t)atoi(arguments[2]);
    for (uint32_t i = 0; i < COUNT * DIM; i++) {
        bytes[i] = (uint8_t)(wl_draw(1, i) >> 56);
        floats[i] = (float)bytes[i] / 16 - 8;
    }
    const void *vectors = type == WL_UINT8 ? (const void *)bytes : (const void *)floats;
    wl_vamana_setup setup = {.struct_bytes = sizeof setup, .type = type, .dim = DIM, .degree = DEGREE,
                             .build_list = 20, .threads = threads, .count = COUNT, .seed = 3,
                             .start = 5, .vectors = vectors, .alpha = 1.2f};
    static wl_error error;
    uint64_t done = 0;
    uint32_t stop = 0;
    if (wl_vamana_build(&setup, graph, &done, &stop, &error) || done != 2 * COUNT)
        return 1;
    wl_pq_encode(vectors, type, COUNT, DIM, centroid, offsets, CHUNKS, floats, threads, codes);
    printf("%llx ", (unsigned long long)wl_sum((const uint8_t *)graph, sizeof graph));
    printf("%llx", (unsigned long long)wl_sum(codes, sizeof codes));
    stop = 1;
    return wl_vamana_build(&setup, graph, &done, &stop, &error) != ECANCELED || done != 2 * COUNT;
}
