/* Products and interpolation that are a few primitives each: kron, cross, polyval, interp. */
#include "functions/builder.h"

/* ---- kron: a[i] b[k] at place i * extent + k along every axis */

qb_status qb_build_kron(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value operands[2];
    qb_type types[2];
    int64_t spread[QB_MAX_RANK], merged[QB_MAX_RANK], axes[2][QB_MAX_RANK];
    QB_TRY(qb_promote_operands(call, QB_TAKES_NUMERIC, 2, (const int[]){0, 1}, operands));
    qb_value_type(g, call->operand[0], &types[0]);
    qb_value_type(g, call->operand[1], &types[1]);
    int rank = types[0].rank > types[1].rank ? types[0].rank : types[1].rank;
    if (2 * rank > QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "kron: shapes %s and %s: operands have %d axes at most",
                       qb_print_shape(types[0].rank, types[0].shape).text,
                       qb_print_shape(types[1].rank, types[1].shape).text, QB_MAX_RANK / 2);
    for (int axis = 0; axis < rank; axis++) {
        merged[axis] = 1;
        for (int k = 0; k < 2; k++) {
            int own = axis - (rank - types[k].rank);
            spread[2 * axis + k] = own < 0 ? 1 : types[k].shape[own];
            merged[axis] *= spread[2 * axis + k];
            if (own >= 0)
                axes[k][own] = 2 * axis + k;
        }
    }
    int64_t size;
    QB_TRY(qb_shape_size(rank, merged, sizeof(double), &size));
    for (int k = 0; k < 2; k++)
        operands[k] = qb_broadcast(g, operands[k], 2 * rank, spread, axes[k]);
    call->result = qb_reshape(g, qb_mul(g, operands[0], operands[1]), rank, merged);
    return QB_OK;
}

/* ---- cross */

/* The operand with the axis, of extent 3, as its last one. */
static qb_status take_vectors(const qb_call *call, int operand, qb_value *value, qb_type *type)
{
    int64_t axis = 0, order[QB_MAX_RANK];
    qb_type given;
    qb_value_type(call->graph, call->operand[operand], &given);
    QB_TRY(qb_required_axis(call, &call->parameter[0], &given, &axis));
    if (given.shape[axis] != 3)
        return qb_fail(QB_ERROR_VALUE,
                       "cross: operand %d has shape %s, and extent %lld along axis %lld; vectors have 3", operand,
                       qb_print_shape(given.rank, given.shape).text, (long long)given.shape[axis], (long long)axis);
    for (int i = 0, next = 0; i < given.rank; i++)
        order[i == axis ? given.rank - 1 : next++] = i;
    *type = given;
    for (int i = 0; i < given.rank; i++)
        type->shape[i] = given.shape[order[i]];
    *value = qb_permute(call->graph, *value, given.rank, order);
    return QB_OK;
}

static qb_value component(qb_graph *g, qb_value vectors, const qb_type *type, int64_t index)
{
    return qb_part(g, vectors, type, type->rank - 1, index, index + 1);
}

qb_status qb_build_cross(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value vectors[2], result[3];
    qb_type types[2], common;
    QB_TRY(qb_promote_operands(call, QB_TAKES_NUMERIC, 2, (const int[]){0, 1}, vectors));
    for (int k = 0; k < 2; k++)
        QB_TRY(take_vectors(call, k, &vectors[k], &types[k]));
    QB_TRY(qb_broadcast_shapes(call, 2, types, &common));
    for (int i = 0; i < 3; i++) {
        int64_t next = (i + 1) % 3, last = (i + 2) % 3;
        qb_value c[4] = {component(g, vectors[0], &types[0], next), component(g, vectors[1], &types[1], last),
                         component(g, vectors[0], &types[0], last), component(g, vectors[1], &types[1], next)};
        QB_TRY(qb_broadcast_together(call, 4, c));
        result[i] = qb_sub(g, qb_mul(g, c[0], c[1]), qb_mul(g, c[2], c[3]));
    }
    qb_value joined = qb_concat(g, 3, result, common.rank - 1);
    int64_t axis = 0, order[QB_MAX_RANK];
    QB_TRY(qb_normalize_axis(call, call->parameter[0].integers[0], common.rank, common.shape, &axis));
    for (int i = 0, next = 0; i < common.rank; i++)
        order[i] = i == axis ? common.rank - 1 : next++;
    call->result = qb_permute(g, joined, common.rank, order);
    return QB_OK;
}

/* ---- polyval: Horner's rule, coefficients of the highest power first */

qb_status qb_build_polyval(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_type p, x;
    qb_value operands[2];
    qb_value_type(g, call->operand[0], &p);
    qb_value_type(g, call->operand[1], &x);
    if (p.rank != 1)
        return qb_fail(QB_ERROR_VALUE, "polyval: the coefficients must have one axis, got shape %s",
                       qb_print_shape(p.rank, p.shape).text);
    QB_TRY(qb_promote_operands(call, QB_TAKES_NUMERIC, 2, (const int[]){0, 1}, operands));
    qb_value sum = p.shape[0] == 0 ? qb_splat_like(g, operands[1], 0) : QB_NONE;
    for (int64_t i = 0; i < p.shape[0]; i++) {
        int64_t limit = i + 1, step = 1;
        qb_value coefficient = qb_reshape(g, qb_slice(g, operands[0], &i, &limit, &step), 0, NULL);
        coefficient = qb_broadcast_to(g, coefficient, x.rank, x.shape);
        sum = sum == QB_NONE ? coefficient : qb_add(g, qb_mul(g, sum, operands[1]), coefficient);
    }
    call->result = sum;
    return QB_OK;
}

/* ---- interp */

/* One element of a vector, repeated. */
static qb_value repeated(qb_graph *g, qb_value vector, int64_t index, int64_t count)
{
    int64_t limit = index + 1, step = 1;
    return qb_broadcast_to(g, qb_reshape(g, qb_slice(g, vector, &index, &limit, &step), 0, NULL), 1, &count);
}

/* Between knots i and i + 1 the line through both: f[i] + (x - x[i]) slope. At the last knot it is taken from its
 * right end, and so exact there too, with the slope to its left. Beyond the ends, where x is moved to a knot so that
 * nothing infinite comes of it, the value is that of the end, and the derivative in x zero. */
static qb_value interpolate(qb_graph *g, qb_value x, qb_value knots, qb_value values, int64_t count, int64_t n)
{
    qb_value first = repeated(g, knots, 0, count), last = repeated(g, knots, n - 1, count);
    qb_value below = qb_less(g, x, first), above = qb_less(g, last, x);
    qb_value zero = qb_splat(g, QB_INT64, 1, &count, 0), one = qb_splat(g, QB_INT64, 1, &count, 1);
    qb_value place = qb_sub(g, qb_searchsorted(g, knots, x, true, 0), one);
    place = qb_min(g, qb_max(g, place, zero), qb_splat(g, QB_INT64, 1, &count, (double)n - 2));
    qb_value next = qb_add(g, place, one), axis_ends[4];
    for (int i = 0; i < 4; i++)
        axis_ends[i] =
            qb_gather(g, i < 2 ? knots : values, 1, i % 2 ? &next : &place, (const int64_t[]){0}, 0, QB_BOUNDS_CLAMP);
    qb_value x0 = axis_ends[0], x1 = axis_ends[1], f0 = axis_ends[2], f1 = axis_ends[3];
    qb_value slope = qb_div(g, qb_sub(g, f1, f0), qb_sub(g, x1, x0));
    qb_value at_last = qb_equal(g, x, last), anchor = qb_select(g, at_last, x1, x0);
    qb_value inside = qb_select(g, qb_bit_or(g, below, above), anchor, x);
    qb_value rise = qb_strong_mul(g, qb_sub(g, inside, anchor), slope);
    qb_value line = qb_add(g, qb_select(g, at_last, f1, f0), rise);
    qb_value outside = qb_select(g, above, repeated(g, values, n - 1, count), line);
    return qb_select(g, below, repeated(g, values, 0, count), outside);
}

qb_status qb_build_interp(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_type x, knots, values;
    qb_value operands[3];
    qb_value_type(g, call->operand[0], &x);
    qb_value_type(g, call->operand[1], &knots);
    qb_value_type(g, call->operand[2], &values);
    if (knots.rank != 1 || values.rank != 1 || knots.shape[0] != values.shape[0] || knots.shape[0] == 0)
        return qb_fail(QB_ERROR_VALUE,
                       "interp: xp and fp must be two vectors of one length, not empty; got shapes %s and %s",
                       qb_print_shape(knots.rank, knots.shape).text, qb_print_shape(values.rank, values.shape).text);
    QB_TRY(qb_promote_operands(call, QB_TAKES_FLOATING, 3, (const int[]){0, 1, 2}, operands));
    int64_t count = qb_value_size(g, call->operand[0]), n = knots.shape[0];
    qb_value flat = qb_flatten(g, operands[0], count);
    qb_value result =
        n == 1 ? repeated(g, operands[2], 0, count) : interpolate(g, flat, operands[1], operands[2], count, n);
    call->result = qb_reshape(g, result, x.rank, x.shape);
    return QB_OK;
}
