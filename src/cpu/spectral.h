/* CPU kernels of the operations in ops/spectral.c, which describes them, and the memory that they work in: see
 * qb_op.cpu and qb_op.workspace. */
#ifndef QB_CPU_SPECTRAL_H
#define QB_CPU_SPECTRAL_H

#include "cpu/linalg.h"

static inline int64_t qb_smaller(int64_t m, int64_t n)
{
    return m < n ? m : n;
}

/* Elements that LAPACK works in, of which it takes the number in 32 bits: at least the documented minimum of syevd and
 * gesdd, and room for blocks of 64. gelqf and orglq take 64 rows as long as Q is wide. */
static inline int64_t qb_eigh_work_size(int64_t n)
{
    return 1 + 6 * n + 2 * n * n;
}

static inline int64_t qb_singular_values_work_size(int64_t m, int64_t n)
{
    int64_t k = qb_smaller(m, n);
    return 9 * k + m + n + qb_smaller(64, k) * (m + n);
}

static inline int64_t qb_svd_work_size(int64_t m, int64_t n)
{
    int64_t k = qb_smaller(m, n);
    return 4 * k * k + 6 * k + m + n + qb_smaller(64, k) * (m + n) + 1;
}

static inline int64_t qb_qr_work_size(int64_t m, int64_t n, bool complete)
{
    return 64 * (complete ? m : n);
}

/* Integers that syevd works in besides. */
static inline int64_t qb_eigh_integer_count(int64_t n)
{
    return 3 + 5 * n;
}

/* Operations for a matrix: Golub and Van Loan, "Matrix Computations", 8.3, 8.6, and 5.2 with n columns of Q; an
 * estimate for singular values with vectors. */
static inline double qb_eigh_flops(double n)
{
    return 9 * n * n * n;
}

static inline double qb_singular_values_flops(double m, double n)
{
    double k = m < n ? m : n;
    return 4 * k * k * (m + n - k - k / 3);
}

static inline double qb_svd_flops(double m, double n)
{
    double k = m < n ? m : n;
    return 6 * m * n * k + 16 * k * k * k;
}

static inline double qb_qr_flops(double m, double n)
{
    return 4 * n * n * (m - n / 3);
}

int64_t qb_eigh_workspace(const qb_attribute *attribute, const qb_type *operand_type);
int64_t qb_svd_workspace(const qb_attribute *attribute, const qb_type *operand_type);
int64_t qb_singular_values_workspace(const qb_attribute *attribute, const qb_type *operand_type);
int64_t qb_qr_workspace(const qb_attribute *attribute, const qb_type *operand_type);

QB_LINALG_KERNEL(qb_eigh_run);
QB_LINALG_KERNEL(qb_svd_run);
QB_LINALG_KERNEL(qb_singular_values_run);
QB_LINALG_KERNEL(qb_qr_run);
QB_LINALG_KERNEL(qb_pseudo_inverse_run);

#endif
