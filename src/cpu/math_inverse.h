/* Inverse trigonometric and hyperbolic functions, in double; a float goes by way of double, since none of them is often
 * hot.
 *
 * Each argument is taken to where a short odd series r + r^3 p(r^2) serves, by an identity that loses nothing: what is
 * added to the series is a constant in two parts, and large against it. Coefficients come from
 * tools/fit_polynomials.py. (W. J. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980.) */
#ifndef QB_CPU_MATH_INVERSE_H
#define QB_CPU_MATH_INVERSE_H

#include "cpu/math_base.h"
#include "cpu/math_log.h"

#define QB_QUARTER_PI_HIGH_F64 0x1.921fb54442d18p-1 /* 50 bits: three times it is exact */
#define QB_QUARTER_PI_LOW_F64  0x1.1a62633145c07p-55

/* ---- Trigonometric */

/* atan t = t + t^3 p(t^2) for |t| <= 1/2, error 2^-62; this is p */
QB_INLINE double qb_arctan_series_f64(double z)
{
    double z2 = z * z;
    double even = -0x1.123df16c39629p-7;
    even = qb_fma_f64(even, z2, -0x1.301d75566d62cp-5);
    even = qb_fma_f64(even, z2, -0x1.ac72b4b511521p-5);
    even = qb_fma_f64(even, z2, -0x1.110c7129c5672p-4);
    even = qb_fma_f64(even, z2, -0x1.745d138f57710p-4);
    even = qb_fma_f64(even, z2, -0x1.2492492453658p-3);
    even = qb_fma_f64(even, z2, -0x1.5555555555552p-2);
    double odd = 0x1.83a9afc88f881p-6;
    odd = qb_fma_f64(odd, z2, 0x1.77fc3d201ae28p-5);
    odd = qb_fma_f64(odd, z2, 0x1.e182d81b3827dp-5);
    odd = qb_fma_f64(odd, z2, 0x1.3b1360b1188f2p-4);
    odd = qb_fma_f64(odd, z2, 0x1.c71c71aaf0086p-4);
    odd = qb_fma_f64(odd, z2, 0x1.99999999990d6p-3);
    double p = qb_fma_f64(odd, z, even);
    return p;
}

/* With a = |x|: a itself up to 1/2; pi/4 + atan((a - 1)/(a + 1)) up to 1 + sqrt(2); pi/2 + atan(-1/a) above */
QB_INLINE double qb_arctan_f64(double x)
{
    double a = qb_abs_f64(x);
    int middle = a > 0.5, large = a > 0x1.3504f333f9de6p+1;
    double numerator = large ? -1.0 : middle ? a - 1.0 : a;
    double denominator = large ? a : middle ? a + 1.0 : 1.0;
    double quarters = large ? 2.0 : middle ? 1.0 : 0.0;
    double t = numerator / denominator, z = t * t;
    double tail = qb_fma_f64(t * z, qb_arctan_series_f64(z), quarters * QB_QUARTER_PI_LOW_F64);
    return qb_with_sign_f64(quarters * QB_QUARTER_PI_HIGH_F64 + (t + tail), x);
}

QB_INLINE uint64_t qb_atan2_is_near_f64(double y, double x)
{
    double a = qb_abs_f64(y), b = qb_abs_f64(x);
    double larger = a > b ? a : b;
    return QB_TRUE_F64(larger > 0.0) & QB_TRUE_F64(larger < 0x1p1000) & QB_TRUE_F64(a + b < 0x1p1001); /* no NaN */
}

/* The smaller over the larger of |y| and |x| as above, then the octant: n quarters of pi plus or minus the series */
QB_INLINE double qb_atan2_near_f64(double y, double x)
{
    double a = qb_abs_f64(y), b = qb_abs_f64(x);
    double larger = a > b ? a : b, smaller = a > b ? b : a;
    int middle = smaller + smaller > larger;
    double t = (middle ? smaller - larger : smaller) / (middle ? smaller + larger : larger), z = t * t;
    double quarters = middle ? 1.0 : 0.0, sign = 1.0;
    quarters = a > b ? 2.0 - quarters : quarters;
    sign = a > b ? -sign : sign;
    quarters = x < 0.0 ? 4.0 - quarters : quarters;
    sign = x < 0.0 ? -sign : sign;
    double tail = qb_fma_f64(sign * t * z, qb_arctan_series_f64(z), quarters * QB_QUARTER_PI_LOW_F64);
    return qb_with_sign_f64(quarters * QB_QUARTER_PI_HIGH_F64 + qb_fma_f64(sign, t, tail), y);
}

/* asin r = r + r^3 p(r^2) for |r| <= 1/2, error 2^-55.8; this is p */
QB_INLINE double qb_arcsin_series_f64(double z)
{
    double z2 = z * z;
    double even = -0x1.09d13148f001bp-6;
    even = qb_fma_f64(even, z2, 0x1.abd166338cd90p-8);
    even = qb_fma_f64(even, z2, 0x1.c6fdcc3c93e71p-7);
    even = qb_fma_f64(even, z2, 0x1.6e89f44b42df2p-6);
    even = qb_fma_f64(even, z2, 0x1.6db6db427c576p-5);
    even = qb_fma_f64(even, z2, 0x1.5555555555390p-3);
    double odd = 0x1.056cc7db68fbfp-5;
    odd = qb_fma_f64(odd, z2, 0x1.3ff3587e6b407p-6);
    odd = qb_fma_f64(odd, z2, 0x1.8ec2bc562203fp-7);
    odd = qb_fma_f64(odd, z2, 0x1.1c6be1105f17fp-6);
    odd = qb_fma_f64(odd, z2, 0x1.f1c72c38713eap-6);
    odd = qb_fma_f64(odd, z2, 0x1.333333336e7cdp-4);
    double p = qb_fma_f64(odd, z, even);
    return p;
}

/* whole - 2 (r + low), rounded once, for 2 |r| < whole */
QB_INLINE double qb_less_twice_f64(double whole, double r, double low)
{
    double difference = whole - 2.0 * r, error = (whole - difference) - 2.0 * r;
    return difference + (error - 2.0 * low);
}

/* Above 1/2: asin a = pi/2 - 2 asin r with r = sqrt((1 - a)/2) */
QB_INLINE double qb_arcsin_f64(double x)
{
    double a = qb_abs_f64(x);
    int small = a < 0.5;
    double z = small ? a * a : 0.5 - 0.5 * a;
    double r = small ? a : __builtin_sqrt(z);
    double tail = r * z * qb_arcsin_series_f64(z);
    double large = qb_less_twice_f64(2.0 * QB_QUARTER_PI_HIGH_F64, r, tail - QB_QUARTER_PI_LOW_F64);
    return qb_with_sign_f64(small ? a + tail : qb_abs_f64(large), x);
}

QB_INLINE double qb_arccos_f64(double x)
{
    double a = qb_abs_f64(x);
    int small = a < 0.5;
    double z = small ? a * a : 0.5 - 0.5 * a;
    double r = small ? x : __builtin_sqrt(z);
    double tail = r * z * qb_arcsin_series_f64(z);
    double middle = qb_less_twice_f64(2.0 * QB_QUARTER_PI_HIGH_F64, 0.5 * r, 0.5 * tail - QB_QUARTER_PI_LOW_F64);
    double left = qb_less_twice_f64(4.0 * QB_QUARTER_PI_HIGH_F64, r, tail - 2.0 * QB_QUARTER_PI_LOW_F64);
    double right = 2.0 * (r + tail);
    return small ? middle : x < 0.0 ? left : right;
}

/* ---- Hyperbolic */

/* log(1 + y) with y = a + a^2 / (1 + sqrt(1 + a^2)), a = |x|; for large a log(2 a) */
QB_INLINE double qb_arcsinh_f64(double x)
{
    double a = qb_abs_f64(x), square = a * a;
    double q = square / (1.0 + __builtin_sqrt(1.0 + square));
    double y = a + q, y_low = (a - y) + q;
    double larger = y > 1.0 ? y : 1.0, smaller = y > 1.0 ? 1.0 : y;
    double u = larger + smaller, c = (smaller - (u - larger)) + y_low;
    int large = a > 0x1p28;
    double r = qb_log_sum_f64(large ? a : u, large ? 0.0 : c, large ? 1.0 : 0.0);
    r = a < 0x1p-54 ? a : r;
    return a < (double)INFINITY ? qb_with_sign_f64(qb_abs_f64(r), x) : x;
}

/* log(1 + y) with y = t + sqrt(t (2 + t)), t = x - 1; for large x log(2 x) */
QB_INLINE double qb_arccosh_f64(double x)
{
    double t = x - 1.0, w = qb_fma_f64(t, t, 2.0 * t);
    double root = __builtin_sqrt(w), root_low = 0.0;
#if QB_HAS_FMA
    double w_low = qb_fma_f64(t, t, 2.0 * t - w);
    root_low = w > 0.0 ? (qb_fma_f64(-root, root, w) + w_low) * (0.5 / root) : 0.0;
#endif
    double y = root + t, y_low = ((root - y) + t) + root_low;
    double larger = y > 1.0 ? y : 1.0, smaller = y > 1.0 ? 1.0 : y;
    double u = larger + smaller, c = (smaller - (u - larger)) + y_low;
    int large = x > 0x1p28;
    double r = qb_log_sum_f64(large ? x : u, large ? 0.0 : c, large ? 1.0 : 0.0);
    r = x > 1.0 ? r : x == 1.0 ? 0.0 : (double)NAN;
    return x < (double)INFINITY ? r : x;
}

/* log((1 + a)/(1 - a)) / 2 for a = |x|, reduced without rounding the quotient: (1 + a)/(1 - a) = 2^k (1 + s)/(1 - s)
 * for s = ((1 + a) - 2^k (1 - a)) / ((1 + a) + 2^k (1 - a)). From 1/2 on, 1 - a is exact; below, two fused products do
 * it. */
QB_INLINE double qb_arctanh_f64(double x)
{
#if QB_HAS_FMA
    double a = qb_abs_f64(x);
    qb_log_argument_f64 e = qb_log_reduce_f64((1.0 + a) / (1.0 - a));
    double power = qb_of_bits_f64(e.exponent << 52);
    int small = a < 0.5;
    double more = 1.0 + a, less = power * (1.0 - a);
    double numerator = small ? qb_fma_f64(a, 1.0 + power, 1.0 - power) : more - less;
    double denominator = small ? qb_fma_f64(a, 1.0 - power, 1.0 + power) : more + less;
    double s = numerator / denominator, w = s * s;
    double tail = qb_fma_f64(s * w, 0.5 * qb_log_series_f64(w), e.k * (0.5 * QB_LN2_LOW_F64));
    double y = qb_fma_f64(e.k, 0.5 * QB_LN2_HIGH_F64, s + tail);
    y = a < 1.0 ? y : a == 1.0 ? (double)INFINITY : (double)NAN;
    return qb_with_sign_f64(y, x);
#else
    return atanh(x);
#endif
}

/* ---- Float32 */

#define QB_BY_DOUBLE(name)                                                                                             \
    QB_INLINE float qb_##name##_f32(float x)                                                                           \
    {                                                                                                                  \
        return (float)qb_##name##_f64((double)x);                                                                      \
    }
QB_BY_DOUBLE(arctan)
QB_BY_DOUBLE(arcsin)
QB_BY_DOUBLE(arccos)
QB_BY_DOUBLE(arcsinh)
QB_BY_DOUBLE(arccosh)
QB_BY_DOUBLE(arctanh)
#undef QB_BY_DOUBLE

QB_INLINE uint32_t qb_atan2_is_near_f32(float y, float x)
{
    float a = qb_abs_f32(y), b = qb_abs_f32(x);
    return QB_TRUE_F32(a + b > 0.0f) & QB_TRUE_F32(a + b < (float)INFINITY);
}

QB_INLINE float qb_atan2_near_f32(float y, float x)
{
    return (float)qb_atan2_near_f64((double)y, (double)x);
}

#endif
