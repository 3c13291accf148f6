/* The CRC-32 of zip and gzip (reflected polynomial 0xEDB88320), at the speed of memory. */
#ifndef WATTLOAD_CRC32_H
#define WATTLOAD_CRC32_H

#include "wattload_engine.h"

/* The unit of wl_crc32_fold: four 128-bit lanes. */
#define WL_CRC32_BLOCK 64u

/* Return 1 if this processor has the instructions of wl_crc32_fold, else 0. */
WL_API int32_t wl_crc32_available(void);

/* Return the CRC-32 of `length` bytes, a multiple of WL_CRC32_BLOCK and at least one, that
 * follow bytes whose CRC-32 is `crc` (0 at the start), as zlib's crc32() does. Only where it is
 * available. */
WL_API uint32_t wl_crc32_fold(uint32_t crc, const uint8_t *bytes, size_t length);

#endif
