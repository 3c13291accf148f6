#include "errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int32_t wl_fail(wl_error *error, int32_t code, const char *path, uint64_t offset,
                const char *format, ...) {
    if (!error)
        return code;
    memset(error, 0, sizeof *error);
    error->code = code;
    error->offset = offset;
    if (path)
        snprintf(error->path, sizeof error->path, "%s", path);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return code;
}
