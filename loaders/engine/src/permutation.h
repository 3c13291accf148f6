/* Permutations of [0, count) without a table, and draws by number: pure functions, so that threads
 * share them without a lock. */
#ifndef WL_PERMUTATION_H
#define WL_PERMUTATION_H

#include <stdint.h>

enum { WL_ROUNDS = 4 };

/* It permutes [0, 2^bits), the least that holds all numbers. */
typedef struct {
    uint64_t count, mask;
    uint32_t shift;
    uint64_t terms[WL_ROUNDS], factors[WL_ROUNDS], inverses[WL_ROUNDS];
} wl_permutation;

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes well. */
static inline uint64_t wl_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Output `number` of splitmix64 from the state `seed`. */
static inline uint64_t wl_draw(uint64_t seed, uint64_t number) {
    return wl_mix(seed + (number + 1) * 0x9e3779b97f4a7c15u);
}

/* A number below `count` from 64 random bits, without a division (Lemire 2019). */
static inline uint64_t wl_scale(uint64_t bits, uint64_t count) {
    __extension__ typedef unsigned __int128 u128;
    return (uint64_t)(((u128)bits * count) >> 64);
}

/* `count` is 1 or more. */
static inline void wl_permutation_init(wl_permutation *permutation, uint64_t seed, uint64_t count) {
    uint32_t bits = count > 1 ? 64 - (uint32_t)__builtin_clzll(count - 1) : 0;
    *permutation = (wl_permutation){
        .count = count,
        .mask = bits < 64 ? ((uint64_t)1 << bits) - 1 : UINT64_MAX,
        .shift = (bits + 1) / 2,
    };
    for (uint32_t round = 0; round < WL_ROUNDS; round++) {
        uint64_t factor = wl_draw(seed, 2 * round + 1) | 1, inverse = factor;
        for (int step = 0; step < 5; step++) /* Newton: 3 right bits, then twice as many each time */
            inverse *= 2 - factor * inverse;
        permutation->terms[round] = wl_draw(seed, 2 * round);
        permutation->factors[round] = factor;
        permutation->inverses[round] = inverse;
    }
}

/* Adding, multiplying by an odd number and xoring in higher bits each permute [0, 2^bits). A number
 * outside [0, count) is permuted again until it falls inside, twice on average at most (cycle
 * walking; Black, Rogaway 2002). */
static inline uint64_t wl_permute(const wl_permutation *permutation, uint64_t number) {
    do
        for (uint32_t round = 0; round < WL_ROUNDS; round++) {
            number = (number + permutation->terms[round]) & permutation->mask;
            number = (number * permutation->factors[round]) & permutation->mask;
            number ^= number >> permutation->shift;
        }
    while (number >= permutation->count);
    return number;
}

/* The number that wl_permute takes to `number`. The shift is at least half of the bits, so that
 * xoring the higher bits in once more takes them out. */
static inline uint64_t wl_permute_back(const wl_permutation *permutation, uint64_t number) {
    do
        for (uint32_t round = WL_ROUNDS; round--;) {
            number ^= number >> permutation->shift;
            number = (number * permutation->inverses[round]) & permutation->mask;
            number = (number - permutation->terms[round]) & permutation->mask;
        }
    while (number >= permutation->count);
    return number;
}

#endif
