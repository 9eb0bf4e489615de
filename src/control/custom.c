/* Functions with derivatives of their own.
 *
 *   custom_jvp  body, and a rule: operands and tangents to results and tangents
 *   custom_vjp  body; forward: operands to results and residuals; backward: operands, residuals and cotangents of the
 *               results to cotangents of the arguments
 *   pullback    what forward mode makes of a custom_vjp: tangents to tangents, linear. Nothing is known of it but its
 *               transpose, which is backward. Reverse mode transposes it away; nothing can run it.
 *   custom_end  the innermost call of a function whose rule calls the function itself: a value without a derivative.
 *               Rules are traced ahead, so such a rule is traced to a certain depth, which is an order of derivatives.
 *
 * All graphs of a node have the node's operands as their first inputs: the arguments of the function, then what its
 * parts captured. Derivatives by captured values are refused: the user's rule says nothing of them. Nodes that no
 * transform asks for a derivative are replaced by their body when a program is made. */
#include "control/control.h"
#include "transforms/transforms.h"

enum { BODY, RULE, FORWARD = 1, JVP_ARGUMENTS, BACKWARD = 2, VJP_ARGUMENTS };

static bool is_floating(const qb_graph *graph, qb_value value)
{
    return qb_dtype_is_floating(graph->values[value].dtype);
}

static int count_results(int operand_count, const qb_attribute *attribute)
{
    (void)operand_count;
    return attribute[BODY].graph->output_count;
}

static qb_status body_infer(const qb_inference *inference)
{
    const qb_graph *body = inference->attribute[BODY].graph;
    if (body->input_count != inference->operand_count)
        return qb_fail(QB_ERROR_INTERNAL, "%s: %d inputs, but %d operands", inference->op->name, (int)body->input_count,
                       inference->operand_count);
    for (int i = 0; i < body->input_count; i++)
        if (!qb_value_has_type(body, body->inputs[i], &inference->operand[i]))
            return qb_fail(QB_ERROR_VALUE, "%s: input %d is not like the operand", inference->op->name, i);
    for (int i = 0; i < body->output_count; i++)
        qb_value_type(body, body->outputs[i], &inference->result[i]);
    return QB_OK;
}

static void refine_to_body(qb_rule *r)
{
    qb_status status = qb_refine_inline(r, r->attribute[BODY].graph, r->operand);
    if (status != QB_OK)
        (void)qb_graph_fail(r->graph, status);
}

static void finish(qb_rule *r, qb_status status, qb_scratch *scratch)
{
    qb_arena_free(&scratch->arena);
    if (status != QB_OK)
        (void)qb_graph_fail(r->graph, status);
}

static qb_status refuse_captures(const qb_rule *r, int arguments)
{
    for (int i = arguments; i < r->operand_count; i++)
        if (r->tangent[i] != QB_NONE)
            return qb_fail(QB_ERROR_VALUE,
                           "%s: differentiating by an array that the function or its rule closed over; its derivative "
                           "is not known to the rule: pass the array as an argument",
                           r->op->name);
    return QB_OK;
}

/* ---- Batching graphs */

/* A batched graph under construction: inputs like the operands of the rule's node first. */
typedef struct batched {
    const qb_rule *rule;
    qb_graph *graph;
    qb_value *inputs;
    bool *mapped; /* of each input */
    int count;
    qb_value *values;
    bool *value_mapped;
} batched;

static qb_status begin_batched(batched *b, const qb_rule *r, const qb_graph *source, qb_scratch *scratch)
{
    *b = (batched){.rule = r,
                   .inputs = qb_scratch_values(scratch, source->input_count),
                   .mapped = qb_scratch_take(scratch, source->input_count, sizeof *b->mapped),
                   .values = qb_scratch_values(scratch, source->output_count),
                   .value_mapped = qb_scratch_take(scratch, source->output_count, sizeof *b->value_mapped)};
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_create(&b->graph));
    for (int i = 0; i < r->operand_count && i < source->input_count; i++) {
        b->mapped[b->count] = r->mapped[i];
        QB_TRY(qb_graph_input_like(b->graph, NULL, r->graph, r->operand[i], &b->inputs[b->count++]));
    }
    return QB_OK;
}

/* A further input like one of the source, over the batch where `mapped`. */
static qb_status add_batched_input(batched *b, const qb_graph *source, qb_value value, bool mapped)
{
    const qb_value_info *info = &source->values[value];
    int64_t shape[QB_MAX_RANK + 1] = {b->rule->batch_size};
    memcpy(shape + 1, info->shape, (size_t)info->rank * sizeof *shape);
    b->mapped[b->count] = mapped;
    return qb_graph_input(b->graph, NULL, info->dtype, info->rank + mapped, mapped ? shape : shape + 1,
                          &b->inputs[b->count++]);
}

static qb_status run_batched(batched *b, const qb_graph *source)
{
    return qb_vmap(source, b->graph, b->inputs, b->mapped, b->rule->batch_size, b->values, b->value_mapped);
}

/* Output i as mapped as wanted: repeated over the batch, or (a cotangent of something that all examples share)
 * summed. */
static qb_status add_batched_output(batched *b, int i, bool mapped)
{
    qb_value value = b->values[i];
    if (mapped && !b->value_mapped[i])
        value = qb_broadcast_leading(b->graph, value, b->rule->batch_size);
    if (!mapped && b->value_mapped[i])
        value = qb_reduce_sum(b->graph, value, 1, (int64_t[]){0});
    return value < 0 ? qb_graph_take_status(b->graph) : qb_graph_output(b->graph, value);
}

static qb_graph *end_batched(batched *b, qb_status status)
{
    if (status == QB_OK)
        return b->graph;
    qb_graph_release(b->graph);
    return NULL;
}

/* The batched body (or forward), its first `count` outputs as mapped as said, further ones as they come. */
static qb_status batch_primal(const qb_rule *r, const qb_graph *source, int count, const bool *mapped,
                              qb_scratch *scratch, bool *found, qb_graph **out)
{
    batched b;
    qb_status status = begin_batched(&b, r, source, scratch);
    if (status == QB_OK)
        status = run_batched(&b, source);
    for (int i = 0; status == QB_OK && i < source->output_count; i++)
        status = add_batched_output(&b, i, i < count && mapped ? mapped[i] : b.value_mapped[i]);
    if (status == QB_OK)
        memcpy(found, b.value_mapped, (size_t)source->output_count * sizeof *found);
    *out = end_batched(&b, status);
    return status;
}

/* ---- custom_jvp */

static qb_status jvp_infer(const qb_inference *inference)
{
    const qb_graph *body = inference->attribute[BODY].graph, *rule = inference->attribute[RULE].graph;
    QB_TRY(body_infer(inference));
    int results = 0;
    for (int i = 0; i < body->output_count; i++)
        results += is_floating(body, body->outputs[i]);
    if (rule->output_count != body->output_count + results)
        return qb_fail(QB_ERROR_INTERNAL, "custom_jvp: the rule has %d outputs", (int)rule->output_count);
    for (int i = 0, t = body->output_count; i < body->output_count; i++) {
        if (!qb_value_has_type(rule, rule->outputs[i], &inference->result[i]) ||
            (is_floating(body, body->outputs[i]) &&
             !qb_value_has_type(rule, rule->outputs[t++], &inference->result[i])))
            return qb_fail(QB_ERROR_VALUE, "custom_jvp: result %d of the rule is not like that of the function", i);
    }
    return QB_OK;
}

/* The rule on tangents (zeros where there are none), as it stands. */
static qb_status apply_rule(qb_rule *r, const qb_graph *rule, int arguments, qb_scratch *scratch)
{
    int count = r->operand_count;
    qb_value *inputs = qb_scratch_values(scratch, rule->input_count);
    qb_value *outputs = qb_scratch_values(scratch, rule->output_count);
    if (scratch->failed)
        return qb_fail_memory();
    memcpy(inputs, r->operand, (size_t)count * sizeof *inputs);
    for (int i = 0; i < arguments; i++)
        if (is_floating(r->graph, r->operand[i]))
            inputs[count++] = qb_or_zeros(r->graph, r->tangent[i], r->graph, r->operand[i]);
    QB_TRY(qb_graph_take_status(r->graph));
    QB_TRY(qb_inline(rule, r->graph, inputs, outputs));
    for (int i = 0, t = r->result_count; i < r->result_count; i++) {
        r->result[i] = outputs[i];
        if (is_floating(r->graph, outputs[i]))
            r->result_tangent[i] = outputs[t++];
    }
    return QB_OK;
}

/* `both` with zeros for the inputs marked in `point`, which the outputs listed do not need. */
static qb_status without_point(const qb_graph *both, const bool *point, int count, const int *output,
                               qb_scratch *scratch, qb_graph **out)
{
    qb_graph *chosen = NULL, *target = NULL;
    qb_value *arguments = qb_scratch_values(scratch, both->input_count);
    qb_value *values = qb_scratch_values(scratch, count);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_rearrange(both, both->input_count, NULL, count, output, &chosen));
    qb_status status = qb_graph_create(&target);
    for (int i = 0; status == QB_OK && i < both->input_count; i++) {
        if (point[i])
            arguments[i] = qb_or_zeros(target, QB_NONE, both, both->inputs[i]);
        else
            status = qb_graph_input_like(target, NULL, both, both->inputs[i], &arguments[i]);
    }
    if (status == QB_OK)
        status = qb_graph_take_status(target);
    if (status == QB_OK)
        status = qb_inline(chosen, target, arguments, values);
    for (int i = 0; status == QB_OK && i < count; i++)
        status = qb_graph_output(target, values[i]);
    qb_graph_release(chosen);
    if (status == QB_OK)
        *out = target;
    else
        qb_graph_release(target);
    return status;
}

/* Outputs: results, then tangents of the second tangents. Fails where one of them needs an input marked in `point`;
 * that is asked result by result, since a rule made by jvp may compute results and tangents in one loop. */
static qb_status at_no_point(const qb_graph *both, const bool *point, int results, int tangents, qb_scratch *scratch,
                             qb_graph **out)
{
    bool *wanted = qb_scratch_take(scratch, both->output_count, sizeof *wanted);
    bool *needed = qb_scratch_take(scratch, both->value_count, sizeof *needed);
    int *output = qb_scratch_take(scratch, both->output_count, sizeof *output), made = 0;
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < both->output_count; i++) {
        wanted[i] = i < results || i >= tangents;
        if (wanted[i])
            output[made++] = i;
    }
    QB_TRY(qb_mark_needed(both, wanted, needed));
    for (int i = 0; i < both->input_count; i++)
        if (point[i] && needed[both->inputs[i]])
            return qb_fail(QB_ERROR_VALUE,
                           "custom_jvp: the rule is not linear in the tangents, so it has no reverse mode: the "
                           "tangent of the result must be linear in them, and the result not depend on them");
    return without_point(both, point, made, output, scratch, out);
}

/* The rule is linear in its tangents, so it is its own derivative in them; and that derivative has the form that can be
 * transposed. Outputs: results, and their tangents with makes[results + ...]. */
static qb_status linear_rule(const qb_rule *r, const qb_graph *rule, qb_graph **out, bool *makes, qb_scratch *scratch)
{
    int inputs = rule->input_count;
    bool *is_tangent = qb_scratch_take(scratch, 2 * inputs, sizeof *is_tangent);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = r->operand_count; i < inputs; i++)
        is_tangent[i] = true;
    qb_graph *both = NULL;
    QB_TRY(qb_subgraph_jvp(rule, QB_FORWARD_SEPARATE, is_tangent, NULL, makes, &both));
    qb_status status = at_no_point(both, is_tangent, r->result_count, rule->output_count, scratch, out);
    qb_graph_release(both);
    return status;
}

static qb_status apply_linear_rule(qb_rule *r, const qb_graph *rule, int arguments, qb_scratch *scratch)
{
    qb_graph *linear = NULL;
    int count = r->operand_count;
    bool *makes = qb_scratch_take(scratch, rule->output_count, sizeof *makes);
    qb_value *inputs = qb_scratch_values(scratch, rule->input_count);
    qb_value *outputs = qb_scratch_values(scratch, 2 * rule->output_count);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(linear_rule(r, rule, &linear, makes, scratch));
    memcpy(inputs, r->operand, (size_t)count * sizeof *inputs);
    for (int i = 0; i < arguments; i++)
        if (is_floating(r->graph, r->operand[i]))
            inputs[count++] = qb_or_zeros(r->graph, r->tangent[i], r->graph, r->operand[i]);
    qb_status status = qb_graph_take_status(r->graph);
    if (status == QB_OK)
        status = qb_inline(linear, r->graph, inputs, outputs);
    qb_graph_release(linear);
    QB_TRY(status);
    for (int i = 0, t = r->result_count, place = r->result_count; i < r->result_count; i++) {
        r->result[i] = outputs[i];
        if (is_floating(r->graph, outputs[i]) && makes[t++])
            r->result_tangent[i] = outputs[place++];
    }
    return QB_OK;
}

static qb_status custom_jvp(qb_rule *r, qb_scratch *scratch)
{
    const qb_graph *rule = r->attribute[RULE].graph;
    int arguments = (int)r->attribute[JVP_ARGUMENTS].integer;
    QB_TRY(refuse_captures(r, arguments));
    return r->forward == QB_FORWARD_SEPARATE ? apply_linear_rule(r, rule, arguments, scratch)
                                             : apply_rule(r, rule, arguments, scratch);
}

static void custom_jvp_jvp(qb_rule *r)
{
    qb_scratch scratch = {0};
    finish(r, custom_jvp(r, &scratch), &scratch);
}

static qb_status batch_rule(const qb_rule *r, const bool *mapped, bool *found, qb_scratch *scratch, qb_graph **out)
{
    const qb_graph *rule = r->attribute[RULE].graph;
    int arguments = (int)r->attribute[JVP_ARGUMENTS].integer;
    batched b;
    qb_status status = begin_batched(&b, r, rule, scratch);
    for (int i = 0, t = r->operand_count; status == QB_OK && i < arguments; i++)
        if (is_floating(r->graph, r->operand[i]))
            status = add_batched_input(&b, rule, rule->inputs[t++], r->mapped[i]);
    if (status == QB_OK)
        status = run_batched(&b, rule);
    for (int i = 0, t = r->result_count; status == QB_OK && i < r->result_count; i++) {
        found[i] = b.value_mapped[i];
        if (is_floating(rule, rule->outputs[i]))
            found[i] = found[i] || b.value_mapped[t++];
    }
    for (int i = 0; status == QB_OK && i < r->result_count; i++)
        status = add_batched_output(&b, i, mapped[i]);
    for (int i = 0, t = r->result_count; status == QB_OK && i < r->result_count; i++)
        if (is_floating(rule, rule->outputs[i]))
            status = add_batched_output(&b, t++, mapped[i]);
    *out = end_batched(&b, status);
    return status;
}

static void release(int count, qb_graph **graphs)
{
    for (int i = 0; i < count; i++) {
        qb_graph_release(graphs[i]);
        graphs[i] = NULL;
    }
}

/* Adds flags to others; whether there is a new one. */
static bool adopt(bool *mapped, const bool *found, int count)
{
    bool changed = false;
    for (int i = 0; i < count; i++) {
        changed = changed || (found[i] && !mapped[i]);
        mapped[i] = mapped[i] || found[i];
    }
    return changed;
}

static qb_status custom_jvp_batched(qb_rule *r, qb_graph **graphs, qb_scratch *scratch)
{
    bool *mapped = qb_scratch_take(scratch, r->result_count, sizeof *mapped);
    bool *found = qb_scratch_take(scratch, r->result_count, sizeof *found);
    if (scratch->failed)
        return qb_fail_memory();
    for (bool first = true, changed = true; changed; first = false) { /* again where the rule maps more than the body */
        release(2, graphs);
        QB_TRY(batch_primal(r, r->attribute[BODY].graph, r->result_count, first ? NULL : mapped, scratch, found,
                            &graphs[0]));
        (void)adopt(mapped, found, r->result_count);
        QB_TRY(batch_rule(r, mapped, found, scratch, &graphs[1]));
        changed = adopt(mapped, found, r->result_count);
    }
    qb_attribute attributes[] = {qb_subgraph(graphs[0]), qb_subgraph(graphs[1]), r->attribute[JVP_ARGUMENTS]};
    memcpy(r->result_mapped, mapped, (size_t)r->result_count * sizeof *mapped);
    (void)qb_emit_all(r->graph, r->op, r->operand_count, r->operand, attributes, r->batched_result);
    return qb_graph_take_status(r->graph);
}

static void custom_jvp_batch(qb_rule *r)
{
    qb_scratch scratch = {0};
    qb_graph *graphs[2] = {NULL, NULL};
    qb_status status = custom_jvp_batched(r, graphs, &scratch);
    release(2, graphs);
    finish(r, status, &scratch);
}

const qb_op qb_op_custom_jvp = {.name = "custom_jvp",
                                .summary = "a function with a forward derivative of its own",
                                .arity = -1,
                                .count_results = count_results,
                                .flags = QB_OP_REGION,
                                .attribute_count = 3,
                                .attribute_name = {"body", "rule", "arguments"},
                                .lane = QB_LANE_NONE,
                                .infer = jvp_infer,
                                .jvp = custom_jvp_jvp,
                                .batch = custom_jvp_batch,
                                .flops = qb_flops_of_body,
                                .refine = refine_to_body};

/* ---- custom_vjp */

static int residual_count(const qb_attribute *attribute)
{
    return attribute[FORWARD].graph->output_count - attribute[BODY].graph->output_count;
}

static qb_status vjp_infer(const qb_inference *inference)
{
    const qb_attribute *attribute = inference->attribute;
    const qb_graph *forward = attribute[FORWARD].graph, *backward = attribute[BACKWARD].graph;
    QB_TRY(body_infer(inference));
    int count = attribute[BODY].graph->output_count, cotangents = 0;
    for (int i = 0; i < count; i++) {
        if (i >= forward->output_count || !qb_value_has_type(forward, forward->outputs[i], &inference->result[i]))
            return qb_fail(QB_ERROR_VALUE, "custom_vjp: result %d of fwd is not like that of the function", i);
        cotangents += is_floating(forward, forward->outputs[i]);
    }
    if (backward->input_count != inference->operand_count + residual_count(attribute) + cotangents)
        return qb_fail(QB_ERROR_INTERNAL, "custom_vjp: bwd has %d inputs", (int)backward->input_count);
    return QB_OK;
}

/* The backward graph with the outputs that belong to the arguments that have a tangent. */
static qb_status chosen_backward(const qb_rule *r, int arguments, qb_scratch *scratch, qb_graph **out)
{
    const qb_graph *backward = r->attribute[BACKWARD].graph;
    int *outputs = qb_scratch_take(scratch, backward->output_count, sizeof *outputs), count = 0, floating = 0;
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < arguments; i++) {
        if (!is_floating(r->graph, r->operand[i]))
            continue;
        if (r->tangent[i] != QB_NONE)
            outputs[count++] = floating;
        floating++;
    }
    return qb_graph_rearrange(backward, backward->input_count, NULL, count, outputs, out);
}

static qb_status custom_vjp(qb_rule *r, qb_graph **backward, qb_scratch *scratch)
{
    const qb_graph *forward = r->attribute[FORWARD].graph;
    int arguments = (int)r->attribute[VJP_ARGUMENTS].integer, residuals = residual_count(r->attribute);
    int known = r->operand_count + residuals, count = known;
    qb_value *outputs = qb_scratch_values(scratch, forward->output_count);
    qb_value *operands = qb_scratch_values(scratch, known + arguments);
    qb_value *results = qb_scratch_values(scratch, r->result_count);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(refuse_captures(r, arguments));
    if (r->forward == QB_FORWARD_TOGETHER)
        return qb_refuse_forward();
    QB_TRY(chosen_backward(r, arguments, scratch, backward));
    QB_TRY(qb_inline(forward, r->graph, r->operand, outputs));
    memcpy(operands, r->operand, (size_t)r->operand_count * sizeof *operands);
    memcpy(operands + r->operand_count, outputs + r->result_count, (size_t)residuals * sizeof *operands);
    for (int i = 0; i < arguments; i++)
        if (r->tangent[i] != QB_NONE)
            operands[count++] = r->tangent[i];
    qb_attribute attributes[] = {qb_subgraph(*backward), qb_int(known)};
    memcpy(r->result, outputs, (size_t)r->result_count * sizeof *outputs);
    if ((*backward)->input_count == known) /* no floating result */
        return QB_OK;
    if (!qb_emit_all(r->graph, &qb_op_pullback, count, operands, attributes, results))
        return qb_graph_take_status(r->graph);
    for (int i = 0, t = 0; i < r->result_count; i++)
        if (is_floating(r->graph, outputs[i]))
            r->result_tangent[i] = results[t++];
    return QB_OK;
}

static void custom_vjp_jvp(qb_rule *r)
{
    qb_scratch scratch = {0};
    qb_graph *backward = NULL;
    qb_status status = custom_vjp(r, &backward, &scratch);
    qb_graph_release(backward);
    finish(r, status, &scratch);
}

/* The batched backward graph of a custom_vjp: residuals and results are mapped as told. */
static qb_status batch_backward(const qb_rule *r, const bool *result_mapped, const bool *residual_mapped,
                                qb_scratch *scratch, qb_graph **out)
{
    const qb_graph *backward = r->attribute[BACKWARD].graph, *body = r->attribute[BODY].graph;
    int residuals = residual_count(r->attribute), input = r->operand_count;
    batched b;
    qb_status status = begin_batched(&b, r, backward, scratch);
    for (int i = 0; status == QB_OK && i < residuals; i++)
        status = add_batched_input(&b, backward, backward->inputs[input++], residual_mapped[i]);
    for (int i = 0; status == QB_OK && i < r->result_count; i++)
        if (is_floating(body, body->outputs[i]))
            status = add_batched_input(&b, backward, backward->inputs[input++], result_mapped[i]);
    if (status == QB_OK)
        status = run_batched(&b, backward);
    for (int i = 0, k = 0; status == QB_OK && k < backward->output_count; i++)
        if (is_floating(r->graph, r->operand[i]))
            status = add_batched_output(&b, k++, r->mapped[i]);
    *out = end_batched(&b, status);
    return status;
}

static qb_status custom_vjp_batched(qb_rule *r, qb_graph **graphs, qb_scratch *scratch)
{
    const qb_graph *body = r->attribute[BODY].graph, *forward = r->attribute[FORWARD].graph;
    bool *mapped = qb_scratch_take(scratch, r->result_count, sizeof *mapped);
    bool *found = qb_scratch_take(scratch, forward->output_count, sizeof *found);
    if (scratch->failed)
        return qb_fail_memory();
    for (bool first = true, changed = true; changed; first = false) { /* again where forward maps more than the body */
        release(2, graphs);
        QB_TRY(batch_primal(r, body, r->result_count, first ? NULL : mapped, scratch, found, &graphs[0]));
        (void)adopt(mapped, found, r->result_count);
        QB_TRY(batch_primal(r, forward, r->result_count, mapped, scratch, found, &graphs[1]));
        changed = adopt(mapped, found, r->result_count);
    }
    QB_TRY(batch_backward(r, mapped, found + r->result_count, scratch, &graphs[2]));
    qb_attribute attributes[] = {qb_subgraph(graphs[0]), qb_subgraph(graphs[1]), qb_subgraph(graphs[2]),
                                 r->attribute[VJP_ARGUMENTS]};
    memcpy(r->result_mapped, mapped, (size_t)r->result_count * sizeof *mapped);
    (void)qb_emit_all(r->graph, r->op, r->operand_count, r->operand, attributes, r->batched_result);
    return qb_graph_take_status(r->graph);
}

static void custom_vjp_batch(qb_rule *r)
{
    qb_scratch scratch = {0};
    qb_graph *graphs[3] = {NULL, NULL, NULL};
    qb_status status = custom_vjp_batched(r, graphs, &scratch);
    release(3, graphs);
    finish(r, status, &scratch);
}

const qb_op qb_op_custom_vjp = {.name = "custom_vjp",
                                .summary = "a function with a reverse derivative of its own",
                                .arity = -1,
                                .count_results = count_results,
                                .flags = QB_OP_REGION | QB_OP_REVERSE_ONLY,
                                .attribute_count = 4,
                                .attribute_name = {"body", "forward", "backward", "arguments"},
                                .lane = QB_LANE_NONE,
                                .infer = vjp_infer,
                                .jvp = custom_vjp_jvp,
                                .batch = custom_vjp_batch,
                                .flops = qb_flops_of_body,
                                .refine = refine_to_body};

/* ---- pullback: operands [0, known) are known, the others tangents; results are the tangents of the function's */

static int count_pullback_results(int operand_count, const qb_attribute *attribute)
{
    (void)operand_count;
    return attribute[0].graph->input_count - (int)attribute[1].integer;
}

static qb_status pullback_infer(const qb_inference *inference)
{
    const qb_graph *backward = inference->attribute[0].graph;
    int known = (int)inference->attribute[1].integer;
    if (inference->operand_count - known != backward->output_count)
        return qb_fail(QB_ERROR_INTERNAL, "pullback: %d tangents, but %d cotangents", inference->operand_count - known,
                       (int)backward->output_count);
    for (int i = 0; i < backward->output_count; i++) {
        const qb_type *type = &inference->operand[known + i];
        if (!qb_value_has_type(backward, backward->outputs[i], type))
            return qb_fail(QB_ERROR_VALUE,
                           "custom_vjp: bwd returned a cotangent that is not like its argument, which is %s",
                           qb_print_type(type->dtype, type->rank, type->shape).text);
    }
    for (int i = known; i < backward->input_count; i++)
        qb_value_type(backward, backward->inputs[i], &inference->result[i - known]);
    return QB_OK;
}

static void pullback_jvp(qb_rule *r)
{
    (void)qb_graph_fail(r->graph, qb_refuse_forward());
}

static qb_status pull_back(qb_rule *r, qb_scratch *scratch)
{
    const qb_graph *backward = r->attribute[0].graph;
    int known = (int)r->attribute[1].integer;
    qb_value *arguments = qb_scratch_values(scratch, backward->input_count);
    qb_value *outputs = qb_scratch_values(scratch, backward->output_count);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < known; i++) {
        if (r->linear[i])
            return qb_fail(QB_ERROR_INTERNAL, "pullback: what is known depends on a tangent");
        arguments[i] = r->operand[i];
    }
    for (int i = known; i < backward->input_count; i++)
        arguments[i] = qb_or_zeros(r->graph, r->cotangent[i - known], backward, backward->inputs[i]);
    QB_TRY(qb_graph_take_status(r->graph));
    QB_TRY(qb_inline(backward, r->graph, arguments, outputs));
    for (int i = 0; i < backward->output_count; i++)
        if (r->linear[known + i])
            r->operand_cotangent[known + i] = outputs[i];
    return QB_OK;
}

static void pullback_transpose(qb_rule *r)
{
    qb_scratch scratch = {0};
    finish(r, pull_back(r, &scratch), &scratch);
}

const qb_op qb_op_pullback = {.name = "pullback",
                              .summary = "the derivative of a custom_vjp: only its transpose can be computed",
                              .arity = -1,
                              .count_results = count_pullback_results,
                              .flags = QB_OP_REGION | QB_OP_REVERSE_ONLY | QB_OP_TRANSPOSE_ONLY,
                              .attribute_count = 2,
                              .attribute_name = {"backward", "known"},
                              .lane = QB_LANE_NONE,
                              .infer = pullback_infer,
                              .jvp = pullback_jvp,
                              .transpose = pullback_transpose,
                              .refine = pullback_jvp};

/* ---- custom_end */

static void end_jvp(qb_rule *r)
{
    (void)qb_graph_fail(
        r->graph,
        qb_fail(QB_ERROR_VALUE,
                "a custom rule that calls its own function has derivatives up to order %lld; for higher ones write the "
                "rule without the function itself, or use jet or derivatives on a function without custom rules",
                (long long)r->attribute[1].integer));
}

static void end_batch(qb_rule *r)
{
    qb_scratch scratch = {0};
    qb_graph *body = NULL;
    qb_status status = batch_primal(r, r->attribute[BODY].graph, 0, NULL, &scratch, r->result_mapped, &body);
    if (status == QB_OK) {
        qb_attribute attributes[] = {qb_subgraph(body), r->attribute[1]};
        (void)qb_emit_all(r->graph, r->op, r->operand_count, r->operand, attributes, r->batched_result);
        status = qb_graph_take_status(r->graph);
    }
    qb_graph_release(body);
    finish(r, status, &scratch);
}

const qb_op qb_op_custom_end = {.name = "custom_end",
                                .summary = "a function with a derivative of its own, where its derivatives end",
                                .arity = -1,
                                .count_results = count_results,
                                .flags = QB_OP_REGION,
                                .attribute_count = 2,
                                .attribute_name = {"body", "order"},
                                .lane = QB_LANE_NONE,
                                .infer = body_infer,
                                .jvp = end_jvp,
                                .batch = end_batch,
                                .refine = refine_to_body};
