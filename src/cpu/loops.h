/* Loops around blocks of lanes: moving by strides, reducing short groups, small products. Like the lane kernels they
 * are compiled once per instruction set (loops.c), from one source that gives the same bits in each: nothing is
 * reordered. */
#ifndef QB_CPU_LOOPS_H
#define QB_CPU_LOOPS_H

#include "cpu/lanes.h"

#include <stdbool.h>

/* target[r * extent + i] = source[r * row_stride + i * stride]; strides in elements. `past_caches`: the target is a
 * part of what no cache holds. */
typedef void (*qb_copy_loop)(int64_t rows, int64_t extent, int64_t row_stride, int64_t stride, const void *source,
                             void *target, bool past_caches);
/* result[o * inner + i] combines a[(o * extent + e) * inner + i] over e, one after the other; extent >= 1,
 * extent * inner <= QB_KERNEL_LANES */
typedef void (*qb_fold_loop)(size_t outer, size_t extent, size_t inner, void *result, const void *a);

/* c[i * n + j] = sum over p of a[i * a_m + p * a_k] * b[p * b_k + j * b_n], k >= 1 */
typedef struct qb_product_shape {
    int64_t m, n, k;
    int64_t a_m, a_k, b_k, b_n;
} qb_product_shape;
typedef void (*qb_product_loop)(const qb_product_shape *shape, const void *a, const void *b, void *c);

/* The same for c[i * c_m + j] and any strides, by gemm.c: for m, n that are not tiny. It is added to `start`, which
 * is laid out as c and may be c (NULL: zeros). `scratch`: qb_gemm_scratch bytes. */
typedef void (*qb_gemm)(const qb_product_shape *shape, const void *a, const void *b, const void *start, void *c,
                        int64_t c_m, void *scratch);

/* A running sum is the number sum - cost. */
typedef struct qb_running {
    double sum, cost;
} qb_running;

enum { QB_STRIP = 32 }; /* columns that are summed at once */

/* n rows from the first one on, `step` elements apart: sums[k] = carry + terms[0] + ... + terms[k]; the carry goes
 * on */
typedef void (*qb_running_sum)(const void *terms, void *sums, int64_t n, int64_t step, qb_running *carry);
/* The sum of n neighbouring terms, n <= 2^30 or so; not finite, too, where a part of it is not. */
typedef qb_running (*qb_running_total)(const void *terms, int64_t n);
/* The running sums of columns 0 .. count-1, count <= QB_STRIP */
typedef void (*qb_running_strip)(const void *terms, void *sums, int64_t n, int64_t step, int64_t count);
/* values[k] = factors[k] values[k-1] + terms[k] for rows of `count` columns; factors NULL: ones */
typedef void (*qb_recurrence_loop)(const void *terms, const void *factors, void *values, int64_t n, int64_t step,
                                   int64_t count);

typedef struct qb_loop_table {
    const char *instruction_set;
    qb_copy_loop copy_1, copy_4, copy_8;                /* by bytes of an element */
    qb_fold_loop fold[QB_REDUCE_COUNT][QB_DTYPE_COUNT]; /* bool: max and min only; norm: floating */
    qb_product_loop product[QB_DTYPE_COUNT];            /* not bool */
    qb_gemm gemm[QB_DTYPE_COUNT];                       /* floating point */
    int64_t vector_bytes, panel_bytes;                  /* of gemm: of a vector, of a row of b that a tile reads */
    qb_running (*running_together)(qb_running a, qb_running b); /* their sum */
    qb_running_sum running_sum[QB_DTYPE_COUNT];                 /* these three: floating */
    qb_running_total running_total[QB_DTYPE_COUNT];
    qb_running_strip running_strip[QB_DTYPE_COUNT];
    qb_recurrence_loop recurrence[2][QB_DTYPE_COUNT]; /* plain: not bool; strong: floating */
} qb_loop_table;

/* The table of the instruction set that the lane kernels use (loops_select.c). */
const qb_loop_table *qb_loops(void);

static inline qb_copy_loop qb_copy_loop_of(size_t size)
{
    return size == 8 ? qb_loops()->copy_8 : size == 4 ? qb_loops()->copy_4 : qb_loops()->copy_1;
}

#endif
