/* A backend: how operations reach their target, as one struct of operations and flags. The core
 * acts on the flags, never on names. */
#ifndef WL_BACKEND_H
#define WL_BACKEND_H

#include "errors.h"

struct wl_poller;
struct wl_job;

/* A completed operation: its index among the poller's, and bytes moved or a negative errno. */
typedef struct {
    uint32_t op;
    int32_t result;
} wl_done;

/* Files of one job that a backend can register. */
enum { WL_FIXED_FILES_LIMIT = 1024 };

/* For a timeout of `enter`. */
#define WL_NO_TIMEOUT UINT64_MAX

typedef struct {
    wl_backend_info info;
    int has_workers; /* the kernel may execute operations on its own threads */
    int32_t (*probe)(wl_error *error);
    /* All others run on the poller's own thread. */
    int32_t (*open)(struct wl_poller *poller, wl_error *error);
    /* Hands over poller->queued, all of them; waits until `wait` (0 or 1) have completed or the
     * time is over; puts what has completed into poller->done and returns their number. */
    uint32_t (*enter)(struct wl_poller *poller, uint32_t wait, uint64_t timeout_ns);
    /* Hands over poller->queued and returns at once, with what has completed left where it is. NULL
     * where operations complete as they are handed over. */
    void (*push)(struct wl_poller *poller);
    /* Drops what it keeps of a job's files. */
    void (*forget)(struct wl_poller *poller, struct wl_job *job);
    void (*close)(struct wl_poller *poller);
} wl_backend_ops;

/* NULL for an unknown name. */
const wl_backend_ops *wl_backend_find(const char *name);

extern const wl_backend_ops wl_backend_uring, wl_backend_pread, wl_backend_memory,
    wl_backend_null;

#endif
