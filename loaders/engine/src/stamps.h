/* Stamps and sums of blocks, as loaders/stamps.py defines them. */
#ifndef WL_STAMPS_H
#define WL_STAMPS_H

#include "plan.h"

enum { WL_STAMP_BYTES = 24 };

typedef struct {
    uint64_t nonce, word;
} wl_identity;

/* The sum modulo 2^64 of the little-endian 64-bit words, a partial last word padded with zeros. */
uint64_t wl_sum(const uint8_t *bytes, size_t length);

/* Stamps `pages` blocks of 4096 bytes; `number` is that of the first. Returns the stamps' sum. */
uint64_t wl_stamp(uint8_t *bytes, size_t pages, wl_identity identity, uint64_t number);

/* How many of the blocks have another stamp; a last part too short for one is not checked. */
uint64_t wl_bad_blocks(const uint8_t *bytes, size_t length, wl_identity identity, uint64_t number);

/* Sums of a poller's slots without their stamps, page by page, so that stamping a slot again needs
 * no second pass over its bytes. Valid within one job, since only that job's operations touch the
 * slots then. */
typedef struct {
    uint64_t *sums;   /* of each page of each slot */
    uint64_t *owners; /* per slot: the job that the sums are of */
    uint32_t *known;  /* per slot: how many pages were summed */
    uint32_t pages;   /* per slot */
} wl_slot_sums;

int wl_slot_sums_init(wl_slot_sums *sums, uint32_t slots, uint32_t block_bytes);
void wl_slot_sums_free(wl_slot_sums *sums);

/* Stamps a payload that begins slot number `slot`, for job number `owner`; returns its sum. */
uint64_t wl_stamp_slot(wl_slot_sums *sums, uint32_t slot, uint64_t owner, uint8_t *bytes,
                       size_t length, wl_identity identity, uint64_t number);

#endif
