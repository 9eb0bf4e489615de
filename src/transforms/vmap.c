/* Batching: the mapped axis leads everywhere. */
#include "transforms/transforms.h"

#include "base/allocate.h"
#include "graph/replay.h"

typedef struct walk {
    qb_replay replay;
    bool *mapped;         /* of each value of the source */
    bool *operand_mapped; /* scratch for the node at hand */
    int64_t size;
    qb_value active; /* QB_NONE, or which examples count */
} walk;

qb_status qb_batch_node(qb_graph *graph, const qb_node *node, qb_value *operands, const bool *mapped, int64_t size,
                        qb_value active, qb_value *results, bool *results_mapped)
{
    for (int i = 0; i < node->result_count; i++)
        results_mapped[i] = true;
    if (node->op->flags & QB_OP_ELEMENTWISE) { /* lane by lane over the batch too, once every operand has the axis */
        for (int i = 0; i < node->operand_count; i++)
            if (!mapped[i])
                operands[i] = qb_broadcast_leading(graph, operands[i], size);
        (void)qb_emit_all(graph, node->op, node->operand_count, operands, node->attributes, results);
        return qb_graph_take_status(graph);
    }
    if (!node->op->batch)
        return qb_fail(QB_ERROR_UNSUPPORTED, "%s has no batching rule", node->op->name);
    qb_rule rule = {.graph = graph,
                    .op = node->op,
                    .attribute = node->attributes,
                    .operand_count = node->operand_count,
                    .result_count = node->result_count,
                    .operand = operands,
                    .mapped = mapped,
                    .batch_size = size,
                    .active = active,
                    .batched_result = results,
                    .result_mapped = results_mapped};
    node->op->batch(&rule);
    return qb_graph_take_status(graph);
}

static qb_status visit(walk *w, const qb_node *node)
{
    bool any = false;
    for (int i = 0; i < node->operand_count; i++) {
        w->operand_mapped[i] = w->mapped[qb_operand(w->replay.source, node, i)];
        any = any || w->operand_mapped[i];
    }
    if (any || (w->active != QB_NONE && (node->op->flags & QB_OP_REGION)))
        return qb_batch_node(w->replay.target, node, w->replay.operands, w->operand_mapped, w->size, w->active,
                             &w->replay.map[node->result], &w->mapped[node->result]);
    return qb_replay_copy(&w->replay, node) ? QB_OK : qb_graph_take_status(w->replay.target);
}

static qb_status begin(walk *w, const qb_graph *source, qb_graph *target, const qb_value *arguments, const bool *mapped)
{
    QB_TRY(qb_replay_begin(&w->replay, source, target, arguments, source->output_count, source->outputs));
    w->mapped = qb_allocate_zeroed((size_t)source->value_count, sizeof *w->mapped);
    w->operand_mapped = qb_allocate((size_t)w->replay.widest * sizeof *w->operand_mapped);
    if (!w->mapped || !w->operand_mapped)
        return qb_fail_memory();
    for (int i = 0; i < source->input_count; i++)
        w->mapped[source->inputs[i]] = mapped[i];
    return QB_OK;
}

qb_status qb_vmap(const qb_graph *source, qb_graph *target, const qb_value *arguments, const bool *mapped, int64_t size,
                  qb_value *outputs, bool *outputs_mapped)
{
    return qb_vmap_active(source, target, QB_NONE, arguments, mapped, size, outputs, outputs_mapped);
}

qb_status qb_vmap_active(const qb_graph *source, qb_graph *target, qb_value active, const qb_value *arguments,
                         const bool *mapped, int64_t size, qb_value *outputs, bool *outputs_mapped)
{
    walk w = {.size = size, .active = active};
    qb_status status = begin(&w, source, target, arguments, mapped);
    for (int32_t n = -1; status == QB_OK && (n = qb_replay_next(&w.replay, n)) >= 0;)
        status = visit(&w, &source->nodes[n]);
    for (int i = 0; status == QB_OK && i < source->output_count; i++) {
        outputs[i] = w.replay.map[source->outputs[i]];
        outputs_mapped[i] = w.mapped[source->outputs[i]];
    }
    qb_replay_end(&w.replay);
    qb_free(w.mapped);
    qb_free(w.operand_mapped);
    return status;
}

qb_status qb_graph_vmap(const qb_graph *graph, const bool *mapped, int64_t size, qb_graph **out)
{
    qb_graph *target = NULL;
    QB_TRY(qb_graph_create(&target));
    qb_value *outputs = qb_allocate((size_t)graph->output_count * sizeof *outputs);
    bool *outputs_mapped = qb_allocate((size_t)graph->output_count * sizeof *outputs_mapped);
    qb_status status = outputs && outputs_mapped ? QB_OK : qb_fail_memory();
    for (int i = 0; status == QB_OK && i < graph->input_count; i++) {
        const qb_value_info *info = &graph->values[graph->inputs[i]];
        int64_t shape[QB_MAX_RANK + 1] = {size};
        memcpy(shape + 1, info->shape, (size_t)info->rank * sizeof *shape);
        qb_value input;
        status = mapped[i]
                     ? qb_graph_input(target, graph->input_names[i], info->dtype, info->rank + 1, shape, &input)
                     : qb_graph_input(target, graph->input_names[i], info->dtype, info->rank, info->shape, &input);
    }
    if (status == QB_OK)
        status = qb_vmap(graph, target, target->inputs, mapped, size, outputs, outputs_mapped);
    for (int i = 0; status == QB_OK && i < graph->output_count; i++) {
        if (!outputs_mapped[i])
            outputs[i] = qb_broadcast_leading(target, outputs[i], size);
        status = outputs[i] < 0 ? qb_graph_take_status(target) : qb_graph_output(target, outputs[i]);
    }
    qb_free(outputs);
    qb_free(outputs_mapped);
    if (status == QB_OK)
        *out = target;
    else
        qb_graph_release(target);
    return status;
}
