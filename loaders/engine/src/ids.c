/* Categorical ids to numbers: an open-addressing table whose places are in order of appearance. */
#include "wattload_engine.h"

/* The slot of an id, or the empty one where it belongs. */
static inline uint32_t *slot_of(const wl_id_table *table, uint32_t id) {
    uint32_t hash = (id ^ id >> 16) * 0x9e3779b1u;
    uint32_t at = (uint32_t)((uint64_t)hash * table->slot_count >> 32);
    while (table->slots[at] && table->ids[table->slots[at] - 1] != id)
        at = at + 1 < table->slot_count ? at + 1 : 0;
    return table->slots + at;
}

size_t wl_ids_count(wl_id_table *table, const uint32_t *ids, size_t count, uint32_t *left) {
    size_t left_count = 0;
    for (size_t row = 0; row < count; row++) {
        uint32_t *slot = slot_of(table, ids[row]);
        if (*slot) {
            uint32_t *seen = table->counts + *slot - 1;
            *seen += *seen < UINT32_MAX;
        } else if (table->used < table->limit) {
            table->ids[table->used] = ids[row];
            table->counts[table->used] = 1;
            *slot = ++table->used;
        } else {
            left[left_count++] = ids[row];
        }
    }
    return left_count;
}

void wl_ids_number(const wl_id_table *table, const int32_t *numbers, const int32_t *left_numbers,
                   const uint32_t *ids, size_t count, int32_t *numbered) {
    for (size_t row = 0; row < count; row++) {
        uint32_t place = *slot_of(table, ids[row]);
        numbered[row] = place ? numbers[place - 1] : *left_numbers++;
    }
}
