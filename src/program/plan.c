/* Reading the graph: every live node becomes a plan value, views are composed, reductions split, products laid out. */
#include "program/plan.h"

#include "base/allocate.h"
#include "program/region.h"

void *qb_plan_scratch(qb_plan *plan, size_t count, size_t size)
{
    return qb_arena_allocate(&plan->scratch, count * size);
}

void *qb_plan_scratch_zeroed(qb_plan *plan, size_t count, size_t size)
{
    void *memory = qb_plan_scratch(plan, count, size);
    return memory ? memset(memory, 0, count * size) : NULL;
}

/* ---- Values */

/* Operands may be given by the caller afterwards in plan->operands. NULL when memory is out. */
static qb_plan_value *add_value(qb_plan *plan, qb_role role, qb_dtype dtype, int64_t count, int operand_count)
{
    if (!QB_GROW(plan->values, plan->value_count, plan->value_capacity, 1) ||
        !QB_GROW(plan->operands, plan->operand_count, plan->operand_capacity, operand_count))
        return NULL;
    qb_plan_value *value = &plan->values[plan->value_count];
    *value = (qb_plan_value){.role = (uint8_t)role,
                             .dtype = (uint8_t)dtype,
                             .operand = plan->operand_count,
                             .operand_count = operand_count,
                             .root = plan->value_count,
                             .level = -1,
                             .step = -1,
                             .last_step = -1,
                             .slot = -1,
                             .output = -1,
                             .home = -1,
                             .copy = -1,
                             .count = count};
    plan->value_count++;
    plan->operand_count += operand_count;
    return value;
}

static int32_t last_value(const qb_plan *plan)
{
    return plan->value_count - 1;
}

/* How plan value `id`, which stands for a graph value of this shape, lies in its root; NULL when memory is out. */
static const qb_view *view_of(qb_plan *plan, int32_t id, int rank, const int64_t *shape)
{
    const qb_plan_value *value = &plan->values[id];
    return value->role == QB_ROLE_VIEW ? value->view : qb_view_whole(&plan->scratch, rank, shape);
}

/* What `view` sees of the value `id`, as a contiguous copy: that of the value, which is made once, where it is the
 * value's own view. */
static qb_status materialize(qb_plan *plan, int32_t id, const qb_view *view, int32_t *out)
{
    qb_plan_value source = plan->values[id];
    if (source.role == QB_ROLE_VIEW && source.copy >= 0 && view == source.view) {
        *out = source.copy;
        return QB_OK;
    }
    qb_plan_value *copy = add_value(plan, QB_ROLE_COPY, source.dtype, source.count, 1);
    if (!copy)
        return qb_fail_memory();
    plan->operands[copy->operand] = source.root;
    copy->view = view;
    *out = last_value(plan);
    if (source.role == QB_ROLE_VIEW && view == source.view)
        plan->values[id].copy = *out;
    return QB_OK;
}

/* As view_of, with the axes of the shape: a view that lost them is copied first, and `id` becomes the copy. */
static qb_status shaped_view(qb_plan *plan, int32_t *id, int rank, const int64_t *shape, const qb_view **out)
{
    const qb_plan_value *value = &plan->values[*id];
    if (value->role == QB_ROLE_VIEW && !value->view->shaped)
        QB_TRY(materialize(plan, *id, value->view, id));
    *out = view_of(plan, *id, rank, shape);
    return *out ? QB_OK : qb_fail_memory();
}

/* ---- Nodes */

static int32_t operand_value(const qb_plan *plan, const qb_node *node, int index)
{
    return plan->map[qb_operand(plan->graph, node, index)];
}

static const qb_value_info *operand_info(const qb_plan *plan, const qb_node *node, int index)
{
    return &plan->graph->values[qb_operand(plan->graph, node, index)];
}

static qb_status read_leaf(qb_plan *plan, const qb_node *node)
{
    bool is_input = node->op == &qb_op_input;
    qb_plan_value *value =
        add_value(plan, is_input ? QB_ROLE_INPUT : QB_ROLE_CONSTANT, plan->graph->values[node->result].dtype,
                  qb_value_size(plan->graph, node->result), 0);
    if (!value)
        return qb_fail_memory();
    value->node = node;
    value->stored = true;
    if (is_input)
        value->input = (int32_t)node->attributes[0].integer;
    else
        value->constant = node->attributes[0].tensor;
    plan->map[node->result] = last_value(plan);
    return QB_OK;
}

/* Whether the value is a product's, in whatever shape, and has one reader. */
static bool is_product_read_once(const qb_plan *plan, qb_value value)
{
    const qb_node *node = qb_node_of(plan->graph, value);
    while (plan->use_count[value] == 1 && (node->op == &qb_op_reshape || node->op == &qb_op_permute)) {
        value = qb_operand(plan->graph, node, 0);
        node = qb_node_of(plan->graph, value);
    }
    return plan->use_count[value] == 1 && node->op == &qb_op_dot;
}

/* Whether `addend` can be added to the product `id`, which `add` reads as this operand, while that is computed.
 * Where the addend would not be in memory anyway, the kernel that computes it may as well add. */
static bool can_add_to(const qb_plan *plan, const qb_node *add, int operand, int32_t id, int32_t addend)
{
    const qb_plan_value *dot = &plan->values[id], *other = &plan->values[addend];
    return addend < id && dot->role == QB_ROLE_DOT && dot->operand_count == 2 && other->role != QB_ROLE_VIEW &&
           !qb_plan_in_kernel(other) && other->count == dot->count &&
           is_product_read_once(plan, qb_operand(plan->graph, add, operand)) && qb_product_adds(dot->dot);
}

/* A sum of products, or of a product and what was summed up before (a carry), is computed by adding to it. */
static qb_status add_to_dot(qb_plan *plan, int32_t id, int32_t addend)
{
    if (!QB_GROW(plan->operands, plan->operand_count, plan->operand_capacity, 3))
        return qb_fail_memory();
    qb_plan_value *value = &plan->values[id];
    int32_t *operands = plan->operands + plan->operand_count;
    operands[0] = plan->operands[value->operand];
    operands[1] = plan->operands[value->operand + 1];
    operands[2] = addend;
    value->operand = plan->operand_count;
    value->operand_count = 3;
    value->node = NULL; /* it is no longer that node's value */
    plan->operand_count += 3;
    return QB_OK;
}

static qb_status read_lane(qb_plan *plan, const qb_node *node)
{
    if (node->op->lane == QB_LANE_NONE) { /* stop_gradient: means nothing to a device */
        plan->map[node->result] = operand_value(plan, node, 0);
        return QB_OK;
    }
    for (int i = 0; node->op->lane == QB_LANE_add && i < 2; i++) {
        int32_t id = operand_value(plan, node, i), addend = operand_value(plan, node, 1 - i);
        if (can_add_to(plan, node, i, id, addend)) {
            plan->map[node->result] = id;
            return add_to_dot(plan, id, addend);
        }
    }
    qb_plan_value *value = add_value(plan, QB_ROLE_LANE, plan->graph->values[node->result].dtype,
                                     qb_value_size(plan->graph, node->result), node->operand_count);
    if (!value)
        return qb_fail_memory();
    value->node = node;
    value->lane = node->op->lane;
    for (int i = 0; i < node->operand_count; i++)
        plan->operands[value->operand + i] = operand_value(plan, node, i);
    plan->map[node->result] = last_value(plan);
    return QB_OK;
}

/* `root` seen through `view` (NULL: memory is out), which has `count` elements: the root itself where it sees all of it
 * in order. */
static qb_status add_view(qb_plan *plan, int32_t root, const qb_view *view, int64_t count, int32_t *out)
{
    if (!view)
        return qb_fail_memory();
    *out = root;
    if (count == plan->values[root].count && view->offset == 0 && view->shaped && qb_view_is_contiguous(view))
        return QB_OK;
    qb_plan_value *value = add_value(plan, QB_ROLE_VIEW, plan->values[root].dtype, count, 0);
    if (!value)
        return qb_fail_memory();
    value->root = root;
    value->view = view;
    *out = last_value(plan);
    return QB_OK;
}

/* A product whose only reader permutes it to (batch, free axes of b, free axes of a) is computed so. */
static bool flip_dot(qb_plan *plan, const qb_node *permute, int32_t id)
{
    qb_plan_value *value = &plan->values[id];
    const qb_attribute *order = &permute->attributes[0];
    if (value->role != QB_ROLE_DOT || plan->use_count[qb_operand(plan->graph, permute, 0)] != 1 ||
        value->node != qb_node_of(plan->graph, qb_operand(plan->graph, permute, 0)))
        return false;
    const qb_attribute *attribute = value->node->attributes;
    int batch = attribute[2].count;
    int free_a = operand_info(plan, value->node, 0)->rank - batch - attribute[0].count,
        free_b = order->count - batch - free_a;
    for (int i = 0; i < batch; i++)
        if (order->integers[i] != i)
            return false;
    for (int i = 0; i < free_b; i++)
        if (order->integers[batch + i] != batch + free_a + i)
            return false;
    for (int i = 0; i < free_a; i++)
        if (order->integers[batch + free_b + i] != batch + i)
            return false;
    qb_product *dot = value->dot, old = *dot;
    qb_product_shape s = old.shape;
    dot->shape =
        (qb_product_shape){.m = s.n, .n = s.m, .k = s.k, .a_m = s.b_n, .a_k = s.b_k, .b_k = s.a_k, .b_n = s.a_m};
    dot->a_batch = old.b_batch, dot->b_batch = old.a_batch;
    dot->a_offset = old.b_offset, dot->b_offset = old.a_offset;
    int32_t *operands = plan->operands + value->operand, first = operands[0];
    operands[0] = operands[1];
    operands[1] = first;
    value->node = NULL; /* its axes are no longer those of the node */
    return true;
}

static qb_status read_view(qb_plan *plan, const qb_node *node)
{
    int32_t id = operand_value(plan, node, 0);
    if ((node->op == &qb_op_permute && flip_dot(plan, node, id)) ||
        (node->op == &qb_op_reshape && plan->values[id].role != QB_ROLE_VIEW)) {
        plan->map[node->result] = id;
        return QB_OK;
    }
    const qb_value_info *info = operand_info(plan, node, 0);
    const qb_view *view;
    QB_TRY(shaped_view(plan, &id, info->rank, info->shape, &view));
    return add_view(plan, plan->values[id].root, qb_view_compose(&plan->scratch, view, node),
                    qb_value_size(plan->graph, node->result), &plan->map[node->result]);
}

/* ---- Reductions: one group of neighbouring axes at a time, the last group first */

static qb_status add_reduction(qb_plan *plan, const qb_node *node, const qb_reduction_split *split, int32_t *id)
{
    qb_reduction_split *kept = qb_plan_scratch(plan, 1, sizeof *kept);
    qb_plan_value *value =
        kept ? add_value(plan, QB_ROLE_REDUCE, plan->values[*id].dtype, split->outer * split->inner, 1) : NULL;
    if (!value)
        return qb_fail_memory();
    *kept = *split;
    value->split = kept;
    value->node = node;
    value->stored = value->anchored = true;
    plan->operands[value->operand] = *id;
    *id = last_value(plan);
    return QB_OK;
}

static qb_status read_reduction(qb_plan *plan, const qb_node *node)
{
    const qb_value_info *info = operand_info(plan, node, 0);
    int32_t id = operand_value(plan, node, 0);
    bool reduced[QB_MAX_RANK] = {false};
    for (int i = 0; i < node->attributes[0].count; i++)
        reduced[node->attributes[0].integers[i]] = true;
    int64_t inner = 1;
    for (int axis = info->rank - 1; axis >= 0;) {
        int64_t extent = 1, outer = 1;
        for (; axis >= 0 && !reduced[axis]; axis--)
            inner *= info->shape[axis];
        for (; axis >= 0 && (reduced[axis] || info->shape[axis] == 1); axis--)
            extent *= info->shape[axis];
        for (int i = 0; i <= axis; i++)
            outer *= info->shape[i];
        if (extent != 1) {
            qb_reduction_split split = {node->op->reduction, outer, extent, inner};
            QB_TRY(add_reduction(plan, node, &split, &id));
        }
    }
    if (plan->values[id].role == QB_ROLE_VIEW) { /* all extents were 1: a reshape */
        const qb_value_info *result = &plan->graph->values[node->result];
        return add_view(plan, plan->values[id].root,
                        qb_view_reshape(&plan->scratch, plan->values[id].view, result->rank, result->shape),
                        plan->values[id].count, &plan->map[node->result]);
    }
    plan->map[node->result] = id;
    return QB_OK;
}

/* ---- Products */

typedef struct factor {
    int32_t id;
    const qb_view *view;
    int rank;
    int batch_count, contract_count, free_count;
    const int64_t *batch, *contract;
    int64_t free[QB_MAX_RANK];
    int64_t extent, stride, contract_extent, contract_stride; /* merged: free axes, contracted axes */
} factor;

static void read_roles(factor *f, const qb_attribute *attribute, int operand, int rank)
{
    bool used[QB_MAX_RANK] = {false};
    f->rank = rank;
    f->contract_count = attribute[operand].count;
    f->contract = attribute[operand].integers;
    f->batch_count = attribute[2 + operand].count;
    f->batch = attribute[2 + operand].integers;
    f->free_count = 0;
    for (int i = 0; i < f->contract_count; i++)
        used[f->contract[i]] = true;
    for (int i = 0; i < f->batch_count; i++)
        used[f->batch[i]] = true;
    for (int i = 0; i < rank; i++)
        if (!used[i])
            f->free[f->free_count++] = i;
}

static bool merge_axes(const qb_plan *plan, factor *f, bool is_left)
{
    qb_dtype dtype = (qb_dtype)plan->values[f->id].dtype;
    if (!qb_view_merge(f->view, f->free_count, f->free, &f->extent, &f->stride) ||
        !qb_view_merge(f->view, f->contract_count, f->contract, &f->contract_extent, &f->contract_stride))
        return false;
    return is_left ? qb_product_accepts(dtype, f->extent, f->contract_extent, f->stride, f->contract_stride)
                   : qb_product_accepts(dtype, f->contract_extent, f->extent, f->contract_stride, f->stride);
}

/* A factor that cannot be read as it lies is copied to the order (batch, free, contracted). */
static qb_status pack(qb_plan *plan, factor *f)
{
    int64_t order[QB_MAX_RANK];
    int count = 0;
    for (int i = 0; i < f->batch_count; i++)
        order[count++] = f->batch[i];
    for (int i = 0; i < f->free_count; i++)
        order[count++] = f->free[i];
    for (int i = 0; i < f->contract_count; i++)
        order[count++] = f->contract[i];
    const qb_view *view = qb_view_pick(&plan->scratch, f->view, count, order);
    if (!view)
        return qb_fail_memory();
    QB_TRY(materialize(plan, f->id, view, &f->id));
    qb_view *whole = qb_view_whole(&plan->scratch, count, view->extent), *back = NULL;
    int64_t inverse[QB_MAX_RANK];
    for (int i = 0; i < count; i++)
        inverse[order[i]] = i;
    if (!whole || !(back = qb_view_pick(&plan->scratch, whole, count, inverse)))
        return qb_fail_memory();
    f->view = back;
    return QB_OK;
}

static qb_status add_batch(qb_plan *plan, qb_product *dot, const factor *a, const factor *b)
{
    int rank = a->batch_count;
    int64_t *axes = qb_arena_allocate(plan->memory, 3 * (size_t)rank * sizeof *axes);
    if (!axes)
        return qb_fail_memory();
    int kept = 0;
    dot->batch_count = 1;
    for (int i = 0; i < rank; i++) {
        int64_t extent = a->view->extent[a->batch[i]];
        dot->batch_count *= extent;
        if (extent == 1)
            continue;
        axes[kept] = extent;
        axes[rank + kept] = a->view->stride[a->batch[i]];
        axes[2 * rank + kept++] = b->view->stride[b->batch[i]];
    }
    dot->batch_rank = kept;
    dot->batch = axes;
    dot->a_batch = axes + rank;
    dot->b_batch = axes + 2 * rank;
    return QB_OK;
}

static qb_status read_factor(qb_plan *plan, const qb_node *node, int operand, factor *f)
{
    const qb_value_info *info = operand_info(plan, node, operand);
    f->id = operand_value(plan, node, operand);
    read_roles(f, node->attributes, operand, info->rank);
    return shaped_view(plan, &f->id, info->rank, info->shape, &f->view);
}

static qb_status lay_out_factor(qb_plan *plan, factor *f, bool is_left)
{
    if (merge_axes(plan, f, is_left))
        return QB_OK;
    QB_TRY(pack(plan, f));
    return merge_axes(plan, f, is_left) ? QB_OK : qb_fail(QB_ERROR_INTERNAL, "dot: a packed factor has no strides");
}

static int64_t extent_of(const factor *f, int count, const int64_t *axes)
{
    int64_t extent = 1;
    for (int i = 0; i < count; i++)
        extent *= f->view->extent[axes[i]];
    return extent;
}

/* The factor's axes, and where the other one has free axes, repetition: the axes of the product before it is summed. */
static qb_status spread_factor(qb_plan *plan, const factor *f, const factor *other, bool is_left, int32_t *out)
{
    int64_t extent[2 * QB_MAX_RANK], stride[2 * QB_MAX_RANK], count = 1;
    int rank = 0;
    for (int part = 0; part < 4; part++) { /* batch, free of the left, free of the right, contracted */
        bool own = part == 0 || part == 3 || (part == 1) == is_left;
        const factor *from = own ? f : other;
        int axes = part == 0 ? from->batch_count : part == 3 ? from->contract_count : from->free_count;
        const int64_t *axis = part == 0 ? from->batch : part == 3 ? from->contract : from->free;
        for (int i = 0; i < axes; i++) {
            if (from->view->extent[axis[i]] == 1)
                continue;
            extent[rank] = from->view->extent[axis[i]];
            count *= extent[rank];
            stride[rank++] = own ? from->view->stride[axis[i]] : 0;
        }
    }
    qb_view view = {.offset = f->view->offset, .rank = rank, .shaped = true, .extent = extent, .stride = stride};
    return add_view(plan, plan->values[f->id].root, qb_view_keep(&plan->scratch, &view), count, out);
}

/* A product with one term in each sum, or with one sum of many terms for each batch, is a kernel: it fuses with what is
 * around it, and the sum is pairwise. */
static qb_status read_dot_as_lanes(qb_plan *plan, const qb_node *node, const factor *a, const factor *b, int64_t terms)
{
    int32_t operands[2];
    QB_TRY(spread_factor(plan, a, b, true, &operands[0]));
    QB_TRY(spread_factor(plan, b, a, false, &operands[1]));
    int64_t count = qb_value_size(plan->graph, node->result);
    qb_plan_value *value = add_value(plan, QB_ROLE_LANE, plan->graph->values[node->result].dtype, count * terms, 2);
    if (!value)
        return qb_fail_memory();
    value->node = node;
    value->lane = QB_LANE_mul;
    memcpy(plan->operands + value->operand, operands, sizeof operands);
    int32_t id = last_value(plan);
    if (terms > 1) {
        qb_reduction_split split = {QB_REDUCE_sum, count, terms, 1};
        QB_TRY(add_reduction(plan, node, &split, &id));
    }
    plan->map[node->result] = id;
    return QB_OK;
}

static qb_status read_dot(qb_plan *plan, const qb_node *node)
{
    factor a, b;
    QB_TRY(read_factor(plan, node, 0, &a));
    QB_TRY(read_factor(plan, node, 1, &b));
    int64_t terms = extent_of(&a, a.contract_count, a.contract);
    if (terms == 1 ||
        (terms > 1 && extent_of(&a, a.free_count, a.free) == 1 && extent_of(&b, b.free_count, b.free) == 1))
        return read_dot_as_lanes(plan, node, &a, &b, terms);
    QB_TRY(lay_out_factor(plan, &a, true));
    QB_TRY(lay_out_factor(plan, &b, false));
    qb_product *dot = qb_arena_allocate(plan->memory, sizeof *dot);
    qb_plan_value *value = dot ? add_value(plan, QB_ROLE_DOT, plan->graph->values[node->result].dtype,
                                           qb_value_size(plan->graph, node->result), 2)
                               : NULL;
    if (!value)
        return qb_fail_memory();
    *dot = (qb_product){.dtype = (qb_dtype)value->dtype,
                        .addend = -1,
                        .a_offset = a.view->offset,
                        .b_offset = b.view->offset,
                        .shape = {.m = a.extent,
                                  .n = b.extent,
                                  .k = a.contract_extent,
                                  .a_m = a.stride,
                                  .a_k = a.contract_stride,
                                  .b_k = b.contract_stride,
                                  .b_n = b.stride}};
    value->node = node;
    value->dot = dot;
    value->stored = value->anchored = true;
    plan->operands[value->operand] = plan->values[a.id].root;
    plan->operands[value->operand + 1] = plan->values[b.id].root;
    plan->map[node->result] = last_value(plan);
    return add_batch(plan, dot, &a, &b);
}

/* ---- Calls */

/* The operands as plan values, contiguous. */
static qb_status read_operands(qb_plan *plan, const qb_node *node, int32_t *operands)
{
    for (int i = 0; i < node->operand_count; i++) {
        operands[i] = operand_value(plan, node, i);
        const qb_plan_value *operand = &plan->values[operands[i]];
        if (operand->role == QB_ROLE_VIEW && !qb_view_is_contiguous(operand->view))
            QB_TRY(materialize(plan, operands[i], operand->view, &operands[i]));
    }
    return QB_OK;
}

static qb_status read_results(qb_plan *plan, qb_role role, const qb_node *node, const int32_t *operands)
{
    for (int i = 0; i < node->result_count; i++) {
        qb_plan_value *value =
            add_value(plan, i == 0 ? role : QB_ROLE_RESULT, plan->graph->values[node->result + i].dtype,
                      qb_value_size(plan->graph, node->result + i), i == 0 ? node->operand_count : 0);
        if (!value)
            return qb_fail_memory();
        value->node = node;
        value->stored = value->anchored = true;
        plan->map[node->result + i] = last_value(plan);
        if (i == 0 && node->operand_count > 0)
            memcpy(plan->operands + value->operand, operands, (size_t)node->operand_count * sizeof *operands);
    }
    return QB_OK;
}

/* Memory that a call or region works in is one more result, which nobody reads. */
static qb_status add_workspace(qb_plan *plan, const qb_node *node, int64_t size)
{
    qb_plan_value *workspace = add_value(plan, QB_ROLE_RESULT, QB_BOOL, size, 0);
    if (!workspace)
        return qb_fail_memory();
    workspace->node = node;
    workspace->stored = workspace->anchored = true;
    return QB_OK;
}

static qb_status read_call(qb_plan *plan, const qb_node *node)
{
    if (!node->op->cpu)
        return qb_fail_unsupported(node->op->name, "cpu", "%s: the device cpu has no kernel for this operation",
                                   node->op->name);
    enum { FEW = 8 };
    int32_t few[FEW], *operands = few;
    if (node->operand_count > FEW && !(operands = qb_plan_scratch(plan, (size_t)node->operand_count, sizeof *operands)))
        return qb_fail_memory();
    QB_TRY(read_operands(plan, node, operands));
    QB_TRY(read_results(plan, QB_ROLE_CALL, node, operands));
    if (!node->op->workspace)
        return QB_OK;
    qb_type *types = qb_plan_scratch(plan, (size_t)node->operand_count, sizeof *types);
    if (!types)
        return qb_fail_memory();
    for (int i = 0; i < node->operand_count; i++)
        qb_value_type(plan->graph, qb_operand(plan->graph, node, i), &types[i]);
    return add_workspace(plan, node, node->op->workspace(node->attributes, types));
}

static qb_status read_region(qb_plan *plan, const qb_node *node)
{
    int32_t *operands = qb_plan_scratch(plan, (size_t)node->operand_count + 1, sizeof *operands);
    if (!operands)
        return qb_fail_memory();
    QB_TRY(read_operands(plan, node, operands));
    qb_region *region = NULL;
    qb_status status = qb_region_make(plan->context, node, plan->memory, &region);
    if (region) {
        region->next = plan->regions;
        plan->regions = region;
    }
    QB_TRY(status);
    QB_TRY(read_results(plan, QB_ROLE_REGION, node, operands));
    plan->values[plan->value_count - node->result_count].region = region;
    return add_workspace(plan, node, region->workspace_size);
}

static qb_status read_node(qb_plan *plan, const qb_node *node)
{
    const qb_op *op = node->op;
    if (op == &qb_op_input || op == &qb_op_constant)
        return read_leaf(plan, node);
    if (op->flags & QB_OP_ELEMENTWISE)
        return read_lane(plan, node);
    if (op->flags & QB_OP_VIEW)
        return read_view(plan, node);
    if (op->flags & QB_OP_REDUCES)
        return read_reduction(plan, node);
    if (op == &qb_op_dot)
        return read_dot(plan, node);
    if (op->flags & QB_OP_REGION)
        return read_region(plan, node);
    return read_call(plan, node);
}

/* ---- Outputs */

static bool has_shape_of(const qb_value_info *info, const qb_tensor *tensor)
{
    return qb_shape_equal(info->rank, info->shape, tensor->rank, tensor->shape);
}

/* The value whose memory is the output's tensor, or the tensor that exists already. */
static qb_status read_output(qb_plan *plan, int index, int32_t *first_output)
{
    const qb_graph *graph = plan->graph;
    const qb_value_info *info = &graph->values[graph->outputs[index]];
    int32_t id = plan->map[graph->outputs[index]];
    qb_plan_value *value = &plan->values[id];
    qb_output *output = &plan->outputs[index];
    int64_t *shape = qb_arena_allocate(plan->memory, (size_t)info->rank * sizeof *shape);
    if (!shape)
        return qb_fail_memory();
    if (info->rank > 0)
        memcpy(shape, info->shape, (size_t)info->rank * sizeof *shape);
    *output = (qb_output){.kind = QB_OUTPUT_FRESH,
                          .dtype = info->dtype,
                          .rank = info->rank,
                          .shape = shape,
                          .size = qb_value_size(graph, graph->outputs[index])};
    if (value->role == QB_ROLE_INPUT && qb_shape_equal(info->rank, info->shape, value->node->attributes[2].count,
                                                       value->node->attributes[2].integers)) {
        output->kind = QB_OUTPUT_INPUT;
        output->index = value->input;
        return QB_OK;
    }
    if (value->role == QB_ROLE_CONSTANT && has_shape_of(info, value->constant)) {
        output->kind = QB_OUTPUT_CONSTANT;
        output->constant = value->constant;
        return QB_OK;
    }
    if (first_output[graph->outputs[index]] >= 0) {
        output->kind = QB_OUTPUT_SAME;
        output->index = first_output[graph->outputs[index]];
        return QB_OK;
    }
    first_output[graph->outputs[index]] = index;
    if (value->role == QB_ROLE_INPUT || value->role == QB_ROLE_CONSTANT || value->output >= 0) {
        const qb_view *view = qb_view_whole(&plan->scratch, info->rank, info->shape);
        if (!view)
            return qb_fail_memory();
        QB_TRY(materialize(plan, id, view, &id));
    } else if (value->role == QB_ROLE_VIEW) {
        QB_TRY(materialize(plan, id, value->view, &id));
    }
    plan->values[id].output = index;
    plan->values[id].anchored = true;
    return QB_OK;
}

static void count_uses(qb_plan *plan, const bool *live)
{
    const qb_graph *graph = plan->graph;
    for (int32_t n = 0; n < graph->node_count; n++)
        for (int i = 0; live[graph->nodes[n].result] && i < graph->nodes[n].operand_count; i++)
            plan->use_count[qb_operand(graph, &graph->nodes[n], i)]++;
    for (int i = 0; i < graph->output_count; i++)
        plan->use_count[graph->outputs[i]]++;
}

qb_status qb_plan_read_graph(qb_plan *plan)
{
    const qb_graph *graph = plan->graph;
    size_t values = (size_t)graph->value_count, outputs = (size_t)graph->output_count;
    bool *live = qb_plan_scratch(plan, values, sizeof *live);
    plan->map = qb_plan_scratch(plan, values, sizeof *plan->map);
    plan->use_count = qb_plan_scratch_zeroed(plan, values, sizeof *plan->use_count);
    plan->outputs = qb_arena_allocate(plan->memory, outputs * sizeof *plan->outputs);
    if (!live || !plan->map || !plan->use_count || !plan->outputs)
        return qb_fail_memory();
    qb_mark_live(graph, graph->output_count, graph->outputs, live);
    count_uses(plan, live);
    for (int32_t n = 0; n < graph->node_count; n++)
        if (live[graph->nodes[n].result])
            QB_TRY(read_node(plan, &graph->nodes[n]));
    int32_t *first_output = plan->use_count; /* no longer needed as such */
    memset(first_output, -1, values * sizeof *first_output);
    for (int i = 0; i < graph->output_count; i++)
        QB_TRY(read_output(plan, i, first_output));
    return QB_OK;
}

/* ---- The whole */

qb_status qb_plan_make(qb_plan *plan, qb_context *context, const qb_graph *graph, qb_arena *memory)
{
    *plan = (qb_plan){.context = context, .graph = graph, .memory = memory};
    QB_TRY(qb_plan_read_graph(plan));
    QB_TRY(qb_plan_fuse(plan));
    QB_TRY(qb_plan_emit(plan));
    return qb_plan_band(plan);
}

void qb_plan_end(qb_plan *plan)
{
    qb_regions_release(plan->regions);
    qb_free(plan->values);
    qb_free(plan->operands);
    qb_free(plan->slots);
    qb_arena_free(&plan->scratch);
}
