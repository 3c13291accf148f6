/* Prints which blocks COUNT operations of a plan move, as 64-bit numbers: they are spread evenly over
 * all of its operations.
 *
 *   blocks PLAN COUNT */
#include <stdio.h>
#include <stdlib.h>

#include "pattern.h"

enum { ROOM = 1 << 16 };

int main(int argc, char **argv) {
    static uint8_t bytes[ROOM];
    wl_plan plan;
    wl_pattern pattern;
    wl_error error;
    wl_cursor cursor = WL_CURSOR_START;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!file)
        return 2;
    size_t length = fread(bytes, 1, ROOM, file);
    fclose(file);
    if (wl_plan_parse(&plan, bytes, length, &error))
        return 2;
    wl_pattern_init(&pattern, &plan);
    uint64_t count = strtoull(argv[2], NULL, 10), step = (plan.block_count - 1) / (count - 1);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t block = wl_pattern_block(&pattern, &cursor, i * step).number;
        fwrite(&block, sizeof block, 1, stdout);
    }
    wl_plan_free(&plan);
    return 0;
}
