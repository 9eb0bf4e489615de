/* Splitting a graph in two at what is known early. */
#include "transforms/transforms.h"

#include "base/allocate.h"
#include "graph/replay.h"

typedef struct walk {
    const qb_graph *graph;
    qb_graph *early, *late;
    qb_replay replay;   /* into the early graph: the values that need no late input */
    bool *depends;      /* whether a value needs a late input */
    bool *needed;       /* whether a late output needs it; operations with graphs may name what they do not need */
    qb_value *late_map; /* of each value: its place in the late graph, QB_NONE until asked for */
    qb_value *residual; /* values of the source that the late graph gets as inputs */
    int residual_count;
    bool frugal;  /* rather compute again than keep */
    bool *wanted; /* frugal: early values that the late graph reads, views and repetitions counted as what they show */
} walk;

/* Made again instead of kept: constants, and what a broadcast repeats. */
static bool is_repeated(const qb_node *node)
{
    return (node->op->flags & QB_OP_FLAT && node->operand_count == 0) || node->op == &qb_op_broadcast;
}

/* The same elements, or most of them, seen otherwise. */
static bool is_view(const walk *w, qb_value value)
{
    enum { MOST = 4 };
    const qb_node *node = qb_node_of(w->graph, value);
    return (node->op->flags & QB_OP_VIEW) &&
           qb_value_size(w->graph, qb_operand(w->graph, node, 0)) <= MOST * qb_value_size(w->graph, value);
}

static bool is_available(const walk *w, qb_value value)
{
    const qb_node *node = qb_node_of(w->graph, value);
    if (w->wanted[value] || w->late_map[value] != QB_NONE)
        return true;
    if (is_repeated(node))
        return node->operand_count == 0 || is_available(w, qb_operand(w->graph, node, 0));
    return is_view(w, value) && is_available(w, qb_operand(w->graph, node, 0));
}

/* An addition or the like, of values that the late graph has anyway. */
static bool is_cheap(const walk *w, qb_value value)
{
    const qb_node *node = qb_node_of(w->graph, value);
    bool cheap = (node->op->flags & QB_OP_ELEMENTWISE) && node->op->element_flops <= 1;
    for (int i = 0; cheap && i < node->operand_count; i++)
        cheap = is_available(w, qb_operand(w->graph, node, i));
    return cheap;
}

static bool is_remade(const walk *w, qb_value value)
{
    return is_repeated(qb_node_of(w->graph, value)) || (w->frugal && (is_view(w, value) || is_cheap(w, value)));
}

/* What the late part reads of the early one. */
static void mark_wanted(walk *w, int early_outputs)
{
    const qb_graph *graph = w->graph;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const qb_node *node = &graph->nodes[n];
        for (int i = 0; w->depends[node->result] && w->needed[node->result] && i < node->operand_count; i++)
            w->wanted[qb_operand(graph, node, i)] |= !w->depends[qb_operand(graph, node, i)];
    }
    for (int i = early_outputs; i < graph->output_count; i++)
        w->wanted[graph->outputs[i]] |= !w->depends[graph->outputs[i]];
    for (qb_value v = graph->value_count - 1; v >= 0; v--) {
        const qb_node *node = qb_node_of(graph, v);
        if (w->wanted[v] && node->operand_count == 1 && (is_repeated(node) || is_view(w, v))) {
            w->wanted[v] = false;
            w->wanted[qb_operand(graph, node, 0)] = true;
        }
    }
}

/* The value in the late graph: made again, or a residual, which becomes an input when it is first asked for; zeros
 * where nothing reads it. */
static qb_value in_late(walk *w, qb_value value)
{
    if (w->late_map[value] != QB_NONE)
        return w->late_map[value];
    const qb_node *node = qb_node_of(w->graph, value);
    qb_value made;
    if (!w->needed[value]) {
        const qb_value_info info = w->graph->values[value];
        made = qb_splat(w->late, info.dtype, info.rank, info.shape, 0);
    } else if (is_remade(w, value)) {
        qb_value operands[3];
        for (int i = 0; i < node->operand_count; i++)
            operands[i] = in_late(w, qb_operand(w->graph, node, i));
        made = qb_emit(w->late, node->op, node->operand_count, operands, node->attributes);
    } else {
        qb_status status = qb_graph_input_like(w->late, NULL, w->graph, value, &made);
        if (status != QB_OK)
            return qb_graph_fail(w->late, status);
        w->residual[w->residual_count++] = value;
    }
    w->late_map[value] = made;
    return made;
}

static qb_status mark_needed(walk *w, int early_outputs)
{
    bool *wanted = qb_allocate((size_t)w->graph->output_count);
    if (!wanted)
        return qb_fail_memory();
    for (int i = 0; i < w->graph->output_count; i++)
        wanted[i] = i >= early_outputs;
    qb_status status = qb_mark_needed(w->graph, wanted, w->needed);
    qb_free(wanted);
    return status;
}

static qb_status begin(walk *w, const bool *late_input, int early_outputs)
{
    const qb_graph *graph = w->graph;
    size_t count = (size_t)graph->value_count;
    QB_TRY(qb_graph_create(&w->early));
    QB_TRY(qb_graph_create(&w->late));
    w->depends = qb_allocate(count);
    w->late_map = qb_allocate(count * sizeof *w->late_map);
    w->residual = qb_allocate(count * sizeof *w->residual);
    w->needed = qb_allocate(count);
    w->wanted = qb_allocate_zeroed(count, sizeof *w->wanted);
    qb_value *arguments = qb_allocate((size_t)graph->input_count * sizeof *arguments);
    qb_status status =
        w->depends && w->late_map && w->residual && w->needed && w->wanted && arguments ? QB_OK : qb_fail_memory();
    if (status == QB_OK) {
        qb_mark_dependent(graph, late_input, w->depends);
        status = mark_needed(w, early_outputs);
    }
    for (size_t i = 0; status == QB_OK && i < count; i++)
        w->late_map[i] = QB_NONE;
    if (status == QB_OK && w->frugal)
        mark_wanted(w, early_outputs);
    for (int i = 0; status == QB_OK && i < graph->input_count; i++) {
        arguments[i] = QB_NONE;
        if (!late_input[i])
            status = qb_graph_input_like(w->early, graph->input_names[i], graph, graph->inputs[i], &arguments[i]);
    }
    if (status == QB_OK)
        status = qb_replay_begin(&w->replay, graph, w->early, arguments, graph->output_count, graph->outputs);
    if (status == QB_OK)
        status = qb_graph_copy_notes(graph, w->late);
    qb_free(arguments);
    return status;
}

static qb_status visit(walk *w, const qb_node *node)
{
    if (!w->depends[node->result])
        return qb_replay_copy(&w->replay, node) ? QB_OK : qb_graph_take_status(w->early);
    w->late->source = node->source;
    for (int i = 0; i < node->operand_count; i++)
        w->replay.operands[i] = in_late(w, qb_operand(w->graph, node, i));
    if (!qb_emit_all(w->late, node->op, node->operand_count, w->replay.operands, node->attributes,
                     &w->late_map[node->result]))
        return qb_graph_take_status(w->late);
    return QB_OK;
}

static qb_status finish(walk *w, int early_outputs)
{
    const qb_graph *graph = w->graph;
    for (int i = 0; i < graph->output_count; i++) {
        if (i < early_outputs) {
            if (w->depends[graph->outputs[i]])
                return qb_fail(QB_ERROR_VALUE, "split: output %d is wanted early, but depends on a late input", i);
            QB_TRY(qb_graph_output(w->early, w->replay.map[graph->outputs[i]]));
        } else {
            qb_value value = in_late(w, graph->outputs[i]);
            QB_TRY(value < 0 ? qb_graph_take_status(w->late) : qb_graph_output(w->late, value));
        }
    }
    for (int i = 0; i < w->residual_count; i++)
        QB_TRY(qb_graph_output(w->early, w->replay.map[w->residual[i]]));
    return QB_OK;
}

/* The late inputs come first while the walk runs, since residuals are found on the way; callers want them last. */
static qb_status reorder_inputs(walk *w, int late_count)
{
    int count = w->late->input_count, residuals = count - late_count;
    int *order = qb_allocate((size_t)count * sizeof *order);
    if (!order)
        return qb_fail_memory();
    for (int i = 0; i < count; i++)
        order[i] = i < residuals ? late_count + i : i - residuals;
    qb_graph *ordered = NULL;
    qb_status status = qb_graph_rearrange(w->late, count, order, w->late->output_count, NULL, &ordered);
    qb_free(order);
    if (status != QB_OK)
        return status;
    qb_graph_release(w->late);
    w->late = ordered;
    return QB_OK;
}

qb_status qb_split(const qb_graph *graph, const bool *late_input, int early_outputs, bool frugal, qb_graph **early,
                   qb_graph **late)
{
    walk w = {.graph = graph, .frugal = frugal};
    qb_status status = begin(&w, late_input, early_outputs);
    int late_count = 0;
    for (int i = 0; status == QB_OK && i < graph->input_count; i++) {
        if (!late_input[i])
            continue;
        status =
            qb_graph_input_like(w.late, graph->input_names[i], graph, graph->inputs[i], &w.late_map[graph->inputs[i]]);
        late_count++;
    }
    for (int32_t n = -1; status == QB_OK && (n = qb_replay_next(&w.replay, n)) >= 0;)
        status = visit(&w, &graph->nodes[n]);
    if (status == QB_OK)
        status = finish(&w, early_outputs);
    if (status == QB_OK)
        status = reorder_inputs(&w, late_count);
    qb_replay_end(&w.replay);
    qb_free(w.depends);
    qb_free(w.late_map);
    qb_free(w.residual);
    qb_free(w.needed);
    qb_free(w.wanted);
    if (status == QB_OK) {
        *early = w.early;
        *late = w.late;
    } else {
        qb_graph_release(w.early);
        qb_graph_release(w.late);
    }
    return status;
}
