/* Vectors in memory: their distances, product quantization and Vamana graphs, as DiskANN has them.
 *
 * Results follow from the arguments alone: not from the number of threads, nor from the CPU. */
#ifndef WL_VECTORS_H
#define WL_VECTORS_H

#include "errors.h"

enum { WL_FLOAT32 = 0, WL_UINT8 = 1 }; /* types of vectors */
#define WL_DEGREE_LIMIT 512u
#define WL_CENTROIDS 256u

/* Product quantization. Chunk c of a vector are its numbers offsets[c] to before offsets[c + 1].
 * `columns`, dim x 256, are DiskANN's pivots transposed: column i has centroid i of every chunk. */

/* count x chunks codes: the nearest centroid of each chunk of vector - centroid. */
WL_API void wl_pq_encode(const void *vectors, uint32_t type, uint64_t count, uint32_t dim,
                         const float *centroid, const uint32_t *offsets, uint32_t chunks,
                         const float *columns, uint32_t threads, uint8_t *codes);
/* chunks x 256 squared distances of query - centroid to the centroids. */
WL_API void wl_pq_table(const float *query, const float *centroid, const uint32_t *offsets,
                        uint32_t chunks, const float *columns, float *table);
/* Distances by codes of `count` vectors: those of `ids`, or the first ones without a list. */
WL_API void wl_pq_distances(const float *table, uint32_t chunks, const uint8_t *codes,
                            const uint32_t *ids, uint64_t count, float *distances);

typedef struct {
    uint32_t struct_bytes; /* sizeof(wl_vamana_setup) */
    uint32_t type, dim, degree, build_list, threads;
    uint64_t count, seed, start; /* `start`: the medoid */
    const void *vectors; /* count x dim */
    float alpha; /* of the second pass; the first has 1 */
    uint32_t reserved;
} wl_vamana_setup;

/* Fills `graph`, count x (1 + degree): the degree of a node and its neighbours, the rest 0. `done`
 * counts nodes over both passes; the build ends early with ECANCELED when `stop` is not 0. */
WL_API int32_t wl_vamana_build(const wl_vamana_setup *setup, uint32_t *graph, uint64_t *done,
                               const uint32_t *stop, wl_error *error);
/* wl_sum of `count` rows of `length` bytes, `stride` apart. */
WL_API void wl_sums(const uint8_t *rows, uint64_t stride, uint64_t length, uint64_t count,
                    uint64_t *sums);

#endif
