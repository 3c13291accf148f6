/* Distances by codes as DiskANN looks them up (branch cpp_main, src/pq.cpp), and what calls them. */
#include <stdint.h>
#include <string.h>

enum { MOST_CODES = 4096, CENTROIDS = 256 }; /* of one batch; of one chunk */

typedef void look_up(const float *table, uint32_t chunks, const uint8_t *codes, const uint32_t *ids,
                     uint64_t count, float *distances);

/* The codes are gathered first, then each chunk is added for all of them. */
void diskann(const float *table, uint32_t chunks, const uint8_t *codes, const uint32_t *ids,
             uint64_t count, float *distances) {
    static uint8_t gathered[MOST_CODES];
    for (uint64_t i = 0; i < count; i++)
        memcpy(gathered + i * chunks, codes + (uint64_t)ids[i] * chunks, chunks);
    for (int line = 0; line < 3; line++) __builtin_prefetch(gathered + 64 * line);
    memset(distances, 0, count * sizeof *distances);
    for (uint32_t chunk = 0; chunk < chunks; chunk++, table += CENTROIDS) {
        __builtin_prefetch(table + CENTROIDS);
        for (uint64_t i = 0; i < count; i++) distances[i] += table[gathered[i * chunks + chunk]];
    }
}

/* One batch after another, as a search expands one node after another. */
void repeat(look_up *look, const float *table, uint32_t chunks, const uint8_t *codes,
            const uint32_t *ids, uint64_t batch, uint64_t batches, float *distances) {
    for (uint64_t n = 0; n < batches; n++)
        look(table, chunks, codes, ids + n * batch, batch, distances + n * batch);
}
