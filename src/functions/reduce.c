/* Reductions and what is made of them: means, variances, norms. */
#include "functions/builder.h"

#include <math.h>

/* ---- Axes that vanish, and come back */

void qb_reduced_over(qb_reduced *over, const qb_type *type, int count, const int64_t *axes)
{
    over->type = *type;
    over->count = count;
    over->left = 0;
    over->extent = 1;
    for (int axis = 0, next = 0; axis < type->rank; axis++) {
        if (next < count && axes[next] == axis) {
            over->axes[next++] = axis;
            over->extent *= type->shape[axis];
        } else {
            over->left_axes[over->left] = axis;
            over->left_shape[over->left++] = type->shape[axis];
        }
    }
}

qb_status qb_take_reduction(const qb_call *call, qb_reduced *out)
{
    qb_type type;
    int64_t axes[QB_MAX_RANK];
    int count = 0;
    qb_value_type(call->graph, call->operand[0], &type);
    QB_TRY(qb_normalize_axes(call, &call->parameter[0], &type, &count, axes));
    qb_reduced_over(out, &type, count, axes);
    return QB_OK;
}

qb_value qb_spread(qb_graph *graph, const qb_reduced *over, qb_value result)
{
    return qb_broadcast(graph, result, over->type.rank, over->type.shape, over->left_axes);
}

qb_value qb_keep_axes(const qb_call *call, const qb_reduced *over, const qb_attribute *keepdims, qb_value result)
{
    if (!keepdims->integer || over->count == 0)
        return result;
    int64_t shape[QB_MAX_RANK];
    memcpy(shape, over->type.shape, sizeof shape);
    for (int i = 0; i < over->count; i++)
        shape[over->axes[i]] = 1;
    return qb_reshape(call->graph, result, over->type.rank, shape);
}

qb_value qb_sum_over(qb_graph *graph, const qb_reduced *over, qb_value value)
{
    return qb_reduce_sum(graph, value, over->count, over->axes);
}

static qb_value number_left(qb_graph *graph, const qb_reduced *over, qb_dtype dtype, double number)
{
    return qb_splat(graph, dtype, over->left, over->left_shape, number);
}

qb_value qb_shift_over(qb_graph *graph, const qb_reduced *over, qb_value value)
{
    value = qb_stop_gradient(graph, value);
    qb_value largest = qb_reduce_max(graph, value, over->count, over->axes);
    return qb_select(graph, qb_isfinite(graph, largest), largest, qb_splat_like(graph, largest, 0));
}

/* ---- Sums, products, extremes */

qb_dtype qb_sum_dtype(qb_dtype dtype)
{
    char kind = qb_dtype_kind(dtype);
    return kind == 'f' ? dtype : kind == 'u' ? QB_UINT64 : QB_INT64;
}

static qb_status build_sum_or_prod(qb_call *call, bool is_sum)
{
    qb_graph *g = call->graph;
    qb_reduced over;
    QB_TRY(qb_take_reduction(call, &over));
    qb_value x = qb_adopt(g, call->operand[0], qb_sum_dtype(over.type.dtype));
    qb_value result = is_sum ? qb_reduce_sum(g, x, over.count, over.axes) : qb_reduce_prod(g, x, over.count, over.axes);
    call->result = qb_keep_axes(call, &over, &call->parameter[1], result);
    call->result_weak = qb_call_weak(call, 0);
    return QB_OK;
}

qb_status qb_build_sum(qb_call *call)
{
    return build_sum_or_prod(call, true);
}

qb_status qb_build_prod(qb_call *call)
{
    return build_sum_or_prod(call, false);
}

static qb_status build_extreme(qb_call *call, bool is_max)
{
    qb_graph *g = call->graph;
    qb_reduced over;
    QB_TRY(qb_take_reduction(call, &over));
    if (over.extent == 0)
        return qb_fail(QB_ERROR_VALUE, "%s: no elements to choose from in an array of shape %s", call->function->name,
                       qb_print_shape(over.type.rank, over.type.shape).text);
    qb_value x = call->operand[0];
    qb_value result = is_max ? qb_reduce_max(g, x, over.count, over.axes) : qb_reduce_min(g, x, over.count, over.axes);
    call->result = qb_keep_axes(call, &over, &call->parameter[1], result);
    call->result_weak = qb_call_weak(call, 0);
    return QB_OK;
}

qb_status qb_build_max(qb_call *call)
{
    return build_extreme(call, true);
}

qb_status qb_build_min(qb_call *call)
{
    return build_extreme(call, false);
}

/* ---- Means and variances */

/* The operand of a statistic: bool and integers become float64. */
static qb_value floating_operand(qb_call *call)
{
    qb_dtype dtype = call->graph->values[call->operand[0]].dtype;
    call->result_weak = qb_call_weak(call, 0);
    return qb_adopt(call->graph, call->operand[0], qb_dtype_is_floating(dtype) ? dtype : QB_FLOAT64);
}

static qb_dtype floating_dtype(const qb_reduced *over)
{
    return qb_dtype_is_floating(over->type.dtype) ? over->type.dtype : QB_FLOAT64;
}

static qb_value mean_over(qb_graph *g, const qb_reduced *over, qb_value x)
{
    return qb_div(g, qb_sum_over(g, over, x), number_left(g, over, floating_dtype(over), (double)over->extent));
}

qb_status qb_build_mean(qb_call *call)
{
    qb_reduced over;
    QB_TRY(qb_take_reduction(call, &over));
    qb_value mean = mean_over(call->graph, &over, floating_operand(call));
    call->result = qb_keep_axes(call, &over, &call->parameter[1], mean);
    return QB_OK;
}

/* Two passes, so that a large mean costs no digits. NaN where count - ddof is 0 or less. */
static qb_value variance(qb_call *call, const qb_reduced *over)
{
    qb_graph *g = call->graph;
    qb_value x = floating_operand(call);
    qb_value difference = qb_sub(g, x, qb_spread(g, over, mean_over(g, over, x)));
    qb_value squares = qb_sum_over(g, over, qb_mul(g, difference, difference));
    double freedom = (double)over->extent - call->parameter[1].number;
    return qb_div(g, squares, number_left(g, over, floating_dtype(over), freedom > 0 ? freedom : NAN));
}

static qb_status build_variance(qb_call *call, bool root)
{
    qb_reduced over;
    QB_TRY(qb_take_reduction(call, &over));
    if (qb_is_none(&call->parameter[1]))
        return qb_fail(QB_ERROR_TYPE, "%s: ddof must be a number, got None", call->function->name);
    qb_value result = variance(call, &over);
    call->result = qb_keep_axes(call, &over, &call->parameter[2], root ? qb_sqrt(call->graph, result) : result);
    return QB_OK;
}

qb_status qb_build_var(qb_call *call)
{
    return build_variance(call, false);
}

qb_status qb_build_std(qb_call *call)
{
    return build_variance(call, true);
}

qb_status qb_build_norm(qb_call *call)
{
    qb_reduced over;
    qb_value x;
    QB_TRY(qb_take_reduction(call, &over));
    QB_TRY(qb_take_operand(call, QB_TAKES_FLOATING, 0, &x));
    call->result =
        qb_keep_axes(call, &over, &call->parameter[1], qb_reduce_norm(call->graph, x, over.count, over.axes));
    return QB_OK;
}
