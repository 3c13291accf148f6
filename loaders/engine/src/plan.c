#include "plan.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "errors.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "plans are read without conversion");

enum { MAGIC = 0x31504c57, HEADER_BYTES = 136, FILE_BYTES = 16, EXTENT_BYTES = 32, LISTED_BYTES = 8 };

#define BLOCK_LIMIT (1u << 30)
#define ALIGN_LIMIT (1u << 20)
#define DEPTH_LIMIT 4096u
#define OFFSET_LIMIT ((uint64_t)INT64_MAX - BLOCK_LIMIT) /* off_t, and room to round up */
#define COUNT_LIMIT ((uint64_t)1 << 62)
#define KNOWN_FLAGS \
    (WL_FSYNC | WL_DIRECT | WL_STAMP | WL_CHECK | WL_DESTINATION | WL_NO_CHANGE | WL_DEVICE | \
     WL_SAMPLE | WL_PLACED)

#define REFUSE(...) wl_fail(error, WL_BAD_PLAN, NULL, WL_NOWHERE, __VA_ARGS__)

static uint32_t u32_at(const uint8_t *bytes, size_t offset) {
    uint32_t value;
    memcpy(&value, bytes + offset, sizeof value);
    return value;
}

static uint64_t u64_at(const uint8_t *bytes, size_t offset) {
    uint64_t value;
    memcpy(&value, bytes + offset, sizeof value);
    return value;
}

static bool is_stamped(const wl_plan *plan) { return plan->flags & (WL_STAMP | WL_CHECK); }

static int is_power_of_2(uint32_t value) { return value && !(value & (value - 1)); }

/* The parts' lengths add up to the whole. All are below 2^32, so no product here overflows. */
static int32_t check_lengths(const uint8_t *bytes, size_t length, wl_error *error) {
    if (length < HEADER_BYTES)
        return REFUSE("a plan must have %d bytes or more, got %zu", HEADER_BYTES, length);
    if (u32_at(bytes, 0) != MAGIC)
        return REFUSE("the magic number must be WLP1, got 0x%08x", u32_at(bytes, 0));
    if (u32_at(bytes, 4) != length)
        return REFUSE("the plan's length field is %u bytes, got %zu", u32_at(bytes, 4), length);
    uint64_t sum = HEADER_BYTES + (uint64_t)u32_at(bytes, 96) * FILE_BYTES +
                   (uint64_t)u32_at(bytes, 100) * EXTENT_BYTES +
                   (uint64_t)u32_at(bytes, 108) * LISTED_BYTES + u32_at(bytes, 104);
    if (sum != length)
        return REFUSE("files, extents, listed blocks and paths add up to %llu bytes in a plan of %zu",
                      (unsigned long long)sum, length);
    if (bytes[11])
        return REFUSE("a reserved field is not zero");
    return WL_OK;
}

static void read_header(wl_plan *plan, const uint8_t *bytes) {
    *plan = (wl_plan){
        .kind = bytes[8],
        .order = bytes[9],
        .allocation = bytes[10],
        .flags = u32_at(bytes, 12),
        .block_bytes = u32_at(bytes, 16),
        .align = u32_at(bytes, 20),
        .depth = u32_at(bytes, 24),
        .trace_every = u32_at(bytes, 28),
        .operation_count = u64_at(bytes, 32),
        .duration_ns = u64_at(bytes, 40),
        .rate_bytes_per_s = u64_at(bytes, 48),
        .seed = u64_at(bytes, 56),
        .stamp_nonce = u64_at(bytes, 64),
        .stamp_first = u64_at(bytes, 72),
        .stamp_unit = u32_at(bytes, 84),
        .destination_region = u32_at(bytes, 80),
        .destination_offset = u64_at(bytes, 88),
        .device_bytes = u64_at(bytes, 112),
        .device_major = u32_at(bytes, 120),
        .device_minor = u32_at(bytes, 124),
        .device_sequence = u64_at(bytes, 128),
        .file_count = u32_at(bytes, 96),
        .extent_count = u32_at(bytes, 100),
        .listed_count = u32_at(bytes, 108),
    };
}

static int32_t check_modes(const wl_plan *plan, wl_error *error) {
    if (plan->kind > WL_WRITE || plan->order > WL_LISTED || plan->allocation > WL_EXTENDING)
        return REFUSE("unknown kind %u, order %u or allocation %u", plan->kind, plan->order,
                      plan->allocation);
    if (plan->flags & ~(uint32_t)KNOWN_FLAGS)
        return REFUSE("unknown flags in 0x%x", plan->flags);
    bool is_listed = plan->order == WL_LISTED;
    if (is_listed && (plan->kind != WL_READ || plan->operation_count || plan->duration_ns))
        return REFUSE("listed blocks are read, without an operation count and a duration");
    if (!is_listed && plan->listed_count)
        return REFUSE("a plan of order %u lists %u blocks", plan->order, plan->listed_count);
    uint32_t misplaced = plan->kind == WL_READ ? (WL_FSYNC | WL_STAMP) : (WL_CHECK | WL_NO_CHANGE);
    if (!(plan->flags & WL_CHECK))
        misplaced |= WL_SAMPLE;
    if (plan->kind != WL_READ || plan->flags & WL_CHECK || !(plan->flags & WL_DESTINATION))
        misplaced |= WL_PLACED;
    if (plan->flags & misplaced)
        return REFUSE("flags 0x%x do not fit the kind of plan", plan->flags);
    return WL_OK;
}

static int32_t check_numbers(const wl_plan *plan, wl_error *error) {
    if (!is_power_of_2(plan->align) || plan->align > ALIGN_LIMIT)
        return REFUSE("alignment must be a power of 2 up to %u, got %u", ALIGN_LIMIT, plan->align);
    if (!plan->block_bytes || plan->block_bytes > BLOCK_LIMIT || plan->block_bytes % plan->align)
        return REFUSE("block length must be a multiple of the alignment %u up to %u, got %u",
                      plan->align, BLOCK_LIMIT, plan->block_bytes);
    if (is_stamped(plan) ? plan->stamp_unit != WL_SECTOR_BYTES && plan->stamp_unit != WL_PAGE_BYTES
                         : plan->stamp_unit)
        return REFUSE("the unit of stamps must be 512 or 4096, or 0 without stamps, got %u",
                      plan->stamp_unit);
    if (is_stamped(plan) && plan->block_bytes % plan->stamp_unit)
        return REFUSE("block length of a stamped plan must be a multiple of %u, got %u",
                      plan->stamp_unit, plan->block_bytes);
    if (!plan->depth || plan->depth > DEPTH_LIMIT)
        return REFUSE("depth must be 1 to %u, got %u", DEPTH_LIMIT, plan->depth);
    if (plan->operation_count > COUNT_LIMIT)
        return REFUSE("operation count must be at most 2^62, got %llu",
                      (unsigned long long)plan->operation_count);
    if (plan->duration_ns > COUNT_LIMIT)
        return REFUSE("duration must be at most 2^62 ns, got %llu",
                      (unsigned long long)plan->duration_ns);
    if (plan->flags & WL_DESTINATION && plan->destination_offset % plan->align)
        return REFUSE("destination offset must be a multiple of the alignment %u, got %llu",
                      plan->align, (unsigned long long)plan->destination_offset);
    return WL_OK;
}

static int32_t check_device(const wl_plan *plan, wl_error *error) {
    if (!(plan->flags & WL_DEVICE)) {
        if (plan->device_bytes || plan->device_major || plan->device_minor || plan->device_sequence)
            return REFUSE("a plan without a device must have zeros in its fields");
        return WL_OK;
    }
    if (plan->file_count != 1)
        return REFUSE("the plan of a device must have one file, got %u", plan->file_count);
    if (plan->device_bytes > OFFSET_LIMIT)
        return REFUSE("the device's size must be at most %llu, got %llu",
                      (unsigned long long)OFFSET_LIMIT, (unsigned long long)plan->device_bytes);
    return WL_OK;
}

static int32_t read_files(wl_plan *plan, const uint8_t *bytes, wl_error *error) {
    const uint8_t *entry = bytes + HEADER_BYTES;
    const uint8_t *paths = entry + (size_t)plan->file_count * FILE_BYTES +
                           (size_t)u32_at(bytes, 100) * EXTENT_BYTES +
                           (size_t)plan->listed_count * LISTED_BYTES;
    uint64_t paths_bytes = u32_at(bytes, 104), used = 0;
    char *to = plan->paths;
    for (uint32_t i = 0; i < plan->file_count; i++, entry += FILE_BYTES) {
        uint64_t end = u64_at(entry, 0), start = u32_at(entry, 8), length = u32_at(entry, 12);
        used += length;
        if (!length || length >= sizeof((wl_error *)0)->path || start + length > paths_bytes ||
            used > paths_bytes || memchr(paths + start, 0, length))
            return REFUSE("file %u has an invalid path", i);
        if (end > OFFSET_LIMIT || (plan->kind == WL_READ && end))
            return REFUSE("file %u has an invalid end, %llu", i, (unsigned long long)end);
        memcpy(to, paths + start, length);
        to[length] = 0;
        plan->files[i] = (wl_plan_file){.path = to, .end = end};
        to += length + 1;
    }
    return WL_OK;
}

/* Offsets are aligned, and so is the end of a written extent unless its file ends there. */
static int32_t check_extent(const wl_plan *plan, const wl_extent *extent, wl_error *error) {
    uint64_t end = extent->offset + extent->length;
    uint32_t align = plan->align < plan->stamp_unit ? plan->stamp_unit : plan->align;
    if (extent->file >= plan->file_count)
        return REFUSE("an extent refers to file %u of %u", extent->file, plan->file_count);
    if (extent->length > OFFSET_LIMIT || extent->offset > OFFSET_LIMIT || end > OFFSET_LIMIT)
        return REFUSE("an extent ends past the largest file");
    if (plan->flags & WL_DEVICE && wl_round_up(end, align) > plan->device_bytes)
        return REFUSE("an extent ends at %llu, past the device's end at %llu",
                      (unsigned long long)end, (unsigned long long)plan->device_bytes);
    if (extent->offset % align)
        return REFUSE("an extent's offset must be a multiple of %u, got %llu", align,
                      (unsigned long long)extent->offset);
    if (plan->flags & WL_PLACED && (extent->word > OFFSET_LIMIT || extent->word % plan->align))
        return REFUSE("an extent's place must be a multiple of %u, got %llu", plan->align,
                      (unsigned long long)extent->word);
    if (plan->kind != WL_WRITE)
        return WL_OK;
    uint64_t file_end = plan->files[extent->file].end;
    if (end > file_end || (end % plan->align && end != file_end))
        return REFUSE("an extent ends at %llu, its file at %llu, the alignment is %u",
                      (unsigned long long)end, (unsigned long long)file_end, plan->align);
    return WL_OK;
}

static int32_t read_extents(wl_plan *plan, const uint8_t *bytes, wl_error *error) {
    const uint8_t *entry = bytes + HEADER_BYTES + (size_t)plan->file_count * FILE_BYTES;
    uint32_t given = plan->extent_count, kept = 0;
    for (uint32_t i = 0; i < given; i++, entry += EXTENT_BYTES) {
        wl_extent extent = {.file = u32_at(entry, 0),
                            .offset = u64_at(entry, 8),
                            .length = u64_at(entry, 16),
                            .word = u64_at(entry, 24),
                            .first_block = plan->block_count};
        if (u32_at(entry, 4))
            return REFUSE("a reserved field is not zero");
        int32_t code = check_extent(plan, &extent, error);
        if (code)
            return code;
        plan->block_count += (extent.length + plan->block_bytes - 1) / plan->block_bytes;
        if (plan->block_count > COUNT_LIMIT)
            return REFUSE("the plan has more than 2^62 blocks");
        if (extent.length)
            plan->extents[kept++] = extent;
    }
    plan->extent_count = kept;
    plan->extents[kept] = (wl_extent){.first_block = plan->block_count};
    return WL_OK;
}

/* After the extents, whose number in the plan's bytes is not that of those kept. */
static int32_t read_listed(wl_plan *plan, const uint8_t *bytes, wl_error *error) {
    const uint8_t *entry = bytes + HEADER_BYTES + (size_t)plan->file_count * FILE_BYTES +
                           (size_t)u32_at(bytes, 100) * EXTENT_BYTES;
    memcpy(plan->listed, entry, (size_t)plan->listed_count * LISTED_BYTES);
    for (uint32_t i = 0; i < plan->listed_count; i++)
        if (plan->listed[i] >= plan->block_count)
            return REFUSE("listed block %u is number %llu, but the plan has only %llu blocks", i,
                          (unsigned long long)plan->listed[i],
                          (unsigned long long)plan->block_count);
    return WL_OK;
}

static int32_t allocate(wl_plan *plan, uint32_t paths_bytes, wl_error *error) {
    plan->files = calloc((size_t)plan->file_count + 1, sizeof *plan->files);
    plan->extents = calloc((size_t)plan->extent_count + 1, sizeof *plan->extents);
    plan->paths = calloc((size_t)paths_bytes + plan->file_count + 1, 1);
    plan->listed = calloc((size_t)plan->listed_count + 1, sizeof *plan->listed);
    if (!plan->files || !plan->extents || !plan->paths || !plan->listed)
        return REFUSE("out of memory for a plan of %u files", plan->file_count);
    return WL_OK;
}

int32_t wl_plan_parse(wl_plan *plan, const uint8_t *bytes, size_t length, wl_error *error) {
    memset(plan, 0, sizeof *plan);
    int32_t code = check_lengths(bytes, length, error);
    if (code)
        return code;
    read_header(plan, bytes);
    if (!(code = check_modes(plan, error)) && !(code = check_numbers(plan, error)) &&
        !(code = check_device(plan, error)) &&
        !(code = allocate(plan, u32_at(bytes, 104), error)) &&
        !(code = read_files(plan, bytes, error)) && !(code = read_extents(plan, bytes, error)))
        code = read_listed(plan, bytes, error);
    if (code)
        wl_plan_free(plan);
    return code;
}

void wl_plan_free(wl_plan *plan) {
    free(plan->files);
    free(plan->extents);
    free(plan->paths);
    free(plan->listed);
    memset(plan, 0, sizeof *plan);
}

uint64_t wl_plan_span(const wl_plan *plan) {
    if (plan->order == WL_LISTED && !(plan->flags & WL_PLACED)) /* 2^32 x 2^30 at most */
        return (uint64_t)plan->listed_count * plan->block_bytes;
    uint64_t span = 0;
    bool writes_stamps = plan->flags & WL_STAMP && plan->align < plan->stamp_unit;
    uint32_t unit = writes_stamps ? plan->stamp_unit : plan->align;
    for (uint32_t i = 0; i < plan->extent_count; i++) {
        if (plan->flags & WL_PLACED) { /* 2^63 + 2^63 at most */
            uint64_t end = plan->extents[i].word + wl_round_up(plan->extents[i].length, unit);
            span = end > span ? end : span;
            continue;
        }
        uint64_t last = plan->extents[i + 1].first_block - 1;
        uint64_t tail = (plan->extents[i].length - 1) % plan->block_bytes + 1, end;
        if (__builtin_mul_overflow(last, (uint64_t)plan->block_bytes, &end) ||
            __builtin_add_overflow(end, wl_round_up(tail, unit), &end))
            return UINT64_MAX;
        span = end > span ? end : span;
    }
    return span;
}

int32_t wl_plan_check(const uint8_t *bytes, size_t length, wl_error *error) {
    wl_plan plan;
    int32_t code = wl_plan_parse(&plan, bytes, length, error);
    if (!code) {
        wl_plan_free(&plan);
        wl_fail(error, WL_OK, NULL, WL_NOWHERE, "%s", "");
    }
    return code;
}
