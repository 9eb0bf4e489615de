/* What the vector mathematics (math_*.h) is written with.
 *
 * Every function here and in its sister files is a scalar, branch-free inline function of C: selections are conditional
 * expressions whose two sides are both cheap and harmless, so that a compiler turns a loop over lanes into vector
 * instructions and a code generator can print the same text for another device. Names end in the format: _f64 or _f32.
 * No function relies on the rounding mode being other than to-nearest, nor on status flags or errno.
 *
 * Fused products are asked for by qb_fma_f64 and qb_fma_f32 and formed nowhere else (contraction is off), hence the
 * same bits from every instruction set that has them. Where a method needs the fused product to be exact, not only
 * accurate, the file has a second method for machines without it (QB_HAS_FMA is 0): the C library, lane by lane. */
#ifndef QB_CPU_MATH_BASE_H
#define QB_CPU_MATH_BASE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A call left in a loop keeps the whole loop from becoming vector instructions. */
#if defined(__GNUC__)
#define QB_INLINE static inline __attribute__((always_inline))
#else
#define QB_INLINE static inline
#endif

#if defined(__FMA__) || defined(__aarch64__)
#define QB_HAS_FMA 1
#else
#define QB_HAS_FMA 0
#endif

QB_INLINE double qb_fma_f64(double a, double b, double c)
{
#if QB_HAS_FMA
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

QB_INLINE float qb_fma_f32(float a, float b, float c)
{
#if QB_HAS_FMA
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/* A comparison's outcome as an integer of the compared numbers' width, so that combining several needs no change of
 * width. */
#define QB_TRUE_F64(comparison) ((comparison) ? (uint64_t)1 : (uint64_t)0)
#define QB_TRUE_F32(comparison) ((comparison) ? (uint32_t)1 : (uint32_t)0)

QB_INLINE uint64_t qb_bits_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

QB_INLINE double qb_of_bits_f64(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

QB_INLINE uint32_t qb_bits_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

QB_INLINE float qb_of_bits_f32(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Adding 1.5 * 2^52 leaves a double's nearest integer, in two's complement, in the low bits of the sum; taking it off
 * again leaves the integer as a double. With the bias of the exponent added too, the low bits are those of an exponent:
 * shifted up, 2^k. */
#define QB_SHIFT_F64        0x1.8p52
#define QB_SHIFT_BIASED_F64 (0x1.8p52 + 1023)
#define QB_SHIFT_F32        0x1.8p23f
#define QB_SHIFT_BIASED_F32 (0x1.8p23f + 127)

/* 2^k from QB_SHIFT_BIASED + k, -1022 <= k <= 1023 */
QB_INLINE double qb_exp2_of_shifted_f64(double shifted)
{
    return qb_of_bits_f64(qb_bits_f64(shifted) << 52);
}

QB_INLINE float qb_exp2_of_shifted_f32(float shifted)
{
    return qb_of_bits_f32(qb_bits_f32(shifted) << 23);
}

/* y * 2^k for integers |k| < 2000 and any y: halves of k apart, so that only the last product rounds or overflows. */
QB_INLINE double qb_scale_f64(double y, double k)
{
    double half = qb_fma_f64(k, 0.5, QB_SHIFT_BIASED_F64);
    double rest = (k - (half - QB_SHIFT_BIASED_F64)) + QB_SHIFT_BIASED_F64;
    return y * qb_exp2_of_shifted_f64(half) * qb_exp2_of_shifted_f64(rest);
}

/* The same, |k| < 250. */
QB_INLINE float qb_scale_f32(float y, float k)
{
    float half = qb_fma_f32(k, 0.5f, QB_SHIFT_BIASED_F32);
    float rest = (k - (half - QB_SHIFT_BIASED_F32)) + QB_SHIFT_BIASED_F32;
    return y * qb_exp2_of_shifted_f32(half) * qb_exp2_of_shifted_f32(rest);
}

QB_INLINE double qb_abs_f64(double x)
{
    return qb_of_bits_f64(qb_bits_f64(x) & 0x7fffffffffffffffu);
}

QB_INLINE float qb_abs_f32(float x)
{
    return qb_of_bits_f32(qb_bits_f32(x) & 0x7fffffffu);
}

/* magnitude with the sign bit of sign; magnitude's own sign bit must be clear */
QB_INLINE double qb_with_sign_f64(double magnitude, double sign)
{
    return qb_of_bits_f64(qb_bits_f64(magnitude) | (qb_bits_f64(sign) & 0x8000000000000000u));
}

QB_INLINE float qb_with_sign_f32(float magnitude, float sign)
{
    return qb_of_bits_f32(qb_bits_f32(magnitude) | (qb_bits_f32(sign) & 0x80000000u));
}

/* x held to [low, high]; NaN stays */
QB_INLINE double qb_clamp_f64(double x, double low, double high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

QB_INLINE float qb_clamp_f32(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

#endif
