/* How errors are filled in: once, where they happen, as half sentences. */
#ifndef WL_ERRORS_H
#define WL_ERRORS_H

#include "wattload_engine.h"

#define WL_NOWHERE UINT64_MAX

/* Fills `error` (NULL is allowed) and returns `code`. `path` may be NULL. */
int32_t wl_fail(wl_error *error, int32_t code, const char *path, uint64_t offset,
                const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
