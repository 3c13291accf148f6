/* Latency histogram, log-linear: values below 64 ns have a bucket each, above that every octave has
 * 64. Bucket of v >= 64: e = floor(log2 v), index = (e - 5) * 64 + ((v >> (e - 6)) - 64). The last
 * bucket, WL_BUCKETS - 1, also holds all that is longer than 2^41 ns (36 minutes). */
#ifndef WL_HISTOGRAM_H
#define WL_HISTOGRAM_H

#include "types.h"

#define WL_BUCKETS_PER_OCTAVE 64u
#define WL_BUCKETS 2304u

static inline uint32_t wl_bucket(uint64_t value_ns) {
    if (value_ns < WL_BUCKETS_PER_OCTAVE)
        return (uint32_t)value_ns;
    uint32_t exponent = 63 - wl_leading_zeros(value_ns);
    uint64_t within = (value_ns >> (exponent - 6)) - WL_BUCKETS_PER_OCTAVE;
    uint64_t bucket = (uint64_t)(exponent - 5) * WL_BUCKETS_PER_OCTAVE + within;
    return bucket < WL_BUCKETS ? (uint32_t)bucket : WL_BUCKETS - 1;
}

#endif
