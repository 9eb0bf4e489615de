/* Elements chosen by place: x[index] in a graph, diagonals, triangles. */
#include "functions/index.h"
#include "base/allocate.h"

#include <stdio.h>

/* ---- What an index selects: the basic step */

static void select_all(qb_selection *s)
{
    int64_t extent = s->type.shape[s->axis];
    s->start[s->axis] = 0;
    s->limit[s->axis] = extent;
    s->step[s->axis++] = 1;
    s->shape[s->rank++] = extent;
}

static qb_status select_integer(qb_selection *s, int64_t given)
{
    int64_t extent = s->type.shape[s->axis], position = given < 0 ? given + extent : given;
    if (position < 0 || position >= extent)
        return qb_fail_index(given, s->axis, &s->type);
    s->start[s->axis] = position;
    s->limit[s->axis] = position + 1;
    s->step[s->axis++] = 1;
    return QB_OK;
}

static int64_t slice_end(int64_t given, int64_t absent, int64_t extent, int64_t lowest)
{
    if (given == QB_INDEX_ABSENT)
        return absent;
    int64_t end = given < 0 ? given + extent : given, highest = extent + lowest;
    return end < lowest ? lowest : end > highest ? highest : end;
}

/* Python's slice. With a negative step the same elements are taken upwards, and the axis is reversed. */
static qb_status select_slice(qb_selection *s, const int64_t *entry)
{
    int64_t extent = s->type.shape[s->axis], step = entry[3] == QB_INDEX_ABSENT ? 1 : entry[3];
    if (step == 0)
        return qb_fail(QB_ERROR_VALUE, "the step of a slice cannot be 0");
    step = step > extent ? extent + 1 : step < -extent ? -extent - 1 : step; /* no element further than that */
    bool down = step < 0;
    int64_t lowest = down ? -1 : 0; /* one before the first element ends a slice that goes down */
    int64_t start = slice_end(entry[1], down ? extent - 1 : 0, extent, lowest);
    int64_t stop = slice_end(entry[2], down ? -1 : extent, extent, lowest);
    int64_t count = down ? (start - stop - step - 1) / -step : (stop - start + step - 1) / step;
    count = count < 0 ? 0 : count;
    int64_t first = down ? start + (count - 1) * step : start;
    s->start[s->axis] = count ? first : 0;
    s->limit[s->axis] = count ? (down ? start + 1 : first + (count - 1) * step + 1) : 0;
    s->step[s->axis] = down ? -step : step;
    if (down && count > 1)
        s->reversed[s->reversed_count++] = s->axis;
    s->axis++;
    s->shape[s->rank++] = count;
    return QB_OK;
}

/* An axis that an array of indices addresses, or for a boolean alone, an axis of extent 1 of its own. */
static qb_status select_array(qb_selection *s, const int64_t *entry)
{
    int k = s->array_count++;
    s->array[k] = (int)entry[1];
    s->array_axis[k] = s->rank;
    s->array_source[k] = entry[0] == QB_INDEX_ARRAY ? s->axis : -1;
    if (entry[0] == QB_INDEX_FLAG) {
        s->shape[s->rank++] = 1;
        return QB_OK;
    }
    int64_t extent = s->type.shape[s->axis], mask = entry[2];
    if (mask != QB_INDEX_ABSENT && mask != extent)
        return qb_fail(QB_ERROR_INDEX,
                       "a boolean index of extent %lld does not match axis %d of shape %s, which has extent %lld",
                       (long long)mask, s->axis, qb_print_shape(s->type.rank, s->type.shape).text, (long long)extent);
    select_all(s);
    return QB_OK;
}

/* What the entries of an index take and make in all. */
typedef struct tally {
    int taken, ellipses, arrays, rank; /* axes of x, ellipses, index arrays, axes made less those taken */
    bool apart; /* something stands between the arrays and integers, if all of these count as arrays */
} tally;

static void count_entries(const qb_attribute *index, tally *t)
{
    enum { BEFORE, AMONG, BEHIND } state = BEFORE;
    *t = (tally){.taken = 0};
    for (int i = 0; i < index->count; i += QB_INDEX_FIELDS) {
        int64_t kind = index->integers[i];
        bool is_array = kind == QB_INDEX_ARRAY || kind == QB_INDEX_FLAG;
        t->taken += kind == QB_INDEX_INTEGER || kind == QB_INDEX_SLICE || kind == QB_INDEX_ARRAY;
        t->ellipses += kind == QB_INDEX_ELLIPSIS;
        t->arrays += is_array;
        t->rank += kind == QB_INDEX_NEW_AXIS || kind == QB_INDEX_FLAG;
        t->rank -= kind == QB_INDEX_INTEGER;
        if (is_array || kind == QB_INDEX_INTEGER) {
            t->apart = t->apart || state == BEHIND;
            state = AMONG;
        } else if (state == AMONG) {
            state = BEHIND;
        }
    }
}

static qb_status check_index(const tally *t, const qb_type *type)
{
    if (t->ellipses > 1)
        return qb_fail(QB_ERROR_INDEX, "an index has one ellipsis ('...') at most, got %d", t->ellipses);
    if (t->taken > type->rank)
        return qb_fail(QB_ERROR_INDEX, "too many indices: an array of shape %s has %d axes, the index takes %d",
                       qb_print_shape(type->rank, type->shape).text, type->rank, t->taken);
    if (type->rank + t->rank > QB_MAX_RANK || t->arrays > QB_MAX_RANK)
        return qb_fail(QB_ERROR_INDEX, "the result of the index would have %d axes; arrays have %d at most",
                       type->rank + t->rank, QB_MAX_RANK);
    return QB_OK;
}

static qb_status select_entries(qb_selection *s, const qb_attribute *index, int axes_taken)
{
    for (int i = 0; i < index->count; i += QB_INDEX_FIELDS) {
        const int64_t *entry = index->integers + i;
        switch (entry[0]) {
        case QB_INDEX_INTEGER: QB_TRY(select_integer(s, entry[1])); break;
        case QB_INDEX_SLICE: QB_TRY(select_slice(s, entry)); break;
        case QB_INDEX_NEW_AXIS: s->shape[s->rank++] = 1; break;
        case QB_INDEX_ARRAY:
        case QB_INDEX_FLAG: QB_TRY(select_array(s, entry)); break;
        default:
            for (int k = s->type.rank - axes_taken; k > 0; k--)
                select_all(s);
        }
    }
    while (s->axis < s->type.rank)
        select_all(s);
    return QB_OK;
}

qb_status qb_select_index(qb_selection *s, const qb_type *type, const qb_attribute *index)
{
    tally t;
    count_entries(index, &t);
    QB_TRY(check_index(&t, type));
    /* the arrays, which are large, are filled as far as they are used */
    s->axis = s->rank = s->reversed_count = s->array_count = 0;
    s->arrays_in_front = t.arrays > 0 && t.apart;
    qb_type_set(&s->type, type->dtype, type->rank, type->shape);
    return select_entries(s, index, t.taken);
}

qb_value qb_select_part(qb_graph *graph, const qb_selection *s, qb_value x)
{
    x = qb_slice(graph, x, s->start, s->limit, s->step);
    x = qb_reverse(graph, x, s->reversed_count, s->reversed);
    return qb_reshape(graph, x, s->rank, s->shape);
}

/* ---- Arrays of indices in a graph */

static qb_status fail_to_broadcast(int count, const qb_type *types)
{
    char shapes[400];
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof shapes; i++)
        used += (size_t)snprintf(shapes + used, sizeof shapes - used, " %s",
                                 qb_print_shape(types[i].rank, types[i].shape).text);
    return qb_fail(QB_ERROR_INDEX,
                   "shape mismatch: indexing arrays could not be broadcast together with shapes%s: counted from the "
                   "last, extents must be equal or 1",
                   shapes);
}

qb_status qb_places_shape(int count, const qb_type *types, int *rank, int64_t *shape)
{
    *rank = 0;
    for (int i = 0; i < count; i++)
        *rank = types[i].rank > *rank ? types[i].rank : *rank;
    for (int axis = 0; axis < *rank; axis++) {
        shape[axis] = 1;
        for (int i = 0; i < count; i++) {
            int own = axis - (*rank - types[i].rank);
            int64_t extent = own < 0 ? 1 : types[i].shape[own];
            if (extent != 1 && shape[axis] != 1 && extent != shape[axis])
                return fail_to_broadcast(count, types);
            shape[axis] = extent != 1 ? extent : shape[axis];
        }
    }
    return QB_OK;
}

static const qb_tensor *constant_of(const qb_graph *graph, qb_value value)
{
    const qb_node *node = value < 0 ? NULL : qb_node_of(graph, value);
    return node && node->op == &qb_op_constant ? node->attributes[0].tensor : NULL;
}

/* An operand as int64. */
static qb_status take_indices(const qb_call *call, int operand, qb_value *out)
{
    qb_value value = call->operand[operand];
    qb_dtype dtype = call->graph->values[value].dtype;
    if (!qb_dtype_is_integer(dtype))
        return qb_fail(QB_ERROR_INDEX, "%s: arrays of indices must be integers, got %s; convert with astype(int64)",
                       call->function->name, qb_dtype_name(dtype));
    *out = qb_convert(call->graph, value, QB_INT64);
    return QB_OK;
}

/* Whether constants, which are in range, address no element twice; false where finding out would take much memory. */
static qb_status find_distinct(const qb_graph *graph, const qb_places *p, const int64_t *extents, bool *out)
{
    int64_t entries = 1, elements = 1, stride[QB_MAX_RANK][QB_MAX_RANK];
    const int64_t *data[QB_MAX_RANK];
    for (int i = 0; i < p->rank; i++)
        entries *= p->shape[i];
    *out = entries <= 1;
    for (int k = 0; k < p->count; k++) {
        const qb_tensor *tensor = constant_of(graph, p->value[k]);
        elements *= extents[k];
        if (*out || !tensor || tensor->dtype != QB_INT64 || elements > 64 * entries + (1 << 20))
            return QB_OK;
        data[k] = tensor->data;
        int64_t step = 1;
        for (int i = p->rank - 1, own = tensor->rank - 1; i >= 0; i--, own--) {
            stride[k][i] = own < 0 || tensor->shape[own] == 1 ? 0 : step;
            step *= own < 0 ? 1 : tensor->shape[own];
        }
    }
    bool *taken = qb_allocate_zeroed((size_t)elements, sizeof *taken), distinct = true;
    if (!taken)
        return qb_fail_memory();
    for (int64_t e = 0; distinct && e < entries; e++) {
        int64_t place = 0;
        for (int k = 0; k < p->count; k++) {
            int64_t offset = 0, rest = e;
            for (int i = p->rank - 1; i >= 0; i--) {
                offset += rest % p->shape[i] * stride[k][i];
                rest /= p->shape[i];
            }
            int64_t index = data[k][offset];
            place = place * extents[k] + (index < 0 ? index + extents[k] : index);
        }
        distinct = !taken[place];
        taken[place] = true;
    }
    qb_free(taken);
    *out = distinct;
    return QB_OK;
}

/* The axes that index arrays address. */
typedef struct addressed_axes {
    const qb_type *type;      /* of x, for messages */
    int operand[QB_MAX_RANK]; /* the call's operand that is the array */
    int axis[QB_MAX_RANK];    /* of x; -1: none */
    int64_t extent[QB_MAX_RANK];
} addressed_axes;

/* What addresses nothing, as a whole, may be out of range, as in NumPy. */
static qb_status check_constants(const qb_call *call, const qb_places *p, const addressed_axes *axes)
{
    for (int i = 0; i < p->rank; i++)
        if (p->shape[i] == 0)
            return QB_OK;
    for (int k = 0; k < p->count; k++) {
        const qb_tensor *constant = constant_of(call->graph, call->operand[axes->operand[k]]);
        if (constant && axes->axis[k] >= 0)
            QB_TRY(qb_check_places(constant, axes->extent[k], axes->axis[k], axes->type));
        if (axes->extent[k] == 0)
            return qb_fail(
                QB_ERROR_INDEX, "%s: axis %d of an array of shape %s has extent 0: no element can be indexed",
                call->function->name, axes->axis[k], qb_print_shape(axes->type->rank, axes->type->shape).text);
    }
    return QB_OK;
}

static qb_status take_all(const qb_call *call, const addressed_axes *axes, qb_places *p)
{
    qb_type types[QB_MAX_RANK];
    for (int k = 0; k < p->count; k++) {
        QB_TRY(take_indices(call, axes->operand[k], &p->value[k]));
        qb_value_type(call->graph, call->operand[axes->operand[k]], &types[k]);
    }
    QB_TRY(qb_places_shape(p->count, types, &p->rank, p->shape));
    QB_TRY(check_constants(call, p, axes));
    QB_TRY(find_distinct(call->graph, p, axes->extent, &p->unique));
    for (int k = 0; k < p->count; k++)
        p->value[k] = qb_broadcast_to(call->graph, p->value[k], p->rank, p->shape);
    return QB_OK;
}

qb_status qb_take_places(const qb_call *call, const qb_selection *s, int first, qb_places *out)
{
    addressed_axes axes = {.type = &s->type};
    out->count = s->array_count;
    for (int k = 0; k < s->array_count; k++) {
        axes.operand[k] = first + s->array[k];
        axes.axis[k] = s->array_source[k];
        axes.extent[k] = s->shape[s->array_axis[k]];
        if (axes.operand[k] >= call->operand_count)
            return qb_fail(QB_ERROR_TYPE, "%s: the index names array %d, of which there are %d", call->function->name,
                           s->array[k], call->operand_count - first);
    }
    QB_TRY(take_all(call, &axes, out));
    if (s->rank - s->array_count + out->rank > QB_MAX_RANK)
        return qb_fail(QB_ERROR_INDEX, "%s: the result of the index would have %d axes; arrays have %d at most",
                       call->function->name, s->rank - s->array_count + out->rank, QB_MAX_RANK);
    return QB_OK;
}

qb_status qb_take_place(const qb_call *call, int operand, const qb_type *type, int axis, qb_places *out)
{
    addressed_axes axes = {.type = type};
    axes.operand[0] = operand;
    axes.axis[0] = axis;
    axes.extent[0] = type->shape[axis];
    out->count = 1;
    return take_all(call, &axes, out);
}

qb_value qb_swap_blocks(qb_graph *graph, qb_value value, int first, int second)
{
    if (value < 0 || first == 0 || second == 0)
        return value;
    int64_t order[QB_MAX_RANK];
    int rank = graph->values[value].rank;
    for (int i = 0; i < rank; i++)
        order[i] = i < second ? first + i : i < first + second ? i - second : i;
    return qb_permute(graph, value, rank, order);
}

qb_status qb_build_getitem(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_type type;
    qb_selection s;
    qb_value_type(g, call->operand[0], &type);
    call->result_weak = qb_call_weak(call, 0);
    QB_TRY(qb_select_index(&s, &type, &call->parameter[0]));
    call->result = qb_select_part(g, &s, call->operand[0]);
    if (s.array_count == 0)
        return QB_OK;
    qb_places places;
    QB_TRY(qb_take_places(call, &s, 1, &places));
    call->result = qb_gather(g, call->result, places.count, places.value, s.array_axis, 0, QB_BOUNDS_CLAMP);
    if (s.arrays_in_front)
        call->result = qb_swap_blocks(g, call->result, (int)s.array_axis[0], places.rank);
    return QB_OK;
}

/* ---- Diagonals and triangles */

static qb_status check_planes(const qb_call *call, const qb_type *type)
{
    if (type->rank < 2)
        return qb_fail(QB_ERROR_VALUE, "%s: needs two axes at least, got an array of shape %s", call->function->name,
                       qb_print_shape(type->rank, type->shape).text);
    return QB_OK;
}

/* The two axes go last and become one, along which the diagonal is a slice with a step of one row and one column. */
static qb_status take_diagonal(qb_call *call, qb_value *out, qb_type *out_type)
{
    qb_graph *g = call->graph;
    qb_type type;
    int64_t offset = call->parameter[0].integer, axis1 = 0, axis2 = 0, order[QB_MAX_RANK];
    qb_value_type(g, call->operand[0], &type);
    call->result_weak = qb_call_weak(call, 0);
    QB_TRY(check_planes(call, &type));
    QB_TRY(qb_normalize_axis(call, call->parameter[1].integer, type.rank, type.shape, &axis1));
    QB_TRY(qb_normalize_axis(call, call->parameter[2].integer, type.rank, type.shape, &axis2));
    if (axis1 == axis2)
        return qb_fail(QB_ERROR_VALUE, "%s: axis1 and axis2 are both %lld", call->function->name, (long long)axis1);
    int64_t rows = type.shape[axis1], columns = type.shape[axis2];
    bool below = offset < 0;
    int64_t down = below ? (offset < -rows ? rows : -offset) : 0, right = below              ? 0
                                                                          : offset > columns ? columns
                                                                                             : offset;
    int64_t count = rows - down < columns - right ? rows - down : columns - right;
    int rank = type.rank - 1;
    int64_t shape[QB_MAX_RANK], start[QB_MAX_RANK], limit[QB_MAX_RANK], step[QB_MAX_RANK];
    for (int axis = 0, next = 0; axis < type.rank; axis++) {
        if (axis == axis1 || axis == axis2)
            continue;
        order[next] = axis;
        start[next] = 0;
        step[next] = 1;
        limit[next] = shape[next] = type.shape[axis];
        next++;
    }
    order[rank - 1] = axis1;
    order[rank] = axis2;
    shape[rank - 1] = rows * columns;
    start[rank - 1] = count > 0 ? down * columns + right : 0;
    step[rank - 1] = columns + 1;
    limit[rank - 1] = count > 0 ? start[rank - 1] + (count - 1) * (columns + 1) + 1 : 0;
    qb_value flat = qb_reshape(g, qb_permute(g, call->operand[0], type.rank, order), rank, shape);
    *out = qb_slice(g, flat, start, limit, step);
    shape[rank - 1] = count > 0 ? count : 0;
    qb_type_set(out_type, type.dtype, rank, shape);
    return QB_OK;
}

qb_status qb_build_diagonal(qb_call *call)
{
    qb_type type;
    return take_diagonal(call, &call->result, &type);
}

qb_status qb_build_trace(qb_call *call)
{
    qb_value diagonal;
    qb_type type;
    QB_TRY(take_diagonal(call, &diagonal, &type));
    diagonal = qb_adopt(call->graph, diagonal, qb_sum_dtype(type.dtype));
    call->result = qb_reduce_sum(call->graph, diagonal, 1, (const int64_t[]){type.rank - 1});
    return QB_OK;
}

static qb_status build_triangle(qb_call *call, bool lower)
{
    qb_graph *g = call->graph;
    qb_type type;
    qb_value_type(g, call->operand[0], &type);
    call->result_weak = qb_call_weak(call, 0);
    QB_TRY(check_planes(call, &type));
    const int64_t *plane = type.shape + type.rank - 2;
    qb_value row = qb_iota(g, QB_INT64, 2, plane, 0), column = qb_iota(g, QB_INT64, 2, plane, 1);
    qb_value distance = qb_sub(g, column, row), k = qb_splat(g, QB_INT64, 2, plane, (double)call->parameter[0].integer);
    qb_value inside = lower ? qb_less_equal(g, distance, k) : qb_less_equal(g, k, distance);
    inside = qb_broadcast_to(g, inside, type.rank, type.shape);
    call->result = qb_select(g, inside, call->operand[0], qb_splat_like(g, call->operand[0], 0));
    return QB_OK;
}

qb_status qb_build_tril(qb_call *call)
{
    return build_triangle(call, true);
}

qb_status qb_build_triu(qb_call *call)
{
    return build_triangle(call, false);
}
