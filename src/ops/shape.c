/* Operations that move elements: all linear, most of them views (a device reads them through strides). */
#include "ops/build.h"

#include <string.h>

static int64_t product(int rank, const int64_t *shape)
{
    int64_t size = 1;
    for (int i = 0; i < rank; i++)
        size *= shape[i];
    return size;
}

/* The derivative of a linear op of one operand: itself, with the same attributes. */
static void unary_linear_jvp(qb_rule *r)
{
    r->result_tangent[0] = qb_emit(r->graph, r->op, 1, r->tangent, r->attribute);
}

/* Attributes of the operand with a batch axis in front: axes one up, and the axis itself first. */
static const int64_t *axes_with_batch(const qb_attribute *axes, int64_t *out)
{
    out[0] = 0;
    for (int i = 0; i < axes->count; i++)
        out[i + 1] = axes->integers[i] + 1;
    return out;
}

static const int64_t *extents_with(int64_t first, int count, const int64_t *extents, int64_t *out)
{
    out[0] = first;
    if (count > 0)
        memcpy(out + 1, extents, (size_t)count * sizeof *extents);
    return out;
}

/* Every view of one number repeated is that number repeated. */
static qb_value splat_simplify(qb_rule *r)
{
    qb_graph *g = r->graph;
    const qb_node *node = qb_node_of(g, r->operand[0]);
    qb_value scalar = node->op == &qb_op_broadcast ? qb_operand(g, node, 0) : r->operand[0];
    if (g->values[scalar].rank != 0)
        return QB_NONE;
    qb_type type;
    qb_value_type(g, r->operand[0], &type);
    qb_type result;
    qb_inference inference = {r->op, 1, &type, r->attribute, &result};
    if (r->op->infer(&inference) != QB_OK)
        return QB_NONE;
    return qb_broadcast_to(g, scalar, result.rank, result.shape);
}

#define VIEW(op_name, text, ...)                                                                                       \
    const qb_op qb_op_##op_name = {.name = #op_name,                                                                   \
                                   .summary = text,                                                                    \
                                   .arity = 1,                                                                         \
                                   .result_count = 1,                                                                  \
                                   .flags = QB_OP_LINEAR | QB_OP_VIEW,                                                 \
                                   .lane = QB_LANE_NONE,                                                               \
                                   .infer = op_name##_infer,                                                           \
                                   .jvp = unary_linear_jvp,                                                            \
                                   .transpose = op_name##_transpose,                                                   \
                                   .batch = op_name##_batch,                                                           \
                                   .simplify = splat_simplify,                                                         \
                                   __VA_ARGS__}

/* ---- reshape: the same elements in row-major order under another shape */

static qb_status reshape_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    const qb_attribute *shape = &in->attribute[0];
    int64_t size;
    QB_TRY(qb_shape_size(shape->count, shape->integers, qb_dtype_size(a->dtype), &size));
    if (size != product(a->rank, a->shape))
        return qb_fail(QB_ERROR_VALUE, "reshape: an array of shape %s has %lld elements and cannot become %s",
                       qb_print_shape(a->rank, a->shape).text, (long long)product(a->rank, a->shape),
                       qb_print_shape(shape->count, shape->integers).text);
    qb_type_set(in->result, a->dtype, shape->count, shape->integers);
    return QB_OK;
}

static void reshape_transpose(qb_rule *r)
{
    r->operand_cotangent[0] = qb_reshape(r->graph, r->cotangent[0], r->operand_type[0].rank, r->operand_type[0].shape);
}

static void reshape_batch(qb_rule *r)
{
    int64_t shape[QB_MAX_RANK + 1];
    const qb_attribute *old = &r->attribute[0];
    r->batched_result[0] = qb_reshape(r->graph, r->operand[0], old->count + 1,
                                      extents_with(r->batch_size, old->count, old->integers, shape));
}

VIEW(reshape, "The same elements under another shape", .attribute_count = 1, .attribute_name = {".shape"});

qb_value qb_reshape(qb_graph *graph, qb_value a, int rank, const int64_t *shape)
{
    if (a < 0)
        return a;
    const qb_node *node = qb_node_of(graph, a);
    if (node->op == &qb_op_reshape)
        a = qb_operand(graph, node, 0);
    const qb_value_info *info = &graph->values[a];
    if (qb_shape_equal(info->rank, info->shape, rank, shape))
        return a;
    qb_attribute attribute = qb_ints(rank, shape);
    return qb_emit(graph, &qb_op_reshape, 1, &a, &attribute);
}

/* ---- permute: result axis i is axis order[i] of the operand */

static qb_status permute_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    const qb_attribute *order = &in->attribute[0];
    bool seen[QB_MAX_RANK] = {false};
    bool valid = order->count == a->rank;
    qb_type_set(in->result, a->dtype, a->rank, a->shape);
    for (int i = 0; valid && i < a->rank; i++) {
        int64_t axis = order->integers[i];
        valid = axis >= 0 && axis < a->rank && !seen[axis];
        if (valid) {
            seen[axis] = true;
            in->result->shape[i] = a->shape[axis];
        }
    }
    if (!valid)
        return qb_fail(QB_ERROR_VALUE, "permute: %s is not an order of the axes of an array of shape %s",
                       qb_print_shape(order->count, order->integers).text, qb_print_shape(a->rank, a->shape).text);
    return QB_OK;
}

static void permute_transpose(qb_rule *r)
{
    int64_t inverse[QB_MAX_RANK];
    const qb_attribute *order = &r->attribute[0];
    for (int i = 0; i < order->count; i++)
        inverse[order->integers[i]] = i;
    r->operand_cotangent[0] = qb_permute(r->graph, r->cotangent[0], order->count, inverse);
}

static void permute_batch(qb_rule *r)
{
    int64_t order[QB_MAX_RANK + 1];
    r->batched_result[0] =
        qb_permute(r->graph, r->operand[0], r->attribute[0].count + 1, axes_with_batch(&r->attribute[0], order));
}

VIEW(permute, "Axes in another order", .attribute_count = 1, .attribute_name = {"order"});

qb_value qb_permute(qb_graph *graph, qb_value a, int rank, const int64_t *order)
{
    if (a < 0)
        return a;
    int64_t composed[QB_MAX_RANK];
    const qb_node *node = qb_node_of(graph, a);
    if (node->op == &qb_op_permute && rank == node->attributes[0].count) {
        for (int i = 0; i < rank; i++)
            composed[i] = node->attributes[0].integers[order[i]];
        order = composed;
        a = qb_operand(graph, node, 0);
    }
    bool identity = true;
    for (int i = 0; i < rank; i++)
        identity = identity && order[i] == i;
    if (identity && rank == graph->values[a].rank)
        return a;
    qb_attribute attribute = qb_ints(rank, order);
    return qb_emit(graph, &qb_op_permute, 1, &a, &attribute);
}

/* ---- broadcast: operand axis i becomes result axis axes[i]; extents of 1 are repeated, other axes are new */

static qb_status broadcast_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    const qb_attribute *shape = &in->attribute[0], *axes = &in->attribute[1];
    int64_t size;
    QB_TRY(qb_shape_size(shape->count, shape->integers, qb_dtype_size(a->dtype), &size));
    bool valid = axes->count == a->rank;
    for (int i = 0; valid && i < a->rank; i++) {
        int64_t axis = axes->integers[i];
        valid = axis >= 0 && axis < shape->count && (i == 0 || axis > axes->integers[i - 1]) &&
                (a->shape[i] == 1 || a->shape[i] == shape->integers[axis]);
    }
    if (!valid)
        return qb_fail(QB_ERROR_VALUE, "broadcast: an array of shape %s does not broadcast to %s",
                       qb_print_shape(a->rank, a->shape).text, qb_print_shape(shape->count, shape->integers).text);
    qb_type_set(in->result, a->dtype, shape->count, shape->integers);
    return QB_OK;
}

/* The sum over all axes that were new or repeated. */
static void broadcast_transpose(qb_rule *r)
{
    const qb_attribute *shape = &r->attribute[0], *axes = &r->attribute[1];
    const qb_type *type = &r->operand_type[0];
    int64_t summed[QB_MAX_RANK];
    int count = 0;
    for (int axis = 0, next = 0; axis < shape->count; axis++) {
        bool kept = next < axes->count && axes->integers[next] == axis;
        if (!kept || (type->shape[next] == 1 && shape->integers[axis] != 1))
            summed[count++] = axis;
        next += kept;
    }
    qb_value sum = qb_reduce_sum(r->graph, r->cotangent[0], count, summed);
    r->operand_cotangent[0] = qb_reshape(r->graph, sum, type->rank, type->shape);
}

static void broadcast_batch(qb_rule *r)
{
    int64_t shape[QB_MAX_RANK + 1], axes[QB_MAX_RANK + 1];
    const qb_attribute *old = &r->attribute[0];
    r->batched_result[0] = qb_broadcast(r->graph, r->operand[0], old->count + 1,
                                        extents_with(r->batch_size, old->count, old->integers, shape),
                                        axes_with_batch(&r->attribute[1], axes));
}

VIEW(broadcast, "Repeated along new axes, or axes of extent 1", .attribute_count = 2,
     .attribute_name = {".shape", "axes"});

qb_value qb_broadcast(qb_graph *graph, qb_value a, int rank, const int64_t *shape, const int64_t *axes)
{
    if (a < 0)
        return a;
    const qb_value_info *info = &graph->values[a];
    if (qb_shape_equal(info->rank, info->shape, rank, shape))
        return a;
    int64_t composed[QB_MAX_RANK];
    const qb_node *node = qb_node_of(graph, a);
    int operand_rank = info->rank;
    if (node->op == &qb_op_broadcast) { /* one broadcast of the inner operand */
        const qb_attribute *inner = &node->attributes[1];
        for (int i = 0; i < inner->count; i++)
            composed[i] = axes[inner->integers[i]];
        axes = composed;
        operand_rank = inner->count;
        a = qb_operand(graph, node, 0);
    }
    qb_attribute attributes[] = {qb_ints(rank, shape), qb_ints(operand_rank, axes)};
    return qb_emit(graph, &qb_op_broadcast, 1, &a, attributes);
}

qb_value qb_broadcast_to(qb_graph *graph, qb_value a, int rank, const int64_t *shape)
{
    if (a < 0)
        return a;
    const qb_value_info *info = &graph->values[a];
    if (info->rank > rank)
        return qb_graph_fail(graph,
                             qb_fail(QB_ERROR_VALUE, "broadcast_to: an array of shape %s does not broadcast to %s",
                                     qb_print_shape(info->rank, info->shape).text, qb_print_shape(rank, shape).text));
    int64_t axes[QB_MAX_RANK];
    for (int i = 0; i < info->rank; i++)
        axes[i] = rank - info->rank + i;
    return qb_broadcast(graph, a, rank, shape, axes);
}

qb_value qb_broadcast_leading(qb_graph *graph, qb_value a, int64_t extent)
{
    if (a < 0)
        return a;
    const qb_value_info *info = &graph->values[a];
    int64_t shape[QB_MAX_RANK + 1];
    if (info->rank == QB_MAX_RANK)
        return qb_graph_fail(graph,
                             qb_fail(QB_ERROR_VALUE, "vmap: an array of rank %d gets one more axis; ranks go to %d",
                                     info->rank, QB_MAX_RANK));
    return qb_broadcast_to(graph, a, info->rank + 1, extents_with(extent, info->rank, info->shape, shape));
}

/* ---- slice: start, start + step, ... below limit, per axis; steps are positive */

static qb_status slice_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    const qb_attribute *start = &in->attribute[0], *limit = &in->attribute[1], *step = &in->attribute[2];
    qb_type_set(in->result, a->dtype, a->rank, a->shape);
    bool valid = start->count == a->rank && limit->count == a->rank && step->count == a->rank;
    for (int i = 0; valid && i < a->rank; i++) {
        int64_t first = start->integers[i], last = limit->integers[i], stride = step->integers[i];
        valid = first >= 0 && first <= last && last <= a->shape[i] && stride >= 1;
        if (valid)
            in->result->shape[i] = (last - first + stride - 1) / stride;
    }
    if (!valid)
        return qb_fail(QB_ERROR_VALUE, "slice: start %s, limit %s, step %s do not fit an array of shape %s",
                       qb_print_shape(start->count, start->integers).text,
                       qb_print_shape(limit->count, limit->integers).text,
                       qb_print_shape(step->count, step->integers).text, qb_print_shape(a->rank, a->shape).text);
    return QB_OK;
}

static void slice_transpose(qb_rule *r)
{
    const qb_type *type = &r->operand_type[0];
    int64_t low[QB_MAX_RANK], high[QB_MAX_RANK], interior[QB_MAX_RANK];
    for (int i = 0; i < type->rank; i++) {
        int64_t first = r->attribute[0].integers[i], last = r->attribute[1].integers[i];
        int64_t stride = r->attribute[2].integers[i], count = (last - first + stride - 1) / stride;
        low[i] = first;
        interior[i] = stride - 1;
        high[i] = type->shape[i] - first - (count > 0 ? (count - 1) * stride + 1 : 0);
    }
    r->operand_cotangent[0] = qb_pad(r->graph, r->cotangent[0], low, high, interior);
}

static void slice_batch(qb_rule *r)
{
    int64_t start[QB_MAX_RANK + 1], limit[QB_MAX_RANK + 1], step[QB_MAX_RANK + 1];
    int count = r->attribute[0].count;
    r->batched_result[0] = qb_slice(r->graph, r->operand[0], extents_with(0, count, r->attribute[0].integers, start),
                                    extents_with(r->batch_size, count, r->attribute[1].integers, limit),
                                    extents_with(1, count, r->attribute[2].integers, step));
}

VIEW(slice, "A regular part of the array", .attribute_count = 3, .attribute_name = {"start", "limit", "step"});

qb_value qb_slice(qb_graph *graph, qb_value a, const int64_t *start, const int64_t *limit, const int64_t *step)
{
    if (a < 0)
        return a;
    const qb_value_info *info = &graph->values[a];
    bool whole = true;
    for (int i = 0; i < info->rank; i++)
        whole = whole && start[i] == 0 && limit[i] == info->shape[i] && step[i] == 1;
    if (whole)
        return a;
    qb_attribute attributes[] = {qb_ints(info->rank, start), qb_ints(info->rank, limit), qb_ints(info->rank, step)};
    return qb_emit(graph, &qb_op_slice, 1, &a, attributes);
}

/* ---- reverse: back to front along some axes */

static qb_status reverse_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    const qb_attribute *axes = &in->attribute[0];
    for (int i = 0; i < axes->count; i++)
        if (axes->integers[i] < 0 || axes->integers[i] >= a->rank ||
            (i > 0 && axes->integers[i] <= axes->integers[i - 1]))
            return qb_fail(QB_ERROR_VALUE, "reverse: axes %s are not distinct ascending axes of an array of shape %s",
                           qb_print_shape(axes->count, axes->integers).text, qb_print_shape(a->rank, a->shape).text);
    *in->result = *a;
    return QB_OK;
}

static void reverse_transpose(qb_rule *r)
{
    r->operand_cotangent[0] = qb_reverse(r->graph, r->cotangent[0], r->attribute[0].count, r->attribute[0].integers);
}

static void reverse_batch(qb_rule *r)
{
    int64_t axes[QB_MAX_RANK + 1];
    (void)axes_with_batch(&r->attribute[0], axes);
    r->batched_result[0] = qb_reverse(r->graph, r->operand[0], r->attribute[0].count, axes + 1);
}

VIEW(reverse, "Back to front along some axes", .attribute_count = 1, .attribute_name = {"axes"});

/* Ascending axes that stand in one of two ascending lists only. */
static int unpaired_axes(int count, const int64_t *axes, const qb_attribute *others, int64_t *out)
{
    int found = 0, i = 0, j = 0;
    while (i < count || j < others->count) {
        if (j == others->count || (i < count && axes[i] < others->integers[j]))
            out[found++] = axes[i++];
        else if (i == count || others->integers[j] < axes[i])
            out[found++] = others->integers[j++];
        else
            i++, j++;
    }
    return found;
}

qb_value qb_reverse(qb_graph *graph, qb_value a, int count, const int64_t *axes)
{
    int64_t both[QB_MAX_RANK];
    if (a >= 0 && count > 0 && qb_node_of(graph, a)->op == &qb_op_reverse) {
        const qb_node *inner = qb_node_of(graph, a);
        count = unpaired_axes(count, axes, &inner->attributes[0], both);
        axes = both;
        a = qb_operand(graph, inner, 0);
    }
    if (count == 0)
        return a;
    qb_attribute attribute = qb_ints(count, axes);
    return qb_emit(graph, &qb_op_reverse, 1, &a, &attribute);
}

/* ---- pad: zeros around (negative: cut) and between neighbours */

static int64_t padded_extent(int64_t extent, int64_t low, int64_t high, int64_t interior)
{
    return low + high + extent + (extent > 0 ? (extent - 1) * interior : 0);
}

static qb_status pad_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    const qb_attribute *low = &in->attribute[0], *high = &in->attribute[1], *interior = &in->attribute[2];
    qb_type_set(in->result, a->dtype, a->rank, a->shape);
    bool valid = low->count == a->rank && high->count == a->rank && interior->count == a->rank;
    for (int i = 0; valid && i < a->rank; i++) {
        valid = interior->integers[i] >= 0;
        in->result->shape[i] = padded_extent(a->shape[i], low->integers[i], high->integers[i], interior->integers[i]);
        valid = valid && in->result->shape[i] >= 0;
    }
    if (!valid)
        return qb_fail(QB_ERROR_VALUE, "pad: widths (low %s, high %s, interior %s) do not fit an array of shape %s",
                       qb_print_shape(low->count, low->integers).text, qb_print_shape(high->count, high->integers).text,
                       qb_print_shape(interior->count, interior->integers).text,
                       qb_print_shape(a->rank, a->shape).text);
    int64_t size;
    return qb_shape_size(in->result->rank, in->result->shape, qb_dtype_size(a->dtype), &size);
}

/* Undo the padding: negative widths first become zeros, then the kept elements are sliced out. */
static void pad_transpose(qb_rule *r)
{
    const qb_type *type = &r->operand_type[0];
    int64_t low[QB_MAX_RANK], high[QB_MAX_RANK], none[QB_MAX_RANK] = {0};
    int64_t start[QB_MAX_RANK], limit[QB_MAX_RANK], step[QB_MAX_RANK];
    for (int i = 0; i < type->rank; i++) {
        int64_t before = r->attribute[0].integers[i], after = r->attribute[1].integers[i];
        low[i] = before < 0 ? -before : 0;
        high[i] = after < 0 ? -after : 0;
        step[i] = r->attribute[2].integers[i] + 1;
        start[i] = before < 0 ? 0 : before;
        limit[i] = start[i] + (type->shape[i] > 0 ? (type->shape[i] - 1) * step[i] + 1 : 0);
    }
    qb_value whole = qb_pad(r->graph, r->cotangent[0], low, high, none);
    r->operand_cotangent[0] = qb_slice(r->graph, whole, start, limit, step);
}

static void pad_batch(qb_rule *r)
{
    int64_t low[QB_MAX_RANK + 1], high[QB_MAX_RANK + 1], interior[QB_MAX_RANK + 1];
    int count = r->attribute[0].count;
    r->batched_result[0] = qb_pad(r->graph, r->operand[0], extents_with(0, count, r->attribute[0].integers, low),
                                  extents_with(0, count, r->attribute[1].integers, high),
                                  extents_with(0, count, r->attribute[2].integers, interior));
}

/* Copies the elements of axis `axis` of the operand, at `source`, to their places in the result, at `target`. */
static void pad_axis(const qb_attribute *attribute, const qb_type *from, const qb_type *to, int axis,
                     const char *source, char *target)
{
    size_t size = qb_dtype_size(from->dtype);
    if (axis == from->rank) {
        memcpy(target, source, size);
        return;
    }
    int64_t source_step = (int64_t)size, target_step = (int64_t)size;
    for (int i = axis + 1; i < from->rank; i++) {
        source_step *= from->shape[i];
        target_step *= to->shape[i];
    }
    int64_t low = attribute[0].integers[axis], stride = attribute[2].integers[axis] + 1;
    if (axis == from->rank - 1 && stride == 1) { /* a run of neighbours */
        int64_t first = low < 0 ? -low : 0;
        int64_t last = from->shape[axis] < to->shape[axis] - low ? from->shape[axis] : to->shape[axis] - low;
        if (last > first)
            memcpy(target + (first + low) * target_step, source + first * source_step, (size_t)(last - first) * size);
        return;
    }
    for (int64_t k = 0; k < from->shape[axis]; k++) {
        int64_t place = low + k * stride;
        if (place >= 0 && place < to->shape[axis])
            pad_axis(attribute, from, to, axis + 1, source + k * source_step, target + place * target_step);
    }
}

static void pad_cpu(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                    const void *const *operand, const qb_type *result_type, void *const *result)
{
    (void)operand_count;
    size_t bytes = (size_t)product(result_type->rank, result_type->shape) * qb_dtype_size(result_type->dtype);
    memset(result[0], 0, bytes);
    if (product(operand_type->rank, operand_type->shape) > 0 && bytes > 0)
        pad_axis(attribute, operand_type, result_type, 0, operand[0], result[0]);
}

const qb_op qb_op_pad = {.name = "pad",
                         .summary = "Zeros around and between the elements",
                         .arity = 1,
                         .result_count = 1,
                         .flags = QB_OP_LINEAR | QB_OP_MOVES,
                         .attribute_count = 3,
                         .attribute_name = {"low", "high", "interior"},
                         .lane = QB_LANE_NONE,
                         .infer = pad_infer,
                         .jvp = unary_linear_jvp,
                         .transpose = pad_transpose,
                         .batch = pad_batch,
                         .cpu = pad_cpu};

qb_value qb_pad(qb_graph *graph, qb_value a, const int64_t *low, const int64_t *high, const int64_t *interior)
{
    if (a < 0)
        return a;
    int rank = graph->values[a].rank;
    bool nothing = true;
    for (int i = 0; i < rank; i++)
        nothing = nothing && low[i] == 0 && high[i] == 0 && interior[i] == 0;
    if (nothing)
        return a;
    qb_attribute attributes[] = {qb_ints(rank, low), qb_ints(rank, high), qb_ints(rank, interior)};
    return qb_emit(graph, &qb_op_pad, 1, &a, attributes);
}

/* ---- concat: one behind the other along an axis */

static qb_status concat_infer(const qb_inference *in)
{
    const qb_type *first = &in->operand[0];
    int64_t axis = in->attribute[0].integer;
    if (in->operand_count == 0)
        return qb_fail(QB_ERROR_VALUE, "concat: needs at least one array");
    if (axis < 0 || axis >= first->rank)
        return qb_fail(QB_ERROR_VALUE, "concat: axis %lld is out of range for an array of shape %s", (long long)axis,
                       qb_print_shape(first->rank, first->shape).text);
    qb_type_set(in->result, first->dtype, first->rank, first->shape);
    for (int k = 1; k < in->operand_count; k++) {
        const qb_type *a = &in->operand[k];
        bool fits = a->dtype == first->dtype && a->rank == first->rank;
        for (int i = 0; fits && i < a->rank; i++)
            fits = i == axis || a->shape[i] == first->shape[i];
        if (!fits)
            return qb_fail(QB_ERROR_VALUE, "concat: array %d is %s, which does not fit %s along axis %lld", k,
                           qb_print_type(a->dtype, a->rank, a->shape).text,
                           qb_print_type(first->dtype, first->rank, first->shape).text, (long long)axis);
        in->result->shape[axis] += a->shape[axis];
    }
    int64_t size;
    return qb_shape_size(in->result->rank, in->result->shape, qb_dtype_size(first->dtype), &size);
}

static void concat_jvp(qb_rule *r)
{
    qb_value *tangents = qb_graph_allocate(r->graph, (size_t)r->operand_count * sizeof *tangents);
    if (!tangents)
        return;
    for (int i = 0; i < r->operand_count; i++)
        tangents[i] = r->tangent[i] != QB_NONE ? r->tangent[i] : qb_splat_like(r->graph, r->operand[i], 0);
    r->result_tangent[0] = qb_emit(r->graph, r->op, r->operand_count, tangents, r->attribute);
}

static void concat_transpose(qb_rule *r)
{
    int axis = (int)r->attribute[0].integer;
    qb_type whole;
    qb_value_type(r->graph, r->cotangent[0], &whole);
    int64_t start[QB_MAX_RANK] = {0}, step[QB_MAX_RANK];
    for (int i = 0; i < whole.rank; i++)
        step[i] = 1;
    for (int k = 0; k < r->operand_count; k++) {
        whole.shape[axis] = start[axis] + r->operand_type[k].shape[axis];
        if (r->linear[k])
            r->operand_cotangent[k] = qb_slice(r->graph, r->cotangent[0], start, whole.shape, step);
        start[axis] = whole.shape[axis];
    }
}

static void concat_batch(qb_rule *r)
{
    qb_value *operands = qb_graph_allocate(r->graph, (size_t)r->operand_count * sizeof *operands);
    if (!operands)
        return;
    for (int k = 0; k < r->operand_count; k++)
        operands[k] = r->mapped[k] ? r->operand[k] : qb_broadcast_leading(r->graph, r->operand[k], r->batch_size);
    r->batched_result[0] = qb_concat(r->graph, r->operand_count, operands, (int)r->attribute[0].integer + 1);
}

static void concat_cpu(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                       const void *const *operand, const qb_type *result_type, void *const *result)
{
    int axis = (int)attribute[0].integer;
    int64_t outer = product(axis, result_type->shape);
    size_t inner = (size_t)product(result_type->rank - axis - 1, result_type->shape + axis + 1) *
                   qb_dtype_size(result_type->dtype);
    size_t row = (size_t)result_type->shape[axis] * inner;
    size_t place = 0;
    for (int k = 0; k < operand_count; k++) {
        size_t bytes = (size_t)operand_type[k].shape[axis] * inner;
        for (int64_t o = 0; bytes > 0 && o < outer; o++)
            memcpy((char *)result[0] + (size_t)o * row + place, (const char *)operand[k] + (size_t)o * bytes, bytes);
        place += bytes;
    }
}

const qb_op qb_op_concat = {.name = "concat",
                            .summary = "Arrays one behind the other along an axis",
                            .arity = -1,
                            .result_count = 1,
                            .flags = QB_OP_LINEAR | QB_OP_MOVES,
                            .attribute_count = 1,
                            .attribute_name = {"axis"},
                            .lane = QB_LANE_NONE,
                            .infer = concat_infer,
                            .jvp = concat_jvp,
                            .transpose = concat_transpose,
                            .batch = concat_batch,
                            .cpu = concat_cpu};

qb_value qb_concat(qb_graph *graph, int count, const qb_value *operands, int axis)
{
    if (count == 1)
        return operands[0];
    qb_attribute attribute = qb_int(axis);
    return qb_emit(graph, &qb_op_concat, count, operands, &attribute);
}
