/* Whole-graph derivatives: gradient (in either mode; passes/gradient.c chooses), jvp and vjp as new graphs, out of
 * forward mode and transposition. */
#include "transforms/transforms.h"

#include "base/allocate.h"
#include "graph/replay.h"

/* A graph under construction: the source's inputs, tangents for some of them, and the two lists of outputs. */
typedef struct work {
    const qb_graph *source;
    qb_graph *graph;
    qb_value *tangents;     /* per input of the source; QB_NONE where not differentiated */
    qb_value *primals_out;  /* per output */
    qb_value *tangents_out; /* per output */
    qb_value *cotangents;   /* per output */
    qb_value *gradients;    /* per entry of wrt */
    qb_value *linear;       /* per entry of wrt: its tangent */
} work;

static qb_status check_wrt(const qb_graph *graph, int wrt_count, const int *wrt)
{
    for (int i = 0; i < wrt_count; i++) {
        if (wrt[i] < 0 || wrt[i] >= graph->input_count)
            return qb_fail(QB_ERROR_VALUE, "input %d to differentiate by: the graph has %d inputs", wrt[i],
                           (int)graph->input_count);
        qb_dtype dtype = graph->values[graph->inputs[wrt[i]]].dtype;
        if (!qb_dtype_is_floating(dtype))
            return qb_fail(QB_ERROR_VALUE, "input %d has dtype %s: only floating inputs have derivatives", wrt[i],
                           qb_dtype_name(dtype));
    }
    return QB_OK;
}

static void end(work *w)
{
    qb_graph_release(w->graph);
    qb_free(w->tangents);
    qb_free(w->primals_out);
    qb_free(w->tangents_out);
    qb_free(w->cotangents);
    qb_free(w->gradients);
    qb_free(w->linear);
}

static qb_status begin(work *w, const qb_graph *source, int wrt_count, const int *wrt)
{
    size_t outputs = (size_t)source->output_count;
    *w = (work){.source = source};
    QB_TRY(check_wrt(source, wrt_count, wrt));
    QB_TRY(qb_graph_like(source, &w->graph));
    w->tangents = qb_allocate((size_t)source->input_count * sizeof *w->tangents);
    w->primals_out = qb_allocate(outputs * sizeof *w->primals_out);
    w->tangents_out = qb_allocate(outputs * sizeof *w->tangents_out);
    w->cotangents = qb_allocate(outputs * sizeof *w->cotangents);
    w->gradients = qb_allocate((size_t)wrt_count * sizeof *w->gradients);
    w->linear = qb_allocate((size_t)wrt_count * sizeof *w->linear);
    if (!w->tangents || !w->primals_out || !w->tangents_out || !w->cotangents || !w->gradients || !w->linear)
        return qb_fail_memory();
    for (int i = 0; i < source->input_count; i++)
        w->tangents[i] = QB_NONE;
    for (int i = 0; i < source->output_count; i++)
        w->cotangents[i] = QB_NONE;
    return QB_OK;
}

/* One more input, like a value of the source. */
static qb_status input_like(work *w, qb_value value, qb_value *out)
{
    return qb_graph_input_like(w->graph, NULL, w->source, value, out);
}

static qb_status forward(work *w, qb_forward mode)
{
    return qb_jvp(w->source, w->graph, mode, w->graph->inputs, w->tangents, w->primals_out, w->tangents_out);
}

static qb_status add_output(work *w, qb_value value, qb_value like_in_source)
{
    if (value == QB_NONE) {
        const qb_value_info *info = &w->source->values[like_in_source];
        value = qb_splat(w->graph, info->dtype, info->rank, info->shape, 0);
    }
    return value < 0 ? qb_graph_take_status(w->graph) : qb_graph_output(w->graph, value);
}

static qb_status add_primal_outputs(work *w)
{
    for (int i = 0; i < w->source->output_count; i++)
        QB_TRY(qb_graph_output(w->graph, w->primals_out[i]));
    return QB_OK;
}

/* The finished graph without the inputs in [first, first + count), which nothing needs any more. */
static qb_status without_inputs(const qb_graph *graph, int first, int count, qb_graph **out)
{
    int inputs = graph->input_count - count, *order = qb_allocate((size_t)inputs * sizeof *order);
    if (!order)
        return qb_fail_memory();
    for (int i = 0; i < inputs; i++)
        order[i] = i < first ? i : i + count;
    qb_status status = qb_graph_rearrange(graph, inputs, order, graph->output_count, NULL, out);
    qb_free(order);
    return status;
}

/* Forward mode along the tangent inputs, and its transpose on w->cotangents. */
static qb_status reverse(work *w, int wrt_count)
{
    QB_TRY(forward(w, QB_FORWARD_SEPARATE));
    return qb_transpose(w->graph, wrt_count, w->linear, w->source->output_count, w->tangents_out, w->cotangents,
                        w->gradients);
}

static qb_status finish_reverse(work *w, int wrt_count, const int *wrt, qb_graph **out)
{
    QB_TRY(add_primal_outputs(w));
    for (int i = 0; i < wrt_count; i++)
        QB_TRY(add_output(w, w->gradients[i], w->source->inputs[wrt[i]]));
    return without_inputs(w->graph, w->source->input_count, wrt_count, out);
}

/* A tangent input for each differentiated input. */
static qb_status tangent_inputs(work *w, int wrt_count, const int *wrt)
{
    for (int i = 0; i < wrt_count; i++) {
        qb_value *tangent = &w->tangents[wrt[i]];
        if (*tangent != QB_NONE)
            return qb_fail(QB_ERROR_VALUE, "input %d is named twice among those to differentiate by", wrt[i]);
        QB_TRY(input_like(w, w->source->inputs[wrt[i]], tangent));
        w->linear[i] = *tangent;
    }
    return QB_OK;
}

static qb_status check_scalar_output(const qb_graph *graph)
{
    if (graph->output_count == 0)
        return qb_fail(QB_ERROR_VALUE, "grad requires a scalar output, and this function has no output");
    const qb_value_info *info = &graph->values[graph->outputs[0]];
    if (!qb_dtype_is_floating(info->dtype))
        return qb_fail(QB_ERROR_VALUE,
                       "grad requires a floating scalar output, got %s of shape %s, which has no derivative: return "
                       "the values before they become %s, or convert them with astype(float64)",
                       qb_dtype_name(info->dtype), qb_print_shape(info->rank, info->shape).text,
                       qb_dtype_name(info->dtype));
    if (info->rank != 0)
        return qb_fail(
            QB_ERROR_VALUE,
            "grad requires a scalar output, got %s of shape %s: reduce it with sum or mean, or use jacobian or vjp",
            qb_dtype_name(info->dtype), qb_print_shape(info->rank, info->shape).text);
    return QB_OK;
}

/* Whether a node that the outputs need, or one of a graph in it, has the flag. */
static bool has_flag(const qb_graph *graph, const bool *live, unsigned flag)
{
    for (int32_t n = 0; n < graph->node_count; n++) {
        const qb_node *node = &graph->nodes[n];
        if (live && !live[node->result])
            continue;
        if (node->op->flags & flag)
            return true;
        for (int i = 0; (node->op->flags & QB_OP_REGION) && i < node->op->attribute_count; i++) {
            const qb_attribute *attribute = &node->attributes[i];
            if (attribute->kind == QB_ATTRIBUTE_GRAPH && attribute->graph && has_flag(attribute->graph, NULL, flag))
                return true;
            for (int k = 0; attribute->kind == QB_ATTRIBUTE_GRAPHS && k < attribute->count; k++)
                if (has_flag(attribute->graphs[k], NULL, flag))
                    return true;
        }
    }
    return false;
}

bool qb_is_reverse_only(const qb_graph *graph)
{
    return has_flag(graph, NULL, QB_OP_REVERSE_ONLY);
}

qb_status qb_refuse_forward(void)
{
    return qb_fail(
        QB_ERROR_VALUE,
        "forward mode of a custom_vjp function: only its reverse derivative is known. Use grad, vjp or jacrev, "
        "or define the function by custom_jvp, which has both modes");
}

/* A derivative by tangents that can be computed: nothing in it can only be transposed. */
static qb_status check_forward(const qb_graph *graph)
{
    bool *live = qb_allocate((size_t)graph->value_count);
    if (!live)
        return qb_fail_memory();
    qb_mark_live(graph, graph->output_count, graph->outputs, live);
    bool refused = has_flag(graph, live, QB_OP_TRANSPOSE_ONLY);
    qb_free(live);
    return refused ? qb_refuse_forward() : QB_OK;
}

static qb_status begin_gradient(work *w, const qb_graph *graph, int wrt_count, const int *wrt)
{
    *w = (work){0};
    QB_TRY(check_scalar_output(graph));
    return begin(w, graph, wrt_count, wrt);
}

static qb_status gradient_forward(work *w, int wrt, qb_graph **out)
{
    qb_dtype dtype = w->source->values[w->source->inputs[wrt]].dtype;
    w->tangents[wrt] = qb_scalar(w->graph, dtype, 1);
    QB_TRY(w->tangents[wrt] < 0 ? qb_graph_take_status(w->graph) : QB_OK);
    QB_TRY(forward(w, QB_FORWARD_TOGETHER));
    QB_TRY(add_primal_outputs(w));
    QB_TRY(add_output(w, qb_convert(w->graph, w->tangents_out[0], dtype), w->source->inputs[wrt]));
    *out = qb_graph_retain(w->graph);
    return QB_OK;
}

qb_status qb_gradient_forward(const qb_graph *graph, int wrt, qb_graph **out)
{
    work w;
    qb_status status = begin_gradient(&w, graph, 1, &wrt);
    if (status == QB_OK)
        status = gradient_forward(&w, wrt, out);
    end(&w);
    return status;
}

static qb_status gradient_reverse(work *w, int wrt_count, const int *wrt, qb_graph **out)
{
    w->cotangents[0] = qb_scalar(w->graph, w->source->values[w->source->outputs[0]].dtype, 1);
    QB_TRY(w->cotangents[0] < 0 ? qb_graph_take_status(w->graph) : QB_OK);
    QB_TRY(tangent_inputs(w, wrt_count, wrt));
    QB_TRY(reverse(w, wrt_count));
    return finish_reverse(w, wrt_count, wrt, out);
}

qb_status qb_gradient_reverse(const qb_graph *graph, int wrt_count, const int *wrt, qb_graph **out)
{
    work w;
    qb_status status = begin_gradient(&w, graph, wrt_count, wrt);
    if (status == QB_OK)
        status = gradient_reverse(&w, wrt_count, wrt, out);
    end(&w);
    return status;
}

static qb_status jvp(work *w, qb_forward mode, int wrt_count, const int *wrt, qb_graph **out)
{
    QB_TRY(tangent_inputs(w, wrt_count, wrt));
    QB_TRY(forward(w, mode));
    QB_TRY(add_primal_outputs(w));
    for (int i = 0; i < w->source->output_count; i++)
        if (qb_dtype_is_floating(w->source->values[w->source->outputs[i]].dtype))
            QB_TRY(add_output(w, w->tangents_out[i], w->source->outputs[i]));
    QB_TRY(check_forward(w->graph));
    *out = qb_graph_retain(w->graph);
    return QB_OK;
}

static qb_status whole_jvp(const qb_graph *graph, qb_forward mode, int wrt_count, const int *wrt, qb_graph **out)
{
    work w;
    qb_status status = begin(&w, graph, wrt_count, wrt);
    if (status == QB_OK)
        status = jvp(&w, mode, wrt_count, wrt, out);
    end(&w);
    return status;
}

qb_status qb_graph_jvp(const qb_graph *graph, int wrt_count, const int *wrt, qb_graph **out)
{
    return whole_jvp(graph, QB_FORWARD_TOGETHER, wrt_count, wrt, out);
}

qb_status qb_graph_linearize(const qb_graph *graph, int wrt_count, const int *wrt, qb_graph **out)
{
    return whole_jvp(graph, QB_FORWARD_SEPARATE, wrt_count, wrt, out);
}

/* The tangent inputs come before the cotangent inputs, so that dropping them leaves the order of the result. */
static qb_status vjp(work *w, int wrt_count, const int *wrt, qb_graph **out)
{
    QB_TRY(tangent_inputs(w, wrt_count, wrt));
    for (int i = 0; i < w->source->output_count; i++)
        if (qb_dtype_is_floating(w->source->values[w->source->outputs[i]].dtype))
            QB_TRY(input_like(w, w->source->outputs[i], &w->cotangents[i]));
    QB_TRY(reverse(w, wrt_count));
    return finish_reverse(w, wrt_count, wrt, out);
}

qb_status qb_graph_vjp(const qb_graph *graph, int wrt_count, const int *wrt, qb_graph **out)
{
    work w;
    qb_status status = begin(&w, graph, wrt_count, wrt);
    if (status == QB_OK)
        status = vjp(&w, wrt_count, wrt, out);
    end(&w);
    return status;
}
