/* Orthogonal decompositions: eigenvalues of symmetric matrices, singular values, and QR; pseudo-inverses.
 *
 * Signs are fixed, so that results are unique where they can be: the largest component of an eigenvector or left
 * singular vector (the first of equal ones) is positive, and R has no negative number on its diagonal.
 *
 * Vectors that belong to equal values are determined up to a rotation among them, which derivatives leave as it is: the
 * reciprocal of a difference of two values counts as 0 where the difference is not more than rounding made it. */
#include "ops/build.h"

#include "cpu/spectral.h"
#include "ops/matrices.h"

/* ---- What the rules share */

/* w along the rows of matrices (as its last axis), or along their columns. */
static qb_value spread(qb_graph *g, qb_value w, int64_t rows, int64_t columns, bool along_rows)
{
    if (w < 0)
        return w;
    qb_type type;
    qb_value_type(g, w, &type);
    int64_t axes[QB_MAX_RANK];
    for (int i = 0; i < type.rank; i++)
        axes[i] = i;
    axes[type.rank - 1] = along_rows ? type.rank : type.rank - 1;
    type.shape[type.rank - 1] = rows;
    type.shape[type.rank] = columns;
    return qb_broadcast(g, w, type.rank + 1, type.shape, axes);
}

static int64_t last_extent(const qb_graph *g, qb_value w)
{
    return w < 0 ? 1 : qb_graph_shape(g, w)[qb_graph_rank(g, w) - 1];
}

/* n rounding errors of the largest value: [batch...] */
static qb_value rounding(qb_graph *g, qb_value w)
{
    if (w < 0)
        return w;
    int64_t axis = qb_graph_rank(g, w) - 1;
    double eps = qb_graph_dtype(g, w) == QB_FLOAT64 ? 0x1p-52 : 0x1p-23;
    qb_value largest = qb_reduce_max(g, qb_abs(g, w), 1, &axis);
    return qb_mul(g, largest, qb_splat_like(g, largest, 4 * eps * (double)last_extent(g, w)));
}

/* The same for each element of what has the batch axes first. */
static qb_value rounding_like(qb_graph *g, qb_value w, qb_value like)
{
    if (w < 0 || like < 0)
        return like;
    qb_type type;
    int64_t axes[QB_MAX_RANK];
    qb_value_type(g, like, &type);
    for (int i = 0; i < type.rank; i++)
        axes[i] = i;
    return qb_broadcast(g, rounding(g, w), type.rank, type.shape, axes);
}

/* 1 / x, 0 where `size` is not more than rounding of w. */
static qb_value reciprocal_or_zero(qb_graph *g, qb_value x, qb_value size, qb_value w)
{
    if (x < 0 || size < 0)
        return x;
    qb_value vanishes = qb_less_equal(g, qb_abs(g, size), rounding_like(g, w, size)), one = qb_splat_like(g, x, 1);
    return qb_select(g, vanishes, qb_splat_like(g, x, 0), qb_div(g, one, qb_select(g, vanishes, one, x)));
}

static qb_value diagonal_of(qb_graph *g, qb_value a)
{
    if (a < 0)
        return a;
    int64_t axis = qb_graph_rank(g, a) - 1;
    qb_value diagonal = qb_select(g, qb_is_in_part(g, a, QB_PART_DIAGONAL), a, qb_splat_like(g, a, 0));
    return qb_reduce_sum(g, diagonal, 1, &axis);
}

static void batch_alike(qb_rule *r)
{
    (void)qb_emit_all(r->graph, r->op, 1, r->operand, r->attribute, r->batched_result);
}

static void emit(qb_graph *g, const qb_op *op, qb_value a, const qb_attribute *attribute, qb_value *results)
{
    if (!qb_emit_all(g, op, 1, &a, attribute, results))
        for (int i = 0; i < op->result_count; i++)
            results[i] = QB_FAILED;
}

/* ---- eigh: ascending eigenvalues w of the symmetric part, and eigenvectors as rows of V^T */

static qb_status eigh_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    QB_TRY(qb_check_matrices(in, a, true));
    int64_t n = a->shape[a->rank - 1];
    QB_TRY(qb_check_lapack_count(in, a, n * n)); /* so that the size below fits 64 bits */
    qb_type_set(&in->result[0], a->dtype, a->rank - 1, a->shape);
    in->result[1] = *a;
    return qb_check_lapack_count(in, a, qb_eigh_work_size(n));
}

/* With T = V^T dS V: dw is its diagonal, dV = V (F o T), F[i, j] = 1 / (w[j] - w[i]). */
static void eigh_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value w = r->result[0], rows = r->result[1], t = r->tangent[0];
    int64_t n = last_extent(g, w);
    if (n == 0)
        return;
    t = qb_add(g, t, qb_matrix_transposed(g, t));
    t = qb_mul(g, t, qb_splat_like(g, t, 0.5));
    t = qb_matrix_product(g, qb_matrix_product(g, rows, false, t, false), false, rows, true);
    r->result_tangent[0] = diagonal_of(g, t);
    qb_value gap = qb_sub(g, spread(g, w, n, n, true), spread(g, w, n, n, false));
    qb_value turn = qb_mul(g, reciprocal_or_zero(g, gap, gap, w), t);
    r->result_tangent[1] = qb_matrix_product(g, turn, true, rows, false);
}

static double eigh_flops(const qb_graph *graph, const qb_node *node)
{
    double n = qb_extent_from_end(graph, node->result, 1);
    return qb_matrix_count(graph, node->result + 1) * qb_eigh_flops(n);
}

const qb_op qb_op_eigh = {.name = "eigh",
                          .summary =
                              "Ascending eigenvalues of the symmetric part of matrices, and eigenvectors as rows; "
                              "NaN where it is not finite",
                          .arity = 1,
                          .result_count = 2,
                          .lane = QB_LANE_NONE,
                          .flops = eigh_flops,
                          .infer = eigh_infer,
                          .jvp = eigh_jvp,
                          .batch = batch_alike,
                          .workspace = qb_eigh_workspace,
                          .cpu = qb_eigh_run};

void qb_eigh(qb_graph *graph, qb_value a, qb_value results[2])
{
    emit(graph, &qb_op_eigh, a, NULL, results);
}

/* ---- svd: a = U S V^T, singular values s descending; U is m x k, V^T k x n, or m x m and n x n where `full` */

static qb_status svd_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    QB_TRY(qb_check_matrices(in, a, false));
    bool full = in->attribute[0].integer != 0;
    int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1], k = qb_smaller(m, n), size;
    QB_TRY(qb_check_lapack_count(in, a, k * k)); /* so that the size below fits 64 bits */
    in->result[0] = in->result[2] = *a;
    in->result[0].shape[a->rank - 1] = full ? m : k;
    in->result[2].shape[a->rank - 2] = full ? n : k;
    qb_type_set(&in->result[1], a->dtype, a->rank - 1, a->shape);
    in->result[1].shape[a->rank - 2] = k;
    for (int i = 0; i < 3; i += 2)
        QB_TRY(qb_shape_size(a->rank, in->result[i].shape, qb_dtype_size(a->dtype), &size));
    return qb_check_lapack_count(in, a, qb_svd_work_size(m, n));
}

/* The tangent of the vectors on one side: that within them, U (F o (T + T^T)), and of N = dA V / s what is at a
 * right angle to them. Where there are vectors beyond the first k (all are there), these turn against them. */
static qb_value vectors_tangent(qb_graph *g, qb_value all, int64_t k, qb_value turn, qb_value n, bool whole)
{
    qb_value some = qb_matrix_part(g, all, 1, 0, k), within = qb_matrix_product(g, some, false, turn, false);
    int64_t extent = qb_graph_shape(g, all)[qb_graph_rank(g, all) - 2];
    if (extent == k)
        return within;
    qb_value inside = qb_matrix_product(g, some, false, qb_matrix_product(g, some, true, n, false), false);
    within = qb_add(g, within, qb_sub(g, n, inside));
    if (!whole)
        return within;
    qb_value others = qb_matrix_part(g, all, 1, k, extent);
    qb_value against = qb_matrix_product(g, some, false, qb_matrix_product(g, n, true, others, false), false);
    return qb_concat(g, 2, (qb_value[]){within, qb_neg(g, against)}, qb_graph_rank(g, all) - 1);
}

/* As in the literature (Giles, "Collected matrix derivative results for forward and reverse mode algorithmic
 * differentiation", 2008): with D = U^T dA V, ds is its diagonal, and F[i, j] = 1 / (s[j]^2 - s[i]^2). */
static void svd_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value u = r->result[0], s = r->result[1], v = qb_matrix_transposed(g, r->result[2]), t = r->tangent[0];
    int64_t k = last_extent(g, s);
    bool whole = r->attribute[0].integer != 0;
    if (u < 0 || v < 0 || k == 0)
        return;
    qb_value u1 = qb_matrix_part(g, u, 1, 0, k), v1 = qb_matrix_part(g, v, 1, 0, k);
    qb_value tv = qb_matrix_product(g, t, false, v1, false), tu = qb_matrix_product(g, t, true, u1, false);
    qb_value d = qb_matrix_product(g, u1, true, tv, false);
    qb_value along = spread(g, s, k, k, true), down = spread(g, s, k, k, false), gap = qb_sub(g, along, down);
    /* by their sum first, and only then by their difference: squares could overflow */
    qb_value f = reciprocal_or_zero(g, gap, gap, s), part = reciprocal_or_zero(g, qb_add(g, along, down), gap, s);
    qb_value by_columns = qb_mul(g, d, qb_mul(g, along, part)), by_rows = qb_mul(g, d, qb_mul(g, down, part));
    qb_value inverse = reciprocal_or_zero(g, s, s, s);
    qb_value turn_u = qb_mul(g, f, qb_add(g, by_columns, qb_matrix_transposed(g, by_columns)));
    qb_value turn_v = qb_mul(g, f, qb_add(g, by_rows, qb_matrix_transposed(g, by_rows)));
    int rank = qb_graph_rank(g, u);
    int64_t m = qb_graph_shape(g, u)[rank - 2], n = qb_graph_shape(g, v)[rank - 2];
    r->result_tangent[1] = diagonal_of(g, d);
    r->result_tangent[0] = vectors_tangent(g, u, k, turn_u, qb_mul(g, tv, spread(g, inverse, m, k, true)), whole);
    r->result_tangent[2] =
        qb_matrix_transposed(g, vectors_tangent(g, v, k, turn_v, qb_mul(g, tu, spread(g, inverse, n, k, true)), whole));
}

static double svd_flops(const qb_graph *graph, const qb_node *node)
{
    qb_value a = qb_operand(graph, node, 0);
    return qb_matrix_count(graph, a) * qb_svd_flops(qb_extent_from_end(graph, a, 2), qb_extent_from_end(graph, a, 1));
}

const qb_op qb_op_svd = {.name = "svd",
                         .summary = "Left singular vectors as columns, descending singular values, right singular "
                                    "vectors as rows; NaN where matrices are not finite",
                         .arity = 1,
                         .result_count = 3,
                         .attribute_count = 1,
                         .attribute_name = {"full"},
                         .lane = QB_LANE_NONE,
                         .flops = svd_flops,
                         .infer = svd_infer,
                         .jvp = svd_jvp,
                         .batch = batch_alike,
                         .workspace = qb_svd_workspace,
                         .cpu = qb_svd_run};

void qb_svd(qb_graph *graph, qb_value a, bool full, qb_value results[3])
{
    const qb_attribute attribute = qb_int(full);
    emit(graph, &qb_op_svd, a, &attribute, results);
}

/* ---- singular_values: those of svd, but for rounding */

static qb_status singular_values_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    QB_TRY(qb_check_matrices(in, a, false));
    int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1];
    qb_type_set(in->result, a->dtype, a->rank - 1, a->shape);
    in->result->shape[a->rank - 2] = qb_smaller(m, n);
    return qb_check_lapack_count(in, a, qb_singular_values_work_size(m, n));
}

/* The diagonal of U^T dA V. The values are then those of the svd, which is made for U and V anyway. */
static void singular_values_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value parts[3];
    if (last_extent(g, r->result[0]) == 0)
        return;
    qb_svd(g, r->operand[0], false, parts);
    r->result[0] = parts[1];
    qb_value t = qb_matrix_product(g, r->tangent[0], false, parts[2], true);
    if (t < 0)
        return;
    int64_t axis = qb_graph_rank(g, t) - 2;
    r->result_tangent[0] = qb_reduce_sum(g, qb_mul(g, parts[0], t), 1, &axis);
}

static double singular_values_flops(const qb_graph *graph, const qb_node *node)
{
    qb_value a = qb_operand(graph, node, 0);
    double m = qb_extent_from_end(graph, a, 2), n = qb_extent_from_end(graph, a, 1);
    return qb_matrix_count(graph, a) * qb_singular_values_flops(m, n);
}

const qb_op qb_op_singular_values = {.name = "singular_values",
                                     .summary = "Descending singular values; NaN where matrices are not finite",
                                     .arity = 1,
                                     .result_count = 1,
                                     .lane = QB_LANE_NONE,
                                     .flops = singular_values_flops,
                                     .infer = singular_values_infer,
                                     .jvp = singular_values_jvp,
                                     .batch = batch_alike,
                                     .workspace = qb_singular_values_workspace,
                                     .cpu = qb_singular_values_run};

qb_value qb_singular_values(qb_graph *graph, qb_value a)
{
    return qb_emit(graph, &qb_op_singular_values, 1, &a, NULL);
}

/* ---- qr: of m x n matrices, m >= n. Q is m x n and R n x n, or m x m and m x n where `complete` */

static qb_status qr_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    QB_TRY(qb_check_matrices(in, a, false));
    bool complete = in->attribute[0].integer != 0;
    int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1], size;
    if (m < n)
        return qb_fail(QB_ERROR_VALUE, "qr: takes matrices with as many rows as columns at least, got shape %s",
                       qb_print_shape(a->rank, a->shape).text);
    in->result[0] = in->result[1] = *a;
    in->result[0].shape[a->rank - 1] = complete ? m : n;
    in->result[1].shape[a->rank - 2] = complete ? m : n;
    QB_TRY(qb_shape_size(a->rank, in->result[0].shape, qb_dtype_size(a->dtype), &size));
    return qb_check_lapack_count(in, a, qb_qr_work_size(m, n, complete));
}

/* With B = dA R^-1, C = Q^T B, W = L - L^T of the strict lower part L of C: dR = (C - W) R, dQ = Q (W - C) + B. Of the
 * complete Q, which has no B beyond it, W has the columns of C, and others of zeros, and dQ = Q W. */
static void qr_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value q = r->result[0], upper = r->result[1];
    if (q < 0)
        return;
    int rank = qb_graph_rank(g, q);
    int64_t none[QB_MAX_RANK] = {0}, high[QB_MAX_RANK] = {0};
    int64_t columns = qb_graph_shape(g, q)[rank - 1], n = last_extent(g, upper);
    qb_value square = qb_matrix_part(g, upper, 2, 0, n);
    qb_value b = qb_triangular_solve(g, square, r->tangent[0], QB_SOLVE_RIGHT);
    qb_value c = qb_matrix_product(g, q, true, b, false);
    high[rank - 1] = columns - n;
    qb_value low = qb_lower_part(g, qb_pad(g, c, none, high, none), false);
    qb_value w = qb_sub(g, low, qb_matrix_transposed(g, low)), first = qb_matrix_part(g, w, 1, 0, n);
    r->result_tangent[1] = qb_matrix_product(g, qb_sub(g, c, first), false, square, false);
    r->result_tangent[0] = r->attribute[0].integer
                               ? qb_matrix_product(g, q, false, w, false)
                               : qb_add(g, qb_matrix_product(g, q, false, qb_sub(g, w, c), false), b);
}

static double qr_flops(const qb_graph *graph, const qb_node *node)
{
    qb_value a = qb_operand(graph, node, 0);
    return qb_matrix_count(graph, a) * qb_qr_flops(qb_extent_from_end(graph, a, 2), qb_extent_from_end(graph, a, 1));
}

const qb_op qb_op_qr = {.name = "qr",
                        .summary = "Orthonormal columns Q and an upper triangle R with a non-negative diagonal, of "
                                   "matrices that are not wider than high",
                        .arity = 1,
                        .result_count = 2,
                        .attribute_count = 1,
                        .attribute_name = {"complete"},
                        .lane = QB_LANE_NONE,
                        .flops = qr_flops,
                        .infer = qr_infer,
                        .jvp = qr_jvp,
                        .batch = batch_alike,
                        .workspace = qb_qr_workspace,
                        .cpu = qb_qr_run};

void qb_qr(qb_graph *graph, qb_value a, bool complete, qb_value results[2])
{
    const qb_attribute attribute = qb_int(complete);
    emit(graph, &qb_op_qr, a, &attribute, results);
}

/* ---- pseudo_inverse: x itself, which is the pseudo-inverse of a, with the derivative that this has in a. That of the
 * decomposition which x is made from would not do: vectors of equal singular values do not turn in it. */

static qb_status pseudo_inverse_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0], *x = &in->operand[1];
    QB_TRY(qb_check_matrices(in, a, false));
    int rank = a->rank;
    if (x->dtype != a->dtype || x->rank != rank || !qb_shape_equal(rank - 2, a->shape, rank - 2, x->shape) ||
        x->shape[rank - 2] != a->shape[rank - 1] || x->shape[rank - 1] != a->shape[rank - 2])
        return qb_fail(QB_ERROR_VALUE, "pseudo_inverse: %s is not that of %s",
                       qb_print_type(x->dtype, x->rank, x->shape).text,
                       qb_print_type(a->dtype, a->rank, a->shape).text);
    *in->result = *x;
    return QB_OK;
}

typedef struct factor {
    qb_value matrix;
    bool transposed;
} factor;

/* (a b) c or a (b c). */
static qb_value product_of_three(qb_graph *g, bool first_two, factor a, factor b, factor c)
{
    if (first_two) {
        qb_value ab = qb_matrix_product(g, a.matrix, a.transposed, b.matrix, b.transposed);
        return qb_matrix_product(g, ab, false, c.matrix, c.transposed);
    }
    qb_value bc = qb_matrix_product(g, b.matrix, b.transposed, c.matrix, c.transposed);
    return qb_matrix_product(g, a.matrix, a.transposed, bc, false);
}

/* dX = -X dA X + X X^T dA^T (1 - A X) + (1 - X A) dA^T X^T X (Golub and Pereyra, "The differentiation of
 * pseudo-inverses and nonlinear least squares problems whose variables separate", 1973), multiplied so that no
 * product has more rows and columns than the smaller extent of A. */
static void pseudo_inverse_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value a = r->operand[0], x = r->result[0], t = r->tangent[0];
    if (t == QB_NONE)
        return;
    bool tall = qb_extent_from_end(g, a, 2) >= qb_extent_from_end(g, a, 1);
    factor plain_a = {a, false}, plain_x = {x, false}, across_x = {x, true}, across_t = {t, true};
    qb_value y = product_of_three(g, tall, plain_x, across_x, across_t);
    qb_value z = product_of_three(g, tall, across_t, across_x, plain_x);
    qb_value inner = product_of_three(g, tall, plain_x, (factor){t, false}, plain_x);
    y = qb_sub(g, y, product_of_three(g, tall, (factor){y, false}, plain_a, plain_x));
    z = qb_sub(g, z, product_of_three(g, tall, plain_x, plain_a, (factor){z, false}));
    r->result_tangent[0] = qb_sub(g, qb_add(g, y, z), inner);
}

static void pseudo_inverse_batch(qb_rule *r)
{
    qb_value operands[2];
    for (int i = 0; i < 2; i++)
        operands[i] = r->mapped[i] ? r->operand[i] : qb_broadcast_leading(r->graph, r->operand[i], r->batch_size);
    r->batched_result[0] = qb_pseudo_inverse(r->graph, operands[0], operands[1]);
}

const qb_op qb_op_pseudo_inverse = {.name = "pseudo_inverse",
                                    .summary = "The second operand, which is the pseudo-inverse of the first, with the "
                                               "derivative in that",
                                    .arity = 2,
                                    .result_count = 1,
                                    .lane = QB_LANE_NONE,
                                    .infer = pseudo_inverse_infer,
                                    .jvp = pseudo_inverse_jvp,
                                    .batch = pseudo_inverse_batch,
                                    .cpu = qb_pseudo_inverse_run};

qb_value qb_pseudo_inverse(qb_graph *graph, qb_value a, qb_value x)
{
    return qb_emit(graph, &qb_op_pseudo_inverse, 2, (qb_value[]){a, x}, NULL);
}
