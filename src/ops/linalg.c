/* Linear algebra: two factorizations, what solves with them, and determinants. Everything else is made of these.
 *
 * Matrices lie in the last two axes; all other axes of all operands are equal batch axes. No rule forms an inverse:
 * derivatives are solves with the factors that the value was computed with, which hash-consing finds again.
 *
 * `lu` gives the factors transposed, as LAPACK's column-major layout has them: factors[..., j, i] is U[i, j] on and
 * above the diagonal and L[i, j] below it, where L has a unit diagonal. Its pivots say which row was exchanged with row
 * i in step i, one after the other; its parity is the sign of all exchanges, or 0 where a pivot of a square matrix is
 * 0.
 *
 * An operation that solves takes its matrix from the left (A x = b, b is [..., n, m]) or, with `right`, from the right
 * (x A = b, b is [..., m, n]), and `transposed` means A's transpose. So whatever has to become columns or rows of one
 * right-hand side can become that without being moved. */
#include "ops/build.h"

#include "cpu/linalg.h"
#include "ops/matrices.h"

/* ---- What the rules share */

/* b, a right-hand side for the square matrices a. */
static qb_status check_right_hand_side(const qb_inference *in, const qb_type *a, const qb_type *b, bool right)
{
    int rank = a->rank;
    if (a->dtype != b->dtype || b->rank != rank || !qb_shape_equal(rank - 2, a->shape, rank - 2, b->shape) ||
        b->shape[right ? rank - 1 : rank - 2] != a->shape[rank - 1])
        return qb_fail(QB_ERROR_VALUE, "%s: matrices %s do not fit a right-hand side %s", in->op->name,
                       qb_print_type(a->dtype, a->rank, a->shape).text,
                       qb_print_type(b->dtype, b->rank, b->shape).text);
    return qb_check_matrices(in, b, false);
}

/* The tangent of the right-hand side, less what the tangent of the matrix makes of the solution. */
static qb_value changed_side(qb_graph *g, qb_value matrix_tangent, qb_value solution, qb_value side_tangent,
                             bool is_transposed, bool right)
{
    if (matrix_tangent == QB_NONE)
        return side_tangent;
    qb_value change = right ? qb_matrix_product(g, solution, false, matrix_tangent, is_transposed)
                            : qb_matrix_product(g, matrix_tangent, is_transposed, solution, false);
    return side_tangent == QB_NONE ? qb_neg(g, change) : qb_sub(g, side_tangent, change);
}

/* Operands first .. limit-1 with the batch axis, where one of them is mapped; false where none is. */
static bool map_together(qb_rule *r, int first, int limit, qb_value *out)
{
    bool any = false;
    for (int i = first; i < limit; i++)
        any = any || r->mapped[i];
    for (int i = first; i < limit; i++)
        out[i] = !any || r->mapped[i] ? r->operand[i] : qb_broadcast_leading(r->graph, r->operand[i], r->batch_size);
    return any;
}

/* A mapped right-hand side of matrices that are not: its examples become further columns (rows, for matrices on the
 * right) of one right-hand side, so that the matrices are read and factored once. */
typedef struct folded {
    qb_value side;
    bool right, flipped; /* flipped: a single column has become rows, and the matrices are on the other side */
    qb_type apart;       /* the shape in which the examples are told apart */
    int64_t order[QB_MAX_RANK];
} folded;

static folded fold_examples(qb_graph *g, qb_value side, bool right)
{
    folded f = {.side = side, .right = right};
    if (side < 0)
        return f;
    qb_type type;
    qb_value_type(g, side, &type);
    int rank = type.rank, batch = rank - 3; /* axes: the examples, `batch` ones, two of the matrix */
    f.flipped = !right && type.shape[rank - 1] == 1;
    f.right = right || f.flipped;
    if (f.flipped) {
        type.shape[rank - 1] = type.shape[rank - 2];
        type.shape[rank - 2] = 1;
        side = qb_reshape(g, side, rank, type.shape);
    }
    for (int i = 0; i < batch; i++)
        f.order[i] = i + 1;
    f.order[batch] = f.right ? 0 : batch + 1;
    f.order[batch + 1] = f.right ? batch + 1 : 0;
    f.order[batch + 2] = batch + 2;
    qb_type_set(&f.apart, type.dtype, rank, type.shape);
    for (int i = 0; i < rank; i++)
        f.apart.shape[i] = type.shape[f.order[i]];
    int64_t shape[QB_MAX_RANK];
    memcpy(shape, f.apart.shape, sizeof shape);
    int joined = f.right ? batch : batch + 1; /* this axis and the next become one */
    shape[joined] *= shape[joined + 1];
    if (f.right)
        shape[joined + 1] = shape[joined + 2];
    f.side = qb_reshape(g, qb_permute(g, side, rank, f.order), rank - 1, shape);
    return f;
}

static qb_value unfold_examples(qb_graph *g, const folded *f, qb_value solution)
{
    if (solution < 0)
        return solution;
    int rank = f->apart.rank;
    int64_t back[QB_MAX_RANK], shape[QB_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        back[f->order[i]] = i;
        shape[f->order[i]] = f->apart.shape[i];
    }
    solution = qb_permute(g, qb_reshape(g, solution, rank, f->apart.shape), rank, back);
    if (!f->flipped)
        return solution;
    shape[rank - 2] = shape[rank - 1];
    shape[rank - 1] = 1;
    return qb_reshape(g, solution, rank, shape);
}

/* ---- cholesky: the lower factor of the symmetric part, zeros above it; NaN everywhere where that is not positive
 * definite */

static qb_status cholesky_infer(const qb_inference *in)
{
    QB_TRY(qb_check_matrices(in, &in->operand[0], true));
    *in->result = in->operand[0];
    return QB_OK;
}

/* dL = L Phi(L^-1 dS L^-T), Phi taking the lower triangle and half the diagonal (Murray, "Differentiation of the
 * Cholesky decomposition", 2016, equation 8). */
static void cholesky_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value l = r->result[0], t = r->tangent[0], half;
    t = qb_add(g, t, qb_matrix_transposed(g, t));
    t = qb_mul(g, t, qb_splat_like(g, t, 0.5));
    t = qb_triangular_solve(g, l, t, QB_SOLVE_LOWER);
    t = qb_triangular_solve(g, l, t, QB_SOLVE_LOWER | QB_SOLVE_TRANSPOSED | QB_SOLVE_RIGHT);
    half = qb_mul(g, t, qb_splat_like(g, t, 0.5));
    t = qb_select(g, qb_is_in_part(g, t, QB_PART_DIAGONAL), half, qb_lower_part(g, t, false));
    r->result_tangent[0] = qb_matrix_product(g, l, false, t, false);
}

static void cholesky_batch(qb_rule *r)
{
    r->batched_result[0] = qb_cholesky(r->graph, r->operand[0]);
}

static double cholesky_flops(const qb_graph *graph, const qb_node *node)
{
    double n = qb_extent_from_end(graph, node->result, 1);
    return qb_matrix_count(graph, node->result) * n * n * n / 3;
}

const qb_op qb_op_cholesky = {.name = "cholesky",
                              .summary = "The lower Cholesky factor of the symmetric part of matrices; NaN where that "
                                         "is not positive definite",
                              .arity = 1,
                              .result_count = 1,
                              .lane = QB_LANE_NONE,
                              .flops = cholesky_flops,
                              .infer = cholesky_infer,
                              .jvp = cholesky_jvp,
                              .batch = cholesky_batch,
                              .cpu = qb_cholesky_run};

qb_value qb_cholesky(qb_graph *graph, qb_value a)
{
    return qb_emit(graph, &qb_op_cholesky, 1, &a, NULL);
}

/* ---- triangular_solve: reads one triangle of its matrix only; with `unit`, not its diagonal either, which is 1. Where
 * an element of the diagonal is 0, the whole solution is NaN. */

enum { TRIANGULAR_LOWER, TRIANGULAR_UNIT, TRIANGULAR_TRANSPOSED, TRIANGULAR_RIGHT, TRIANGULAR_ATTRIBUTES };

static unsigned triangular_form(const qb_attribute *attribute)
{
    return (attribute[TRIANGULAR_LOWER].integer ? QB_SOLVE_LOWER : 0) |
           (attribute[TRIANGULAR_UNIT].integer ? QB_SOLVE_UNIT : 0) |
           (attribute[TRIANGULAR_TRANSPOSED].integer ? QB_SOLVE_TRANSPOSED : 0) |
           (attribute[TRIANGULAR_RIGHT].integer ? QB_SOLVE_RIGHT : 0);
}

static qb_status triangular_solve_infer(const qb_inference *in)
{
    QB_TRY(qb_check_matrices(in, &in->operand[0], true));
    QB_TRY(check_right_hand_side(in, &in->operand[0], &in->operand[1], in->attribute[TRIANGULAR_RIGHT].integer != 0));
    *in->result = in->operand[1];
    return QB_OK;
}

static void triangular_solve_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    unsigned form = triangular_form(r->attribute);
    qb_value t = r->tangent[0];
    if (t != QB_NONE && (form & QB_SOLVE_LOWER))
        t = qb_lower_part(g, t, !(form & QB_SOLVE_UNIT));
    else if (t != QB_NONE)
        t = qb_upper_part(g, t, !(form & QB_SOLVE_UNIT));
    t = changed_side(g, t, r->result[0], r->tangent[1], (form & QB_SOLVE_TRANSPOSED) != 0,
                     (form & QB_SOLVE_RIGHT) != 0);
    r->result_tangent[0] = qb_triangular_solve(g, r->operand[0], t, form);
}

static void triangular_solve_transpose(qb_rule *r)
{
    unsigned form = triangular_form(r->attribute) ^ QB_SOLVE_TRANSPOSED;
    if (r->linear[1])
        r->operand_cotangent[1] = qb_triangular_solve(r->graph, r->operand[0], r->cotangent[0], form);
}

static void triangular_solve_batch(qb_rule *r)
{
    qb_graph *g = r->graph;
    unsigned form = triangular_form(r->attribute);
    qb_value operands[2];
    if (r->mapped[0]) {
        (void)map_together(r, 0, 2, operands);
        r->batched_result[0] = qb_triangular_solve(g, operands[0], operands[1], form);
        return;
    }
    folded f = fold_examples(g, r->operand[1], (form & QB_SOLVE_RIGHT) != 0);
    form ^= f.flipped ? QB_SOLVE_RIGHT | QB_SOLVE_TRANSPOSED : 0;
    r->batched_result[0] = unfold_examples(g, &f, qb_triangular_solve(g, r->operand[0], f.side, form));
}

static double triangular_solve_flops(const qb_graph *graph, const qb_node *node)
{
    return (double)qb_value_size(graph, node->result) * qb_extent_from_end(graph, qb_operand(graph, node, 0), 1);
}

const qb_op qb_op_triangular_solve = {.name = "triangular_solve",
                                      .summary = "The solution x of A x = b or x A = b, A triangular or the transpose "
                                                 "of such",
                                      .arity = 2,
                                      .result_count = 1,
                                      .attribute_count = TRIANGULAR_ATTRIBUTES,
                                      .attribute_name = {"lower", "unit", "transposed", "right"},
                                      .lane = QB_LANE_NONE,
                                      .flops = triangular_solve_flops,
                                      .infer = triangular_solve_infer,
                                      .jvp = triangular_solve_jvp,
                                      .transpose = triangular_solve_transpose,
                                      .batch = triangular_solve_batch,
                                      .cpu = qb_triangular_solve_run};

qb_value qb_triangular_solve(qb_graph *graph, qb_value a, qb_value b, unsigned form)
{
    const qb_attribute attributes[TRIANGULAR_ATTRIBUTES] = {[TRIANGULAR_LOWER] = qb_int((form & QB_SOLVE_LOWER) != 0),
                                                            [TRIANGULAR_UNIT] = qb_int((form & QB_SOLVE_UNIT) != 0),
                                                            [TRIANGULAR_TRANSPOSED] =
                                                                qb_int((form & QB_SOLVE_TRANSPOSED) != 0),
                                                            [TRIANGULAR_RIGHT] = qb_int((form & QB_SOLVE_RIGHT) != 0)};
    return qb_emit(graph, &qb_op_triangular_solve, 2, (qb_value[]){a, b}, attributes);
}

/* ---- lu: of m x n matrices, with partial pivoting */

static qb_status lu_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    QB_TRY(qb_check_matrices(in, a, false));
    int64_t rows = a->shape[a->rank - 2], columns = a->shape[a->rank - 1], size;
    in->result[0] = *a;
    in->result[0].shape[a->rank - 2] = columns;
    in->result[0].shape[a->rank - 1] = rows;
    qb_type_set(&in->result[1], QB_INT64, a->rank - 1, a->shape);
    in->result[1].shape[a->rank - 2] = rows < columns ? rows : columns;
    qb_type_set(&in->result[2], a->dtype, a->rank - 2, a->shape);
    return qb_shape_size(in->result[1].rank, in->result[1].shape, sizeof(int64_t), &size);
}

/* Matrices with rows or columns of the unit matrix (or zeros, off its diagonal) added up to n x n. */
static qb_value extended(qb_graph *g, qb_value a, int64_t n)
{
    if (a < 0)
        return a;
    qb_type type;
    qb_value_type(g, a, &type);
    int64_t none[QB_MAX_RANK] = {0}, high[QB_MAX_RANK] = {0}, *plane = type.shape + type.rank - 2;
    int64_t rows = plane[0], columns = plane[1], k = rows < columns ? rows : columns;
    high[type.rank - 2] = n - rows;
    high[type.rank - 1] = n - columns;
    plane[0] = plane[1] = n;
    qb_value row = qb_iota(g, QB_INT64, 2, plane, 0), column = qb_iota(g, QB_INT64, 2, plane, 1);
    qb_value added =
        qb_bit_and(g, qb_equal(g, row, column), qb_less_equal(g, qb_splat(g, QB_INT64, 2, plane, (double)k), row));
    return qb_select(g, qb_broadcast_to(g, added, type.rank, type.shape),
                     qb_splat(g, type.dtype, type.rank, type.shape, 1), qb_pad(g, a, none, high, none));
}

/* The factors L (m x m) and U (n x n), each transposed, of m x n matrices: where these are not square, columns of
 * the unit matrix complete L, rows of it U. Their other triangles hold what does not belong to them. */
static void square_factors(qb_graph *g, qb_value factors, qb_value *l, qb_value *u)
{
    *l = *u = factors;
    if (factors < 0)
        return;
    int rank = qb_graph_rank(g, factors);
    const int64_t *shape = qb_graph_shape(g, factors);
    int64_t columns = shape[rank - 2], rows = shape[rank - 1];
    if (rows == columns)
        return;
    qb_value other_way = qb_matrix_transposed(g, factors);
    *l = rows > columns ? extended(g, factors, rows) : qb_matrix_part(g, factors, 2, 0, rows);
    *u = rows < columns ? extended(g, factors, columns)
                        : qb_matrix_transposed(g, qb_matrix_part(g, other_way, 2, 0, columns));
}

/* With dA's rows exchanged as A's were, and T = L^-1 dA U^-1: dL = L below(T), dU = upper(T) U; L and U square as
 * above. */
static void lu_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    int rank = qb_graph_rank(g, r->operand[0]);
    int64_t rows = qb_graph_shape(g, r->operand[0])[rank - 2], axis = rank - 2;
    qb_value order = qb_permutation(g, r->result[1], rows), l, u;
    qb_value t = qb_gather(g, r->tangent[0], 1, &order, &axis, (int)axis, QB_BOUNDS_CLAMP);
    square_factors(g, r->result[0], &l, &u);
    t = qb_triangular_solve(g, l, t, QB_SOLVE_UNIT | QB_SOLVE_TRANSPOSED);
    t = qb_triangular_solve(g, u, t, QB_SOLVE_LOWER | QB_SOLVE_TRANSPOSED | QB_SOLVE_RIGHT);
    qb_value unit = qb_add(g, qb_upper_part(g, l, false), qb_identity_like(g, l));
    qb_value of_l = qb_matrix_product(g, unit, true, qb_lower_part(g, t, false), false);
    qb_value of_u = qb_matrix_product(g, qb_upper_part(g, t, true), false, qb_lower_part(g, u, true), true);
    r->result_tangent[0] = qb_matrix_transposed(g, qb_add(g, of_l, of_u));
}

static void lu_batch(qb_rule *r)
{
    qb_lu(r->graph, r->operand[0], r->batched_result);
}

static double lu_flops(const qb_graph *graph, const qb_node *node)
{
    double m = qb_extent_from_end(graph, node->result, 1), n = qb_extent_from_end(graph, node->result, 2);
    double k = m < n ? m : n, longer = m < n ? n : m;
    return qb_matrix_count(graph, node->result) * k * k * (longer - k / 3);
}

const qb_op qb_op_lu = {.name = "lu",
                        .summary = "The factors L and U of matrices with rows exchanged, in one array, transposed; the "
                                   "exchanges; their sign, 0 for a singular matrix",
                        .arity = 1,
                        .result_count = 3,
                        .lane = QB_LANE_NONE,
                        .flops = lu_flops,
                        .infer = lu_infer,
                        .jvp = lu_jvp,
                        .batch = lu_batch,
                        .cpu = qb_lu_run};

void qb_lu(qb_graph *graph, qb_value a, qb_value results[3])
{
    if (!qb_emit_all(graph, &qb_op_lu, 1, &a, NULL, results))
        results[0] = results[1] = results[2] = QB_FAILED;
}

/* ---- permutation: the order in which exchanges leave the rows */

static qb_status permutation_infer(const qb_inference *in)
{
    const qb_type *pivots = &in->operand[0];
    int64_t rows = in->attribute[0].integer, size;
    if (pivots->dtype != QB_INT64 || pivots->rank < 1 || rows < pivots->shape[pivots->rank - 1])
        return qb_fail(QB_ERROR_VALUE, "permutation: %s are no exchanges of %lld rows",
                       qb_print_type(pivots->dtype, pivots->rank, pivots->shape).text, (long long)rows);
    *in->result = *pivots;
    in->result->shape[pivots->rank - 1] = rows;
    return qb_shape_size(in->result->rank, in->result->shape, sizeof(int64_t), &size);
}

static void permutation_batch(qb_rule *r)
{
    r->batched_result[0] = qb_permutation(r->graph, r->operand[0], r->attribute[0].integer);
}

const qb_op qb_op_permutation = {.name = "permutation",
                                 .summary = "The permutation of rows that a list of exchanges makes",
                                 .arity = 1,
                                 .result_count = 1,
                                 .flags = QB_OP_FLAT,
                                 .attribute_count = 1,
                                 .attribute_name = {"rows"},
                                 .lane = QB_LANE_NONE,
                                 .infer = permutation_infer,
                                 .batch = permutation_batch,
                                 .cpu = qb_permutation_run};

qb_value qb_permutation(qb_graph *graph, qb_value pivots, int64_t rows)
{
    const qb_attribute attribute = qb_int(rows);
    return qb_emit(graph, &qb_op_permutation, 1, &pivots, &attribute);
}

/* ---- What takes square matrices with their lu: operands a, factors, pivots come first. The value is made of the
 * factors, the derivative is that in a. */

static qb_status check_lu(const qb_inference *in)
{
    const qb_type *a = &in->operand[0], *factors = &in->operand[1], *pivots = &in->operand[2];
    QB_TRY(qb_check_matrices(in, a, true));
    if (factors->dtype != a->dtype || !qb_shape_equal(a->rank, a->shape, factors->rank, factors->shape) ||
        pivots->dtype != QB_INT64 || !qb_shape_equal(a->rank - 1, a->shape, pivots->rank, pivots->shape))
        return qb_fail(QB_ERROR_VALUE, "%s: factors %s and exchanges %s are not those of matrices %s", in->op->name,
                       qb_print_type(factors->dtype, factors->rank, factors->shape).text,
                       qb_print_type(pivots->dtype, pivots->rank, pivots->shape).text,
                       qb_print_type(a->dtype, a->rank, a->shape).text);
    return QB_OK;
}

/* ---- lu_solve: NaN where the matrix is singular */

enum { LU_TRANSPOSED, LU_RIGHT, LU_ATTRIBUTES };

static unsigned lu_form(const qb_attribute *attribute)
{
    return (attribute[LU_TRANSPOSED].integer ? QB_SOLVE_TRANSPOSED : 0) |
           (attribute[LU_RIGHT].integer ? QB_SOLVE_RIGHT : 0);
}

static qb_status lu_solve_infer(const qb_inference *in)
{
    QB_TRY(check_lu(in));
    QB_TRY(check_right_hand_side(in, &in->operand[0], &in->operand[3], in->attribute[LU_RIGHT].integer != 0));
    *in->result = in->operand[3];
    return QB_OK;
}

static void lu_solve_jvp(qb_rule *r)
{
    unsigned form = lu_form(r->attribute);
    qb_value t = changed_side(r->graph, r->tangent[0], r->result[0], r->tangent[3], (form & QB_SOLVE_TRANSPOSED) != 0,
                              (form & QB_SOLVE_RIGHT) != 0);
    if (t != QB_NONE)
        r->result_tangent[0] = qb_lu_solve(r->graph, r->operand, t, form);
}

static void lu_solve_transpose(qb_rule *r)
{
    if (r->linear[3])
        r->operand_cotangent[3] =
            qb_lu_solve(r->graph, r->operand, r->cotangent[0], lu_form(r->attribute) ^ QB_SOLVE_TRANSPOSED);
}

static void lu_solve_batch(qb_rule *r)
{
    qb_graph *g = r->graph;
    unsigned form = lu_form(r->attribute);
    qb_value operands[4];
    if (map_together(r, 0, 3, operands)) {
        operands[3] = r->mapped[3] ? r->operand[3] : qb_broadcast_leading(g, r->operand[3], r->batch_size);
        r->batched_result[0] = qb_lu_solve(g, operands, operands[3], form);
        return;
    }
    folded f = fold_examples(g, r->operand[3], (form & QB_SOLVE_RIGHT) != 0);
    form ^= f.flipped ? QB_SOLVE_RIGHT | QB_SOLVE_TRANSPOSED : 0;
    r->batched_result[0] = unfold_examples(g, &f, qb_lu_solve(g, r->operand, f.side, form));
}

static double lu_solve_flops(const qb_graph *graph, const qb_node *node)
{
    return 2 * (double)qb_value_size(graph, node->result) * qb_extent_from_end(graph, qb_operand(graph, node, 0), 1);
}

const qb_op qb_op_lu_solve = {.name = "lu_solve",
                              .summary = "The solution x of A x = b or x A = b, A the matrices that were factored or "
                                         "their transposes; NaN where they are singular",
                              .arity = 4,
                              .result_count = 1,
                              .attribute_count = LU_ATTRIBUTES,
                              .attribute_name = {"transposed", "right"},
                              .lane = QB_LANE_NONE,
                              .flops = lu_solve_flops,
                              .infer = lu_solve_infer,
                              .jvp = lu_solve_jvp,
                              .transpose = lu_solve_transpose,
                              .batch = lu_solve_batch,
                              .cpu = qb_lu_solve_run};

qb_value qb_lu_solve(qb_graph *graph, const qb_value factored[3], qb_value b, unsigned form)
{
    const qb_attribute attributes[LU_ATTRIBUTES] = {
        [LU_TRANSPOSED] = qb_int((form & QB_SOLVE_TRANSPOSED) != 0), [LU_RIGHT] = qb_int((form & QB_SOLVE_RIGHT) != 0)};
    return qb_emit(graph, &qb_op_lu_solve, 4, (qb_value[]){factored[0], factored[1], factored[2], b}, attributes);
}

/* ---- determinant: its sign, the logarithm of its size, and itself, from the lu and its parity */

static qb_status determinant_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0], *parity = &in->operand[3];
    QB_TRY(check_lu(in));
    if (parity->dtype != a->dtype || !qb_shape_equal(a->rank - 2, a->shape, parity->rank, parity->shape))
        return qb_fail(QB_ERROR_VALUE, "determinant: signs %s are not those of matrices %s",
                       qb_print_type(parity->dtype, parity->rank, parity->shape).text,
                       qb_print_type(a->dtype, a->rank, a->shape).text);
    for (int i = 0; i < 3; i++)
        in->result[i] = *parity;
    return QB_OK;
}

/* d log|det A| = trace(A^-1 dA) */
static void determinant_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    if (r->tangent[0] == QB_NONE)
        return;
    int64_t rank = qb_graph_rank(g, r->operand[0]);
    qb_value solved = qb_lu_solve(g, r->operand, r->tangent[0], 0);
    if (solved >= 0)
        solved = qb_select(g, qb_is_in_part(g, solved, QB_PART_DIAGONAL), solved, qb_splat_like(g, solved, 0));
    r->result_tangent[1] = qb_reduce_sum(g, solved, 2, (const int64_t[]){rank - 2, rank - 1});
    r->result_tangent[2] = qb_mul(g, r->result[2], r->result_tangent[1]);
}

static void determinant_batch(qb_rule *r)
{
    qb_value operands[4];
    (void)map_together(r, 0, 4, operands);
    qb_determinant(r->graph, operands, r->batched_result);
}

static double determinant_flops(const qb_graph *graph, const qb_node *node)
{
    qb_value a = qb_operand(graph, node, 0);
    return qb_matrix_count(graph, a) * 2 * qb_extent_from_end(graph, a, 1);
}

const qb_op qb_op_determinant = {.name = "determinant",
                                 .summary = "The sign of the determinant, the logarithm of its absolute value, and "
                                            "itself, of factored matrices",
                                 .arity = 4,
                                 .result_count = 3,
                                 .lane = QB_LANE_NONE,
                                 .flops = determinant_flops,
                                 .infer = determinant_infer,
                                 .jvp = determinant_jvp,
                                 .batch = determinant_batch,
                                 .cpu = qb_determinant_run};

void qb_determinant(qb_graph *graph, const qb_value factored[4], qb_value results[3])
{
    if (!qb_emit_all(graph, &qb_op_determinant, 4, factored, NULL, results))
        results[0] = results[1] = results[2] = QB_FAILED;
}
