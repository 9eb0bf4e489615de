/* Loops with less in them: results that nobody uses are dropped with all that only they need; carries that do not
 * change become constants; what depends on constants alone is computed once, before the loop; no loop is left where
 * it runs not more than once. */
#include "control/control.h"
#include "passes/pipeline.h"
#include "transforms/transforms.h"

/* ---- What is needed */

qb_status qb_loop_needs(const qb_node *node, const bool *used, bool *needed)
{
    qb_loop loop = qb_loop_of(node->attributes, node->operand_count, NULL);
    qb_scratch scratch = {0};
    bool *outputs = qb_scratch_take(&scratch, loop.body->output_count, sizeof *outputs);
    bool *inputs = qb_scratch_take(&scratch, loop.body->input_count, sizeof *inputs);
    qb_status status = scratch.failed ? qb_fail_memory() : qb_loop_needed(&loop, used, outputs, inputs);
    int first = node->operand_count - qb_loop_operands(&loop);
    for (int i = first; status == QB_OK && i < node->operand_count; i++)
        needed[i] = inputs[1 + i - first];
    qb_arena_free(&scratch.arena);
    return status;
}

/* ---- The smaller loop */

typedef struct refinement {
    qb_rule *rule;
    qb_loop loop;
    bool *outputs, *needed;     /* of the body */
    bool *fixed;                /* of each carry: the body hands it on unchanged */
    int *given;                 /* inputs of the body that are not made again inside, in order */
    int given_count, lasting;   /* all; those before the sequences */
    qb_graph *body, *condition; /* with these inputs, optimized; then with those that are kept */
    qb_loop small;
    qb_value *operands;
} refinement;

/* A number, or one repeated: made again in the body rather than handed in. */
static bool is_remade(const qb_graph *graph, qb_value value)
{
    const qb_node *node = qb_node_of(graph, value);
    if (node->op == &qb_op_broadcast)
        node = qb_node_of(graph, qb_operand(graph, node, 0));
    return node->op == &qb_op_constant && node->attributes[0].tensor->rank == 0;
}

static qb_value remake(const qb_graph *from, qb_value value, qb_graph *graph)
{
    const qb_node *node = qb_node_of(from, value), *number = node;
    if (node->op == &qb_op_broadcast)
        number = qb_node_of(from, qb_operand(from, node, 0));
    qb_value made;
    qb_status status = qb_graph_constant(graph, number->attributes[0].tensor, &made);
    if (status != QB_OK)
        return qb_graph_fail(graph, status);
    return number == node ? made : qb_emit(graph, node->op, 1, &made, node->attributes);
}

/* The source (body or condition) with the given inputs and the outputs that are wanted, optimized. What is not
 * needed may still be an input: it is dropped once the operations inside no longer name it. */
static qb_status optimize(const refinement *f, const qb_graph *source, int input_count, const bool *wanted,
                          qb_scratch *scratch, qb_graph **out)
{
    const qb_graph *body = f->loop.body;
    qb_value *arguments = qb_scratch_values(scratch, body->input_count);
    qb_value *values = qb_scratch_values(scratch, source->output_count);
    qb_graph *graph = NULL;
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_create(&graph));
    qb_status status = QB_OK;
    for (int i = 0; status == QB_OK && i < input_count; i++)
        status = qb_graph_input_like(graph, NULL, body, body->inputs[f->given[i]], &arguments[f->given[i]]);
    for (int i = 1; status == QB_OK && i <= f->loop.consts; i++)
        if (arguments[i] == QB_NONE)
            arguments[i] = remake(f->rule->graph, f->loop.operands[i - 1], graph);
    if (status == QB_OK)
        status = qb_graph_take_status(graph);
    if (status == QB_OK)
        status = qb_inline(source, graph, arguments, values);
    for (int i = 0; status == QB_OK && i < source->output_count; i++)
        if (!wanted || (wanted[i] && !(i < f->loop.carries && f->fixed[i])))
            status = qb_graph_output(graph, values[i]);
    if (status == QB_OK)
        status = qb_optimize(graph, out);
    qb_graph_release(graph);
    return status;
}

/* Places among the given inputs, in the order of the new loop: constants (fixed carries are such), carries,
 * sequences. */
static int choose(refinement *f, const bool *live, int *kept)
{
    int first = 1 + f->loop.consts, count = 1;
    kept[0] = 0; /* the index */
    for (int part = 0; part < 3; part++) {
        int before = count;
        for (int i = 1; i < f->given_count; i++) {
            int from = f->given[i], carry = from - first;
            bool is_carry = carry >= 0 && carry < f->loop.carries, changes = is_carry && !f->fixed[carry];
            bool belongs = part == 0   ? i < f->lasting && live[i] && !changes
                           : part == 1 ? changes && f->outputs[carry]
                                       : i >= f->lasting && live[i];
            if (belongs)
                kept[count++] = i;
        }
        *(part == 0 ? &f->small.consts : part == 1 ? &f->small.carries : &f->small.sequences) = count - before;
    }
    for (int i = 1; i < count; i++)
        f->operands[i - 1] = f->loop.operands[f->given[kept[i]] - 1];
    f->small.operands = f->operands;
    return count;
}

static qb_status make_small(refinement *f, qb_scratch *scratch)
{
    const qb_loop *loop = &f->loop;
    bool *live = qb_scratch_take(scratch, loop->body->input_count, sizeof *live);
    int *kept = qb_scratch_take(scratch, loop->body->input_count, sizeof *kept);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < loop->body->input_count; i++) {
        bool constant = i > 0 && i <= loop->consts;
        if (!constant || !f->needed[i] || !is_remade(f->rule->graph, loop->operands[i - 1]))
            f->given[f->given_count++] = i;
        f->lasting = i <= loop->consts + loop->carries ? f->given_count : f->lasting;
    }
    QB_TRY(optimize(f, loop->body, f->given_count, f->outputs, scratch, &f->body));
    QB_TRY(qb_mark_live_inputs(f->body, live));
    if (loop->condition) {
        QB_TRY(optimize(f, loop->condition, f->lasting, NULL, scratch, &f->condition));
        QB_TRY(qb_mark_live_inputs(f->condition, live));
    }
    int count = choose(f, live, kept);
    QB_TRY(qb_subgraph_keep_inputs(&f->body, count, kept));
    if (loop->condition)
        QB_TRY(qb_subgraph_keep_inputs(&f->condition, 1 + f->small.consts + f->small.carries, kept));
    f->small.body = f->body;
    f->small.condition = f->condition;
    return QB_OK;
}

/* ---- Moving constants out */

/* Whether everything there may be computed even if the loop does not run. */
static bool may_move(const refinement *f, const qb_graph *early)
{
    bool always_runs = f->small.count == QB_NONE && !f->small.condition;
    return !early->has_effects && (always_runs || !qb_has_regions(early)); /* effects happen in every iteration */
}

/* Puts what is computed from constants alone before the loop: the body split at what changes. */
static qb_status hoist(refinement *f, qb_scratch *scratch)
{
    qb_graph *graph = f->rule->graph, *early = NULL, *late = NULL, *moved = NULL;
    qb_loop *loop = &f->small;
    int inputs = loop->body->input_count;
    bool *changes = qb_scratch_take(scratch, inputs, sizeof *changes);
    int *order = qb_scratch_take(scratch, inputs + loop->body->value_count, sizeof *order), count = 0;
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < inputs; i++)
        changes[i] = i == 0 || i > loop->consts;
    QB_TRY(qb_split(loop->body, changes, 0, false, &early, &late));
    int residuals = early->output_count;
    bool moves = false;
    for (int i = 0; i < residuals; i++)
        moves = moves || !(qb_node_of(early, early->outputs[i])->op->flags & QB_OP_UNIQUE);
    qb_status status = QB_OK;
    if (moves && may_move(f, early)) {
        qb_value *operands = qb_scratch_values(scratch, residuals + inputs);
        qb_value *arguments = qb_scratch_values(scratch, loop->consts);
        order[count++] = residuals; /* the index */
        for (int i = 0; i < residuals; i++)
            order[count++] = i;
        for (int i = 1; i < inputs - loop->consts; i++)
            order[count++] = residuals + i;
        for (int i = 0; i < loop->consts && !scratch->failed; i++)
            arguments[i] = loop->operands[i];
        status = scratch->failed ? qb_fail_memory() : qb_inline(early, graph, arguments, operands);
        if (status == QB_OK)
            status = qb_graph_rearrange(late, count, order, late->output_count, NULL, &moved);
        if (status == QB_OK) {
            for (int i = loop->consts; i < qb_loop_operands(loop); i++)
                operands[residuals + i - loop->consts] = loop->operands[i];
            loop->operands = operands;
            loop->consts = residuals;
            qb_graph_release(f->body);
            f->body = loop->body = moved;
        }
    }
    qb_graph_release(early);
    qb_graph_release(late);
    return status;
}

/* ---- Results */

/* The loop that runs once: its body, at the only index. */
static qb_status inline_once(const refinement *f, qb_value *results, qb_scratch *scratch)
{
    const qb_loop *loop = &f->small;
    qb_graph *graph = f->rule->graph;
    qb_value *arguments = qb_scratch_values(scratch, loop->body->input_count);
    if (scratch->failed)
        return qb_fail_memory();
    arguments[0] = qb_scalar(graph, QB_INT64, 0);
    for (int i = 1; i < loop->body->input_count; i++) {
        const qb_value_info *info = &loop->body->values[loop->body->inputs[i]];
        arguments[i] = loop->operands[i - 1];
        if (i > loop->consts + loop->carries)
            arguments[i] = qb_reshape(graph, arguments[i], info->rank, info->shape);
    }
    QB_TRY(qb_inline(loop->body, graph, arguments, results));
    for (int i = loop->carries; i < loop->body->output_count; i++)
        results[i] = qb_broadcast_leading(graph, results[i], 1);
    return qb_graph_take_status(graph);
}

static void skip(const refinement *f, qb_value *results)
{
    const qb_loop *loop = &f->small;
    for (int i = 0; i < loop->carries; i++)
        results[i] = loop->operands[loop->consts + i];
    for (int i = loop->carries; i < loop->body->output_count; i++) {
        const qb_value_info *info = &loop->body->values[loop->body->outputs[i]];
        int64_t shape[QB_MAX_RANK] = {0};
        memcpy(shape + 1, info->shape, (size_t)info->rank * sizeof *shape);
        results[i] = qb_splat(f->rule->graph, info->dtype, info->rank + 1, shape, 0);
    }
}

static qb_status make_results(const refinement *f, qb_value *results, qb_scratch *scratch)
{
    const qb_loop *loop = &f->small;
    bool simple = loop->count == QB_NONE && !loop->condition;
    if (simple && loop->capacity == 1)
        return inline_once(f, results, scratch);
    if (simple && loop->capacity == 0)
        skip(f, results);
    else
        (void)qb_loop_emit(f->rule->graph, loop, results);
    return qb_graph_take_status(f->rule->graph);
}

static qb_status refine(refinement *f, qb_scratch *scratch)
{
    const qb_loop *loop = &f->loop;
    qb_rule *r = f->rule;
    int inputs = loop->body->input_count, outputs = loop->body->output_count;
    f->outputs = qb_scratch_take(scratch, outputs, sizeof *f->outputs);
    f->needed = qb_scratch_take(scratch, inputs, sizeof *f->needed);
    f->fixed = qb_scratch_take(scratch, loop->carries, sizeof *f->fixed);
    f->given = qb_scratch_take(scratch, inputs, sizeof *f->given);
    f->operands = qb_scratch_values(scratch, inputs);
    qb_value *results = qb_scratch_values(scratch, outputs + 1);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_loop_needed(loop, r->used, f->outputs, f->needed));
    for (int i = 0; i < loop->carries; i++)
        f->fixed[i] = loop->body->outputs[i] == loop->body->inputs[1 + loop->consts + i];
    f->small = (qb_loop){.capacity = loop->capacity, .reverse = loop->reverse, .count = loop->count};
    QB_TRY(make_small(f, scratch));
    if (!loop->condition)
        QB_TRY(hoist(f, scratch));
    QB_TRY(make_results(f, results, scratch));
    for (int i = 0, k = 0; i < outputs; i++) {
        if (i < loop->carries && f->fixed[i])
            r->refined_result[i] = loop->operands[loop->consts + i];
        else if (f->outputs[i])
            r->refined_result[i] = results[k++];
    }
    if (loop->condition)
        r->refined_result[outputs] = results[f->small.body->output_count];
    return QB_OK;
}

void qb_loop_refine(qb_rule *r)
{
    refinement f = {.rule = r, .loop = qb_loop_of(r->attribute, r->operand_count, r->operand)};
    qb_scratch scratch = {0};
    qb_status status = refine(&f, &scratch);
    qb_graph_release(f.body);
    qb_graph_release(f.condition);
    qb_arena_free(&scratch.arena);
    if (status != QB_OK)
        (void)qb_graph_fail(r->graph, status);
}
