/* Throws bytes at the parser of Criteo's TSV and at the decoder of Parquet pages. Rows have to be
 * those of a plain reading of each line, and to return from their pages as they are packed. */
#include <stdlib.h>
#include <string.h>

#include "avx2.h"
#include "criteo.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

enum { ROWS = 64, SLACK = 64, LIMIT = 1 << 15 };

static void require(int holds) {
    if (!holds)
        abort();
}

static int plain_integer(const uint8_t *text, size_t length, int64_t *value) {
    int is_negative = length && *text == '-';
    *value = 0;
    for (size_t at = (size_t)is_negative; at < length; at++) {
        if (text[at] < '0' || text[at] > '9')
            return 0;
        if (*value <= INT32_MAX)
            *value = *value * 10 + text[at] - '0';
    }
    *value = is_negative ? -*value : *value;
    return length > (size_t)is_negative && *value >= INT32_MIN && *value <= INT32_MAX;
}

static int plain_id(const uint8_t *text, size_t length, uint32_t *number) {
    char digits[9] = {0};
    if (length != 8)
        return 0;
    memcpy(digits, text, 8);
    *number = (uint32_t)strtoul(digits, NULL, 16);
    return strspn(digits, "0123456789abcdefABCDEF") == 8;
}

/* Packs one line without its line feed; returns whether it is a row. */
static int plain_row(const uint8_t *text, size_t length, int32_t *packed) {
    int column = 0;
    if (length && text[length - 1] == '\r')
        length--;
    for (size_t start = 0, at = 0; at <= length; at++) {
        if (at < length && text[at] != '\t')
            continue;
        const uint8_t *field = text + start;
        size_t size = at - start;
        int64_t value = 0;
        uint32_t number = 0;
        if (column == WL_COLUMNS)
            return 0;
        if (!column && (size != 1 || (*field != '0' && *field != '1')))
            return 0;
        if (size && column < WL_INTEGERS && !plain_integer(field, size, &value))
            return 0;
        if (size && column >= WL_INTEGERS && !plain_id(field, size, &number))
            return 0;
        packed[column] = column < WL_INTEGERS ? (int32_t)(value > 0 ? value : 0)
                                              : (int32_t)(number % WL_ID_MODULUS);
        column++;
        start = at + 1;
    }
    return column == WL_COLUMNS;
}

static void check_pages(const uint64_t *cells, uint32_t rows, const int32_t *packed) {
    uint8_t *scratch = malloc(wl_column_scratch_bytes(rows) + 8 * (2 * rows + 1));
    uint8_t *dictionary = malloc(wl_column_page_bytes(rows));
    uint8_t *data = malloc(wl_column_page_bytes(rows));
    int32_t found[ROWS], values[ROWS];
    for (int column = 0; column < WL_COLUMNS; column++) {
        for (int kind = column < WL_INTEGERS ? WL_INT32 : WL_TEXT;
             kind <= (column < WL_INTEGERS ? WL_INT32 : WL_NUMBER); kind++) {
            wl_column pages;
            uint32_t null_count = 0;
            wl_column_encode(cells + column * ROWS, rows, kind, scratch, dictionary, data, &pages);
            require(pages.dictionary_bytes <= wl_column_page_bytes(rows));
            require(pages.data_bytes <= wl_column_page_bytes(rows));
            require(!wl_dictionary_decode(dictionary, pages.dictionary_bytes,
                                          pages.dictionary_count, kind, values));
            require(!wl_data_decode(data, pages.data_bytes, rows, kind, 1,
                                    pages.dictionary_count ? values : NULL,
                                    pages.dictionary_count, (uint32_t *)scratch, found,
                                    &null_count));
            require(null_count == pages.null_count);
            for (uint32_t row = 0; row < rows; row++)
                require(found[row] == packed[row * WL_COLUMNS + column]);
        }
    }
    free(scratch);
    free(dictionary);
    free(data);
}

static void check_rows(const uint8_t *text, size_t length, rows_reader *read, rows_packer *pack) {
    static uint64_t cells[WL_COLUMNS * ROWS];
    static int32_t packed[ROWS * WL_COLUMNS], expected[ROWS * WL_COLUMNS];
    wl_tsv_progress done = {0}, packed_done = {0};
    uint32_t rows = read(text, length, cells, ROWS, ROWS, 1, &done);
    require(pack(text, length, packed, ROWS, 1, 0, &packed_done) == rows);
    require(done.taken_bytes == packed_done.taken_bytes && done.bad_count == packed_done.bad_count);
    uint32_t row = 0;
    uint64_t bad = 0;
    for (size_t at = 0; at < done.taken_bytes;) {
        const uint8_t *end = memchr(text + at, '\n', length - at);
        size_t size = end ? (size_t)(end - text) - at : length - at;
        int32_t spare[WL_COLUMNS];
        int is_row = end && plain_row(text + at, size, row < ROWS ? expected + row * WL_COLUMNS : spare);
        if (!is_row && bad < WL_TSV_BAD_LIMIT)
            require(done.bad_offsets[bad] == at && packed_done.bad_offsets[bad] == at);
        row += (uint32_t)is_row;
        bad += !is_row;
        at += size + 1;
    }
    require(row == rows && bad == done.bad_count);
    require(!memcmp(packed, expected, rows * WL_COLUMNS * sizeof *packed));
    if (rows)
        check_pages(cells, rows, packed);
}

static void decode(const uint8_t *page, size_t length) {
    static int32_t values[256], packed[256];
    static uint32_t scratch[2 * 256 + 1];
    for (int kind = WL_INT32; kind <= WL_TEXT; kind++) {
        uint32_t null_count = 0;
        wl_dictionary_decode(page, length, 256, kind, values);
        wl_data_decode(page, length, 256, kind, 1, values, 256, scratch, packed, &null_count);
        wl_data_decode(page, length, 200, kind, 1, NULL, 0, scratch, packed, &null_count);
        wl_data_decode(page, length, 256, kind, 0, values, 256, scratch, packed, &null_count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    if (length > LIMIT)
        return 0;
    uint8_t *text = malloc(length + SLACK); /* so that reading beyond the slack is seen */
    memcpy(text, bytes, length);
    memset(text + length, '\t', SLACK);
    check_rows(text, length, read_rows, pack_rows);
    if (has_avx2())
        check_rows(text, length, read_rows_avx2, pack_rows_avx2);
    free(text);
    text = malloc(length ? length : 1);
    memcpy(text, bytes, length);
    decode(text, length);
    free(text);
    return 0;
}
