/* Blocks that prove themselves: stamps and sums, as loaders/stamps.py defines them.
 *
 * The functions take bytes that begin at `offset` of their file. Blocks end at multiples of `unit`
 * (512 or 4096) of the file; the number of the block that holds byte 0 of the file is `first`. */
#ifndef WL_STAMPS_H
#define WL_STAMPS_H

#include "plan.h"

enum { WL_STAMP_BYTES = 32 };

/* The sum of the little-endian 64-bit words, padded with zeros to a multiple of 32 bytes, each
 * times an odd number of its own, modulo 2^64: the last word once, the one before it three times,
 * and so on. A change of one word always changes it, since odd numbers have an inverse. */
WL_API uint64_t wl_sum(const uint8_t *bytes, size_t length);

/* Writes the stamp of every block: nonce, word, number, and the sum of the bytes after the stamp.
 * A block that is too short for its stamp holds the beginning of it. */
WL_API void wl_seal(uint8_t *bytes, size_t length, uint64_t offset, uint64_t nonce, uint64_t word,
                    uint64_t first, uint64_t unit);

/* How many blocks have another stamp or another sum. Every byte is looked at. */
WL_API uint64_t wl_bad_blocks(const uint8_t *bytes, size_t length, uint64_t offset, uint64_t nonce,
                              uint64_t word, uint64_t first, uint64_t unit);

/* The same for a part of an extent, looking at three blocks of the extent at most: its first, its
 * last, and number 1 + wl_scale(wl_draw(seed, word), blocks - 2). The extent begins at `start` of its
 * file, a multiple of `unit`; `compared` is set to the bytes looked at. */
WL_API uint64_t wl_bad_samples(const uint8_t *bytes, size_t length, uint64_t offset, uint64_t nonce,
                               uint64_t word, uint64_t first, uint64_t unit, uint64_t start,
                               uint64_t extent_bytes, uint64_t seed, uint64_t *compared);

/* Sums of a poller's slots, by blocks of 4096 bytes, so that stamping a slot again needs no
 * second pass over its bytes. Valid until a read into the slot, or until all slots are filled. */
typedef struct {
    uint64_t *sums;     /* of each page of each slot */
    uint64_t *fillings; /* per slot: the filling that the sums are of */
    uint32_t *known;    /* per slot: how many pages were summed */
    uint32_t pages;   /* per slot */
} wl_slot_sums;

int wl_slot_sums_init(wl_slot_sums *sums, uint32_t slots, uint32_t block_bytes);
void wl_slot_sums_free(wl_slot_sums *sums);

/* Seals a payload at the start of slot number `slot`, as it was filled the `filling`-th time;
 * `number` is that of its first block of 4096 bytes. */
void wl_seal_slot(wl_slot_sums *sums, uint32_t slot, uint64_t filling, uint8_t *bytes, size_t length,
                  uint64_t nonce, uint64_t word, uint64_t number);

#endif
