/* Error function and its complement.
 *
 * erf: near 0 an odd polynomial; elsewhere 1 less e^(-x^2) times a rational function (W. J. Cody, "Rational Chebyshev
 * approximations for the error function", Math. Comp. 23, 1969, splits the axis likewise). erfc: e^(-x^2) times one
 * polynomial in a variable that takes the half-axis to an interval (J. L. Schonfelder, "Chebyshev expansions for the
 * error and related functions", Math. Comp. 32, 1978), the rounding error of x^2 carried into the exponential.
 * Coefficients come from tools/fit_polynomials.py. */
#ifndef QB_CPU_MATH_ERF_H
#define QB_CPU_MATH_ERF_H

#include "cpu/math_base.h"
#include "cpu/math_exp.h"

/* ---- Float64 */

/* a * a - square, for square = a * a rounded */
QB_INLINE double qb_square_error_f64(double a, double square)
{
#if QB_HAS_FMA
    return qb_fma_f64(a, a, -square);
#else
    double scaled = a * (0x1p27 + 1), high = scaled - (scaled - a), low = a - high; /* Veltkamp, Dekker */
    return ((high * high - square) + 2.0 * high * low) + low * low;
#endif
}

/* x + x p(x^2) for |x| < 1, error 2^-56.3 */
QB_INLINE double qb_erf_near_f64(double a)
{
    double z = a * a;
    double p = 0x1.3b711017aa4f3p-33;
    p = qb_fma_f64(p, z, -0x1.c4981a06881f6p-30);
    p = qb_fma_f64(p, z, 0x1.131b6f0a3510ep-26);
    p = qb_fma_f64(p, z, -0x1.638fdc444ba0dp-23);
    p = qb_fma_f64(p, z, 0x1.ba68fb490a97fp-20);
    p = qb_fma_f64(p, z, -0x1.f4dcef96c5581p-17);
    p = qb_fma_f64(p, z, 0x1.f9a3b93f3814dp-14);
    p = qb_fma_f64(p, z, -0x1.c02db9328e518p-11);
    p = qb_fma_f64(p, z, 0x1.565bcd2c60b75p-8);
    p = qb_fma_f64(p, z, -0x1.b82ce31354c51p-6);
    p = qb_fma_f64(p, z, 0x1.ce2f21a0458d7p-4);
    p = qb_fma_f64(p, z, -0x1.812746b037a25p-2);
    p = qb_fma_f64(p, z, 0x1.06eba8214db69p-3);
    return qb_fma_f64(a, p, a);
}

/* Above 1: 1 - e^(-x^2) p(x)/q(x), error 2^-57.5 */
QB_INLINE double qb_erf_f64(double x)
{
    double a = qb_abs_f64(x);
    double b = a > 6.0 ? 6.0 : a;
    qb_exp_argument_f64 e = qb_exp_reduce_f64(-b * b);
    double r2 = e.r * e.r;
    double exponential = qb_exp2_of_shifted_f64(e.shifted) * (1.0 + qb_fma_f64(r2, qb_exp_tail_f64(e.r, r2), e.r));
    double p = qb_fma_f64(0x1.24a84305f8600p-7, b, 0x1.598465d62966bp-4);
    p = qb_fma_f64(qb_fma_f64(p, b, 0x1.7e95b1b3226f5p-2), b, 0x1.e62bb5a57747ap-1);
    p = qb_fma_f64(qb_fma_f64(p, b, 0x1.63fe8dbc938cfp+0), b, 0x1.fffffc349d9b1p-1);
    double q = qb_fma_f64(0x1.035cdde888ffdp-6, b, 0x1.3232d9724b4cfp-3);
    q = qb_fma_f64(qb_fma_f64(q, b, 0x1.5723cf3b7a645p-1), b, 0x1.c1d91f38b0132p+0);
    q = qb_fma_f64(qb_fma_f64(q, b, 0x1.655dc23aac728p+1), b, 0x1.426df7622edf5p+1);
    q = qb_fma_f64(q, b, 1.0);
    double far = 1.0 - exponential * p / q;
    return qb_with_sign_f64(a < 1.0 ? qb_erf_near_f64(a) : far, x);
}

/* With a = |x|: 1 - erf a below 3/4; above, e^(-a^2) p(t)/(1 + 2 a) with t = (a - 3)/(a + 3), error 2^-55.77. For
 * negative x, 2 less that. */
QB_INLINE double qb_erfc_f64(double x)
{
    double a = qb_clamp_f64(qb_abs_f64(x), 0.0, 27.5);
    double square = a * a;
    qb_exp_argument_f64 e = qb_exp_reduce_f64(-square);
    double low = e.low - qb_square_error_f64(a, square);
    double r = e.r + low; /* anew: the error of the square is many times that of r */
    double w = qb_expm1_reduced_f64(r, low - (r - e.r));
    double t = (a - 3.0) / (a + 3.0);
    double p = -0x1.82b37f8b788b8p-27;
    p = qb_fma_f64(p, t, 0x1.d25736f6331dbp-24);
    p = qb_fma_f64(p, t, -0x1.1eecb6998f2cep-24);
    p = qb_fma_f64(p, t, -0x1.5d71918c5e6f5p-21);
    p = qb_fma_f64(p, t, 0x1.4b5574e11c144p-22);
    p = qb_fma_f64(p, t, 0x1.d6333d992996dp-19);
    p = qb_fma_f64(p, t, -0x1.7f9136d39e477p-21);
    p = qb_fma_f64(p, t, -0x1.517620d0fb3eap-16);
    p = qb_fma_f64(p, t, 0x1.4bebd09117993p-18);
    p = qb_fma_f64(p, t, 0x1.065c16b75a345p-13);
    p = qb_fma_f64(p, t, -0x1.b9120c74b2520p-14);
    p = qb_fma_f64(p, t, -0x1.98db6361549b2p-11);
    p = qb_fma_f64(p, t, 0x1.ef1bdcea76ddcp-10);
    p = qb_fma_f64(p, t, 0x1.4b884ead1973fp-9);
    p = qb_fma_f64(p, t, -0x1.8574c40bbae83p-6);
    p = qb_fma_f64(p, t, 0x1.17ca2877c828bp-4);
    p = qb_fma_f64(p, t, -0x1.e88b803a48e43p-4);
    p = qb_fma_f64(p, t, 0x1.098366a5b4e06p-3);
    p = qb_fma_f64(p, t, -0x1.85a15c58aa60dp-5);
    p = qb_fma_f64(p, t, -0x1.15c084bb9e8ffp-3);
    p = 0x1.40c522d7e4987p+0 + qb_fma_f64(p, t, 0x1.a2024b5c767d0p-55); /* 1.25, in two parts */
    double far = qb_scale_f64(qb_fma_f64(p, w, p) / (1.0 + a + a), e.k);
    double near = 1.0 - qb_with_sign_f64(qb_erf_near_f64(a), x);
    far = x < 0.0 ? 2.0 - far : far;
    return a < 0.75 ? near : far;
}

/* ---- Float32 */

/* The same to 2^-29.4 below 1 and 2^-26 above; erfc to 2^-31.32 */
QB_INLINE float qb_square_error_f32(float a, float square)
{
#if QB_HAS_FMA
    return qb_fma_f32(a, a, -square);
#else
    return (float)((double)a * a - (double)square);
#endif
}

QB_INLINE float qb_erf_near_f32(float a)
{
    float z = a * a;
    float p = qb_fma_f32(0x1.4771fep-14f, z, -0x1.a3515ep-11f);
    p = qb_fma_f32(qb_fma_f32(p, z, 0x1.53f224p-8f), z, -0x1.b7f71ap-6f);
    p = qb_fma_f32(qb_fma_f32(p, z, 0x1.ce2ce6p-4f), z, -0x1.81273ep-2f);
    p = qb_fma_f32(p, z, 0x1.06eba8p-3f);
    return qb_fma_f32(a, p, a);
}

QB_INLINE float qb_erf_f32(float x)
{
    float a = qb_abs_f32(x);
    float b = a > 4.0f ? 4.0f : a;
    qb_exp_argument_f32 e = qb_exp_reduce_f32(-b * b);
    float exponential = qb_exp2_of_shifted_f32(e.shifted) * (1.0f + qb_fma_f32(e.r * e.r, qb_exp_tail_f32(e.r), e.r));
    float p = qb_fma_f32(qb_fma_f32(0x1.b697c4p-9f, b, 0x1.a722a8p-2f), b, 0x1.fcada2p-1f);
    float q = qb_fma_f32(qb_fma_f32(0x1.9535ecp-1f, b, 0x1.81a05ep+0f), b, 1.0f);
    float far = 1.0f - exponential * p / q;
    return qb_with_sign_f32(a < 1.0f ? qb_erf_near_f32(a) : far, x);
}

QB_INLINE float qb_erfc_f32(float x)
{
    float a = qb_clamp_f32(qb_abs_f32(x), 0.0f, 10.5f);
    float square = a * a;
    qb_exp_argument_f32 e = qb_exp_reduce_f32(-square);
    float low = e.low - qb_square_error_f32(a, square);
    float r = e.r + low; /* anew: the error of the square is many times that of r */
    float w = qb_expm1_reduced_f32(r, low - (r - e.r));
    float t = (a - 3.0f) / (a + 3.0f);
    float p = -0x1.03955ep-13f;
    p = qb_fma_f32(p, t, -0x1.633ccep-11f);
    p = qb_fma_f32(p, t, 0x1.f325a2p-10f);
    p = qb_fma_f32(p, t, 0x1.47486p-9f);
    p = qb_fma_f32(p, t, -0x1.8585c6p-6f);
    p = qb_fma_f32(p, t, 0x1.17cefap-4f);
    p = qb_fma_f32(p, t, -0x1.e88b1p-4f);
    p = qb_fma_f32(p, t, 0x1.098342p-3f);
    p = qb_fma_f32(p, t, -0x1.85a164p-5f);
    p = qb_fma_f32(p, t, -0x1.15c084p-3f);
    p = 0x1.40c522p+0f + qb_fma_f32(p, t, 0x1.b076d4p-25f); /* 1.25, in two parts */
    float far = qb_scale_f32(qb_fma_f32(p, w, p) / (1.0f + a + a), e.k);
    float near = 1.0f - qb_with_sign_f32(qb_erf_near_f32(a), x);
    far = x < 0.0f ? 2.0f - far : far;
    return a < 0.75f ? near : far;
}

#endif
