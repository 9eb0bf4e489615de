/* How much arithmetic a graph stands for: an estimate that depends on the graph alone, so that it is the same on every
 * machine, and two forms of one computation can be compared by it. */
#include "base/allocate.h"
#include "ops/op.h"

static bool is_floating(const qb_graph *graph, const qb_node *node)
{
    bool floating = false;
    for (int i = 0; i < node->operand_count && !floating; i++)
        floating = qb_dtype_is_floating(graph->values[qb_operand(graph, node, i)].dtype);
    for (int i = 0; i < node->result_count && !floating; i++)
        floating = qb_dtype_is_floating(graph->values[node->result + i].dtype);
    return floating;
}

double qb_node_flops(const qb_graph *graph, const qb_node *node)
{
    if (!(node->op->flags & QB_OP_REGION) && !is_floating(graph, node))
        return 0;
    return node->op->flops ? node->op->flops(graph, node)
                           : (double)node->op->element_flops * (double)qb_value_size(graph, node->result);
}

double qb_flops_of_operand(const qb_graph *graph, const qb_node *node)
{
    return (double)qb_value_size(graph, qb_operand(graph, node, 0));
}

double qb_flops_of_body(const qb_graph *graph, const qb_node *node)
{
    (void)graph;
    return qb_graph_flops(node->attributes[0].graph);
}

double qb_graph_flops(const qb_graph *graph)
{
    bool *live = qb_allocate((size_t)graph->value_count * sizeof *live);
    if (!live)
        return -1;
    qb_mark_live(graph, graph->output_count, graph->outputs, live);
    double sum = 0;
    for (int32_t n = 0; n < graph->node_count && sum >= 0; n++) {
        if (!live[graph->nodes[n].result])
            continue;
        double flops = qb_node_flops(graph, &graph->nodes[n]);
        sum = flops < 0 ? -1 : sum + flops;
    }
    qb_free(live);
    return sum;
}
