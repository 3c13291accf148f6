/* Gathers rows of two striped files of 4096-byte rows that are full of their own numbers, by threads
 * of the CPU, and prints kept and asked rows and the wrong ones of each gather. The last line is the
 * code of a gather with a FAULT of pollers.
 *
 *   gather_rows THREADS FAULT FILE FILE */
#include <stdio.h>
#include <stdlib.h>

#include "wattload_engine.h"

enum { ROWS = 2048, ROW = 4096, KEPT = 100, BATCH = 3000, GATHERS = 5 };

static wl_error error;
static uint64_t list[BATCH];

static int32_t gather(wl_rows *rows, uint64_t *memory, wl_rows_result *result) {
    uint32_t is_over = 0;
    int32_t code = wl_rows_start(rows, list, BATCH, (uint64_t)(uintptr_t)memory, 0, &error);
    while (!code && !is_over)
        code = wl_rows_wait(rows, 1, &is_over, result, &error);
    return code;
}

static uint64_t wrong(const uint64_t *memory) {
    uint64_t count = 0;
    for (uint32_t i = 0; i < BATCH; i++)
        for (uint32_t k = 0; k < ROW / 8; k++)
            count += memory[i * (ROW / 8) + k] != list[i];
    return count;
}

int main(int argc, char **argv) {
    static wl_rows_result result;
    if (argc != 5)
        return 2;
    wl_rows_file files[2] = {{argv[3], ROWS / 2, 0, 0}, {argv[4], ROWS / 2, 1, 0}};
    wl_rows_setup setup = {.struct_bytes = sizeof setup,
                           .row_bytes = ROW,
                           .outstanding = 96,
                           .queue_pairs = 2,
                           .pollers = 3,
                           .requester_threads = (uint32_t)strtoul(argv[1], NULL, 10),
                           .hang_ms = 300,
                           .is_striped = 1,
                           .file_count = 2,
                           .row_count = ROWS,
                           .batch_rows = BATCH,
                           .kept_rows = KEPT,
                           .files = files};
    uint64_t *memory = aligned_alloc(ROW, (size_t)BATCH * ROW);
    wl_rows *rows;
    if (!memory || wl_rows_open(&setup, &rows, &error))
        return fprintf(stderr, "%s\n", error.text), 1;
    uint64_t *kept = (uint64_t *)(void *)wl_rows_kept(rows), number = 0;
    for (uint32_t i = 0; i < KEPT; i++, number += 7) {
        list[i] = number;
        for (uint32_t k = 0; k < ROW / 8; k++)
            kept[i * (ROW / 8) + k] = number;
    }
    if (wl_rows_keep(rows, list, KEPT, &error))
        return 1;
    for (uint32_t i = 0; i < GATHERS; i++) {
        for (uint32_t k = 0; k < BATCH; k++)
            list[k] = (k * 31 + i) % ROWS;
        if (gather(rows, memory, &result))
            return fprintf(stderr, "%s\n", error.text), 1;
        printf("%llu %llu %llu\n", (unsigned long long)result.kept,
               (unsigned long long)result.asked, (unsigned long long)wrong(memory));
    }
    wl_rows_close(rows);
    setup.fault = (uint32_t)strtoul(argv[2], NULL, 10);
    if (wl_rows_open(&setup, &rows, &error))
        return 1;
    printf("%ld\n", (long)gather(rows, memory, &result));
    wl_rows_close(rows);
    free(memory);
    return 0;
}
