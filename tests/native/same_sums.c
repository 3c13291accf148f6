/* Adds up rows by both builds of the sum, from addresses of any alignment. Prints how many sums were
 * compared; aborts if two differ. Without AVX2 there is one build, and 77 is returned. */
#include <stdio.h>

#include "stamps.c"

enum { ROOM = 8192, ROWS = 128 };

int main(void) {
    static uint8_t bytes[ROOM];
    unsigned compared = 0;
    uint64_t drawn = 1;
    for (int i = 0; i < ROOM; i++) {
        drawn = drawn * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(drawn >> 56);
    }
    if (!has_avx2())
        return 77;
    for (size_t start = 0; start < 64; start++)
        for (size_t rows = 0; rows <= ROWS; rows++, compared++) {
            lanes plain = {.sums = {1, 2, 3, 4}, .weighted = {5, 6, 7, 8}}, wide = plain;
            add_rows(&plain, bytes + start, rows);
            add_rows_avx2(&wide, bytes + start, rows);
            if (memcmp(&plain, &wide, sizeof plain))
                abort();
        }
    printf("%u", compared);
    return 0;
}
