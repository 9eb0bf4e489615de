/* The order of the passes. Dead code needs none: every pass is a replay, which visits only what the outputs need. */
#include "passes/pipeline.h"

#include "passes/passes.h"

static const qb_pass_visit passes[] = {qb_fold_visit, qb_simplify_visit};

static qb_status rebuild(qb_pass_visit visit, const qb_graph *graph, qb_graph *target, qb_replay *replay)
{
    QB_TRY(qb_replay_begin(replay, graph, target, target->inputs, graph->output_count, graph->outputs));
    for (int32_t n = -1; (n = qb_replay_next(replay, n)) >= 0;)
        QB_TRY(visit(replay, &graph->nodes[n]));
    for (int i = 0; i < graph->output_count; i++)
        QB_TRY(qb_graph_output(target, replay->map[graph->outputs[i]]));
    return QB_OK;
}

qb_status qb_pass_run(qb_pass_visit visit, const qb_graph *graph, qb_graph **out)
{
    qb_graph *target = NULL;
    qb_replay replay = {0};
    QB_TRY(qb_graph_like(graph, &target));
    qb_status status = rebuild(visit, graph, target, &replay);
    qb_replay_end(&replay);
    if (status == QB_OK)
        *out = target;
    else
        qb_graph_release(target);
    return status;
}

qb_status qb_optimize(const qb_graph *graph, qb_graph **out)
{
    qb_graph *current = NULL;
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        qb_graph *next;
        qb_status status = qb_pass_run(passes[i], current ? current : graph, &next);
#ifndef NDEBUG
        if (status == QB_OK && (status = qb_verify(next)) != QB_OK)
            qb_graph_release(next);
#endif
        qb_graph_release(current);
        if (status != QB_OK)
            return status;
        current = next;
    }
    *out = current;
    return QB_OK;
}
