/* qb.linalg: orthogonal decompositions, and what is made of them. */
#include "functions/builder.h"
#include "ops/matrices.h"

static qb_status take_matrices(qb_call *call, bool square, qb_type *type, qb_value *out)
{
    qb_value_type(call->graph, call->operand[0], type);
    if (type->rank < 2 || (square && type->shape[type->rank - 1] != type->shape[type->rank - 2]))
        return qb_fail(QB_ERROR_VALUE, "%s: takes %smatrices, in the last two axes, got shape %s", call->function->name,
                       square ? "square " : "", qb_print_shape(type->rank, type->shape).text);
    QB_TRY(qb_take_operand(call, QB_TAKES_FLOATING, 0, out));
    if (*out >= 0)
        type->dtype = qb_graph_dtype(call->graph, *out);
    return QB_OK;
}

qb_status qb_build_eigh(qb_call *call)
{
    qb_type type;
    qb_value a;
    QB_TRY(take_matrices(call, true, &type, &a));
    qb_eigh(call->graph, a, call->results);
    call->results[1] = qb_matrix_transposed(call->graph, call->results[1]);
    return QB_OK;
}

qb_status qb_build_svd(qb_call *call)
{
    qb_type type;
    qb_value a;
    QB_TRY(take_matrices(call, false, &type, &a));
    if (call->parameter[1].integer != 0)
        qb_svd(call->graph, a, call->parameter[0].integer != 0, call->results);
    else
        call->result = qb_singular_values(call->graph, a);
    return QB_OK;
}

/* Wide matrices are a square beside what Q takes to the rest of R. */
static void build_wide_qr(qb_call *call, qb_value a, const qb_type *type)
{
    qb_graph *g = call->graph;
    int rank = type->rank;
    int64_t rows = type->shape[rank - 2], columns = type->shape[rank - 1], batch[QB_MAX_RANK];
    for (int i = 0; i < rank - 2; i++)
        batch[i] = i;
    qb_value square = qb_part(g, a, type, rank - 1, 0, rows), rest = qb_part(g, a, type, rank - 1, rows, columns);
    qb_qr(g, square, false, call->results);
    int64_t axis = rank - 2;
    qb_value more = qb_dot(g, call->results[0], rest, 1, &axis, &axis, rank - 2, batch, batch);
    call->results[1] = qb_concat(g, 2, (qb_value[]){call->results[1], more}, rank - 1);
}

qb_status qb_build_qr(qb_call *call)
{
    qb_type type;
    qb_value a;
    char mode[12];
    bool known = qb_attribute_text(&call->parameter[0], sizeof mode, mode);
    bool complete = known && strcmp(mode, "complete") == 0;
    bool triangle_only = known && strcmp(mode, "r") == 0;
    if (!complete && !triangle_only && !(known && strcmp(mode, "reduced") == 0))
        return qb_fail(QB_ERROR_VALUE, "%s: mode must be 'reduced', 'complete' or 'r'", call->function->name);
    QB_TRY(take_matrices(call, false, &type, &a));
    if (type.shape[type.rank - 2] < type.shape[type.rank - 1])
        build_wide_qr(call, a, &type);
    else
        qb_qr(call->graph, a, complete, call->results);
    if (triangle_only) {
        call->result = call->results[1];
        call->results[1] = QB_NONE;
    }
    return QB_OK;
}

/* ---- Pseudo-inverses: singular values that count as 0, and their reciprocals */

/* rtol, or max(m, n) rounding errors. */
static double tolerance_of(const qb_attribute *rtol, const qb_type *a)
{
    int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1];
    double eps = a->dtype == QB_FLOAT64 ? 0x1p-52 : 0x1p-23;
    return qb_is_none(rtol) ? eps * (double)(m > n ? m : n) : rtol->number;
}

/* Where singular values, [batch..., k], are larger than the tolerance times the first of them. */
static qb_value counted(qb_graph *g, qb_value s, const qb_type *type, double tolerance)
{
    qb_value largest = type->shape[type->rank - 1] > 0 ? qb_part(g, s, type, type->rank - 1, 0, 1) : s;
    int64_t axes[QB_MAX_RANK];
    for (int i = 0; i < type->rank; i++)
        axes[i] = i;
    largest = qb_broadcast(g, largest, type->rank, type->shape, axes);
    qb_value limit = qb_mul(g, largest, qb_splat(g, type->dtype, type->rank, type->shape, tolerance));
    return qb_less(g, limit, s);
}

static qb_value rank_of(qb_graph *g, qb_value is_counted, int rank)
{
    int64_t axis = rank - 1;
    return qb_reduce_sum(g, qb_convert(g, is_counted, QB_INT64), 1, &axis);
}

/* The type of the singular values of `a`. */
static qb_type values_type(const qb_type *a)
{
    qb_type type;
    int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1];
    qb_type_set(&type, a->dtype, a->rank - 1, a->shape);
    type.shape[a->rank - 2] = m < n ? m : n;
    return type;
}

typedef struct pseudo_inverse {
    qb_value x, s, is_counted;
    qb_type values; /* of s */
} pseudo_inverse;

/* V s^+ U^T */
static pseudo_inverse invert(qb_graph *g, qb_value a, const qb_type *type, double tolerance)
{
    qb_value parts[3];
    qb_svd(g, a, false, parts);
    pseudo_inverse p = {.s = parts[1], .values = values_type(type)};
    p.is_counted = counted(g, p.s, &p.values, tolerance);
    int rank = type->rank;
    int64_t k = p.values.shape[rank - 2], shape[QB_MAX_RANK], axes[QB_MAX_RANK], batch[QB_MAX_RANK];
    qb_value one = qb_splat_like(g, p.s, 1), zero = qb_splat_like(g, p.s, 0);
    qb_value inverse = qb_select(g, p.is_counted, qb_div(g, one, qb_select(g, p.is_counted, p.s, one)), zero);
    for (int i = 0; i < rank; i++) {
        shape[i] = type->shape[i];
        axes[i] = batch[i] = i;
    }
    shape[rank - 2] = k;
    qb_value scaled = qb_mul(g, parts[2], qb_broadcast(g, inverse, rank, shape, axes));
    int64_t of_v = rank - 2, of_u = rank - 1;
    qb_value x = qb_dot(g, scaled, parts[0], 1, &of_v, &of_u, rank - 2, batch, batch);
    p.x = qb_pseudo_inverse(g, a, x);
    return p;
}

qb_status qb_build_pinv(qb_call *call)
{
    qb_type type;
    qb_value a;
    QB_TRY(take_matrices(call, false, &type, &a));
    call->result = invert(call->graph, a, &type, tolerance_of(&call->parameter[0], &type)).x;
    return QB_OK;
}

qb_status qb_build_matrix_rank(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_type type;
    qb_value a;
    QB_TRY(take_matrices(call, false, &type, &a));
    qb_type values = values_type(&type);
    qb_value is_counted = counted(g, qb_singular_values(g, a), &values, tolerance_of(&call->parameter[0], &type));
    call->result = rank_of(g, is_counted, values.rank);
    return QB_OK;
}

static qb_status matmul(const qb_call *call, qb_value a, qb_value b, qb_value *out)
{
    *out = QB_FAILED;
    if (a < 0 || b < 0)
        return QB_OK;
    qb_call product = {
        .graph = call->graph, .function = call->function, .operand_count = 2, .operand = (qb_value[]){a, b}};
    QB_TRY(qb_build_matmul(&product));
    *out = product.result;
    return QB_OK;
}

/* Sums of squares over the rows of b - a x, where a has more of them than columns; else none of them. */
static qb_status residuals_of(qb_call *call, const qb_type *a, qb_value of_a, qb_value b, qb_value x, qb_value *out)
{
    qb_graph *g = call->graph;
    int64_t nothing = 0;
    if (a->shape[a->rank - 2] <= a->shape[a->rank - 1]) {
        *out = qb_splat(g, a->dtype, 1, &nothing, 0);
        return QB_OK;
    }
    qb_value pair[2] = {b};
    QB_TRY(matmul(call, of_a, x, &pair[1]));
    if (pair[0] < 0 || pair[1] < 0)
        return QB_OK;
    QB_TRY(qb_broadcast_together(call, 2, pair));
    qb_value rest = qb_sub(g, pair[0], pair[1]);
    if (rest < 0)
        return QB_OK;
    int64_t axis = qb_graph_rank(g, rest) - 2;
    *out = qb_reduce_sum(g, qb_mul(g, rest, rest), 1, &axis);
    return QB_OK;
}

qb_status qb_build_lstsq(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_type type, given;
    qb_value values[2], unused, x;
    QB_TRY(take_matrices(call, false, &type, &unused));
    QB_TRY(qb_promote_operands(call, QB_TAKES_FLOATING, 2, (const int[]){0, 1}, values));
    qb_value_type(g, call->operand[1], &given);
    bool is_vector = given.rank == 1;
    int64_t m = type.shape[type.rank - 2];
    if (given.rank == 0 || given.shape[is_vector ? 0 : given.rank - 2] != m)
        return qb_fail(QB_ERROR_VALUE,
                       "%s: matrices of shape %s and a right-hand side of shape %s: its %s must be %lld",
                       call->function->name, qb_print_shape(type.rank, type.shape).text,
                       qb_print_shape(given.rank, given.shape).text, given.rank > 1 ? "last extent but one" : "extent",
                       (long long)m);
    if (values[0] < 0 || values[1] < 0)
        return QB_OK;
    type.dtype = qb_graph_dtype(g, values[0]);
    pseudo_inverse p = invert(g, values[0], &type, tolerance_of(&call->parameter[0], &type));
    qb_value b = is_vector ? qb_reshape(g, values[1], 2, (const int64_t[]){m, 1}) : values[1];
    QB_TRY(matmul(call, p.x, b, &x));
    QB_TRY(residuals_of(call, &type, values[0], b, x, &call->results[1]));
    if (x >= 0)
        call->results[0] = is_vector ? qb_reshape(g, x, qb_graph_rank(g, x) - 1, qb_graph_shape(g, x)) : x;
    call->results[2] = rank_of(g, p.is_counted, p.values.rank);
    call->results[3] = p.s;
    return QB_OK;
}
