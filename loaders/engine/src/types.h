/* Integers for C and for CUDA's runtime compiler, which has no standard headers. */
#ifndef WL_TYPES_H
#define WL_TYPES_H

#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#define wl_leading_zeros(value) ((uint32_t)__clzll((long long)(value)))
#else
#include <stdint.h>
#define wl_leading_zeros(value) ((uint32_t)__builtin_clzll(value))
#endif

#endif
