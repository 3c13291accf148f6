#include "records.h"

#include <string.h>
#include <time.h>

#include "engine.h"
#include "stamps.h"

static bool is_other(const wl_record_layout *layout, const uint8_t *file) {
    const uint8_t *tail = file + layout->file_bytes - layout->tail_bytes;
    return memcmp(file, layout->head, layout->head_bytes) ||
           memcmp(tail, layout->tail, layout->tail_bytes);
}

void wl_records_take(const wl_record_layout *layout, wl_record *records, uint32_t count,
                     wl_record_times *times) {
    uint64_t payload_bytes = layout->file_bytes - layout->head_bytes - layout->tail_bytes;
    uint64_t copied = payload_bytes < layout->row_bytes ? payload_bytes : layout->row_bytes;
    *times = (wl_record_times){0};
    for (uint32_t i = 0; i < count; i++) {
        wl_record *record = &records[i];
        const uint8_t *payload = record->file + layout->head_bytes;
        uint64_t start_ns = wl_now_ns();
        record->is_other = is_other(layout, record->file);
        if (record->is_other)
            continue;
        memcpy(record->row, payload, copied);
        memset(record->row + copied, 0, layout->row_bytes - copied);
        times->decode_ns += wl_now_ns() - start_ns;
        if (!layout->is_sealed)
            continue;
        start_ns = wl_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        record->bad_blocks = wl_bad_blocks(payload, payload_bytes, layout->head_bytes,
                                           layout->nonce, record->word, 0, WL_PAGE_BYTES);
        times->compare_cpu_ns += wl_clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns;
    }
}
