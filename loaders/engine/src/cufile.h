/* The part of cuFile that is used here, found by dlopen. Types, values and layouts: cufile.h of
 * libcufile 1.15 (CUDA 13.0) and 1.20. */
#ifndef WL_CUFILE_H
#define WL_CUFILE_H

#include <sys/types.h>

#include "cuda.h"

typedef struct {
    int32_t code;         /* CUfileOpError; 0: success */
    wl_cu_result cu_code; /* with code 5011 */
} wl_cufile_result;

typedef struct wl_cufile_handle_s *wl_cufile_handle;

enum { WL_CUFILE_OPAQUE_FD = 1, WL_CUFILE_BASE = 5000, WL_CUFILE_CUDA_ERROR = 5011 };

typedef struct {
    int32_t type;
    union {
        int32_t fd;
        void *pointer;
    } handle;
    const void *operations;
} wl_cufile_description;

typedef struct {
    wl_cufile_result (*version)(int32_t *version);
    wl_cufile_result (*driver_open)(void);
    wl_cufile_result (*driver_close)(void);
    wl_cufile_result (*handle_register)(wl_cufile_handle *handle, wl_cufile_description *file);
    void (*handle_deregister)(wl_cufile_handle handle);
    wl_cufile_result (*buffer_register)(const void *memory, size_t bytes, int32_t flags);
    wl_cufile_result (*buffer_deregister)(const void *memory);
    ssize_t (*read)(wl_cufile_handle handle, void *memory, size_t bytes, off_t offset,
                    off_t memory_offset);
    /* Since 1.15; NULL in older ones. */
    wl_cufile_result (*set_level)(int32_t level);
    wl_cufile_result (*start)(void);
    wl_cufile_result (*level3)(void *statistics);
} wl_cufile;

/* Opens the library, without its driver; NULL and an error if it is missing. */
const wl_cufile *wl_cufile_open(wl_error *error);
/* cuFile's number for its version, 1000 x major + 10 x minor; 0 if it does not say. */
int32_t wl_cufile_version(const wl_cufile *cufile);
/* Fills `error` with the call that failed; `detail` is cuFile's code. */
int32_t wl_cufile_fail(wl_error *error, wl_cufile_result result, const char *path,
                       const char *call);

/* Begins to count; false if this version has no statistics of a layout that is known. */
int wl_cufile_count(const wl_cufile *cufile);
/* Adds the reads of all GPUs; false if cuFile refuses, or its figures can't be right. */
int wl_cufile_counted(const wl_cufile *cufile, wl_library_reads *reads);

#endif
