/* Words are compared or written whole where the place in the file allows it. */
#include "positioned.h"

#include <string.h>

#include "permutation.h"

enum { WORD = 8 };

/* The bytes up to the next word, or to the end. */
static uint64_t head_of(uint64_t offset, uint64_t length) {
    uint64_t head = -offset % WORD;
    return head < length ? head : length;
}

static void fill_part(uint8_t *memory, uint64_t length, uint64_t seed, uint64_t offset) {
    uint64_t word = wl_draw(seed, offset / WORD);
    memcpy(memory, (const uint8_t *)&word + offset % WORD, length);
}

void wl_positioned_fill(uint8_t *memory, uint64_t length, uint64_t seed, uint64_t offset) {
    uint64_t head = head_of(offset, length), words = (length - head) / WORD;
    uint64_t first = (offset + head) / WORD, done = head + words * WORD;
    fill_part(memory, head, seed, offset);
    for (uint64_t i = 0; i < words; i++) {
        uint64_t word = wl_draw(seed, first + i);
        memcpy(memory + head + i * WORD, &word, WORD);
    }
    fill_part(memory + done, length - done, seed, offset + done);
}

static uint64_t wrong_part(const uint8_t *memory, uint64_t length, uint64_t seed, uint64_t offset) {
    uint8_t right[WORD];
    uint64_t wrong = 0;
    fill_part(right, length, seed, offset);
    for (uint64_t i = 0; i < length; i++)
        wrong += memory[i] != right[i];
    return wrong;
}

static uint64_t wrong_row(const uint8_t *memory, uint64_t length, uint64_t seed, uint64_t offset) {
    uint64_t head = head_of(offset, length), words = (length - head) / WORD;
    uint64_t first = (offset + head) / WORD, done = head + words * WORD;
    uint64_t wrong = wrong_part(memory, head, seed, offset);
    for (uint64_t i = 0; i < words; i++) {
        uint64_t found;
        memcpy(&found, memory + head + i * WORD, WORD);
        if (found != wl_draw(seed, first + i))
            wrong += wrong_part(memory + head + i * WORD, WORD, seed, (first + i) * WORD);
    }
    return wrong + wrong_part(memory + done, length - done, seed, offset + done);
}

uint64_t wl_positioned_wrong(const uint8_t *memory, uint64_t rows, uint64_t length, uint64_t stride,
                             uint64_t file_stride, uint64_t seed, uint64_t offset) {
    uint64_t wrong = 0;
    for (uint64_t row = 0; row < rows; row++)
        wrong += wrong_row(memory + row * stride, length, seed, offset + row * file_stride);
    return wrong;
}
