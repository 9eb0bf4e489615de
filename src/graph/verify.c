/* The verifier: every invariant of graph.h, checked. Tests and debug builds run it after each stage. */
#include "graph/graph.h"
#include "ops/op.h"

static qb_status fault(const qb_node *node, const char *what)
{
    return qb_fail(QB_ERROR_INTERNAL, "verify: node %%%d (%s): %s", (int)node->result, node->op->name, what);
}

static qb_status verify_types(const qb_graph *graph, const qb_node *node)
{
    enum { MOST = 64 }; /* wider nodes were inferred when they were built; checking them again costs more than it shows */
    if (node->operand_count + node->result_count > MOST)
        return QB_OK;
    qb_type types[MOST];
    for (int i = 0; i < node->operand_count; i++)
        qb_value_type(graph, qb_operand(graph, node, i), &types[i]);
    qb_type *results = types + node->operand_count;
    qb_inference inference = {node->op, node->operand_count, types, node->attributes, results};
    QB_TRY(node->op->infer(&inference));
    for (int i = 0; i < node->result_count; i++) {
        const qb_value_info *info = &graph->values[node->result + i];
        if (info->dtype != results[i].dtype || !qb_shape_equal(info->rank, info->shape, results[i].rank, results[i].shape))
            return fault(node, "the result's type is not what the op infers");
    }
    return QB_OK;
}

qb_status qb_verify(const qb_graph *graph)
{
    qb_value next = 0;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const qb_node *node = &graph->nodes[n];
        if (node->result != next)
            return fault(node, "results are not numbered in order");
        next += node->result_count;
        if (node->op->arity >= 0 && node->op->arity != node->operand_count)
            return fault(node, "wrong number of operands");
        for (int i = 0; i < node->operand_count; i++)
            if (qb_operand(graph, node, i) < 0 || qb_operand(graph, node, i) >= node->result)
                return fault(node, "an operand does not come before the node");
        for (int i = 0; i < node->result_count; i++)
            if (graph->values[node->result + i].node != n)
                return fault(node, "a result does not know its node");
        QB_TRY(verify_types(graph, node));
    }
    if (next != graph->value_count)
        return qb_fail(QB_ERROR_INTERNAL, "verify: %d values, but nodes make %d", (int)graph->value_count, (int)next);
    for (int i = 0; i < graph->output_count; i++)
        if (graph->outputs[i] < 0 || graph->outputs[i] >= graph->value_count)
            return qb_fail(QB_ERROR_INTERNAL, "verify: output %d is not a value of the graph", i);
    return QB_OK;
}
