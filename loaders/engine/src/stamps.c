#include "stamps.h"

#include <stdlib.h>
#include <string.h>

/* Sums side by side, so that the compiler can use vectors, and they do not wait for each other. */
uint64_t wl_sum(const uint8_t *bytes, size_t length) {
    uint64_t lanes[8] = {0}, word[8], last = 0;
    size_t at = 0;
    for (; at + sizeof word <= length; at += sizeof word) {
        memcpy(word, bytes + at, sizeof word);
        for (int i = 0; i < 8; i++)
            lanes[i] += word[i];
    }
    uint64_t sum = 0;
    for (int i = 0; i < 8; i++)
        sum += lanes[i];
    for (; at + 8 <= length; at += 8) {
        memcpy(&last, bytes + at, 8);
        sum += last;
    }
    last = 0;
    memcpy(&last, bytes + at, length - at);
    return sum + last;
}

uint64_t wl_stamp(uint8_t *bytes, size_t pages, wl_identity identity, uint64_t number) {
    for (size_t i = 0; i < pages; i++) {
        uint64_t stamp[3] = {identity.nonce, identity.word, number + i};
        memcpy(bytes + i * WL_PAGE_BYTES, stamp, sizeof stamp);
    }
    /* i summed over the pages: one of two neighbours is even */
    uint64_t n = pages, steps = n % 2 ? n * ((n - 1) / 2) : (n / 2) * (n - 1);
    return n * (identity.nonce + identity.word + number) + steps;
}

static int is_bad(const uint8_t *bytes, wl_identity identity, uint64_t number) {
    uint64_t stamp[3];
    memcpy(stamp, bytes, sizeof stamp);
    return stamp[0] != identity.nonce || stamp[1] != identity.word || stamp[2] != number;
}

uint64_t wl_bad_blocks(const uint8_t *bytes, size_t length, wl_identity identity,
                       uint64_t number) {
    uint64_t bad = 0;
    for (size_t at = 0; at + WL_STAMP_BYTES <= length; at += WL_PAGE_BYTES, number++)
        bad += (uint64_t)is_bad(bytes + at, identity, number);
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

uint64_t wl_stamp_slot(wl_slot_sums *sums, uint32_t slot, uint64_t owner, uint8_t *bytes,
                       size_t length, wl_identity identity, uint64_t number) {
    size_t whole = length / WL_PAGE_BYTES, tail = length % WL_PAGE_BYTES;
    uint64_t *pages = sums->sums + (size_t)slot * sums->pages, sum = 0;
    if (sums->owners[slot] != owner) {
        sums->owners[slot] = owner;
        sums->known[slot] = 0;
    }
    for (uint32_t i = sums->known[slot]; i < whole; i++)
        pages[i] = wl_sum(bytes + (size_t)i * WL_PAGE_BYTES + WL_STAMP_BYTES,
                          WL_PAGE_BYTES - WL_STAMP_BYTES);
    if (whole > sums->known[slot])
        sums->known[slot] = (uint32_t)whole;
    for (size_t i = 0; i < whole; i++)
        sum += pages[i];
    sum += wl_stamp(bytes, whole, identity, number);
    if (tail)
        wl_stamp(bytes + whole * WL_PAGE_BYTES, 1, identity, number + whole);
    return sum + wl_sum(bytes + whole * WL_PAGE_BYTES, tail);
}
