/* Squares of elements, transposed in vector registers: QB_TRANSPOSE_<bytes>(NAME, TYPE) defines NAME(x), which transposes
 * as many vectors of elements of so many bytes as a vector has. One of the parts that files compiled for an instruction
 * set are made of. */
#ifndef QB_CPU_TRANSPOSE_H
#define QB_CPU_TRANSPOSE_H

#include <stdint.h>

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

/* The lanes of two vectors in turns, from their lower or upper halves. */
#define QB_LOWER_2  0, 2
#define QB_UPPER_2  1, 3
#define QB_LOWER_4  0, 4, 1, 5
#define QB_UPPER_4  2, 6, 3, 7
#define QB_LOWER_8  0, 8, 1, 9, 2, 10, 3, 11
#define QB_UPPER_8  4, 12, 5, 13, 6, 14, 7, 15
#define QB_LOWER_16 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define QB_UPPER_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#if defined(__clang__)
#define QB_INTERLEAVE(a, b, places, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define QB_INTERLEAVE(a, b, places, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif

/* Each turn rotates the digits of (row, lane) by one: in the end by half of them. */
#define QB_TRANSPOSE(NAME, TYPE, INTEGER, LOWER, UPPER)                                                                \
    typedef TYPE NAME##_vector __attribute__((vector_size(QB_VECTOR_BYTES)));                                          \
    typedef TYPE NAME##_unaligned __attribute__((vector_size(QB_VECTOR_BYTES), aligned(sizeof(TYPE)), may_alias));     \
    typedef INTEGER NAME##_places __attribute__((vector_size(QB_VECTOR_BYTES)));                                       \
    QB_ALWAYS_INLINE void NAME(NAME##_vector *x)                                                                       \
    {                                                                                                                  \
        enum { LANES_OF = QB_VECTOR_BYTES / sizeof(TYPE) };                                                            \
        NAME##_vector y[LANES_OF];                                                                                     \
        QB_UNROLLED                                                                                                    \
        for (int turn = 1; turn < LANES_OF; turn *= 2) {                                                               \
            QB_UNROLLED                                                                                                \
            for (int i = 0; i < LANES_OF / 2; i++) {                                                                   \
                y[2 * i] = QB_INTERLEAVE(x[i], x[i + LANES_OF / 2], NAME##_places, LOWER);                             \
                y[2 * i + 1] = QB_INTERLEAVE(x[i], x[i + LANES_OF / 2], NAME##_places, UPPER);                         \
            }                                                                                                          \
            QB_UNROLLED                                                                                                \
            for (int i = 0; i < LANES_OF; i++)                                                                         \
                x[i] = y[i];                                                                                           \
        }                                                                                                              \
    }
#if QB_VECTOR_BYTES == 64
#define QB_TRANSPOSE_8(NAME, TYPE) QB_TRANSPOSE(NAME, TYPE, int64_t, QB_LOWER_8, QB_UPPER_8)
#define QB_TRANSPOSE_4(NAME, TYPE) QB_TRANSPOSE(NAME, TYPE, int32_t, QB_LOWER_16, QB_UPPER_16)
#elif QB_VECTOR_BYTES == 32
#define QB_TRANSPOSE_8(NAME, TYPE) QB_TRANSPOSE(NAME, TYPE, int64_t, QB_LOWER_4, QB_UPPER_4)
#define QB_TRANSPOSE_4(NAME, TYPE) QB_TRANSPOSE(NAME, TYPE, int32_t, QB_LOWER_8, QB_UPPER_8)
#else
#define QB_TRANSPOSE_8(NAME, TYPE) QB_TRANSPOSE(NAME, TYPE, int64_t, QB_LOWER_2, QB_UPPER_2)
#define QB_TRANSPOSE_4(NAME, TYPE) QB_TRANSPOSE(NAME, TYPE, int32_t, QB_LOWER_4, QB_UPPER_4)
#endif

#endif
