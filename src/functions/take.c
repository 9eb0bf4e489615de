/* Elements by arrays of indices along one axis, and slices at places that are computed. */
#include "functions/index.h"

/* ---- take, gather, scatter_add */

/* x, flattened where there is no axis, and the axis. */
static qb_status take_axis(qb_call *call, qb_value *x, qb_type *type, int *axis)
{
    int64_t normal = 0;
    *x = call->operand[0];
    qb_value_type(call->graph, *x, type);
    call->result_weak = qb_call_weak(call, 0);
    if (qb_is_none(&call->parameter[0])) {
        type->shape[0] = qb_value_size(call->graph, *x);
        type->rank = 1;
        *x = qb_flatten(call->graph, *x, type->shape[0]);
    } else {
        QB_TRY(qb_normalize_axis(call, call->parameter[0].integers[0], type->rank, type->shape, &normal));
    }
    *axis = (int)normal;
    return QB_OK;
}

qb_status qb_build_take(qb_call *call)
{
    qb_value x;
    qb_type type;
    int axis = 0;
    qb_places places;
    QB_TRY(take_axis(call, &x, &type, &axis));
    QB_TRY(qb_take_place(call, 1, &type, axis, &places));
    if (type.rank - 1 + places.rank > QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "%s: the result would have %d axes; arrays have %d at most",
                       call->function->name, type.rank - 1 + places.rank, QB_MAX_RANK);
    const int64_t axes = axis;
    call->result = qb_gather(call->graph, x, 1, places.value, &axes, 0, QB_BOUNDS_CLAMP);
    return QB_OK;
}

qb_status qb_build_scatter_add(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value x, both[2];
    qb_type type, updates, addressed;
    int axis = 0;
    qb_places places;
    QB_TRY(take_axis(call, &x, &type, &axis));
    QB_TRY(qb_promote_operands(call, QB_TAKES_NUMERIC, 2, (const int[]){0, 2}, both));
    QB_TRY(qb_take_place(call, 1, &type, axis, &places));
    qb_value_type(g, call->operand[2], &updates);
    addressed.rank = 0;
    for (int i = 0; i < type.rank && type.rank - 1 + places.rank <= QB_MAX_RANK; i++) {
        if (i != axis)
            addressed.shape[addressed.rank++] = type.shape[i];
        for (int k = 0; i == axis && k < places.rank; k++)
            addressed.shape[addressed.rank++] = places.shape[k];
    }
    bool fits = updates.rank <= addressed.rank;
    for (int i = 0; fits && i < updates.rank; i++) {
        int64_t extent = addressed.shape[addressed.rank - updates.rank + i];
        fits = updates.shape[i] == 1 || updates.shape[i] == extent;
    }
    if (!fits)
        return qb_fail(
            QB_ERROR_VALUE, "scatter_add: updates of shape %s do not broadcast to the addressed elements, of shape %s",
            qb_print_shape(updates.rank, updates.shape).text, qb_print_shape(addressed.rank, addressed.shape).text);
    both[1] = qb_broadcast_to(g, both[1], addressed.rank, addressed.shape);
    const int64_t axes = axis;
    call->result =
        qb_scatter(g, &qb_op_scatter_add, both[0], both[1], 1, places.value, &axes, 0, QB_BOUNDS_DROP, places.unique);
    return QB_OK;
}

/* ---- take_along_axis */

/* The array with the axis last. */
static qb_value axis_last(qb_graph *g, qb_value value, int rank, int axis)
{
    int64_t order[QB_MAX_RANK];
    for (int i = 0, next = 0; i < rank; i++)
        if (i != axis)
            order[next++] = i;
    order[rank - 1] = axis;
    return qb_permute(g, value, rank, order);
}

static qb_value axis_back(qb_graph *g, qb_value value, int rank, int axis)
{
    int64_t order[QB_MAX_RANK];
    for (int i = 0, next = 0; i < rank; i++)
        order[i] = i == axis ? rank - 1 : next++;
    return qb_permute(g, value, rank, order);
}

qb_status qb_build_take_along_axis(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value x;
    qb_type type, index, pair[2], common;
    int axis = 0;
    QB_TRY(take_axis(call, &x, &type, &axis));
    qb_value_type(g, call->operand[1], &index);
    if (index.rank != type.rank)
        return qb_fail(QB_ERROR_VALUE,
                       "take_along_axis: indices of shape %s need as many axes as the array, of shape %s",
                       qb_print_shape(index.rank, index.shape).text, qb_print_shape(type.rank, type.shape).text);
    qb_places places;
    QB_TRY(qb_take_place(call, 1, &type, axis, &places));
    pair[0] = type;
    pair[1] = index;
    pair[0].shape[axis] = pair[1].shape[axis] = 1;
    QB_TRY(qb_broadcast_shapes(call, 2, pair, &common));
    common.shape[axis] = type.shape[axis];
    x = axis_last(g, qb_broadcast_to(g, x, type.rank, common.shape), type.rank, axis);
    common.shape[axis] = index.shape[axis];
    qb_value indices = qb_broadcast_to(g, places.value[0], type.rank, common.shape);
    indices = axis_last(g, indices, type.rank, axis);
    const int64_t last = type.rank - 1;
    x = qb_gather(g, x, 1, &indices, &last, type.rank - 1, QB_BOUNDS_CLAMP);
    call->result = axis_back(g, x, type.rank, axis);
    return QB_OK;
}

/* ---- dynamic_slice, dynamic_update_slice: axis by axis, so that index arrays are as short as the slice is wide */

/* The first position along each axis, kept where the slice fits; QB_NONE for an axis that is taken whole. */
static qb_status take_starts(const qb_call *call, int first, const qb_type *type, const int64_t *sizes,
                             qb_value *starts)
{
    qb_graph *g = call->graph;
    const char *name = call->function->name;
    int count = call->operand_count - first;
    if (count != type->rank)
        return qb_fail(QB_ERROR_VALUE, "%s: %d start indices for an array of shape %s", name, count,
                       qb_print_shape(type->rank, type->shape).text);
    for (int axis = 0; axis < type->rank; axis++) {
        qb_type start;
        qb_value_type(g, call->operand[first + axis], &start);
        if (!qb_dtype_is_integer(start.dtype) || start.rank != 0)
            return qb_fail(QB_ERROR_VALUE, "%s: start indices are integers of shape (), got %s", name,
                           qb_print_type(start.dtype, start.rank, start.shape).text);
        if (sizes[axis] < 0 || sizes[axis] > type->shape[axis])
            return qb_fail(QB_ERROR_VALUE, "%s: a slice of shape %s does not fit into an array of shape %s", name,
                           qb_print_shape(type->rank, sizes).text, qb_print_shape(type->rank, type->shape).text);
        starts[axis] = QB_NONE;
        if (sizes[axis] == type->shape[axis])
            continue;
        qb_value i = qb_adopt(g, call->operand[first + axis], QB_INT64), zero = qb_scalar(g, QB_INT64, 0);
        qb_value extent = qb_scalar(g, QB_INT64, (double)type->shape[axis]);
        qb_value most = qb_scalar(g, QB_INT64, (double)(type->shape[axis] - sizes[axis]));
        i = qb_select(g, qb_less(g, i, zero), qb_add(g, i, extent), i); /* from the end */
        starts[axis] = qb_min(g, qb_max(g, i, zero), most);
    }
    return QB_OK;
}

/* start, start + 1, ... */
static qb_value places_from(qb_graph *g, qb_value start, int64_t size)
{
    return qb_add(g, qb_broadcast_to(g, start, 1, &size), qb_iota(g, QB_INT64, 1, &size, 0));
}

qb_status qb_build_dynamic_slice(qb_call *call)
{
    qb_graph *g = call->graph;
    const qb_attribute *sizes = &call->parameter[0];
    qb_type type;
    qb_value starts[QB_MAX_RANK], x = call->operand[0];
    qb_value_type(g, x, &type);
    call->result_weak = qb_call_weak(call, 0);
    if (sizes->count != type.rank)
        return qb_fail(QB_ERROR_VALUE, "dynamic_slice: %d sizes for an array of shape %s", (int)sizes->count,
                       qb_print_shape(type.rank, type.shape).text);
    QB_TRY(take_starts(call, 1, &type, sizes->integers, starts));
    for (int64_t axis = 0; axis < type.rank; axis++) {
        if (starts[axis] == QB_NONE)
            continue;
        qb_value places = places_from(g, starts[axis], sizes->integers[axis]);
        x = qb_gather(g, x, 1, &places, &axis, 0, QB_BOUNDS_CLAMP);
    }
    call->result = x;
    return QB_OK;
}

/* From the outermost axis inwards the part that holds the slice is read; the innermost is replaced, and each is
 * written back into the one around it. */
qb_status qb_build_dynamic_update_slice(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_type type, part;
    qb_value starts[QB_MAX_RANK], both[2], places[QB_MAX_RANK], around[QB_MAX_RANK + 1];
    QB_TRY(qb_promote_operands(call, QB_TAKES_ANY, 2, (const int[]){0, 1}, both));
    qb_value_type(g, call->operand[0], &type);
    qb_value_type(g, call->operand[1], &part);
    if (part.rank != type.rank)
        return qb_fail(QB_ERROR_VALUE, "dynamic_update_slice: an update of shape %s for an array of shape %s",
                       qb_print_shape(part.rank, part.shape).text, qb_print_shape(type.rank, type.shape).text);
    QB_TRY(take_starts(call, 2, &type, part.shape, starts));
    int64_t axes[QB_MAX_RANK];
    int depth = 0;
    around[0] = both[0];
    for (int axis = 0; axis < type.rank; axis++) {
        if (starts[axis] == QB_NONE)
            continue;
        axes[depth] = axis;
        places[depth] = places_from(g, starts[axis], part.shape[axis]);
        around[depth + 1] = qb_gather(g, around[depth], 1, &places[depth], &axes[depth], 0, QB_BOUNDS_CLAMP);
        depth++;
    }
    qb_value result = both[1];
    while (depth-- > 0)
        result = qb_scatter(g, &qb_op_scatter_set, around[depth], result, 1, &places[depth], &axes[depth], 0,
                            QB_BOUNDS_DROP, true);
    call->result = result;
    return QB_OK;
}
