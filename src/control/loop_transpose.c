/* The transpose of a linear loop: the loop run backwards over cotangents.
 *
 * Cotangents of the carries are the new carries; those of constants are summed in further carries; those of
 * sequences are stacked. A linear loop is one that forward mode cut off (loop_jvp.c), or such a one batched: all its
 * carries are linear, and it has no condition. */
#include "control/control.h"
#include "transforms/transforms.h"

typedef struct reversal {
    qb_rule *rule;
    qb_loop loop;
    int first;           /* the first operand of the rule that the body sees */
    bool *linear;        /* of each input of the body */
    bool *has_cotangent; /* of each output of the body */
    bool *makes;         /* of each input: whether it gets a cotangent */
    bool *needs;
    qb_graph *step; /* the body's transpose; inputs: what is not linear, then cotangents; outputs: cotangents */
    qb_graph *body;
    qb_value *operands, *arguments; /* of the new loop; of `step` in its body */
    int *place; /* of each linear input of the body: the result of the new loop that is its cotangent; -1 */
} reversal;

static const qb_value *cotangents(const reversal *v)
{
    return v->rule->cotangent;
}

/* Carries have a cotangent where their last value has one or the body gives them one. */
static qb_status find_cotangents(reversal *v)
{
    const qb_loop *loop = &v->loop;
    int carry = 1 + loop->consts;
    for (int i = 0; i < loop->body->output_count; i++)
        v->has_cotangent[i] = cotangents(v)[i] != QB_NONE;
    QB_TRY(qb_loop_reach_back(loop, v->has_cotangent));
    for (int i = 0; i < loop->carries; i++)
        v->needs[carry + i] = v->has_cotangent[i];
    QB_TRY(qb_subgraph_transpose(loop->body, v->linear, v->has_cotangent, v->needs, v->makes, &v->step));
    for (int i = 0; i < loop->carries; i++)
        if (v->makes[carry + i] && !v->has_cotangent[i])
            return qb_fail(QB_ERROR_INTERNAL, "loop: carry %d has a cotangent against expectation", i);
    return QB_OK;
}

/* An input of the new body for operand `operand`, with the type of a value of the body; returns it. */
static qb_status add_input(reversal *v, int *count, qb_value operand, qb_value like, qb_value *input)
{
    v->operands[(*count)++] = operand;
    return qb_graph_input_like(v->body, NULL, v->loop.body, like, input);
}

/* What is not linear among the body's inputs first .. first+count-1, in the order of the step's inputs. */
static qb_status add_known(reversal *v, int first, int count, int *operands)
{
    int place = 0;
    for (int i = 0; i < first; i++)
        place += !v->linear[i];
    for (int i = first; i < first + count; i++)
        if (!v->linear[i])
            QB_TRY(add_input(v, operands, v->loop.operands[i - 1], v->loop.body->inputs[i], &v->arguments[place++]));
    return QB_OK;
}

/* Inputs for the cotangents of outputs first .. first+count-1. */
static qb_status add_cotangents(reversal *v, int first, int count, bool stacked, int *operands)
{
    const qb_graph *body = v->loop.body;
    int place = 0;
    for (int i = 0; i < body->input_count; i++)
        place += !v->linear[i];
    for (int i = 0; i < first; i++)
        place += v->has_cotangent[i];
    for (int i = first; i < first + count; i++) {
        if (!v->has_cotangent[i])
            continue;
        qb_value cotangent = cotangents(v)[i];
        if (!stacked)
            cotangent = qb_or_zeros(v->rule->graph, cotangent, body, body->outputs[i]);
        QB_TRY(add_input(v, operands, cotangent, body->outputs[i], &v->arguments[place++]));
    }
    return QB_OK;
}

/* The new body's outputs, out of the step's: cotangents of carries, sums for constants, cotangents of sequences. */
static qb_status add_outputs(reversal *v, const qb_value *results, const qb_value *sums)
{
    const qb_loop *loop = &v->loop;
    int consts = loop->consts, carries = loop->carries, inputs = loop->body->input_count, outputs = 0;
    const int order[3][2] = {{1 + consts, carries}, {1, consts}, {1 + consts + carries, loop->sequences}};
    for (int part = 0; part < 3; part++) {
        int place = 0;
        for (int i = 0; i < order[part][0]; i++)
            place += v->makes[i];
        for (int i = order[part][0]; i < order[part][0] + order[part][1] && i < inputs; i++) {
            if (!v->makes[i])
                continue;
            qb_value value = results[place++];
            if (part == 1)
                value = qb_add(v->body, sums[i], value);
            QB_TRY(value < 0 ? qb_graph_take_status(v->body) : qb_graph_output(v->body, value));
            v->place[i] = outputs++;
        }
    }
    return QB_OK;
}

static qb_status make_body(reversal *v, qb_loop *out, qb_scratch *scratch)
{
    const qb_loop *loop = &v->loop;
    const qb_graph *body = loop->body;
    int consts = loop->consts, carries = loop->carries, count = 0;
    qb_value *sums = qb_scratch_values(scratch, body->input_count);
    qb_value *results = qb_scratch_values(scratch, v->step->output_count);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_create(&v->body));
    QB_TRY(qb_graph_input(v->body, NULL, QB_INT64, 0, NULL, &v->arguments[0]));
    QB_TRY(add_known(v, 1, consts, &count));
    out->consts = count;
    QB_TRY(add_cotangents(v, 0, carries, false, &count));
    for (int i = 1; i <= consts; i++)
        if (v->makes[i])
            QB_TRY(add_input(v, &count, qb_or_zeros(v->rule->graph, QB_NONE, body, body->inputs[i]), body->inputs[i],
                             &sums[i]));
    out->carries = count - out->consts;
    QB_TRY(add_known(v, 1 + consts + carries, loop->sequences, &count));
    QB_TRY(add_cotangents(v, carries, body->output_count - carries, true, &count));
    out->sequences = count - out->consts - out->carries;
    QB_TRY(qb_inline(v->step, v->body, v->arguments, results));
    QB_TRY(add_outputs(v, results, sums));
    out->body = v->body;
    out->operands = v->operands;
    return QB_OK;
}

static qb_status begin(reversal *v, qb_scratch *scratch)
{
    const qb_loop *loop = &v->loop;
    int inputs = loop->body->input_count, outputs = loop->body->output_count;
    v->linear = qb_scratch_take(scratch, inputs, sizeof *v->linear);
    v->has_cotangent = qb_scratch_take(scratch, outputs, sizeof *v->has_cotangent);
    v->makes = qb_scratch_take(scratch, inputs, sizeof *v->makes);
    v->needs = qb_scratch_take(scratch, inputs, sizeof *v->needs);
    v->operands = qb_scratch_values(scratch, 2 * inputs + outputs);
    v->arguments = qb_scratch_values(scratch, inputs + outputs);
    v->place = qb_scratch_take(scratch, inputs, sizeof *v->place);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 1; i < inputs; i++)
        v->linear[i] = v->rule->linear[v->first + i - 1] || (i > loop->consts && i <= loop->consts + loop->carries);
    return QB_OK;
}

static qb_status transpose(reversal *v, qb_scratch *scratch)
{
    qb_rule *r = v->rule;
    QB_TRY(begin(v, scratch));
    if (v->loop.condition)
        return qb_fail(QB_ERROR_INTERNAL, "loop: a linear loop has no condition");
    QB_TRY(find_cotangents(v));
    qb_loop out = {.capacity = v->loop.capacity, .reverse = !v->loop.reverse, .count = v->loop.count};
    QB_TRY(make_body(v, &out, scratch));
    qb_value *results = qb_scratch_values(scratch, v->body->output_count);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_take_status(r->graph));
    if (!qb_loop_emit(r->graph, &out, results))
        return qb_graph_take_status(r->graph);
    for (int i = 1; i < v->loop.body->input_count; i++)
        if (v->makes[i] && r->linear[v->first + i - 1])
            r->operand_cotangent[v->first + i - 1] = results[v->place[i]];
    return QB_OK;
}

void qb_loop_transpose(qb_rule *r)
{
    reversal v = {.rule = r, .loop = qb_loop_of(r->attribute, r->operand_count, r->operand)};
    qb_scratch scratch = {0};
    v.first = r->operand_count - qb_loop_operands(&v.loop);
    qb_status status = transpose(&v, &scratch);
    qb_graph_release(v.step);
    qb_graph_release(v.body);
    qb_arena_free(&scratch.arena);
    if (status != QB_OK)
        (void)qb_graph_fail(r->graph, status);
}
