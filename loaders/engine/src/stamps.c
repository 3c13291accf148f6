#include "stamps.h"

#include <stdlib.h>
#include <string.h>

#include "avx2.h"
#include "permutation.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { LANES = 4, ROW_BYTES = LANES * 8 };

typedef struct {
    uint64_t nonce, word, number, sum;
} stamp;

_Static_assert(sizeof(stamp) == WL_STAMP_BYTES, "a stamp is four words");

/* Adding up a lane's own sums weights its words without a multiplication (Fletcher 1982): the last
 * row once, the one before it twice. */
typedef struct {
    uint64_t sums[LANES], weighted[LANES];
} lanes;

/* Two lanes, which every compiler keeps in a register; GCC stores all four in each round. */
typedef uint64_t pair __attribute__((vector_size(16)));

static void add_rows(lanes *all, const uint8_t *bytes, size_t rows) {
    for (size_t lane = 0; lane < LANES; lane += 2) {
        pair sums, weighted, words;
        memcpy(&sums, all->sums + lane, sizeof sums);
        memcpy(&weighted, all->weighted + lane, sizeof weighted);
        for (size_t i = 0; i < rows; i++) {
            memcpy(&words, bytes + i * ROW_BYTES + lane * sizeof *all->sums, sizeof words);
            sums += words;
            weighted += sums;
        }
        memcpy(all->sums + lane, &sums, sizeof sums);
        memcpy(all->weighted + lane, &weighted, sizeof weighted);
    }
}

#if defined(__x86_64__)
WITH_AVX2 static void add_rows_avx2(lanes *all, const uint8_t *bytes, size_t rows) {
    const __m256i *words = (const __m256i *)(const void *)bytes;
    __m256i sums = _mm256_loadu_si256((const __m256i *)(const void *)all->sums);
    __m256i weighted = _mm256_loadu_si256((const __m256i *)(const void *)all->weighted);
    for (size_t i = 0; i < rows; i++) {
        sums = _mm256_add_epi64(sums, _mm256_loadu_si256(words + i));
        weighted = _mm256_add_epi64(weighted, sums);
    }
    _mm256_storeu_si256((__m256i *)(void *)all->sums, sums);
    _mm256_storeu_si256((__m256i *)(void *)all->weighted, weighted);
}
#else
#define add_rows_avx2 add_rows
#endif

uint64_t wl_sum(const uint8_t *bytes, size_t length) {
    void (*add)(lanes *, const uint8_t *, size_t) = has_avx2() ? add_rows_avx2 : add_rows;
    lanes all = {0};
    size_t rows = length / ROW_BYTES, rest = length % ROW_BYTES;
    uint64_t sum = 0;
    add(&all, bytes, rows);
    if (rest) {
        uint8_t last[ROW_BYTES] = {0};
        memcpy(last, bytes + rows * ROW_BYTES, rest);
        add(&all, last, 1);
    }
    for (uint64_t i = 0; i < LANES; i++)
        sum += 2 * LANES * all.weighted[i] - (2 * i + 1) * all.sums[i];
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

uint64_t wl_bad_samples(const uint8_t *bytes, size_t length, uint64_t offset, uint64_t nonce,
                        uint64_t word, uint64_t first, uint64_t unit, uint64_t start,
                        uint64_t extent_bytes, uint64_t seed, uint64_t *compared) {
    uint64_t blocks = (extent_bytes + unit - 1) / unit, bad = 0, samples[] = {0, 0, blocks - 1};
    if (blocks > 2)
        samples[1] = 1 + wl_scale(wl_draw(seed, word), blocks - 2);
    *compared = 0;
    for (size_t i = 0; i < 3; i++) {
        uint64_t at = start + samples[i] * unit;
        if (at < offset || at >= offset + length || (i && samples[i] == samples[i - 1]))
            continue;
        size_t block = first_length(length - (at - offset), 0, unit);
        bad += wl_bad_blocks(bytes + (at - offset), block, at, nonce, word, first, unit);
        *compared += block;
    }
    return bad;
}

int wl_slot_sums_init(wl_slot_sums *sums, uint32_t slots, uint32_t block_bytes) {
    sums->pages = block_bytes / WL_PAGE_BYTES;
    sums->sums = calloc((size_t)slots * sums->pages + 1, sizeof *sums->sums);
    sums->fillings = calloc(slots, sizeof *sums->fillings);
    sums->known = calloc(slots, sizeof *sums->known);
    return sums->sums && sums->fillings && sums->known;
}

void wl_slot_sums_free(wl_slot_sums *sums) {
    free(sums->sums);
    free(sums->fillings);
    free(sums->known);
    memset(sums, 0, sizeof *sums);
}

void wl_seal_slot(wl_slot_sums *sums, uint32_t slot, uint64_t filling, uint8_t *bytes, size_t length,
                  uint64_t nonce, uint64_t word, uint64_t number) {
    size_t whole = length / WL_PAGE_BYTES;
    uint64_t *pages = sums->sums + (size_t)slot * sums->pages;
    if (sums->fillings[slot] != filling) {
        sums->fillings[slot] = filling;
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
