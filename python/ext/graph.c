/* Graph and Program: finished traces, the transforms of a graph as its methods, and running.
 *
 * A Graph is immutable. The apply_* methods write it into the innermost active trace: so transforms compose by being
 * traced. */
#include "trace.h"

#include "quabla_config.h"

#include "passes/gradient.h"
#include "passes/pipeline.h"
#include "transforms/transforms.h"

PyObject *qbpy_graph_wrap(qbpy_state *state, qb_graph *stolen, const bool *weak)
{
    qbpy_graph *self = PyObject_New(qbpy_graph, state->graph_type);
    if (!self) {
        qb_graph_release(stolen);
        return NULL;
    }
    self->graph = stolen;
    self->weak = PyMem_Calloc((size_t)stolen->output_count + 1, sizeof *self->weak);
    if (!self->weak) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    for (int i = 0; weak && i < stolen->output_count; i++)
        self->weak[i] = weak[i];
    return (PyObject *)self;
}

static qb_graph *graph_of(PyObject *self)
{
    return ((qbpy_graph *)self)->graph;
}

static void graph_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    qb_graph_release(graph_of(self));
    PyMem_Free(((qbpy_graph *)self)->weak);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* ---- Arguments: lists of leaves and of ints. What these functions return is owned by PyMem; NULL with an exception
 * set. */

/* Zeroed. */
static void *make_room(int count, size_t size)
{
    void *memory = PyMem_Calloc((size_t)count + 1, size);
    if (!memory)
        PyErr_NoMemory();
    return memory;
}

static int *int_list(PyObject *list, int *count)
{
    PyObject *fast = PySequence_Fast(list, "expected a sequence of ints");
    if (!fast)
        return NULL;
    *count = (int)PySequence_Fast_GET_SIZE(fast);
    int *out = make_room(*count, sizeof *out);
    for (int i = 0; out && i < *count; i++)
        out[i] = (int)PyLong_AsLong(PySequence_Fast_GET_ITEM(fast, i));
    Py_DECREF(fast);
    if (out && PyErr_Occurred()) {
        PyMem_Free(out);
        return NULL;
    }
    return out;
}

static bool *bool_list(PyObject *list, int expected)
{
    PyObject *fast = PySequence_Fast(list, "expected a sequence of bools");
    if (!fast)
        return NULL;
    bool *out = make_room(expected, sizeof *out);
    if (out && PySequence_Fast_GET_SIZE(fast) != expected) {
        PyErr_Format(PyExc_ValueError, "expected %d flags, got %zd", expected, PySequence_Fast_GET_SIZE(fast));
        PyMem_Free(out);
        out = NULL;
    }
    for (int i = 0; out && i < expected; i++)
        out[i] = PyObject_IsTrue(PySequence_Fast_GET_ITEM(fast, i)) > 0;
    Py_DECREF(fast);
    return out;
}

/* The values of leaves (None: QB_NONE) in `trace`. */
static qb_value *leaf_values(qbpy_state *state, qbpy_trace *trace, PyObject *leaves, int expected)
{
    PyObject *fast = PySequence_Fast(leaves, "expected a sequence of arrays");
    if (!fast)
        return NULL;
    qb_value *out = make_room(expected, sizeof *out);
    bool valid = out != NULL;
    if (out && PySequence_Fast_GET_SIZE(fast) != expected) {
        PyErr_Format(PyExc_ValueError, "the graph has %d inputs, got %zd arrays", expected,
                     PySequence_Fast_GET_SIZE(fast));
        valid = false;
    }
    for (int i = 0; valid && i < expected; i++) {
        PyObject *leaf = PySequence_Fast_GET_ITEM(fast, i);
        bool weak;
        out[i] = QB_NONE;
        if (leaf != Py_None)
            valid = (out[i] = qbpy_trace_value(state, "apply", trace, leaf, &weak)) >= 0;
    }
    Py_DECREF(fast);
    if (!valid) {
        PyMem_Free(out);
        return NULL;
    }
    return out;
}

/* The active trace. Only tracers lead here without one: they outlived theirs. */
static qbpy_trace *need_trace(qbpy_state *state, PyObject *leaves)
{
    qbpy_trace *trace = qbpy_current_trace();
    if (trace)
        return trace;
    PyObject *fast = PySequence_Fast(leaves, "expected a sequence of arrays");
    if (!fast)
        return NULL;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(fast) && !PyErr_Occurred(); i++)
        if (qbpy_is_tracer(state, PySequence_Fast_GET_ITEM(fast, i)))
            qbpy_tracer_escaped(state, PySequence_Fast_GET_ITEM(fast, i));
    Py_DECREF(fast);
    if (!PyErr_Occurred())
        PyErr_SetString(state->TracerError, "a graph can be applied only while a function is being traced");
    return NULL;
}

static PyObject *tracer_list(qbpy_state *state, qbpy_trace *trace, int count, const qb_value *values, const bool *weak)
{
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        PyObject *item =
            values[i] == QB_NONE ? Py_NewRef(Py_None) : qbpy_tracer_wrap(state, trace, values[i], weak && weak[i]);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

/* ---- Writing into the active trace */

PyDoc_STRVAR(apply_doc,
             "apply(leaves)\n--\n\nInlines the graph into the active trace; returns its outputs as a list of tracers.");

static PyObject *graph_apply(PyObject *self, PyObject *leaves)
{
    qbpy_state *state = qbpy_state_of_object(self);
    qb_graph *graph = graph_of(self);
    qbpy_trace *trace = need_trace(state, leaves);
    qb_value *arguments = trace ? leaf_values(state, trace, leaves, graph->input_count) : NULL;
    qb_value *outputs = arguments ? make_room(graph->output_count, sizeof *outputs) : NULL;
    PyObject *result = NULL;
    if (outputs) {
        qb_status status = qb_inline(graph, trace->graph, arguments, outputs);
        result = status == QB_OK ? tracer_list(state, trace, graph->output_count, outputs, ((qbpy_graph *)self)->weak)
                                 : qbpy_raise(state, status);
    }
    PyMem_Free(arguments);
    PyMem_Free(outputs);
    return result;
}

PyDoc_STRVAR(apply_jvp_doc,
             "apply_jvp(primals, tangents)\n--\n\n"
             "Forward mode into the active trace; a tangent may be None (zero). Returns (outputs, output tangents).");

static PyObject *graph_apply_jvp(PyObject *self, PyObject *args)
{
    qbpy_state *state = qbpy_state_of_object(self);
    qb_graph *graph = graph_of(self);
    PyObject *primals, *tangents, *result = NULL;
    if (!PyArg_ParseTuple(args, "OO", &primals, &tangents))
        return NULL;
    qbpy_trace *trace = need_trace(state, primals);
    if (!trace)
        return NULL;
    qb_value *primal = leaf_values(state, trace, primals, graph->input_count);
    qb_value *tangent = primal ? leaf_values(state, trace, tangents, graph->input_count) : NULL;
    int count = graph->output_count;
    qb_value *outputs = tangent ? make_room(2 * count, sizeof *outputs) : NULL;
    if (outputs) {
        qb_status status = qb_jvp(graph, trace->graph, QB_FORWARD_TOGETHER, primal, tangent, outputs, outputs + count);
        if (status != QB_OK)
            qbpy_raise(state, status);
        else
            result = Py_BuildValue("NN", tracer_list(state, trace, count, outputs, NULL),
                                   tracer_list(state, trace, count, outputs + count, NULL));
    }
    PyMem_Free(primal);
    PyMem_Free(tangent);
    PyMem_Free(outputs);
    return result;
}

PyDoc_STRVAR(apply_vmap_doc,
             "apply_vmap(leaves, mapped, size)\n--\n\n"
             "Batches into the active trace: leaves with mapped[i] have a leading axis of extent size. Returns\n"
             "(outputs, which of them have the axis).");

static PyObject *bool_tuple(int count, const bool *flags)
{
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++)
        PyTuple_SET_ITEM(tuple, i, PyBool_FromLong(flags[i]));
    return tuple;
}

static PyObject *graph_apply_vmap(PyObject *self, PyObject *args)
{
    qbpy_state *state = qbpy_state_of_object(self);
    qb_graph *graph = graph_of(self);
    PyObject *leaves, *flags, *result = NULL;
    long long size;
    if (!PyArg_ParseTuple(args, "OOL", &leaves, &flags, &size))
        return NULL;
    qbpy_trace *trace = need_trace(state, leaves);
    if (!trace)
        return NULL;
    int count = graph->output_count;
    qb_value *arguments = leaf_values(state, trace, leaves, graph->input_count);
    bool *mapped = arguments ? bool_list(flags, graph->input_count) : NULL;
    qb_value *outputs = mapped ? make_room(count, sizeof *outputs) : NULL;
    bool *outputs_mapped = outputs ? make_room(count, sizeof *outputs_mapped) : NULL;
    if (outputs_mapped) {
        qb_status status = qb_vmap(graph, trace->graph, arguments, mapped, size, outputs, outputs_mapped);
        if (status != QB_OK)
            qbpy_raise(state, status);
        else
            result = Py_BuildValue("NN", tracer_list(state, trace, count, outputs, ((qbpy_graph *)self)->weak),
                                   bool_tuple(count, outputs_mapped));
    }
    PyMem_Free(arguments);
    PyMem_Free(mapped);
    PyMem_Free(outputs);
    PyMem_Free(outputs_mapped);
    return result;
}

PyDoc_STRVAR(
    apply_taylor_doc,
    "apply_taylor(coefficients, order)\n--\n\n"
    "Taylor mode into the active trace: order + 1 coefficients for each input, one after the other (None: zero);\n"
    "returns those of the outputs.");

static PyObject *graph_apply_taylor(PyObject *self, PyObject *args)
{
    qbpy_state *state = qbpy_state_of_object(self);
    qb_graph *graph = graph_of(self);
    PyObject *coefficients, *result = NULL;
    int order;
    if (!PyArg_ParseTuple(args, "Oi", &coefficients, &order))
        return NULL;
    qbpy_trace *trace = need_trace(state, coefficients);
    if (!trace)
        return NULL;
    if (order < 0 || order > 1000)
        return PyErr_Format(PyExc_ValueError, "the order of a derivative must be from 0 to 1000, got %d", order);
    qb_value *inputs = leaf_values(state, trace, coefficients, graph->input_count * (order + 1));
    int count = graph->output_count * (order + 1);
    qb_value *outputs = inputs ? make_room(count, sizeof *outputs) : NULL;
    if (outputs) {
        qb_status status = qb_taylor(graph, trace->graph, order, inputs, outputs);
        result = status == QB_OK ? tracer_list(state, trace, count, outputs, NULL) : qbpy_raise(state, status);
    }
    PyMem_Free(inputs);
    PyMem_Free(outputs);
    return result;
}

PyDoc_STRVAR(
    apply_laplacian_doc,
    "apply_laplacian(primals, tangents, directions)\n--\n\n"
    "Forward Laplacian into the active trace: tangents have a leading axis of directions, or are None. Returns value,\n"
    "directional derivatives (None: zero) and Laplacian (None: zero) of each output, one after the other.");

static PyObject *graph_apply_laplacian(PyObject *self, PyObject *args)
{
    qbpy_state *state = qbpy_state_of_object(self);
    qb_graph *graph = graph_of(self);
    PyObject *primals, *tangents, *result = NULL;
    long long directions;
    if (!PyArg_ParseTuple(args, "OOL", &primals, &tangents, &directions))
        return NULL;
    qbpy_trace *trace = need_trace(state, primals);
    if (!trace)
        return NULL;
    qb_value *primal = leaf_values(state, trace, primals, graph->input_count);
    qb_value *tangent = primal ? leaf_values(state, trace, tangents, graph->input_count) : NULL;
    int count = 3 * graph->output_count;
    qb_value *outputs = tangent ? make_room(count, sizeof *outputs) : NULL;
    if (outputs) {
        qb_status status = qb_laplacian(graph, trace->graph, directions, primal, tangent, outputs);
        result = status == QB_OK ? tracer_list(state, trace, count, outputs, NULL) : qbpy_raise(state, status);
    }
    PyMem_Free(primal);
    PyMem_Free(tangent);
    PyMem_Free(outputs);
    return result;
}

/* ---- New graphs */

typedef qb_status (*derivative)(const qb_graph *graph, int wrt_count, const int *wrt, qb_graph **out);

static PyObject *derive(PyObject *self, PyObject *wrt, derivative transform)
{
    qbpy_state *state = qbpy_state_of_object(self);
    int count;
    int *indices = int_list(wrt, &count);
    if (!indices)
        return NULL;
    qb_graph *out;
    qb_status status = transform(graph_of(self), count, indices, &out);
    PyMem_Free(indices);
    return status == QB_OK ? qbpy_graph_wrap(state, out, NULL) : qbpy_raise(state, status);
}

static PyObject *graph_gradient(PyObject *self, PyObject *args)
{
    qbpy_state *state = qbpy_state_of_object(self);
    PyObject *wrt;
    const char *what = "gradient";
    int count;
    if (!PyArg_ParseTuple(args, "O|s", &wrt, &what))
        return NULL;
    int *indices = int_list(wrt, &count);
    if (!indices)
        return NULL;
    qb_graph *out;
    qb_status status = qb_choose_gradient(graph_of(self), what, count, indices, &out);
    PyMem_Free(indices);
    return status == QB_OK ? qbpy_graph_wrap(state, out, NULL) : qbpy_raise(state, status);
}

static PyObject *graph_jvp(PyObject *self, PyObject *wrt)
{
    return derive(self, wrt, qb_graph_jvp);
}

static PyObject *graph_linearize(PyObject *self, PyObject *wrt)
{
    return derive(self, wrt, qb_graph_linearize);
}

static PyObject *graph_vjp(PyObject *self, PyObject *wrt)
{
    return derive(self, wrt, qb_graph_vjp);
}

PyDoc_STRVAR(
    split_doc,
    "split(late_inputs, early_outputs)\n--\n\n"
    "(early, late): early computes the first outputs and residuals from the inputs that are not late; late computes\n"
    "the other outputs from residuals and late inputs.");

static PyObject *graph_split(PyObject *self, PyObject *args)
{
    qbpy_state *state = qbpy_state_of_object(self);
    PyObject *flags;
    int early_outputs;
    if (!PyArg_ParseTuple(args, "Oi", &flags, &early_outputs))
        return NULL;
    bool *late_inputs = bool_list(flags, graph_of(self)->input_count);
    if (!late_inputs)
        return NULL;
    qb_graph *early, *late;
    qb_status status = qb_split(graph_of(self), late_inputs, early_outputs, false, &early, &late);
    PyMem_Free(late_inputs);
    if (status != QB_OK)
        return qbpy_raise(state, status);
    PyObject *first = qbpy_graph_wrap(state, early, NULL), *second = qbpy_graph_wrap(state, late, NULL);
    if (!first || !second) {
        Py_XDECREF(first);
        Py_XDECREF(second);
        return NULL;
    }
    return Py_BuildValue("NN", first, second);
}

/* ---- Text, types, compiling */

static PyObject *take_text(qbpy_state *state, qb_status status, char *text)
{
    if (status != QB_OK)
        return qbpy_raise(state, status);
    PyObject *result = PyUnicode_FromString(text);
    qb_text_free(text);
    return result;
}

PyDoc_STRVAR(text_doc,
             "text(optimized=True, source=False, notes=False)\n--\n\nThe canonical text, after the passes or as "
             "traced; with the line "
             "of\nthe user's program that each node comes from, and with the notes of how the graph came to be.");

static PyObject *graph_text(PyObject *self, PyObject *args)
{
    qbpy_state *state = qbpy_state_of_object(self);
    int optimized = 1, source = 0, notes = 0;
    char *text = NULL;
    if (!PyArg_ParseTuple(args, "|ppp", &optimized, &source, &notes))
        return NULL;
    qb_text_options options = {.notes = notes, .sources = source};
    qb_status status;
    if (!optimized) {
        status = qb_graph_write(graph_of(self), options, &text);
        return take_text(state, status, text);
    }
    qb_graph *simple;
    status = qb_optimize(graph_of(self), &simple);
    if (status != QB_OK)
        return qbpy_raise(state, status);
    status = qb_graph_write(simple, options, &text);
    qb_graph_release(simple);
    return take_text(state, status, text);
}

static PyObject *types_of(PyObject *self, int count, const qb_value *values)
{
    qbpy_state *state = qbpy_state_of_object(self);
    PyObject *list = PyList_New(count);
    for (int i = 0; list && i < count; i++) {
        const qb_value_info *info = &graph_of(self)->values[values[i]];
        PyObject *pair =
            Py_BuildValue("NN", qbpy_shape_tuple(info->rank, info->shape), qbpy_dtype_object(state, info->dtype));
        if (!pair)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, pair);
    }
    return list;
}

static PyObject *graph_inputs(PyObject *self, void *unused)
{
    (void)unused;
    return types_of(self, graph_of(self)->input_count, graph_of(self)->inputs);
}

static PyObject *graph_outputs(PyObject *self, void *unused)
{
    (void)unused;
    return types_of(self, graph_of(self)->output_count, graph_of(self)->outputs);
}

static PyObject *graph_reverse_only(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(qb_is_reverse_only(graph_of(self)));
}

PyDoc_STRVAR(compile_doc, "compile(device='cpu')\n--\n\nThe Program of the graph for a device.");

static PyObject *graph_compile(PyObject *self, PyObject *args)
{
    qbpy_state *state = qbpy_state_of_object(self);
    const char *device = "cpu";
    if (!PyArg_ParseTuple(args, "|z", &device))
        return NULL;
    qb_program *compiled;
    qb_status status = qb_compile(state->context, graph_of(self), device ? device : "cpu", &compiled);
    if (status != QB_OK)
        return qbpy_raise(state, status);
    bool *weak = make_room(graph_of(self)->output_count, sizeof *weak);
    qbpy_program *program = weak ? PyObject_New(qbpy_program, state->program_type) : NULL;
    if (!program) {
        qb_program_release(compiled);
        PyMem_Free(weak);
        return NULL;
    }
    program->program = compiled;
    program->input_count = graph_of(self)->input_count;
    program->output_count = graph_of(self)->output_count;
    program->weak = weak;
    memcpy(weak, ((qbpy_graph *)self)->weak, (size_t)program->output_count * sizeof *weak);
    return (PyObject *)program;
}

static PyMethodDef graph_methods[] = {
    {"apply", graph_apply, METH_O, apply_doc},
    {"apply_jvp", graph_apply_jvp, METH_VARARGS, apply_jvp_doc},
    {"apply_vmap", graph_apply_vmap, METH_VARARGS, apply_vmap_doc},
    {"apply_taylor", graph_apply_taylor, METH_VARARGS, apply_taylor_doc},
    {"apply_laplacian", graph_apply_laplacian, METH_VARARGS, apply_laplacian_doc},
    {"gradient", graph_gradient, METH_VARARGS,
     "gradient(wrt, what='gradient')\n--\n\nThe graph of the outputs, then the gradients of output 0, with a note of "
     "its mode that begins with `what`."},
    {"jvp", graph_jvp, METH_O, "jvp(wrt)\n--\n\nThe graph with tangents: see qb_graph_jvp."},
    {"linearize", graph_linearize, METH_O, "linearize(wrt)\n--\n\nAs jvp, such that it can be split at the tangents."},
    {"vjp", graph_vjp, METH_O, "vjp(wrt)\n--\n\nThe graph with cotangents: see qb_graph_vjp."},
    {"split", graph_split, METH_VARARGS, split_doc},
    {"text", graph_text, METH_VARARGS, text_doc},
    {"compile", graph_compile, METH_VARARGS, compile_doc},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef graph_getset[] = {
    {"inputs", graph_inputs, NULL, "(shape, dtype) of each input.", NULL},
    {"outputs", graph_outputs, NULL, "(shape, dtype) of each output.", NULL},
    {"reverse_only", graph_reverse_only, NULL, "Whether something in it has no forward derivative.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot graph_slots[] = {
    {Py_tp_doc, "A traced function as an immutable graph of primitive operations."},
    {Py_tp_dealloc, (void *)graph_dealloc},
    {Py_tp_methods, graph_methods},
    {Py_tp_getset, graph_getset},
    {0, NULL},
};

static PyType_Spec graph_spec = {
    .name = "quabla._core.Graph",
    .basicsize = sizeof(qbpy_graph),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = graph_slots,
};

/* ---- Program */

static void program_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    qb_program_release(((qbpy_program *)self)->program);
    PyMem_Free(((qbpy_program *)self)->weak);
    PyObject_Free(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(
    program_run_doc,
    "run(tensors)\n--\n\nRuns on a sequence of Tensors of exactly the input types; returns a list of Tensors.");

/* Drops outputs that are not finite, with the error that says where they come from. `all`: inputs, then outputs. */
static qb_status check_outputs(const qbpy_program *program, qb_tensor *const *all)
{
    qb_tensor *const *outputs = all + program->input_count;
    qb_status status = qb_check_finite(program->program, all, outputs);
    for (int i = 0; status != QB_OK && i < program->output_count; i++)
        qb_tensor_release(outputs[i]);
    return status;
}

static PyObject *program_run(PyObject *self, PyObject *tensors)
{
    qbpy_state *state = qbpy_state_of_object(self);
    qbpy_program *program = (qbpy_program *)self;
    PyObject *fast = PySequence_Fast(tensors, "run: expected a sequence of Tensors");
    if (!fast)
        return NULL;
    PyObject *result = NULL;
    qb_tensor **all = make_room(program->input_count + program->output_count, sizeof *all);
    if (!all) {
        Py_DECREF(fast);
        return NULL;
    }
    qb_tensor **outputs = all + program->input_count;
    bool valid = PySequence_Fast_GET_SIZE(fast) == program->input_count;
    for (int i = 0; valid && i < program->input_count; i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(fast, i);
        valid = qbpy_is_tensor(state, item);
        all[i] = valid ? qbpy_tensor_get(item) : NULL;
    }
    if (!valid) {
        PyErr_Format(PyExc_TypeError, "run: expected %d Tensors", program->input_count);
    } else {
        qb_status status;
        Py_BEGIN_ALLOW_THREADS;
        status = qb_run(program->program, all, outputs);
        Py_END_ALLOW_THREADS;
        if (status == QB_OK && qbpy_debug_nans())
            status = check_outputs(program, all);
        result = status == QB_OK ? PyList_New(program->output_count) : qbpy_raise(state, status);
        for (int i = 0; status == QB_OK && i < program->output_count; i++) {
            PyObject *wrapped = result ? qbpy_tensor_wrap(state, outputs[i], program->weak[i]) : NULL;
            if (!result)
                qb_tensor_release(outputs[i]);
            else if (!wrapped)
                Py_CLEAR(result);
            else
                PyList_SET_ITEM(result, i, wrapped);
        }
    }
    PyMem_Free(all);
    Py_DECREF(fast);
    return result;
}

static PyObject *program_text(PyObject *self, PyObject *unused)
{
    (void)unused;
    char *text = NULL;
    qb_status status = qb_program_text(((qbpy_program *)self)->program, &text);
    return take_text(qbpy_state_of_object(self), status, text);
}

static PyObject *program_cost(PyObject *self, PyObject *unused)
{
    (void)unused;
    qb_cost cost;
    qb_program_cost(((qbpy_program *)self)->program, &cost);
    return Py_BuildValue("LLL", (long long)cost.flops, (long long)cost.bytes, (long long)cost.peak_bytes);
}

static PyMethodDef program_methods[] = {
    {"run", program_run, METH_O, program_run_doc},
    {"cost", program_cost, METH_NOARGS, "cost()\n--\n\n(flops, bytes, peak_bytes) of a run, estimated."},
    {"text", program_text, METH_NOARGS, "text()\n--\n\nThe plan: steps, kernels, buffers."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot program_slots[] = {
    {Py_tp_doc, "A graph compiled for a device."},
    {Py_tp_dealloc, (void *)program_dealloc},
    {Py_tp_methods, program_methods},
    {0, NULL},
};

static PyType_Spec program_spec = {
    .name = "quabla._core.Program",
    .basicsize = sizeof(qbpy_program),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = program_slots,
};

/* ---- The list of operations, for documentation and tests */

PyDoc_STRVAR(operations_doc, "operations()\n--\n\n"
                             "The primitive operations, each as a dict: name, summary, arity (-1: any), and whether it "
                             "has what its flags and rules say.");

static PyObject *describe_operation(const qb_op *op)
{
#define FLAG(flag) PyBool_FromLong((op->flags & QB_OP_##flag) != 0)
    return Py_BuildValue("{sssssisNsNsNsNsNsNsNsNsNsNsNsN}", "name", op->name, "summary", op->summary, "arity",
                         op->arity, "elementwise", FLAG(ELEMENTWISE), "transpose_only", FLAG(TRANSPOSE_ONLY), "linear",
                         FLAG(LINEAR), "bilinear", FLAG(BILINEAR), "flat", FLAG(FLAT), "view", FLAG(VIEW), "overwrites",
                         FLAG(OVERWRITES), "jvp", PyBool_FromLong(op->jvp != NULL), "transpose",
                         PyBool_FromLong(op->transpose != NULL), "batch", PyBool_FromLong(op->batch != NULL), "lane",
                         PyBool_FromLong(op->lane != QB_LANE_NONE), "cpu", PyBool_FromLong(op->cpu != NULL));
#undef FLAG
}

static PyObject *operations(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < qb_op_count; i++) {
        PyObject *operation = describe_operation(qb_ops[i]);
        if (!operation || PyList_Append(list, operation) < 0)
            Py_CLEAR(list);
        Py_XDECREF(operation);
    }
    return list;
}

/* ---- Devices */

PyDoc_STRVAR(
    check_device_doc,
    "check_device(name)\n--\n\nThe name, if a program can be compiled for that device; an error that says why not.");

static PyObject *check_device(PyObject *module, PyObject *name)
{
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    if (!text)
        return PyErr_Occurred()
                   ? NULL
                   : PyErr_Format(PyExc_TypeError, "a device is named by a str, got %s", Py_TYPE(name)->tp_name);
    qb_status status = qb_device_check(text);
    return status == QB_OK ? Py_NewRef(name) : qbpy_raise(qbpy_state_of(module), status);
}

static PyObject *devices(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    PyObject *list = PyList_New(0);
    for (int i = 0; list && qb_device_name(i); i++) {
        PyObject *name = PyUnicode_FromString(qb_device_name(i));
        if (!name || PyList_Append(list, name) < 0)
            Py_CLEAR(list);
        Py_XDECREF(name);
    }
    return list;
}

static PyMethodDef functions[] = {
    {"check_device", check_device, METH_O, check_device_doc},
    {"operations", operations, METH_NOARGS, operations_doc},
    {"devices", devices, METH_NOARGS, "devices()\n--\n\nThe devices that can run here, for jit(device=...)."},
    {NULL, NULL, 0, NULL},
};

int qbpy_graph_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    if (PyModule_AddFunctions(module, functions) < 0 ||
        PyModule_AddStringConstant(module, "version", QB_VERSION_STRING) < 0)
        return -1;
    if (!(state->graph_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &graph_spec, NULL)) ||
        !(state->program_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &program_spec, NULL)))
        return -1;
    if (PyModule_AddType(module, state->graph_type) < 0 || PyModule_AddType(module, state->program_type) < 0)
        return -1;
    return qbpy_sparse_install(module);
}
