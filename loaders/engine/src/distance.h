/* Squared Euclidean distances of vectors in memory. Those of floats add up 32 lanes in one order, so
 * that they are the same on any CPU; those of bytes are exact before they become floats. */
#ifndef WL_DISTANCE_H
#define WL_DISTANCE_H

#include "vectors.h"

typedef float wl_distance(const void *from, const void *to, uint32_t dim);

/* From a float32 vector to one of a type, WL_FLOAT32 or WL_UINT8. Never NULL. */
wl_distance *wl_distance_to(uint32_t type);
/* Of two vectors of one type. Never NULL. */
wl_distance *wl_distance_between(uint32_t type);

/* Calls `work` for ranges of [0, count), of up to `grain` numbers each, in so many threads, or fewer
 * where the system has no more. `thread` numbers the caller's threads from 0. */
typedef void wl_range_work(void *context, uint64_t first, uint64_t end, uint32_t thread);
void wl_for_ranges(uint32_t threads, uint64_t count, uint64_t grain, wl_range_work *work,
                   void *context);

#endif
