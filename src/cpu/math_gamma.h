/* Logarithm of the gamma function and its derivatives, in double for both formats, lane by lane.
 *
 * lgamma is the C library's, which is within 2 ulp for positive arguments; the thread-safe one where there is one.
 * digamma: on [1, 2] the distance from its zero times a rational function; beyond, sums of 1/x lead there, or, from
 * 10 on, the asymptotic series (Abramowitz and Stegun 6.3.18). polygamma(n, x), the n-th derivative of digamma, is
 * n! times a Hurwitz zeta function, summed after Euler and Maclaurin (Olver et al., NIST Handbook, 25.11.5); left of
 * 0 by reflection. Coefficients of the rational function come from tools/fit_polynomials.py. */
#ifndef QB_CPU_MATH_GAMMA_H
#define QB_CPU_MATH_GAMMA_H

#include "cpu/math_base.h"

QB_INLINE double qb_lgamma_f64(double x)
{
#if defined(_GNU_SOURCE) || defined(__APPLE__)
    int sign;
    return lgamma_r(x, &sign);
#else
    return lgamma(x);
#endif
}

/* 1 <= x <= 2: (x - zero) (middle + t p(t)/q(t)), t = x - 3/2, error 2^-55.2; the zero and the middle in two parts. */
QB_INLINE double qb_digamma_near_f64(double x)
{
    double t = x - 1.5, distance = (x - 0x1.762d86356be3fp+0) - 0x1.b86a722197829p-54;
    double p = qb_fma_f64(-0x1.6239265355828p-27, t, -0x1.59612dabfcc3bp-14);
    p = qb_fma_f64(qb_fma_f64(p, t, -0x1.9433321bef157p-9), t, -0x1.37fe1076e4556p-5);
    p = qb_fma_f64(qb_fma_f64(p, t, -0x1.a1eed2b1b1814p-3), t, -0x1.f3d036a16e778p-2);
    p = qb_fma_f64(p, t, -0x1.b1cb63005ee96p-2);
    double q = qb_fma_f64(0x1.711ab6c212e41p-14, t, 0x1.dfb2a875e0153p-9);
    q = qb_fma_f64(qb_fma_f64(q, t, 0x1.aab8cf71ebd87p-5), t, 0x1.5cebe9a1971a5p-2);
    q = qb_fma_f64(qb_fma_f64(q, t, 0x1.1ba8d633bb178p+0), t, 0x1.b85245bf099a2p+0);
    q = qb_fma_f64(q, t, 1.0);
    return distance * (0x1.e6f0cbb873616p-1 + qb_fma_f64(t, p / q, 0x1.8f70c7a125e6ap-55));
}

/* x >= 10 */
QB_INLINE double qb_digamma_far_f64(double x)
{
    double z = 1.0 / (x * x), s = 3617.0 / 8160;
    s = qb_fma_f64(s, -z, 1.0 / 12);
    s = qb_fma_f64(s, -z, 691.0 / 32760);
    s = qb_fma_f64(s, -z, 1.0 / 132);
    s = qb_fma_f64(s, -z, 1.0 / 240);
    s = qb_fma_f64(s, -z, 1.0 / 252);
    s = qb_fma_f64(s, -z, 1.0 / 120);
    s = qb_fma_f64(s, -z, 1.0 / 12);
    return log(x) - (0.5 / x + s * z);
}

/* x > 0. Below 10 the terms 1/(x - k) are added with their rounding errors (Knuth's two-sum). */
QB_INLINE double qb_digamma_positive_f64(double x)
{
    double sum = 0, error = 0;
    if (x >= 10)
        return qb_digamma_far_f64(x);
    if (x < 1)
        return qb_digamma_near_f64(x + 1) - 1 / x;
    while (x > 2) {
        x -= 1;
        double term = 1 / x, total = sum + term, part = total - sum;
        error += (sum - (total - part)) + (term - part);
        sum = total;
    }
    return sum + (qb_digamma_near_f64(x) + error);
}

/* -inf at +0, inf at -0, as the limits; NaN at the other poles, where they differ. */
QB_INLINE double qb_digamma_f64(double x)
{
    if (x != x || x == (double)INFINITY)
        return x;
    if (x > 0)
        return qb_digamma_positive_f64(x);
    if (x == __builtin_floor(x) || x == -(double)INFINITY)
        return x == 0 ? -1 / x : (double)NAN;
    double fraction = x - __builtin_rint(x);
    return qb_digamma_positive_f64(1 - x) - M_PI / tan(M_PI * fraction);
}

/* Sum of (x + k)^-s over k = 0, 1, ..., for x > 0 and integers s >= 2 */
QB_INLINE double qb_hurwitz_zeta_f64(double s, double x)
{
    static const double weights[] = {1.0 / 12,          -1.0 / 720,
                                     1.0 / 30240,       -1.0 / 1209600,
                                     1.0 / 47900160,    -691.0 / 1307674368000,
                                     1.0 / 74724249600, -3617.0 / 10670622842880000};
    double sum = 0, far = 1.5 * s + 14;
    for (; x < far; x += 1) {
        double term = pow(x, -s);
        if (sum + term == sum) /* later terms are smaller still */
            return sum;
        sum += term;
    }
    double power = pow(x, -s), tail = power * (x / (s - 1) + 0.5), rising = s * power / x;
    for (int j = 0; j < 8; j++) {
        tail += weights[j] * rising;
        rising *= (s + 2 * j + 1) * (s + 2 * j + 2) / (x * x);
    }
    return sum + tail;
}

/* n = 0, 1, 2, ...; NaN for others, and at the poles where the limits differ. */
QB_INLINE double qb_polygamma_f64(double n, double x)
{
    if (x != x || !(n >= 0) || n != __builtin_floor(n) || n > 0x1p52)
        return (double)NAN;
    if (n == 0)
        return qb_digamma_f64(x);
    bool is_odd = n - 2 * __builtin_floor(n / 2) != 0;
    double sign = is_odd ? 1.0 : -1.0, scale = sign * tgamma(n + 1), s = n + 1;
    if (x == (double)INFINITY)
        return sign * 0.0;
    if (x > 0)
        return scale * qb_hurwitz_zeta_f64(s, x);
    double fraction = x - __builtin_floor(x);
    if (!(fraction > 0) || x == -(double)INFINITY) /* a pole, or next to one */
        return is_odd && x != -(double)INFINITY ? (double)INFINITY : (double)NAN;
    double left = qb_hurwitz_zeta_f64(s, 1 - fraction) - qb_hurwitz_zeta_f64(s, 1 - x);
    return scale * (qb_hurwitz_zeta_f64(s, fraction) + sign * left);
}

QB_INLINE float qb_lgamma_f32(float x)
{
    return (float)qb_lgamma_f64((double)x);
}

QB_INLINE float qb_digamma_f32(float x)
{
    return (float)qb_digamma_f64((double)x);
}

QB_INLINE float qb_polygamma_f32(float n, float x)
{
    return (float)qb_polygamma_f64((double)n, (double)x);
}

#endif
