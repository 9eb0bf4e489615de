/* The order of the passes. Dead code needs none: every pass is a replay, which visits only what the outputs need. */
#include "passes/pipeline.h"

#include "passes/passes.h"

/* Where operations run graphs of their own, these come before refining (which then sees which operands are
 * constants) and again after it (which may have put a body in the place of its operation). */
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

/* Replaces *current (NULL at first: `graph`) by what a pass makes of it. */
static qb_status advance(qb_status status, qb_graph *next, qb_graph **current)
{
#ifndef NDEBUG
    if (status == QB_OK && (status = qb_verify(next)) != QB_OK)
        qb_graph_release(next);
#endif
    if (status != QB_OK)
        return status;
    qb_graph_release(*current);
    *current = next;
    return QB_OK;
}

static qb_status run_passes(const qb_graph *graph, qb_graph **current)
{
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++) {
        qb_graph *next = NULL;
        qb_status status = qb_pass_run(passes[i], *current ? *current : graph, &next);
        QB_TRY(advance(status, next, current));
    }
    return QB_OK;
}

static qb_status optimize(const qb_graph *graph, qb_graph **current)
{
    QB_TRY(run_passes(graph, current));
    if (!qb_has_regions(*current))
        return QB_OK;
    qb_graph *next = NULL;
    qb_status status = qb_refine(*current, &next);
    QB_TRY(advance(status, next, current));
    return run_passes(graph, current);
}

qb_status qb_optimize(const qb_graph *graph, qb_graph **out)
{
    qb_graph *current = NULL;
    qb_status status = optimize(graph, &current);
    if (status == QB_OK)
        *out = current;
    else
        qb_graph_release(current);
    return status;
}
