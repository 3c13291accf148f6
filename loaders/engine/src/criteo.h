/* Criteo's TSV: text to cells, and cells to packed rows. */
#ifndef WATTLOAD_CRITEO_H
#define WATTLOAD_CRITEO_H

#include "wattload_engine.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* A label, 13 counts, 26 ids. */
enum { WL_COLUMNS = 40, WL_INTEGERS = 14 };

/* A cell is one field; 0 is an empty one. An integer is WL_PRESENT | the value's 32 bits; an id is
 * its 8 characters as they stand in memory. */
#define WL_PRESENT (1ull << 32)
#define WL_ID_MODULUS 40000000u

/* wl_tsv_read, wl_tsv_pack and wl_synthetic_read for any CPU, and for one with AVX2. */
typedef uint32_t rows_reader(const uint8_t *text, size_t bytes, uint64_t *cells, size_t stride,
                             uint32_t row_limit, int32_t drops, wl_tsv_progress *done);
typedef uint32_t rows_packer(const uint8_t *text, size_t bytes, int32_t *packed, uint32_t row_limit,
                             int32_t drops, int32_t whole_ids, wl_tsv_progress *done);
typedef size_t synthetic_reader(wl_synthetic *from, uint8_t *text, size_t bytes);
rows_reader read_rows, read_rows_avx2;
rows_packer pack_rows, pack_rows_avx2;
synthetic_reader read_synthetic, read_synthetic_avx2;

/* Nonzero if any of 8 characters is no hex digit of either case. */
static inline uint64_t not_hex(uint64_t text) {
    const uint64_t high = 0x8080808080808080ull, ones = 0x0101010101010101ull;
    uint64_t lower = text | 0x20 * ones;
    /* No byte of valid text is above 0x7f, so no sum carries into the next one. */
    uint64_t digits = (text + 0x50 * ones) & ~(text + 0x46 * ones);
    uint64_t letters = (lower + 0x1f * ones) & ~(lower + 0x19 * ones);
    return ~((digits | letters) & ~text) & high;
}

/* The number of 8 hex digits, the first in the lowest byte, of valid text. */
static inline uint64_t id_number(uint64_t text) {
    uint64_t letters = text >> 6 & 0x0101010101010101ull;
    uint64_t nibbles = (text & 0x0f0f0f0f0f0f0f0full) + letters + (letters << 3);
    uint64_t bytes = (nibbles << 4 | nibbles >> 8) & 0x00ff00ff00ff00ffull;
    return (bytes << 24 & 0xff000000u) | (bytes & 0xff0000u) | (bytes >> 24 & 0xff00u) | bytes >> 48;
}

/* The id modulo WL_ID_MODULUS, which is 2^9 * 78125: 14073749 is 2^40 / 78125, rounded up, and
 * exact for 23 bits. Written so that compilers make vectors of it. */
static inline int32_t packed_id(uint64_t cell) {
    uint64_t number = id_number(cell);
    uint64_t times = (uint64_t)(uint32_t)(number >> 9) * 14073749u >> 40;
    return (int32_t)(uint32_t)(number - (uint64_t)(uint32_t)times * WL_ID_MODULUS);
}

/* The id's 32 bits. */
static inline int32_t whole_id(uint64_t cell) {
    return (int32_t)(uint32_t)id_number(cell);
}

static inline int32_t packed_integer(uint64_t cell) {
    int32_t value = (int32_t)(uint32_t)cell;
    return value > 0 ? value : 0;
}

/* Rows of all columns, which are `stride` apart; with SSE2 in squares of 4. */
static inline void rows_of_columns(const int32_t *columns, size_t stride, uint32_t rows,
                                   int32_t *packed) {
    uint32_t row = 0;
#if defined(__SSE2__)
    for (; row + 4 <= rows; row += 4) {
        int32_t *to = packed + (size_t)row * WL_COLUMNS;
        for (int column = 0; column < WL_COLUMNS; column += 4) {
            const int32_t *from = columns + (size_t)column * stride + row;
            __m128i a = _mm_loadu_si128((const __m128i *)from);
            __m128i b = _mm_loadu_si128((const __m128i *)(from + stride));
            __m128i c = _mm_loadu_si128((const __m128i *)(from + 2 * stride));
            __m128i d = _mm_loadu_si128((const __m128i *)(from + 3 * stride));
            __m128i ab = _mm_unpacklo_epi32(a, b), cd = _mm_unpacklo_epi32(c, d);
            __m128i ab_high = _mm_unpackhi_epi32(a, b), cd_high = _mm_unpackhi_epi32(c, d);
            __m128i *out = (__m128i *)(to + column);
            _mm_storeu_si128(out, _mm_unpacklo_epi64(ab, cd));
            _mm_storeu_si128(out + 10, _mm_unpackhi_epi64(ab, cd));
            _mm_storeu_si128(out + 20, _mm_unpacklo_epi64(ab_high, cd_high));
            _mm_storeu_si128(out + 30, _mm_unpackhi_epi64(ab_high, cd_high));
        }
    }
#endif
    for (; row < rows; row++)
        for (int column = 0; column < WL_COLUMNS; column++)
            packed[(size_t)row * WL_COLUMNS + (size_t)column] = columns[(size_t)column * stride + row];
}

#endif
