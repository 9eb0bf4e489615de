/* Refining: every op that runs graphs is asked for the same with less in them, given which of its results are
 * needed. */
#include "base/allocate.h"
#include "passes/passes.h"

typedef struct walk {
    qb_replay replay;
    bool *needed; /* values of the source; results of one node are told apart */
} walk;

static qb_status refine(walk *w, const qb_node *node, bool *used, qb_value *results)
{
    for (int i = 0; i < node->result_count; i++) {
        used[i] = w->needed[node->result + i];
        results[i] = QB_NONE;
    }
    qb_rule rule = {.graph = w->replay.target,
                    .op = node->op,
                    .attribute = node->attributes,
                    .operand_count = node->operand_count,
                    .result_count = node->result_count,
                    .operand = w->replay.operands,
                    .used = used,
                    .refined_result = results};
    node->op->refine(&rule);
    memcpy(&w->replay.map[node->result], results, (size_t)node->result_count * sizeof *results);
    return qb_graph_take_status(w->replay.target);
}

static qb_status visit(walk *w, const qb_node *node)
{
    if (!node->op->refine)
        return qb_replay_copy(&w->replay, node) ? QB_OK : qb_graph_take_status(w->replay.target);
    size_t count = (size_t)node->result_count;
    qb_value *results = qb_allocate(count * (sizeof *results + sizeof(bool)));
    if (!results)
        return qb_fail_memory();
    qb_status status = refine(w, node, (bool *)(results + count), results);
    qb_free(results);
    return status;
}

/* A node is visited where one of its results is needed. */
static qb_status begin(walk *w, const qb_graph *graph, qb_graph *target)
{
    QB_TRY(qb_replay_begin(&w->replay, graph, target, target->inputs, graph->output_count, graph->outputs));
    w->needed = qb_allocate((size_t)graph->value_count);
    if (!w->needed)
        return qb_fail_memory();
    QB_TRY(qb_mark_needed(graph, NULL, w->needed));
    for (int32_t n = 0; n < graph->node_count; n++) {
        const qb_node *node = &graph->nodes[n];
        bool any = false;
        for (int i = 0; i < node->result_count; i++)
            any = any || w->needed[node->result + i];
        for (int i = 0; i < node->result_count; i++)
            w->replay.live[node->result + i] = any;
    }
    return QB_OK;
}

qb_status qb_refine(const qb_graph *graph, qb_graph **out)
{
    walk w = {0};
    qb_graph *target = NULL;
    QB_TRY(qb_graph_like(graph, &target));
    qb_status status = begin(&w, graph, target);
    for (int32_t n = -1; status == QB_OK && (n = qb_replay_next(&w.replay, n)) >= 0;)
        status = visit(&w, &graph->nodes[n]);
    for (int i = 0; status == QB_OK && i < graph->output_count; i++)
        status = qb_graph_output(target, w.replay.map[graph->outputs[i]]);
    qb_replay_end(&w.replay);
    qb_free(w.needed);
    if (status == QB_OK)
        *out = target;
    else
        qb_graph_release(target);
    return status;
}
