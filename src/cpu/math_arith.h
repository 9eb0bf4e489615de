/* Rounding, remainders and integer arithmetic, where C's operators are not enough. */
#ifndef QB_CPU_MATH_ARITH_H
#define QB_CPU_MATH_ARITH_H

#include "cpu/math_base.h"

/* ---- Floating: the same text for both formats */

#define QB_FLOATING_ARITHMETIC(T, U, format, suffix, exact)                                                            \
    QB_INLINE T qb_infinity_##format(T x)                                                                              \
    {                                                                                                                  \
        (void)x; /* chooses the format */                                                                              \
        return (T)INFINITY;                                                                                            \
    }                                                                                                                  \
    QB_INLINE T qb_floor_##format(T x)                                                                                 \
    {                                                                                                                  \
        return __builtin_floor##suffix(x);                                                                             \
    }                                                                                                                  \
    QB_INLINE T qb_ceil_##format(T x)                                                                                  \
    {                                                                                                                  \
        return __builtin_ceil##suffix(x);                                                                              \
    }                                                                                                                  \
    QB_INLINE T qb_trunc_##format(T x)                                                                                 \
    {                                                                                                                  \
        return __builtin_trunc##suffix(x);                                                                             \
    }                                                                                                                  \
    QB_INLINE T qb_round_##format(T x) /* halves to even, in the rounding mode that all this code assumes */           \
    {                                                                                                                  \
        return __builtin_rint##suffix(x);                                                                              \
    }                                                                                                                  \
    QB_INLINE T qb_sqrt_##format(T x)                                                                                  \
    {                                                                                                                  \
        return __builtin_sqrt##suffix(x);                                                                              \
    }                                                                                                                  \
    /* Whether a fused product forms the remainder exactly: the quotient rounds to an integer of its format or one \
     * next to it. Not for NaN, infinities, and a zero divisor. */   \
    QB_INLINE U qb_remainder_is_near_##format(T a, T b)                                                                \
    {                                                                                                                  \
        U short_enough = qb_abs_##format(a / b) < exact ? (U)1 : (U)0;                                                 \
        U finite = qb_abs_##format(b) < (T)INFINITY ? (U)1 : (U)0;                                                     \
        return QB_HAS_FMA ? short_enough & finite : 0;                                                                 \
    }                                                                                                                  \
    /* a - b trunc(a / b), where the rounded quotient may have reached the next integer: then the first remainder \
     * has the wrong sign, and one more divisor puts it right. Every step is exact. */    \
    QB_INLINE T qb_fmod_##format(T a, T b)                                                                             \
    {                                                                                                                  \
        T r = qb_fma_##format(-qb_trunc_##format(a / b), b, a);                                                        \
        T divisor = qb_abs_##format(b);                                                                                \
        T magnitude = a < 0 ? -r : r;                                                                                  \
        return qb_with_sign_##format(qb_abs_##format(magnitude < 0 ? magnitude + divisor : magnitude), a);             \
    }                                                                                                                  \
    /* floor(a / b): the rounded quotient's floor is right or one too large, as its exact remainder tells. */          \
    QB_INLINE T qb_floor_divide_##format(T a, T b)                                                                     \
    {                                                                                                                  \
        T quotient = qb_floor_##format(a / b);                                                                         \
        T r = qb_fma_##format(-quotient, b, a);                                                                        \
        return quotient - (r * qb_with_sign_##format(1, b) < 0 ? (T)1 : (T)0);                                         \
    }

QB_FLOATING_ARITHMETIC(double, uint64_t, f64, , 0x1p52)
QB_FLOATING_ARITHMETIC(float, uint32_t, f32, f, 0x1p23f)

#undef QB_FLOATING_ARITHMETIC

/* floor(a / b) for any operands, by the C library's remainder: the rounded quotient has reached the next integer where
 * its fraction and the remainder's disagree. As in NumPy, a / 0 is that, and an infinite a has no remainder. */
QB_INLINE double qb_floor_divide_far_f64(double a, double b)
{
    if (b == 0.0 || a != a || b != b)
        return a / b;
    if (qb_abs_f64(a) == (double)INFINITY)
        return (double)NAN;
    if (qb_abs_f64(b) == (double)INFINITY)
        return a == 0.0 || (a < 0.0) == (b < 0.0) ? a / b : -1.0;
    double quotient = a / b, whole = __builtin_floor(quotient), r = fmod(a, b);
    if (r != 0.0 && (r < 0.0) != (b < 0.0))
        r += b;
    return qb_abs_f64(quotient) < 0x1p53 && r / b - (quotient - whole) > 0.5 ? whole - 1.0 : whole;
}

QB_INLINE float qb_floor_divide_far_f32(float a, float b)
{
    return (float)qb_floor_divide_far_f64((double)a, (double)b);
}

/* ---- Integers */

/* Division by zero gives 0; by -1, what negation modulo 2^n gives (C leaves the smallest number undefined there). */
#define QB_SIGNED_ARITHMETIC(T, U, format)                                                                             \
    QB_INLINE T qb_abs_##format(T a)                                                                                   \
    {                                                                                                                  \
        return a < 0 ? (T)(0u - (U)a) : a;                                                                             \
    }                                                                                                                  \
    QB_INLINE T qb_sign_##format(T a)                                                                                  \
    {                                                                                                                  \
        return (T)((a > 0) - (a < 0));                                                                                 \
    }                                                                                                                  \
    QB_INLINE T qb_fmod_##format(T a, T b)                                                                             \
    {                                                                                                                  \
        return b == 0 || b == -1 ? 0 : (T)(a % b);                                                                     \
    }                                                                                                                  \
    QB_INLINE T qb_floor_divide_##format(T a, T b)                                                                     \
    {                                                                                                                  \
        if (b == 0)                                                                                                    \
            return 0;                                                                                                  \
        if (b == -1)                                                                                                   \
            return (T)(0u - (U)a);                                                                                     \
        T quotient = (T)(a / b);                                                                                       \
        return (T)(quotient - (a % b != 0 && (a < 0) != (b < 0)));                                                     \
    }                                                                                                                  \
    /* Modulo 2^n; to a negative power the integer part of the inverse, and 0 for that of 0. */                        \
    QB_INLINE T qb_pow_##format(T a, T b)                                                                              \
    {                                                                                                                  \
        if (b < 0)                                                                                                     \
            return (T)(a == 1 || (a == -1 && b % 2 == 0) ? 1 : a == -1 ? -1 : 0);                                      \
        U result = 1, factor = (U)a;                                                                                   \
        for (U n = (U)b; n != 0; n >>= 1) {                                                                            \
            result *= n & 1 ? factor : 1;                                                                              \
            factor *= factor;                                                                                          \
        }                                                                                                              \
        return (T)result;                                                                                              \
    }

#define QB_UNSIGNED_ARITHMETIC(T, format)                                                                              \
    QB_INLINE T qb_abs_##format(T a)                                                                                   \
    {                                                                                                                  \
        return a;                                                                                                      \
    }                                                                                                                  \
    QB_INLINE T qb_sign_##format(T a)                                                                                  \
    {                                                                                                                  \
        return a != 0;                                                                                                 \
    }                                                                                                                  \
    QB_INLINE T qb_fmod_##format(T a, T b)                                                                             \
    {                                                                                                                  \
        return b == 0 ? 0 : a % b;                                                                                     \
    }                                                                                                                  \
    QB_INLINE T qb_floor_divide_##format(T a, T b)                                                                     \
    {                                                                                                                  \
        return b == 0 ? 0 : a / b;                                                                                     \
    }                                                                                                                  \
    QB_INLINE T qb_pow_##format(T a, T b)                                                                              \
    {                                                                                                                  \
        typedef T U;                                                                                                   \
        U result = 1, factor = (U)a;                                                                                   \
        for (U n = (U)b; n != 0; n >>= 1) {                                                                            \
            result *= n & 1 ? factor : 1;                                                                              \
            factor *= factor;                                                                                          \
        }                                                                                                              \
        return (T)result;                                                                                              \
    }

QB_SIGNED_ARITHMETIC(int32_t, uint32_t, i32)
QB_SIGNED_ARITHMETIC(int64_t, uint64_t, i64)
QB_UNSIGNED_ARITHMETIC(uint32_t, u32)
QB_UNSIGNED_ARITHMETIC(uint64_t, u64)

#undef QB_SIGNED_ARITHMETIC
#undef QB_UNSIGNED_ARITHMETIC

#endif
