#include "cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

static const wl_symbol symbols[] = {
    {"cuInit", offsetof(wl_cuda, init)},
    {"cuDriverGetVersion", offsetof(wl_cuda, driver_version)},
    {"cuGetErrorString", offsetof(wl_cuda, error_string)},
    {"cuDeviceGetCount", offsetof(wl_cuda, device_count)},
    {"cuDeviceGet", offsetof(wl_cuda, device_get)},
    {"cuDeviceGetByPCIBusId", offsetof(wl_cuda, device_by_address)},
    {"cuDeviceGetPCIBusId", offsetof(wl_cuda, device_address)},
    {"cuDeviceGetAttribute", offsetof(wl_cuda, device_attribute)},
    {"cuDeviceGetName", offsetof(wl_cuda, device_name)},
    {"cuDevicePrimaryCtxSetFlags_v2", offsetof(wl_cuda, context_flags)},
    {"cuDevicePrimaryCtxRetain", offsetof(wl_cuda, context_retain)},
    {"cuDevicePrimaryCtxRelease_v2", offsetof(wl_cuda, context_release)},
    {"cuCtxSetCurrent", offsetof(wl_cuda, context_set)},
    {"cuMemGetInfo_v2", offsetof(wl_cuda, memory_info)},
    {"cuMemAlloc_v2", offsetof(wl_cuda, allocate)},
    {"cuMemFree_v2", offsetof(wl_cuda, release)},
    {"cuMemsetD8_v2", offsetof(wl_cuda, set)},
    {"cuMemHostRegister_v2", offsetof(wl_cuda, host_register)},
    {"cuMemHostGetDevicePointer_v2", offsetof(wl_cuda, host_address)},
    {"cuMemHostUnregister", offsetof(wl_cuda, host_unregister)},
    {"cuMemcpyHtoDAsync_v2", offsetof(wl_cuda, copy_in)},
    {"cuMemcpyDtoH_v2", offsetof(wl_cuda, copy_out)},
    {"cuStreamCreate", offsetof(wl_cuda, stream_create)},
    {"cuStreamSynchronize", offsetof(wl_cuda, stream_wait)},
    {"cuStreamQuery", offsetof(wl_cuda, stream_query)},
    {"cuStreamDestroy_v2", offsetof(wl_cuda, stream_destroy)},
    {"cuModuleLoadData", offsetof(wl_cuda, module_load)},
    {"cuModuleGetFunction", offsetof(wl_cuda, module_function)},
    {"cuModuleUnload", offsetof(wl_cuda, module_unload)},
    {"cuOccupancyMaxActiveBlocksPerMultiprocessor", offsetof(wl_cuda, occupancy)},
    {"cuLaunchKernel", offsetof(wl_cuda, launch)},
    {"cuEventCreate", offsetof(wl_cuda, event_create)},
    {"cuEventRecord", offsetof(wl_cuda, event_record)},
    {"cuEventQuery", offsetof(wl_cuda, event_query)},
    {"cuEventSynchronize", offsetof(wl_cuda, event_wait)},
    {"cuEventDestroy_v2", offsetof(wl_cuda, event_destroy)},
};

int32_t wl_library_open(const char *name, const wl_symbol *wanted, size_t count, void *functions,
                        wl_error *error) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return wl_fail(error, WL_NO_LIBRARY, NULL, WL_NOWHERE, "%s", dlerror());
    for (size_t i = 0; i < count; i++) {
        void *found = dlsym(library, wanted[i].name);
        if (!found)
            return wl_fail(error, WL_NO_LIBRARY, NULL, WL_NOWHERE, "%s has no function %s", name,
                           wanted[i].name);
        memcpy((char *)functions + wanted[i].place, &found, sizeof found);
    }
    return WL_OK;
}

static wl_cuda driver;
static wl_error failure;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void open_driver(void) {
    if (wl_library_open("libcuda.so.1", symbols, sizeof symbols / sizeof symbols[0], &driver,
                        &failure))
        return;
    wl_cu_result code = driver.init(0);
    if (code)
        wl_cuda_fail(&failure, code, "cuInit");
}

int32_t wl_cuda_fail(wl_error *error, wl_cu_result code, const char *call) {
    const char *text = NULL;
    if (driver.error_string(code, &text) || !text)
        text = "an error without a description";
    wl_fail(error, WL_CUDA, NULL, WL_NOWHERE, "%s failed: %s (%d)", call, text, code);
    if (error)
        error->detail = code;
    return WL_CUDA;
}

const wl_cuda *wl_cuda_open(wl_error *error) {
    pthread_once(&opened, open_driver);
    if (!failure.code)
        return &driver;
    if (error)
        *error = failure;
    return NULL;
}

static int32_t describe(const wl_cuda *cuda, int32_t ordinal, wl_gpu *gpu, wl_error *error) {
    wl_cu_device device;
    wl_cu_result code = cuda->device_get(&device, ordinal);
    if (!code)
        code = cuda->device_address(gpu->address, sizeof gpu->address, device);
    if (!code)
        code = cuda->device_name(gpu->name, sizeof gpu->name, device);
    return code ? wl_cuda_fail(error, code, "cuDeviceGet") : WL_OK;
}

int32_t wl_cuda_gpus(wl_gpu *gpus, uint32_t room, uint32_t *count, int32_t *version,
                     wl_error *error) {
    int32_t found = 0;
    const wl_cuda *cuda = wl_cuda_open(error);
    if (!cuda)
        return error->code;
    wl_cu_result code = cuda->driver_version(version);
    if (!code)
        code = cuda->device_count(&found);
    if (code)
        return wl_cuda_fail(error, code, "cuDeviceGetCount");
    *count = (uint32_t)found < room ? (uint32_t)found : room;
    for (uint32_t i = 0; i < *count; i++)
        if (describe(cuda, (int32_t)i, &gpus[i], error))
            return error->code;
    return WL_OK;
}

int32_t wl_cuda_capability(const char *address, uint32_t *capability, wl_error *error) {
    int32_t major = 0, minor = 0;
    wl_cu_device device = 0;
    const wl_cuda *cuda = wl_cuda_open(error);
    if (!cuda)
        return error->code;
    if (cuda->device_by_address(&device, address))
        return wl_fail(error, WL_NO_GPU, NULL, WL_NOWHERE, "CUDA shows no GPU %s", address);
    wl_cu_result code = cuda->device_attribute(&major, WL_CU_CAPABILITY_MAJOR, device);
    if (!code)
        code = cuda->device_attribute(&minor, WL_CU_CAPABILITY_MINOR, device);
    *capability = (uint32_t)(major * 10 + minor);
    return code ? wl_cuda_fail(error, code, "cuDeviceGetAttribute") : WL_OK;
}
