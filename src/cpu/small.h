/* Loops for batches of small matrices, where a call of LAPACK costs more than its work: one lane for each matrix, so
 * that a vector register holds the same element of several. Compiled once per instruction set (small.c), like the lane
 * kernels, and with the same bits in each: a lane is computed as it would be alone, whatever is beside it. */
#ifndef QB_CPU_SMALL_H
#define QB_CPU_SMALL_H

#include "base/dtype.h"

#include <stdint.h>

enum { QB_SMALL = 16 }; /* the largest extent of the matrices */

/* `count` matrices of n x n, one behind the other, as the operations in ops/linalg.c describe them. `form` is that of
 * qb_triangular_solve; right-hand sides are [n, m], or [m, n] on the right. */
typedef struct qb_small_loops {
    void (*cholesky)(int64_t n, int64_t count, const void *a, void *l);
    void (*lu)(int64_t n, int64_t count, const void *a, void *factors, int64_t *pivots, void *parity);
    void (*triangular_solve)(unsigned form, int64_t n, int64_t m, int64_t count, const void *a, const void *b, void *x);
    void (*lu_solve)(unsigned form, int64_t n, int64_t m, int64_t count, const void *factors, const int64_t *pivots,
                     const void *b, void *x);
} qb_small_loops;

/* Of the dtype, which is floating, in the instruction set that the lane kernels use (loops_select.c). */
const qb_small_loops *qb_small_loops_of(qb_dtype dtype);

#endif
