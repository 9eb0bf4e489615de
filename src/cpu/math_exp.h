/* Exponentials: exp, exp2, expm1, sinh, cosh, tanh, sigmoid.
 *
 * All stand on one reduction: x = k ln 2 + r with |r| <= ln(2)/2, so that e^x = 2^k (1 + r + r^2 q(r)) with a
 * polynomial q. What differs is how 2^k, 1 and the polynomial's value p = e^r - 1 are put together again: in the order
 * that rounds the fewest large terms. Coefficients come from tools/fit_polynomials.py. (Method: P. T. P. Tang,
 * "Table-driven implementation of the exponential function", ACM TOMS 15, 1989, without the table; W. J. Cody and W.
 * Waite, "Software Manual for the Elementary Functions", 1980.) */
#ifndef QB_CPU_MATH_EXP_H
#define QB_CPU_MATH_EXP_H

#include "cpu/math_base.h"

/* ---- Float64 */

#define QB_LOG2E_F64    0x1.71547652b82fep+0
#define QB_LN2_F64      0x1.62e42fefa39efp-1
#define QB_LN2_HIGH_F64 0x1.62e42fefa3800p-1 /* 42 bits: times any k it is exact */
#define QB_LN2_LOW_F64  0x1.ef35793c76730p-45

/* x = k ln 2 + r + low */
typedef struct qb_exp_argument_f64 {
    double shifted; /* k, as QB_SHIFT_BIASED + k */
    double k;
    double r, low;
} qb_exp_argument_f64;

QB_INLINE qb_exp_argument_f64 qb_exp_reduce_f64(double x)
{
    double shifted = qb_fma_f64(x, QB_LOG2E_F64, QB_SHIFT_BIASED_F64);
    double k = shifted - QB_SHIFT_BIASED_F64;
    double high = qb_fma_f64(-k, QB_LN2_HIGH_F64, x);
    double r = qb_fma_f64(-k, QB_LN2_LOW_F64, high);
    double low = qb_fma_f64(-k, QB_LN2_LOW_F64, high - r);
    return (qb_exp_argument_f64){shifted, k, r, low};
}

/* q with e^r = 1 + r + r^2 q(r); error 2^-56.3 of e^r. Even and odd powers apart: two chains of half the latency. */
QB_INLINE double qb_exp_tail_f64(double r, double r2)
{
    double even = 0x1.28ad68bcfc76fp-22;
    even = qb_fma_f64(even, r2, 0x1.a0199a16c6e72p-16);
    even = qb_fma_f64(even, r2, 0x1.6c16c18426764p-10);
    even = qb_fma_f64(even, r2, 0x1.555555555088cp-5);
    even = qb_fma_f64(even, r2, 0x1.000000000000ap-1);
    double odd = 0x1.ad7f784630ab2p-26;
    odd = qb_fma_f64(odd, r2, 0x1.71df253bdb377p-19);
    odd = qb_fma_f64(odd, r2, 0x1.a01a012a68f88p-13);
    odd = qb_fma_f64(odd, r2, 0x1.1111111127b9ep-7);
    odd = qb_fma_f64(odd, r2, 0x1.55555555554fap-3);
    return qb_fma_f64(odd, r, even);
}

/* e^(r + low) - 1 */
QB_INLINE double qb_expm1_reduced_f64(double r, double low)
{
    double r2 = r * r;
    return r + qb_fma_f64(r2, qb_exp_tail_f64(r, r2), low);
}

/* Where e^x and e^-x are normal numbers, functions need neither hold their argument back nor scale in two steps. */
QB_INLINE uint64_t qb_exp_is_near_f64(double x)
{
    return QB_TRUE_F64(qb_abs_f64(x) < 708.0);
}

/* e^r for the reduced argument */
QB_INLINE double qb_exp_reduced_f64(qb_exp_argument_f64 a)
{
    double r2 = a.r * a.r;
    return 1.0 + qb_fma_f64(r2, qb_exp_tail_f64(a.r, r2), a.r);
}

QB_INLINE double qb_exp_near_f64(double x)
{
    qb_exp_argument_f64 a = qb_exp_reduce_f64(x);
    return qb_exp_reduced_f64(a) * qb_exp2_of_shifted_f64(a.shifted);
}

QB_INLINE double qb_exp_f64(double x)
{
    qb_exp_argument_f64 a = qb_exp_reduce_f64(qb_clamp_f64(x, -746.0, 710.0));
    return qb_scale_f64(qb_exp_reduced_f64(a), a.k);
}

QB_INLINE double qb_exp2_f64(double x)
{
    x = qb_clamp_f64(x, -1076.0, 1025.0);
    double k = (x + QB_SHIFT_BIASED_F64) - QB_SHIFT_BIASED_F64;
    double r = (x - k) * QB_LN2_F64;
    double r2 = r * r;
    return qb_scale_f64(1.0 + qb_fma_f64(r2, qb_exp_tail_f64(r, r2), r), k);
}

QB_INLINE double qb_expm1_f64(double x)
{
    qb_exp_argument_f64 a = qb_exp_reduce_f64(qb_clamp_f64(x, -40.0, 710.0));
    double r2 = a.r * a.r;
    double c = qb_fma_f64(r2, qb_exp_tail_f64(a.r, r2), a.low);
    /* Half of everything, since 2^k alone may overflow: s/2 - 1/2 is exact where it matters, and the larger term of the
     * sum */
    double s = qb_exp2_of_shifted_f64(a.shifted - 1.0);
    double whole = s - 0.5;
    double sum = qb_fma_f64(s, a.r, whole);
    double error = qb_fma_f64(s, a.r, whole - sum);
    double y = 2.0 * (sum + qb_fma_f64(s, c, error));
    return qb_abs_f64(x) < 0x1p-54 ? x : y;
}

/* e^|x| / 2 for |x| < 711, without overflow */
QB_INLINE double qb_half_exp_f64(double x)
{
    qb_exp_argument_f64 a = qb_exp_reduce_f64(x);
    return qb_scale_f64(1.0 + qb_expm1_reduced_f64(a.r, a.low), a.k - 1.0);
}

QB_INLINE double qb_cosh_f64(double x)
{
    double half = qb_half_exp_f64(qb_clamp_f64(qb_abs_f64(x), 0.0, 712.0));
    return half + 0.25 / half;
}

QB_INLINE double qb_sinh_f64(double x)
{
    double a = qb_abs_f64(x);
    double half = qb_half_exp_f64(qb_clamp_f64(a, 0.0, 712.0));
    double large = half - 0.25 / half;
    /* sinh x = x + x^3 p(x^2) below 1; error 2^-61.8 */
    double z = a * a;
    double p = 0x1.b5c8a0c873de8p-41;
    p = qb_fma_f64(p, z, 0x1.6116f4898c7b6p-33);
    p = qb_fma_f64(p, z, 0x1.ae646ff533107p-26);
    p = qb_fma_f64(p, z, 0x1.71de3a3b069ffp-19);
    p = qb_fma_f64(p, z, 0x1.a01a01a03726ap-13);
    p = qb_fma_f64(p, z, 0x1.111111111101ep-7);
    p = qb_fma_f64(p, z, 0x1.5555555555556p-3);
    double small = qb_fma_f64(a * z, p, a);
    return qb_with_sign_f64(a < 1.0 ? small : large, x);
}

/* Below 0.5625: x + x^3 p(x^2)/q(x^2), error 2^-58; above: 1 - 2/(e^2x + 1). One division serves both. */
QB_INLINE double qb_tanh_f64(double x)
{
    double a = qb_abs_f64(x), twice = a + a;
    qb_exp_argument_f64 e = qb_exp_reduce_f64(twice > 40.0 ? 40.0 : twice);
    double s = qb_exp2_of_shifted_f64(e.shifted);
    double r2 = e.r * e.r;
    double p = qb_fma_f64(r2, qb_exp_tail_f64(e.r, r2), e.r);
    double z = a * a;
    double numerator =
        qb_fma_f64(qb_fma_f64(-0x1.a1cd1da2d834bp-13, z, -0x1.4fde76e08885dp-6), z, -0x1.5555555555555p-2);
    double denominator = qb_fma_f64(0x1.b13be58b1f532p-13, z, 0x1.7da09d39ade0cp-6);
    denominator = qb_fma_f64(qb_fma_f64(denominator, z, 0x1.d8934fe3b32cbp-2), z, 1.0);
    int small = a < 0.5625;
    numerator = small ? a * z * numerator : -2.0;
    denominator = small ? denominator : qb_fma_f64(s, p, s + 1.0);
    double whole = small ? a : 1.0;
    return qb_with_sign_f64(whole + numerator / denominator, x);
}

/* 1 / (1 + e^-x), the denominator summed as 2^k + (1 + 2^k p) for k > 0 and as (1 + 2^k) + 2^k p otherwise: one
 * rounding that counts. Below -600, where the 1 is lost in e^-x anyway, 2^512 is taken out of 2^k, and of the result at
 * the end. */
QB_INLINE double qb_sigmoid_denominator_f64(qb_exp_argument_f64 e, double s)
{
    double whole = s > 1.0 ? s : 1.0 + s, rest = s > 1.0 ? 1.0 : 0.0;
    return whole + qb_fma_f64(s, qb_expm1_reduced_f64(e.r, e.low), rest);
}

QB_INLINE double qb_sigmoid_near_f64(double x)
{
    qb_exp_argument_f64 e = qb_exp_reduce_f64(-x);
    return 1.0 / qb_sigmoid_denominator_f64(e, qb_exp2_of_shifted_f64(e.shifted));
}

QB_INLINE double qb_sigmoid_f64(double x)
{
    qb_exp_argument_f64 e = qb_exp_reduce_f64(qb_clamp_f64(-x, -60.0, 746.0));
    int tail = x < -600.0;
    double s = qb_exp2_of_shifted_f64(e.shifted - (tail ? 512.0 : 0.0));
    return (1.0 / qb_sigmoid_denominator_f64(e, s)) * (tail ? 0x1p-512 : 1.0);
}

/* ---- Float32 */

#define QB_LOG2E_F32    0x1.715476p+0f
#define QB_LN2_F32      0x1.62e43p-1f
#define QB_LN2_HIGH_F32 0x1.62e4p-1f /* 15 bits: times any k it is exact */
#define QB_LN2_LOW_F32  0x1.7f7d1cp-20f

typedef struct qb_exp_argument_f32 {
    float shifted;
    float k;
    float r, low;
} qb_exp_argument_f32;

QB_INLINE qb_exp_argument_f32 qb_exp_reduce_f32(float x)
{
    float shifted = qb_fma_f32(x, QB_LOG2E_F32, QB_SHIFT_BIASED_F32);
    float k = shifted - QB_SHIFT_BIASED_F32;
    float high = qb_fma_f32(-k, QB_LN2_HIGH_F32, x);
    float r = qb_fma_f32(-k, QB_LN2_LOW_F32, high);
    float low = qb_fma_f32(-k, QB_LN2_LOW_F32, high - r);
    return (qb_exp_argument_f32){shifted, k, r, low};
}

/* Error 2^-28 of e^r */
QB_INLINE float qb_exp_tail_f32(float r)
{
    float q = qb_fma_f32(0x1.6a246ap-10f, r, 0x1.1239d4p-7f);
    q = qb_fma_f32(q, r, 0x1.5558fp-5f);
    q = qb_fma_f32(q, r, 0x1.555492p-3f);
    return qb_fma_f32(q, r, 0x1.fffffcp-2f);
}

QB_INLINE float qb_expm1_reduced_f32(float r, float low)
{
    return r + qb_fma_f32(r * r, qb_exp_tail_f32(r), low);
}

QB_INLINE uint32_t qb_exp_is_near_f32(float x)
{
    return QB_TRUE_F32(qb_abs_f32(x) < 87.0f);
}

/* e^r for the reduced argument */
QB_INLINE float qb_exp_reduced_f32(qb_exp_argument_f32 a)
{
    return 1.0f + qb_fma_f32(a.r * a.r, qb_exp_tail_f32(a.r), a.r);
}

QB_INLINE float qb_exp_near_f32(float x)
{
    qb_exp_argument_f32 a = qb_exp_reduce_f32(x);
    return qb_exp_reduced_f32(a) * qb_exp2_of_shifted_f32(a.shifted);
}

QB_INLINE float qb_exp_f32(float x)
{
    qb_exp_argument_f32 a = qb_exp_reduce_f32(qb_clamp_f32(x, -105.0f, 89.0f));
    return qb_scale_f32(qb_exp_reduced_f32(a), a.k);
}

QB_INLINE float qb_exp2_f32(float x)
{
    x = qb_clamp_f32(x, -152.0f, 129.0f);
    float k = (x + QB_SHIFT_BIASED_F32) - QB_SHIFT_BIASED_F32;
    float r = (x - k) * QB_LN2_F32;
    return qb_scale_f32(1.0f + qb_fma_f32(r * r, qb_exp_tail_f32(r), r), k);
}

QB_INLINE float qb_expm1_f32(float x)
{
    qb_exp_argument_f32 a = qb_exp_reduce_f32(qb_clamp_f32(x, -18.0f, 89.0f));
    float c = qb_fma_f32(a.r * a.r, qb_exp_tail_f32(a.r), a.low);
    float s = qb_exp2_of_shifted_f32(a.shifted - 1.0f);
    float whole = s - 0.5f;
    float sum = qb_fma_f32(s, a.r, whole);
    float error = qb_fma_f32(s, a.r, whole - sum);
    float y = 2.0f * (sum + qb_fma_f32(s, c, error));
    return qb_abs_f32(x) < 0x1p-25f ? x : y;
}

/* e^|x| / 2 for |x| < 90, without overflow */
QB_INLINE float qb_half_exp_f32(float x)
{
    qb_exp_argument_f32 a = qb_exp_reduce_f32(x);
    return qb_scale_f32(1.0f + qb_expm1_reduced_f32(a.r, a.low), a.k - 1.0f);
}

QB_INLINE float qb_cosh_f32(float x)
{
    float half = qb_half_exp_f32(qb_clamp_f32(qb_abs_f32(x), 0.0f, 91.0f));
    return half + 0.25f / half;
}

QB_INLINE float qb_sinh_f32(float x)
{
    float a = qb_abs_f32(x);
    float half = qb_half_exp_f32(qb_clamp_f32(a, 0.0f, 91.0f));
    float large = half - 0.25f / half;
    float z = a * a; /* error 2^-25.3 */
    float p = qb_fma_f32(qb_fma_f32(0x1.ab428ap-13f, z, 0x1.10f76p-7f), z, 0x1.555598p-3f);
    float small = qb_fma_f32(a * z, p, a);
    return qb_with_sign_f32(a < 1.0f ? small : large, x);
}

QB_INLINE float qb_tanh_f32(float x)
{
    float a = qb_abs_f32(x), twice = a + a;
    qb_exp_argument_f32 e = qb_exp_reduce_f32(twice > 20.0f ? 20.0f : twice);
    float s = qb_exp2_of_shifted_f32(e.shifted);
    float p = qb_fma_f32(e.r * e.r, qb_exp_tail_f32(e.r), e.r);
    float z = a * a; /* error 2^-28.5 */
    float numerator = qb_fma_f32(-0x1.96547cp-10f, z, -0x1.55554cp-2f);
    float denominator = qb_fma_f32(0x1.9e5a70p-2f, z, 1.0f);
    int small = a < 0.5625f;
    numerator = small ? a * z * numerator : -2.0f;
    denominator = small ? denominator : qb_fma_f32(s, p, s + 1.0f);
    float whole = small ? a : 1.0f;
    return qb_with_sign_f32(whole + numerator / denominator, x);
}

QB_INLINE float qb_sigmoid_denominator_f32(qb_exp_argument_f32 e, float s)
{
    float whole = s > 1.0f ? s : 1.0f + s, rest = s > 1.0f ? 1.0f : 0.0f;
    return whole + qb_fma_f32(s, qb_expm1_reduced_f32(e.r, e.low), rest);
}

QB_INLINE float qb_sigmoid_near_f32(float x)
{
    qb_exp_argument_f32 e = qb_exp_reduce_f32(-x);
    return 1.0f / qb_sigmoid_denominator_f32(e, qb_exp2_of_shifted_f32(e.shifted));
}

QB_INLINE float qb_sigmoid_f32(float x)
{
    qb_exp_argument_f32 e = qb_exp_reduce_f32(qb_clamp_f32(-x, -30.0f, 105.0f));
    int tail = x < -80.0f;
    float s = qb_exp2_of_shifted_f32(e.shifted - (tail ? 64.0f : 0.0f));
    return (1.0f / qb_sigmoid_denominator_f32(e, s)) * (tail ? 0x1p-64f : 1.0f);
}

#endif
