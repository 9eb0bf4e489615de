/* Sine, cosine, tangent.
 *
 * |x| = q pi/2 + r + low with |r| <= pi/4: pi/2 stands in three parts. A fused product takes q times
 * the first part off exactly, and what the second subtraction rounds away is kept, since next to a multiple of pi/2
 * little else is left. (W. J. Cody and W. Waite, "Software Manual for the Elementary Functions", 1980; P. Markstein,
 * "IA-64 and Elementary Functions", 2000.) That holds up to the bound of qb_trig_is_near; arguments beyond it, and
 * machines without a fused product, take the C library's functions, lane by lane. Coefficients come from
 * tools/fit_polynomials.py. */
#ifndef QB_CPU_MATH_TRIG_H
#define QB_CPU_MATH_TRIG_H

#include "cpu/math_base.h"

/* ---- Float64 */

QB_INLINE uint64_t qb_trig_is_near_f64(double x)
{
    return QB_HAS_FMA ? QB_TRUE_F64(qb_abs_f64(x) < 0x1p22) : 0;
}

typedef struct qb_trig_argument_f64 {
    uint64_t quadrant; /* its last two bits count */
    double r, low;
} qb_trig_argument_f64;

QB_INLINE qb_trig_argument_f64 qb_trig_reduce_f64(double magnitude)
{
    double shifted = qb_fma_f64(magnitude, 0x1.45f306dc9c883p-1, QB_SHIFT_F64);
    double k = shifted - QB_SHIFT_F64;
    double first = qb_fma_f64(-k, 0x1.921fb54442d18p+0, magnitude);
    double second = k * 0x1.1a62633000000p-54; /* 31 bits: the product is exact */
    double r = first - second, back = r - first;
    double error = (first - (r - back)) - (second + back);
    double low = qb_fma_f64(-k, 0x1.45c06e0e68948p-86, error);
    return (qb_trig_argument_f64){qb_bits_f64(shifted), r, low};
}

/* sin(r + low): r + r^3 p(r^2), error 2^-57.9 */
QB_INLINE double qb_sin_reduced_f64(double r, double low, double z, double z2)
{
    double even = qb_fma_f64(qb_fma_f64(-0x1.ae5e4b837efc0p-26, z2, -0x1.a01a019be9217p-13), z2, -0x1.5555555555548p-3);
    double odd = qb_fma_f64(qb_fma_f64(0x1.5d8b5563b681bp-33, z2, 0x1.71de35552b20cp-19), z2, 0x1.111111110f730p-7);
    return r + qb_fma_f64(r * z, qb_fma_f64(odd, z, even), low);
}

/* cos(r + low): 1 - r^2/2 + r^4 p(r^2), error 2^-63.9; the rounding error of 1 - r^2/2 is put back */
QB_INLINE double qb_cos_reduced_f64(double r, double low, double z, double z2)
{
    double even = qb_fma_f64(qb_fma_f64(0x1.1ee9dbcedfe6ep-29, z2, 0x1.a01a019c8f254p-16), z2, 0x1.555555555554bp-5);
    double odd = qb_fma_f64(qb_fma_f64(-0x1.8fa6846bf863ap-37, z2, -0x1.27e4f7f1913b0p-22), z2, -0x1.6c16c16c15015p-10);
    double half = 0.5 * z, whole = 1.0 - half, error = (1.0 - whole) - half;
    return whole + qb_fma_f64(z2, qb_fma_f64(odd, z, even), qb_fma_f64(-r, low, error));
}

/* sin of the argument and `turns` quadrants more */
QB_INLINE double qb_sin_quadrant_f64(qb_trig_argument_f64 a, uint64_t turns)
{
    double z = a.r * a.r, z2 = z * z;
    double sine = qb_sin_reduced_f64(a.r, a.low, z, z2), cosine = qb_cos_reduced_f64(a.r, a.low, z, z2);
    uint64_t quadrant = a.quadrant + turns;
    double y = (quadrant & 1) == 0 ? sine : cosine;
    return qb_of_bits_f64(qb_bits_f64(y) ^ ((quadrant & 2) << 62));
}

QB_INLINE double qb_sin_f64(double x)
{
    double y = qb_sin_quadrant_f64(qb_trig_reduce_f64(qb_abs_f64(x)), 0);
    return qb_of_bits_f64(qb_bits_f64(y) ^ (qb_bits_f64(x) & 0x8000000000000000u));
}

QB_INLINE double qb_cos_f64(double x)
{
    return qb_sin_quadrant_f64(qb_trig_reduce_f64(qb_abs_f64(x)), 1);
}

/* tan r = r + r^3 p(r^2)/q(r^2), error 2^-56.4, as a sum t + t_low; in odd quadrants -1 / that, refined by one step of
 * Newton */
QB_INLINE double qb_tan_f64(double x)
{
    qb_trig_argument_f64 a = qb_trig_reduce_f64(qb_abs_f64(x));
    double r = a.r + a.low, low = (a.r - r) + a.low; /* next to a multiple of pi/2, low is not small against r */
    double z = r * r;
    double p = qb_fma_f64(-0x1.33756e6325f3fp-26, z, 0x1.00c964d83fa62p-12);
    p = qb_fma_f64(qb_fma_f64(p, z, -0x1.5f519f8b9f6d2p-6), z, 0x1.5555555555555p-2);
    double q = qb_fma_f64(-0x1.0c7c8181732b1p-12, z, 0x1.9269700f4675fp-6);
    q = qb_fma_f64(qb_fma_f64(q, z, -0x1.db78e783c77dcp-2), z, 1.0);
    double cubic = r * z * p / q;
    double t = r + cubic;
    double t_low = qb_fma_f64(low, qb_fma_f64(t, t, 1.0), (r - t) + cubic);
    double w = -1.0 / t;
    double cotangent = qb_fma_f64(w, qb_fma_f64(w, t_low, qb_fma_f64(w, t, 1.0)), w);
    double y = (a.quadrant & 1) == 0 ? t + t_low : cotangent;
    return qb_of_bits_f64(qb_bits_f64(y) ^ (qb_bits_f64(x) & 0x8000000000000000u));
}

/* ---- Float32 */

QB_INLINE uint32_t qb_trig_is_near_f32(float x)
{
    return QB_HAS_FMA ? QB_TRUE_F32(qb_abs_f32(x) < 0x1p14f) : 0;
}

typedef struct qb_trig_argument_f32 {
    uint32_t quadrant;
    float r, low;
} qb_trig_argument_f32;

QB_INLINE qb_trig_argument_f32 qb_trig_reduce_f32(float magnitude)
{
    float shifted = qb_fma_f32(magnitude, 0x1.45f306p-1f, QB_SHIFT_F32);
    float k = shifted - QB_SHIFT_F32;
    float first = qb_fma_f32(-k, 0x1.921fb6p+0f, magnitude);
    float second = k * -0x1.777a5cp-25f;
    float r = first - second, back = r - first;
    float error = (first - (r - back)) - (second + back);
    float rest = qb_fma_f32(k, -0x1.ee59dap-50f, qb_fma_f32(k, -0x1.777a5cp-25f, -second));
    float low = error - rest;
    return (qb_trig_argument_f32){qb_bits_f32(shifted), r, low};
}

QB_INLINE float qb_sin_reduced_f32(float r, float low, float z)
{
    float p = qb_fma_f32(qb_fma_f32(-0x1.995406p-13f, z, 0x1.110778p-7f), z, -0x1.555546p-3f); /* error 2^-27.9 */
    return r + qb_fma_f32(r * z, p, low);
}

QB_INLINE float qb_cos_reduced_f32(float r, float low, float z)
{
    float p = qb_fma_f32(qb_fma_f32(0x1.99e80cp-16f, z, -0x1.6c0c28p-10f), z, 0x1.55554ap-5f); /* error 2^-33 */
    float half = 0.5f * z, whole = 1.0f - half, error = (1.0f - whole) - half;
    return whole + qb_fma_f32(z * z, p, qb_fma_f32(-r, low, error));
}

QB_INLINE float qb_sin_quadrant_f32(qb_trig_argument_f32 a, uint32_t turns)
{
    float z = a.r * a.r;
    float sine = qb_sin_reduced_f32(a.r, a.low, z), cosine = qb_cos_reduced_f32(a.r, a.low, z);
    uint32_t quadrant = a.quadrant + turns;
    float y = (quadrant & 1) == 0 ? sine : cosine;
    return qb_of_bits_f32(qb_bits_f32(y) ^ ((quadrant & 2) << 30));
}

QB_INLINE float qb_sin_f32(float x)
{
    float y = qb_sin_quadrant_f32(qb_trig_reduce_f32(qb_abs_f32(x)), 0);
    return qb_of_bits_f32(qb_bits_f32(y) ^ (qb_bits_f32(x) & 0x80000000u));
}

QB_INLINE float qb_cos_f32(float x)
{
    return qb_sin_quadrant_f32(qb_trig_reduce_f32(qb_abs_f32(x)), 1);
}

QB_INLINE float qb_tan_f32(float x)
{
    qb_trig_argument_f32 a = qb_trig_reduce_f32(qb_abs_f32(x));
    float r = a.r, z = r * r;
    float p = qb_fma_f32(0x1.33e7d8p-7f, z, 0x1.968436p-9f); /* error 2^-25.7 */
    p = qb_fma_f32(qb_fma_f32(p, z, 0x1.9072a2p-6f), z, 0x1.b5851ep-5f);
    p = qb_fma_f32(qb_fma_f32(p, z, 0x1.112deap-3f), z, 0x1.5554dep-2f);
    float cubic = r * z * p;
    float t = r + cubic;
    float t_low = qb_fma_f32(a.low, qb_fma_f32(t, t, 1.0f), (r - t) + cubic);
    float w = -1.0f / t;
    float cotangent = qb_fma_f32(w, qb_fma_f32(w, t_low, qb_fma_f32(w, t, 1.0f)), w);
    float y = (a.quadrant & 1) == 0 ? t + t_low : cotangent;
    return qb_of_bits_f32(qb_bits_f32(y) ^ (qb_bits_f32(x) & 0x80000000u));
}

#endif
