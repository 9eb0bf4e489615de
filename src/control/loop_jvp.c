/* Forward mode of loops.
 *
 * The derivative of a loop is the loop over primals and tangents together. Where it will be transposed, or split at
 * its tangents, it is cut in two: the early loop carries the primals and stacks what the tangents need of each
 * iteration, the late loop reads the stacks and is linear. Not stacked are values that do not change from one
 * iteration to the next (computed once, outside), elements of sequences (the sequence is read again), and the index. */
#include "base/allocate.h"
#include "control/control.h"
#include "transforms/transforms.h"

/* ---- The loop over primals and tangents */

/* Where the inputs and outputs of the joint body come from: the list of (primal, tangent) inputs of a part of the
 * loop. */
typedef struct joint {
    qb_loop loop;
    qb_graph *jvp;       /* inputs: those of the body, then tangents */
    bool *has_tangent;   /* of each input of the body */
    bool *needs, *makes; /* of each output of the body: whether it must have, and has, a tangent */
    int *inputs;         /* the joint body's inputs, in terms of the jvp's */
    int *outputs;        /* likewise */
    bool *late;          /* of each input of the joint body: whether it is a tangent */
    qb_value *operands;  /* of the joint loop */
    int input_count, output_count;
} joint;

/* Carries get a tangent where their first value or the body gives them one. */
static qb_status find_tangents(joint *j, const qb_loop *loop, qb_forward forward)
{
    int first = 1 + loop->consts;
    QB_TRY(qb_loop_reach(loop, true, j->has_tangent));
    for (int i = 0; i < loop->carries; i++)
        j->needs[i] = j->has_tangent[first + i];
    QB_TRY(qb_subgraph_jvp(loop->body, forward, j->has_tangent, j->needs, j->makes, &j->jvp));
    for (int i = 0; i < loop->carries; i++)
        if (j->makes[i] && !j->has_tangent[first + i])
            return qb_fail(QB_ERROR_INTERNAL, "loop: carry %d has a tangent against expectation", i);
    return QB_OK;
}

/* Body inputs first .. first+count-1, then the tangents of those that have one: how many in all. */
static int add_part(joint *j, const qb_rule *r, const qb_loop *loop, int first, int count)
{
    int before = j->input_count, tangent = loop->body->input_count;
    for (int i = first; i < first + count; i++, j->input_count++) {
        j->inputs[j->input_count] = i;
        if (i > 0)
            j->operands[j->input_count - 1] = loop->operands[i - 1];
    }
    for (int i = 0; i < first; i++)
        tangent += j->has_tangent[i];
    const qb_value *tangents = r->tangent + (r->operand_count - qb_loop_operands(loop));
    for (int i = first; i < first + count; i++) {
        if (!j->has_tangent[i])
            continue;
        j->inputs[j->input_count] = tangent++;
        j->late[j->input_count] = true;
        j->operands[j->input_count - 1] = qb_or_zeros(r->graph, tangents[i - 1], loop->body, loop->body->inputs[i]);
        j->input_count++;
    }
    return j->input_count - before;
}

static void add_results(joint *j, const qb_loop *loop, int first, int count)
{
    int tangent = loop->body->output_count;
    for (int i = first; i < first + count; i++)
        j->outputs[j->output_count++] = i;
    for (int i = 0; i < first; i++)
        tangent += j->makes[i];
    for (int i = first; i < first + count; i++)
        if (j->makes[i])
            j->outputs[j->output_count++] = tangent++;
}

/* A condition for the joint loop: it sees the tangents, and does not look. */
static qb_status widen_condition(joint *j, const qb_graph *condition, qb_scratch *scratch)
{
    int count = 1 + j->loop.consts + j->loop.carries;
    qb_value *arguments = qb_scratch_values(scratch, condition->input_count), output;
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_create(&j->loop.condition));
    for (int i = 0, k = 0; i < count; i++) {
        qb_value input;
        QB_TRY(qb_graph_input_like(j->loop.condition, NULL, j->loop.body, j->loop.body->inputs[i], &input));
        if (!j->late[i])
            arguments[k++] = input;
    }
    QB_TRY(qb_inline(condition, j->loop.condition, arguments, &output));
    return qb_graph_output(j->loop.condition, output);
}

static qb_status make_joint(joint *j, const qb_rule *r, const qb_loop *loop, qb_scratch *scratch)
{
    int inputs = loop->body->input_count, outputs = loop->body->output_count;
    j->has_tangent = qb_scratch_take(scratch, inputs, sizeof *j->has_tangent);
    j->needs = qb_scratch_take(scratch, outputs, sizeof *j->needs);
    j->makes = qb_scratch_take(scratch, outputs, sizeof *j->makes);
    j->inputs = qb_scratch_take(scratch, 2 * inputs, sizeof *j->inputs);
    j->outputs = qb_scratch_take(scratch, 2 * outputs, sizeof *j->outputs);
    j->late = qb_scratch_take(scratch, 2 * inputs, sizeof *j->late);
    j->operands = qb_scratch_values(scratch, 2 * inputs);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 1; i < inputs; i++)
        j->has_tangent[i] = r->tangent[r->operand_count - inputs + i] != QB_NONE;
    QB_TRY(find_tangents(j, loop, r->forward));
    j->loop =
        (qb_loop){.capacity = loop->capacity, .reverse = loop->reverse, .count = loop->count, .operands = j->operands};
    (void)add_part(j, r, loop, 0, 1);
    j->loop.consts = add_part(j, r, loop, 1, loop->consts);
    j->loop.carries = add_part(j, r, loop, 1 + loop->consts, loop->carries);
    j->loop.sequences = add_part(j, r, loop, 1 + loop->consts + loop->carries, loop->sequences);
    add_results(j, loop, 0, loop->carries);
    add_results(j, loop, loop->carries, outputs - loop->carries);
    QB_TRY(qb_graph_rearrange(j->jvp, j->input_count, j->inputs, j->output_count, j->outputs, &j->loop.body));
    return loop->condition ? widen_condition(j, loop->condition, scratch) : QB_OK;
}

static void end_joint(joint *j)
{
    qb_graph_release(j->jvp);
    qb_graph_release(j->loop.body);
    qb_graph_release(j->loop.condition);
}

/* ---- Cutting a loop */

/* How the late loop gets a value that the early one has. */
typedef enum source { FROM_INDEX, FROM_CONST, FROM_SEQUENCE, FROM_STACK } source;

typedef struct cut {
    const qb_loop *loop;
    const bool *late;             /* of each input of the body */
    qb_graph *early, *late_graph; /* the body, split; late: inputs are residuals, then the late inputs */
    qb_graph *early_body, *late_body, *early_condition;
    bool *output_late; /* of each output of the body */
    int early_count, residual_count;
    source *from; /* of each residual */
    int *number;  /* FROM_CONST: in `constants`; FROM_SEQUENCE: the operand; FROM_STACK: which of them */
    int constant_count, sequence_count, stack_count;
    qb_value *constants;
    qb_value *early_results, *late_results;
} cut;

/* The body's outputs in the order early carries, early ys, late carries, late ys; and the split. */
static qb_status split_body(cut *c, qb_scratch *scratch)
{
    const qb_graph *body = c->loop->body;
    bool *depends = qb_scratch_take(scratch, body->value_count, sizeof *depends);
    int *outputs = qb_scratch_take(scratch, body->output_count, sizeof *outputs), count = 0;
    c->output_late = qb_scratch_take(scratch, body->output_count, sizeof *c->output_late);
    if (scratch->failed)
        return qb_fail_memory();
    qb_mark_dependent(body, c->late, depends);
    for (int i = 0; i < body->output_count; i++)
        c->output_late[i] = i < c->loop->carries ? c->late[1 + c->loop->consts + i] : depends[body->outputs[i]];
    for (int late = 0; late < 2; late++) {
        for (int i = 0; i < body->output_count; i++)
            if (c->output_late[i] == (late != 0))
                outputs[count++] = i;
        c->early_count = late ? c->early_count : count;
    }
    qb_graph *arranged;
    QB_TRY(qb_graph_rearrange(body, body->input_count, NULL, body->output_count, outputs, &arranged));
    qb_status status = qb_split(arranged, c->late, c->early_count, true, &c->early, &c->late_graph);
    qb_graph_release(arranged);
    return status;
}

/* The place of `value` among the inputs of the early graph, as an input of the body; -1: it is none. */
static int body_input(const cut *c, qb_value value)
{
    for (int i = 0, e = 0; i < c->loop->body->input_count; i++) {
        if (c->late[i])
            continue;
        if (c->early->inputs[e++] == value)
            return i;
    }
    return -1;
}

static qb_status classify(cut *c, qb_scratch *scratch)
{
    const qb_loop *loop = c->loop;
    c->residual_count = c->early->output_count - c->early_count;
    bool *changing = qb_scratch_take(scratch, c->early->input_count, sizeof *changing);
    bool *varies = qb_scratch_take(scratch, c->early->value_count, sizeof *varies);
    c->from = qb_scratch_take(scratch, c->residual_count, sizeof *c->from);
    c->number = qb_scratch_take(scratch, c->residual_count, sizeof *c->number);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0, e = 0; i < loop->body->input_count; i++)
        if (!c->late[i])
            changing[e++] = i == 0 || i > loop->consts;
    qb_mark_dependent(c->early, changing, varies);
    for (int r = 0; r < c->residual_count; r++) {
        qb_value value = c->early->outputs[c->early_count + r];
        int input = body_input(c, value);
        if (input == 0) {
            c->from[r] = FROM_INDEX;
        } else if (!varies[value]) {
            c->from[r] = FROM_CONST;
            c->number[r] = c->constant_count++;
        } else if (input > loop->consts + loop->carries) {
            c->from[r] = FROM_SEQUENCE;
            c->number[r] = input - 1;
            c->sequence_count++;
        } else {
            c->from[r] = FROM_STACK;
            c->number[r] = c->stack_count++;
        }
    }
    if (c->stack_count > 0 && loop->capacity < 0)
        return qb_fail(
            QB_ERROR_VALUE,
            "reverse mode through a loop without a limit on its iterations: what it needs of each cannot be "
            "kept. Give while_loop (or fori_loop with traced bounds) max_steps, or use fori_loop with Python "
            "ints as bounds, or forward mode (jvp, jacfwd)");
    return QB_OK;
}

/* Residuals that do not change, computed in the outer graph. */
static qb_status make_constants(cut *c, qb_graph *graph, qb_scratch *scratch)
{
    int *outputs = qb_scratch_take(scratch, c->residual_count, sizeof *outputs), count = 0;
    qb_value *arguments = qb_scratch_values(scratch, c->early->input_count);
    c->constants = qb_scratch_values(scratch, c->constant_count);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0, e = 0; i < c->loop->body->input_count; i++) {
        if (c->late[i])
            continue;
        arguments[e++] = i > 0 && i <= c->loop->consts ? c->loop->operands[i - 1] : QB_NONE;
    }
    for (int r = 0; r < c->residual_count; r++)
        if (c->from[r] == FROM_CONST)
            outputs[count++] = c->early_count + r;
    qb_graph *silent, *chosen; /* effects happen in the iterations */
    QB_TRY(qb_graph_without_effects(c->early, &silent));
    qb_status status = qb_graph_rearrange(silent, silent->input_count, NULL, count, outputs, &chosen);
    qb_graph_release(silent);
    QB_TRY(status);
    status = qb_inline(chosen, graph, arguments, c->constants);
    qb_graph_release(chosen);
    return status;
}

static qb_status early_condition(cut *c, qb_scratch *scratch)
{
    const qb_graph *condition = c->loop->condition;
    int *inputs = qb_scratch_take(scratch, condition->input_count, sizeof *inputs), count = 0, output = 0;
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < condition->input_count; i++)
        if (!c->late[i])
            inputs[count++] = i;
    return qb_graph_rearrange(condition, count, inputs, 1, &output, &c->early_condition);
}

/* Emits the loop over what is early, which stacks. */
static qb_status emit_early(cut *c, qb_graph *graph, qb_scratch *scratch)
{
    const qb_loop *loop = c->loop;
    qb_loop early = {.capacity = loop->capacity, .reverse = loop->reverse, .count = loop->count};
    qb_value *operands = qb_scratch_values(scratch, loop->body->input_count);
    int *outputs = qb_scratch_take(scratch, c->early->output_count, sizeof *outputs), count = 0, kept = 0;
    c->early_results = qb_scratch_values(scratch, c->early_count + c->stack_count + 1);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 1; i < loop->body->input_count; i++) {
        if (c->late[i])
            continue;
        operands[count++] = loop->operands[i - 1];
        early.consts += i <= loop->consts;
        early.carries += i > loop->consts && i <= loop->consts + loop->carries;
        early.sequences += i > loop->consts + loop->carries;
    }
    for (int i = 0; i < c->early->output_count; i++)
        if (i < c->early_count || c->from[i - c->early_count] == FROM_STACK)
            outputs[kept++] = i;
    QB_TRY(qb_graph_rearrange(c->early, c->early->input_count, NULL, kept, outputs, &c->early_body));
    if (loop->condition)
        QB_TRY(early_condition(c, scratch));
    early.body = c->early_body;
    early.condition = c->early_condition;
    early.operands = operands;
    return qb_loop_emit(graph, &early, c->early_results) ? QB_OK : qb_graph_take_status(graph);
}

typedef struct late_builder {
    cut *c;
    qb_loop *late;
    qb_value *operands;
    qb_value *arguments; /* of the late graph */
} late_builder;

static qb_status add_late_operand(late_builder *b, int late_input, qb_value operand, int *part)
{
    const qb_graph *source = b->c->late_graph;
    b->operands[qb_loop_operands(b->late)] = operand;
    (*part)++;
    return qb_graph_input_like(b->c->late_body, NULL, source, source->inputs[late_input], &b->arguments[late_input]);
}

/* The late inputs of one part of the loop: consts, carries or sequences. */
static qb_status add_late_part(late_builder *b, int first, int count, int *part)
{
    const cut *c = b->c;
    int late_input = c->residual_count;
    for (int i = 1; i < first; i++)
        late_input += c->late[i];
    for (int i = first; i < first + count; i++)
        if (c->late[i])
            QB_TRY(add_late_operand(b, late_input++, c->loop->operands[i - 1], part));
    return QB_OK;
}

static qb_status add_residuals(late_builder *b, source from, int *part)
{
    const cut *c = b->c;
    for (int r = 0; r < c->residual_count; r++) {
        if (c->from[r] != from)
            continue;
        qb_value operand = from == FROM_CONST      ? c->constants[c->number[r]]
                           : from == FROM_SEQUENCE ? c->loop->operands[c->number[r]]
                                                   : c->early_results[c->early_count + c->number[r]];
        QB_TRY(add_late_operand(b, r, operand, part));
    }
    return QB_OK;
}

static qb_status emit_late(cut *c, qb_graph *graph, qb_scratch *scratch)
{
    const qb_loop *loop = c->loop;
    int consts = loop->consts, carries = loop->carries, late_outputs = c->late_graph->output_count;
    qb_loop late = {.capacity = loop->capacity, .reverse = loop->reverse, .count = loop->count};
    late_builder b = {.c = c,
                      .late = &late,
                      .operands = qb_scratch_values(scratch, c->late_graph->input_count),
                      .arguments = qb_scratch_values(scratch, c->late_graph->input_count)};
    qb_value *outputs = qb_scratch_values(scratch, late_outputs), index;
    c->late_results = qb_scratch_values(scratch, late_outputs);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_create(&c->late_body));
    QB_TRY(qb_graph_input(c->late_body, NULL, QB_INT64, 0, NULL, &index));
    for (int r = 0; r < c->residual_count; r++)
        if (c->from[r] == FROM_INDEX)
            b.arguments[r] = index;
    QB_TRY(add_residuals(&b, FROM_CONST, &late.consts));
    QB_TRY(add_late_part(&b, 1, consts, &late.consts));
    QB_TRY(add_late_part(&b, 1 + consts, carries, &late.carries));
    QB_TRY(add_residuals(&b, FROM_STACK, &late.sequences));
    QB_TRY(add_residuals(&b, FROM_SEQUENCE, &late.sequences));
    QB_TRY(add_late_part(&b, 1 + consts + carries, loop->sequences, &late.sequences));
    QB_TRY(qb_inline(c->late_graph, c->late_body, b.arguments, outputs));
    for (int i = 0; i < late_outputs; i++)
        QB_TRY(qb_graph_output(c->late_body, outputs[i]));
    late.body = c->late_body;
    late.operands = b.operands;
    if (loop->condition)
        late.count = c->early_results[c->early_count + c->stack_count];
    return qb_loop_emit(graph, &late, c->late_results) ? QB_OK : qb_graph_take_status(graph);
}

static qb_status emit_cut(cut *c, qb_graph *graph, qb_scratch *scratch)
{
    QB_TRY(split_body(c, scratch));
    QB_TRY(classify(c, scratch));
    QB_TRY(make_constants(c, graph, scratch));
    QB_TRY(emit_early(c, graph, scratch));
    return emit_late(c, graph, scratch);
}

static void end_cut(cut *c)
{
    qb_graph_release(c->early);
    qb_graph_release(c->late_graph);
    qb_graph_release(c->early_body);
    qb_graph_release(c->late_body);
    qb_graph_release(c->early_condition);
}

/* Emits the loop as two, the second of which has the results that depend on late inputs. `results` as of
 * qb_loop_emit. */
static qb_status emit_separately(qb_graph *graph, const qb_loop *loop, const bool *late, qb_value *results,
                                 qb_scratch *scratch)
{
    cut c = {.loop = loop, .late = late};
    qb_status status = emit_cut(&c, graph, scratch);
    for (int i = 0, early = 0, later = 0; status == QB_OK && i < loop->body->output_count; i++)
        results[i] = c.output_late[i] ? c.late_results[later++] : c.early_results[early++];
    if (status == QB_OK && loop->condition)
        results[loop->body->output_count] = c.early_results[c.early_count + c.stack_count];
    end_cut(&c);
    return status;
}

/* ---- The rule */

static qb_status jvp(qb_rule *r, joint *j, qb_scratch *scratch)
{
    qb_loop loop = qb_loop_of(r->attribute, r->operand_count, r->operand);
    QB_TRY(make_joint(j, r, &loop, scratch));
    qb_value *results = qb_scratch_values(scratch, j->output_count + 1);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_take_status(r->graph));
    if (r->forward == QB_FORWARD_SEPARATE)
        QB_TRY(emit_separately(r->graph, &j->loop, j->late, results, scratch));
    else if (!qb_loop_emit(r->graph, &j->loop, results))
        return qb_graph_take_status(r->graph);
    int outputs = loop.body->output_count;
    for (int i = 0; i < j->output_count; i++)
        if (j->outputs[i] < outputs)
            r->result[j->outputs[i]] = results[i];
    for (int i = 0, place = outputs; i < outputs; i++) {
        if (!j->makes[i])
            continue;
        for (int k = 0; k < j->output_count; k++)
            if (j->outputs[k] == place)
                r->result_tangent[i] = results[k];
        place++;
    }
    if (loop.condition)
        r->result[outputs] = results[j->output_count];
    return QB_OK;
}

void qb_loop_jvp(qb_rule *r)
{
    joint j = {0};
    qb_scratch scratch = {0};
    qb_status status = jvp(r, &j, &scratch);
    end_joint(&j);
    qb_arena_free(&scratch.arena);
    if (status != QB_OK)
        (void)qb_graph_fail(r->graph, status);
}
