/* Error function and its complement.
 *
 * Near 0 an odd polynomial; elsewhere e^(-x^2) times a rational function p/q with positive coefficients, which is well conditioned
 * (W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23, 1969, splits the axis likewise). The rounding
 * error of x^2 is carried into the exponential. Coefficients come from tools/fit_polynomials.py. */
#ifndef QB_CPU_MATH_ERF_H
#define QB_CPU_MATH_ERF_H

#include "cpu/math_base.h"
#include "cpu/math_exp.h"

/* ----------------------------------------------------------------------------------------------------------- float64 */

/* a * a - square, for square = a * a rounded */
static inline double qb_square_error_f64(double a, double square)
{
#if QB_HAS_FMA
    return qb_fma_f64(a, a, -square);
#else
    double scaled = a * (0x1p27 + 1), high = scaled - (scaled - a), low = a - high; /* Veltkamp, Dekker */
    return ((high * high - square) + 2.0 * high * low) + low * low;
#endif
}

/* x + x p(x^2) for |x| < 1, error 2^-56.3 */
static inline double qb_erf_near_f64(double a)
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
static inline double qb_erf_f64(double x)
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

/* e^(-a^2) p(a)/q(a) for a = |x|, error 2^-54.7; 2 less that for negative x */
static inline double qb_erfc_f64(double x)
{
    double a = qb_clamp_f64(qb_abs_f64(x), 0.0, 27.5);
    double square = a * a;
    qb_exp_argument_f64 e = qb_exp_reduce_f64(-square);
    double low = e.low - qb_square_error_f64(a, square);
    double r = e.r + low; /* anew: the error of the square is many times that of r */
    double y = 1.0 + qb_expm1_reduced_f64(r, low - (r - e.r));
    double p = 0x1.a101bfabce0aep-19;
    p = qb_fma_f64(p, a, 0x1.48074f63dc618p-14);
    p = qb_fma_f64(p, a, 0x1.fbae5bd6f2e52p-11);
    p = qb_fma_f64(p, a, 0x1.f8cb2eba5868dp-8);
    p = qb_fma_f64(p, a, 0x1.63fd82965f224p-5);
    p = qb_fma_f64(p, a, 0x1.7479467db6fadp-3);
    p = qb_fma_f64(p, a, 0x1.2671dd7d598ddp-1);
    p = qb_fma_f64(p, a, 0x1.5fb28725fdbcbp+0);
    p = qb_fma_f64(p, a, 0x1.37a4c59fa172cp+1);
    p = qb_fma_f64(p, a, 0x1.88100fd41ebcdp+1);
    p = qb_fma_f64(p, a, 0x1.3de9925392ba0p+1);
    p = qb_fma_f64(p, a, 0x1.0000000000000p+0);
    double q = 0x1.71900be7b81d4p-18;
    q = qb_fma_f64(q, a, 0x1.22b52e4f6bc7cp-13);
    q = qb_fma_f64(q, a, 0x1.c2a477c621dc6p-10);
    q = qb_fma_f64(q, a, 0x1.c1a2062dab57ap-7);
    q = qb_fma_f64(q, a, 0x1.3efdecb0315e3p-4);
    q = qb_fma_f64(q, a, 0x1.5103eaf55fc8ap-2);
    q = qb_fma_f64(q, a, 0x1.0e96029c0a780p+0);
    q = qb_fma_f64(q, a, 0x1.4b768f1dd5b71p+1);
    q = qb_fma_f64(q, a, 0x1.3279dde664d16p+2);
    q = qb_fma_f64(q, a, 0x1.a01ce74b51f5dp+2);
    q = qb_fma_f64(q, a, 0x1.88e1adea57c5ep+2);
    q = qb_fma_f64(q, a, 0x1.ce584cd5a7956p+1);
    q = qb_fma_f64(q, a, 0x1.0000000000000p+0);
    y = qb_scale_f64(y * p / q, e.k);
    return x < 0.0 ? 2.0 - y : y;
}

/* ----------------------------------------------------------------------------------------------------------- float32 */

/* The same to 2^-29.4 below 1 and 2^-26 above; erfc to 2^-24.7 */
static inline float qb_square_error_f32(float a, float square)
{
#if QB_HAS_FMA
    return qb_fma_f32(a, a, -square);
#else
    return (float)((double)a * a - (double)square);
#endif
}

static inline float qb_erf_near_f32(float a)
{
    float z = a * a;
    float p = qb_fma_f32(0x1.4771fep-14f, z, -0x1.a3515ep-11f);
    p = qb_fma_f32(qb_fma_f32(p, z, 0x1.53f224p-8f), z, -0x1.b7f71ap-6f);
    p = qb_fma_f32(qb_fma_f32(p, z, 0x1.ce2ce6p-4f), z, -0x1.81273ep-2f);
    p = qb_fma_f32(p, z, 0x1.06eba8p-3f);
    return qb_fma_f32(a, p, a);
}

static inline float qb_erf_f32(float x)
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

static inline float qb_erfc_f32(float x)
{
    float a = qb_clamp_f32(qb_abs_f32(x), 0.0f, 10.5f);
    float square = a * a;
    qb_exp_argument_f32 e = qb_exp_reduce_f32(-square);
    float low = e.low - qb_square_error_f32(a, square);
    float r = e.r + low; /* anew: the error of the square is many times that of r */
    float y = 1.0f + qb_expm1_reduced_f32(r, low - (r - e.r));
    float p = qb_fma_f32(qb_fma_f32(0x1.12efdap-5f, a, 0x1.dcdca8p-3f), a, 0x1.7a75e8p-1f);
    p = qb_fma_f32(qb_fma_f32(p, a, 0x1.3ee07ep+0f), a, 1.0f);
    float q = qb_fma_f32(qb_fma_f32(0x1.e74ee8p-5f, a, 0x1.a6a1acp-2f), a, 0x1.56ea8ep+0f);
    q = qb_fma_f32(qb_fma_f32(q, a, 0x1.357edcp+1f), a, 0x1.2fdefep+1f);
    q = qb_fma_f32(q, a, 1.0f);
    y = qb_scale_f32(y * p / q, e.k);
    return x < 0.0f ? 2.0f - y : y;
}

#endif
