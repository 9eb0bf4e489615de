/* Which outputs of a graph depend on which of its inputs, looking into the graphs of operations.
 *
 * Loops ask this to know which of their carries will have a tangent, a cotangent or a batch axis before their bodies
 * are transformed: were they to try and see, a nest of loops would be transformed so often as a power of its depth.
 * Each graph is looked at once. The answer may say too much, not too little. */
#include "control/control.h"

enum { BITS = 64 };

/* Sets of `size` members, one after the other. */
typedef struct sets {
    uint64_t *bits;
    int words;
} sets;

static bool make_sets(sets *s, int count, int size, qb_scratch *scratch)
{
    s->words = size / BITS + 1;
    s->bits = qb_scratch_take(scratch, count * s->words, sizeof *s->bits);
    return s->bits != NULL;
}

static bool has(const sets *s, int set, int member)
{
    return s->bits[set * s->words + member / BITS] >> member % BITS & 1;
}

static void add(const sets *s, int set, int member)
{
    s->bits[set * s->words + member / BITS] |= (uint64_t)1 << member % BITS;
}

/* Adds the members of another set; whether that is any. */
static bool unite(const sets *s, int set, const sets *other, int from)
{
    bool changed = false;
    for (int i = 0; i < s->words; i++) {
        uint64_t *to = &s->bits[set * s->words + i], more = other->bits[from * other->words + i] & ~*to;
        changed = changed || more;
        *to |= more;
    }
    return changed;
}

static qb_status reach(const qb_graph *graph, bool smooth, qb_scratch *scratch, sets *outputs);

static bool carries_derivative(const qb_graph *graph, qb_value value)
{
    return qb_dtype_is_floating(graph->values[value].dtype);
}

/* The operands (as the body counts, from 1) that each result depends on after any number of iterations: the body's
 * outputs, then the number of iterations. */
static qb_status close_loop(const qb_loop *loop, bool smooth, qb_scratch *scratch, sets *closed)
{
    sets body, test;
    int inputs = loop->body->input_count, outputs = loop->body->output_count, first = 1 + loop->consts;
    QB_TRY(reach(loop->body, smooth, scratch, &body));
    if (!make_sets(closed, outputs + 1, inputs, scratch))
        return qb_fail_memory();
    for (int i = 0; i < loop->carries; i++)
        add(closed, i, first + i);
    for (bool changed = true; changed;) {
        changed = false;
        for (int i = 0; i < outputs; i++) {
            changed = unite(closed, i, &body, i) || changed;
            for (int c = 0; c < loop->carries; c++)
                if (has(&body, i, first + c))
                    changed = unite(closed, i, closed, c) || changed;
        }
    }
    if (smooth || !loop->condition)
        return QB_OK;
    QB_TRY(reach(loop->condition, smooth, scratch, &test));
    for (int k = 1; k < loop->condition->input_count; k++) {
        if (has(&test, 0, k) && k >= first)
            (void)unite(closed, outputs, closed, k - first);
        else if (has(&test, 0, k))
            add(closed, outputs, k);
    }
    for (int i = 0; i < outputs; i++) /* how long the loop runs shows in all it makes */
        (void)unite(closed, i, closed, outputs);
    return QB_OK;
}

typedef struct walk {
    const qb_graph *graph;
    bool smooth;
    sets values;
    qb_scratch *scratch;
} walk;

static void from_operand(const walk *w, const qb_node *node, int result, int operand)
{
    qb_value value = node->result + result;
    if (!w->smooth || carries_derivative(w->graph, value))
        (void)unite(&w->values, value, &w->values, qb_operand(w->graph, node, operand));
}

static qb_status through_loop(const walk *w, const qb_node *node)
{
    sets closed;
    qb_loop loop = qb_loop_of(node->attributes, node->operand_count, NULL);
    int before = node->operand_count - qb_loop_operands(&loop);
    QB_TRY(close_loop(&loop, w->smooth, w->scratch, &closed));
    for (int i = 0; i < node->result_count; i++) {
        for (int k = 0; !w->smooth && k < before; k++)
            from_operand(w, node, i, k);
        for (int k = before; k < node->operand_count; k++)
            if (has(&closed, i, 1 + k - before))
                from_operand(w, node, i, k);
    }
    return QB_OK;
}

/* A body on the operands from `before` on. */
static qb_status through_body(const walk *w, const qb_node *node, const qb_graph *body, int before)
{
    sets outputs;
    QB_TRY(reach(body, w->smooth, w->scratch, &outputs));
    for (int i = 0; i < node->result_count; i++)
        for (int k = before; k < node->operand_count; k++)
            if (has(&outputs, i, k - before))
                from_operand(w, node, i, k);
    return QB_OK;
}

static qb_status visit(const walk *w, const qb_node *node)
{
    if (node->op == &qb_op_loop)
        return through_loop(w, node);
    if (node->op == &qb_op_checkpoint)
        return through_body(w, node, node->attributes[0].graph, 0);
    if (node->op == &qb_op_switch) {
        for (int i = 0; !w->smooth && i < node->result_count; i++)
            from_operand(w, node, i, 0);
        for (int b = 0; b < node->attributes[0].count; b++)
            QB_TRY(through_body(w, node, node->attributes[0].graphs[b], 1));
        return QB_OK;
    }
    if (w->smooth && (node->op->flags & QB_OP_FLAT))
        return QB_OK;
    for (int i = 0; i < node->result_count; i++)
        for (int k = 0; k < node->operand_count; k++)
            from_operand(w, node, i, k);
    return QB_OK;
}

/* The inputs that each output depends on; `smooth`: that it may have a derivative by. */
static qb_status reach(const qb_graph *graph, bool smooth, qb_scratch *scratch, sets *outputs)
{
    walk w = {.graph = graph, .smooth = smooth, .scratch = scratch};
    if (!make_sets(&w.values, graph->value_count, graph->input_count, scratch) ||
        !make_sets(outputs, graph->output_count, graph->input_count, scratch))
        return qb_fail_memory();
    for (int i = 0; i < graph->input_count; i++)
        if (!smooth || carries_derivative(graph, graph->inputs[i]))
            add(&w.values, graph->inputs[i], i);
    for (int32_t n = 0; n < graph->node_count; n++)
        QB_TRY(visit(&w, &graph->nodes[n]));
    for (int i = 0; i < graph->output_count; i++)
        (void)unite(outputs, i, &w.values, graph->outputs[i]);
    return QB_OK;
}

qb_status qb_loop_reach(const qb_loop *loop, bool smooth, bool *inputs)
{
    sets closed;
    qb_scratch scratch = {0};
    int first = 1 + loop->consts;
    bool *reached = qb_scratch_take(&scratch, loop->carries, sizeof *reached);
    qb_status status = reached ? close_loop(loop, smooth, &scratch, &closed) : qb_fail_memory();
    for (int i = 0; status == QB_OK && i < loop->carries; i++)
        for (int k = 1; k < loop->body->input_count; k++)
            reached[i] = reached[i] || (inputs[k] && has(&closed, i, k));
    for (int i = 0; status == QB_OK && i < loop->carries; i++)
        inputs[first + i] = inputs[first + i] || reached[i];
    qb_arena_free(&scratch.arena);
    return status;
}

qb_status qb_loop_reach_back(const qb_loop *loop, bool *outputs)
{
    sets closed;
    qb_scratch scratch = {0};
    qb_status status = close_loop(loop, true, &scratch, &closed);
    for (int c = 0; status == QB_OK && c < loop->carries; c++)
        for (int i = 0; i < loop->body->output_count; i++)
            outputs[c] = outputs[c] || (outputs[i] && has(&closed, i, 1 + loop->consts + c));
    qb_arena_free(&scratch.arena);
    return status;
}

static qb_status find_needed(const qb_loop *loop, bool *outputs, bool *needed, qb_scratch *scratch)
{
    sets closed;
    int count = loop->body->output_count, first = 1 + loop->consts;
    QB_TRY(close_loop(loop, false, scratch, &closed));
    for (int i = 0; i <= count; i++) /* the number of iterations in any case */
        for (int k = 0; (i == count || outputs[i]) && k < loop->body->input_count; k++)
            needed[k] = needed[k] || has(&closed, i, k);
    for (int i = 0; i < loop->carries; i++)
        outputs[i] = outputs[i] || needed[first + i];
    return QB_OK;
}

qb_status qb_loop_needed(const qb_loop *loop, const bool *used, bool *outputs, bool *needed)
{
    qb_scratch scratch = {0};
    memset(needed, 0, (size_t)loop->body->input_count * sizeof *needed);
    memcpy(outputs, used, (size_t)loop->body->output_count * sizeof *outputs);
    qb_status status = find_needed(loop, outputs, needed, &scratch);
    qb_arena_free(&scratch.arena);
    return status;
}

qb_status qb_reaches(const qb_graph *graph, int output, const bool *inputs, bool *out)
{
    sets outputs;
    qb_scratch scratch = {0};
    qb_status status = reach(graph, false, &scratch, &outputs);
    *out = false;
    for (int k = 0; status == QB_OK && k < graph->input_count; k++)
        *out = *out || (inputs[k] && has(&outputs, output, k));
    qb_arena_free(&scratch.arena);
    return status;
}
