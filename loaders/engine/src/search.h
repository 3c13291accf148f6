/* Greedy beam search over nodes on a drive: DiskANN's cached_beam_search (cpp_main,
 * src/pq_flash_index.cpp), in threads with several queries each.
 *
 * A query expands the closest candidates in rounds: up to `beam` of them, of which it reads those
 * that are not in the cache, one read a node, and waits for all of them. */
#ifndef WL_SEARCH_H
#define WL_SEARCH_H

#include "errors.h"

enum { WL_BY_RING = 0, WL_BY_PREAD = 1, WL_BY_MAPPING = 2 }; /* how nodes are read */
#define WL_BEAM_LIMIT 128u
#define WL_SEARCH_THREADS 1024u
#define WL_SEARCH_INFLIGHT 256u
#define WL_NO_NODE 0xFFFFFFFFu
/* In a trace: the last node of its round. */
#define WL_ROUND_END 0x80000000u

typedef struct {
    uint32_t struct_bytes; /* sizeof(wl_search_setup) */
    uint32_t access;
    uint32_t threads, inflight_per_thread; /* by pread or mapping a thread has one read in flight */
    uint32_t search_list, beam, k;
    uint32_t type, dim, degree, chunks;
    uint32_t node_bytes, nodes_per_sector, read_bytes; /* 0 nodes a sector: several sectors a node */
    uint32_t check_every; /* one delivered node in so many is compared with its digest */
    uint32_t medoid_count, cached_count;
    int32_t fd;
    uint64_t node_count; /* up to 2^31 - 1 */
    const char *path;
    uint8_t *memory; /* for reads, by 4096 bytes: threads x inflight_per_thread x beam x read_bytes */
    const uint8_t *mapped;
    const float *centroid, *columns; /* as for wl_pq_table */
    const uint32_t *offsets;
    const uint8_t *codes;
    const uint32_t *medoids;
    const float *medoid_vectors; /* medoid_count x dim */
    const uint32_t *cached, *cached_rows; /* nodes in memory, ascending, and where they are: */
    const uint8_t *cached_nodes; /* cached_count x node_bytes */
    const uint64_t *digests;     /* wl_sum of node_bytes, by node; NULL: none are compared */
} wl_search_setup;

/* Queries are asked in the order 0, 1, ... modulo query_count. */
typedef struct {
    uint32_t struct_bytes; /* sizeof(wl_search_run) */
    uint32_t query_count;
    uint64_t most;          /* at most so many are started */
    uint64_t duration_ns;   /* up to 2^63; then none is started, and each ends after its round */
    const float *queries;   /* query_count x dim */
    const uint64_t *due_ns; /* of `most` arrivals since the start, rising; NULL: a closed loop */
    uint32_t *answers;      /* query_count x k ids by distance, WL_NO_NODE where there are fewer */
    /* A trace: for each query up to trace_stride expanded nodes, rounds marked, then WL_NO_NODE;
     * and the CPU time of its computation. Filled by a search; NULL: none. */
    uint32_t *trace;
    uint64_t *compute_ns;
    uint32_t trace_stride;
    /* A walk follows a trace; compute_ns are those of a round. Traced node v stands for one of
     * `spread` nodes, v + i x walk_nodes, drawn for each visit; a node whose bit is set in `hot` for
     * itself. Stamps of the file's 4096-byte blocks are in place of digests. */
    uint32_t is_walk;
    uint64_t walk_nodes, spread, seed;
    const uint8_t *hot;
    uint64_t nonce, word, first_block;
} wl_search_run;

/* Of one thread. All start together; the window ends with the last one. */
typedef struct {
    uint64_t reads; /* that have succeeded; rises during the search */
    uint64_t start_ns, end_ns; /* CLOCK_MONOTONIC */
    uint64_t queries, cut;     /* that ended; that the end of the window cut off */
    uint64_t rounds, expanded, cached, read_bytes; /* of both; rounds with reads */
    uint64_t compared, wrong, wrong_node; /* delivered nodes; the first wrong one */
    uint64_t cpu_ns;
    uint64_t late_ns; /* the longest time from an arrival to its start */
    wl_latencies latencies; /* from the start of a query, or from its arrival, to its answer */
} wl_search_result;

/* Runs to the end, or until `stop` is not 0. A read that fails or is short, and a neighbour that is
 * no node, are errors. There is a result for each thread. */
WL_API int32_t wl_search(const wl_search_setup *setup, const wl_search_run *run,
                         const uint32_t *stop, wl_search_result *results, wl_error *error);

#endif
