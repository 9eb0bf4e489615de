/* The products of gemm.h, for one instruction set: compiled with QB_ISA set to its name. */
#include "cpu/gemm.h"

#include <string.h>

#define VECTOR_BYTES QB_GEMM_VECTOR_BYTES
#define TILE_VECTORS QB_GEMM_TILE_VECTORS

#if defined(__AVX512F__)
#include <immintrin.h>
#define FMA_double(a, b, c) (vector_double) _mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c))
#define FMA_float(a, b, c)  (vector_float) _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define ALL_double(x)       (vector_double) _mm512_set1_pd(x)
#define ALL_float(x)        (vector_float) _mm512_set1_ps(x)
#elif defined(__AVX2__)
#include <immintrin.h>
#define FMA_double(a, b, c) (vector_double) _mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c))
#define FMA_float(a, b, c)  (vector_float) _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#define ALL_double(x)       (vector_double) _mm256_set1_pd(x)
#define ALL_float(x)        (vector_float) _mm256_set1_ps(x)
#elif defined(__aarch64__)
#include <arm_neon.h>
#define FMA_double(a, b, c) (vector_double) vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b))
#define FMA_float(a, b, c)  (vector_float) vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
#define ALL_double(x)       (vector_double) vdupq_n_f64(x)
#define ALL_float(x)        (vector_float) vdupq_n_f32(x)
#else
#define FMA_double(a, b, c) ((a) * (b) + (c))
#define FMA_float(a, b, c)  ((a) * (b) + (c))
#define ALL_double(x)       ((vector_double){(x), (x)})
#define ALL_float(x)        ((vector_float){(x), (x), (x), (x)})
#endif

#if defined(__clang__)
#define UNROLLED _Pragma("clang loop unroll(full)")
#else
#define UNROLLED _Pragma("GCC unroll 16")
#endif
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* The lanes of two vectors in turns, from their lower or upper halves. */
#define LOWER_2  0, 2
#define UPPER_2  1, 3
#define LOWER_4  0, 4, 1, 5
#define UPPER_4  2, 6, 3, 7
#define LOWER_8  0, 8, 1, 9, 2, 10, 3, 11
#define UPPER_8  4, 12, 5, 13, 6, 14, 7, 15
#define LOWER_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define UPPER_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#if defined(__clang__)
#define INTERLEAVE(a, b, type, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define INTERLEAVE(a, b, type, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif

#define PASTE(a, b)          a##b
#define PASTE_EXPANDED(a, b) PASTE(a, b)

#define T          double
#define LANE_INDEX int64_t
#define LANES      (VECTOR_BYTES / 8)
#if VECTOR_BYTES == 64
#define LOWER LOWER_8
#define UPPER UPPER_8
#elif VECTOR_BYTES == 32
#define LOWER LOWER_4
#define UPPER UPPER_4
#else
#define LOWER LOWER_2
#define UPPER UPPER_2
#endif
#include "cpu/gemm_type.h"
#undef T
#undef LANE_INDEX
#undef LANES
#undef LOWER
#undef UPPER

#define T          float
#define LANE_INDEX int32_t
#define LANES      (VECTOR_BYTES / 4)
#if VECTOR_BYTES == 64
#define LOWER LOWER_16
#define UPPER UPPER_16
#elif VECTOR_BYTES == 32
#define LOWER LOWER_8
#define UPPER UPPER_8
#else
#define LOWER LOWER_4
#define UPPER UPPER_4
#endif
#include "cpu/gemm_type.h"
