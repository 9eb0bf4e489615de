/* Replaying a graph into another, and its plainest use: inlining. */
#include "graph/replay.h"

#include "base/allocate.h"
#include "ops/op.h"

qb_status qb_replay_begin(qb_replay *replay, const qb_graph *source, qb_graph *target, const qb_value *arguments,
                          int output_count, const qb_value *outputs)
{
    *replay = (qb_replay){.source = source, .target = target, .source_before = target->source};
    size_t count = (size_t)source->value_count;
    for (int32_t i = 0; i < source->node_count; i++)
        if (source->nodes[i].operand_count > replay->widest)
            replay->widest = source->nodes[i].operand_count;
    replay->map = qb_allocate(count * sizeof *replay->map);
    replay->live = qb_allocate(count * sizeof *replay->live);
    replay->operands = qb_allocate((size_t)replay->widest * sizeof *replay->operands);
    if (!replay->map || !replay->live || !replay->operands)
        return qb_fail_memory();
    for (size_t i = 0; i < count; i++)
        replay->map[i] = QB_NONE;
    QB_TRY(qb_graph_copy_notes(source, target));
    qb_mark_live(source, output_count, outputs, replay->live);
    for (int i = 0; i < source->input_count; i++)
        replay->map[source->inputs[i]] = arguments[i];
    return QB_OK;
}

void qb_replay_end(qb_replay *replay)
{
    if (replay->target)
        replay->target->source = replay->source_before;
    qb_free(replay->map);
    qb_free(replay->live);
    qb_free(replay->operands);
}

int32_t qb_replay_next(qb_replay *replay, int32_t index)
{
    const qb_graph *source = replay->source;
    for (index++; index < source->node_count; index++) {
        const qb_node *node = &source->nodes[index];
        if (!replay->live[node->result] || (node->op->flags & QB_OP_UNIQUE))
            continue;
        replay->target->source = node->source;
        for (int i = 0; i < node->operand_count; i++)
            replay->operands[i] = replay->map[qb_operand(source, node, i)];
        return index;
    }
    return -1;
}

bool qb_replay_copy(qb_replay *replay, const qb_node *node)
{
    return qb_emit_all(replay->target, node->op, node->operand_count, replay->operands, node->attributes,
                       &replay->map[node->result]);
}

/* In a graph that is cut down to a part of its inputs, an effect falls away with what leads to it alone. */
static bool lacks_operand(const qb_replay *replay, const qb_node *node)
{
    bool lacks = false;
    for (int i = 0; i < node->operand_count; i++)
        lacks = lacks || replay->operands[i] == QB_NONE;
    return lacks;
}

qb_status qb_inline(const qb_graph *source, qb_graph *target, const qb_value *arguments, qb_value *outputs)
{
    qb_replay replay;
    qb_status status = qb_replay_begin(&replay, source, target, arguments, source->output_count, source->outputs);
    for (int32_t n = -1; status == QB_OK && (n = qb_replay_next(&replay, n)) >= 0;)
        if (!(source->has_effects && lacks_operand(&replay, &source->nodes[n])) &&
            !qb_replay_copy(&replay, &source->nodes[n]))
            status = qb_graph_take_status(target);
    for (int i = 0; status == QB_OK && i < source->output_count; i++)
        outputs[i] = replay.map[source->outputs[i]];
    qb_replay_end(&replay);
    return status;
}

/* The inputs of the new graph, and what they stand for among those of the old one. */
static qb_status add_inputs(const qb_graph *graph, qb_graph *target, int count, const int *inputs, qb_value *arguments)
{
    for (int i = 0; i < graph->input_count; i++)
        arguments[i] = QB_NONE;
    for (int i = 0; i < count; i++) {
        int from = inputs ? inputs[i] : i;
        QB_TRY(qb_graph_input_like(target, graph->input_names[from], graph, graph->inputs[from], &arguments[from]));
    }
    return QB_OK;
}

static qb_status add_outputs(const qb_graph *graph, qb_graph *target, const qb_value *arguments, int count,
                             const int *outputs, qb_value *wanted)
{
    qb_replay replay;
    for (int i = 0; i < count; i++)
        wanted[i] = graph->outputs[outputs ? outputs[i] : i];
    qb_status status = qb_replay_begin(&replay, graph, target, arguments, count, wanted);
    for (int32_t n = -1; status == QB_OK && (n = qb_replay_next(&replay, n)) >= 0;)
        if (!(graph->has_effects && lacks_operand(&replay, &graph->nodes[n])) &&
            !qb_replay_copy(&replay, &graph->nodes[n]))
            status = qb_graph_take_status(target);
    for (int i = 0; status == QB_OK && i < count; i++)
        status = qb_graph_output(target, replay.map[wanted[i]]);
    qb_replay_end(&replay);
    return status;
}

qb_status qb_graph_rearrange(const qb_graph *graph, int input_count, const int *inputs, int output_count,
                             const int *outputs, qb_graph **out)
{
    qb_graph *target = NULL;
    QB_TRY(qb_graph_create(&target));
    qb_value *arguments = qb_allocate((size_t)(graph->input_count + output_count) * sizeof *arguments);
    qb_status status = arguments ? add_inputs(graph, target, input_count, inputs, arguments) : qb_fail_memory();
    if (status == QB_OK)
        status = add_outputs(graph, target, arguments, output_count, outputs, arguments + graph->input_count);
    qb_free(arguments);
    if (status == QB_OK)
        *out = target;
    else
        qb_graph_release(target);
    return status;
}
