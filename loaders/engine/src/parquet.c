/* Parquet pages of one column: dictionaries, runs and bit-packed numbers.
 *
 * A run is a varint header and its content: header & 1 is 0 for header >> 1 repetitions of one value
 * in whole bytes, 1 for header >> 1 groups of 8 bit-packed values. */
#include "avx2.h"
#include "criteo.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { FIRST_SLOTS = 1 << 8, GROUP = 8 };

/* Distinct cells in the order of their first occurrence, and a table of their places. */
typedef struct {
    uint64_t *cells;
    uint32_t *slots; /* 1 + place, 0: free */
    uint32_t slot_bits;
    uint32_t count;
} dictionary_of;

static uint32_t bits_of(uint32_t value) { return value ? 32 - (uint32_t)__builtin_clz(value) : 0; }

static uint32_t most_slot_bits(uint32_t rows) {
    uint32_t bits = bits_of(2 * rows);
    return bits > 8 ? bits : 8;
}

static inline uint32_t slot_of(uint64_t cell, uint32_t bits) {
    return (uint32_t)(cell * 0x9e3779b97f4a7c15ull >> (64 - bits));
}

static void grow(dictionary_of *known) {
    known->slot_bits += 2;
    uint32_t mask = (1u << known->slot_bits) - 1;
    memset(known->slots, 0, sizeof(uint32_t) << known->slot_bits);
    for (uint32_t place = 0; place < known->count; place++) {
        uint32_t slot = slot_of(known->cells[place], known->slot_bits);
        while (known->slots[slot])
            slot = (slot + 1) & mask;
        known->slots[slot] = place + 1;
    }
}

static inline uint32_t place_of(dictionary_of *known, uint64_t cell) {
    uint32_t mask = (1u << known->slot_bits) - 1;
    uint32_t slot = slot_of(cell, known->slot_bits);
    for (; known->slots[slot]; slot = (slot + 1) & mask)
        if (known->cells[known->slots[slot] - 1] == cell)
            return known->slots[slot] - 1;
    known->cells[known->count] = cell;
    known->slots[slot] = ++known->count;
    if (known->count > mask / 2)
        grow(known);
    return known->count - 1;
}

static uint8_t *put_varint(uint8_t *to, uint32_t value) {
    for (; value > 0x7f; value >>= 7)
        *to++ = (uint8_t)(value | 0x80);
    *to++ = (uint8_t)value;
    return to;
}

static uint8_t *put32(uint8_t *to, uint32_t value) {
    memcpy(to, &value, sizeof value);
    return to + sizeof value;
}

static uint8_t *put_value(uint8_t *to, uint64_t cell, int32_t kind) {
    if (kind == WL_TEXT) {
        to = put32(to, sizeof cell);
        memcpy(to, &cell, sizeof cell);
        return to + sizeof cell;
    }
    return put32(to, kind == WL_INT32 ? (uint32_t)cell : (uint32_t)packed_id(cell));
}

/* One bit for each row: whether there is a value. */
static uint8_t *put_levels(uint8_t *to, const uint64_t *cells, uint32_t rows, uint32_t null_count) {
    uint8_t *length = to;
    to += sizeof(uint32_t);
    uint8_t *start = to;
    if (!null_count) {
        to = put_varint(to, rows << 1);
        *to++ = 1;
    } else {
        to = put_varint(to, (rows + GROUP - 1) / GROUP << 1 | 1);
        for (uint32_t row = 0; row < rows; row += GROUP) {
            uint32_t bits = 0, count = rows - row < GROUP ? rows - row : GROUP;
            for (uint32_t i = 0; i < count; i++)
                bits |= (uint32_t)(cells[row + i] != 0) << i;
            *to++ = (uint8_t)bits;
        }
    }
    put32(length, (uint32_t)(to - start));
    return to;
}

static uint8_t *put_indices(uint8_t *to, const uint32_t *index, uint32_t count, uint32_t width) {
    *to++ = (uint8_t)width;
    if (!width)
        return put_varint(to, count << 1);
    to = put_varint(to, (count + GROUP - 1) / GROUP << 1 | 1);
    uint64_t held = 0;
    uint32_t bits = 0;
    for (uint32_t at = 0; at < count; at++) {
        held |= (uint64_t)index[at] << bits;
        bits += width;
        if (bits >= 32) {
            to = put32(to, (uint32_t)held);
            held >>= 32;
            bits -= 32;
        }
    }
    /* The rest of the last group; what it lacks are zeros. */
    size_t whole = (size_t)(count + GROUP - 1) / GROUP * width;
    for (size_t done = (size_t)count * width / 32 * 4; done < whole; done++, held >>= 8)
        *to++ = (uint8_t)held;
    return to;
}

uint64_t wl_column_page_bytes(uint32_t rows) {
    return 64 + (uint64_t)rows / 8 + (uint64_t)rows * (sizeof(uint32_t) + sizeof(uint64_t));
}

uint64_t wl_column_scratch_bytes(uint32_t rows) {
    return (2 * sizeof(uint64_t) + sizeof(uint32_t)) * ((uint64_t)rows + 1) +
           (sizeof(uint32_t) << (most_slot_bits(rows) + 2));
}

/* Moves the cells that are present together, without a branch on each; writes one cell more. */
static void take_present(const uint64_t *cells, uint32_t rows, uint64_t *dense) {
    uint32_t present = 0;
    for (uint32_t row = 0; row < rows; row++) {
        dense[present] = cells[row];
        present += cells[row] != 0;
    }
}

void wl_column_encode(const uint64_t *cells, uint32_t rows, int32_t kind, uint8_t *scratch,
                      uint8_t *dictionary, uint8_t *data, wl_column *column) {
    dictionary_of known = {.slot_bits = bits_of(FIRST_SLOTS) - 1};
    known.cells = (uint64_t *)scratch;
    uint64_t *dense = known.cells + rows + 1;
    known.slots = (uint32_t *)(dense + rows + 1);
    uint32_t *index = known.slots + ((size_t)1 << (most_slot_bits(rows) + 2));
    memset(known.slots, 0, sizeof(uint32_t) << known.slot_bits);
    uint32_t present = 0;
    for (uint32_t row = 0; row < rows; row++)
        present += cells[row] != 0;
    const uint64_t *given = cells;
    if (present < rows) {
        take_present(cells, rows, dense);
        given = dense;
    }
    for (uint32_t at = 0; at < present; at++)
        index[at] = place_of(&known, given[at]);
    uint32_t width = known.count ? bits_of(known.count - 1) : 0;
    uint64_t value_bytes = kind == WL_TEXT ? sizeof(uint32_t) + sizeof(uint64_t) : sizeof(uint32_t);
    int is_plain = known.count * value_bytes + (uint64_t)present * width / 8 >= present * value_bytes;
    *column = (wl_column){.null_count = rows - present};
    uint8_t *to = put_levels(data, cells, rows, column->null_count);
    if (is_plain) {
        for (uint32_t at = 0; at < present; at++)
            to = put_value(to, given[at], kind);
    } else {
        to = put_indices(to, index, present, width);
        uint8_t *entry = dictionary;
        for (uint32_t place = 0; place < known.count; place++)
            entry = put_value(entry, known.cells[place], kind);
        column->dictionary_bytes = (uint64_t)(entry - dictionary);
        column->dictionary_count = known.count;
    }
    column->data_bytes = (uint64_t)(to - data);
    if (kind != WL_INT32 || !known.count)
        return;
    column->least = INT32_MAX;
    column->most = INT32_MIN;
    for (uint32_t place = 0; place < known.count; place++) {
        int32_t value = (int32_t)(uint32_t)known.cells[place];
        column->least = value < column->least ? value : column->least;
        column->most = value > column->most ? value : column->most;
    }
}

/* What is left of a page. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
} rest_of;

static int take_varint(rest_of *page, uint32_t *value) {
    *value = 0;
    for (uint32_t shift = 0; page->at < page->end && shift < 32; shift += 7) {
        *value |= (uint32_t)(*page->at & 0x7f) << shift;
        if (!(*page->at++ & 0x80))
            return 1;
    }
    return 0;
}

static int take32(rest_of *page, uint32_t *value) {
    if ((size_t)(page->end - page->at) < sizeof *value)
        return 0;
    memcpy(value, page->at, sizeof *value);
    page->at += sizeof *value;
    return 1;
}

#if defined(__x86_64__)
/* Unpacks groups of 8 numbers while 16 bytes can be read, each in 16 bytes or less; returns how many
 * numbers. Every number is shuffled to a lane, then shifted to its place. */
WITH_AVX2 static uint32_t unpack_groups(const uint8_t *from, const uint8_t *end, uint32_t width,
                                        uint32_t count, uint32_t *to, uint32_t *most) {
    uint8_t byte[32];
    uint32_t shift[GROUP], done = 0;
    for (uint32_t i = 0; i < GROUP; i++) {
        shift[i] = i * width & 7;
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t at = (i * width >> 3) + j;
            byte[4 * i + j] = (uint8_t)(at < 16 ? at : 0x80); /* 0x80: a zero */
        }
    }
    const __m256i order = _mm256_loadu_si256((const __m256i *)byte);
    const __m256i shifts = _mm256_loadu_si256((const __m256i *)shift);
    const __m256i mask = _mm256_set1_epi32((int)((1u << width) - 1));
    __m256i largest = _mm256_setzero_si256();
    for (; done + GROUP <= count && end - from >= 16; done += GROUP, from += width) {
        __m256i group = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)from));
        group = _mm256_srlv_epi32(_mm256_shuffle_epi8(group, order), shifts);
        group = _mm256_and_si256(group, mask);
        largest = _mm256_max_epu32(largest, group);
        _mm256_storeu_si256((__m256i *)(to + done), group);
    }
    uint32_t lanes[GROUP];
    _mm256_storeu_si256((__m256i *)lanes, largest);
    for (uint32_t i = 0; i < GROUP; i++)
        *most = lanes[i] > *most ? lanes[i] : *most;
    return done;
}
#else
static uint32_t unpack_groups(const uint8_t *from, const uint8_t *end, uint32_t width,
                              uint32_t count, uint32_t *to, uint32_t *most) {
    (void)from, (void)end, (void)width, (void)count, (void)to, (void)most;
    return 0;
}
#endif

/* Unpacks runs of `count` numbers of `width` bits, each below `limit`. */
static int take_runs(rest_of *page, uint32_t width, uint32_t count, uint32_t limit, uint32_t *to) {
    uint32_t header, most = 0;
    if (width > 32)
        return 0;
    if (!count)
        return 1;
    uint64_t mask = (1ull << width) - 1;
    while (count) {
        if (!take_varint(page, &header))
            return 0;
        size_t left = (size_t)(page->end - page->at);
        uint32_t number = header >> 1;
        if (!number)
            return 0;
        if (!(header & 1)) {
            uint32_t value = 0, bytes = (width + 7) / 8;
            if (left < bytes)
                return 0;
            memcpy(&value, page->at, bytes);
            page->at += bytes;
            number = number < count ? number : count;
            for (uint32_t at = 0; at < number; at++)
                to[at] = value;
            most = value > most ? value : most;
        } else {
            if ((uint64_t)number * width > left)
                return 0;
            uint64_t whole = (uint64_t)number * GROUP;
            const uint8_t *from = page->at;
            page->at += (size_t)number * width;
            number = whole < count ? (uint32_t)whole : count;
            uint32_t at = 0;
            if (width <= 16 && has_avx2())
                at = unpack_groups(from, page->end, width, number, to, &most);
            for (uint64_t bit = (uint64_t)at * width; at < number; at++, bit += width) {
                uint64_t word = 0;
                const uint8_t *first = from + bit / 8;
                if (page->end - first >= (ptrdiff_t)sizeof word)
                    memcpy(&word, first, sizeof word);
                else
                    memcpy(&word, first, (size_t)(page->end - first));
                to[at] = (uint32_t)(word >> (bit & 7) & mask);
                most = to[at] > most ? to[at] : most;
            }
        }
        to += number;
        count -= number;
    }
    return most < limit;
}

/* Takes a plain value; a negative integer becomes 0. */
static int32_t take_value(rest_of *page, int32_t kind, int32_t *value) {
    uint32_t word;
    if (!take32(page, &word))
        return WL_BAD_PAGE;
    if (kind == WL_TEXT || kind == WL_WHOLE) {
        uint64_t text;
        if ((size_t)(page->end - page->at) < word)
            return WL_BAD_PAGE;
        if (word != sizeof text)
            return WL_BAD_ID;
        memcpy(&text, page->at, sizeof text);
        page->at += sizeof text;
        if (not_hex(text))
            return WL_BAD_ID;
        *value = kind == WL_TEXT ? packed_id(text) : whole_id(text);
    } else {
        *value = packed_integer(word);
    }
    return WL_OK;
}

int32_t wl_dictionary_decode(const uint8_t *page, size_t bytes, uint32_t count, int32_t kind,
                             int32_t *values) {
    rest_of rest = {page, page + bytes};
    int32_t code = WL_OK;
    for (uint32_t at = 0; at < count && code == WL_OK; at++)
        code = take_value(&rest, kind, values + at);
    return code;
}

int32_t wl_data_decode(const uint8_t *page, size_t bytes, uint32_t count, int32_t kind,
                       int32_t is_optional, const int32_t *values, uint32_t value_count,
                       uint32_t *scratch, int32_t *packed, uint32_t *null_count) {
    rest_of rest = {page, page + bytes};
    uint32_t *level = scratch, *index = scratch + count, length, width, present = count;
    if (is_optional) {
        if (!take32(&rest, &length) || (size_t)(rest.end - rest.at) < length)
            return WL_BAD_PAGE;
        rest_of runs = {rest.at, rest.at + length};
        if (!take_runs(&runs, 1, count, 2, level))
            return WL_BAD_PAGE;
        rest.at += length;
        present = 0;
        for (uint32_t row = 0; row < count; row++)
            present += level[row];
    }
    *null_count += count - present;
    int32_t *value = (int32_t *)index;
    if (values) {
        if (rest.at == rest.end)
            return present ? WL_BAD_PAGE : WL_OK;
        width = *rest.at++;
        if (!take_runs(&rest, width, present, value_count, index))
            return WL_BAD_PAGE;
        for (uint32_t at = 0; at < present; at++)
            value[at] = values[index[at]];
    } else {
        for (uint32_t at = 0; at < present; at++) {
            int32_t code = take_value(&rest, kind, value + at);
            if (code != WL_OK)
                return code;
        }
    }
    if (present == count) {
        memcpy(packed, value, count * sizeof *packed);
        return WL_OK;
    }
    value[present] = 0; /* read, but not used, after the last one */
    for (uint32_t row = 0; row < count; row++) {
        *packed++ = *value & -(int32_t)level[row];
        value += level[row];
    }
    return WL_OK;
}

void wl_rows_pack(const int32_t *columns, size_t stride, uint32_t rows, int32_t *packed) {
    enum { TILE = 64 }; /* rows whose columns stay in the nearest cache */
    for (uint32_t first = 0; first < rows; first += TILE) {
        uint32_t count = rows - first < TILE ? rows - first : TILE;
        rows_of_columns(columns + first, stride, count, packed + (size_t)first * WL_COLUMNS);
    }
}
