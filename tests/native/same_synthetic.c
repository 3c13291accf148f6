/* Reads synthetic text by both builds of the generator, each in pieces of other sizes. Prints the
 * number of bytes; aborts if they differ. Without AVX2 there is one build, and 77 is returned. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "avx2.h"
#include "criteo.h"

enum { COLUMNS = WL_COLUMNS - 1, ROWS = 5000, ROOM = ROWS * 320, FIRST_MOST = 1000 };

static uint64_t integers[FIRST_MOST + 1];

static void start(wl_synthetic *from) {
    memset(from, 0, sizeof *from);
    for (uint32_t i = 0; i < 4 * WL_SYNTHETIC_LANES; i++)
        from->streams[i / WL_SYNTHETIC_LANES][i % WL_SYNTHETIC_LANES] = (i + 1) * 2654435761u;
    for (uint32_t column = 0; column < COLUMNS; column++) {
        uint32_t octaves = column < WL_INTEGERS - 1 ? 1 + column % 9 : 1 + column % 25;
        uint32_t gap = column % 3 << 29;
        from->columns[column] = (wl_synthetic_column){
            .gap = gap,
            .most = (1u << octaves) - 1,
            .octaves = (float)octaves / (float)((1u << 31) - gap),
        };
    }
    from->integers = integers;
    from->row_count = ROWS;
    from->ones = 1u << 30;
}

static size_t read_all(synthetic_reader *read, size_t piece, uint8_t *text) {
    static wl_synthetic from;
    size_t bytes = 0, taken;
    start(&from);
    while ((taken = read(&from, text + bytes, piece)) == piece)
        bytes += taken;
    return bytes + taken;
}

int main(void) {
    static uint8_t plain[ROOM + 100000], wide[ROOM + 100000];
    for (int i = 0; i <= FIRST_MOST; i++) {
        char text[16] = {0};
        snprintf(text, sizeof text, i ? "%d\t" : "\t", i);
        memcpy(&integers[i], text, sizeof integers[i]);
    }
    size_t bytes = read_all(read_synthetic, 100000, plain);
    if (!has_avx2())
        return 77;
    for (size_t piece = 1; piece < 100000; piece = piece * 5 + 3)
        if (read_all(read_synthetic_avx2, piece, wide) != bytes || memcmp(plain, wide, bytes))
            abort();
    printf("%zu\n", bytes);
    return 0;
}
