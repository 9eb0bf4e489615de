/* What files that are compiled once for each instruction set call the same: the bytes of a vector register, and how to
 * have loops over registers unrolled. */
#ifndef QB_CPU_VECTORS_H
#define QB_CPU_VECTORS_H

#if defined(__AVX512F__)
#define QB_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define QB_VECTOR_BYTES 32
#else
#define QB_VECTOR_BYTES 16
#endif

#if defined(__clang__)
#define QB_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define QB_UNROLLED _Pragma("GCC unroll 16")
#endif
#define QB_ALWAYS_INLINE static inline __attribute__((always_inline))

#endif
