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

/* Of operations. Whoever fills it begins with `min_ns` at UINT64_MAX; a result without any has 0. */
typedef struct {
    uint64_t sum_ns, min_ns, max_ns;
    uint64_t counts[WL_BUCKETS];
} wl_latencies;

static inline void wl_add_latency(wl_latencies *latencies, uint64_t latency_ns) {
    latencies->sum_ns += latency_ns;
    if (latency_ns < latencies->min_ns)
        latencies->min_ns = latency_ns;
    if (latency_ns > latencies->max_ns)
        latencies->max_ns = latency_ns;
    latencies->counts[wl_bucket(latency_ns)]++;
}

static inline void wl_add_latencies(wl_latencies *sum, const wl_latencies *part) {
    sum->sum_ns += part->sum_ns;
    if (part->min_ns < sum->min_ns)
        sum->min_ns = part->min_ns;
    if (part->max_ns > sum->max_ns)
        sum->max_ns = part->max_ns;
    for (uint32_t k = 0; k < WL_BUCKETS; k++)
        sum->counts[k] += part->counts[k];
}

#endif
