/* Functions that are compiled twice: for any CPU, and with the wider vectors of AVX2 and
 * the bit operations of the same CPUs. */
#ifndef WATTLOAD_AVX2_H
#define WATTLOAD_AVX2_H

#if defined(__x86_64__)
/* With all that the function calls. */
#define WITH_AVX2 __attribute__((target("avx2,bmi,bmi2,popcnt"), flatten))
static inline int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2"); }
#else
#define WITH_AVX2
static inline int has_avx2(void) { return 0; }
#endif

#endif
