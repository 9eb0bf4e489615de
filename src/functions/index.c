/* Elements chosen by place: basic indexing, diagonals, triangles. */
#include "functions/builder.h"

/* ---- x[index] in a graph: one slice, one reversal, one reshape; what would change nothing leaves no node */

typedef struct selection {
    qb_type type;
    int axis; /* of x, next to be indexed */
    int64_t start[QB_MAX_RANK], limit[QB_MAX_RANK], step[QB_MAX_RANK];
    int reversed_count;
    int64_t reversed[QB_MAX_RANK];
    int rank; /* of the result so far */
    int64_t shape[QB_MAX_RANK];
} selection;

static void select_all(selection *s)
{
    int64_t extent = s->type.shape[s->axis];
    s->start[s->axis] = 0;
    s->limit[s->axis] = extent;
    s->step[s->axis++] = 1;
    s->shape[s->rank++] = extent;
}

static qb_status select_integer(selection *s, int64_t given)
{
    int64_t extent = s->type.shape[s->axis], position = given < 0 ? given + extent : given;
    if (position < 0 || position >= extent)
        return qb_fail(QB_ERROR_INDEX, "index %lld is out of range for axis %d of shape %s", (long long)given, s->axis,
                       qb_print_shape(s->type.rank, s->type.shape).text);
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
static qb_status select_slice(selection *s, const int64_t *entry)
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

/* Counts the entries that take an axis of x, and checks that there are not too many. */
static qb_status check_index(const qb_attribute *index, const qb_type *type, int *axes_taken)
{
    int taken = 0, ellipses = 0, rank = 0;
    for (int i = 0; i < index->count; i += QB_INDEX_FIELDS) {
        int64_t kind = index->integers[i];
        taken += kind == QB_INDEX_INTEGER || kind == QB_INDEX_SLICE;
        ellipses += kind == QB_INDEX_ELLIPSIS;
        rank += kind == QB_INDEX_NEW_AXIS;
        rank -= kind == QB_INDEX_INTEGER;
    }
    if (ellipses > 1)
        return qb_fail(QB_ERROR_INDEX, "an index has one ellipsis ('...') at most, got %d", ellipses);
    if (taken > type->rank)
        return qb_fail(QB_ERROR_INDEX, "too many indices: an array of shape %s has %d axes, the index takes %d",
                       qb_print_shape(type->rank, type->shape).text, type->rank, taken);
    if (type->rank + rank > QB_MAX_RANK)
        return qb_fail(QB_ERROR_INDEX, "the result of the index would have %d axes; arrays have %d at most",
                       type->rank + rank, QB_MAX_RANK);
    *axes_taken = taken;
    return QB_OK;
}

static qb_status select_entries(selection *s, const qb_attribute *index, int axes_taken)
{
    for (int i = 0; i < index->count; i += QB_INDEX_FIELDS) {
        const int64_t *entry = index->integers + i;
        switch (entry[0]) {
        case QB_INDEX_INTEGER: QB_TRY(select_integer(s, entry[1])); break;
        case QB_INDEX_SLICE: QB_TRY(select_slice(s, entry)); break;
        case QB_INDEX_NEW_AXIS: s->shape[s->rank++] = 1; break;
        default:
            for (int k = s->type.rank - axes_taken; k > 0; k--)
                select_all(s);
        }
    }
    while (s->axis < s->type.rank)
        select_all(s);
    return QB_OK;
}

static qb_status resolve_index(selection *s, const qb_type *type, const qb_attribute *index)
{
    int axes_taken = 0;
    s->axis = s->rank = s->reversed_count = 0; /* the arrays, which are large, are filled as far as they are used */
    qb_type_set(&s->type, type->dtype, type->rank, type->shape);
    QB_TRY(check_index(index, type, &axes_taken));
    return select_entries(s, index, axes_taken);
}

qb_status qb_build_getitem(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_type type;
    selection s;
    qb_value_type(g, call->operand[0], &type);
    call->result_weak = qb_call_weak(call, 0);
    QB_TRY(resolve_index(&s, &type, &call->parameter[0]));
    qb_value x = qb_slice(g, call->operand[0], s.start, s.limit, s.step);
    x = qb_reverse(g, x, s.reversed_count, s.reversed);
    call->result = qb_reshape(g, x, s.rank, s.shape);
    return QB_OK;
}

/* ---- The same without a program: a copy through strides */

typedef struct gather {
    int axes;                                      /* outer ones, which are walked; below them everything is one run */
    size_t run_bytes;                              /* of that run */
    int64_t count[QB_MAX_RANK], step[QB_MAX_RANK]; /* elements along an axis, bytes from one to the next */
} gather;

/* Returns the address of the first element. */
static const char *plan_gather(gather *plan, const selection *s, const qb_tensor *tensor)
{
    const char *first = tensor->data;
    int64_t stride = (int64_t)qb_dtype_size(tensor->dtype);
    int whole_below = s->type.rank; /* axes from here on are taken whole */
    plan->run_bytes = (size_t)stride;
    for (int axis = s->type.rank - 1, reversed = s->reversed_count - 1; axis >= 0; axis--) {
        int64_t extent = s->type.shape[axis];
        bool is_reversed = reversed >= 0 && s->reversed[reversed] == axis;
        reversed -= is_reversed;
        plan->count[axis] = (s->limit[axis] - s->start[axis] + s->step[axis] - 1) / s->step[axis];
        plan->step[axis] = is_reversed ? -s->step[axis] * stride : s->step[axis] * stride;
        if (plan->count[axis] > 0)
            first += (is_reversed ? s->start[axis] + (plan->count[axis] - 1) * s->step[axis] : s->start[axis]) * stride;
        if (whole_below == axis + 1 && plan->count[axis] == extent && !is_reversed) {
            whole_below = axis;
            plan->run_bytes *= (size_t)extent;
        }
        stride *= extent;
    }
    plan->axes = whole_below;
    return first;
}

static char *gather_axis(const gather *plan, int axis, const char *source, char *target)
{
    if (axis == plan->axes) {
        memcpy(target, source, plan->run_bytes);
        return target + plan->run_bytes;
    }
    for (int64_t i = 0; i < plan->count[axis]; i++, source += plan->step[axis])
        target = gather_axis(plan, axis + 1, source, target);
    return target;
}

qb_status qb_tensor_index(qb_tensor *tensor, const qb_attribute *index, qb_tensor **out)
{
    qb_type type;
    selection s;
    gather plan;
    qb_type_set(&type, tensor->dtype, tensor->rank, tensor->shape);
    QB_TRY(resolve_index(&s, &type, index));
    qb_tensor *result;
    QB_TRY(qb_tensor_create(tensor->dtype, s.rank, s.shape, NULL, &result));
    const char *first = plan_gather(&plan, &s, tensor);
    if (result->size > 0)
        (void)gather_axis(&plan, 0, first, result->data);
    *out = result;
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
