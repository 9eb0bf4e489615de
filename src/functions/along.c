/* Along one axis: running sums and products, differences, the trapezoidal rule, and everything that asks for order. */
#include "functions/builder.h"

/* Operand 0 of the dtype that the function computes in, with the axis that is meant: flattened where the axis may be
 * None and is. */
typedef struct line {
    qb_value value;
    qb_type type;
    int64_t axis;
    bool flattened;
    int rank; /* as given */
} line;

static qb_status take_line(qb_call *call, qb_value value, const qb_attribute *axis, line *out)
{
    qb_graph *g = call->graph;
    qb_value_type(g, call->operand[0], &out->type);
    if (value >= 0)
        out->type.dtype = g->values[value].dtype;
    out->value = value;
    out->axis = 0;
    out->rank = out->type.rank;
    out->flattened = qb_is_none(axis);
    if (!out->flattened)
        return qb_required_axis(call, axis, &out->type, &out->axis);
    int64_t size = qb_value_size(g, call->operand[0]);
    out->value = qb_flatten(g, value, size);
    qb_type_set(&out->type, out->type.dtype, 1, &size);
    return QB_OK;
}

/* ---- Running sums and products */

qb_status qb_build_cumsum(qb_call *call)
{
    line x;
    qb_value value =
        qb_adopt(call->graph, call->operand[0], qb_sum_dtype(qb_graph_dtype(call->graph, call->operand[0])));
    QB_TRY(take_line(call, value, &call->parameter[0], &x));
    call->result = qb_recurrence(call->graph, x.value, QB_NONE, (int)x.axis, call->parameter[1].integer != 0, false);
    call->result_weak = qb_call_weak(call, 0);
    return QB_OK;
}

/* The recurrence with the elements as factors, and the first of them as the only term. The other terms are -0, which
 * leaves every number as it is, zeros of both signs included. */
qb_status qb_build_cumprod(qb_call *call)
{
    qb_graph *g = call->graph;
    line x;
    qb_value value = qb_adopt(g, call->operand[0], qb_sum_dtype(qb_graph_dtype(g, call->operand[0])));
    QB_TRY(take_line(call, value, &call->parameter[0], &x));
    call->result = x.value;
    call->result_weak = qb_call_weak(call, 0);
    int64_t extent = x.type.shape[x.axis];
    bool reverse = call->parameter[1].integer != 0;
    if (extent < 2)
        return QB_OK;
    qb_value first =
        reverse ? qb_part(g, x.value, &x.type, x.axis, extent - 1, extent) : qb_part(g, x.value, &x.type, x.axis, 0, 1);
    qb_type rest = x.type;
    rest.shape[x.axis] = extent - 1;
    qb_value nothing = qb_splat(g, rest.dtype, rest.rank, rest.shape, -0.0);
    qb_value terms =
        qb_concat(g, 2, reverse ? (qb_value[]){nothing, first} : (qb_value[]){first, nothing}, (int)x.axis);
    call->result = qb_recurrence(g, terms, x.value, (int)x.axis, reverse, false);
    return QB_OK;
}

/* ---- Differences and the trapezoidal rule */

/* value[1:] - value[:-1]; `type` becomes that of the result. */
static qb_value difference(qb_graph *g, qb_value value, qb_type *type, int64_t axis)
{
    int64_t extent = type->shape[axis], shorter = extent > 0 ? extent - 1 : 0;
    qb_value later = qb_part(g, value, type, axis, extent - shorter, extent);
    qb_value earlier = qb_part(g, value, type, axis, 0, shorter);
    type->shape[axis] = shorter;
    return type->dtype == QB_BOOL ? qb_bit_xor(g, later, earlier) : qb_sub(g, later, earlier);
}

/* An array at an end of x: of its shape except along the axis; a number stands for one place there. */
static qb_status end_like(const qb_call *call, const line *x, int operand, qb_value *value)
{
    qb_type type;
    qb_value_type(call->graph, call->operand[operand], &type);
    qb_type expected = x->type;
    expected.shape[x->axis] = type.rank == 0 ? 1 : type.rank == x->type.rank ? type.shape[x->axis] : 0;
    if (type.rank == 0)
        *value = qb_broadcast_to(call->graph, *value, expected.rank, expected.shape);
    else if (!qb_shape_equal(type.rank, type.shape, expected.rank, expected.shape))
        return qb_fail(QB_ERROR_VALUE,
                       "diff: %s has shape %s, and x shape %s; they must be equal except along axis %lld",
                       operand == 1 ? "prepend" : "append", qb_print_shape(type.rank, type.shape).text,
                       qb_print_shape(x->type.rank, x->type.shape).text, (long long)x->axis);
    return QB_OK;
}

/* x between what is prepended and appended. */
static qb_status take_with_ends(qb_call *call, line *x)
{
    int which[3] = {0}, count = 1;
    for (int i = 1; i < 3; i++)
        if (qb_call_has(call, i))
            which[count++] = i;
    qb_value values[3] = {call->operand[0]}, joined[3];
    if (count == 1) {
        call->result_weak = qb_call_weak(call, 0);
        return take_line(call, values[0], &call->parameter[1], x);
    }
    QB_TRY(qb_promote_operands(call, QB_TAKES_ANY, count, which, values));
    QB_TRY(take_line(call, values[0], &call->parameter[1], x));
    int used = 0;
    if (which[1] == 1) {
        QB_TRY(end_like(call, x, 1, &values[1]));
        joined[used++] = values[1];
    }
    joined[used++] = values[0];
    if (which[count - 1] == 2) {
        QB_TRY(end_like(call, x, 2, &values[count - 1]));
        joined[used++] = values[count - 1];
    }
    x->value = qb_concat(call->graph, used, joined, (int)x->axis);
    if (x->value >= 0)
        qb_value_type(call->graph, x->value, &x->type);
    return QB_OK;
}

qb_status qb_build_diff(qb_call *call)
{
    int64_t order = call->parameter[0].integer;
    line x;
    if (order < 0)
        return qb_fail(QB_ERROR_VALUE, "diff: n must be 0 or more, got %lld", (long long)order);
    if (qb_is_none(&call->parameter[1]))
        return qb_fail(QB_ERROR_TYPE, "diff: axis must be an int, got None");
    QB_TRY(take_with_ends(call, &x));
    for (; order > 0 && x.type.shape[x.axis] > 0; order--)
        x.value = difference(call->graph, x.value, &x.type, x.axis);
    call->result = x.value;
    return QB_OK;
}

/* The widths of the intervals, of a shape that broadcasts with what has the given type: from x, or the number dx. */
static qb_status interval_widths(qb_call *call, qb_value x, const qb_type *averages, int64_t axis, qb_value *out)
{
    qb_graph *g = call->graph;
    if (x == QB_NONE) {
        if (qb_is_none(&call->parameter[0]))
            return qb_fail(QB_ERROR_TYPE, "trapezoid: dx must be a number, got None");
        *out = qb_scalar(g, averages->dtype, call->parameter[0].number);
        return QB_OK;
    }
    qb_type type, given;
    qb_value_type(g, call->operand[1], &given);
    type = given;
    type.dtype = averages->dtype;
    int64_t x_axis = type.rank == 1 ? 0 : axis - (averages->rank - type.rank);
    if (x_axis < 0 || type.rank > averages->rank || type.shape[x_axis] != averages->shape[axis] + 1)
        return qb_fail(
            QB_ERROR_VALUE, "trapezoid: x of shape %s does not give the points of %lld values along axis %lld of y",
            qb_print_shape(given.rank, given.shape).text, (long long)averages->shape[axis] + 1, (long long)axis);
    *out = difference(g, x, &type, x_axis);
    if (given.rank == 1 && averages->rank > 1) {
        int64_t shape[QB_MAX_RANK];
        for (int i = 0; i < averages->rank; i++)
            shape[i] = i == axis ? type.shape[0] : 1;
        *out = qb_reshape(g, *out, averages->rank, shape);
    }
    return QB_OK;
}

qb_status qb_build_trapezoid(qb_call *call)
{
    qb_graph *g = call->graph;
    bool has_x = qb_call_has(call, 1);
    qb_value operands[2] = {QB_NONE, QB_NONE};
    line y;
    QB_TRY(qb_promote_operands(call, QB_TAKES_FLOATING, has_x ? 2 : 1, (const int[]){0, 1}, operands));
    if (qb_is_none(&call->parameter[1]))
        return qb_fail(QB_ERROR_TYPE, "trapezoid: axis must be an int, got None");
    QB_TRY(take_line(call, operands[0], &call->parameter[1], &y));
    int64_t extent = y.type.shape[y.axis], intervals = extent > 0 ? extent - 1 : 0;
    qb_value later = qb_part(g, y.value, &y.type, y.axis, extent - intervals, extent);
    qb_value sums = qb_add(g, later, qb_part(g, y.value, &y.type, y.axis, 0, intervals)), terms[2];
    y.type.shape[y.axis] = intervals;
    terms[0] = qb_mul(g, sums, qb_splat(g, y.type.dtype, y.type.rank, y.type.shape, 0.5));
    QB_TRY(interval_widths(call, operands[1], &y.type, y.axis, &terms[1]));
    QB_TRY(qb_broadcast_together(call, 2, terms));
    call->result = qb_reduce_sum(g, qb_mul(g, terms[0], terms[1]), 1, &y.axis);
    return QB_OK;
}

/* ---- Places of extremes */

static qb_status build_place(qb_call *call, bool of_max)
{
    qb_graph *g = call->graph;
    line x;
    QB_TRY(take_line(call, call->operand[0], &call->parameter[0], &x));
    if (x.type.shape[x.axis] == 0)
        return qb_fail(QB_ERROR_VALUE, "%s: no elements to choose from in an array of shape %s", call->function->name,
                       qb_print_shape(x.rank, qb_graph_shape(g, call->operand[0])).text);
    int64_t kept[QB_MAX_RANK];
    for (int i = 0; i < x.rank; i++)
        kept[i] = x.flattened || i == x.axis ? 1 : x.type.shape[i];
    qb_value place = of_max ? qb_argmax(g, x.value, (int)x.axis) : qb_argmin(g, x.value, (int)x.axis);
    call->result = call->parameter[1].integer ? qb_reshape(g, place, x.rank, kept) : place;
    return QB_OK;
}

qb_status qb_build_argmax(qb_call *call)
{
    return build_place(call, true);
}

qb_status qb_build_argmin(qb_call *call)
{
    return build_place(call, false);
}

/* ---- Sorting */

/* The permutation along the axis. A descending one that keeps the order of equal elements is found from behind. */
static qb_value permutation(qb_graph *g, const line *x, bool descending)
{
    if (!descending)
        return qb_argsort(g, x->value, (int)x->axis);
    qb_value from_behind = qb_argsort(g, qb_reverse(g, x->value, 1, &x->axis), (int)x->axis);
    qb_value last = qb_splat(g, QB_INT64, x->type.rank, x->type.shape, (double)x->type.shape[x->axis] - 1);
    return qb_sub(g, last, qb_reverse(g, from_behind, 1, &x->axis));
}

qb_status qb_build_argsort(qb_call *call)
{
    line x;
    QB_TRY(take_line(call, call->operand[0], &call->parameter[0], &x));
    call->result = permutation(call->graph, &x, call->parameter[1].integer != 0);
    return QB_OK;
}

/* The descending order is sorted from behind, too: its derivative is then that of its permutation. */
qb_status qb_build_sort(qb_call *call)
{
    qb_graph *g = call->graph;
    line x;
    QB_TRY(take_line(call, call->operand[0], &call->parameter[0], &x));
    bool descending = call->parameter[1].integer != 0;
    qb_value sorted = qb_sort(g, descending ? qb_reverse(g, x.value, 1, &x.axis) : x.value, (int)x.axis);
    call->result = descending ? qb_reverse(g, sorted, 1, &x.axis) : sorted;
    call->result_weak = qb_call_weak(call, 0);
    return QB_OK;
}

qb_status qb_build_searchsorted(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_type a, v;
    qb_value values[2];
    char side[8];
    bool known = qb_attribute_text(&call->parameter[0], sizeof side, side);
    bool right = known && strcmp(side, "right") == 0;
    if (!right && !(known && strcmp(side, "left") == 0))
        return qb_fail(QB_ERROR_VALUE, "searchsorted: side must be 'left' or 'right'");
    qb_value_type(g, call->operand[0], &a);
    qb_value_type(g, call->operand[1], &v);
    if (a.rank != 1)
        return qb_fail(QB_ERROR_VALUE, "searchsorted: the sorted array must have one axis, got shape %s",
                       qb_print_shape(a.rank, a.shape).text);
    QB_TRY(qb_promote_operands(call, QB_TAKES_ANY, 2, (const int[]){0, 1}, values));
    call->result_weak = false;
    qb_value flat = qb_flatten(g, values[1], qb_value_size(g, call->operand[1]));
    call->result = qb_reshape(g, qb_searchsorted(g, values[0], flat, right, 0), v.rank, v.shape);
    return QB_OK;
}
