/* Logarithms: log, log2, log10, log1p, and softplus, which is one.
 *
 * x = 2^k m with m in [sqrt(1/2), sqrt(2)) and f = m - 1, exact. With s = f / (2 + f) and w = s^2:
 *     log m = 2 artanh s = f - (f^2/2 - s (f^2/2 + w p(w))),
 * whose leading term f has no rounding error. Coefficients come from tools/fit_polynomials.py. (Method: P. T. P. Tang,
 * "Table-driven implementation of the logarithm function", ACM TOMS 16, 1990; K. C. Ng's form of the sum.) */
#ifndef QB_CPU_MATH_LOG_H
#define QB_CPU_MATH_LOG_H

#include "cpu/math_base.h"
#include "cpu/math_exp.h"

/* ---- Float64 */

/* p with log((1 + s)/(1 - s)) = 2 s + s^3 p(s^2), error 2^-59.5 of the whole. Even and odd powers apart, for the
 * latency. */
QB_INLINE double qb_log_series_f64(double w)
{
    double w2 = w * w;
    double even = qb_fma_f64(qb_fma_f64(0x1.2f02517916570p-3, w2, 0x1.74663ba2ef2a3p-3), w2, 0x1.24924941db47cp-2);
    double odd = qb_fma_f64(qb_fma_f64(0x1.39a20bab229aap-3, w2, 0x1.c71c521a1b133p-3), w2, 0x1.999999997ff63p-2);
    return qb_fma_f64(odd, w, qb_fma_f64(even, w2, 0x1.5555555555592p-1));
}

/* k ln 2 + log(1 + f) + low, for f = m - 1 as above and a small low */
QB_INLINE double qb_log_reduced_f64(double k, double f, double low)
{
    double s = f / (2.0 + f), w = s * s;
    double half_square = 0.5 * f * f;
    double tail = qb_fma_f64(w, qb_log_series_f64(w), half_square);
    tail = qb_fma_f64(s, tail, qb_fma_f64(k, QB_LN2_LOW_F64, low));
    return qb_fma_f64(k, QB_LN2_HIGH_F64, f - (half_square - tail));
}

/* Bits that put the mantissa's binade at [sqrt(1/2), sqrt(2)): adding the difference to 1 carries into the exponent
 * above sqrt(2). */
#define QB_SQRT_HALF_BITS_F64 0x3fe6a09e667f3bcdu
#define QB_ONE_BITS_F64       0x3ff0000000000000u

typedef struct qb_log_argument_f64 {
    uint64_t exponent; /* k + 1023, for positive normal numbers */
    double k, f;
} qb_log_argument_f64;

QB_INLINE qb_log_argument_f64 qb_log_reduce_f64(double x)
{
    uint64_t bits = qb_bits_f64(x) + (QB_ONE_BITS_F64 - QB_SQRT_HALF_BITS_F64);
    uint64_t exponent = bits >> 52;
    double m = qb_of_bits_f64((bits & 0x000fffffffffffffu) + QB_SQRT_HALF_BITS_F64);
    double k = qb_of_bits_f64(exponent | 0x4330000000000000u) - (0x1p52 + 1023);
    return (qb_log_argument_f64){exponent, k, m - 1.0};
}

/* Positive normal numbers */
QB_INLINE uint64_t qb_log_is_near_f64(double x)
{
    return QB_TRUE_F64(x >= 0x1p-1022) & QB_TRUE_F64(x < (double)INFINITY);
}

QB_INLINE double qb_log_near_f64(double x)
{
    qb_log_argument_f64 a = qb_log_reduce_f64(x);
    return qb_log_reduced_f64(a.k, a.f, 0.0);
}

QB_INLINE double qb_log_f64(double x)
{
    int subnormal = x < 0x1p-1022;
    qb_log_argument_f64 a = qb_log_reduce_f64(x * (subnormal ? 0x1p54 : 1.0));
    double y = qb_log_reduced_f64(a.k - (subnormal ? 54.0 : 0.0), a.f, 0.0);
    y = x > 0.0 ? y : x == 0.0 ? -INFINITY : NAN;
    return x < INFINITY ? y : x;
}

/* log of x in another base: k whole + (log(1 + f) rounded + low) scale, where k whole is exact, whole_low and scale_low
 * are what its constants lack, and the product with scale keeps its rounding error. */
QB_INLINE double qb_log_based_f64(double x, double whole, double whole_low, double scale, double scale_low)
{
    qb_log_argument_f64 a = qb_log_reduce_f64(x);
    double s = a.f / (2.0 + a.f), w = s * s;
    double half_square = 0.5 * a.f * a.f;
    double v = half_square - s * qb_fma_f64(w, qb_log_series_f64(w), half_square);
    double log_m = a.f - v, low = (a.f - log_m) - v;
    double product = log_m * scale;
    double error = qb_fma_f64(log_m, scale_low, low * scale);
#if QB_HAS_FMA
    error += qb_fma_f64(log_m, scale, -product);
#endif
    double larger = a.k * whole, sum = larger + product;
    return sum + qb_fma_f64(a.k, whole_low, ((larger - sum) + product) + error);
}

QB_INLINE double qb_log2_near_f64(double x)
{
    return qb_log_based_f64(x, 1.0, 0.0, 0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56);
}

QB_INLINE double qb_log10_near_f64(double x)
{
    return qb_log_based_f64(x, 0x1.34413509f7800p-2, 0x1.fef311f12b358p-46, 0x1.bcb7b1526e50ep-2,
                            0x1.95355baaafad3p-57);
}

QB_INLINE double qb_log2_f64(double x)
{
    int subnormal = x < 0x1p-1022;
    double y = qb_log2_near_f64(x * (subnormal ? 0x1p54 : 1.0)) - (subnormal ? 54.0 : 0.0);
    y = x > 0.0 ? y : x == 0.0 ? -INFINITY : NAN;
    return x < INFINITY ? y : x;
}

QB_INLINE double qb_log10_f64(double x)
{
    int subnormal = x < 0x1p-1022; /* 54 log10(2), of three hundred and more: its error is small against the sum's */
    double y = qb_log10_near_f64(x * (subnormal ? 0x1p54 : 1.0)) - (subnormal ? 0x1.041704c068eefp+4 : 0.0);
    y = x > 0.0 ? y : x == 0.0 ? -INFINITY : NAN;
    return x < INFINITY ? y : x;
}

/* log(u + c) + extra ln 2 for a c that is small against u: with u = 2^k (1 + f) that is log(1 + f + c') = log(1 + f) +
 * c' / (1 + f), c' = 2^-k c, and 1 - f + f^2 is close enough to 1 / (1 + f). */
QB_INLINE double qb_log_sum_f64(double u, double c, double extra)
{
    qb_log_argument_f64 a = qb_log_reduce_f64(u);
    double scale = qb_of_bits_f64(0x7ff0000000000000u - (a.exponent << 52)); /* 2^(1-k); 0 for the largest */
    double reciprocal = qb_fma_f64(a.f, qb_fma_f64(a.f, 0.5, -0.5), 0.5);
    return qb_log_reduced_f64(a.k + extra, a.f, c * scale * reciprocal);
}

QB_INLINE uint64_t qb_log1p_is_near_f64(double x)
{
    return QB_TRUE_F64(x > -1.0) & QB_TRUE_F64(x < (double)INFINITY);
}

QB_INLINE double qb_log1p_near_f64(double x)
{
    double larger = x > 1.0 ? x : 1.0, smaller = x > 1.0 ? 1.0 : x;
    double u = larger + smaller;
    double y = qb_log_sum_f64(u, smaller - (u - larger), 0.0);
    return qb_abs_f64(x) < 0x1p-54 ? x : y; /* with the sign of zero */
}

QB_INLINE double qb_log1p_f64(double x)
{
    double y = qb_log1p_near_f64(x);
    y = x > -1.0 ? y : x == -1.0 ? -INFINITY : NAN;
    return x < INFINITY ? y : x;
}

/* max(x, 0) + log(1 + e), e = e^-|x|. Above sqrt(2), 1 + e is 2 (1 + f) with f = (e - 1)/2; below, f = e: 1 + e is
 * never formed. */
QB_INLINE double qb_softplus_of_exp_f64(double x, double e)
{
    int half = e > 0x1.a827999fcef32p-2; /* sqrt(2) - 1 */
    double f = half ? qb_fma_f64(0.5, e, -0.5) : e;
    double y = qb_log_reduced_f64(half ? 1.0 : 0.0, f, 0.0);
    return (x > 0.0 ? x : 0.0) + y;
}

QB_INLINE double qb_softplus_near_f64(double x)
{
    qb_exp_argument_f64 a = qb_exp_reduce_f64(-qb_abs_f64(x));
    return qb_softplus_of_exp_f64(x, (1.0 + qb_expm1_reduced_f64(a.r, a.low)) * qb_exp2_of_shifted_f64(a.shifted));
}

QB_INLINE double qb_softplus_f64(double x)
{
    qb_exp_argument_f64 a = qb_exp_reduce_f64(qb_clamp_f64(-qb_abs_f64(x), -746.0, 0.0));
    return qb_softplus_of_exp_f64(x, qb_scale_f64(1.0 + qb_expm1_reduced_f64(a.r, a.low), a.k));
}

/* ---- Float32 */

/* Error of the polynomial 2^-30 */
QB_INLINE float qb_log_reduced_f32(float k, float f, float low)
{
    float s = f / (2.0f + f);
    float w = s * s;
    float p = qb_fma_f32(qb_fma_f32(0x1.31e03cp-2f, w, 0x1.995ed8p-2f), w, 0x1.55557ap-1f);
    float half_square = 0.5f * f * f;
    float tail = qb_fma_f32(s, qb_fma_f32(w, p, half_square), qb_fma_f32(k, QB_LN2_LOW_F32, low));
    return qb_fma_f32(k, QB_LN2_HIGH_F32, f - (half_square - tail));
}

#define QB_SQRT_HALF_BITS_F32 0x3f3504f3u
#define QB_ONE_BITS_F32       0x3f800000u

typedef struct qb_log_argument_f32 {
    uint32_t exponent;
    float k, f;
} qb_log_argument_f32;

QB_INLINE qb_log_argument_f32 qb_log_reduce_f32(float x)
{
    uint32_t bits = qb_bits_f32(x) + (QB_ONE_BITS_F32 - QB_SQRT_HALF_BITS_F32);
    uint32_t exponent = bits >> 23;
    float m = qb_of_bits_f32((bits & 0x007fffffu) + QB_SQRT_HALF_BITS_F32);
    float k = (float)((int32_t)exponent - 127);
    return (qb_log_argument_f32){exponent, k, m - 1.0f};
}

QB_INLINE uint32_t qb_log_is_near_f32(float x)
{
    return QB_TRUE_F32(x >= 0x1p-126f) & QB_TRUE_F32(x < (float)INFINITY);
}

QB_INLINE float qb_log_near_f32(float x)
{
    qb_log_argument_f32 a = qb_log_reduce_f32(x);
    return qb_log_reduced_f32(a.k, a.f, 0.0f);
}

QB_INLINE float qb_log_f32(float x)
{
    int subnormal = x < 0x1p-126f;
    qb_log_argument_f32 a = qb_log_reduce_f32(x * (subnormal ? 0x1p25f : 1.0f));
    float y = qb_log_reduced_f32(a.k - (subnormal ? 25.0f : 0.0f), a.f, 0.0f);
    y = x > 0.0f ? y : x == 0.0f ? -INFINITY : NAN;
    return x < INFINITY ? y : x;
}

QB_INLINE uint32_t qb_log1p_is_near_f32(float x)
{
    return QB_TRUE_F32(x > -1.0f) & QB_TRUE_F32(x < (float)INFINITY);
}

QB_INLINE float qb_log1p_near_f32(float x)
{
    float larger = x > 1.0f ? x : 1.0f, smaller = x > 1.0f ? 1.0f : x;
    float u = larger + smaller;
    float c = smaller - (u - larger);
    qb_log_argument_f32 a = qb_log_reduce_f32(u);
    float scale = qb_of_bits_f32(0x7f800000u - (a.exponent << 23));
    float reciprocal = qb_fma_f32(a.f, qb_fma_f32(a.f, 0.5f, -0.5f), 0.5f);
    float y = qb_log_reduced_f32(a.k, a.f, c * scale * reciprocal);
    return qb_abs_f32(x) < 0x1p-25f ? x : y; /* with the sign of zero */
}

QB_INLINE float qb_log1p_f32(float x)
{
    float y = qb_log1p_near_f32(x);
    y = x > -1.0f ? y : x == -1.0f ? -INFINITY : NAN;
    return x < INFINITY ? y : x;
}

QB_INLINE float qb_softplus_of_exp_f32(float x, float e)
{
    int half = e > 0x1.a8279ap-2f;
    float f = half ? qb_fma_f32(0.5f, e, -0.5f) : e;
    float y = qb_log_reduced_f32(half ? 1.0f : 0.0f, f, 0.0f);
    return (x > 0.0f ? x : 0.0f) + y;
}

QB_INLINE float qb_softplus_near_f32(float x)
{
    qb_exp_argument_f32 a = qb_exp_reduce_f32(-qb_abs_f32(x));
    return qb_softplus_of_exp_f32(x, (1.0f + qb_expm1_reduced_f32(a.r, a.low)) * qb_exp2_of_shifted_f32(a.shifted));
}

QB_INLINE float qb_softplus_f32(float x)
{
    qb_exp_argument_f32 a = qb_exp_reduce_f32(qb_clamp_f32(-qb_abs_f32(x), -105.0f, 0.0f));
    return qb_softplus_of_exp_f32(x, qb_scale_f32(1.0f + qb_expm1_reduced_f32(a.r, a.low), a.k));
}

/* Bases 2 and 10 by way of double: every float is a normal double. */
QB_INLINE float qb_log2_near_f32(float x)
{
    return (float)qb_log2_near_f64((double)x);
}

QB_INLINE float qb_log2_f32(float x)
{
    return (float)qb_log2_f64((double)x);
}

QB_INLINE float qb_log10_near_f32(float x)
{
    return (float)qb_log10_near_f64((double)x);
}

QB_INLINE float qb_log10_f32(float x)
{
    return (float)qb_log10_f64((double)x);
}

#endif
