/* Record files that differ in nothing but their payload: several in one call. */
#ifndef WL_RECORDS_H
#define WL_RECORDS_H

#include "wattload_engine.h"

/* What files of `file_bytes` begin and end with; between is the payload. Its first `row_bytes` go
 * into a row, and zeros where it is shorter. With `is_sealed` its blocks of 4096 bytes of the file
 * are compared with their stamps. */
typedef struct {
    const uint8_t *head;
    const uint8_t *tail;
    uint64_t head_bytes, tail_bytes, file_bytes, row_bytes;
    uint64_t is_sealed;
    uint64_t nonce; /* of the stamps */
} wl_record_layout;

/* A file in memory. Nothing is done with one that begins or ends with other bytes. */
typedef struct {
    const uint8_t *file;
    uint8_t *row;
    uint64_t word; /* of its stamps */
    uint64_t is_other;
    uint64_t bad_blocks;
} wl_record;

/* Wall time of looking at files and copying, CPU time of comparing, over all records of a call. */
typedef struct {
    uint64_t decode_ns, compare_cpu_ns;
} wl_record_times;

WL_API void wl_records_take(const wl_record_layout *layout, wl_record *records, uint32_t count,
                            wl_record_times *times);

#endif
