/* Conversions between element types that C leaves undefined, or for which an instruction set lacks the instruction.
 *
 * Floating to integer truncates and saturates; NaN gives 0. 64-bit integers meet doubles in two halves of 32 bits, each
 * placed in the low bits of a double by its exponent: AVX2 has no such conversion, and the result is the same (integer
 * to floating rounds once). */
#ifndef QB_CPU_MATH_CONVERT_H
#define QB_CPU_MATH_CONVERT_H

#include "cpu/math_base.h"

/* Truncated and held to [low, high], bounds that are integers of the format; NaN becomes 0 */
QB_INLINE double qb_held_f64(double x, double low, double high)
{
    x = x >= low ? x : low; /* NaN too */
    return __builtin_trunc(x < high ? x : high);
}

QB_INLINE int32_t qb_int32_of_f64(double x)
{
    x = x == x ? x : 0.0;
    return (int32_t)qb_held_f64(x, -0x1p31, 0x1p31 - 1);
}

/* The low 52 bits of an integer in [0, 2^52) held as a double */
QB_INLINE uint64_t qb_low_bits_f64(double x)
{
    return qb_bits_f64(x + 0x1p52) & 0x000fffffffffffffu;
}

QB_INLINE uint32_t qb_uint32_of_f64(double x)
{
    x = x == x ? x : 0.0;
    return (uint32_t)qb_low_bits_f64(qb_held_f64(x, 0.0, 0x1p32 - 1));
}

QB_INLINE uint64_t qb_uint64_of_f64(double x)
{
    x = x == x ? x : 0.0;
    int over = x >= 0x1p64;
    x = qb_held_f64(x, 0.0, 0x1p64 - 0x1p11);
    double high = __builtin_floor(x * 0x1p-32);
    uint64_t bits = (qb_low_bits_f64(high) << 32) | qb_low_bits_f64(x - high * 0x1p32);
    return over ? UINT64_MAX : bits;
}

QB_INLINE int64_t qb_int64_of_f64(double x)
{
    x = x == x ? x : 0.0;
    double magnitude = qb_abs_f64(x);
    int over = magnitude >= 0x1p63;
    magnitude = __builtin_trunc(over ? 0.0 : magnitude);
    double high = __builtin_floor(magnitude * 0x1p-32);
    uint64_t bits = (qb_low_bits_f64(high) << 32) | qb_low_bits_f64(magnitude - high * 0x1p32);
    bits = over ? 0x7fffffffffffffffu + (x < 0.0) : x < 0.0 ? 0u - bits : bits;
    return (int64_t)bits;
}

/* A float is a double, so its conversions are too. */
QB_INLINE double qb_float64_of_u64(uint64_t x)
{
    double high = qb_of_bits_f64((x >> 32) | 0x4530000000000000u);        /* 2^84 + 2^32 high */
    double low = qb_of_bits_f64((x & 0xffffffffu) | 0x4330000000000000u); /* 2^52 + low */
    return (high - (0x1p84 + 0x1p52)) + low;
}

QB_INLINE double qb_float64_of_i64(int64_t x)
{
    double high =
        qb_of_bits_f64((((uint64_t)x >> 32) ^ 0x80000000u) | 0x4530000000000000u); /* 2^84 + 2^32 high + 2^63 */
    double low = qb_of_bits_f64(((uint64_t)x & 0xffffffffu) | 0x4330000000000000u);
    return (high - (0x1p84 + 0x1p63 + 0x1p52)) + low;
}

#endif
