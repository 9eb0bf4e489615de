/* x.at[index].set(values) and its like: x with the selected elements replaced or combined with values.
 *
 * The selected part of x is read, its elements are changed (by a scatter where the index has arrays, else by an
 * elementwise operation), and the part is inserted into x again. The result has the dtype of x. */
#include "functions/index.h"

typedef struct update {
    const qb_op *scatter;     /* for an index with arrays */
    const qb_op *elementwise; /* for one without; NULL: the values themselves */
    qb_takes takes;
} update;

/* The values in the dtype of x. A value that would lose its fraction or its truth is an error, as is one of another
 * floating dtype; integers convert among themselves, as in NumPy. */
static qb_status take_values(qb_call *call, qb_takes takes, qb_value *x, qb_value *values)
{
    qb_graph *g = call->graph;
    qb_value both[2];
    qb_dtype own = g->values[call->operand[0]].dtype, given = g->values[call->operand[1]].dtype;
    if (qb_dtype_is_integer(own) && qb_dtype_is_integer(given)) {
        *x = call->operand[0];
        *values = qb_adopt(g, call->operand[1], own);
        call->result_weak = qb_call_weak(call, 0);
        return QB_OK;
    }
    QB_TRY(qb_promote_operands(call, takes, 2, (const int[]){0, 1}, both));
    if (both[0] < 0 || both[1] < 0)
        return QB_OK;
    if (g->values[both[0]].dtype != own && !qb_call_weak(call, 0))
        return qb_fail(QB_ERROR_VALUE,
                       "%s: values of dtype %s do not fit into an array of %s; convert one of them with astype",
                       call->function->name, qb_dtype_name(given), qb_dtype_name(own));
    *x = both[0];
    *values = both[1];
    return QB_OK;
}

/* The values repeated to the shape that x[index] has; leading axes of extent 1 may be too many, as in NumPy. */
static qb_status spread_values(const qb_call *call, qb_value *values, int rank, const int64_t *shape)
{
    if (*values < 0)
        return QB_OK;
    qb_type type;
    qb_value_type(call->graph, *values, &type);
    int extra = 0;
    while (type.rank - extra > rank && type.shape[extra] == 1)
        extra++;
    const int64_t *own = type.shape + extra;
    int own_rank = type.rank - extra;
    bool fits = own_rank <= rank;
    for (int i = 0; fits && i < own_rank; i++)
        fits = own[i] == 1 || own[i] == shape[rank - own_rank + i];
    if (!fits)
        return qb_fail(QB_ERROR_VALUE, "%s: values of shape %s do not broadcast to the selected elements, of shape %s",
                       call->function->name, qb_print_shape(type.rank, type.shape).text,
                       qb_print_shape(rank, shape).text);
    *values = qb_broadcast_to(call->graph, qb_reshape(call->graph, *values, own_rank, own), rank, shape);
    return QB_OK;
}

/* The part, changed where the index arrays say. */
static qb_status scatter_into_part(qb_call *call, const qb_selection *s, const qb_op *op, qb_value *part,
                                   qb_value values)
{
    qb_graph *g = call->graph;
    qb_places places;
    QB_TRY(qb_take_places(call, s, 2, &places));
    int outer = (int)s->array_axis[0], rank = 0;
    int64_t shape[QB_MAX_RANK]; /* of x[index]: arrays in front, or where the first of them stands */
    for (int i = 0; s->arrays_in_front && i < places.rank; i++)
        shape[rank++] = places.shape[i];
    for (int axis = 0, next = 0; axis < s->rank; axis++) {
        if (next == s->array_count || axis != s->array_axis[next]) {
            shape[rank++] = s->shape[axis];
            continue;
        }
        for (int i = 0; next == 0 && !s->arrays_in_front && i < places.rank; i++)
            shape[rank++] = places.shape[i];
        next++;
    }
    QB_TRY(spread_values(call, &values, rank, shape));
    if (s->arrays_in_front)
        values = qb_swap_blocks(g, values, places.rank, outer);
    *part =
        qb_scatter(g, op, *part, values, places.count, places.value, s->array_axis, 0, QB_BOUNDS_DROP, places.unique);
    return QB_OK;
}

static qb_status build_update(qb_call *call, const update *how)
{
    qb_graph *g = call->graph;
    qb_type type;
    qb_selection s;
    qb_value x = QB_FAILED, values = QB_FAILED;
    QB_TRY(take_values(call, how->takes, &x, &values));
    qb_value_type(g, call->operand[0], &type);
    QB_TRY(qb_select_index(&s, &type, &call->parameter[0]));
    qb_value part = qb_select_part(g, &s, x);
    if (s.array_count > 0) {
        QB_TRY(scatter_into_part(call, &s, how->scatter, &part, values));
    } else {
        QB_TRY(spread_values(call, &values, s.rank, s.shape));
        part = how->elementwise ? qb_emit(g, how->elementwise, 2, (qb_value[]){part, values}, NULL) : values;
    }
    int64_t shape[QB_MAX_RANK];
    for (int axis = 0; axis < type.rank; axis++)
        shape[axis] = (s.limit[axis] - s.start[axis] + s.step[axis] - 1) / s.step[axis];
    part = qb_reshape(g, part, type.rank, shape);
    part = qb_reverse(g, part, s.reversed_count, s.reversed);
    call->result = qb_insert(g, x, part, s.start, s.step);
    return QB_OK;
}

#define UPDATE(name, scatter, elementwise, takes)                                                                      \
    qb_status qb_build_index_##name(qb_call *call)                                                                     \
    {                                                                                                                  \
        static const update how = {scatter, elementwise, takes};                                                       \
        return build_update(call, &how);                                                                               \
    }

UPDATE(set, &qb_op_scatter_set, NULL, QB_TAKES_ANY)
UPDATE(add, &qb_op_scatter_add, &qb_op_add, QB_TAKES_NUMERIC)
UPDATE(multiply, &qb_op_scatter_mul, &qb_op_mul, QB_TAKES_NUMERIC)
UPDATE(min, &qb_op_scatter_min, &qb_op_min, QB_TAKES_NUMERIC)
UPDATE(max, &qb_op_scatter_max, &qb_op_max, QB_TAKES_NUMERIC)
