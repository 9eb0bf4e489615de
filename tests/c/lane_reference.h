/* References for the lane kernels: the functions in long double, error in units in the last place, and sample
 * arguments.
 *
 * x86-64's long double carries 11 bits more than a double, so an error is known to about a thousandth of an ulp. Where
 * long double is no wider than double the measured errors would be those of the C library too: LANE_REFERENCE_IS_EXACT
 * is then 0. */
#ifndef LANE_REFERENCE_H
#define LANE_REFERENCE_H

#include "cpu/lanes_table.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define LANE_REFERENCE_IS_EXACT (LDBL_MANT_DIG >= 64)

static long double reference_sigmoid(long double x)
{
    return x >= 0 ? 1 / (1 + expl(-x)) : expl(x) / (1 + expl(x));
}

static long double reference_softplus(long double x)
{
    return isnan(x) ? x : (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
}

/* A function of one argument: its reference, the bound that the contract sets in each format, and the interval on which
 * it is mostly used, sampled more densely. */
typedef struct reference_unary {
    const char *name;
    qb_lane lane;
    long double (*function)(long double);
    double bound_f64, bound_f32;
    double low, high;
} reference_unary;

static const reference_unary reference_unaries[] = {
    {"sqrt", QB_LANE_sqrt, sqrtl, 0.5, 0.5, 0, 4},
    {"cbrt", QB_LANE_cbrt, cbrtl, 2, 4, -8, 8},
    {"exp", QB_LANE_exp, expl, 2, 4, -750, 720},
    {"exp2", QB_LANE_exp2, exp2l, 2, 4, -1080, 1030},
    {"expm1", QB_LANE_expm1, expm1l, 2, 4, -45, 40},
    {"log", QB_LANE_log, logl, 2, 4, 0, 3},
    {"log2", QB_LANE_log2, log2l, 2, 4, 0, 3},
    {"log10", QB_LANE_log10, log10l, 2, 4, 0, 3},
    {"log1p", QB_LANE_log1p, log1pl, 2, 4, -1, 3},
    {"sin", QB_LANE_sin, sinl, 2, 4, -100, 100},
    {"cos", QB_LANE_cos, cosl, 2, 4, -100, 100},
    {"tan", QB_LANE_tan, tanl, 2, 4, -100, 100},
    {"arcsin", QB_LANE_arcsin, asinl, 2, 4, -1, 1},
    {"arccos", QB_LANE_arccos, acosl, 2, 4, -1, 1},
    {"arctan", QB_LANE_arctan, atanl, 2, 4, -8, 8},
    {"sinh", QB_LANE_sinh, sinhl, 2, 4, -715, 715},
    {"cosh", QB_LANE_cosh, coshl, 2, 4, -715, 715},
    {"tanh", QB_LANE_tanh, tanhl, 2, 4, -21, 21},
    {"arcsinh", QB_LANE_arcsinh, asinhl, 2, 4, -8, 8},
    {"arccosh", QB_LANE_arccosh, acoshl, 2, 4, 1, 8},
    {"arctanh", QB_LANE_arctanh, atanhl, 2, 4, -1, 1},
    {"erf", QB_LANE_erf, erfl, 2, 4, -6.5, 6.5},
    {"erfc", QB_LANE_erfc, erfcl, 4, 4, -7, 28},
    {"sigmoid", QB_LANE_sigmoid, reference_sigmoid, 2, 4, -760, 60},
    {"softplus", QB_LANE_softplus, reference_softplus, 2, 4, -760, 60},
};

typedef struct reference_binary {
    const char *name;
    qb_lane lane;
    long double (*function)(long double, long double);
    double bound_f64, bound_f32;
    double low, high;
} reference_binary;

static const reference_binary reference_binaries[] = {
    {"pow", QB_LANE_pow, powl, 4, 4, 0, 4},
    {"hypot", QB_LANE_hypot, hypotl, 2, 4, -4, 4},
    {"atan2", QB_LANE_atan2, atan2l, 2, 4, -4, 4},
    {"fmod", QB_LANE_fmod, fmodl, 0, 0, -50, 50},
};

enum {
    REFERENCE_UNARIES = sizeof reference_unaries / sizeof *reference_unaries,
    REFERENCE_BINARIES = sizeof reference_binaries / sizeof *reference_binaries
};

/* |value - exact| in units of the last place that the format has at the exact value; 0 for equal specials, infinite for
 * a NaN or an infinity that should not be one. An exact value that rounds to infinity matches infinity. */
static double error_in_ulp(double value, long double exact, int digits, int least_exponent, double largest)
{
    if (isnan(exact) || isnan(value))
        return isnan(exact) && isnan(value) ? 0 : INFINITY;
    int exponent;
    (void)frexpl(isinf(exact) ? (long double)largest : exact, &exponent); /* exact = m 2^exponent, 1/2 <= m < 1 */
    exponent = (exponent < least_exponent || exact == 0 ? least_exponent : exponent) - digits;
    long double ulp = ldexpl(1.0L, exponent);
    long double limit =
        (long double)largest + ldexpl((long double)largest, -digits - 1); /* rounds to infinity from here */
    if (isinf(value) || fabsl(exact) > limit) {
        if (isinf(value) && (value > 0) == (exact > 0))
            return fabsl(exact) >= limit ? 0 : (double)((limit - fabsl(exact)) / ulp);
        return isinf(value) ? INFINITY : (double)((fabsl(exact) - fabsl((long double)value)) / ldexpl(1.0L, exponent));
    }
    return (double)(fabsl((long double)value - exact) / ulp);
}

static double error_in_ulp_f64(double value, long double exact)
{
    return error_in_ulp(value, exact, DBL_MANT_DIG, DBL_MIN_EXP, DBL_MAX);
}

static double error_in_ulp_f32(float value, long double exact)
{
    return error_in_ulp((double)value, exact, FLT_MANT_DIG, FLT_MIN_EXP, (double)FLT_MAX);
}

/* splitmix64: G. L. Steele, D. Lea, C. H. Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014 */
static uint64_t random_bits(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double random_unit(uint64_t *state)
{
    return (double)(random_bits(state) >> 11) * 0x1p-53;
}

static double double_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Every kind of argument in turn: any bit pattern, the interval, near 0 at every scale, near 1, and edges one ulp
 * apart. */
static double sample_f64(uint64_t *state, double low, double high)
{
    uint64_t kind = random_bits(state) % 8;
    double u = random_unit(state);
    uint64_t bits = random_bits(state);
    if (kind == 0)
        return isnan(double_of_bits(bits)) ? NAN : double_of_bits(bits); /* never a signaling one */
    if (kind == 1)
        return (bits & 1 ? -1 : 1) * ldexp(1 + u, -(int)(random_bits(state) % 64));
    if (kind == 2)
        return (bits & 1 ? -1 : 1) * (1 + ldexp(u - 0.5, -(int)(random_bits(state) % 52)));
    if (kind == 3) {
        double k = floor(ldexp(u, (int)(random_bits(state) % 22)));
        return nextafter((double)((long double)k * 1.57079632679489661923132169163975144L),
                         bits & 1 ? -INFINITY : INFINITY);
    }
    if (kind == 4)
        return fmax(fmin(high, 2), low) * u;
    return low + (high - low) * u;
}

static float sample_f32(uint64_t *state, double low, double high)
{
    uint64_t kind = random_bits(state) % 4;
    float any = float_of_bits((uint32_t)random_bits(state));
    return kind != 0 ? (float)sample_f64(state, low, high) : isnan(any) ? (float)NAN : any;
}

static const double special_arguments[] = {0.0,
                                           -0.0,
                                           INFINITY,
                                           -INFINITY,
                                           NAN,
                                           1.0,
                                           -1.0,
                                           0.5,
                                           -0.5,
                                           2.0,
                                           -2.0,
                                           3.0,
                                           -3.0,
                                           10.0,
                                           -20.0,
                                           1e10,
                                           -1e10,
                                           1e22,
                                           1e300,
                                           -1e300,
                                           DBL_MAX,
                                           -DBL_MAX,
                                           DBL_MIN,
                                           -DBL_MIN,
                                           0x1p-1074,
                                           -0x1p-1074,
                                           0x1.8p-1030,
                                           0x1p-54,
                                           -0x1p-54,
                                           0x1p-53,
                                           0x1p-26,
                                           709.782712893384,
                                           709.7827128933841,
                                           -745.1332191019411,
                                           -745.1332191019412,
                                           -708.3964185322641,
                                           710.4758600739439,
                                           710.475860073944,
                                           88.72283,
                                           88.72284,
                                           -103.97208,
                                           -103.97209,
                                           -87.33655,
                                           0x1.921fb54442d18p+0,
                                           0x1.921fb54442d18p+1,
                                           0x1p22,
                                           0x1.fffffffffffffp21,
                                           16384.0,
                                           0x1.ac9d9a1a3c0cep+20,
                                           0x1.6a09e667f3bcdp-1,
                                           0x1.6a09e667f3bccp-1,
                                           0x1.6a09e667f3bcdp+0,
                                           0.5625,
                                           0.999999999999999,
                                           27.2,
                                           FLT_MAX,
                                           FLT_MIN,
                                           0x1p-149,
                                           0x1.8p-130,
                                           0x1p-24,
                                           4503599627370495.5,
                                           4503599627370497.0,
                                           9007199254740993.0,
                                           2.5,
                                           3.5,
                                           -2.5};

#endif
