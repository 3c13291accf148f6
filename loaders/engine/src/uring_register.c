/* What a ring registers, so that the kernel need not look it up for each operation: memory pinned
 * once, and descriptors in a table. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "uring.h"

/* Each poller registers all regions but, where region 0 holds slots and nothing else, only the
 * slots that are its own: what is longer is there for destinations, too. */
static uint32_t find_regions(const wl_poller *poller, wl_fixed_region *regions) {
    const wl_engine *engine = poller->engine;
    uint64_t own_bytes = (uint64_t)poller->depth * engine->block_bytes;
    bool is_slots_only = engine->regions[0].bytes == own_bytes * engine->pollers;
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < engine->region_count; i++) {
        bool is_own = !i && is_slots_only;
        regions[i] = (wl_fixed_region){
            .base = is_own ? poller->slots : engine->regions[i].base,
            .bytes = is_own ? own_bytes : engine->regions[i].bytes,
            .first = pieces,
        };
        pieces += (uint32_t)((regions[i].bytes + WL_PIECE_BYTES - 1) / WL_PIECE_BYTES);
    }
    return pieces;
}

static void fill_pieces(const wl_fixed_region *regions, uint32_t count, struct iovec *pieces) {
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t at = 0; at < regions[i].bytes; at += WL_PIECE_BYTES) {
            uint64_t left = regions[i].bytes - at;
            *pieces++ = (struct iovec){
                .iov_base = (void *)(uintptr_t)(regions[i].base + at),
                .iov_len = left < WL_PIECE_BYTES ? left : WL_PIECE_BYTES,
            };
        }
}

static int register_buffers(wl_poller *poller, wl_ring *ring) {
    uint32_t count = poller->engine->region_count;
    ring->regions = calloc(count, sizeof *ring->regions);
    if (!ring->regions)
        return ENOMEM;
    uint32_t piece_count = find_regions(poller, ring->regions);
    struct iovec *pieces = calloc(piece_count, sizeof *pieces);
    if (!pieces)
        return ENOMEM;
    fill_pieces(ring->regions, count, pieces);
    int code = wl_ring_register(ring, WL_REG_BUFFERS, pieces, piece_count);
    free(pieces);
    return code < 0 ? -code : 0;
}

static int register_files(const wl_ring *ring) {
    wl_rsrc_register table = {.nr = WL_FILE_TABLE, .flags = WL_RSRC_SPARSE};
    int code = wl_ring_register(ring, WL_REG_FILES2, &table, sizeof table);
    if (code == -EINVAL) { /* before Linux 5.19 a table is made empty by places of -1 */
        int32_t none[WL_FILE_TABLE];
        memset(none, 0xff, sizeof none);
        code = wl_ring_register(ring, WL_REG_FILES, none, WL_FILE_TABLE);
    }
    return code < 0 ? -code : 0;
}

/* The ring's own descriptor too (5.18): io_uring_enter then does not look it up. */
static void register_ring(wl_ring *ring) {
    wl_rsrc_update own = {.offset = UINT32_MAX, .data = (uint64_t)ring->fd};
    if (wl_ring_register(ring, WL_REG_RING_FDS, &own, 1) == 1) {
        ring->enter_fd = (int)own.offset;
        ring->enter_flags = WL_ENTER_REGISTERED_RING;
    }
}

void wl_ring_register_all(wl_poller *poller, wl_ring *ring) {
    if (poller->engine->flags & WL_REGISTER_BUFFERS) {
        poller->facts.buffers_refused = register_buffers(poller, ring);
        ring->fixes_buffers = !poller->facts.buffers_refused;
    }
    if (poller->engine->flags & WL_REGISTER_FILES) {
        poller->facts.files_refused = register_files(ring);
        ring->fixes_files = !poller->facts.files_refused;
        register_ring(ring);
    }
}

int32_t wl_ring_piece(const wl_ring *ring, const wl_op *op) {
    if (!ring->fixes_buffers)
        return -1;
    const wl_fixed_region *region = &ring->regions[op->region];
    uint64_t first = (uint64_t)(op->memory - region->base), last = first + op->requested - 1;
    if (op->memory < region->base || last >= region->bytes ||
        first / WL_PIECE_BYTES != last / WL_PIECE_BYTES)
        return -1;
    return (int32_t)(region->first + first / WL_PIECE_BYTES);
}

static int update_files(const wl_ring *ring, uint32_t place, const int32_t *fds, uint32_t count) {
    wl_rsrc_update update = {.offset = place, .data = (uint64_t)(uintptr_t)fds};
    return wl_ring_register(ring, WL_REG_FILES_UPDATE, &update, count);
}

int32_t wl_ring_file(wl_ring *ring, const wl_op *op) {
    const wl_job *job = op->share->job;
    if (!ring->fixes_files || !job->fixes_files)
        return -1;
    uint64_t serial = job->first_serial + (uint64_t)(op->file - job->files);
    uint32_t place = (uint32_t)(serial % WL_FILE_TABLE);
    if (ring->owners[place] == serial)
        return (int32_t)place;
    int32_t fd = atomic_load_explicit(&op->file->fd, memory_order_acquire);
    if (update_files(ring, place, &fd, 1) != 1)
        return -1;
    ring->owners[place] = serial;
    return (int32_t)place;
}

/* A file in the table stays open: it holds its disk space, and its file system, after a close. */
void wl_ring_forget(wl_ring *ring, const wl_job *job) {
    int32_t fds[WL_FILE_TABLE];
    uint32_t first = WL_FILE_TABLE, last = 0;
    for (uint32_t i = 0; i < WL_FILE_TABLE; i++) {
        bool is_own = ring->owners[i] - job->first_serial < job->plan.file_count;
        fds[i] = is_own ? -1 : WL_FILE_SKIP;
        if (!is_own)
            continue;
        ring->owners[i] = 0;
        first = i < first ? i : first;
        last = i;
    }
    if (first <= last)
        update_files(ring, first, fds + first, last - first + 1);
}
