/* CRC-32 by carry-less multiplication: Gopal, Ozturk, Guilford et al., "Fast CRC Computation for
 * Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), sections "fold by 4", "fold by 1"
 * and "Barrett reduction", in the bit-reflected form of its appendix. */
#include "crc32.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define CLMUL __attribute__((target("pclmul,sse4.1")))

/* x^n mod P, reflected: what a lane is multiplied by to stand n bits further on. */
static const uint64_t BY_512[2] = {0x0154442bd4u, 0x01c6e41596u}; /* 4 * 128 + 32, 4 * 128 - 32 */
static const uint64_t BY_128[2] = {0x01751997d0u, 0x00ccaa009eu}; /* 128 + 32, 128 - 32 */
static const uint64_t BY_64[2] = {0x0163cd6124u, 0};              /* 64 */
static const uint64_t BARRETT[2] = {0x01db710641u, 0x01f7011641u}; /* P, floor(x^64 / P) */

CLMUL static inline __m128i constants(const uint64_t pair[2]) {
    return _mm_loadu_si128((const __m128i *)pair);
}

CLMUL static inline __m128i lane(const uint8_t *bytes) {
    return _mm_loadu_si128((const __m128i *)bytes);
}

/* The lane moved on by what the constants stand for, plus the lane that is there. */
CLMUL static inline __m128i folded(__m128i moved, __m128i by, __m128i there) {
    __m128i low = _mm_clmulepi64_si128(moved, by, 0x00);
    __m128i high = _mm_clmulepi64_si128(moved, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

/* 128 bits to 32: twice by a constant, then by Barrett's quotient. */
CLMUL static inline uint32_t reduced(__m128i all) {
    const __m128i halves = _mm_setr_epi32(-1, 0, -1, 0);
    const __m128i barrett = constants(BARRETT);
    __m128i moved = _mm_clmulepi64_si128(all, constants(BY_128), 0x10);
    all = _mm_xor_si128(_mm_srli_si128(all, 8), moved);
    moved = _mm_clmulepi64_si128(_mm_and_si128(all, halves), constants(BY_64), 0x00);
    all = _mm_xor_si128(_mm_srli_si128(all, 4), moved);
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(all, halves), barrett, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, halves), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(all, quotient), 1);
}

int32_t wl_crc32_available(void) {
    return __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}

CLMUL uint32_t wl_crc32_fold(uint32_t crc, const uint8_t *bytes, size_t length) {
    const __m128i by_512 = constants(BY_512), by_128 = constants(BY_128);
    __m128i lanes[4];
    for (int i = 0; i < 4; i++)
        lanes[i] = lane(bytes + 16 * i);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)~crc));
    for (size_t at = WL_CRC32_BLOCK; at < length; at += WL_CRC32_BLOCK)
        for (int i = 0; i < 4; i++)
            lanes[i] = folded(lanes[i], by_512, lane(bytes + at + 16 * i));
    for (int i = 1; i < 4; i++)
        lanes[i] = folded(lanes[i - 1], by_128, lanes[i]);
    return ~reduced(lanes[3]);
}

#else

int32_t wl_crc32_available(void) {
    return 0;
}

uint32_t wl_crc32_fold(uint32_t crc, const uint8_t *bytes, size_t length) {
    (void)bytes;
    (void)length;
    return crc;
}

#endif
