/* Files of a job: opened when the first block needs them, given their exact size at the end. */
#ifndef WL_FILES_H
#define WL_FILES_H

#include <stdatomic.h>
#include <stdbool.h>

#include "errors.h"
#include "plan.h"

/* The attributes of a file that must not change while it is read. */
typedef struct {
    uint64_t size;
    int64_t mtime_s, ctime_s;
    uint32_t mtime_ns, ctime_ns;
} wl_file_state;

typedef struct wl_file {
    const char *path;
    uint64_t end;
    uint64_t start;         /* the lowest offset of its extents */
    _Atomic int fd;         /* -1 while it is closed */
    _Atomic uint64_t left;  /* blocks to be moved; only of a plan of one pass */
    wl_file_state state;    /* when it was opened */
    uint8_t is_regular;
    uint8_t is_folder;
    uint8_t is_finished;    /* cut, and queued for a sync if the plan has fsync */
    struct wl_file *next;   /* in a poller's queue of files to sync */
    struct wl_share *share; /* that the sync counts for */
} wl_file;

/* Opens the file as the plan requires, checks that it is the plan's device if it has one, and
 * preallocates or cuts a file. Adds to `extending` if its
 * writes will extend it against the plan. */
int32_t wl_file_open(wl_file *file, const wl_plan *plan, uint32_t *extending, wl_error *error);
int32_t wl_folder_open(wl_file *folder, wl_error *error);
/* Cuts a written file to its size; checks whether a read one changed. */
int32_t wl_file_settle(wl_file *file, const wl_plan *plan, wl_error *error);
void wl_file_close(wl_file *file);

#endif
