/* Finding where a number that is not finite comes from. The program is run once more with the result of every
 * operation as an output; then the way goes back from the output, through operands that are not finite, to the
 * operation that made the first such number. What a program computes and does not use (the branch of `where` that is
 * not taken) is never blamed. */
#include "base/allocate.h"
#include "base/source.h"
#include "base/text.h"
#include "graph/replay.h"
#include "program/program.h"

#include <math.h>

/* ---- Numbers */

typedef struct range {
    double low, high; /* of the finite elements */
    int64_t finite, infinite, nan;
    int64_t first; /* element that is not finite; -1: none */
} range;

static range range_of(const qb_tensor *tensor)
{
    range r = {.low = INFINITY, .high = -INFINITY, .first = -1};
    size_t size = qb_dtype_size(tensor->dtype);
    for (int64_t i = 0; i < tensor->size; i++) {
        double x = qb_dtype_load(tensor->dtype, (const char *)tensor->data + (size_t)i * size);
        if (isfinite(x)) {
            r.low = x < r.low ? x : r.low;
            r.high = x > r.high ? x : r.high;
            r.finite++;
            continue;
        }
        r.first = r.first < 0 ? i : r.first;
        r.nan += isnan(x);
        r.infinite += !isnan(x);
    }
    return r;
}

static bool is_finite(const qb_tensor *tensor)
{
    return !qb_dtype_is_floating(tensor->dtype) || range_of(tensor).first < 0;
}

/* ---- The message */

static void add_counts(qb_text *text, const range *r)
{
    if (r->nan)
        qb_text_add(text, "%lld nan", (long long)r->nan);
    if (r->infinite)
        qb_text_add(text, "%s%lld infinite", r->nan ? ", " : "", (long long)r->infinite);
}

static void add_index(qb_text *text, const qb_tensor *tensor, int64_t element)
{
    int64_t index[QB_MAX_RANK];
    for (int i = tensor->rank - 1; i >= 0; i--) {
        index[i] = element % tensor->shape[i];
        element /= tensor->shape[i];
    }
    qb_text_add(text, "%s", qb_print_shape(tensor->rank, index).text);
}

static void add_operand(qb_text *text, const qb_tensor *tensor)
{
    range r = range_of(tensor);
    qb_text_add(text, "%s ", qb_print_type(tensor->dtype, tensor->rank, tensor->shape).text);
    if (r.finite)
        qb_text_add(text, "from %.6g to %.6g", r.low, r.high);
    if (r.finite && r.first >= 0)
        qb_text_add(text, ", ");
    add_counts(text, &r);
}

qb_status qb_fail_nonfinite(const char *operation, int32_t source, const qb_tensor *result, int operand_count,
                            qb_tensor *const *operands)
{
    qb_text text = {0};
    range r = range_of(result);
    int line;
    const char *file = qb_source_find(source, &line);
    qb_text_add(&text, "%s", operation);
    if (file)
        qb_text_add(&text, ", of %s:%d,", file, line);
    qb_text_add(&text, " gave a result that is not finite: ");
    add_counts(&text, &r);
    qb_text_add(&text, " of %lld elements", (long long)result->size);
    if (result->rank > 0) {
        qb_text_add(&text, ", the first at ");
        add_index(&text, result, r.first);
    }
    const char *separator = operand_count > 1 ? ". Its operands: " : ". Its operand: ";
    for (int i = 0; i < operand_count; i++) {
        if (!operands[i]) /* absent */
            continue;
        qb_text_add(&text, "%s", separator);
        add_operand(&text, operands[i]);
        separator = "; ";
    }
    char *message;
    QB_TRY(qb_text_take(&text, &message));
    qb_status status = qb_fail(QB_ERROR_NONFINITE, "%s", message);
    qb_text_free(message);
    return status;
}

/* ---- Watching every value */

typedef struct watch {
    const qb_graph *graph;
    qb_graph *watched;
    int32_t *output;     /* of each value: which output of the watched graph it is; -1: none */
    qb_tensor **results; /* of the watched program */
    bool *blamed;        /* values that are not finite and lead to an output that is not */
} watch;

static void end(watch *w)
{
    for (int32_t i = 0; w->results && i < w->watched->output_count; i++)
        qb_tensor_release(w->results[i]);
    qb_graph_release(w->watched);
    qb_free(w->output);
    qb_free(w->results);
    qb_free(w->blamed);
}

static qb_status build(watch *w, qb_replay *replay)
{
    const qb_graph *graph = w->graph;
    QB_TRY(qb_replay_begin(replay, graph, w->watched, w->watched->inputs, graph->output_count, graph->outputs));
    for (int32_t n = -1; (n = qb_replay_next(replay, n)) >= 0;)
        if (!(graph->nodes[n].op->flags & QB_OP_EFFECT) && !qb_replay_copy(replay, &graph->nodes[n]))
            return qb_graph_take_status(w->watched);
    for (qb_value v = 0; v < graph->value_count; v++) {
        w->output[v] = -1;
        if (replay->map[v] == QB_NONE)
            continue;
        w->output[v] = w->watched->output_count;
        QB_TRY(qb_graph_output(w->watched, replay->map[v]));
    }
    return QB_OK;
}

static qb_status run(watch *w, qb_tensor *const *inputs)
{
    qb_program *program;
    QB_TRY(qb_compile(NULL, w->watched, "cpu", &program));
    qb_tensor **results = qb_allocate((size_t)w->watched->output_count * sizeof *results);
    qb_status status = results ? qb_run(program, inputs, results) : qb_fail_memory();
    qb_program_release(program);
    if (status == QB_OK)
        w->results = results;
    else
        qb_free(results);
    return status;
}

static qb_status begin(watch *w, const qb_graph *graph, qb_tensor *const *inputs)
{
    qb_replay replay = {0};
    w->graph = graph;
    QB_TRY(qb_graph_like(graph, &w->watched));
    w->output = qb_allocate((size_t)graph->value_count * sizeof *w->output);
    w->blamed = qb_allocate_zeroed((size_t)graph->value_count, sizeof *w->blamed);
    qb_status status = w->output && w->blamed ? build(w, &replay) : qb_fail_memory();
    qb_replay_end(&replay);
    return status == QB_OK ? run(w, inputs) : status;
}

static bool is_bad(const watch *w, qb_value value)
{
    return w->output[value] >= 0 && !is_finite(w->results[w->output[value]]);
}

/* Only hands on what is in its operands. */
static bool hands_on(const qb_node *node)
{
    return (node->op->flags & (QB_OP_VIEW | QB_OP_MOVES)) || node->op == &qb_op_select;
}

/* The first operation to blame: one that computes, if any does; -1 where an output is an input or a constant. */
static int32_t find_origin(watch *w)
{
    const qb_graph *graph = w->graph;
    int32_t origin = -1;
    for (int i = 0; i < graph->output_count; i++)
        w->blamed[graph->outputs[i]] = is_bad(w, graph->outputs[i]);
    for (int32_t n = graph->node_count - 1; n >= 0; n--) {
        const qb_node *node = &graph->nodes[n];
        bool blamed = false;
        for (int i = 0; i < node->result_count; i++)
            blamed = blamed || w->blamed[node->result + i];
        if (!blamed || node->operand_count == 0)
            continue;
        for (int i = 0; i < node->operand_count; i++)
            if (is_bad(w, qb_operand(graph, node, i)))
                w->blamed[qb_operand(graph, node, i)] = true;
        if (origin < 0 || !hands_on(node) || hands_on(&graph->nodes[origin]))
            origin = n;
    }
    return origin;
}

static qb_status blame(watch *w, int32_t origin)
{
    const qb_node *node = &w->graph->nodes[origin];
    qb_value result = node->result;
    while (!is_bad(w, result))
        result++;
    qb_tensor **operands = qb_allocate((size_t)node->operand_count * sizeof *operands);
    if (!operands)
        return qb_fail_memory();
    for (int i = 0; i < node->operand_count; i++)
        operands[i] = w->results[w->output[qb_operand(w->graph, node, i)]];
    qb_status status = node->op->flags & QB_OP_REGION ? qb_search_region(node, operands) : QB_OK;
    if (status == QB_OK)
        status = qb_fail_nonfinite(node->op->name, node->source, w->results[w->output[result]], node->operand_count,
                                   operands);
    qb_free(operands);
    return status;
}

qb_status qb_check_finite(qb_program *program, qb_tensor *const *inputs, qb_tensor *const *outputs)
{
    int32_t bad = 0;
    while (bad < program->output_count && is_finite(outputs[bad]))
        bad++;
    if (bad == program->output_count)
        return QB_OK;
    watch w = {0};
    qb_status status = begin(&w, program->graph, inputs);
    if (status == QB_OK) {
        int32_t origin = find_origin(&w);
        status = origin >= 0 ? blame(&w, origin) : qb_fail_nonfinite("the function", 0, outputs[bad], 0, NULL);
    }
    end(&w);
    return status;
}
