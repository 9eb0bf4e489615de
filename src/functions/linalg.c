/* qb.linalg: what users call, from the factorizations and solutions of ops/linalg.c.
 *
 * Matrices are factored in the batch that they have themselves. Where the right-hand side has batch axes that they
 * lack, these become further columns or rows of it. */
#include "functions/builder.h"
#include "ops/matrices.h"

/* ---- Operands */

static qb_status check_square(const qb_call *call, int operand)
{
    qb_type type;
    qb_value_type(call->graph, call->operand[operand], &type);
    if (type.rank < 2 || type.shape[type.rank - 1] != type.shape[type.rank - 2])
        return qb_fail(QB_ERROR_VALUE, "%s: takes square matrices, in the last two axes, got shape %s",
                       call->function->name, qb_print_shape(type.rank, type.shape).text);
    return QB_OK;
}

/* ---- Solving, with batch axes that broadcast */

/* Matrices, and what has been made of them: whose last axes are those of the matrices, or one of them. */
typedef struct matrices {
    enum { TRIANGULAR, SYMMETRIC, GENERAL } kind; /* its factor, for a symmetric one */
    unsigned form;                                /* of the triangular matrix, or factor */
    qb_type type;
    qb_value value[3]; /* for GENERAL: the matrix, its factors and pivots */
} matrices;

static qb_value solve_with(qb_graph *g, const matrices *m, qb_value b, bool right)
{
    unsigned side = right ? QB_SOLVE_RIGHT : 0, form = m->form ^ side;
    if (right)
        form ^= QB_SOLVE_TRANSPOSED; /* the same equation, of rows instead of columns */
    if (m->kind == GENERAL)
        return qb_lu_solve(g, m->value, b, form);
    if (m->kind == TRIANGULAR)
        return qb_triangular_solve(g, m->value[0], b, form);
    bool lower = m->form & QB_SOLVE_LOWER; /* c c^T, or c^T c */
    form ^= lower ? 0 : QB_SOLVE_TRANSPOSED;
    return qb_triangular_solve(g, m->value[0], qb_triangular_solve(g, m->value[0], b, form),
                               form ^ QB_SOLVE_TRANSPOSED);
}

/* The right-hand side of an equation, in the shape that the function gives back. */
typedef struct sides {
    qb_value value;
    qb_type type; /* [batch..., n, m] */
    bool is_vector;
} sides;

/* b with the batch axes that it and the matrices broadcast to. */
static qb_status take_sides(qb_call *call, const qb_type *a, qb_value b, sides *out)
{
    qb_type given, batch_a, batch_b;
    qb_value_type(call->graph, call->operand[1], &given);
    *out = (sides){.is_vector = given.rank == 1};
    int64_t n = a->shape[a->rank - 1], rows = given.rank == 0 ? -1 : given.shape[out->is_vector ? 0 : given.rank - 2];
    qb_type_set(&batch_a, a->dtype, a->rank - 2, a->shape);
    qb_type_set(&batch_b, a->dtype, given.rank > 2 ? given.rank - 2 : 0, given.shape);
    if (rows != n || qb_broadcast_shapes(call, 2, (const qb_type[]){batch_a, batch_b}, &out->type) != QB_OK ||
        out->type.rank > QB_MAX_RANK - 2)
        return qb_fail(QB_ERROR_VALUE,
                       "%s: matrices of shape %s and a right-hand side of shape %s: its %s must be %lld, and the axes "
                       "before the last two broadcast (a vector has one axis; a batch of vectors is [..., n, 1])",
                       call->function->name, qb_print_shape(a->rank, a->shape).text,
                       qb_print_shape(given.rank, given.shape).text, given.rank > 1 ? "last extent but one" : "extent",
                       (long long)n);
    out->type.dtype = a->dtype;
    out->type.shape[out->type.rank++] = n;
    out->type.shape[out->type.rank++] = out->is_vector ? 1 : given.shape[given.rank - 1];
    if (out->is_vector)
        b = qb_reshape(call->graph, b, 2, (const int64_t[]){n, 1});
    out->value = qb_broadcast_to(call->graph, b, out->type.rank, out->type.shape);
    return QB_OK;
}

/* The batch axes that the matrices have, and those that only the right-hand side has. */
typedef struct batch_axes {
    int kept_count, own_count;
    int64_t kept[QB_MAX_RANK], own[QB_MAX_RANK], kept_shape[QB_MAX_RANK], own_size;
} batch_axes;

static batch_axes tell_batch_axes(const qb_type *a, const qb_type *b)
{
    batch_axes axes = {.own_size = 1};
    for (int i = 0; i < b->rank - 2; i++) {
        int place = i - (b->rank - a->rank);
        if (place >= 0 && a->shape[place] == b->shape[i]) {
            axes.kept_shape[axes.kept_count] = b->shape[i];
            axes.kept[axes.kept_count++] = i;
        } else {
            axes.own[axes.own_count++] = i;
            axes.own_size *= b->shape[i];
        }
    }
    return axes;
}

/* The arrays of the matrices without batch axes of extent 1 that the right-hand side does not have so. */
static void keep_batch_axes(qb_graph *g, matrices *m, const batch_axes *axes)
{
    int64_t shape[QB_MAX_RANK];
    memcpy(shape, axes->kept_shape, sizeof shape);
    shape[axes->kept_count] = shape[axes->kept_count + 1] = m->type.shape[m->type.rank - 1];
    for (int i = 0; i < (m->kind == GENERAL ? 3 : 1); i++)
        m->value[i] = qb_reshape(g, m->value[i], axes->kept_count + (i == 2 ? 1 : 2), shape);
}

/* Axes (kept, own, n), which are rows, for vectors; else (kept, n, own, m). */
static qb_value solve_in_one(qb_graph *g, const matrices *m, const sides *b, const batch_axes *axes)
{
    int rank = b->type.rank, count = 0;
    bool rows = b->type.shape[rank - 1] == 1;
    int64_t order[QB_MAX_RANK], back[QB_MAX_RANK], apart[QB_MAX_RANK], shape[QB_MAX_RANK];
    for (int i = 0; i < axes->kept_count; i++)
        order[count++] = axes->kept[i];
    if (!rows)
        order[count++] = rank - 2;
    for (int i = 0; i < axes->own_count; i++)
        order[count++] = axes->own[i];
    if (rows)
        order[count++] = rank - 2;
    order[count] = rank - 1;
    for (int i = 0; i < rank; i++) {
        apart[i] = b->type.shape[order[i]];
        back[order[i]] = i;
    }
    int64_t n = b->type.shape[rank - 2], together = axes->own_size * b->type.shape[rank - 1];
    memcpy(shape, axes->kept_shape, sizeof shape);
    shape[axes->kept_count] = rows ? together : n;
    shape[axes->kept_count + 1] = rows ? n : together;
    qb_value side = qb_reshape(g, qb_permute(g, b->value, rank, order), axes->kept_count + 2, shape);
    return qb_permute(g, qb_reshape(g, solve_with(g, m, side, rows), rank, apart), rank, back);
}

/* The result of a function of matrices and operand 1, which has become b. */
static qb_status solve(qb_call *call, matrices *m, qb_value b)
{
    qb_graph *g = call->graph;
    sides s;
    QB_TRY(take_sides(call, &m->type, b, &s));
    batch_axes axes = tell_batch_axes(&m->type, &s.type);
    if (axes.own_count > 0) {
        keep_batch_axes(g, m, &axes);
        s.value = solve_in_one(g, m, &s, &axes);
    } else {
        s.value = solve_with(g, m, s.value, false);
    }
    call->result = s.is_vector ? qb_reshape(g, s.value, s.type.rank - 1, s.type.shape) : s.value;
    return QB_OK;
}

/* Operand 0 as square matrices, and operand 1, of one floating dtype. */
static qb_status take_equation(qb_call *call, matrices *m, qb_value *b)
{
    qb_value values[2];
    QB_TRY(check_square(call, 0));
    QB_TRY(qb_promote_operands(call, QB_TAKES_FLOATING, 2, (const int[]){0, 1}, values));
    qb_value_type(call->graph, call->operand[0], &m->type);
    if (values[0] >= 0)
        m->type.dtype = qb_graph_dtype(call->graph, values[0]);
    m->value[0] = values[0];
    *b = values[1];
    return QB_OK;
}

qb_status qb_build_solve_triangular(qb_call *call)
{
    matrices m = {.kind = TRIANGULAR};
    qb_value b;
    int64_t trans = call->parameter[0].integer;
    if (trans < 0 || trans > 2)
        return qb_fail(QB_ERROR_VALUE, "%s: trans must be 0 (the matrix), 1 or 2 (its transpose), got %lld",
                       call->function->name, (long long)trans);
    m.form = (trans ? QB_SOLVE_TRANSPOSED : 0) | (call->parameter[1].integer ? QB_SOLVE_LOWER : 0);
    QB_TRY(take_equation(call, &m, &b));
    return solve(call, &m, b);
}

qb_status qb_build_cho_solve(qb_call *call)
{
    matrices m = {.kind = SYMMETRIC, .form = call->parameter[0].integer ? QB_SOLVE_LOWER : 0};
    qb_value b;
    QB_TRY(take_equation(call, &m, &b));
    return solve(call, &m, b);
}

/* ---- Factorizations */

qb_status qb_build_cholesky(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value a;
    QB_TRY(check_square(call, 0));
    QB_TRY(qb_take_operand(call, QB_TAKES_FLOATING, 0, &a));
    call->result = qb_cholesky(g, a);
    if (a < 0 || call->result < 0 || qb_graph_shape(g, a)[qb_graph_rank(g, a) - 1] == 0)
        return QB_OK;
    qb_type type;
    int64_t start[QB_MAX_RANK] = {0}, step[QB_MAX_RANK];
    qb_value_type(g, a, &type);
    for (int i = 0; i < type.rank; i++)
        step[i] = 1;
    type.shape[type.rank - 1] = type.shape[type.rank - 2] = 1;
    qb_value corner = qb_slice(g, call->result, start, type.shape, step);
    call->failed = qb_reshape(g, qb_isnan(g, corner), type.rank - 2, type.shape);
    call->failure = "is not positive definite";
    return QB_OK;
}

/* The matrix, its factors and pivots, and its sign. */
static void factor(qb_call *call, qb_value a, qb_value factored[4])
{
    factored[0] = a;
    qb_lu(call->graph, a, factored + 1);
}

static void fail_where_singular(qb_call *call, qb_value parity)
{
    call->failed = qb_equal(call->graph, parity, qb_splat_like(call->graph, parity, 0));
    call->failure = "is singular: a pivot is 0";
}

qb_status qb_build_solve(qb_call *call)
{
    matrices m = {.kind = GENERAL};
    qb_value b, factored[4];
    QB_TRY(take_equation(call, &m, &b));
    factor(call, m.value[0], factored);
    memcpy(m.value, factored, sizeof m.value);
    fail_where_singular(call, factored[3]);
    return solve(call, &m, b);
}

qb_status qb_build_inv(qb_call *call)
{
    qb_value a, factored[4];
    QB_TRY(check_square(call, 0));
    QB_TRY(qb_take_operand(call, QB_TAKES_FLOATING, 0, &a));
    factor(call, a, factored);
    fail_where_singular(call, factored[3]);
    call->result = qb_lu_solve(call->graph, factored, qb_identity_like(call->graph, a), 0);
    return QB_OK;
}

static qb_status build_determinant(qb_call *call, qb_value results[3])
{
    qb_value a, factored[4];
    QB_TRY(check_square(call, 0));
    QB_TRY(qb_take_operand(call, QB_TAKES_FLOATING, 0, &a));
    factor(call, a, factored);
    qb_determinant(call->graph, factored, results);
    return QB_OK;
}

qb_status qb_build_slogdet(qb_call *call)
{
    return build_determinant(call, call->results);
}

qb_status qb_build_det(qb_call *call)
{
    qb_value results[3];
    QB_TRY(build_determinant(call, results));
    call->result = results[2];
    return QB_OK;
}

/* The unit matrix's rows where the exchanges leave them: P[order[i], i] = 1. */
static qb_value permutation_matrix(qb_graph *g, qb_value pivots, const qb_type *type)
{
    int rank = type->rank;
    int64_t rows = type->shape[rank - 2], shape[QB_MAX_RANK], axes[QB_MAX_RANK];
    for (int i = 0; i < rank - 2; i++) {
        shape[i] = type->shape[i];
        axes[i] = i;
    }
    shape[rank - 2] = shape[rank - 1] = rows;
    axes[rank - 2] = rank - 1;
    qb_value order = qb_broadcast(g, qb_permutation(g, pivots, rows), rank, shape, axes);
    return qb_convert(g, qb_equal(g, order, qb_iota(g, QB_INT64, rank, shape, rank - 2)), type->dtype);
}

qb_status qb_build_lu(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value a, factored[4];
    qb_type type;
    qb_value_type(g, call->operand[0], &type);
    if (type.rank < 2)
        return qb_fail(QB_ERROR_VALUE, "%s: takes matrices, in the last two axes, got shape %s", call->function->name,
                       qb_print_shape(type.rank, type.shape).text);
    QB_TRY(qb_take_operand(call, QB_TAKES_FLOATING, 0, &a));
    if (a < 0)
        return QB_OK;
    type.dtype = qb_graph_dtype(g, a);
    factor(call, a, factored);
    int rank = type.rank;
    qb_value factors = qb_matrix_transposed(g, factored[1]);
    int64_t rows = type.shape[rank - 2], columns = type.shape[rank - 1], k = rows < columns ? rows : columns;
    qb_value lower = qb_part(g, factors, &type, rank - 1, 0, k), upper = qb_part(g, factors, &type, rank - 2, 0, k);
    call->results[0] = permutation_matrix(g, factored[2], &type);
    call->results[1] = qb_add(g, qb_lower_part(g, lower, false), qb_identity_like(g, lower));
    call->results[2] = qb_upper_part(g, upper, true);
    return QB_OK;
}

/* ---- Powers */

qb_status qb_build_matrix_power(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value square, factored[4], product = QB_NONE;
    int64_t n = call->parameter[0].integer;
    QB_TRY(check_square(call, 0));
    QB_TRY(qb_take_operand(call, n < 0 ? QB_TAKES_FLOATING : QB_TAKES_NUMERIC, 0, &square));
    if (n < 0) {
        factor(call, square, factored);
        fail_where_singular(call, factored[3]);
        square = qb_lu_solve(g, factored, qb_identity_like(g, square), 0);
    }
    for (uint64_t rest = n < 0 ? -(uint64_t)n : (uint64_t)n; rest > 0; rest >>= 1) {
        if (rest & 1)
            product = product == QB_NONE ? square : qb_matrix_product(g, product, false, square, false);
        if (rest > 1)
            square = qb_matrix_product(g, square, false, square, false);
    }
    call->result = product == QB_NONE ? qb_identity_like(g, square) : product;
    return QB_OK;
}
