/* Roots and powers: cbrt, hypot, pow. Coefficients come from tools/fit_polynomials.py. */
#ifndef QB_CPU_MATH_POWER_H
#define QB_CPU_MATH_POWER_H

#include "cpu/math_base.h"
#include "cpu/math_exp.h"
#include "cpu/math_log.h"

/* x = 2^(3 q) m, 1 <= m < 8. z = m^(-1/3) from a polynomial and one step of third order; t = m z^2, cut to 25 bits, has
 * an exact square, so that r = m / t^2 has one rounding error; y = t + (r - t)/3 - ... is a last step of third order.
 * (This end of the method: W. Kahan, "Computing a real cube root", 1991.) Error below 0.7 ulp. */
QB_INLINE double qb_cbrt_f64(double x)
{
    double a = qb_abs_f64(x);
    int subnormal = a < 0x1p-1022;
    uint64_t bits = qb_bits_f64(a * (subnormal ? 0x1p54 : 1.0));
    double exponent = qb_of_bits_f64((bits >> 52) | 0x4330000000000000u) - (0x1p52 + 1023);
    double m = qb_of_bits_f64((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
    double shifted = (exponent - 1.0) * (1.0 / 3.0) + QB_SHIFT_BIASED_F64; /* rounds to the floor of exponent / 3 */
    double rest = exponent - 3.0 * (shifted - QB_SHIFT_BIASED_F64);
    double z = 0x1.d46f692020e0dp-6;
    z = qb_fma_f64(z, m, -0x1.c518548a83378p-3);
    z = qb_fma_f64(z, m, 0x1.64164b153bf63p-1);
    z = qb_fma_f64(z, m, -0x1.2c41e091ee778p+0);
    z = qb_fma_f64(z, m, 0x1.ab858ffd15060p+0);
    z *= rest > 1.5 ? 0x1.428a2f98d728bp-1 : rest > 0.5 ? 0x1.965fea53d6e3dp-1 : 1.0; /* 2^(-rest/3) */
    m *= rest > 1.5 ? 4.0 : rest > 0.5 ? 2.0 : 1.0;
    double h = 1.0 - m * z * z * z;
    z = qb_fma_f64(z * h, qb_fma_f64(2.0 / 9.0, h, 1.0 / 3.0), z);
    double t = qb_of_bits_f64(qb_bits_f64(m * z * z) & 0xfffffffff0000000u);
    double d = m / (t * t) - t;
    double y = t + d * qb_fma_f64(d * z, -1.0 / 9.0, 1.0 / 3.0);
    y = y * qb_exp2_of_shifted_f64(shifted) * (subnormal ? 0x1p-18 : 1.0);
    return a > 0.0 && a < (double)INFINITY ? qb_with_sign_f64(y, x) : x;
}

QB_INLINE float qb_cbrt_f32(float x)
{
    return (float)qb_cbrt_f64((double)x);
}

/* NaN where either is. */
QB_INLINE double qb_norm_f64(double x, double y)
{
    double a = qb_abs_f64(x), b = qb_abs_f64(y);
    double larger = a > b ? a : b, smaller = a > b ? b : a;
    int huge = larger > 0x1p500, small = larger < 0x1p-450;
    double scale = huge ? 0x1p-600 : small ? 0x1p600 : 1.0, back = huge ? 0x1p600 : small ? 0x1p-600 : 1.0;
    larger *= scale;
    smaller *= scale;
    return __builtin_sqrt(qb_fma_f64(larger, larger, smaller * smaller)) * back;
}

QB_INLINE double qb_hypot_f64(double x, double y)
{
    double h = qb_norm_f64(x, y), infinity = (double)INFINITY;
    return qb_abs_f64(x) == infinity || qb_abs_f64(y) == infinity ? infinity : h; /* also against NaN */
}

QB_INLINE float qb_norm_f32(float x, float y)
{
    double a = (double)x, b = (double)y;
    return (float)__builtin_sqrt(a * a + b * b);
}

QB_INLINE float qb_hypot_f32(float x, float y)
{
    float h = qb_norm_f32(x, y);
    return qb_abs_f32(x) == INFINITY || qb_abs_f32(y) == INFINITY ? INFINITY : h;
}

/* A logarithm as a sum whose error is 2^-64 of it: y log x may be 700, and its error in absolute terms is the power's
 * in relative ones. Every product and quotient keeps its rounding error (T. J. Dekker, "A floating-point technique for
 * extending the available precision", 1971); only the terms from s^5 on are plain. */
typedef struct qb_log_double_f64 {
    double high, low;
} qb_log_double_f64;

QB_INLINE qb_log_double_f64 qb_log_double_f64_of(double x)
{
    qb_log_argument_f64 a = qb_log_reduce_f64(x);
    double f = a.f, d = 2.0 + f, d_low = f - (d - 2.0);
    double reciprocal = 1.0 / d, s = f * reciprocal;
    double s_low = (qb_fma_f64(-s, d, f) - s * d_low) * reciprocal;
    double w = s * s, w_low = qb_fma_f64(2.0 * s, s_low, qb_fma_f64(s, s, -w));
    /* p = 2/3 + w q(w), cubic = s w p */
    double q = 0x1.0e41127b8bca1p-3;
    q = qb_fma_f64(q, w, 0x1.0f80185ad5307p-3);
    q = qb_fma_f64(q, w, 0x1.3b1ee9eb0d5bfp-3);
    q = qb_fma_f64(q, w, 0x1.745ce9efd875bp-3);
    q = qb_fma_f64(q, w, 0x1.c71c722d3fc9bp-3);
    q = qb_fma_f64(q, w, 0x1.2492492457f2fp-2);
    q = qb_fma_f64(q, w, 0x1.9999999999b2fp-2);
    double wq = w * q, third = 0x1.5555555555555p-1;
    double p = third + wq, p_low = ((third - p) + wq) + 0x1.5555555555555p-55;
    double sw = s * w, sw_low = qb_fma_f64(s, w, -sw) + qb_fma_f64(s, w_low, s_low * w);
    double cubic = sw * p, cubic_low = qb_fma_f64(sw, p, -cubic) + qb_fma_f64(sw, p_low, sw_low * p);
    double twice = 2.0 * s, sum = twice + cubic, sum_low = ((twice - sum) + cubic) + qb_fma_f64(2.0, s_low, cubic_low);
    double whole = a.k * QB_LN2_HIGH_F64, high = whole + sum;
    return (qb_log_double_f64){high, ((whole - high) + sum) + qb_fma_f64(a.k, QB_LN2_LOW_F64, sum_low)};
}

QB_INLINE uint64_t qb_pow_is_near_f64(double x, double y)
{
    return QB_HAS_FMA ? qb_log_is_near_f64(x) & QB_TRUE_F64(qb_abs_f64(y) < 0x1p60) : 0;
}

/* e^(y log x) for what qb_pow_is_near_f64 admits */
QB_INLINE double qb_pow_near_f64(double x, double y)
{
    qb_log_double_f64 l = qb_log_double_f64_of(x);
    double product = y * l.high;
    double product_low = qb_fma_f64(y, l.high, -product) + y * l.low;
    qb_exp_argument_f64 e = qb_exp_reduce_f64(qb_clamp_f64(product, -746.0, 710.0));
    double low = e.low + (qb_abs_f64(product) < 746.0 ? product_low : 0.0);
    double r = e.r + low;
    return qb_scale_f64(1.0 + qb_expm1_reduced_f64(r, low - (r - e.r)), e.k);
}

QB_INLINE uint32_t qb_pow_is_near_f32(float x, float y)
{
    return QB_TRUE_F32(x > 0.0f) & QB_TRUE_F32(x < (float)INFINITY) & QB_TRUE_F32(qb_abs_f32(y) < 0x1p60f);
}

QB_INLINE float qb_pow_near_f32(float x, float y)
{
    return (float)qb_exp_f64((double)y * qb_log_near_f64((double)x));
}

#endif
