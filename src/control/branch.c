/* switch: one of several graphs on the same operands, chosen by an index. cond is a switch of two.
 *
 * Only the chosen branch runs. Where the index is mapped, all branches are computed and the results selected, loops in
 * them running for the examples that chose them. */
#include "control/control.h"
#include "transforms/transforms.h"

static int branch_count(const qb_attribute *attribute)
{
    return attribute[0].count;
}

static int count_results(int operand_count, const qb_attribute *attribute)
{
    (void)operand_count;
    return attribute[0].graphs[0]->output_count;
}

static bool same_type(const qb_graph *a, qb_value in_a, const qb_graph *b, qb_value in_b)
{
    const qb_value_info *x = &a->values[in_a], *y = &b->values[in_b];
    return x->dtype == y->dtype && qb_shape_equal(x->rank, x->shape, y->rank, y->shape);
}

static qb_status switch_infer(const qb_inference *inference)
{
    const qb_attribute *branches = &inference->attribute[0];
    const qb_graph *first = branches->graphs[0];
    if (inference->operand[0].dtype != QB_INT64 || inference->operand[0].rank != 0)
        return qb_fail(QB_ERROR_VALUE, "switch: the index must be an int64 scalar");
    for (int b = 0; b < branches->count; b++) {
        const qb_graph *branch = branches->graphs[b];
        if (branch->input_count != inference->operand_count - 1 || branch->output_count != first->output_count)
            return qb_fail(QB_ERROR_INTERNAL, "switch: branch %d has %d inputs and %d outputs", b,
                           (int)branch->input_count, (int)branch->output_count);
        for (int i = 0; i < branch->input_count; i++) {
            if (!qb_value_has_type(branch, branch->inputs[i], &inference->operand[i + 1]))
                return qb_fail(QB_ERROR_VALUE, "switch: input %d of branch %d is not like the operand", i, b);
        }
        for (int i = 0; i < branch->output_count; i++)
            if (!same_type(branch, branch->outputs[i], first, first->outputs[i]))
                return qb_fail(QB_ERROR_VALUE, "switch: result %d of branch %d is not like that of branch 0", i, b);
    }
    for (int i = 0; i < first->output_count; i++)
        qb_value_type(first, first->outputs[i], &inference->result[i]);
    return QB_OK;
}

static bool emit(qb_graph *graph, int count, qb_graph *const *branches, int operand_count, const qb_value *operands,
                 qb_value *results)
{
    qb_attribute attribute = qb_subgraphs(count, branches);
    return qb_emit_all(graph, &qb_op_switch, operand_count, operands, &attribute, results);
}

/* Graphs made for each branch, released together. */
typedef struct branches {
    int count;
    qb_graph *const *source;
    qb_graph **made;
} branches;

static branches begin(const qb_attribute *attribute, qb_scratch *scratch)
{
    return (branches){.count = branch_count(attribute),
                      .source = attribute[0].graphs,
                      .made = qb_scratch_take(scratch, branch_count(attribute), sizeof(qb_graph *))};
}

static void release(int count, qb_graph **graphs)
{
    for (int i = 0; graphs && i < count; i++) {
        qb_graph_release(graphs[i]);
        graphs[i] = NULL;
    }
}

/* The rule's last act: what failed is kept in the graph. */
static void finish(qb_rule *r, qb_status status, qb_scratch *scratch)
{
    qb_arena_free(&scratch->arena);
    if (status != QB_OK)
        (void)qb_graph_fail(r->graph, status);
}

/* ---- Forward mode */

/* Branches are transformed on their own, each once (a nest of switches would else be transformed so often as a power
 * of its depth), and then completed: what one branch gives, all give. */
static bool has_all(const bool *own, const bool *all, int count)
{
    return memcmp(own, all, (size_t)count * sizeof *own) == 0;
}

/* Replaces a graph whose outputs from `first` on are those of the results with own[k] by one that has those with
 * all[k], zeros like like[k] of `source` where there was none. */
static qb_status complete(qb_graph **made, int first, int count, const bool *own, const bool *all,
                          const qb_graph *source, const qb_value *like, qb_scratch *scratch)
{
    if (has_all(own, all, count))
        return QB_OK;
    qb_graph *wider = NULL;
    qb_value *values = qb_scratch_values(scratch, (*made)->output_count);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_like(*made, &wider));
    qb_status status = qb_inline(*made, wider, wider->inputs, values);
    for (int i = 0; status == QB_OK && i < first; i++)
        status = qb_graph_output(wider, values[i]);
    for (int i = 0, k = first; status == QB_OK && i < count; i++) {
        if (!all[i])
            continue;
        qb_value value = qb_or_zeros(wider, own[i] ? values[k++] : QB_NONE, source, like[i]);
        status = value < 0 ? qb_graph_take_status(wider) : qb_graph_output(wider, value);
    }
    qb_graph_release(status == QB_OK ? *made : wider);
    if (status == QB_OK)
        *made = wider;
    return status;
}

/* Each branch with tangents; a result has one where a branch gives it one. */
static qb_status differentiate(const qb_rule *r, branches *b, const bool *has_tangent, bool *makes, qb_scratch *scratch)
{
    int outputs = b->source[0]->output_count;
    bool *own = qb_scratch_take(scratch, b->count * outputs, sizeof *own);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < b->count; i++) {
        bool *here = own + i * outputs;
        QB_TRY(qb_subgraph_jvp(b->source[i], r->forward, has_tangent, NULL, here, &b->made[i]));
        for (int k = 0; k < outputs; k++)
            makes[k] = makes[k] || here[k];
    }
    for (int i = 0; i < b->count; i++)
        QB_TRY(complete(&b->made[i], outputs, outputs, own + i * outputs, makes, b->source[i], b->source[i]->outputs,
                        scratch));
    return QB_OK;
}

/* Where the late branches get residuals from: an operand of the switch, or a further result of the early switch, which
 * residuals of one type from different branches share. */
typedef struct residuals {
    qb_graph **early, **late;
    int count;             /* further results */
    const qb_graph **like; /* of each: a graph with a value of its type */
    qb_value *like_value;
    int **place; /* place[branch][residual]: >= 0: a further result; < 0: operand -1 - place */
} residuals;

static int input_index(const qb_graph *graph, qb_value value)
{
    for (int i = 0; i < graph->input_count; i++)
        if (graph->inputs[i] == value)
            return i;
    return -1;
}

/* A further result of that type that the branch does not use yet. */
static int take_place(residuals *s, const qb_graph *early, qb_value value, bool *taken)
{
    for (int i = 0; i < s->count; i++) {
        if (!taken[i] && same_type(s->like[i], s->like_value[i], early, value)) {
            taken[i] = true;
            return i;
        }
    }
    s->like[s->count] = early;
    s->like_value[s->count] = value;
    taken[s->count] = true;
    return s->count++;
}

static qb_status split_branches(const branches *b, const bool *late_input, int early_outputs, residuals *s,
                                qb_scratch *scratch)
{
    int most = 0;
    s->early = qb_scratch_take(scratch, b->count, sizeof(qb_graph *));
    s->late = qb_scratch_take(scratch, b->count, sizeof(qb_graph *));
    s->place = qb_scratch_take(scratch, b->count, sizeof(int *));
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < b->count; i++) {
        QB_TRY(qb_split(b->made[i], late_input, early_outputs, true, &s->early[i], &s->late[i]));
        most += s->early[i]->output_count - early_outputs;
    }
    s->like = qb_scratch_take(scratch, most, sizeof *s->like);
    s->like_value = qb_scratch_take(scratch, most, sizeof *s->like_value);
    bool *taken = qb_scratch_take(scratch, most, sizeof *taken);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < b->count; i++) {
        int count = s->early[i]->output_count - early_outputs;
        s->place[i] = qb_scratch_take(scratch, count, sizeof(int));
        if (scratch->failed)
            return qb_fail_memory();
        memset(taken, 0, (size_t)most * sizeof *taken);
        for (int k = 0; k < count; k++) {
            qb_value value = s->early[i]->outputs[early_outputs + k];
            int input = input_index(s->early[i], value);
            s->place[i][k] = input >= 0 ? -1 - input : take_place(s, s->early[i], value, taken);
        }
    }
    return QB_OK;
}

/* An early branch: its outputs, then the further results, zeros where the branch has none. */
static qb_status early_branch(const residuals *s, int branch, int outputs, qb_scratch *scratch, qb_graph **out)
{
    const qb_graph *early = s->early[branch];
    qb_value *values = qb_scratch_values(scratch, early->output_count);
    qb_value *further = qb_scratch_values(scratch, s->count);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_like(early, out));
    QB_TRY(qb_inline(early, *out, (*out)->inputs, values));
    for (int k = outputs; k < early->output_count; k++)
        if (s->place[branch][k - outputs] >= 0)
            further[s->place[branch][k - outputs]] = values[k];
    for (int i = 0; i < outputs; i++)
        QB_TRY(qb_graph_output(*out, values[i]));
    for (int i = 0; i < s->count; i++) {
        qb_value value = qb_or_zeros(*out, further[i], s->like[i], s->like_value[i]);
        QB_TRY(value < 0 ? qb_graph_take_status(*out) : qb_graph_output(*out, value));
    }
    return QB_OK;
}

/* A late branch on (operands, further results, tangents). */
static qb_status late_branch(const residuals *s, int branch, int outputs, qb_scratch *scratch, qb_graph **out)
{
    const qb_graph *early = s->early[branch], *late = s->late[branch];
    int residual_count = early->output_count - outputs;
    qb_value *inputs = qb_scratch_values(scratch, early->input_count + s->count);
    qb_value *arguments = qb_scratch_values(scratch, late->input_count);
    qb_value *values = qb_scratch_values(scratch, late->output_count);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_create(out));
    for (int i = 0; i < early->input_count; i++)
        QB_TRY(qb_graph_input_like(*out, NULL, early, early->inputs[i], &inputs[i]));
    for (int i = 0; i < s->count; i++)
        QB_TRY(qb_graph_input_like(*out, NULL, s->like[i], s->like_value[i], &inputs[early->input_count + i]));
    for (int k = 0; k < residual_count; k++) {
        int place = s->place[branch][k];
        arguments[k] = inputs[place >= 0 ? early->input_count + place : -1 - place];
    }
    for (int i = residual_count; i < late->input_count; i++)
        QB_TRY(qb_graph_input_like(*out, NULL, late, late->inputs[i], &arguments[i]));
    QB_TRY(qb_inline(late, *out, arguments, values));
    for (int i = 0; i < late->output_count; i++)
        QB_TRY(qb_graph_output(*out, values[i]));
    return QB_OK;
}

/* Two switches: the branches' values and what their tangents need; the tangents. results: values, then tangents. */
static qb_status emit_separately(qb_rule *r, const branches *b, residuals *s, const qb_value *operands,
                                 int operand_count, qb_value *results, qb_scratch *scratch)
{
    int inputs = b->source[0]->input_count, outputs = b->source[0]->output_count;
    int tangents = b->made[0]->output_count - outputs;
    bool *late = qb_scratch_take(scratch, b->made[0]->input_count, sizeof *late);
    qb_graph **graphs = qb_scratch_take(scratch, b->count, sizeof(qb_graph *));
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = inputs; i < b->made[0]->input_count; i++)
        late[i] = true;
    QB_TRY(split_branches(b, late, outputs, s, scratch));
    qb_value *early_results = qb_scratch_values(scratch, outputs + s->count);
    qb_value *all = qb_scratch_values(scratch, operand_count + s->count);
    if (scratch->failed)
        return qb_fail_memory();
    qb_status status = QB_OK;
    for (int i = 0; status == QB_OK && i < b->count; i++)
        status = early_branch(s, i, outputs, scratch, &graphs[i]);
    if (status == QB_OK && !emit(r->graph, b->count, graphs, 1 + inputs, operands, early_results))
        status = qb_graph_take_status(r->graph);
    release(b->count, graphs);
    for (int i = 0; status == QB_OK && i < b->count; i++)
        status = late_branch(s, i, outputs, scratch, &graphs[i]);
    memcpy(all, operands, (size_t)(1 + inputs) * sizeof *all);
    memcpy(all + 1 + inputs, early_results + outputs, (size_t)s->count * sizeof *all);
    memcpy(all + 1 + inputs + s->count, operands + 1 + inputs, (size_t)(operand_count - 1 - inputs) * sizeof *all);
    if (status == QB_OK && tangents > 0 &&
        !emit(r->graph, b->count, graphs, operand_count + s->count, all, results + outputs))
        status = qb_graph_take_status(r->graph);
    memcpy(results, early_results, (size_t)outputs * sizeof *results);
    release(b->count, graphs);
    return status;
}

static qb_status jvp(qb_rule *r, branches *b, residuals *s, qb_scratch *scratch)
{
    int inputs = r->operand_count - 1, outputs = r->result_count, count = r->operand_count;
    bool *has_tangent = qb_scratch_take(scratch, inputs, sizeof *has_tangent);
    bool *makes = qb_scratch_take(scratch, outputs, sizeof *makes);
    qb_value *operands = qb_scratch_values(scratch, 1 + 2 * inputs);
    qb_value *results = qb_scratch_values(scratch, 2 * outputs);
    if (scratch->failed)
        return qb_fail_memory();
    memcpy(operands, r->operand, (size_t)r->operand_count * sizeof *operands);
    for (int i = 0; i < inputs; i++) {
        has_tangent[i] = r->tangent[i + 1] != QB_NONE;
        if (has_tangent[i])
            operands[count++] = r->tangent[i + 1];
    }
    QB_TRY(differentiate(r, b, has_tangent, makes, scratch));
    if (r->forward == QB_FORWARD_SEPARATE)
        QB_TRY(emit_separately(r, b, s, operands, count, results, scratch));
    else if (!emit(r->graph, b->count, b->made, count, operands, results))
        return qb_graph_take_status(r->graph);
    memcpy(r->result, results, (size_t)outputs * sizeof *results);
    for (int i = 0, place = outputs; i < outputs; i++)
        if (makes[i])
            r->result_tangent[i] = results[place++];
    return QB_OK;
}

static void switch_jvp(qb_rule *r)
{
    qb_scratch scratch = {0};
    branches b = begin(r->attribute, &scratch);
    residuals s = {0};
    qb_status status = scratch.failed ? qb_fail_memory() : jvp(r, &b, &s, &scratch);
    release(b.count, b.made);
    release(b.count, s.early);
    release(b.count, s.late);
    finish(r, status, &scratch);
}

/* ---- Transpose */

static qb_status transpose(qb_rule *r, branches *b, qb_scratch *scratch)
{
    int inputs = r->operand_count - 1, outputs = r->result_count, count = 1;
    bool *has_cotangent = qb_scratch_take(scratch, outputs, sizeof *has_cotangent);
    bool *makes = qb_scratch_take(scratch, inputs, sizeof *makes);
    bool *own = qb_scratch_take(scratch, b->count * inputs, sizeof *own);
    qb_value *operands = qb_scratch_values(scratch, 1 + inputs + outputs);
    qb_value *results = qb_scratch_values(scratch, inputs);
    if (scratch->failed)
        return qb_fail_memory();
    operands[0] = r->operand[0];
    for (int i = 1; i <= inputs; i++)
        if (!r->linear[i])
            operands[count++] = r->operand[i];
    for (int i = 0; i < outputs; i++) {
        has_cotangent[i] = r->cotangent[i] != QB_NONE;
        if (has_cotangent[i])
            operands[count++] = r->cotangent[i];
    }
    for (int i = 0; i < b->count; i++) {
        bool *here = own + i * inputs;
        QB_TRY(qb_subgraph_transpose(b->source[i], r->linear + 1, has_cotangent, NULL, here, &b->made[i]));
        for (int k = 0; k < inputs; k++)
            makes[k] = makes[k] || here[k];
    }
    for (int i = 0; i < b->count; i++)
        QB_TRY(complete(&b->made[i], 0, inputs, own + i * inputs, makes, b->source[i], b->source[i]->inputs, scratch));
    if (!emit(r->graph, b->count, b->made, count, operands, results))
        return qb_graph_take_status(r->graph);
    for (int i = 0, place = 0; i < inputs; i++)
        if (makes[i])
            r->operand_cotangent[i + 1] = results[place++];
    return QB_OK;
}

static void switch_transpose(qb_rule *r)
{
    qb_scratch scratch = {0};
    branches b = begin(r->attribute, &scratch);
    qb_status status = scratch.failed ? qb_fail_memory() : transpose(r, &b, &scratch);
    release(b.count, b.made);
    finish(r, status, &scratch);
}

/* ---- Batching */

/* Each example its branch: all are computed, and selected. */
static qb_status batch_index(qb_rule *r, const branches *b, qb_scratch *scratch)
{
    int outputs = r->result_count;
    qb_value *values = qb_scratch_values(scratch, outputs);
    bool *is_mapped = qb_scratch_take(scratch, outputs, sizeof *is_mapped);
    if (scratch->failed)
        return qb_fail_memory();
    qb_graph *graph = r->graph;
    qb_value index = r->operand[0];
    index = qb_max(graph, index, qb_splat_like(graph, index, 0));
    index = qb_min(graph, index, qb_splat_like(graph, index, b->count - 1));
    for (int k = 0; k < b->count; k++) {
        qb_value chosen = qb_equal(graph, index, qb_splat_like(graph, index, k));
        qb_value active = r->active == QB_NONE ? chosen : qb_bit_and(graph, chosen, r->active);
        QB_TRY(qb_graph_take_status(graph));
        QB_TRY(qb_vmap_active(b->source[k], graph, active, r->operand + 1, r->mapped + 1, r->batch_size, values,
                              is_mapped));
        for (int i = 0; i < outputs; i++) {
            qb_value value = is_mapped[i] ? values[i] : qb_broadcast_leading(graph, values[i], r->batch_size);
            if (k > 0 && value >= 0) {
                const qb_value_info info = graph->values[value];
                qb_value here = qb_broadcast(graph, chosen, info.rank, info.shape, (int64_t[]){0});
                value = qb_select(graph, here, value, r->batched_result[i]);
            }
            r->batched_result[i] = value;
        }
    }
    return qb_graph_take_status(graph);
}

/* A branch over a batch, with `active` as its last input where there is one. */
static qb_status batch_branch(const qb_rule *r, const qb_graph *branch, bool *is_mapped, qb_scratch *scratch,
                              qb_graph **out)
{
    qb_value *inputs = qb_scratch_values(scratch, branch->input_count), active = QB_NONE;
    qb_value *values = qb_scratch_values(scratch, branch->output_count);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_create(out));
    for (int i = 0; i < branch->input_count; i++)
        QB_TRY(qb_graph_input_like(*out, NULL, r->graph, r->operand[i + 1], &inputs[i]));
    if (r->active != QB_NONE)
        QB_TRY(qb_graph_input_like(*out, NULL, r->graph, r->active, &active));
    QB_TRY(qb_vmap_active(branch, *out, active, inputs, r->mapped + 1, r->batch_size, values, is_mapped));
    for (int i = 0; i < branch->output_count; i++)
        QB_TRY(qb_graph_output(*out, values[i]));
    return QB_OK;
}

/* Replaces a graph whose results are mapped as `own` says by one whose results are as `all` says: repeated over the
 * batch. */
static qb_status complete_batch(const qb_rule *r, qb_graph **made, const bool *own, const bool *all,
                                qb_scratch *scratch)
{
    int count = r->result_count;
    if (has_all(own, all, count))
        return QB_OK;
    qb_graph *wider = NULL;
    qb_value *values = qb_scratch_values(scratch, count);
    if (scratch->failed)
        return qb_fail_memory();
    QB_TRY(qb_graph_like(*made, &wider));
    qb_status status = qb_inline(*made, wider, wider->inputs, values);
    for (int i = 0; status == QB_OK && i < count; i++) {
        qb_value value = all[i] && !own[i] ? qb_broadcast_leading(wider, values[i], r->batch_size) : values[i];
        status = value < 0 ? qb_graph_take_status(wider) : qb_graph_output(wider, value);
    }
    qb_graph_release(status == QB_OK ? *made : wider);
    if (status == QB_OK)
        *made = wider;
    return status;
}

static qb_status batch(qb_rule *r, branches *b, qb_scratch *scratch)
{
    int outputs = r->result_count, count = r->operand_count;
    bool *mapped = qb_scratch_take(scratch, outputs, sizeof *mapped);
    bool *own = qb_scratch_take(scratch, b->count * outputs, sizeof *own);
    qb_value *operands = qb_scratch_values(scratch, r->operand_count + 1);
    if (scratch->failed)
        return qb_fail_memory();
    for (int k = 0; k < b->count; k++) {
        bool *here = own + k * outputs;
        QB_TRY(batch_branch(r, b->source[k], here, scratch, &b->made[k]));
        for (int i = 0; i < outputs; i++)
            mapped[i] = mapped[i] || here[i];
    }
    for (int k = 0; k < b->count; k++)
        QB_TRY(complete_batch(r, &b->made[k], own + k * outputs, mapped, scratch));
    memcpy(operands, r->operand, (size_t)r->operand_count * sizeof *operands);
    if (r->active != QB_NONE)
        operands[count++] = r->active;
    memcpy(r->result_mapped, mapped, (size_t)outputs * sizeof *mapped);
    return emit(r->graph, b->count, b->made, count, operands, r->batched_result) ? QB_OK
                                                                                 : qb_graph_take_status(r->graph);
}

static void switch_batch(qb_rule *r)
{
    qb_scratch scratch = {0};
    branches b = begin(r->attribute, &scratch);
    qb_status status = scratch.failed ? qb_fail_memory()
                       : r->mapped[0] ? batch_index(r, &b, &scratch)
                                      : batch(r, &b, &scratch);
    release(b.count, b.made);
    finish(r, status, &scratch);
}

/* ---- Refining */

static qb_status find_needed(const branches *b, const bool *used, bool *needed, qb_scratch *scratch)
{
    for (int k = 0; k < b->count; k++) {
        const qb_graph *branch = b->source[k];
        bool *values = qb_scratch_take(scratch, branch->value_count, sizeof *values);
        if (scratch->failed)
            return qb_fail_memory();
        QB_TRY(qb_mark_needed(branch, used, values));
        for (int i = 0; i < branch->input_count; i++)
            needed[i] = needed[i] || values[branch->inputs[i]];
    }
    return QB_OK;
}

static qb_status switch_needs(const qb_node *node, const bool *used, bool *needed)
{
    qb_scratch scratch = {0};
    branches b = begin(node->attributes, &scratch);
    for (int i = 1; i < node->operand_count; i++)
        needed[i] = false;
    qb_status status = scratch.failed ? qb_fail_memory() : find_needed(&b, used, needed + 1, &scratch);
    qb_arena_free(&scratch.arena);
    return status;
}

/* The branch that a constant index chooses; -1: it is not constant. */
static int known_branch(const qb_rule *r, int count)
{
    double number;
    if (!qb_splat_number(r->graph, r->operand[0], &number))
        return -1;
    return number < 0 ? 0 : number > count - 1 ? count - 1 : (int)number;
}

static qb_status refine(qb_rule *r, branches *b, qb_scratch *scratch)
{
    int inputs = r->operand_count - 1, count = 0, known = known_branch(r, b->count);
    bool *live = qb_scratch_take(scratch, inputs, sizeof *live);
    int *input = qb_scratch_take(scratch, inputs, sizeof *input);
    qb_value *operands = qb_scratch_values(scratch, r->operand_count);
    qb_value *results = qb_scratch_values(scratch, r->result_count);
    if (scratch->failed)
        return qb_fail_memory();
    if (known >= 0)
        return qb_refine_inline(r, b->source[known], r->operand + 1);
    for (int k = 0; k < b->count; k++) {
        QB_TRY(qb_subgraph_optimize(b->source[k], r->used, &b->made[k]));
        QB_TRY(qb_mark_live_inputs(b->made[k], live));
    }
    operands[0] = r->operand[0];
    for (int i = 0; i < inputs; i++) {
        if (!live[i])
            continue;
        input[count++] = i;
        operands[count] = r->operand[i + 1];
    }
    for (int k = 0; k < b->count; k++)
        QB_TRY(qb_subgraph_keep_inputs(&b->made[k], count, input));
    if (!emit(r->graph, b->count, b->made, count + 1, operands, results))
        return qb_graph_take_status(r->graph);
    for (int i = 0, k = 0; i < r->result_count; i++)
        if (r->used[i])
            r->refined_result[i] = results[k++];
    return QB_OK;
}

static void switch_refine(qb_rule *r)
{
    qb_scratch scratch = {0};
    branches b = begin(r->attribute, &scratch);
    qb_status status = scratch.failed ? qb_fail_memory() : refine(r, &b, &scratch);
    release(b.count, b.made);
    finish(r, status, &scratch);
}

/* Of the costliest branch. */
static double switch_flops(const qb_graph *graph, const qb_node *node)
{
    (void)graph;
    double most = 0;
    for (int i = 0; i < node->attributes[0].count && most >= 0; i++) {
        double branch = qb_graph_flops(node->attributes[0].graphs[i]);
        most = branch < 0 || branch > most ? branch : most;
    }
    return most;
}

const qb_op qb_op_switch = {.name = "switch",
                            .summary = "the results of one of several graphs, chosen by an index",
                            .arity = -1,
                            .count_results = count_results,
                            .flags = QB_OP_REGION,
                            .attribute_count = 1,
                            .attribute_name = {"branch"},
                            .lane = QB_LANE_NONE,
                            .infer = switch_infer,
                            .jvp = switch_jvp,
                            .transpose = switch_transpose,
                            .batch = switch_batch,
                            .flops = switch_flops,
                            .refine = switch_refine,
                            .needs = switch_needs};
