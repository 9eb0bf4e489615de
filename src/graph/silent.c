/* Graphs without their effects. A derivative rule of an operation with graphs may stand for the operation itself,
 * with the effects in it; the plain operation, kept beside it for those who want its results only, is then copied
 * without them. */
#include "graph/replay.h"

#include "base/allocate.h"
#include "ops/op.h"

qb_status qb_graph_without_effects(const qb_graph *graph, qb_graph **out)
{
    qb_replay replay = {0};
    qb_graph *target;
    QB_TRY(qb_graph_like(graph, &target));
    qb_status status = qb_replay_begin(&replay, graph, target, target->inputs, graph->output_count, graph->outputs);
    for (int32_t n = -1; status == QB_OK && (n = qb_replay_next(&replay, n)) >= 0;)
        if (!(graph->nodes[n].op->flags & QB_OP_EFFECT) && !qb_replay_copy_silent(&replay, &graph->nodes[n]))
            status = qb_graph_take_status(target);
    for (int i = 0; status == QB_OK && i < graph->output_count; i++)
        status = qb_graph_output(target, replay.map[graph->outputs[i]]);
    qb_replay_end(&replay);
    if (status == QB_OK)
        *out = target;
    else
        qb_graph_release(target);
    return status;
}

/* The graphs of one attribute: `made` has room for all of them. */
static qb_status silence(qb_attribute *attribute, qb_graph **made)
{
    bool single = attribute->kind == QB_ATTRIBUTE_GRAPH;
    int count = single ? 1 : attribute->count;
    for (int k = 0; k < count; k++) {
        qb_graph *graph = single ? attribute->graph : attribute->graphs[k];
        if (graph)
            QB_TRY(qb_graph_without_effects(graph, &made[k]));
    }
    if (single)
        attribute->graph = made[0];
    else
        attribute->graphs = made;
    return QB_OK;
}

static int graph_count(const qb_node *node)
{
    int count = 0;
    for (int i = 0; i < node->op->attribute_count; i++)
        count += node->attributes[i].kind == QB_ATTRIBUTE_GRAPH    ? 1
                 : node->attributes[i].kind == QB_ATTRIBUTE_GRAPHS ? node->attributes[i].count
                                                                   : 0;
    return count;
}

bool qb_replay_copy_silent(qb_replay *replay, const qb_node *node)
{
    if (!replay->source->has_effects || !qb_node_has_effects(node))
        return qb_replay_copy(replay, node);
    int attributes = node->op->attribute_count, count = graph_count(node), next = 0;
    qb_attribute *silent = qb_allocate((size_t)attributes * sizeof *silent);
    qb_graph **made = qb_allocate_zeroed((size_t)count, sizeof(qb_graph *));
    qb_status status = silent && made ? QB_OK : qb_fail_memory();
    for (int i = 0; status == QB_OK && i < attributes; i++) {
        silent[i] = node->attributes[i];
        if (silent[i].kind != QB_ATTRIBUTE_GRAPH && silent[i].kind != QB_ATTRIBUTE_GRAPHS)
            continue;
        status = silence(&silent[i], made + next);
        next += silent[i].kind == QB_ATTRIBUTE_GRAPH ? 1 : silent[i].count;
    }
    if (status != QB_OK)
        (void)qb_graph_fail(replay->target, status);
    bool done = status == QB_OK && qb_emit_all(replay->target, node->op, node->operand_count, replay->operands, silent,
                                               &replay->map[node->result]);
    for (int k = 0; made && k < count; k++)
        qb_graph_release(made[k]);
    qb_free(made);
    qb_free(silent);
    return done;
}
