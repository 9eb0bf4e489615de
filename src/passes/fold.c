/* Folding: elementwise operations on constants are computed now, and on repeated values they are computed before the
 * repetition.
 *
 * An elementwise node whose operands are all broadcasts of equal shapes along equal axes (a single number fits any)
 * becomes the broadcast of the node on what they repeat; a node on scalar constants becomes a scalar constant, by the
 * very kernel that would compute it at run time, so folding never changes a bit. */
#include "passes/passes.h"

/* What an operand repeats: the operand of a broadcast, or a scalar itself. */
static qb_value repeated(const qb_graph *graph, qb_value value)
{
    const qb_node *node = qb_node_of(graph, value);
    return node->op == &qb_op_broadcast ? qb_operand(graph, node, 0) : value;
}

/* The broadcast that the others must agree with: of the operand that repeats more than a number; QB_NONE if there is
 * none, QB_FAILED if two disagree or an operand repeats nothing. */
static qb_value common_broadcast(const qb_graph *graph, int count, const qb_value *operands)
{
    qb_value common = QB_NONE;
    for (int i = 0; i < count; i++) {
        const qb_node *node = qb_node_of(graph, operands[i]);
        if (graph->values[repeated(graph, operands[i])].rank == 0)
            continue;
        if (node->op != &qb_op_broadcast)
            return QB_FAILED;
        if (common == QB_NONE) {
            common = operands[i];
            continue;
        }
        const qb_node *other = qb_node_of(graph, common);
        const qb_value_info *a = &graph->values[qb_operand(graph, node, 0)];
        const qb_value_info *b = &graph->values[qb_operand(graph, other, 0)];
        if (!qb_attribute_equal(&node->attributes[1], &other->attributes[1]) ||
            !qb_shape_equal(a->rank, a->shape, b->rank, b->shape))
            return QB_FAILED;
    }
    return common;
}

static qb_value compute_scalar(qb_graph *graph, const qb_node *node, const qb_value *operands)
{
    const void *data[3] = {NULL, NULL, NULL};
    if (node->op->lane == QB_LANE_NONE)
        return QB_NONE;
    int typed = node->operand_count - 1; /* the kernel goes by the dtype of the last operand: select's first is bool */
    for (int i = 0; i < node->operand_count; i++) {
        const qb_node *operand = qb_node_of(graph, operands[i]);
        if (operand->op != &qb_op_constant)
            return QB_NONE;
        data[i] = operand->attributes[0].tensor->data;
    }
    qb_type types[3], result;
    for (int i = 0; i < node->operand_count; i++)
        qb_value_type(graph, operands[i], &types[i]);
    qb_inference inference = {node->op, node->operand_count, types, node->attributes, &result};
    if (node->op->infer(&inference) != QB_OK)
        return QB_NONE;
    qb_lane_kernel kernel = qb_lane_lookup(node->op->lane, types[typed].dtype, result.dtype);
    if (!kernel)
        return QB_NONE;
    qb_tensor *tensor = NULL;
    qb_status status = qb_tensor_create(result.dtype, 0, NULL, NULL, &tensor);
    if (status != QB_OK)
        return qb_graph_fail(graph, status);
    kernel(1, tensor->data, data[0], data[1], data[2]);
    qb_value value;
    status = qb_graph_constant(graph, tensor, &value);
    qb_tensor_release(tensor);
    return status == QB_OK ? value : qb_graph_fail(graph, status);
}

/* The node on what its operands repeat, or QB_NONE where they do not repeat alike. */
static qb_value before_repetition(qb_graph *graph, const qb_node *node, const qb_value *operands, const qb_type *shape)
{
    qb_value common = common_broadcast(graph, node->operand_count, operands);
    if (common == QB_FAILED)
        return QB_NONE;
    qb_value inner[3];
    const qb_attribute *axes = common == QB_NONE ? NULL : &qb_node_of(graph, common)->attributes[1];
    qb_type small;
    qb_value_type(graph, common == QB_NONE ? repeated(graph, operands[0]) : repeated(graph, common), &small);
    for (int i = 0; i < node->operand_count; i++) {
        inner[i] = repeated(graph, operands[i]);
        if (inner[i] >= 0 && graph->values[inner[i]].rank == 0 && small.rank > 0)
            inner[i] = qb_broadcast_to(graph, inner[i], small.rank, small.shape);
    }
    qb_value value = common == QB_NONE ? compute_scalar(graph, node, inner) : QB_NONE;
    if (value == QB_NONE)
        value = qb_emit(graph, node->op, node->operand_count, inner, node->attributes);
    return axes ? qb_broadcast(graph, value, shape->rank, shape->shape, axes->integers)
                : qb_broadcast_to(graph, value, shape->rank, shape->shape);
}

qb_status qb_fold_visit(qb_replay *replay, const qb_node *node)
{
    qb_graph *target = replay->target;
    if ((node->op->flags & QB_OP_ELEMENTWISE) && node->operand_count <= 3) {
        qb_type shape;
        qb_value_type(replay->source, node->result, &shape);
        qb_value value = before_repetition(target, node, replay->operands, &shape);
        QB_TRY(qb_graph_take_status(target));
        if (value != QB_NONE) {
            replay->map[node->result] = value;
            return QB_OK;
        }
    }
    return qb_replay_copy(replay, node) ? QB_OK : qb_graph_take_status(target);
}
