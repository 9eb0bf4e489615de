/* What happens to operands before a function computes: promotion of dtypes, weak numbers, broadcasting, axes.
 *
 * The rules of promotion. Among strong operands: bool and integers convert to the other's wider or floating type, two
 * floating types do not mix (qb_dtype_promote). A weak operand (a Python number, or what was made of such only) takes
 * the dtype of the strong ones, except that a floating number keeps a weak float64 against integers, and any number
 * against bool; what is weak so far becomes float32 when it meets a float32 array. */
#include "functions/builder.h"

#include <stdio.h>
#include <string.h>

/* ---- Dtypes */

qb_value qb_adopt(qb_graph *graph, qb_value value, qb_dtype dtype)
{
    if (value < 0 || graph->values[value].dtype == dtype)
        return value;
    const qb_node *node = qb_node_of(graph, value);
    if (node->op != &qb_op_constant || graph->values[value].rank != 0)
        return qb_convert(graph, value, dtype);
    const qb_tensor *number = node->attributes[0].tensor;
    qb_tensor *converted;
    qb_status status = qb_tensor_create(dtype, 0, NULL, NULL, &converted);
    if (status != QB_OK)
        return qb_graph_fail(graph, status);
    if (number->dtype == QB_INT64)
        qb_dtype_store_integer(dtype, *(const int64_t *)number->data, converted->data);
    else
        qb_dtype_store(dtype, qb_dtype_load(number->dtype, number->data), converted->data);
    qb_value result = QB_FAILED;
    status = qb_graph_constant(graph, converted, &result);
    qb_tensor_release(converted);
    return status == QB_OK ? result : qb_graph_fail(graph, status);
}

/* Where a weak number of kind `number` ends that meets the strong dtype; true when the result is weak still. */
static bool meet_number(qb_dtype *dtype, char number)
{
    char kind = qb_dtype_kind(*dtype);
    bool stays_weak = (kind == 'b' && number != 'b') || (kind != 'f' && number == 'f');
    if (stays_weak)
        *dtype = QB_FLOAT64;
    return stays_weak;
}

static int kind_order(char kind)
{
    return kind == 'b' ? 0 : kind == 'f' ? 2 : 1;
}

static qb_status common_dtype(qb_call *call, int count, const int *which, qb_dtype *out)
{
    bool any_strong = false, any_weak = false, any_huge = false; /* an int beyond int64 */
    qb_dtype strong = QB_BOOL;
    char number = 'b';
    for (int i = 0; i < count; i++) {
        qb_dtype dtype = call->graph->values[call->operand[which[i]]].dtype;
        char kind = qb_dtype_kind(dtype);
        if (qb_call_weak(call, which[i])) {
            any_weak = true;
            any_huge = any_huge || dtype == QB_UINT64;
            number = kind_order(kind) > kind_order(number) ? kind : number;
        } else {
            if (any_strong)
                QB_TRY(qb_dtype_promote(call->function->name, strong, dtype, &strong));
            else
                strong = dtype;
            any_strong = true;
        }
    }
    call->result_weak = !any_strong;
    if (any_strong && any_weak)
        call->result_weak = meet_number(&strong, number);
    else if (!any_strong)
        strong = number == 'b' ? QB_BOOL : number == 'f' || any_huge ? QB_FLOAT64 : QB_INT64;
    *out = strong;
    return QB_OK;
}

/* "bool" for one operand, "bool and bool" for two, as given. */
static void describe_dtypes(const qb_call *call, int count, const int *which, size_t room, char *out)
{
    size_t used = 0;
    for (int i = 0; i < count && used < room; i++)
        used += (size_t)snprintf(out + used, room - used, "%s%s",
                                 i == 0           ? ""
                                 : i == count - 1 ? " and "
                                                  : ", ",
                                 qb_dtype_name(call->graph->values[call->operand[which[i]]].dtype));
}

static qb_status check_dtype(const qb_call *call, qb_takes takes, int count, const int *which, qb_dtype *dtype)
{
    char kind = qb_dtype_kind(*dtype), given[96];
    const char *name = call->function->name;
    if (kind == 'b' && (takes == QB_TAKES_NUMERIC || takes == QB_TAKES_FLOATING)) {
        describe_dtypes(call, count, which, sizeof given, given);
        return qb_fail(QB_ERROR_VALUE, "%s: not defined for %s; convert with astype(float64) or astype(int64) first",
                       name, given);
    }
    if (kind == 'f' && takes == QB_TAKES_BITWISE) {
        describe_dtypes(call, count, which, sizeof given, given);
        return qb_fail(QB_ERROR_VALUE,
                       "%s: takes bool and integer arrays, got %s; convert with astype(bool) or astype(int64)", name,
                       given);
    }
    if (kind != 'f' && (takes == QB_TAKES_FLOATING || takes == QB_TAKES_TESTABLE))
        *dtype = QB_FLOAT64;
    return QB_OK;
}

qb_status qb_promote_operands(qb_call *call, qb_takes takes, int count, const int *which, qb_value *out)
{
    qb_dtype dtype = QB_BOOL;
    QB_TRY(common_dtype(call, count, which, &dtype));
    QB_TRY(check_dtype(call, takes, count, which, &dtype));
    for (int i = 0; i < count; i++)
        out[i] = qb_adopt(call->graph, call->operand[which[i]], dtype);
    return QB_OK;
}

qb_status qb_take_operand(qb_call *call, qb_takes takes, int operand, qb_value *out)
{
    return qb_promote_operands(call, takes, 1, &operand, out);
}

qb_status qb_take_pair(qb_call *call, qb_takes takes, qb_value *a, qb_value *b)
{
    qb_value values[2];
    QB_TRY(qb_promote_operands(call, takes, 2, (const int[]){0, 1}, values));
    QB_TRY(qb_broadcast_together(call, 2, values));
    *a = values[0];
    *b = values[1];
    return QB_OK;
}

/* ---- Shapes */

static qb_status fail_to_broadcast(const qb_call *call, int count, const qb_type *types)
{
    char shapes[600];
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof shapes; i++)
        used += (size_t)snprintf(shapes + used, sizeof shapes - used, "%s%s",
                                 i == 0           ? ""
                                 : i == count - 1 ? " and "
                                                  : ", ",
                                 qb_print_shape(types[i].rank, types[i].shape).text);
    return qb_fail(QB_ERROR_VALUE, "%s: shapes %s do not broadcast: counted from the last, extents must be equal or 1",
                   call->function->name, shapes);
}

qb_status qb_broadcast_shapes(const qb_call *call, int count, const qb_type *types, qb_type *out)
{
    int rank = 0;
    for (int i = 0; i < count; i++)
        rank = types[i].rank > rank ? types[i].rank : rank;
    out->rank = rank;
    for (int axis = 0; axis < rank; axis++) {
        int64_t extent = 1;
        for (int i = 0; i < count; i++) {
            int own = axis - (rank - types[i].rank);
            int64_t given = own < 0 ? 1 : types[i].shape[own];
            if (given != 1 && extent != 1 && given != extent)
                return fail_to_broadcast(call, count, types);
            extent = given != 1 ? given : extent;
        }
        out->shape[axis] = extent;
    }
    return QB_OK;
}

qb_status qb_broadcast_together(const qb_call *call, int count, qb_value *values)
{
    enum { MOST = 4 };
    qb_type types[MOST] = {{.rank = 0}}, common;
    if (count < 1 || count > MOST)
        return qb_fail(QB_ERROR_INTERNAL, "%s: %d values to broadcast", call->function->name, count);
    for (int i = 0; i < count; i++) {
        if (values[i] < 0)
            return QB_OK; /* memory ran out: qb_function_build finds it */
        qb_value_type(call->graph, values[i], &types[i]);
    }
    QB_TRY(qb_broadcast_shapes(call, count, types, &common));
    for (int i = 0; i < count; i++)
        if (!qb_shape_equal(types[i].rank, types[i].shape, common.rank, common.shape))
            values[i] = qb_broadcast_to(call->graph, values[i], common.rank, common.shape);
    return QB_OK;
}

/* An axis of an array of that shape once it has got `added` new axes. */
static qb_status normalize(const qb_call *call, int64_t axis, int added, int rank, const int64_t *shape, int64_t *out)
{
    int64_t normal = axis < 0 ? axis + rank + added : axis;
    if (normal < 0 || normal >= rank + added)
        return added ? qb_fail(QB_ERROR_VALUE,
                               "%s: axis %lld is out of range: with %d new, an array of shape %s has %d axes",
                               call->function->name, (long long)axis, added, qb_print_shape(rank, shape).text,
                               rank + added)
                     : qb_fail(QB_ERROR_VALUE, "%s: axis %lld is out of range for an array of shape %s",
                               call->function->name, (long long)axis, qb_print_shape(rank, shape).text);
    *out = normal;
    return QB_OK;
}

qb_status qb_normalize_axis(const qb_call *call, int64_t axis, int rank, const int64_t *shape, int64_t *out)
{
    return normalize(call, axis, 0, rank, shape, out);
}

qb_status qb_normalize_new_axes(const qb_call *call, int count, const int64_t *axes, const qb_type *type, bool *is_new)
{
    memset(is_new, 0, (size_t)(type->rank + count) * sizeof *is_new);
    for (int i = 0; i < count; i++) {
        int64_t axis = 0;
        QB_TRY(normalize(call, axes[i], count, type->rank, type->shape, &axis));
        if (is_new[axis])
            return qb_fail(QB_ERROR_VALUE, "%s: axis %lld is given twice, for an array of shape %s",
                           call->function->name, (long long)axes[i], qb_print_shape(type->rank, type->shape).text);
        is_new[axis] = true;
    }
    return QB_OK;
}

qb_status qb_normalize_axes(const qb_call *call, const qb_attribute *axes, const qb_type *type, int *count,
                            int64_t *out)
{
    bool chosen[QB_MAX_RANK] = {false};
    for (int i = 0; i < axes->count; i++) {
        int64_t axis = 0;
        QB_TRY(qb_normalize_axis(call, axes->integers[i], type->rank, type->shape, &axis));
        if (chosen[axis])
            return qb_fail(QB_ERROR_VALUE, "%s: axis %lld is given twice, for an array of shape %s",
                           call->function->name, (long long)axes->integers[i],
                           qb_print_shape(type->rank, type->shape).text);
        chosen[axis] = true;
    }
    int found = 0;
    for (int axis = 0; axis < type->rank; axis++)
        if (qb_is_none(axes) || chosen[axis])
            out[found++] = axis;
    *count = found;
    return QB_OK;
}

qb_status qb_required_axis(const qb_call *call, const qb_attribute *axis, const qb_type *type, int64_t *out)
{
    if (qb_is_none(axis))
        return qb_fail(QB_ERROR_TYPE, "%s: axis must be an int, got None", call->function->name);
    return qb_normalize_axis(call, axis->integers[0], type->rank, type->shape, out);
}
