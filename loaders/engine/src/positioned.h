/* Bytes that follow from a seed and their place in a file alone. */
#ifndef WATTLOAD_POSITIONED_H
#define WATTLOAD_POSITIONED_H

#include "wattload_engine.h"

/* Write the bytes of a file from `offset` on. The 8 bytes at offset 8 i are draw(seed, i) of
 * wattload_engine.h. */
WL_API void wl_positioned_fill(uint8_t *memory, uint64_t length, uint64_t seed, uint64_t offset);

/* Compare `rows` rows of `length` bytes, `stride` bytes apart in memory and `file_stride` apart in
 * the file, where the first one is at `offset`. Return how many bytes are wrong. */
WL_API uint64_t wl_positioned_wrong(const uint8_t *memory, uint64_t rows, uint64_t length,
                                    uint64_t stride, uint64_t file_stride, uint64_t seed,
                                    uint64_t offset);

#endif
