/* BLAS and LAPACK by element type: QB_BLAS_OF(dtype, gemm, ...) is cblas_dgemm or cblas_sgemm of these arguments,
 * arrays being void pointers, and QB_LAPACK_OF(dtype, potrf, ...) Fortran's dpotrf or spotrf.
 *
 * LAPACK's matrices are stored by columns: ours are their transposes. The lengths of characters, which some
 * compilers pass in addition, are not read by OpenBLAS. */
#ifndef QB_CPU_BLAS_H
#define QB_CPU_BLAS_H

#include "base/dtype.h"
#include "quabla_config.h"

#include <cblas.h>

#define QB_BLAS_OF(dtype, name, ...)                                                                                   \
    ((dtype) == QB_FLOAT64 ? QB_BLAS(cblas_d##name)(__VA_ARGS__) : QB_BLAS(cblas_s##name)(__VA_ARGS__))
#define QB_LAPACK_OF(dtype, name, ...)                                                                                 \
    ((dtype) == QB_FLOAT64 ? QB_LAPACK(d##name)(__VA_ARGS__) : QB_LAPACK(s##name)(__VA_ARGS__))

#define ARGUMENTS_POTRF(T) const char *triangle, const int *n, T *a, const int *leading, int *info
#define ARGUMENTS_GETRF(T) const int *m, const int *n, T *a, const int *leading, int *pivots, int *info
#define ARGUMENTS_SYEVD(T)                                                                                             \
    const char *job, const char *triangle, const int *n, T *a, const int *leading, T *w, T *work,                      \
        const int *work_size, int *integers, const int *integer_count, int *info
#define ARGUMENTS_GESDD(T)                                                                                             \
    const char *job, const int *m, const int *n, T *a, const int *leading, T *s, T *u, const int *leading_u, T *v,     \
        const int *leading_v, T *work, const int *work_size, int *integers, int *info
#define ARGUMENTS_GELQF(T)                                                                                             \
    const int *m, const int *n, T *a, const int *leading, T *scales, T *work, const int *work_size, int *info
#define ARGUMENTS_ORGLQ(T)                                                                                             \
    const int *m, const int *n, const int *k, T *a, const int *leading, const T *scales, T *work,                      \
        const int *work_size, int *info

#define DECLARE(name, ARGUMENTS)                                                                                       \
    void QB_LAPACK(d##name)(ARGUMENTS(double));                                                                        \
    void QB_LAPACK(s##name)(ARGUMENTS(float))
DECLARE(potrf, ARGUMENTS_POTRF);
DECLARE(getrf, ARGUMENTS_GETRF);
DECLARE(syevd, ARGUMENTS_SYEVD);
DECLARE(gesdd, ARGUMENTS_GESDD);
DECLARE(gelqf, ARGUMENTS_GELQF);
DECLARE(orglq, ARGUMENTS_ORGLQ);
#undef DECLARE
#undef ARGUMENTS_POTRF
#undef ARGUMENTS_GETRF
#undef ARGUMENTS_SYEVD
#undef ARGUMENTS_GESDD
#undef ARGUMENTS_GELQF
#undef ARGUMENTS_ORGLQ

#endif
