/* What the rules of operations with graphs share: their derivatives and transposes as graphs. */
#include "control/control.h"

#include "base/allocate.h"
#include "passes/pipeline.h"
#include "transforms/transforms.h"

void *qb_scratch_take(qb_scratch *scratch, int count, size_t size)
{
    size_t bytes = (size_t)(count > 0 ? count : 1) * size;
    void *memory = qb_arena_allocate(&scratch->arena, bytes);
    scratch->failed = scratch->failed || !memory;
    return memory ? memset(memory, 0, bytes) : NULL;
}

qb_value *qb_scratch_values(qb_scratch *scratch, int count)
{
    qb_value *values = qb_scratch_take(scratch, count, sizeof *values);
    for (int i = 0; values && i < count; i++)
        values[i] = QB_NONE;
    return values;
}

qb_value qb_or_zeros(qb_graph *graph, qb_value value, const qb_graph *source, qb_value like)
{
    if (value != QB_NONE)
        return value;
    const qb_value_info info = source->values[like]; /* by value: the source may be the graph that grows */
    return qb_splat(graph, info.dtype, info.rank, info.shape, 0);
}

static qb_status output(qb_graph *graph, qb_value value)
{
    return value < 0 ? qb_graph_take_status(graph) : qb_graph_output(graph, value);
}

static qb_status write_jvp(const qb_graph *source, qb_graph *target, qb_forward forward, const bool *has_tangent,
                           const bool *require, bool *has_tangent_out, qb_scratch *scratch)
{
    qb_value *tangents = qb_scratch_values(scratch, source->input_count);
    qb_value *outputs = qb_scratch_values(scratch, 2 * source->output_count);
    if (scratch->failed)
        return qb_fail_memory();
    qb_value *tangents_out = outputs + source->output_count;
    for (int i = 0; i < source->input_count; i++)
        if (has_tangent[i])
            QB_TRY(qb_graph_input_like(target, NULL, source, source->inputs[i], &tangents[i]));
    QB_TRY(qb_jvp(source, target, forward, target->inputs, tangents, outputs, tangents_out));
    for (int i = 0; i < source->output_count; i++)
        QB_TRY(qb_graph_output(target, outputs[i]));
    for (int i = 0; i < source->output_count; i++) {
        has_tangent_out[i] = tangents_out[i] != QB_NONE || (require && require[i]);
        if (has_tangent_out[i])
            QB_TRY(output(target, qb_or_zeros(target, tangents_out[i], source, source->outputs[i])));
    }
    return QB_OK;
}

qb_status qb_subgraph_jvp(const qb_graph *source, qb_forward forward, const bool *has_tangent, const bool *require,
                          bool *has_tangent_out, qb_graph **out)
{
    qb_graph *target = NULL;
    qb_scratch scratch = {0};
    QB_TRY(qb_graph_like(source, &target));
    qb_status status = write_jvp(source, target, forward, has_tangent, require, has_tangent_out, &scratch);
    qb_arena_free(&scratch.arena);
    if (status == QB_OK)
        *out = target;
    else
        qb_graph_release(target);
    return status;
}

/* Into a graph with the inputs of the source. The placeholders of linear inputs are needed by nothing that is
 * output. */
static qb_status write_transpose(const qb_graph *source, qb_graph *target, const bool *linear,
                                 const bool *has_cotangent, const bool *require, bool *has_result, qb_scratch *scratch,
                                 qb_graph **out)
{
    int inputs = source->input_count, outputs = source->output_count, linears = 0, kept = 0, results = 0;
    qb_value *values = qb_scratch_values(scratch, outputs), *cotangents = qb_scratch_values(scratch, outputs);
    qb_value *placeholder = qb_scratch_values(scratch, inputs), *result = qb_scratch_values(scratch, inputs);
    int *order = qb_scratch_take(scratch, inputs + outputs, sizeof *order);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_inline(source, target, target->inputs, values));
    for (int i = 0; i < inputs; i++) {
        if (linear[i])
            placeholder[linears++] = target->inputs[i];
        else
            order[kept++] = i;
    }
    for (int i = 0; i < outputs; i++) {
        if (!has_cotangent[i])
            continue;
        order[kept++] = target->input_count;
        QB_TRY(qb_graph_input_like(target, NULL, source, source->outputs[i], &cotangents[i]));
    }
    QB_TRY(qb_transpose(target, linears, placeholder, outputs, values, cotangents, result));
    for (int i = 0, k = 0; i < inputs; i++) {
        if (!linear[i])
            continue;
        qb_value cotangent = result[k++];
        has_result[i] = cotangent != QB_NONE || (require && require[i]);
        if (!has_result[i])
            continue;
        results++;
        QB_TRY(output(target, qb_or_zeros(target, cotangent, source, source->inputs[i])));
    }
    return qb_graph_rearrange(target, kept, order, results, NULL, out);
}

qb_status qb_subgraph_transpose(const qb_graph *source, const bool *linear, const bool *has_cotangent,
                                const bool *require, bool *has_result, qb_graph **out)
{
    qb_graph *target = NULL;
    qb_scratch scratch = {0};
    QB_TRY(qb_graph_like(source, &target));
    qb_status status = write_transpose(source, target, linear, has_cotangent, require, has_result, &scratch, out);
    qb_arena_free(&scratch.arena);
    qb_graph_release(target);
    return status;
}

qb_status qb_subgraph_optimize(const qb_graph *source, const bool *wanted, qb_graph **out)
{
    int *outputs = qb_allocate((size_t)source->output_count * sizeof *outputs), count = 0;
    if (!outputs)
        return qb_fail_memory();
    for (int i = 0; i < source->output_count; i++)
        if (wanted[i])
            outputs[count++] = i;
    qb_graph *chosen = NULL;
    qb_status status = qb_graph_rearrange(source, source->input_count, NULL, count, outputs, &chosen);
    if (status == QB_OK)
        status = qb_optimize(chosen, out);
    qb_graph_release(chosen);
    qb_free(outputs);
    return status;
}

qb_status qb_refine_inline(qb_rule *r, const qb_graph *source, const qb_value *operands)
{
    qb_graph *small;
    qb_value *results = qb_allocate((size_t)source->output_count * sizeof *results);
    if (!results)
        return qb_fail_memory();
    qb_status status = qb_subgraph_optimize(source, r->used, &small);
    if (status == QB_OK) {
        status = qb_inline(small, r->graph, operands, results);
        qb_graph_release(small);
    }
    for (int i = 0, k = 0; status == QB_OK && i < source->output_count; i++)
        if (r->used[i])
            r->refined_result[i] = results[k++];
    qb_free(results);
    return status;
}

qb_status qb_mark_live_inputs(const qb_graph *graph, bool *live)
{
    bool *values = qb_allocate((size_t)graph->value_count);
    if (!values)
        return qb_fail_memory();
    qb_mark_live(graph, graph->output_count, graph->outputs, values);
    for (int i = 0; i < graph->input_count; i++)
        live[i] = live[i] || values[graph->inputs[i]];
    qb_free(values);
    return QB_OK;
}

qb_status qb_subgraph_keep_inputs(qb_graph **graph, int count, const int *inputs)
{
    qb_graph *chosen;
    QB_TRY(qb_graph_rearrange(*graph, count, inputs, (*graph)->output_count, NULL, &chosen));
    qb_graph_release(*graph);
    *graph = chosen;
    return QB_OK;
}
