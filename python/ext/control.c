/* Operations with graphs of their own, written into the active trace: loop, switch, checkpoint, custom_jvp, custom_vjp,
 * custom_end.
 *
 * Each graph was recorded by a trace of its own, and may have captured tracers of enclosing ones. Here the captures
 * become operands, each once, and the graphs are given the inputs that the operation wants. */
#include "trace.h"

#include "control/control.h"

/* What an operation is being made of. Freed as a whole. */
typedef struct assembly {
    qbpy_state *state;
    qbpy_trace *trace;
    qb_scratch scratch;
    qb_value *captured; /* values of the trace, distinct */
    int captured_count, captured_capacity;
    qb_graph **made; /* graphs for the operation */
    int made_count, made_capacity;
} assembly;

/* A graph with the captured tracers that its last inputs stand for. */
typedef struct recorded {
    qb_graph *graph; /* NULL: absent */
    const bool *weak;
    int own;      /* inputs that are not captures */
    int *capture; /* of each capture: its place in assembly.captured */
    int captures;
} recorded;

/* An input of a graph for the operation: the type of a value of some graph. */
typedef struct input {
    const qb_graph *graph;
    qb_value value;
} input;

static bool begin(assembly *a, PyObject *module)
{
    *a = (assembly){.state = qbpy_state_of(module), .trace = qbpy_current_trace()};
    if (!a->trace)
        PyErr_SetString(a->state->TracerError,
                        "an operation with functions of its own can be recorded only in a trace");
    return a->trace != NULL;
}

static void end(assembly *a)
{
    for (int i = 0; i < a->made_count; i++)
        qb_graph_release(a->made[i]);
    PyMem_Free(a->made);
    PyMem_Free(a->captured);
    qb_arena_free(&a->scratch.arena);
}

static void *take(assembly *a, int count, size_t size)
{
    void *memory = qb_scratch_take(&a->scratch, count, size);
    if (!memory)
        PyErr_NoMemory();
    return memory;
}

static bool check(assembly *a, qb_status status)
{
    if (status != QB_OK)
        qbpy_raise(a->state, status);
    return status == QB_OK;
}

/* ---- Reading arguments; false with an exception set */

static int find_captured(assembly *a, qb_value value)
{
    for (int i = 0; i < a->captured_count; i++)
        if (a->captured[i] == value)
            return i;
    if (a->captured_count == a->captured_capacity) {
        int capacity = a->captured_capacity ? 2 * a->captured_capacity : 16;
        qb_value *grown = PyMem_Realloc(a->captured, (size_t)capacity * sizeof *grown);
        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        a->captured = grown;
        a->captured_capacity = capacity;
    }
    a->captured[a->captured_count] = value;
    return a->captured_count++;
}

static bool read_recorded(assembly *a, PyObject *graph, PyObject *captures, recorded *out)
{
    *out = (recorded){0};
    if (graph == Py_None)
        return true;
    if (!Py_IS_TYPE(graph, a->state->graph_type) || !PyList_Check(captures)) {
        PyErr_SetString(PyExc_TypeError, "expected a Graph and the list of its captures");
        return false;
    }
    out->graph = ((qbpy_graph *)graph)->graph;
    out->weak = ((qbpy_graph *)graph)->weak;
    out->captures = (int)PyList_GET_SIZE(captures);
    out->own = out->graph->input_count - out->captures;
    if (!(out->capture = take(a, out->captures, sizeof *out->capture)))
        return false;
    for (int i = 0; i < out->captures; i++) {
        bool weak;
        qb_value value = qbpy_trace_value(a->state, "capture", a->trace, PyList_GET_ITEM(captures, i), &weak);
        if (value < 0 || (out->capture[i] = find_captured(a, value)) < 0)
            return false;
    }
    return true;
}

/* Leaves as values of the trace. */
static qb_value *read_values(assembly *a, PyObject *leaves, int *count, bool **weak)
{
    PyObject *fast = PySequence_Fast(leaves, "expected a sequence of arrays");
    if (!fast)
        return NULL;
    *count = (int)PySequence_Fast_GET_SIZE(fast);
    qb_value *values = take(a, *count, sizeof *values);
    bool *flags = take(a, *count, sizeof *flags);
    bool valid = values && flags;
    for (int i = 0; valid && i < *count; i++) {
        values[i] = qbpy_trace_value(a->state, "operand", a->trace, PySequence_Fast_GET_ITEM(fast, i), &flags[i]);
        valid = values[i] >= 0;
    }
    Py_DECREF(fast);
    if (weak)
        *weak = flags;
    return valid ? values : NULL;
}

/* ---- Giving graphs their inputs */

static bool keep_graph(assembly *a, qb_graph *graph)
{
    if (a->made_count == a->made_capacity) {
        int capacity = a->made_capacity ? 2 * a->made_capacity : 8;
        qb_graph **grown = PyMem_Realloc(a->made, (size_t)capacity * sizeof *grown);
        if (!grown) {
            qb_graph_release(graph);
            PyErr_NoMemory();
            return false;
        }
        a->made = grown;
        a->made_capacity = capacity;
    }
    a->made[a->made_count++] = graph;
    return true;
}

static qb_status write_adapted(const recorded *r, int count, const input *inputs, const int *own, int first_capture,
                               qb_scratch *scratch, qb_graph *graph)
{
    qb_value *values = qb_scratch_values(scratch, count);
    qb_value *arguments = qb_scratch_values(scratch, r->graph->input_count);
    qb_value *outputs = qb_scratch_values(scratch, r->graph->output_count);
    if (scratch->failed)
        return qb_fail_memory();
    for (int i = 0; i < count; i++)
        QB_TRY(qb_graph_input_like(graph, NULL, inputs[i].graph, inputs[i].value, &values[i]));
    for (int i = 0; i < r->own; i++)
        arguments[i] = values[own[i]];
    for (int i = 0; i < r->captures; i++)
        arguments[r->own + i] = values[first_capture + r->capture[i]];
    QB_TRY(qb_inline(r->graph, graph, arguments, outputs));
    for (int i = 0; i < r->graph->output_count; i++)
        QB_TRY(qb_graph_output(graph, outputs[i]));
    return QB_OK;
}

/* The recorded graph with the given inputs: its own input i is input own[i], its captures stand from first_capture
 * on. */
static qb_graph *adapt(assembly *a, const recorded *r, int count, const input *inputs, const int *own,
                       int first_capture)
{
    qb_graph *graph;
    if (!check(a, qb_graph_create(&graph)))
        return NULL;
    qb_status status = write_adapted(r, count, inputs, own, first_capture, &a->scratch, graph);
    if (!keep_graph(a, graph))
        return NULL;
    return check(a, status) ? graph : NULL;
}

/* The inputs of a simple operation: operands, then captures. */
static input *plain_inputs(assembly *a, int operand_count, const qb_value *operands, int extra)
{
    input *inputs = take(a, operand_count + a->captured_count + extra, sizeof *inputs);
    for (int i = 0; inputs && i < operand_count; i++)
        inputs[i] = (input){a->trace->graph, operands[i]};
    for (int i = 0; inputs && i < a->captured_count; i++)
        inputs[operand_count + i] = (input){a->trace->graph, a->captured[i]};
    return inputs;
}

static int *ascending(assembly *a, int count)
{
    int *numbers = take(a, count, sizeof *numbers);
    for (int i = 0; numbers && i < count; i++)
        numbers[i] = i;
    return numbers;
}

static qb_value *join(assembly *a, int first_count, const qb_value *first, int second_count, const qb_value *second)
{
    qb_value *all = take(a, first_count + second_count, sizeof *all);
    if (all && first_count)
        memcpy(all, first, (size_t)first_count * sizeof *all);
    if (all && second_count)
        memcpy(all + first_count, second, (size_t)second_count * sizeof *all);
    return all;
}

static PyObject *tracers(assembly *a, int count, const qb_value *values, const bool *weak)
{
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        PyObject *item = qbpy_tracer_wrap(a->state, a->trace, values[i], weak && weak[i]);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

/* Emits, and wraps the results. */
static PyObject *finish(assembly *a, const qb_op *op, int operand_count, const qb_value *operands,
                        const qb_attribute *attributes, const bool *weak)
{
    int count = qb_result_count(op, operand_count, attributes);
    qb_value *results = take(a, count, sizeof *results);
    if (!results)
        return NULL;
    if (!qb_emit_all(a->trace->graph, op, operand_count, operands, attributes, results))
        return qbpy_raise(a->state, qb_graph_take_status(a->trace->graph));
    return tracers(a, count, results, weak);
}

/* ---- loop */

PyDoc_STRVAR(
    loop_doc,
    "loop(body, body_captures, condition, condition_captures, capacity, reverse, count, carries, sequences)\n--\n\n"
    "A loop in the active trace: body(i, carries, elements, captures) -> (carries, ys), as long as\n"
    "condition(i, carries, captures) holds (None: always) and for at most `count` (None: no limit but capacity)\n"
    "iterations. Returns (carries, stacked ys, number of iterations: None without a condition).");

typedef struct loop_parts {
    recorded body, condition;
    qb_loop loop;
    qb_value *carries, *sequences;
    bool *weak;
} loop_parts;

/* Inputs of the body: i, captures as constants, carries, elements; of the condition: all but the elements. */
static bool adapt_loop(assembly *a, loop_parts *p)
{
    const qb_graph *body = p->body.graph;
    int consts = a->captured_count, carries = p->loop.carries, sequences = p->loop.sequences;
    input *inputs = take(a, 1 + consts + carries + sequences, sizeof *inputs);
    int *own = take(a, 1 + carries + sequences, sizeof *own);
    if (!inputs || !own)
        return false;
    if (p->body.own != 1 + carries + sequences || (p->condition.graph && p->condition.own != 1 + carries)) {
        PyErr_SetString(PyExc_TypeError, "loop: the graphs do not have the inputs of this loop");
        return false;
    }
    inputs[0] = (input){body, body->inputs[0]};
    for (int i = 0; i < consts; i++)
        inputs[1 + i] = (input){a->trace->graph, a->captured[i]};
    for (int i = 1; i < p->body.own; i++) {
        own[i] = consts + i;
        inputs[own[i]] = (input){body, body->inputs[i]};
    }
    p->loop.body = adapt(a, &p->body, 1 + consts + carries + sequences, inputs, own, 1);
    if (!p->loop.body)
        return false;
    if (p->condition.graph)
        p->loop.condition = adapt(a, &p->condition, 1 + consts + carries, inputs, own, 1);
    return !p->condition.graph || p->loop.condition;
}

static PyObject *emit_loop(assembly *a, loop_parts *p)
{
    int outputs = p->loop.body->output_count, carries = p->loop.carries;
    qb_value *rest = join(a, carries, p->carries, p->loop.sequences, p->sequences);
    qb_value *operands = rest ? join(a, a->captured_count, a->captured, carries + p->loop.sequences, rest) : NULL;
    qb_value *results = take(a, outputs + 1, sizeof *results);
    bool *weak = take(a, outputs, sizeof *weak);
    if (!operands || !results || !weak)
        return NULL;
    p->loop.consts = a->captured_count;
    p->loop.operands = operands;
    for (int i = 0; i < outputs; i++)
        weak[i] = p->body.weak[i] && (i >= carries || p->weak[i]);
    if (!qb_loop_emit(a->trace->graph, &p->loop, results))
        return qbpy_raise(a->state, qb_graph_take_status(a->trace->graph));
    PyObject *executed =
        p->loop.condition ? qbpy_tracer_wrap(a->state, a->trace, results[outputs], false) : Py_NewRef(Py_None);
    return Py_BuildValue("NNN", tracers(a, carries, results, weak),
                         tracers(a, outputs - carries, results + carries, weak + carries), executed);
}

static PyObject *loop(PyObject *module, PyObject *args)
{
    PyObject *body, *body_captures, *condition, *condition_captures, *count, *carries, *sequences, *result = NULL;
    long long capacity;
    int reverse;
    assembly a;
    loop_parts p = {.loop = {.count = QB_NONE}};
    if (!PyArg_ParseTuple(args, "OOOOLpOOO", &body, &body_captures, &condition, &condition_captures, &capacity,
                          &reverse, &count, &carries, &sequences) ||
        !begin(&a, module))
        return NULL;
    p.loop.capacity = capacity < 0 ? -1 : capacity;
    p.loop.reverse = reverse != 0;
    bool weak, valid = read_recorded(&a, body, body_captures, &p.body) &&
                       read_recorded(&a, condition, condition_captures, &p.condition) &&
                       (p.carries = read_values(&a, carries, &p.loop.carries, &p.weak)) != NULL &&
                       (p.sequences = read_values(&a, sequences, &p.loop.sequences, NULL)) != NULL;
    if (valid && count != Py_None)
        valid = (p.loop.count = qbpy_trace_value(a.state, "loop", a.trace, count, &weak)) >= 0;
    if (valid && !p.body.graph) {
        PyErr_SetString(PyExc_TypeError, "loop: no body");
        valid = false;
    }
    if (valid && adapt_loop(&a, &p))
        result = emit_loop(&a, &p);
    end(&a);
    return result;
}

/* ---- switch */

PyDoc_STRVAR(switch_doc,
             "switch(index, graphs, captures, operands)\n--\n\n"
             "The results of graphs[index](operands, captures), in the active trace; the index is clamped.");

static PyObject *make_switch(assembly *a, PyObject *index, PyObject *graphs, PyObject *captures, PyObject *leaves)
{
    int count = (int)PyList_GET_SIZE(graphs), operand_count;
    recorded *branches = take(a, count, sizeof *branches);
    qb_graph **made = take(a, count, sizeof(qb_graph *));
    qb_value *operands = read_values(a, leaves, &operand_count, NULL);
    bool is_weak;
    qb_value selector =
        operands && branches && made ? qbpy_trace_value(a->state, "switch", a->trace, index, &is_weak) : QB_FAILED;
    if (selector < 0)
        return NULL;
    for (int i = 0; i < count; i++)
        if (!read_recorded(a, PyList_GET_ITEM(graphs, i), PyList_GET_ITEM(captures, i), &branches[i]))
            return NULL;
    input *inputs = plain_inputs(a, operand_count, operands, 0);
    int *own = ascending(a, operand_count), results = branches[0].graph->output_count;
    bool *weak = take(a, results, sizeof *weak);
    if (!inputs || !own || !weak)
        return NULL;
    for (int i = 0; i < results; i++)
        weak[i] = true;
    for (int i = 0; i < count; i++) {
        if (branches[i].own != operand_count || branches[i].graph->output_count != results)
            return PyErr_Format(PyExc_TypeError, "switch: branch %d has other inputs or outputs", i);
        if (!(made[i] = adapt(a, &branches[i], operand_count + a->captured_count, inputs, own, operand_count)))
            return NULL;
        for (int k = 0; k < results; k++)
            weak[k] = weak[k] && branches[i].weak[k];
    }
    qb_attribute attribute = qb_subgraphs(count, made);
    qb_value *rest = join(a, operand_count, operands, a->captured_count, a->captured);
    qb_value *all = rest ? join(a, 1, &selector, operand_count + a->captured_count, rest) : NULL;
    return all ? finish(a, &qb_op_switch, 1 + operand_count + a->captured_count, all, &attribute, weak) : NULL;
}

static PyObject *switch_(PyObject *module, PyObject *args)
{
    PyObject *index, *graphs, *captures, *operands;
    assembly a;
    if (!PyArg_ParseTuple(args, "OO!O!O", &index, &PyList_Type, &graphs, &PyList_Type, &captures, &operands) ||
        !begin(&a, module))
        return NULL;
    PyObject *result = NULL;
    if (PyList_GET_SIZE(graphs) == 0 || PyList_GET_SIZE(graphs) != PyList_GET_SIZE(captures))
        PyErr_SetString(PyExc_TypeError, "switch: expected at least one graph, and a list of captures for each");
    else
        result = make_switch(&a, index, graphs, captures, operands);
    end(&a);
    return result;
}

/* ---- One graph with others that belong to it */

/* The operation `op` of a function's graph and those that belong to it. For the operation each has operands and
 * captures as its first inputs; a recorded graph has the operands where takes_operands[i]. What other inputs it has
 * follow. The last attribute is the order, or where that is 0 the number of operands. */
static PyObject *make_custom(assembly *a, const qb_op *op, int count, PyObject *const *graphs,
                             PyObject *const *captures, const int *takes_operands, PyObject *leaves, int order)
{
    enum { MOST = 3 };
    recorded parts[MOST];
    qb_attribute attributes[MOST + 1];
    int operand_count;
    qb_value *operands = read_values(a, leaves, &operand_count, NULL);
    if (!operands)
        return NULL;
    for (int i = 0; i < count; i++)
        if (!read_recorded(a, graphs[i], captures[i], &parts[i]))
            return NULL;
    int total = operand_count + a->captured_count;
    for (int i = 0; i < count; i++) {
        int first = takes_operands[i] ? operand_count : 0, extra = parts[i].own - first;
        input *inputs = extra >= 0 ? plain_inputs(a, operand_count, operands, extra) : NULL;
        int *own = inputs ? ascending(a, parts[i].own) : NULL;
        if (!own)
            return PyErr_Occurred() ? NULL : PyErr_Format(PyExc_TypeError, "%s: a graph has too few inputs", op->name);
        for (int k = 0; k < extra; k++) {
            inputs[total + k] = (input){parts[i].graph, parts[i].graph->inputs[first + k]};
            own[first + k] = total + k;
        }
        qb_graph *made = adapt(a, &parts[i], total + extra, inputs, own, operand_count);
        if (!made)
            return NULL;
        attributes[i] = qb_subgraph(made);
    }
    attributes[count] = qb_int(order ? order : operand_count);
    qb_value *all = join(a, operand_count, operands, a->captured_count, a->captured);
    return all ? finish(a, op, total, all, attributes, parts[0].weak) : NULL;
}

PyDoc_STRVAR(checkpoint_doc,
             "checkpoint(graph, captures, operands)\n--\n\n"
             "The results of the graph in the active trace, as one node, which derivatives compute again.");

static PyObject *checkpoint(PyObject *module, PyObject *args)
{
    PyObject *graph, *captures, *operands;
    assembly a;
    if (!PyArg_ParseTuple(args, "OOO", &graph, &captures, &operands) || !begin(&a, module))
        return NULL;
    PyObject *result = make_custom(&a, &qb_op_checkpoint, 1, &graph, &captures, (const int[]){1}, operands, 0);
    end(&a);
    return result;
}

PyDoc_STRVAR(
    custom_jvp_doc,
    "custom_jvp(graph, captures, rule, rule_captures, operands)\n--\n\n"
    "The results of the graph in the active trace, with rule(operands, tangents, captures) -> (results, tangents)\n"
    "as derivative; there is a tangent for each floating operand and result.");

static PyObject *custom_jvp(PyObject *module, PyObject *args)
{
    PyObject *graphs[2], *captures[2], *operands;
    assembly a;
    if (!PyArg_ParseTuple(args, "OOOOO", &graphs[0], &captures[0], &graphs[1], &captures[1], &operands) ||
        !begin(&a, module))
        return NULL;
    PyObject *result = make_custom(&a, &qb_op_custom_jvp, 2, graphs, captures, (const int[]){1, 1}, operands, 0);
    end(&a);
    return result;
}

PyDoc_STRVAR(
    custom_vjp_doc,
    "custom_vjp(graph, captures, forward, forward_captures, backward, backward_captures, operands)\n--\n\n"
    "The results of the graph in the active trace, with forward(operands, captures) -> (results, residuals) and\n"
    "backward(residuals, cotangents, captures) -> cotangents as derivative; there is a cotangent for each floating\n"
    "result and operand.");

static PyObject *custom_vjp(PyObject *module, PyObject *args)
{
    PyObject *graphs[3], *captures[3], *operands;
    assembly a;
    if (!PyArg_ParseTuple(args, "OOOOOOO", &graphs[0], &captures[0], &graphs[1], &captures[1], &graphs[2], &captures[2],
                          &operands) ||
        !begin(&a, module))
        return NULL;
    PyObject *result = make_custom(&a, &qb_op_custom_vjp, 3, graphs, captures, (const int[]){1, 1, 0}, operands, 0);
    end(&a);
    return result;
}

PyDoc_STRVAR(custom_end_doc,
             "custom_end(graph, captures, operands, order)\n--\n\n"
             "The results of the graph in the active trace, as one node whose derivative is an error that says that\n"
             "there are derivatives up to this order.");

static PyObject *custom_end(PyObject *module, PyObject *args)
{
    PyObject *graph, *captures, *operands;
    int order;
    assembly a;
    if (!PyArg_ParseTuple(args, "OOOi", &graph, &captures, &operands, &order) || !begin(&a, module))
        return NULL;
    PyObject *result = make_custom(&a, &qb_op_custom_end, 1, &graph, &captures, (const int[]){1}, operands, order);
    end(&a);
    return result;
}

static PyMethodDef functions[] = {
    {"loop", loop, METH_VARARGS, loop_doc},
    {"switch", switch_, METH_VARARGS, switch_doc},
    {"checkpoint", checkpoint, METH_VARARGS, checkpoint_doc},
    {"custom_jvp", custom_jvp, METH_VARARGS, custom_jvp_doc},
    {"custom_vjp", custom_vjp, METH_VARARGS, custom_vjp_doc},
    {"custom_end", custom_end, METH_VARARGS, custom_end_doc},
    {NULL, NULL, 0, NULL},
};

int qbpy_control_install(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
