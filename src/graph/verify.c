/* The verifier: every invariant of graph.h, checked. Tests and debug builds run it after each stage. */
#include "graph/graph.h"
#include "ops/op.h"

static qb_status fault(const qb_node *node, const char *what)
{
    return qb_fail(QB_ERROR_INTERNAL, "verify: node %%%d (%s): %s", (int)node->result, node->op->name, what);
}

static qb_status verify_types(const qb_graph *graph, const qb_node *node)
{
    enum { MOST = 64 }; /* wider nodes were inferred when they were built: checking again costs more than it shows */
    if (node->operand_count + node->result_count > MOST)
        return QB_OK;
    qb_type types[MOST];
    for (int i = 0; i < node->operand_count; i++)
        qb_value_type(graph, qb_operand(graph, node, i), &types[i]);
    qb_type *results = types + node->operand_count;
    qb_inference inference = {node->op, node->operand_count, types, node->attributes, results};
    QB_TRY(node->op->infer(&inference));
    for (int i = 0; i < node->result_count; i++)
        if (!qb_value_has_type(graph, node->result + i, &results[i]))
            return fault(node, "the result's type is not what the op infers");
    return QB_OK;
}

static bool same_node(const qb_graph *graph, const qb_node *a, const qb_node *b)
{
    bool same = a->op == b->op && a->operand_count == b->operand_count && !(a->op->flags & QB_OP_UNIQUE);
    for (int i = 0; same && i < a->operand_count; i++)
        same = qb_operand(graph, a, i) == qb_operand(graph, b, i);
    for (int i = 0; same && i < a->op->attribute_count; i++)
        same = qb_attribute_equal(&a->attributes[i], &b->attributes[i]);
    return same;
}

/* The node is in its bucket, and is the only one of its kind. */
static qb_status verify_merged(const qb_graph *graph, int32_t index)
{
    const qb_node *node = &graph->nodes[index];
    bool found = false;
    for (int32_t i = graph->buckets[node->hash & (uint32_t)(graph->bucket_count - 1)]; i >= 0;
         i = graph->nodes[i].next_in_bucket) {
        found = found || i == index;
        if (i != index && same_node(graph, &graph->nodes[i], node))
            return fault(node, "equal to another node");
    }
    return found ? QB_OK : fault(node, "missing in the hash table");
}

static qb_status verify_ends(const qb_graph *graph)
{
    for (int i = 0; i < graph->output_count; i++)
        if (graph->outputs[i] < 0 || graph->outputs[i] >= graph->value_count)
            return qb_fail(QB_ERROR_INTERNAL, "verify: output %d is not a value of the graph", i);
    for (int i = 0; i < graph->input_count; i++) {
        qb_value input = graph->inputs[i];
        const qb_node *node = input >= 0 && input < graph->value_count ? qb_node_of(graph, input) : NULL;
        if (!node || !(node->op->flags & QB_OP_UNIQUE) || node->attributes[0].integer != i)
            return qb_fail(QB_ERROR_INTERNAL, "verify: input %d is not an input node of that number", i);
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
        QB_TRY(verify_merged(graph, n));
    }
    if (next != graph->value_count)
        return qb_fail(QB_ERROR_INTERNAL, "verify: %d values, but nodes make %d", (int)graph->value_count, (int)next);
    return verify_ends(graph);
}
