/* A small mutating driver for fuzz_plan.c, the same every time:
 *
 *   fuzz_main RUNS CORPUS_FILE ...
 *
 * Each input is a seed with some of its fields changed: bytes, words set to awkward numbers, parts
 * cut, doubled or swapped with another seed's. The total length is mended half of the time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

enum { ROOM = 1 << 16, SEEDS = 256 };

static struct {
    uint8_t bytes[ROOM];
    size_t length;
} seeds[SEEDS];
static size_t seed_count;

static uint64_t state = 1;

static uint64_t draw(uint64_t below) { /* xorshift64* (Vigna 2016) */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (state * 0x2545f4914f6cdd1du >> 11) % below;
}

static const uint64_t awkward[] = {
    0, 1, 2, 511, 512, 4095, 4096, 65535, 65536, 1u << 30, (1u << 30) + 1, INT32_MAX,
    UINT32_MAX, (uint64_t)UINT32_MAX + 1, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX,
    UINT64_MAX - 4095, (uint64_t)1 << 62, ((uint64_t)1 << 62) + 1,
};

static void set_word(uint8_t *bytes, size_t length) {
    uint64_t value = awkward[draw(sizeof awkward / sizeof awkward[0])];
    size_t width = draw(2) ? 8 : 4;
    if (length < width)
        return;
    size_t at = draw(length - width + 1);
    memcpy(bytes + (draw(4) ? at / 4 * 4 : at), &value, width);
}

static size_t mutate(uint8_t *bytes, size_t length) {
    size_t part;
    switch (draw(5)) {
    case 0:
        if (length)
            bytes[draw(length)] ^= (uint8_t)(1u << draw(8));
        break;
    case 1:
        return draw(length + 1);
    case 2:
        part = draw(64);
        if (length + part <= ROOM && part <= length)
            memcpy(bytes + length, bytes + draw(length - part + 1), part);
        return length + part <= ROOM && part <= length ? length + part : length;
    case 3:
        part = draw(seed_count);
        if (seeds[part].length >= 16 && length >= 16)
            memcpy(bytes + draw(length - 15), seeds[part].bytes + draw(seeds[part].length - 15), 16);
        break;
    default:
        set_word(bytes, length);
    }
    return length;
}

static void run(void) {
    const size_t seed = draw(seed_count);
    size_t length = seeds[seed].length;
    uint8_t *bytes = malloc(ROOM);
    if (!bytes)
        abort();
    memcpy(bytes, seeds[seed].bytes, length);
    for (uint64_t i = draw(6); i > 0; i--)
        length = mutate(bytes, length);
    uint32_t total = (uint32_t)length;
    if (length >= 8 && draw(2))
        memcpy(bytes + 4, &total, 4);
    uint8_t *exact = malloc(length + !length); /* so that one byte past the end is seen */
    if (!exact)
        abort();
    memcpy(exact, bytes, length);
    LLVMFuzzerTestOneInput(exact, length);
    free(exact);
    free(bytes);
}

int main(int argc, char **argv) {
    for (int i = 2; i < argc && seed_count < SEEDS; i++) {
        FILE *file = fopen(argv[i], "rb");
        if (!file)
            return 2;
        seeds[seed_count].length = fread(seeds[seed_count].bytes, 1, ROOM, file);
        seed_count++;
        fclose(file);
    }
    if (!seed_count)
        return 2;
    for (long runs = argc > 1 ? atol(argv[1]) : 0; runs > 0; runs--)
        run();
    return 0;
}
