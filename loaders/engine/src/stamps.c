#include "stamps.h"

#include <stdlib.h>
#include <string.h>

enum { LANES = 4, ROW_BYTES = LANES * 8 };

typedef struct {
    uint64_t nonce, word, number, sum;
} stamp;

_Static_assert(sizeof(stamp) == WL_STAMP_BYTES, "a stamp is four words");

/* Lanes side by side, so that the compiler can use vectors. Adding up a lane's own sums weights its
 * words without a multiplication (Fletcher 1982): the last row once, the one before it twice. */
static void add_row(uint64_t sums[LANES], uint64_t weighted[LANES], const uint8_t *bytes) {
    uint64_t word[LANES];
    memcpy(word, bytes, sizeof word);
    for (int i = 0; i < LANES; i++) {
        sums[i] += word[i];
        weighted[i] += sums[i];
    }
}

uint64_t wl_sum(const uint8_t *bytes, size_t length) {
    uint64_t sums[LANES] = {0}, weighted[LANES] = {0}, sum = 0;
    size_t at = 0;
    for (; at + ROW_BYTES <= length; at += ROW_BYTES)
        add_row(sums, weighted, bytes + at);
    if (at < length) {
        uint8_t last[ROW_BYTES] = {0};
        memcpy(last, bytes + at, length - at);
        add_row(sums, weighted, last);
    }
    for (uint64_t i = 0; i < LANES; i++)
        sum += 2 * LANES * weighted[i] - (2 * i + 1) * sums[i];
    return sum;
}

static size_t stamp_bytes(size_t length) {
    return length < WL_STAMP_BYTES ? length : WL_STAMP_BYTES;
}

static uint64_t sum_of_block(const uint8_t *block, size_t length) {
    size_t start = stamp_bytes(length);
    return wl_sum(block + start, length - start);
}

/* The bytes of the first block, which `offset` may cut. */
static size_t first_length(size_t length, uint64_t offset, uint64_t unit) {
    size_t left = unit - offset % unit;
    return length < left ? length : left;
}

void wl_seal(uint8_t *bytes, size_t length, uint64_t offset, uint64_t nonce, uint64_t word,
             uint64_t first, uint64_t unit) {
    stamp own = {.nonce = nonce, .word = word, .number = first + offset / unit};
    size_t block = first_length(length, offset, unit);
    for (size_t at = 0; at < length; at += block, own.number++) {
        block = at ? first_length(length - at, 0, unit) : block;
        own.sum = sum_of_block(bytes + at, block);
        memcpy(bytes + at, &own, stamp_bytes(block));
    }
}

uint64_t wl_bad_blocks(const uint8_t *bytes, size_t length, uint64_t offset, uint64_t nonce,
                       uint64_t word, uint64_t first, uint64_t unit) {
    stamp own = {.nonce = nonce, .word = word, .number = first + offset / unit};
    size_t block = first_length(length, offset, unit);
    uint64_t bad = 0;
    for (size_t at = 0; at < length; at += block, own.number++) {
        block = at ? first_length(length - at, 0, unit) : block;
        own.sum = sum_of_block(bytes + at, block);
        bad += memcmp(bytes + at, &own, stamp_bytes(block)) != 0;
    }
    return bad;
}

int wl_slot_sums_init(wl_slot_sums *sums, uint32_t slots, uint32_t block_bytes) {
    sums->pages = block_bytes / WL_PAGE_BYTES;
    sums->sums = calloc((size_t)slots * sums->pages + 1, sizeof *sums->sums);
    sums->owners = calloc(slots, sizeof *sums->owners);
    sums->known = calloc(slots, sizeof *sums->known);
    return sums->sums && sums->owners && sums->known;
}

void wl_slot_sums_free(wl_slot_sums *sums) {
    free(sums->sums);
    free(sums->owners);
    free(sums->known);
    memset(sums, 0, sizeof *sums);
}

void wl_seal_slot(wl_slot_sums *sums, uint32_t slot, uint64_t owner, uint8_t *bytes, size_t length,
                  uint64_t nonce, uint64_t word, uint64_t number) {
    size_t whole = length / WL_PAGE_BYTES;
    uint64_t *pages = sums->sums + (size_t)slot * sums->pages;
    if (sums->owners[slot] != owner) {
        sums->owners[slot] = owner;
        sums->known[slot] = 0;
    }
    for (uint32_t i = sums->known[slot]; i < whole; i++)
        pages[i] = sum_of_block(bytes + (size_t)i * WL_PAGE_BYTES, WL_PAGE_BYTES);
    if (whole > sums->known[slot])
        sums->known[slot] = (uint32_t)whole;
    for (size_t i = 0; i < whole; i++, number++) {
        stamp own = {.nonce = nonce, .word = word, .number = number, .sum = pages[i]};
        memcpy(bytes + i * WL_PAGE_BYTES, &own, sizeof own);
    }
    wl_seal(bytes + whole * WL_PAGE_BYTES, length % WL_PAGE_BYTES, 0, nonce, word, number,
            WL_PAGE_BYTES);
}
