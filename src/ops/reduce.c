/* Reductions over axes, which vanish from the shape. */
#include "ops/build.h"

#include <math.h>

static qb_status infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    const qb_attribute *axes = &in->attribute[0];
    bool reduced[QB_MAX_RANK] = {false};
    for (int i = 0; i < axes->count; i++) {
        int64_t axis = axes->integers[i];
        if (axis < 0 || axis >= a->rank || (i > 0 && axis <= axes->integers[i - 1]))
            return qb_fail(QB_ERROR_VALUE, "%s: axes %s are not distinct ascending axes of an array of shape %s",
                           in->op->name, qb_print_shape(axes->count, axes->integers).text,
                           qb_print_shape(a->rank, a->shape).text);
        reduced[axis] = true;
    }
    qb_type_set(in->result, a->dtype, 0, NULL);
    for (int i = 0; i < a->rank; i++)
        if (!reduced[i])
            in->result->shape[in->result->rank++] = a->shape[i];
    return QB_OK;
}

static qb_status infer_sum(const qb_inference *in)
{
    if (in->operand[0].dtype == QB_BOOL)
        return qb_fail(QB_ERROR_VALUE, "%s: takes numbers, got bool; convert with astype", in->op->name);
    return infer(in);
}

static qb_status infer_norm(const qb_inference *in)
{
    if (!qb_dtype_is_floating(in->operand[0].dtype))
        return qb_fail(QB_ERROR_VALUE, "%s: takes floating numbers, got %s; convert with astype", in->op->name,
                       qb_dtype_name(in->operand[0].dtype));
    return infer(in);
}

static qb_status infer_extremum(const qb_inference *in)
{
    for (int i = 0; i < in->attribute[0].count; i++) {
        int64_t axis = in->attribute[0].integers[i];
        if (axis >= 0 && axis < in->operand[0].rank && in->operand[0].shape[axis] == 0)
            return qb_fail(QB_ERROR_VALUE, "%s: an array of shape %s has no element to choose along axis %lld",
                           in->op->name, qb_print_shape(in->operand[0].rank, in->operand[0].shape).text,
                           (long long)axis);
    }
    return infer(in);
}

/* The reduced value spread over the operand's shape again. */
static qb_value spread(qb_graph *g, qb_value value, const qb_attribute *reduced, int rank, const int64_t *shape)
{
    int64_t axes[QB_MAX_RANK];
    int count = 0;
    for (int axis = 0, next = 0; axis < rank; axis++) {
        if (next < reduced->count && reduced->integers[next] == axis)
            next++;
        else
            axes[count++] = axis;
    }
    return qb_broadcast(g, value, rank, shape, axes);
}

static qb_value spread_like_operand(qb_rule *r, qb_value value)
{
    qb_type type;
    qb_value_type(r->graph, r->operand[0], &type);
    return spread(r->graph, value, &r->attribute[0], type.rank, type.shape);
}

static void batch(qb_rule *r)
{
    int64_t axes[QB_MAX_RANK];
    const qb_attribute *old = &r->attribute[0];
    for (int i = 0; i < old->count; i++)
        axes[i] = old->integers[i] + 1;
    qb_attribute attribute = qb_ints(old->count, axes);
    r->batched_result[0] = qb_emit(r->graph, r->op, 1, r->operand, &attribute);
}

static void sum_jvp(qb_rule *r)
{
    r->result_tangent[0] = qb_emit(r->graph, r->op, 1, r->tangent, r->attribute);
}

static void sum_transpose(qb_rule *r)
{
    r->operand_cotangent[0] =
        spread(r->graph, r->cotangent[0], &r->attribute[0], r->operand_type[0].rank, r->operand_type[0].shape);
}

/* n equal terms are n times the term, in one rounding. */
static qb_value sum_simplify(qb_rule *r)
{
    qb_graph *g = r->graph;
    const qb_node *node = qb_node_of(g, r->operand[0]);
    qb_value scalar = node->op == &qb_op_broadcast ? qb_operand(g, node, 0) : QB_NONE;
    if (scalar == QB_NONE || g->values[scalar].rank != 0)
        return QB_NONE;
    qb_type type, result;
    qb_value_type(g, r->operand[0], &type);
    int64_t terms = 1;
    for (int i = 0; i < r->attribute[0].count; i++)
        terms *= type.shape[r->attribute[0].integers[i]];
    qb_inference inference = {r->op, 1, &type, r->attribute, &result};
    if (terms == 0 || infer(&inference) != QB_OK)
        return QB_NONE;
    qb_value sum = qb_mul(g, scalar, qb_splat_like(g, scalar, (double)terms));
    return qb_broadcast_to(g, sum, result.rank, result.shape);
}

/* The tied entries share the derivative evenly; the others are left out by selection, so that an infinite tangent
 * there stays out. */
static void extremum_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value chosen = qb_equal(g, r->operand[0], spread_like_operand(r, r->result[0]));
    qb_value zero = qb_splat_like(g, r->operand[0], 0), one = qb_splat_like(g, r->operand[0], 1);
    int count = r->attribute[0].count;
    const int64_t *axes = r->attribute[0].integers;
    qb_value ties = qb_reduce_sum(g, qb_select(g, chosen, one, zero), count, axes);
    qb_value sum = qb_reduce_sum(g, qb_select(g, chosen, r->tangent[0], zero), count, axes);
    r->result_tangent[0] = qb_strong_div(g, sum, ties);
}

/* A part [start, limit) of the first axis. */
static qb_value part(qb_graph *g, qb_value a, int64_t start, int64_t limit)
{
    qb_type type;
    qb_value_type(g, a, &type);
    int64_t first[QB_MAX_RANK] = {0}, step[QB_MAX_RANK];
    for (int i = 0; i < type.rank; i++)
        step[i] = 1;
    first[0] = start;
    type.shape[0] = limit;
    return qb_slice(g, a, first, type.shape, step);
}

/* The derivative of a product by halving: (p, t) pairs are combined as (p1 p2, t1 p2 + p1 t2) in a tree, so nothing
 * is divided and zeros are exact. The reduced axes are brought to the front and flattened to one of extent n. */
static void prod_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_type type, reduced;
    qb_value_type(g, r->operand[0], &type);
    qb_value_type(g, r->result[0], &reduced);
    const qb_attribute *axes = &r->attribute[0];
    int64_t order[QB_MAX_RANK], shape[QB_MAX_RANK + 1], n = 1;
    int count = axes->count;
    for (int i = 0; i < count; i++) {
        order[i] = axes->integers[i];
        n *= type.shape[order[i]];
    }
    for (int axis = 0, next = 0; axis < type.rank; axis++) {
        if (next < axes->count && axes->integers[next] == axis)
            next++;
        else
            order[count++] = axis;
    }
    if (n == 0)
        return;
    shape[0] = n;
    for (int i = 0; i < reduced.rank; i++)
        shape[i + 1] = reduced.shape[i];
    qb_value p = qb_reshape(g, qb_permute(g, r->operand[0], type.rank, order), reduced.rank + 1, shape);
    qb_value t = qb_reshape(g, qb_permute(g, r->tangent[0], type.rank, order), reduced.rank + 1, shape);
    while (n > 1 && p >= 0 && t >= 0) {
        int64_t half = n / 2;
        qb_value p1 = part(g, p, 0, half), p2 = part(g, p, half, 2 * half);
        qb_value t1 = part(g, t, 0, half), t2 = part(g, t, half, 2 * half);
        qb_value left_p = n % 2 ? part(g, p, 2 * half, n) : QB_NONE, left_t = n % 2 ? part(g, t, 2 * half, n) : QB_NONE;
        p = qb_mul(g, p1, p2);
        t = qb_add(g, qb_strong_mul(g, t1, p2), qb_strong_mul(g, p1, t2));
        if (n % 2) {
            p = qb_concat(g, 2, (qb_value[]){p, left_p}, 0);
            t = qb_concat(g, 2, (qb_value[]){t, left_t}, 0);
        }
        n = half + n % 2;
    }
    r->result_tangent[0] = p < 0 ? p : qb_reshape(g, t, reduced.rank, reduced.shape);
}

/* x/|x| is what a tangent is multiplied by, and 0 where |x| is: dividing by infinity there makes derivatives of every
 * order 0, as a root's are at 0. */
static void norm_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value norm = r->result[0], zero = qb_splat_like(g, norm, 0), infinity = qb_splat_like(g, norm, INFINITY);
    qb_value divisor = qb_select(g, qb_equal(g, norm, zero), infinity, norm);
    qb_value direction = qb_div(g, r->operand[0], spread_like_operand(r, divisor));
    r->result_tangent[0] =
        qb_reduce_sum(g, qb_strong_mul(g, r->tangent[0], direction), r->attribute[0].count, r->attribute[0].integers);
}

static double norm_flops(const qb_graph *graph, const qb_node *node)
{
    return 2 * qb_flops_of_operand(graph, node);
}

#define REDUCTION(op_name, text, op_flags, op_flops, op_infer, op_jvp, op_transpose, op_simplify)                      \
    const qb_op qb_op_reduce_##op_name = {.name = "reduce_" #op_name,                                                  \
                                          .summary = text,                                                             \
                                          .arity = 1,                                                                  \
                                          .result_count = 1,                                                           \
                                          .flags = QB_OP_REDUCES | (op_flags),                                         \
                                          .attribute_count = 1,                                                        \
                                          .attribute_name = {"axes"},                                                  \
                                          .lane = QB_LANE_NONE,                                                        \
                                          .reduction = QB_REDUCE_##op_name,                                            \
                                          .flops = op_flops,                                                           \
                                          .infer = op_infer,                                                           \
                                          .jvp = op_jvp,                                                               \
                                          .transpose = op_transpose,                                                   \
                                          .batch = batch,                                                              \
                                          .simplify = op_simplify};

#define REDUCTION_BUILDER(op_name)                                                                                     \
    qb_value qb_reduce_##op_name(qb_graph *graph, qb_value a, int count, const int64_t *axes)                          \
    {                                                                                                                  \
        if (count == 0)                                                                                                \
            return a;                                                                                                  \
        qb_attribute attribute = qb_ints(count, axes);                                                                 \
        return qb_emit(graph, &qb_op_reduce_##op_name, 1, &a, &attribute);                                             \
    }

REDUCTION(sum, "Sum over axes", QB_OP_LINEAR, qb_flops_of_operand, infer_sum, sum_jvp, sum_transpose, sum_simplify)
REDUCTION(prod, "Product over axes", 0, qb_flops_of_operand, infer_sum, prod_jvp, NULL, NULL)
REDUCTION(max, "Largest element over axes; NaN if any is; ties share the derivative", 0, qb_flops_of_operand,
          infer_extremum, extremum_jvp, NULL, NULL)
REDUCTION(min, "Smallest element over axes; NaN if any is; ties share the derivative", 0, qb_flops_of_operand,
          infer_extremum, extremum_jvp, NULL, NULL)
REDUCTION(norm, "Euclidean norm over axes without overflow or underflow; NaN if any element is", 0, norm_flops,
          infer_norm, norm_jvp, NULL, NULL)
REDUCTION_BUILDER(sum)
REDUCTION_BUILDER(prod)
REDUCTION_BUILDER(max)
REDUCTION_BUILDER(min)

qb_value qb_reduce_norm(qb_graph *graph, qb_value a, int count, const int64_t *axes)
{
    if (a < 0)
        return a;
    const qb_value_info *info = &graph->values[a];
    int64_t shape[QB_MAX_RANK], terms = 1;
    int rank = 0;
    for (int axis = 0, next = 0; axis < info->rank; axis++)
        if (next < count && axes[next] == axis)
            terms *= info->shape[axes[next++]];
        else
            shape[rank++] = info->shape[axis];
    if (terms == 1) /* a device may take a reduction over one element for the element */
        return qb_reshape(graph, qb_abs(graph, a), rank, shape);
    qb_attribute attribute = qb_ints(count, axes);
    return qb_emit(graph, &qb_op_reduce_norm, 1, &a, &attribute);
}
