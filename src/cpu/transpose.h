/* Squares of elements, transposed in vector registers: QB_TRANSPOSE_<bytes>(NAME, VECTOR, UNALIGNED, TYPE), TYPE being
 * of so many bytes, defines the type VECTOR of a register's elements, UNALIGNED of such at any element of an array, and
 * NAME(x), which transposes as many vectors as each has elements. */
#ifndef QB_CPU_TRANSPOSE_H
#define QB_CPU_TRANSPOSE_H

#include "cpu/vectors.h"

#include <stdint.h>

/* Of two vectors of n lanes, in which lanes with and without the digit `distance` alternate: those without of the
 * first, and of the second in place of those with; or the other way round. */
#define QB_LOW(lane, n, distance)    ((lane) & (distance) ? (n) + (lane) - (distance) : (lane))
#define QB_HIGH(lane, n, distance)   ((lane) & (distance) ? (n) + (lane) : (lane) + (distance))
#define QB_LANES_2(WHICH, n, d, at)  WHICH((at), n, d), WHICH((at) + 1, n, d)
#define QB_LANES_4(WHICH, n, d, at)  QB_LANES_2(WHICH, n, d, at), QB_LANES_2(WHICH, n, d, (at) + 2)
#define QB_LANES_8(WHICH, n, d, at)  QB_LANES_4(WHICH, n, d, at), QB_LANES_4(WHICH, n, d, (at) + 4)
#define QB_LANES_16(WHICH, n, d, at) QB_LANES_8(WHICH, n, d, at), QB_LANES_8(WHICH, n, d, (at) + 8)
#if defined(__clang__)
#define QB_CHOOSE(a, b, places, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define QB_CHOOSE(a, b, places, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif

/* Halves (quarters, ...) that lie across the diagonal change places. */
#define QB_EXCHANGE(PLACES, n, distance)                                                                               \
    QB_UNROLLED                                                                                                        \
    for (int i = 0; i < (n); i++)                                                                                      \
        if (!(i & (distance))) {                                                                                       \
            __typeof__(*x) a = x[i], b = x[i + (distance)];                                                            \
            x[i] = QB_CHOOSE(a, b, PLACES, QB_LANES_##n(QB_LOW, n, distance, 0));                                      \
            x[i + (distance)] = QB_CHOOSE(a, b, PLACES, QB_LANES_##n(QB_HIGH, n, distance, 0));                        \
        }
#define QB_EXCHANGES_2(PLACES) QB_EXCHANGE(PLACES, 2, 1)
#define QB_EXCHANGES_4(PLACES) QB_EXCHANGE(PLACES, 4, 2) QB_EXCHANGE(PLACES, 4, 1)
#define QB_EXCHANGES_8(PLACES) QB_EXCHANGE(PLACES, 8, 4) QB_EXCHANGE(PLACES, 8, 2) QB_EXCHANGE(PLACES, 8, 1)
#define QB_EXCHANGES_16(PLACES)                                                                                        \
    QB_EXCHANGE(PLACES, 16, 8) QB_EXCHANGE(PLACES, 16, 4) QB_EXCHANGE(PLACES, 16, 2) QB_EXCHANGE(PLACES, 16, 1)

#define QB_TRANSPOSE(NAME, VECTOR, UNALIGNED, TYPE, INTEGER, COUNT)                                                    \
    typedef TYPE VECTOR __attribute__((vector_size(QB_VECTOR_BYTES)));                                                 \
    typedef TYPE UNALIGNED __attribute__((vector_size(QB_VECTOR_BYTES), aligned(sizeof(TYPE)), may_alias));            \
    typedef __attribute__((unused)) INTEGER NAME##_places __attribute__((vector_size(QB_VECTOR_BYTES)));               \
    QB_ALWAYS_INLINE void NAME(VECTOR *x)                                                                              \
    {                                                                                                                  \
        QB_EXCHANGES_##COUNT(NAME##_places)                                                                            \
    }
#if QB_VECTOR_BYTES == 64
#define QB_TRANSPOSE_8(NAME, VECTOR, UNALIGNED, TYPE) QB_TRANSPOSE(NAME, VECTOR, UNALIGNED, TYPE, int64_t, 8)
#define QB_TRANSPOSE_4(NAME, VECTOR, UNALIGNED, TYPE) QB_TRANSPOSE(NAME, VECTOR, UNALIGNED, TYPE, int32_t, 16)
#elif QB_VECTOR_BYTES == 32
#define QB_TRANSPOSE_8(NAME, VECTOR, UNALIGNED, TYPE) QB_TRANSPOSE(NAME, VECTOR, UNALIGNED, TYPE, int64_t, 4)
#define QB_TRANSPOSE_4(NAME, VECTOR, UNALIGNED, TYPE) QB_TRANSPOSE(NAME, VECTOR, UNALIGNED, TYPE, int32_t, 8)
#else
#define QB_TRANSPOSE_8(NAME, VECTOR, UNALIGNED, TYPE) QB_TRANSPOSE(NAME, VECTOR, UNALIGNED, TYPE, int64_t, 2)
#define QB_TRANSPOSE_4(NAME, VECTOR, UNALIGNED, TYPE) QB_TRANSPOSE(NAME, VECTOR, UNALIGNED, TYPE, int32_t, 4)
#endif

#endif
