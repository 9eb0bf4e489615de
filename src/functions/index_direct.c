/* x[index] of a tensor, without a program: copies through strides. And the check of concrete indices, which a program
 * would clamp. */
#include "functions/index.h"

/* ---- Values of index arrays */

qb_status qb_fail_index(int64_t index, int axis, const qb_type *type)
{
    return qb_fail(QB_ERROR_INDEX, "index %lld is out of bounds for axis %d with size %lld, of an array of shape %s",
                   (long long)index, axis, (long long)type->shape[axis], qb_print_shape(type->rank, type->shape).text);
}

/* The first element outside [-extent, extent), or -1. A loop that finds out whether there is one is fast, and mostly
 * enough. */
#define FIND_OUTSIDE(type)                                                                                             \
    static int64_t find_outside_##type(const type *index, int64_t size, int64_t extent)                                \
    {                                                                                                                  \
        unsigned outside = 0;                                                                                          \
        for (int64_t i = 0; i < size; i++)                                                                             \
            outside |= (unsigned)((int64_t)index[i] < -extent) | (unsigned)((int64_t)index[i] >= extent);              \
        for (int64_t i = 0; outside && i < size; i++)                                                                  \
            if ((int64_t)index[i] < -extent || (int64_t)index[i] >= extent)                                            \
                return i;                                                                                              \
        return -1;                                                                                                     \
    }

FIND_OUTSIDE(int32_t)
FIND_OUTSIDE(int64_t)
FIND_OUTSIDE(uint32_t)

static int64_t find_outside_uint64_t(const uint64_t *index, int64_t size, int64_t extent)
{
    for (int64_t i = 0; i < size; i++)
        if (index[i] >= (uint64_t)extent)
            return i;
    return -1;
}

qb_status qb_check_places(const qb_tensor *places, int64_t extent, int axis, const qb_type *type)
{
    int64_t found = -1;
    switch (places->dtype) {
    case QB_INT32: found = find_outside_int32_t(places->data, places->size, extent); break;
    case QB_INT64: found = find_outside_int64_t(places->data, places->size, extent); break;
    case QB_UINT32: found = find_outside_uint32_t(places->data, places->size, extent); break;
    case QB_UINT64: found = find_outside_uint64_t(places->data, places->size, extent); break;
    default: break; /* refused elsewhere */
    }
    if (found < 0)
        return QB_OK;
    long long index = places->dtype == QB_INT64    ? (long long)((const int64_t *)places->data)[found]
                      : places->dtype == QB_INT32  ? (long long)((const int32_t *)places->data)[found]
                      : places->dtype == QB_UINT32 ? (long long)((const uint32_t *)places->data)[found]
                                                   : (long long)((const uint64_t *)places->data)[found];
    return qb_fail_index(index, axis, type);
}

/* Every array of an index against its axis; what addresses nothing, as a whole, may be out of range, as in NumPy. */
static qb_status check_selection(const qb_selection *s, int array_count, qb_tensor *const *arrays)
{
    qb_type types[QB_MAX_RANK];
    int rank;
    int64_t shape[QB_MAX_RANK];
    for (int k = 0; k < s->array_count; k++) {
        if (s->array[k] >= array_count)
            return qb_fail(QB_ERROR_TYPE, "the index names array %d, of which there are %d", s->array[k], array_count);
        const qb_tensor *array = arrays[s->array[k]];
        qb_type_set(&types[k], array->dtype, array->rank, array->shape);
    }
    QB_TRY(qb_places_shape(s->array_count, types, &rank, shape));
    for (int i = 0; i < rank; i++)
        if (shape[i] == 0)
            return QB_OK;
    for (int k = 0; k < s->array_count; k++)
        if (s->array_source[k] >= 0)
            QB_TRY(qb_check_places(arrays[s->array[k]], s->shape[s->array_axis[k]], s->array_source[k], &s->type));
    return QB_OK;
}

qb_status qb_check_call(const qb_function *function, const qb_attribute *parameters, int operand_count,
                        qb_tensor *const *operands)
{
    if (!function->takes_indices || !operands[0])
        return QB_OK;
    qb_type type;
    qb_type_set(&type, operands[0]->dtype, operands[0]->rank, operands[0]->shape);
    if (function->takes_index) {
        qb_selection s;
        QB_TRY(qb_select_index(&s, &type, &parameters[0]));
        return check_selection(&s, operand_count - function->operand_parameters,
                               operands + function->operand_parameters);
    }
    const qb_attribute *axis = &parameters[0];
    if (qb_is_none(axis)) { /* of the flattened array */
        type.shape[0] = operands[0]->size;
        type.rank = 1;
    }
    int64_t place = qb_is_none(axis) ? 0 : axis->integers[0];
    place += place < 0 ? type.rank : 0;
    return qb_check_places(operands[1], type.shape[place], (int)place, &type);
}

/* ---- The basic step */

typedef struct traversal {
    int axes;                                      /* outer ones, which are walked; below them everything is one run */
    size_t run_bytes;                              /* of that run */
    int64_t count[QB_MAX_RANK], step[QB_MAX_RANK]; /* elements along an axis, bytes from one to the next */
} traversal;

/* Returns the address of the first element. */
static const char *plan_traversal(traversal *plan, const qb_selection *s, const qb_tensor *tensor)
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

static char *copy_axis(const traversal *plan, int axis, const char *source, char *target)
{
    if (axis == plan->axes) {
        memcpy(target, source, plan->run_bytes);
        return target + plan->run_bytes;
    }
    for (int64_t i = 0; i < plan->count[axis]; i++, source += plan->step[axis])
        target = copy_axis(plan, axis + 1, source, target);
    return target;
}

/* The selected part; the tensor itself where that is all of it and `may_share`. */
static qb_status take_part(qb_tensor *tensor, const qb_selection *s, bool may_share, qb_tensor **out)
{
    traversal plan;
    qb_tensor *result;
    const char *first = plan_traversal(&plan, s, tensor);
    if (plan.axes == 0 && may_share) {
        *out = qb_tensor_retain(tensor);
        return QB_OK;
    }
    QB_TRY(qb_tensor_create(tensor->dtype, s->rank, s->shape, NULL, &result));
    if (result->size > 0)
        (void)copy_axis(&plan, 0, first, result->data);
    *out = result;
    return QB_OK;
}

/* ---- The step by arrays */

/* An index array as int64, repeated to the shape. */
static qb_status expand_places(const qb_tensor *places, int rank, const int64_t *shape, qb_tensor **out)
{
    int64_t stride[QB_MAX_RANK], step = 1;
    qb_tensor *result;
    QB_TRY(qb_tensor_create(QB_INT64, rank, shape, NULL, &result));
    for (int i = rank - 1, own = places->rank - 1; i >= 0; i--, own--) {
        stride[i] = own < 0 || places->shape[own] == 1 ? 0 : step;
        step *= own < 0 ? 1 : places->shape[own];
    }
    int64_t *target = result->data, position[QB_MAX_RANK] = {0}, offset = 0;
    const char *source = places->data;
    for (int64_t e = 0; e < result->size; e++) {
        switch (places->dtype) {
        case QB_INT32: target[e] = ((const int32_t *)(const void *)source)[offset]; break;
        case QB_UINT32: target[e] = ((const uint32_t *)(const void *)source)[offset]; break;
        default: target[e] = ((const int64_t *)(const void *)source)[offset]; /* in range, so uint64 as well */
        }
        for (int axis = rank - 1; axis >= 0; axis--) {
            offset += stride[axis];
            if (++position[axis] < shape[axis])
                break;
            offset -= stride[axis] * shape[axis];
            position[axis] = 0;
        }
    }
    *out = result;
    return QB_OK;
}

typedef struct direct {
    qb_type types[QB_MAX_RANK + 1]; /* of the part, and of every index array */
    const void *data[QB_MAX_RANK + 1];
    qb_tensor *owned[QB_MAX_RANK + 1];
    int count, rank; /* of the index arrays */
    int64_t shape[QB_MAX_RANK];
} direct;

static qb_status prepare_places(direct *d, const qb_selection *s, qb_tensor *const *arrays)
{
    for (int k = 0; k < s->array_count; k++) {
        const qb_tensor *places = arrays[s->array[k]];
        if (!qb_dtype_is_integer(places->dtype))
            return qb_fail(QB_ERROR_INDEX, "arrays of indices must be integers, got %s; convert with astype(int64)",
                           qb_dtype_name(places->dtype));
        qb_type_set(&d->types[k + 1], places->dtype, places->rank, places->shape);
    }
    QB_TRY(qb_places_shape(s->array_count, d->types + 1, &d->rank, d->shape));
    for (int k = 0; k < s->array_count; k++) {
        qb_tensor *places = arrays[s->array[k]];
        if (places->dtype == QB_INT64 && qb_shape_equal(places->rank, places->shape, d->rank, d->shape))
            d->owned[k + 1] = qb_tensor_retain(places);
        else
            QB_TRY(expand_places(places, d->rank, d->shape, &d->owned[k + 1]));
        qb_type_set(&d->types[k + 1], QB_INT64, d->rank, d->shape);
        d->data[k + 1] = d->owned[k + 1]->data;
    }
    return QB_OK;
}

/* [first, second, rest] as [second, first, rest]: how many of each, `rest` in bytes. */
static void swap_blocks(int64_t first, int64_t second, size_t rest, const char *source, char *target)
{
    for (int64_t j = 0; j < second; j++)
        for (int64_t i = 0; i < first; i++, target += rest)
            memcpy(target, source + (size_t)(i * second + j) * rest, rest);
}

static qb_status gather_part(direct *d, const qb_selection *s, qb_tensor **out)
{
    int outer = (int)s->array_axis[0], rank = 0;
    int64_t shape[QB_MAX_RANK], swapped[QB_MAX_RANK], counts[2] = {1, 1};
    if (s->rank - s->array_count + d->rank > QB_MAX_RANK)
        return qb_fail(QB_ERROR_INDEX, "the result of the index would have %d axes; arrays have %d at most",
                       s->rank - s->array_count + d->rank, QB_MAX_RANK);
    for (int axis = 0, next = 0; axis < s->rank; axis++) {
        if (next == s->array_count || axis != s->array_axis[next]) {
            shape[rank++] = s->shape[axis];
            continue;
        }
        for (int i = 0; next == 0 && i < d->rank; i++)
            shape[rank++] = d->shape[i];
        next++;
    }
    qb_tensor *result, *moved;
    QB_TRY(qb_tensor_create(d->types[0].dtype, rank, shape, NULL, &result));
    const qb_attribute attributes[] = {qb_ints(s->array_count, s->array_axis), qb_int(0), qb_int(QB_BOUNDS_CLAMP)};
    qb_type type;
    qb_type_set(&type, result->dtype, rank, shape);
    qb_gather_run(attributes, s->array_count + 1, d->types, d->data, &type, &result->data);
    *out = result;
    if (!s->arrays_in_front || outer == 0 || d->rank == 0)
        return QB_OK;
    for (int i = 0; i < rank; i++) {
        counts[0] *= i < outer ? shape[i] : 1;
        counts[1] *= i >= outer && i < outer + d->rank ? shape[i] : 1;
        swapped[i] = i < d->rank ? shape[outer + i] : i < d->rank + outer ? shape[i - d->rank] : shape[i];
    }
    qb_status status = qb_tensor_create(result->dtype, rank, swapped, NULL, &moved);
    if (status == QB_OK && result->size > 0)
        swap_blocks(counts[0], counts[1], qb_tensor_bytes(result) / (size_t)(counts[0] * counts[1]), result->data,
                    moved->data);
    qb_tensor_release(result);
    *out = status == QB_OK ? moved : NULL;
    return status;
}

qb_status qb_tensor_index(qb_tensor *tensor, const qb_attribute *index, int array_count, qb_tensor *const *arrays,
                          qb_tensor **out)
{
    qb_type type;
    qb_selection s;
    qb_type_set(&type, tensor->dtype, tensor->rank, tensor->shape);
    QB_TRY(qb_select_index(&s, &type, index));
    if (s.array_count == 0)
        return take_part(tensor, &s, false, out);
    direct d;
    memset(d.owned, 0, sizeof d.owned);
    qb_status status = check_selection(&s, array_count, arrays);
    if (status == QB_OK)
        status = take_part(tensor, &s, true, &d.owned[0]);
    if (status == QB_OK)
        status = prepare_places(&d, &s, arrays);
    if (status == QB_OK) {
        qb_type_set(&d.types[0], tensor->dtype, s.rank, s.shape);
        d.data[0] = d.owned[0]->data;
        status = gather_part(&d, &s, out);
    }
    for (int i = 0; i <= s.array_count; i++)
        qb_tensor_release(d.owned[i]);
    return status;
}
