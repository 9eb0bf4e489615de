/* The transpose of a linear part of a graph: cotangents flow from its outputs to its inputs, last node first. */
#include "transforms/transforms.h"

#include "base/allocate.h"

typedef struct walk {
    qb_graph *graph;
    int32_t value_count; /* of the graph when the walk began: what is appended lies beyond */
    bool *linear;        /* whether a value depends on a linear input */
    qb_value *cotangent;
    qb_value *operands, *operand_cotangents; /* scratch for the node at hand */
    bool *operand_linear;
    qb_type *operand_types;
} walk;

/* Marks what depends on the linear inputs, and finds the widest node among it. */
static int32_t mark_linear(walk *w)
{
    int32_t widest = 1;
    for (int32_t n = 0; n < w->graph->node_count; n++) {
        const qb_node *node = &w->graph->nodes[n];
        bool depends = false;
        for (int i = 0; i < node->operand_count; i++)
            depends = depends || w->linear[qb_operand(w->graph, node, i)];
        for (int i = 0; depends && i < node->result_count; i++)
            w->linear[node->result + i] = true;
        if (depends && node->operand_count > widest)
            widest = node->operand_count;
    }
    return widest;
}

static qb_status begin(walk *w, qb_graph *graph, int linear_count, const qb_value *linear)
{
    size_t count = (size_t)graph->value_count;
    *w = (walk){.graph = graph, .value_count = graph->value_count};
    w->linear = qb_allocate_zeroed(count, sizeof *w->linear);
    w->cotangent = qb_allocate(count * sizeof *w->cotangent);
    if (!w->linear || !w->cotangent)
        return qb_fail_memory();
    for (size_t i = 0; i < count; i++)
        w->cotangent[i] = QB_NONE;
    for (int i = 0; i < linear_count; i++)
        w->linear[linear[i]] = true;
    size_t widest = (size_t)mark_linear(w);
    w->operands = qb_allocate(widest * sizeof *w->operands);
    w->operand_cotangents = qb_allocate(widest * sizeof *w->operand_cotangents);
    w->operand_linear = qb_allocate(widest * sizeof *w->operand_linear);
    w->operand_types = qb_allocate(widest * sizeof *w->operand_types);
    return w->operands && w->operand_cotangents && w->operand_linear && w->operand_types ? QB_OK : qb_fail_memory();
}

static void end(walk *w)
{
    qb_free(w->linear);
    qb_free(w->cotangent);
    qb_free(w->operands);
    qb_free(w->operand_cotangents);
    qb_free(w->operand_linear);
    qb_free(w->operand_types);
}

static void accumulate(walk *w, qb_value value, qb_value cotangent)
{
    qb_value *sum = &w->cotangent[value];
    if (cotangent != QB_NONE)
        *sum = *sum == QB_NONE ? cotangent : qb_add(w->graph, *sum, cotangent);
}

static qb_status visit(walk *w, qb_node node)
{
    if (!node.op->transpose)
        return qb_fail(QB_ERROR_VALUE, "%s is not linear, so its derivative rule cannot be transposed", node.op->name);
    for (int i = 0; i < node.operand_count; i++) {
        qb_value operand = qb_operand(w->graph, &node, i);
        w->operand_linear[i] = w->linear[operand];
        w->operands[i] = w->linear[operand] ? QB_NONE : operand;
        w->operand_cotangents[i] = QB_NONE;
        qb_value_type(w->graph, operand, &w->operand_types[i]);
    }
    qb_rule rule = {.graph = w->graph,
                    .op = node.op,
                    .attribute = node.attributes,
                    .operand_count = node.operand_count,
                    .result_count = node.result_count,
                    .operand = w->operands,
                    .cotangent = &w->cotangent[node.result],
                    .linear = w->operand_linear,
                    .operand_type = w->operand_types,
                    .operand_cotangent = w->operand_cotangents};
    node.op->transpose(&rule);
    for (int i = 0; i < node.operand_count; i++)
        if (w->operand_linear[i])
            accumulate(w, qb_operand(w->graph, &node, i), w->operand_cotangents[i]);
    return qb_graph_take_status(w->graph);
}

static bool has_cotangent(const walk *w, const qb_node *node)
{
    bool any = false;
    for (int i = 0; i < node->result_count; i++)
        any = any || (w->linear[node->result + i] && w->cotangent[node->result + i] != QB_NONE);
    return any && node->operand_count > 0;
}

qb_status qb_transpose(qb_graph *graph, int linear_count, const qb_value *linear, int output_count,
                       const qb_value *outputs, const qb_value *output_cotangents, qb_value *cotangents)
{
    walk w;
    int32_t source_before = graph->source;
    qb_status status = begin(&w, graph, linear_count, linear);
    for (int i = 0; status == QB_OK && i < output_count; i++)
        if (outputs[i] != QB_NONE)
            accumulate(&w, outputs[i], output_cotangents[i]);
    for (int32_t n = graph->node_count - 1; status == QB_OK && n >= 0; n--) {
        graph->source = graph->nodes[n].source;
        if (graph->nodes[n].result < w.value_count && has_cotangent(&w, &graph->nodes[n]))
            status = visit(&w, graph->nodes[n]); /* by value: the array of nodes moves as it grows */
    }
    for (int i = 0; status == QB_OK && i < linear_count; i++)
        cotangents[i] = w.cotangent[linear[i]];
    graph->source = source_before;
    end(&w);
    return status;
}
