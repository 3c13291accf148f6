/* The bucket of a latency; wattload_engine.h has the layout. */
#ifndef WL_HISTOGRAM_H
#define WL_HISTOGRAM_H

#include "wattload_engine.h"

static inline uint32_t wl_bucket(uint64_t value_ns) {
    if (value_ns < WL_BUCKETS_PER_OCTAVE)
        return (uint32_t)value_ns;
    uint32_t exponent = 63 - (uint32_t)__builtin_clzll(value_ns);
    uint64_t within = (value_ns >> (exponent - 6)) - WL_BUCKETS_PER_OCTAVE;
    uint64_t bucket = (uint64_t)(exponent - 5) * WL_BUCKETS_PER_OCTAVE + within;
    return bucket < WL_BUCKETS ? (uint32_t)bucket : WL_BUCKETS - 1;
}

#endif
