/* Rows like Criteo's: values are drawn a column at a time for a tile of rows, in loops that compilers
 * make vectors of; then the text of each row is put together. Only arithmetic of IEEE 754 that is
 * the same everywhere is used, so the same streams give the same bytes on any machine. */
#include "criteo.h"
#include "avx2.h"

#include <string.h>

enum {
    LANES = WL_SYNTHETIC_LANES,
    INTEGERS = WL_INTEGERS - 1,
    IDS = WL_COLUMNS - WL_INTEGERS,
    HEX = 8,
    /* Ids of one row are apart by an odd number of cache lines: they are in different sets. */
    STRIDE = LANES + 8
};

typedef struct {
    uint8_t label[LANES];
    uint32_t integer[INTEGERS][LANES]; /* index of its text */
    uint64_t id[IDS][STRIDE];          /* its text, to be used if id_bytes is not 0 */
    uint8_t id_bytes[IDS][LANES];
} tile;

/* xoshiro128+ (Blackman and Vigna, doi:10.1145/3460772) without its lowest bit, which is weak. */
static inline uint32_t draw(wl_synthetic *from, int lane) {
    uint32_t a = from->streams[0][lane], b = from->streams[1][lane];
    uint32_t c = from->streams[2][lane], d = from->streams[3][lane];
    uint32_t found = (a + d) >> 1, shifted = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = d << 11 | d >> 21;
    from->streams[0][lane] = a;
    from->streams[1][lane] = b;
    from->streams[2][lane] = c;
    from->streams[3][lane] = d;
    return found;
}

/* 2^x, less than 4e-6 off, exact for whole x; 0 <= x < 31. */
static inline float power_of_two(float x) {
    int32_t whole = (int32_t)x, bits;
    float part = x - (float)whole;
    float found = 0x1.bc31d8p-7f;
    found = found * part + 0x1.aa3fcap-5f;
    found = found * part + 0x1.ee5884p-3f;
    found = found * part + 0x1.62d51cp-1f;
    found = found * part + 1.0f;
    memcpy(&bits, &found, sizeof bits);
    bits += whole << 23;
    memcpy(&found, &bits, sizeof found);
    return found;
}

/* Ranks from 1; 0 for an empty field. */
static inline void draw_ranks(wl_synthetic *from, const wl_synthetic_column *column,
                              uint32_t *restrict rank) {
    int32_t gap = (int32_t)column->gap, most = (int32_t)column->most;
    float octaves = column->octaves;
    for (int lane = 0; lane < LANES; lane++) {
        int32_t over = (int32_t)draw(from, lane) - gap;
        int32_t is_some = over < 0 ? 0 : -1;
        int32_t found = (int32_t)power_of_two((float)(over & is_some) * octaves);
        found = found < most ? found : most;
        rank[lane] = (uint32_t)(found & is_some);
    }
}

/* Hashes each rank to 32 bits, in each column to others and never two to one; the text has the
 * hexadecimal digits of the hash, first the even ones. */
static inline void write_ids(const uint32_t *rank, uint32_t column, uint64_t *restrict id,
                             uint8_t *restrict id_bytes) {
    uint8_t *digit = (uint8_t *)id;
    for (int lane = 0; lane < LANES; lane++) {
        uint32_t hash = rank[lane] * 0x9e3779b1u + column * 0x85ebca6bu;
        hash ^= hash >> 15;
        hash *= 0x2c1b3c6du;
        hash ^= hash >> 12;
        id[lane] = (hash | (uint64_t)hash << 28) & 0x0f0f0f0f0f0f0f0full;
    }
    for (int i = 0; i < HEX * LANES; i++)
        digit[i] = (uint8_t)(digit[i] + '0' + (digit[i] > 9 ? 'a' - '9' - 1 : 0));
    for (int lane = 0; lane < LANES; lane++)
        id_bytes[lane] = rank[lane] ? HEX : 0;
}

static void draw_tile(wl_synthetic *from, tile *drawn) {
    uint32_t rank[LANES];
    for (int lane = 0; lane < LANES; lane++)
        drawn->label[lane] = draw(from, lane) < from->ones ? '1' : '0';
    for (int column = 0; column < INTEGERS; column++) {
        uint32_t first = from->columns[column].first;
        draw_ranks(from, from->columns + column, rank);
        for (int lane = 0; lane < LANES; lane++)
            drawn->integer[column][lane] = rank[lane] ? rank[lane] + first : 0;
    }
    for (int column = 0; column < IDS; column++) {
        draw_ranks(from, from->columns + INTEGERS + column, rank);
        write_ids(rank, (uint32_t)column, drawn->id[column], drawn->id_bytes[column]);
    }
}

/* Writes rows to text and up to HEX bytes beyond them; returns the end. */
static uint8_t *write_tile(const wl_synthetic *from, const tile *drawn, uint32_t rows, uint8_t *text) {
    for (uint32_t row = 0; row < rows; row++) {
        *text++ = drawn->label[row];
        *text++ = '\t';
        for (int column = 0; column < INTEGERS; column++) {
            uint64_t integer = from->integers[drawn->integer[column][row]];
            memcpy(text, &integer, sizeof integer);
            text += sizeof integer - (size_t)(__builtin_clzll(integer) >> 3);
        }
        for (int column = 0; column < IDS; column++) {
            memcpy(text, &drawn->id[column][row], HEX);
            text += drawn->id_bytes[column][row];
            *text++ = '\t';
        }
        text[-1] = '\n';
    }
    return text;
}

static uint8_t *make_tile(wl_synthetic *from, uint8_t *text) {
    tile drawn;
    uint32_t rows = from->row_count < LANES ? (uint32_t)from->row_count : LANES;
    draw_tile(from, &drawn);
    from->row_count -= rows;
    return write_tile(from, &drawn, rows, text);
}

size_t read_synthetic(wl_synthetic *from, uint8_t *text, size_t bytes) {
    uint8_t *at = text, *end = text + bytes;
    for (;;) {
        size_t room = (size_t)(end - at), held = from->held_end - from->held_start;
        size_t taken = held < room ? held : room;
        memcpy(at, from->held + from->held_start, taken);
        from->held_start += (uint32_t)taken;
        at += taken;
        if (at == end || !from->row_count)
            return (size_t)(at - text);
        while (from->row_count && (size_t)(end - at) >= sizeof from->held)
            at = make_tile(from, at);
        if (from->row_count && at < end) {
            from->held_start = 0;
            from->held_end = (uint32_t)(make_tile(from, from->held) - from->held);
        }
    }
}

WITH_AVX2 size_t read_synthetic_avx2(wl_synthetic *from, uint8_t *text, size_t bytes) {
    return read_synthetic(from, text, bytes);
}

size_t wl_synthetic_read(wl_synthetic *from, uint8_t *text, size_t bytes) {
    return (has_avx2() ? read_synthetic_avx2 : read_synthetic)(from, text, bytes);
}
