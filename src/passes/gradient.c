/* In which mode a gradient is made.
 *
 * By arrays, or by several inputs, it is reverse mode. By one scalar, both modes give the same, and cost nearly the
 * same: a linear map and its transpose take as many multiplications (only those by a known 1 fall away, which are near
 * the input in forward mode, near the result in reverse mode). But nested derivatives in forward mode share their
 * streams, and reverse mode in any of them ends that: a second derivative then takes four products for each of the
 * function, instead of three. So forward mode is the rule, and reverse mode has to take under 60 % of its operations,
 * so that the derivatives outside, which nobody knows here, hardly ever get dearer by it (docs/design/derivatives.md
 * has counts). That happens where the result sums up arrays that are much larger than those they are made of, such as
 * an outer product.
 *
 * Making and counting both adds half to the time that a gradient takes to stage, so reverse mode is tried only where
 * the work next to the result, which is all that it could save, is large enough. A note of the graph tells people of
 * the choice. */
#include "passes/gradient.h"

#include "base/allocate.h"
#include "base/text.h"
#include "graph/replay.h"
#include "passes/pipeline.h"
#include "transforms/transforms.h"

static const double margin = 0.6;
static const double worthwhile = 100; /* operations; a function of fewer has no arrays that could grow */

/* ---- What reverse mode could save */

/* What forward mode takes for the tangent of the node, given as many operands that have one: a product for each, and
 * sums of them. */
static double tangent_flops(const qb_graph *graph, const qb_node *node, int tangents)
{
    double size = (double)qb_value_size(graph, node->result);
    bool linear = (node->op->flags & QB_OP_LINEAR) != 0;
    double one = (node->op->flags & QB_OP_ELEMENTWISE) ? size : qb_node_flops(graph, node);
    return linear ? one : tangents * one + (tangents - 1) * size;
}

static int count_dependent(const qb_graph *graph, const qb_node *node, const bool *depends)
{
    int count = 0;
    for (int i = 0; i < node->operand_count; i++)
        count += depends[qb_operand(graph, node, i)];
    return count;
}

/* The cotangent of a value that leads to the result by linear operations alone is known without computing: `plain`.
 * Reverse mode saves those operations, and the multiplications by that cotangent in the first ones that are not
 * linear. Operations with graphs save nothing: in reverse mode a loop keeps a state for each iteration, and forward
 * mode none. What only the value of the function needs, which is not counted in either mode, is taken off *primal. */
static double most_saved(const qb_graph *graph, const bool *depends, bool *plain, double *primal)
{
    double saved = 0;
    for (int32_t v = 0; v < graph->value_count; v++)
        plain[v] = true;
    for (int32_t n = graph->node_count - 1; n >= 0; n--) {
        const qb_node *node = &graph->nodes[n];
        int tangents = count_dependent(graph, node, depends);
        if (tangents == 0)
            continue;
        bool linear = (node->op->flags & QB_OP_LINEAR) || ((node->op->flags & QB_OP_BILINEAR) && tangents == 1);
        bool stays = plain[node->result] && linear;
        for (int i = 0; !stays && i < node->operand_count; i++)
            plain[qb_operand(graph, node, i)] = false;
        if (!plain[node->result] || (node->op->flags & (QB_OP_REGION | QB_OP_FLAT)))
            continue;
        saved += tangent_flops(graph, node, tangents);
        if (node->op->flags & (QB_OP_LINEAR | QB_OP_BILINEAR))
            *primal -= qb_node_flops(graph, node);
    }
    return saved;
}

/* At most so many operations; what the derivative needs of the function takes *primal. Results other than the first
 * have no cotangents. */
static qb_status estimate(const qb_graph *graph, int wrt, double *saved, double *primal)
{
    size_t count = (size_t)graph->value_count, inputs = (size_t)graph->input_count;
    bool *depends = qb_allocate(2 * count + inputs);
    if (!depends)
        return qb_fail_memory();
    bool *other = depends + count, *input = other + count;
    memset(input, 0, inputs);
    input[wrt] = true;
    qb_mark_dependent(graph, input, depends);
    qb_mark_live(graph, 1, graph->outputs, other);
    for (size_t v = 0; v < count; v++)
        depends[v] = depends[v] && other[v];
    *primal = qb_graph_flops(graph);
    bool failed = *primal < 0;
    *saved = most_saved(graph, depends, other, primal);
    qb_free(depends);
    return failed ? qb_fail_memory() : QB_OK;
}

/* ---- The choice */

/* Of the last output, the gradient. */
static qb_status gradient_flops(const qb_graph *graph, double *out)
{
    qb_graph *alone = NULL, *simple = NULL;
    int last = graph->output_count - 1;
    QB_TRY(qb_graph_rearrange(graph, graph->input_count, NULL, 1, &last, &alone));
    qb_status status = qb_optimize(alone, &simple);
    if (status == QB_OK && (*out = qb_graph_flops(simple)) < 0)
        status = qb_fail_memory();
    qb_graph_release(alone);
    qb_graph_release(simple);
    return status;
}

/* The gradient in reverse mode and its operations; *out is NULL where something has no reverse derivative. */
static qb_status try_reverse(const qb_graph *graph, int wrt, qb_graph **out, double *flops)
{
    *out = NULL;
    qb_status status = qb_gradient_reverse(graph, 1, &wrt, out);
    if (status == QB_OK)
        status = gradient_flops(*out, flops);
    if (status == QB_OK)
        return QB_OK;
    qb_graph_release(*out);
    *out = NULL;
    return status == QB_ERROR_MEMORY || status == QB_ERROR_INTERNAL ? status : QB_OK;
}

/* Keeps one of the two and says why. */
static qb_status decide(const char *what, qb_graph *forward, qb_graph *reverse, double reverse_flops, qb_text *note,
                        qb_graph **chosen)
{
    double flops;
    QB_TRY(gradient_flops(forward, &flops));
    bool reversed = reverse_flops < margin * flops;
    *chosen = reversed ? reverse : forward;
    qb_text_add(note, "%s: %s mode, %.0f operations (%s mode %.0f)", what, reversed ? "reverse" : "forward",
                reversed ? reverse_flops : flops, reversed ? "forward" : "reverse", reversed ? flops : reverse_flops);
    return QB_OK;
}

static qb_status by_scalar(const qb_graph *graph, const char *what, int wrt, qb_text *note, qb_graph **out)
{
    qb_graph *forward = NULL, *reverse = NULL, *chosen = NULL;
    double saved = 0, primal = 0, reverse_flops = 0;
    QB_TRY(qb_gradient_forward(graph, wrt, &forward));
    qb_status status = estimate(graph, wrt, &saved, &primal);
    /* Forward mode takes primal + saved at the least. */
    bool promising = status == QB_OK && saved > (1 - margin) * (primal + saved) && primal + saved >= worthwhile;
    if (promising)
        status = try_reverse(graph, wrt, &reverse, &reverse_flops);
    if (status == QB_OK && reverse)
        status = decide(what, forward, reverse, reverse_flops, note, &chosen);
    else if (status == QB_OK)
        chosen = forward;
    if (status == QB_OK && !reverse && promising)
        qb_text_add(note, "%s: forward mode (there is no reverse mode of it)", what);
    else if (status == QB_OK && !reverse)
        qb_text_add(note, "%s: forward mode (reverse mode could not save %.0f %%)", what, 100 * (1 - margin));
    if (status == QB_OK)
        *out = qb_graph_retain(chosen);
    qb_graph_release(forward);
    qb_graph_release(reverse);
    return status;
}

static qb_status choose(const qb_graph *graph, const char *what, int wrt_count, const int *wrt, qb_text *note,
                        qb_graph **out)
{
    bool one = wrt_count == 1 && wrt[0] >= 0 && wrt[0] < graph->input_count;
    bool scalar = one && graph->values[graph->inputs[wrt[0]]].rank == 0;
    if (scalar && !qb_is_reverse_only(graph))
        return by_scalar(graph, what, wrt[0], note, out);
    qb_text_add(note, "%s: reverse mode%s", what, scalar ? " (something in it has no other)" : "");
    return qb_gradient_reverse(graph, wrt_count, wrt, out);
}

qb_status qb_choose_gradient(const qb_graph *graph, const char *what, int wrt_count, const int *wrt, qb_graph **out)
{
    qb_text note = {0};
    qb_graph *gradient = NULL;
    char *line = NULL;
    qb_status status = choose(graph, what, wrt_count, wrt, &note, &gradient);
    qb_status taken = qb_text_take(&note, &line);
    status = status == QB_OK ? taken : status;
    if (status == QB_OK)
        status = qb_graph_note(gradient, line);
    qb_text_free(line);
    if (status == QB_OK)
        *out = gradient;
    else
        qb_graph_release(gradient);
    return status;
}

qb_status qb_graph_gradient(const qb_graph *graph, int wrt_count, const int *wrt, qb_graph **out)
{
    return qb_choose_gradient(graph, "gradient", wrt_count, wrt, out);
}
