/* The part of NVIDIA's driver that reads into GPU memory need, found by dlopen: a build needs no
 * header of CUDA, and the library loads on hosts without a driver. Types, values and symbols: CUDA
 * Driver API Reference. The symbols with _v2 are those that cuda.h selects since CUDA 4. */
#ifndef WL_CUDA_H
#define WL_CUDA_H

#include "errors.h"

typedef int32_t wl_cu_result; /* CUresult; 0: success */
typedef int32_t wl_cu_device; /* the ordinal */
typedef uint64_t wl_cu_pointer;
typedef struct wl_cu_context_s *wl_cu_context;
typedef struct wl_cu_stream_s *wl_cu_stream;
typedef struct wl_cu_event_s *wl_cu_event;
typedef struct wl_cu_module_s *wl_cu_module;
typedef struct wl_cu_function_s *wl_cu_function;

enum {
    WL_CU_OUT_OF_MEMORY = 2,
    WL_CU_NO_DEVICE = 100,
    WL_CU_INVALID_DEVICE = 101,
    WL_CU_NOT_READY = 600
};
enum {
    WL_CU_CONTEXT_BLOCKING = 4, /* waits sleep instead of spinning */
    WL_CU_STREAM_NON_BLOCKING = 1,
    WL_CU_EVENT_DISABLE_TIMING = 2,
    WL_CU_HOST_PORTABLE = 1,
    WL_CU_HOST_MAPPED = 2,
    WL_CU_MULTIPROCESSORS = 16, /* attributes of devices */
    WL_CU_CAPABILITY_MAJOR = 75,
    WL_CU_CAPABILITY_MINOR = 76
};

typedef struct {
    wl_cu_result (*init)(uint32_t flags);
    wl_cu_result (*driver_version)(int32_t *version);
    wl_cu_result (*error_string)(wl_cu_result code, const char **text);
    wl_cu_result (*device_count)(int32_t *count);
    wl_cu_result (*device_get)(wl_cu_device *device, int32_t ordinal);
    wl_cu_result (*device_by_address)(wl_cu_device *device, const char *address);
    wl_cu_result (*device_address)(char *address, int32_t room, wl_cu_device device);
    wl_cu_result (*device_attribute)(int32_t *value, int32_t attribute, wl_cu_device device);
    wl_cu_result (*device_name)(char *name, int32_t room, wl_cu_device device);
    wl_cu_result (*context_flags)(wl_cu_device device, uint32_t flags);
    wl_cu_result (*context_retain)(wl_cu_context *context, wl_cu_device device);
    wl_cu_result (*context_release)(wl_cu_device device);
    wl_cu_result (*context_set)(wl_cu_context context);
    wl_cu_result (*memory_info)(size_t *free_bytes, size_t *total_bytes);
    wl_cu_result (*allocate)(wl_cu_pointer *memory, size_t bytes);
    wl_cu_result (*release)(wl_cu_pointer memory);
    wl_cu_result (*set)(wl_cu_pointer memory, uint8_t value, size_t bytes);
    wl_cu_result (*host_register)(void *memory, size_t bytes, uint32_t flags);
    wl_cu_result (*host_address)(wl_cu_pointer *address, void *memory, uint32_t flags);
    wl_cu_result (*host_unregister)(void *memory);
    wl_cu_result (*copy_in)(wl_cu_pointer to, const void *from, size_t bytes, wl_cu_stream stream);
    wl_cu_result (*copy_out)(void *to, wl_cu_pointer from, size_t bytes);
    wl_cu_result (*stream_create)(wl_cu_stream *stream, uint32_t flags);
    wl_cu_result (*stream_wait)(wl_cu_stream stream);
    wl_cu_result (*stream_query)(wl_cu_stream stream);
    wl_cu_result (*stream_destroy)(wl_cu_stream stream);
    wl_cu_result (*module_load)(wl_cu_module *module, const void *image);
    wl_cu_result (*module_function)(wl_cu_function *function, wl_cu_module module,
                                    const char *name);
    wl_cu_result (*module_unload)(wl_cu_module module);
    wl_cu_result (*occupancy)(int32_t *blocks, wl_cu_function function, int32_t threads,
                              size_t shared_bytes);
    wl_cu_result (*launch)(wl_cu_function function, uint32_t grid_x, uint32_t grid_y,
                           uint32_t grid_z, uint32_t block_x, uint32_t block_y, uint32_t block_z,
                           uint32_t shared_bytes, wl_cu_stream stream, void **arguments,
                           void **extra);
    wl_cu_result (*event_create)(wl_cu_event *event, uint32_t flags);
    wl_cu_result (*event_record)(wl_cu_event event, wl_cu_stream stream);
    wl_cu_result (*event_query)(wl_cu_event event);
    wl_cu_result (*event_wait)(wl_cu_event event);
    wl_cu_result (*event_destroy)(wl_cu_event event);
} wl_cuda;

/* A function of a library, and where its address goes in a struct of pointers. */
typedef struct {
    const char *name;
    size_t place;
} wl_symbol;

/* Opens a library and fills in the functions; WL_NO_LIBRARY if it or one of them is missing. */
int32_t wl_library_open(const char *name, const wl_symbol *symbols, size_t count, void *functions,
                        wl_error *error);

/* The driver, after cuInit; NULL and an error if there is none or it refuses. */
const wl_cuda *wl_cuda_open(wl_error *error);
/* Fills `error` with the call that failed and the driver's own words; `detail` is the CUresult. */
int32_t wl_cuda_fail(wl_error *error, wl_cu_result code, const char *call);

#endif
