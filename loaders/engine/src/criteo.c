/* Text to cells: the ends of all fields of some rows are found 16 bytes at a time, then each column
 * is read down these rows without a branch on its contents. What is wrong with any field of the
 * tile is collected in one word; only then are its rows read one by one. */
#include "criteo.h"
#include "avx2.h"

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

enum {
    TILE_ROWS = 128,
    TILE_FIELDS = TILE_ROWS * WL_COLUMNS,
    CHUNK = 64 /* bytes looked at together */
};

/* The ends of fields, as offsets in the text; CHUNK more than needed may be found. */
typedef struct {
    uint32_t at[TILE_FIELDS + CHUNK];
    size_t count;
} ends;

static inline uint64_t load64(const uint8_t *text) {
    uint64_t word;
    memcpy(&word, text, sizeof word);
    return word;
}

#if defined(__SSE2__)
/* Bit i is set if byte i ends a field. */
static inline uint64_t field_ends(const uint8_t *text) {
    const __m128i tab = _mm_set1_epi8('\t'), line = _mm_set1_epi8('\n');
    uint64_t found = 0;
    for (int i = 0; i < 4; i++) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(text + 16 * i));
        __m128i is_end = _mm_or_si128(_mm_cmpeq_epi8(bytes, tab), _mm_cmpeq_epi8(bytes, line));
        found |= (uint64_t)(uint32_t)_mm_movemask_epi8(is_end) << 16 * i;
    }
    return found;
}
#else
static inline uint64_t field_ends(const uint8_t *text) {
    uint64_t found = 0;
    for (int i = 0; i < CHUNK; i++)
        found |= (uint64_t)(text[i] == '\t' || text[i] == '\n') << i;
    return found;
}
#endif

/* Finds at least `wanted` ends, or all in `bytes`; reads up to CHUNK - 1 bytes beyond. */
static void find_ends(const uint8_t *text, size_t bytes, size_t wanted, ends *found) {
    size_t count = 0;
    for (size_t at = 0; at < bytes && count < wanted; at += CHUNK) {
        uint64_t bits = field_ends(text + at);
        if (bytes - at < CHUNK)
            bits &= ~(~0ull << (bytes - at));
        /* Most chunks have up to 16 ends: these without a branch, and what is too much is
         * overwritten. */
        size_t here = (size_t)__builtin_popcountll(bits);
        uint32_t *next = found->at + count;
        for (size_t i = 0; i < 16; i++, bits &= bits - 1)
            next[i] = (uint32_t)at + (uint32_t)__builtin_ctzll(bits | 1ull << 63);
        for (size_t i = 16; i < here; i++, bits &= bits - 1)
            next[i] = (uint32_t)at + (uint32_t)__builtin_ctzll(bits);
        count += here;
    }
    found->count = count;
}

/* An integer of any length; *bad is set if it is none of 32 bits. */
static uint64_t long_integer(const uint8_t *digit, const uint8_t *end, int is_negative,
                             uint64_t *bad) {
    uint64_t value = 0, most = (1ull << 31) - !is_negative;
    for (; digit < end; digit++) {
        *bad |= *digit < '0' || *digit > '9';
        value = value * 10 + (uint64_t)(*digit & 15);
        if (value > most)
            value = most + 1;
    }
    *bad |= value > most;
    return WL_PRESENT | (uint32_t)(is_negative ? -value : value);
}

static inline uint64_t integer_cell(const uint8_t *text, const uint8_t *end, uint64_t *bad) {
    const uint64_t zeros = 0x3030303030303030ull;
    uint64_t is_some = end != text;
    int is_negative = *text == '-';
    const uint8_t *digit = text + is_negative;
    if (__builtin_expect(end - digit > 8, 0))
        return long_integer(digit, end, is_negative, bad);
    size_t count = is_some ? (size_t)(end - digit) : 0;
    *bad |= is_some & !count;
    unsigned gap = 64 - 8 * (unsigned)count;
    uint64_t word = count ? load64(digit) << (gap & 63) | (zeros >> (63 - (gap & 63))) >> 1 : zeros;
    uint64_t numbers = word ^ zeros; /* 0 to 9 in each byte, else one of the next two is set */
    *bad |= (numbers | (numbers + 0x7676767676767676ull)) & 0x8080808080808080ull;
    numbers = numbers * 10 + (numbers >> 8);
    numbers = ((numbers & 0x000000ff000000ffull) * (100 + (1000000ull << 32)) +
               (numbers >> 16 & 0x000000ff000000ffull) * (1 + (10000ull << 32))) >>
              32;
    uint32_t value = (uint32_t)numbers;
    return (WL_PRESENT | (is_negative ? 0u - value : value)) & (0 - is_some);
}

/* The 8 characters, 0 for none; whether they are digits, bad_digits finds. */
static inline uint64_t id_cell(const uint8_t *text, const uint8_t *end, uint64_t *bad) {
    uint64_t is_whole = end - text == 8, is_none = end == text;
    uint64_t word = load64(text) & (0 - is_whole);
    *bad |= (is_whole | is_none) ^ 1;
    *bad |= is_whole & !word; /* 8 NUL characters */
    return word;
}

static uint64_t bad_digits(const uint64_t *cell, uint32_t rows) {
    uint64_t bad = 0;
    for (uint32_t row = 0; row < rows; row++)
        bad |= not_hex(cell[row]) & (0 - (uint64_t)(cell[row] != 0));
    return bad;
}

/* Reads `rows` rows into column c at cells + c * stride; returns nonzero if any field is bad. */
static uint64_t read_tile(const uint8_t *text, const uint32_t *end, uint32_t rows, uint64_t *cells,
                          size_t stride) {
    uint64_t bad = 0;
    const uint8_t *row_text = text;
    for (uint32_t row = 0; row < rows; row++) { /* the label, which starts the line */
        const uint8_t *label_end = text + end[row * WL_COLUMNS];
        bad |= (label_end - row_text != 1) | ((*row_text & 0xfe) != '0') | (*label_end != '\t');
        cells[row] = WL_PRESENT | (*row_text & 1);
        row_text = text + end[row * WL_COLUMNS + WL_COLUMNS - 1] + 1;
        bad |= row_text[-1] != '\n';
    }
    for (int column = 1; column < WL_COLUMNS; column++) {
        uint64_t *cell = cells + (size_t)column * stride;
        const uint32_t *at = end + column;
        if (column < WL_INTEGERS) {
            for (uint32_t row = 0; row < rows; row++, at += WL_COLUMNS) {
                bad |= text[*at] != '\t';
                cell[row] = integer_cell(text + at[-1] + 1, text + *at, &bad);
            }
        } else if (column < WL_COLUMNS - 1) {
            for (uint32_t row = 0; row < rows; row++, at += WL_COLUMNS) {
                bad |= text[*at] != '\t';
                cell[row] = id_cell(text + at[-1] + 1, text + *at, &bad);
            }
            bad |= bad_digits(cell, rows);
        } else {
            for (uint32_t row = 0; row < rows; row++, at += WL_COLUMNS) {
                const uint8_t *first = text + at[-1] + 1, *last = text + *at;
                last -= last > first && last[-1] == '\r';
                cell[row] = id_cell(first, last, &bad);
            }
            bad |= bad_digits(cell, rows);
        }
    }
    return bad;
}

/* Reads one line, which ends at text[bytes - 1]; returns whether it is a row. */
static int read_line(const uint8_t *text, size_t bytes, uint64_t *cells, size_t stride, ends *found) {
    find_ends(text, bytes, WL_COLUMNS + 1, found);
    return found->count == WL_COLUMNS && !read_tile(text, found->at, 1, cells, stride);
}

static size_t line_bytes(const uint8_t *text, size_t bytes) {
    const uint8_t *end = memchr(text, '\n', bytes);
    return end ? (size_t)(end - text) + 1 : bytes;
}

uint32_t read_rows(const uint8_t *text, size_t bytes, uint64_t *cells, size_t stride,
                   uint32_t row_limit, int32_t drops, wl_tsv_progress *done) {
    ends found;
    uint32_t row = 0;
    size_t at = 0;
    while (row < row_limit && at < bytes) {
        uint32_t most = row_limit - row < TILE_ROWS ? row_limit - row : TILE_ROWS;
        size_t window = bytes - at < UINT32_MAX - CHUNK ? bytes - at : UINT32_MAX - CHUNK;
        find_ends(text + at, window, (size_t)most * WL_COLUMNS, &found);
        uint32_t rows = (uint32_t)(found.count / WL_COLUMNS);
        rows = rows < most ? rows : most;
        if (rows && !read_tile(text + at, found.at, rows, cells + row, stride)) {
            at += (size_t)found.at[(size_t)rows * WL_COLUMNS - 1] + 1;
            row += rows;
            continue;
        }
        for (uint32_t line = 0; line < most && at < bytes; line++) {
            size_t length = line_bytes(text + at, bytes - at);
            if (read_line(text + at, length, cells + row, stride, &found)) {
                row++;
            } else {
                if (done->bad_count < WL_TSV_BAD_LIMIT)
                    done->bad_offsets[done->bad_count] = done->taken_bytes + at;
                done->bad_count++;
            }
            at += length;
            if (done->bad_count && !drops)
                goto out;
        }
    }
out:
    done->taken_bytes += at;
    return row;
}

/* Columns apart by an odd number of cache lines: those of one row are in different sets. */
enum { TILE_STRIDE = TILE_ROWS + 8 };

/* First each column by itself, which compilers make vectors of, then the rows. */
static void pack_tile(const uint64_t *cells, uint32_t rows, int32_t whole_ids, int32_t *packed) {
    int32_t values[WL_COLUMNS][TILE_STRIDE];
    for (int column = 0; column < WL_COLUMNS; column++) {
        const uint64_t *cell = cells + (size_t)column * TILE_STRIDE;
        if (column < WL_INTEGERS)
            for (uint32_t row = 0; row < rows; row++)
                values[column][row] = packed_integer(cell[row]);
        else if (whole_ids)
            for (uint32_t row = 0; row < rows; row++)
                values[column][row] = whole_id(cell[row]);
        else
            for (uint32_t row = 0; row < rows; row++)
                values[column][row] = packed_id(cell[row]);
    }
    rows_of_columns(values[0], TILE_STRIDE, rows, packed);
}

uint32_t pack_rows(const uint8_t *text, size_t bytes, int32_t *packed, uint32_t row_limit,
                   int32_t drops, int32_t whole_ids, wl_tsv_progress *done) {
    uint64_t cells[WL_COLUMNS * TILE_STRIDE];
    uint64_t start = done->taken_bytes;
    uint32_t row = 0;
    while (row < row_limit && done->taken_bytes - start < bytes && (drops || !done->bad_count)) {
        size_t at = done->taken_bytes - start;
        uint32_t most = row_limit - row < TILE_ROWS ? row_limit - row : TILE_ROWS;
        uint32_t rows = read_rows(text + at, bytes - at, cells, TILE_STRIDE, most, drops, done);
        pack_tile(cells, rows, whole_ids, packed + (size_t)row * WL_COLUMNS);
        row += rows;
    }
    return row;
}

WITH_AVX2 uint32_t read_rows_avx2(const uint8_t *text, size_t bytes, uint64_t *cells, size_t stride,
                                  uint32_t row_limit, int32_t drops, wl_tsv_progress *done) {
    return read_rows(text, bytes, cells, stride, row_limit, drops, done);
}

WITH_AVX2 uint32_t pack_rows_avx2(const uint8_t *text, size_t bytes, int32_t *packed,
                                  uint32_t row_limit, int32_t drops, int32_t whole_ids,
                                  wl_tsv_progress *done) {
    return pack_rows(text, bytes, packed, row_limit, drops, whole_ids, done);
}

uint32_t wl_tsv_read(const uint8_t *text, size_t bytes, uint64_t *cells, size_t stride,
                     uint32_t row_limit, int32_t drops, wl_tsv_progress *done) {
    return (has_avx2() ? read_rows_avx2 : read_rows)(text, bytes, cells, stride, row_limit, drops,
                                                     done);
}

uint32_t wl_tsv_pack(const uint8_t *text, size_t bytes, int32_t *packed, uint32_t row_limit,
                     int32_t drops, int32_t whole_ids, wl_tsv_progress *done) {
    return (has_avx2() ? pack_rows_avx2 : pack_rows)(text, bytes, packed, row_limit, drops,
                                                     whole_ids, done);
}
