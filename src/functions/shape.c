/* Shapes and dtypes changed, elements kept: reshape, transpose and their relatives, astype, and arrays shaped like
 * another. */
#include "functions/builder.h"

/* Operand 0 as it is; the result is as weak as it. */
static qb_value take_array(qb_call *call, qb_type *type)
{
    qb_value_type(call->graph, call->operand[0], type);
    call->result_weak = qb_call_weak(call, 0);
    return call->operand[0];
}

qb_value qb_flatten(qb_graph *graph, qb_value value, int64_t size)
{
    return qb_reshape(graph, value, 1, &size);
}

qb_value qb_part(qb_graph *graph, qb_value value, const qb_type *type, int64_t axis, int64_t start, int64_t limit)
{
    int64_t first[QB_MAX_RANK] = {0}, last[QB_MAX_RANK], step[QB_MAX_RANK];
    for (int i = 0; i < type->rank; i++) {
        last[i] = type->shape[i];
        step[i] = 1;
    }
    first[axis] = start;
    last[axis] = limit;
    return qb_slice(graph, value, first, last, step);
}

static qb_status check_rank(const qb_call *call, int rank)
{
    if (rank > QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "%s: the result would have %d axes; arrays have %d at most",
                       call->function->name, rank, QB_MAX_RANK);
    return QB_OK;
}

/* ---- reshape */

/* The shape asked for, with an extent of -1 worked out. */
static qb_status resolve_shape(const qb_call *call, const qb_attribute *given, const qb_type *type, int64_t *out)
{
    const char *name = call->function->name;
    QB_TRY(check_rank(call, given->count));
    int64_t size = 1, known = 1;
    int unknown = -1;
    for (int i = 0; i < type->rank; i++)
        size *= type->shape[i];
    for (int i = 0; i < given->count; i++) {
        int64_t extent = out[i] = given->integers[i];
        if (extent < -1 || (extent == -1 && unknown >= 0))
            return qb_fail(QB_ERROR_VALUE, "%s: shape %s: extents are 0 or more, one of them may be -1", name,
                           qb_print_shape(given->count, given->integers).text);
        if (extent == -1)
            unknown = i;
        else if (extent == 0)
            known = 0;
        else if (known > size / extent) /* more elements than there are: an impossible count will do, and no overflow */
            known = size + 1;
        else
            known *= extent;
    }
    if (unknown >= 0 ? known == 0 || size % known != 0 : known != size)
        return qb_fail(QB_ERROR_VALUE, "%s: an array of shape %s has %lld elements, which do not make the shape %s",
                       name, qb_print_shape(type->rank, type->shape).text, (long long)size,
                       qb_print_shape(given->count, given->integers).text);
    if (unknown >= 0)
        out[unknown] = size / known;
    return QB_OK;
}

qb_status qb_build_reshape(qb_call *call)
{
    qb_type type;
    int64_t shape[QB_MAX_RANK];
    const qb_attribute *given = &call->parameter[0];
    qb_value x = take_array(call, &type);
    QB_TRY(resolve_shape(call, given, &type, shape));
    call->result = qb_reshape(call->graph, x, given->count, shape);
    return QB_OK;
}

qb_status qb_build_ravel(qb_call *call)
{
    qb_type type;
    qb_value x = take_array(call, &type);
    call->result = qb_flatten(call->graph, x, qb_value_size(call->graph, x));
    return QB_OK;
}

/* ---- Permutations */

/* The axes in the order given, non-negative; they must be distinct. */
static qb_status ordered_axes(const qb_call *call, const char *parameter, const qb_attribute *axes, const qb_type *type,
                              int64_t *out)
{
    if (qb_is_none(axes))
        return qb_fail(QB_ERROR_TYPE, "%s: %s must be an int or a tuple of ints, got None", call->function->name,
                       parameter);
    int64_t distinct[QB_MAX_RANK];
    int count = 0;
    QB_TRY(qb_normalize_axes(call, axes, type, &count, distinct));
    for (int i = 0; i < count; i++)
        QB_TRY(qb_normalize_axis(call, axes->integers[i], type->rank, type->shape, &out[i]));
    return QB_OK;
}

qb_status qb_build_transpose(qb_call *call)
{
    qb_type type;
    int64_t order[QB_MAX_RANK];
    const qb_attribute *axes = &call->parameter[0];
    qb_value x = take_array(call, &type);
    if (qb_is_none(axes)) {
        for (int axis = 0; axis < type.rank; axis++)
            order[axis] = type.rank - 1 - axis;
    } else {
        if (axes->count != type.rank)
            return qb_fail(QB_ERROR_VALUE, "transpose: axes %s for an array of shape %s: every axis must be named once",
                           qb_print_shape(axes->count, axes->integers).text,
                           qb_print_shape(type.rank, type.shape).text);
        QB_TRY(ordered_axes(call, "axes", axes, &type, order));
    }
    call->result = qb_permute(call->graph, x, type.rank, order);
    return QB_OK;
}

qb_status qb_build_swapaxes(qb_call *call)
{
    qb_type type;
    int64_t order[QB_MAX_RANK], first = 0, second = 0;
    qb_value x = take_array(call, &type);
    QB_TRY(qb_normalize_axis(call, call->parameter[0].integer, type.rank, type.shape, &first));
    QB_TRY(qb_normalize_axis(call, call->parameter[1].integer, type.rank, type.shape, &second));
    for (int axis = 0; axis < type.rank; axis++)
        order[axis] = axis == first ? second : axis == second ? first : axis;
    call->result = qb_permute(call->graph, x, type.rank, order);
    return QB_OK;
}

qb_status qb_build_moveaxis(qb_call *call)
{
    const qb_attribute *from = &call->parameter[0], *to = &call->parameter[1];
    qb_type type;
    int64_t source[QB_MAX_RANK], destination[QB_MAX_RANK], order[QB_MAX_RANK];
    qb_value x = take_array(call, &type);
    QB_TRY(ordered_axes(call, "source", from, &type, source));
    QB_TRY(ordered_axes(call, "destination", to, &type, destination));
    if (from->count != to->count)
        return qb_fail(QB_ERROR_VALUE, "moveaxis: %d source axes for %d destinations", (int)from->count,
                       (int)to->count);
    bool moved[QB_MAX_RANK] = {false};
    for (int axis = 0; axis < type.rank; axis++)
        order[axis] = -1;
    for (int i = 0; i < from->count; i++) {
        order[destination[i]] = source[i];
        moved[source[i]] = true;
    }
    for (int place = 0, next = 0; place < type.rank; place++) {
        if (order[place] >= 0)
            continue;
        while (moved[next])
            next++;
        order[place] = next++;
    }
    call->result = qb_permute(call->graph, x, type.rank, order);
    return QB_OK;
}

/* ---- Axes of extent 1, repeated axes, reversed axes */

qb_status qb_build_squeeze(qb_call *call)
{
    const qb_attribute *given = &call->parameter[0];
    qb_type type;
    qb_value x = take_array(call, &type);
    int64_t axes[QB_MAX_RANK], shape[QB_MAX_RANK];
    int count = 0, rank = 0;
    QB_TRY(qb_normalize_axes(call, given, &type, &count, axes));
    for (int axis = 0, next = 0; axis < type.rank; axis++) {
        bool chosen = next < count && axes[next] == axis;
        next += chosen;
        if (chosen && type.shape[axis] != 1 && !qb_is_none(given))
            return qb_fail(QB_ERROR_VALUE,
                           "squeeze: axis %d of shape %s has extent %lld; only axes of extent 1 can be removed", axis,
                           qb_print_shape(type.rank, type.shape).text, (long long)type.shape[axis]);
        if (!chosen || type.shape[axis] != 1)
            shape[rank++] = type.shape[axis];
    }
    call->result = qb_reshape(call->graph, x, rank, shape);
    return QB_OK;
}

qb_status qb_build_expand_dims(qb_call *call)
{
    const qb_attribute *given = &call->parameter[0];
    if (qb_is_none(given))
        return qb_fail(QB_ERROR_TYPE, "expand_dims: axis must be an int or a tuple of ints, got None");
    qb_type type;
    qb_value x = take_array(call, &type);
    int rank = type.rank + given->count;
    QB_TRY(check_rank(call, rank));
    bool is_new[QB_MAX_RANK];
    int64_t shape[QB_MAX_RANK];
    QB_TRY(qb_normalize_new_axes(call, given->count, given->integers, &type, is_new));
    for (int axis = 0, own = 0; axis < rank; axis++)
        shape[axis] = is_new[axis] ? 1 : type.shape[own++];
    call->result = qb_reshape(call->graph, x, rank, shape);
    return QB_OK;
}

/* x broadcast to exactly that shape. */
static qb_status broadcast_exactly(qb_call *call, qb_value x, const qb_type *from, int rank, const int64_t *shape)
{
    bool fits = from->rank <= rank;
    for (int i = 0; fits && i < from->rank; i++)
        fits = from->shape[i] == 1 || from->shape[i] == shape[rank - from->rank + i];
    for (int i = 0; fits && i < rank; i++)
        fits = shape[i] >= 0;
    if (!fits)
        return qb_fail(QB_ERROR_VALUE, "%s: shape %s does not broadcast to %s", call->function->name,
                       qb_print_shape(from->rank, from->shape).text, qb_print_shape(rank, shape).text);
    call->result = qb_broadcast_to(call->graph, x, rank, shape);
    return QB_OK;
}

qb_status qb_build_broadcast_to(qb_call *call)
{
    qb_type type;
    int64_t size;
    const qb_attribute *shape = &call->parameter[0];
    qb_value x = take_array(call, &type);
    QB_TRY(check_rank(call, shape->count));
    QB_TRY(qb_shape_size(shape->count, shape->integers, qb_dtype_size(type.dtype), &size));
    return broadcast_exactly(call, x, &type, shape->count, shape->integers);
}

qb_status qb_build_flip(qb_call *call)
{
    qb_type type;
    int64_t axes[QB_MAX_RANK];
    int count = 0;
    qb_value x = take_array(call, &type);
    QB_TRY(qb_normalize_axes(call, &call->parameter[0], &type, &count, axes));
    call->result = qb_reverse(call->graph, x, count, axes);
    return QB_OK;
}

/* ---- Dtypes, and arrays like another */

qb_status qb_build_astype(qb_call *call)
{
    if (call->parameter[0].integer < 0)
        return qb_fail(QB_ERROR_TYPE, "astype: dtype must be given, got None");
    call->result = qb_adopt(call->graph, call->operand[0], (qb_dtype)call->parameter[0].integer);
    return QB_OK;
}

static qb_dtype dtype_like(const qb_call *call, const qb_type *type)
{
    int64_t dtype = call->parameter[0].integer;
    return dtype < 0 ? type->dtype : (qb_dtype)dtype;
}

static qb_status build_splat_like(qb_call *call, double number)
{
    qb_type type;
    (void)take_array(call, &type);
    call->result = qb_splat(call->graph, dtype_like(call, &type), type.rank, type.shape, number);
    call->result_weak = call->result_weak && call->parameter[0].integer < 0;
    return QB_OK;
}

qb_status qb_build_zeros_like(qb_call *call)
{
    return build_splat_like(call, 0);
}

qb_status qb_build_ones_like(qb_call *call)
{
    return build_splat_like(call, 1);
}

qb_status qb_build_full_like(qb_call *call)
{
    qb_type type, fill;
    (void)take_array(call, &type);
    call->result_weak = call->result_weak && call->parameter[0].integer < 0;
    qb_value_type(call->graph, call->operand[1], &fill);
    qb_value value = qb_adopt(call->graph, call->operand[1], dtype_like(call, &type));
    return broadcast_exactly(call, value, &fill, type.rank, type.shape);
}
