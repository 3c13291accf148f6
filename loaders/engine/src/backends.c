/* The table of backends, and those that complete an operation on the submitting thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine.h"

static const wl_backend_ops *const backends[] = {
    &wl_backend_uring,
    &wl_backend_pread,
    &wl_backend_memory,
    &wl_backend_null,
};

enum { BACKEND_COUNT = sizeof backends / sizeof backends[0] };

const wl_backend_info *wl_backend(uint32_t number) {
    return number < BACKEND_COUNT ? &backends[number]->info : NULL;
}

const wl_backend_ops *wl_backend_find(const char *name) {
    for (uint32_t i = 0; i < BACKEND_COUNT; i++)
        if (name && !strcmp(backends[i]->info.name, name))
            return backends[i];
    return NULL;
}

int32_t wl_backend_probe(const char *name, wl_error *error) {
    const wl_backend_ops *backend = wl_backend_find(name);
    if (!backend)
        return wl_fail(error, WL_BAD_SETUP, NULL, WL_NOWHERE, "unknown backend %.64s",
                       name ? name : "NULL");
    return backend->probe(error);
}

static int32_t always(wl_error *error) {
    return wl_fail(error, WL_OK, NULL, WL_NOWHERE, "%s", "");
}

static int32_t open_nothing(wl_poller *poller, wl_error *error) {
    (void)poller;
    (void)error;
    return WL_OK;
}

static void close_nothing(wl_poller *poller) { (void)poller; }

static void forget_nothing(wl_poller *poller, wl_job *job) {
    (void)poller;
    (void)job;
}

/* pread: one operation at a time, by the system calls that every kernel has. */

static int32_t move(const wl_op *op) {
    int fd = atomic_load_explicit(&op->file->fd, memory_order_acquire);
    uint8_t *memory = op->memory + op->moved;
    off_t offset = (off_t)(op->offset + op->moved);
    ssize_t result;
    if (op->kind == WL_READ)
        result = pread(fd, memory, op->requested - op->moved, offset);
    else if (op->kind == WL_WRITE)
        result = pwrite(fd, memory, op->requested - op->moved, offset);
    else
        result = fsync(fd);
    return result < 0 ? -errno : (int32_t)result;
}

static uint32_t enter_pread(wl_poller *poller, uint32_t wait, uint64_t timeout_ns) {
    (void)wait;
    (void)timeout_ns;
    uint32_t count = poller->queued_count;
    for (uint32_t i = 0; i < count; i++)
        poller->done[i] = (wl_done){.op = poller->queued[i],
                                    .result = move(&poller->ops[poller->queued[i]])};
    poller->queued_count = 0;
    return count;
}

const wl_backend_ops wl_backend_pread = {
    .info = {.name = "pread", .flags = WL_B_SYNC},
    .probe = always,
    .open = open_nothing,
    .enter = enter_pread,
    .forget = forget_nothing,
    .close = close_nothing,
};

/* null: measures the loop itself. */

static uint32_t enter_null(wl_poller *poller, uint32_t wait, uint64_t timeout_ns) {
    (void)wait;
    (void)timeout_ns;
    uint32_t count = poller->queued_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t op = poller->queued[i];
        poller->done[i] = (wl_done){.op = op, .result = (int32_t)poller->ops[op].requested};
    }
    poller->queued_count = 0;
    return count;
}

const wl_backend_ops wl_backend_null = {
    .info = {.name = "null", .flags = WL_B_DISKLESS},
    .probe = always,
    .open = open_nothing,
    .enter = enter_null,
    .forget = forget_nothing,
    .close = close_nothing,
};

/* memory: the loop and one copy of the bytes, from or to a table in place of all files. */

#define TABLE_BYTES ((size_t)16 << 20)

typedef struct {
    uint8_t *bytes;
    size_t length; /* a power of 2, no less than a block */
} table;

static int32_t open_memory(wl_poller *poller, wl_error *error) {
    table *own = calloc(1, sizeof *own);
    if (!own)
        return wl_fail(error, ENOMEM, NULL, WL_NOWHERE, "out of memory for a table");
    poller->backend = own;
    for (own->length = TABLE_BYTES; own->length < poller->engine->block_bytes;)
        own->length *= 2;
    own->bytes = mmap(NULL, own->length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (own->bytes == MAP_FAILED) {
        own->bytes = NULL;
        return wl_fail(error, errno, NULL, WL_NOWHERE, "out of memory for a table of %zu",
                       own->length);
    }
    /* otherwise all pages would be the shared page of zeros, and the copy unrealistically fast */
    for (size_t at = 0; at < own->length; at += WL_PAGE_BYTES)
        memcpy(own->bytes + at, &at, sizeof at);
    return WL_OK;
}

static void close_memory(wl_poller *poller) {
    table *own = poller->backend;
    if (own && own->bytes)
        munmap(own->bytes, own->length);
    free(own);
    poller->backend = NULL;
}

static void copy(const wl_op *op, uint8_t *place, size_t length, size_t done) {
    if (op->kind == WL_READ)
        memcpy(op->memory + done, place, length);
    else
        memcpy(place, op->memory + done, length);
}

static uint32_t enter_memory(wl_poller *poller, uint32_t wait, uint64_t timeout_ns) {
    const table *own = poller->backend;
    for (uint32_t i = 0; i < poller->queued_count; i++) {
        const wl_op *op = &poller->ops[poller->queued[i]];
        size_t at = op->offset & (own->length - 1), length = op->requested;
        for (size_t done = 0; done < length;) { /* twice where a block wraps around */
            size_t part = own->length - at < length - done ? own->length - at : length - done;
            copy(op, own->bytes + at, part, done);
            done += part;
            at = 0;
        }
    }
    return enter_null(poller, wait, timeout_ns);
}

const wl_backend_ops wl_backend_memory = {
    .info = {.name = "memory", .flags = WL_B_DISKLESS},
    .probe = always,
    .open = open_memory,
    .enter = enter_memory,
    .forget = forget_nothing,
    .close = close_memory,
};
