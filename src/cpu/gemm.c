/* The products of gemm.h, for one instruction set: compiled with QB_ISA set to its name. */
#include "cpu/gemm.h"

#include "cpu/transpose.h"

#include <string.h>

#define VECTOR_BYTES QB_VECTOR_BYTES
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

#define PASTE(a, b)          a##b
#define PASTE_EXPANDED(a, b) PASTE(a, b)

#define T         double
#define LANES     (VECTOR_BYTES / 8)
#define TRANSPOSE QB_TRANSPOSE_8
#include "cpu/gemm_type.h"
#undef T
#undef LANES
#undef TRANSPOSE

#define T         float
#define LANES     (VECTOR_BYTES / 4)
#define TRANSPOSE QB_TRANSPOSE_4
#include "cpu/gemm_type.h"
