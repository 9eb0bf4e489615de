/* checkpoint: a graph as one node, whose derivative computes it again instead of keeping what it needs of it.
 *
 * The linear part of its derivative is another such node, on the same operands and the tangents: it starts from the
 * operands. Nodes within a node are never merged with nodes outside, so the recomputation stays. */
#include "control/control.h"
#include "transforms/transforms.h"

static int count_results(int operand_count, const qb_attribute *attribute)
{
    (void)operand_count;
    return attribute[0].graph->output_count;
}

static qb_status checkpoint_infer(const qb_inference *inference)
{
    const qb_graph *body = inference->attribute[0].graph;
    if (body->input_count != inference->operand_count)
        return qb_fail(QB_ERROR_INTERNAL, "checkpoint: %d inputs, but %d operands", (int)body->input_count,
                       inference->operand_count);
    for (int i = 0; i < body->input_count; i++) {
        if (!qb_value_has_type(body, body->inputs[i], &inference->operand[i]))
            return qb_fail(QB_ERROR_VALUE, "checkpoint: input %d is not like the operand", i);
    }
    for (int i = 0; i < body->output_count; i++)
        qb_value_type(body, body->outputs[i], &inference->result[i]);
    return QB_OK;
}

static bool emit(qb_graph *graph, qb_graph *body, int count, const qb_value *operands, qb_value *results)
{
    qb_attribute attribute = qb_subgraph(body);
    return qb_emit_all(graph, &qb_op_checkpoint, count, operands, &attribute, results);
}

static void finish(qb_rule *r, qb_status status, qb_graph *body, qb_scratch *scratch)
{
    qb_graph_release(body);
    qb_arena_free(&scratch->arena);
    if (status != QB_OK)
        (void)qb_graph_fail(r->graph, status);
}

/* Once differentiated in reverse, a function with a reverse derivative of its own is what its forward pass computes,
 * which can be differentiated in any mode: so is a graph that has one inside. `both` begins with the graph's values. */
static qb_status replace_primal(qb_rule *r, const qb_graph *both)
{
    qb_graph *primal;
    QB_TRY(qb_graph_rearrange(both, r->operand_count, NULL, r->result_count, NULL, &primal));
    bool made = emit(r->graph, primal, r->operand_count, r->operand, r->result);
    qb_graph_release(primal);
    return made ? QB_OK : qb_graph_take_status(r->graph);
}

static qb_status jvp(qb_rule *r, qb_graph **tangents, qb_scratch *scratch)
{
    qb_graph *both = NULL, *body = r->attribute[0].graph;
    int count = r->operand_count;
    bool *has_tangent = qb_scratch_take(scratch, r->operand_count, sizeof *has_tangent);
    bool *makes = qb_scratch_take(scratch, r->result_count, sizeof *makes);
    int *outputs = qb_scratch_take(scratch, 2 * r->result_count, sizeof *outputs), made = 0;
    qb_value *operands = qb_scratch_values(scratch, 2 * r->operand_count);
    qb_value *results = qb_scratch_values(scratch, 2 * r->result_count);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < r->operand_count; i++) {
        operands[i] = r->operand[i];
        has_tangent[i] = r->tangent[i] != QB_NONE;
        if (has_tangent[i])
            operands[count++] = r->tangent[i];
    }
    QB_TRY(qb_subgraph_jvp(body, r->forward, has_tangent, NULL, makes, &both));
    bool together = r->forward == QB_FORWARD_TOGETHER;
    for (int i = together ? 0 : r->result_count; i < both->output_count; i++)
        outputs[made++] = i;
    qb_status status = qb_graph_rearrange(both, both->input_count, NULL, made, outputs, tangents);
    if (status == QB_OK && !together && qb_is_reverse_only(body))
        status = replace_primal(r, both);
    qb_graph_release(both);
    QB_TRY(status);
    if (made > 0 && !emit(r->graph, *tangents, count, operands, results))
        return qb_graph_take_status(r->graph);
    int place = together ? r->result_count : 0;
    for (int i = 0; i < r->result_count; i++) {
        if (together)
            r->result[i] = results[i];
        if (makes[i])
            r->result_tangent[i] = results[place++];
    }
    return QB_OK;
}

static void checkpoint_jvp(qb_rule *r)
{
    qb_scratch scratch = {0};
    qb_graph *tangents = NULL;
    qb_status status = jvp(r, &tangents, &scratch);
    finish(r, status, tangents, &scratch);
}

static qb_status transpose(qb_rule *r, qb_graph **transposed, qb_scratch *scratch)
{
    int count = 0, place = 0;
    bool *has_cotangent = qb_scratch_take(scratch, r->result_count, sizeof *has_cotangent);
    bool *makes = qb_scratch_take(scratch, r->operand_count, sizeof *makes);
    qb_value *operands = qb_scratch_values(scratch, r->operand_count + r->result_count);
    qb_value *results = qb_scratch_values(scratch, r->operand_count);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < r->operand_count; i++)
        if (!r->linear[i])
            operands[count++] = r->operand[i];
    for (int i = 0; i < r->result_count; i++) {
        has_cotangent[i] = r->cotangent[i] != QB_NONE;
        if (has_cotangent[i])
            operands[count++] = r->cotangent[i];
    }
    QB_TRY(qb_subgraph_transpose(r->attribute[0].graph, r->linear, has_cotangent, NULL, makes, transposed));
    if ((*transposed)->output_count > 0 && !emit(r->graph, *transposed, count, operands, results))
        return qb_graph_take_status(r->graph);
    for (int i = 0; i < r->operand_count; i++)
        if (r->linear[i] && makes[i])
            r->operand_cotangent[i] = results[place++];
    return QB_OK;
}

static void checkpoint_transpose(qb_rule *r)
{
    qb_scratch scratch = {0};
    qb_graph *transposed = NULL;
    qb_status status = transpose(r, &transposed, &scratch);
    finish(r, status, transposed, &scratch);
}

static qb_status batch(qb_rule *r, qb_graph **batched, qb_scratch *scratch)
{
    const qb_graph *body = r->attribute[0].graph;
    int count = r->operand_count;
    qb_value *operands = qb_scratch_values(scratch, count + 1), *inputs = qb_scratch_values(scratch, count);
    qb_value *values = qb_scratch_values(scratch, r->result_count), active = QB_NONE;
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_create(batched));
    for (int i = 0; i < r->operand_count; i++) {
        operands[i] = r->operand[i];
        QB_TRY(qb_graph_input_like(*batched, NULL, r->graph, r->operand[i], &inputs[i]));
    }
    if (r->active != QB_NONE) {
        operands[count++] = r->active;
        QB_TRY(qb_graph_input_like(*batched, NULL, r->graph, r->active, &active));
    }
    QB_TRY(qb_vmap_active(body, *batched, active, inputs, r->mapped, r->batch_size, values, r->result_mapped));
    for (int i = 0; i < r->result_count; i++)
        QB_TRY(qb_graph_output(*batched, values[i]));
    return emit(r->graph, *batched, count, operands, r->batched_result) ? QB_OK : qb_graph_take_status(r->graph);
}

static void checkpoint_batch(qb_rule *r)
{
    qb_scratch scratch = {0};
    qb_graph *batched = NULL;
    qb_status status = batch(r, &batched, &scratch);
    finish(r, status, batched, &scratch);
}

static qb_status checkpoint_needs(const qb_node *node, const bool *used, bool *needed)
{
    const qb_graph *body = node->attributes[0].graph;
    qb_scratch scratch = {0};
    bool *values = qb_scratch_take(&scratch, body->value_count, sizeof *values);
    qb_status status = scratch.failed ? qb_fail_memory() : qb_mark_needed(body, used, values);
    for (int i = 0; status == QB_OK && i < node->operand_count; i++)
        needed[i] = values[body->inputs[i]];
    qb_arena_free(&scratch.arena);
    return status;
}

static qb_status refine(qb_rule *r, qb_graph **small, qb_scratch *scratch)
{
    int count = 0;
    bool *live = qb_scratch_take(scratch, r->operand_count, sizeof *live);
    int *input = qb_scratch_take(scratch, r->operand_count, sizeof *input);
    qb_value *operands = qb_scratch_values(scratch, r->operand_count);
    qb_value *results = qb_scratch_values(scratch, r->result_count);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_subgraph_optimize(r->attribute[0].graph, r->used, small));
    QB_TRY(qb_mark_live_inputs(*small, live));
    for (int i = 0; i < r->operand_count; i++) {
        if (!live[i])
            continue;
        input[count] = i;
        operands[count++] = r->operand[i];
    }
    QB_TRY(qb_subgraph_keep_inputs(small, count, input));
    if (!emit(r->graph, *small, count, operands, results))
        return qb_graph_take_status(r->graph);
    for (int i = 0, k = 0; i < r->result_count; i++)
        if (r->used[i])
            r->refined_result[i] = results[k++];
    return QB_OK;
}

static void checkpoint_refine(qb_rule *r)
{
    qb_scratch scratch = {0};
    qb_graph *small = NULL;
    qb_status status = refine(r, &small, &scratch);
    finish(r, status, small, &scratch);
}

const qb_op qb_op_checkpoint = {.name = "checkpoint",
                                .summary = "a graph that is computed again where its derivative needs it",
                                .arity = -1,
                                .count_results = count_results,
                                .flags = QB_OP_REGION,
                                .attribute_count = 1,
                                .attribute_name = {"body"},
                                .lane = QB_LANE_NONE,
                                .infer = checkpoint_infer,
                                .jvp = checkpoint_jvp,
                                .transpose = checkpoint_transpose,
                                .batch = checkpoint_batch,
                                .flops = qb_flops_of_body,
                                .refine = checkpoint_refine,
                                .needs = checkpoint_needs};
