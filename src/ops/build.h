/* Builder calls: one function per primitive, for rules and functions to be written as formulas.
 *
 * Each returns the value, or QB_FAILED with the failure kept in the graph (see graph.h). None broadcasts or
 * converts. */
#ifndef QB_OPS_BUILD_H
#define QB_OPS_BUILD_H

#include "cpu/gather.h"
#include "ops/op.h"

#define UNARY(name, operands, result, product, flops, partial, summary)                                                \
    static inline qb_value qb_##name(qb_graph *graph, qb_value a)                                                      \
    {                                                                                                                  \
        return qb_emit(graph, &qb_op_##name, 1, &a, NULL);                                                             \
    }
#define BINARY(name, operands, result, product, flops, partial_a, partial_b, summary)                                  \
    static inline qb_value qb_##name(qb_graph *graph, qb_value a, qb_value b)                                          \
    {                                                                                                                  \
        return qb_emit(graph, &qb_op_##name, 2, (qb_value[]){a, b}, NULL);                                             \
    }
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY

qb_value qb_select(qb_graph *graph, qb_value condition, qb_value a, qb_value b); /* a where condition, else b */
qb_value qb_convert(qb_graph *graph, qb_value a, qb_dtype dtype);                /* a itself when it has that dtype */
qb_value qb_stop_gradient(qb_graph *graph, qb_value a);

/* A scalar constant; the same broadcast to a shape; the same with dtype and shape of `like`. */
qb_value qb_scalar(qb_graph *graph, qb_dtype dtype, double number);
qb_value qb_splat(qb_graph *graph, qb_dtype dtype, int rank, const int64_t *shape, double number);
qb_value qb_splat_like(qb_graph *graph, qb_value like, double number);
/* Whether the value is one number repeated (a scalar constant, or its broadcast), and which. */
bool qb_splat_number(const qb_graph *graph, qb_value value, double *out);
/* 0, 1, 2, ... along `axis` of the shape. */
qb_value qb_iota(qb_graph *graph, qb_dtype dtype, int rank, const int64_t *shape, int axis);

qb_value qb_reshape(qb_graph *graph, qb_value a, int rank, const int64_t *shape);
/* Result axis i is axis order[i] of the operand. */
qb_value qb_permute(qb_graph *graph, qb_value a, int rank, const int64_t *order);
/* Operand axis i becomes axis axes[i] of the result (ascending); an axis of extent 1 is repeated, all other axes are
 * new. */
qb_value qb_broadcast(qb_graph *graph, qb_value a, int rank, const int64_t *shape, const int64_t *axes);
/* NumPy's broadcast_to: operand axes are the trailing ones. */
qb_value qb_broadcast_to(qb_graph *graph, qb_value a, int rank, const int64_t *shape);
/* The operand repeated along a new leading axis of that extent: what batching makes of an operand that is not
 * mapped. */
qb_value qb_broadcast_leading(qb_graph *graph, qb_value a, int64_t extent);
/* Elements start, start + step, ... (step > 0), `limit` excluded, per axis. */
qb_value qb_slice(qb_graph *graph, qb_value a, const int64_t *start, const int64_t *limit, const int64_t *step);
qb_value qb_reverse(qb_graph *graph, qb_value a, int count, const int64_t *axes);
/* Zeros around (low, high, which may be negative: cut) and `interior` of them between neighbours, per axis. */
qb_value qb_pad(qb_graph *graph, qb_value a, const int64_t *low, const int64_t *high, const int64_t *interior);
qb_value qb_concat(qb_graph *graph, int count, const qb_value *operands, int axis);

/* Reduce over distinct ascending axes, which vanish. sum of bool is not defined here: convert first. max and min
 * need a non-empty extent and propagate NaN. */
qb_value qb_reduce_sum(qb_graph *graph, qb_value a, int count, const int64_t *axes);
qb_value qb_reduce_prod(qb_graph *graph, qb_value a, int count, const int64_t *axes);
qb_value qb_reduce_max(qb_graph *graph, qb_value a, int count, const int64_t *axes);
qb_value qb_reduce_min(qb_graph *graph, qb_value a, int count, const int64_t *axes);
/* Euclidean, of floating numbers, without overflow or underflow; of one element (no axes) its magnitude. */
qb_value qb_reduce_norm(qb_graph *graph, qb_value a, int count, const int64_t *axes);

/* Product summed over paired axes: a_contract[i] with b_contract[i]; batch axes pair likewise and stay. Result axes:
 * batch (in the order given), the free ones of a, the free ones of b. Floating and integer dtypes. */
qb_value qb_dot(qb_graph *graph, qb_value a, qb_value b, int contract_count, const int64_t *a_contract,
                const int64_t *b_contract, int batch_count, const int64_t *a_batch, const int64_t *b_batch);

/* Elements at places given by `count` index arrays of int64 along `axes` (distinct, ascending); the first `batch`
 * axes of all operands pair up. See ops/gather.c for the shape of what is addressed, negative indices, and bounds. */
qb_value qb_gather(qb_graph *graph, qb_value a, int count, const qb_value *indices, const int64_t *axes, int batch,
                   qb_bounds bounds);
/* The array with `updates`, of the shape that gather would give, written there: `op` is &qb_op_scatter_set, _add, _mul,
 * _max or _min. `unique`: no element is written twice. */
qb_value qb_scatter(qb_graph *graph, const qb_op *op, qb_value a, qb_value updates, int count, const qb_value *indices,
                    const int64_t *axes, int batch, qb_bounds bounds, bool unique);
/* The array with `part` for its elements start, start + step, ... per axis. */
qb_value qb_insert(qb_graph *graph, qb_value a, qb_value part, const int64_t *start, const int64_t *step);

/* t[k] = factors[k] t[k-1] + terms[k] along the axis, from its end when `reverse`; factors QB_NONE: all 1, a running
 * sum. `strong`: products are 0 where a factor or the value before is. */
qb_value qb_recurrence(qb_graph *graph, qb_value terms, qb_value factors, int axis, bool reverse, bool strong);

/* The elements in ascending order along the axis, NaN last; their places (int64), equal elements in the order they
 * have. */
qb_value qb_sort(qb_graph *graph, qb_value a, int axis);
qb_value qb_argsort(qb_graph *graph, qb_value a, int axis);
/* int64. The place of the first extreme, or of the first NaN, along the axis, which vanishes and is not empty. */
qb_value qb_argmax(qb_graph *graph, qb_value a, int axis);
qb_value qb_argmin(qb_graph *graph, qb_value a, int axis);
/* int64. Before which elements of a, [batch..., n], sorted along its last axis, those of v, [batch..., m], belong:
 * after equal ones when `right`. */
qb_value qb_searchsorted(qb_graph *graph, qb_value a, qb_value v, bool right, int batch);

/* Linear algebra (ops/linalg.c): matrices in the last two axes, all other axes are equal batch axes. */

/* The lower factor of the symmetric part, zeros above it; NaN where that is not positive definite. */
qb_value qb_cholesky(qb_graph *graph, qb_value a);

/* How an equation has its matrix. */
enum {
    QB_SOLVE_LOWER = 1 << 0,      /* triangular: the lower triangle is read, not the upper one */
    QB_SOLVE_UNIT = 1 << 1,       /* triangular: with a diagonal of ones, which is not read */
    QB_SOLVE_TRANSPOSED = 1 << 2, /* the matrix that was given, transposed */
    QB_SOLVE_RIGHT = 1 << 3       /* x A = b, b [..., m, n]; otherwise A x = b, b [..., n, m] */
};
/* x; NaN where an element of the diagonal is 0. */
qb_value qb_triangular_solve(qb_graph *graph, qb_value a, qb_value b, unsigned form);

/* Of a, [..., m, n]: the factors, transposed, [..., n, m]; row i was exchanged with row pivots[..., i] (int64) in
 * step i; the sign of the exchanges, 0 where a pivot is 0. */
void qb_lu(qb_graph *graph, qb_value a, qb_value results[3]);
/* Which row (int64) is where after the exchanges, of `rows`. */
qb_value qb_permutation(qb_graph *graph, qb_value pivots, int64_t rows);
/* x, of square matrices, their factors and pivots; NaN where they are singular. Only TRANSPOSED and RIGHT count. */
qb_value qb_lu_solve(qb_graph *graph, const qb_value factored[3], qb_value b, unsigned form);
/* Matrices with zeros above the diagonal (and on it), or below it; unit matrices of the type of such. */
qb_value qb_lower_part(qb_graph *graph, qb_value a, bool with_diagonal);
qb_value qb_upper_part(qb_graph *graph, qb_value a, bool with_diagonal);
qb_value qb_identity_like(qb_graph *graph, qb_value a);
/* Sign, logarithm of the absolute value, and determinant, of matrices, factors, pivots and signs. */
void qb_determinant(qb_graph *graph, const qb_value factored[4], qb_value results[3]);

/* Orthogonal decompositions (ops/spectral.c). Ascending eigenvalues of the symmetric part, and eigenvectors as rows. */
void qb_eigh(qb_graph *graph, qb_value a, qb_value results[2]);
/* U, s, V^T of a, [..., m, n]: m x k, k, k x n, with k = min(m, n), or U and V square where `full`. */
void qb_svd(qb_graph *graph, qb_value a, bool full, qb_value results[3]);
/* s alone, in half of the time or less. */
qb_value qb_singular_values(qb_graph *graph, qb_value a);
/* Q and R of a, [..., m, n] with m >= n: m x n and n x n, or m x m and m x n where `complete`. */
void qb_qr(qb_graph *graph, qb_value a, bool complete, qb_value results[2]);

/* x, which is the pseudo-inverse of a, with its derivative in a. */
qb_value qb_pseudo_inverse(qb_graph *graph, qb_value a, qb_value x);

#endif
