/* Euclidean norms without overflow or underflow.
 *
 * A plain sum of squares serves between QB_SQUARES_LEAST and QB_SQUARES_MOST: what has vanished in it is too small to
 * matter there. Outside, the elements are scaled by a power of two first (J. L. Blue, "A portable Fortran program to
 * find the Euclidean norm of a vector", ACM Trans. Math. Softw. 4, 1978). So there is one pass over memory, and a
 * second look only at a block that is unusual, and in the cache.
 *
 * A norm with a NaN in it is NaN, also beside infinities. */
#ifndef QB_CPU_NORM_H
#define QB_CPU_NORM_H

#include "cpu/math_power.h"

#include <stdbool.h>
#include <stddef.h>

#define QB_SQUARES_LEAST 0x1p-900
#define QB_SQUARES_MOST  0x1p1000

/* Of n elements, any values, `stride` elements apart. */
static inline double qb_norm_scaled(size_t n, size_t stride, const double *a)
{
    uint64_t top = 0; /* bits of magnitudes are ordered like them, infinity and NaN above all */
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = qb_bits_f64(qb_abs_f64(a[i * stride]));
        top = bits > top ? bits : top;
    }
    double largest = qb_of_bits_f64(top), sum[8] = {0};
    if (!(largest > 0 && largest < (double)INFINITY))
        return largest;
    double scale = largest > 1 ? 0x1p-600 : 0x1p600, back = largest > 1 ? 0x1p600 : 0x1p-600;
    for (size_t i = 0; i < n; i++) {
        double x = a[i * stride] * scale;
        sum[i % 8] += x * x;
    }
    for (size_t width = 4; width > 0; width /= 2)
        for (size_t i = 0; i < width; i++)
            sum[i] += sum[i + width];
    return __builtin_sqrt(sum[0]) * back;
}

/* The norm of elements whose squares add up to `squares`, summed in double precision. */
static inline double qb_norm_of_f64(double squares, size_t n, size_t stride, const double *a)
{
    bool serves = squares >= QB_SQUARES_LEAST && squares <= QB_SQUARES_MOST;
    return serves ? __builtin_sqrt(squares) : qb_norm_scaled(n, stride, a);
}

static inline float qb_norm_of_f32(double squares, size_t n, size_t stride, const float *a)
{
    (void)n, (void)stride, (void)a; /* a double holds squares of floats */
    return (float)__builtin_sqrt(squares);
}

#endif
