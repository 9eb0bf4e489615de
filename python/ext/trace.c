/* Trace and TraceTensor: recording, capturing, and what a tracer refuses. */
#include "trace.h"

#include "function.h"

#include <structmember.h>

static _Thread_local qbpy_trace *current; /* borrowed: the C frame of trace_function holds the reference */

qbpy_trace *qbpy_current_trace(void)
{
    return current;
}

/* ---- Lifting: from a tracer of any enclosing trace to a value of `trace` */

PyObject *qbpy_tracer_escaped(qbpy_state *state, PyObject *object)
{
    const qbpy_trace_tensor *tracer = (qbpy_trace_tensor *)object;
    const qb_value_info *info = &tracer->trace->graph->values[tracer->value];
    PyErr_Format(
        state->TracerError,
        "a tracer (%s) was used after the function that it belongs to had been traced, or in another thread: it "
        "escaped through a global variable, a container or a closure. Return the value from the function instead "
        "(has_aux=True for values beside the result)",
        qb_print_type(info->dtype, info->rank, info->shape).text);
    return NULL;
}

/* The position of the tracer among the captures, or -1. */
static Py_ssize_t find_capture(const qbpy_trace *trace, const qbpy_trace_tensor *tracer)
{
    for (Py_ssize_t i = PyList_GET_SIZE(trace->captures) - 1; i >= 0; i--) {
        const qbpy_trace_tensor *held = (qbpy_trace_tensor *)PyList_GET_ITEM(trace->captures, i);
        if (held->trace == tracer->trace && held->value == tracer->value)
            return i;
    }
    return -1;
}

static qb_value add_capture(qbpy_state *state, qbpy_trace *trace, qbpy_trace_tensor *tracer)
{
    Py_ssize_t count = PyList_GET_SIZE(trace->captures);
    if (count == trace->capture_capacity) {
        Py_ssize_t capacity = count ? 2 * count : 8;
        qb_value *values = PyMem_Realloc(trace->capture_values, (size_t)capacity * sizeof *values);
        if (!values) {
            PyErr_NoMemory();
            return QB_FAILED;
        }
        trace->capture_values = values;
        trace->capture_capacity = capacity;
    }
    const qb_value_info *info = &tracer->trace->graph->values[tracer->value];
    qb_value value;
    qb_status status = qb_graph_input(trace->graph, "captured", info->dtype, info->rank, info->shape, &value);
    if (status != QB_OK) {
        qbpy_raise(state, status);
        return QB_FAILED;
    }
    if (PyList_Append(trace->captures, (PyObject *)tracer) < 0)
        return QB_FAILED;
    trace->capture_values[count] = value;
    return value;
}

/* Whether it is the innermost trace given, or one around it. */
static bool is_enclosing(const qbpy_trace *innermost, const qbpy_trace *trace)
{
    while (innermost && innermost != trace)
        innermost = innermost->parent;
    return innermost != NULL;
}

static qb_value lift(qbpy_state *state, qbpy_trace *trace, qbpy_trace_tensor *tracer)
{
    if (tracer->trace == trace)
        return tracer->value;
    if (!is_enclosing(trace->parent, tracer->trace) || !tracer->trace->active) {
        (void)qbpy_tracer_escaped(state, (PyObject *)tracer);
        return QB_FAILED;
    }
    Py_ssize_t found = find_capture(trace, tracer);
    return found >= 0 ? trace->capture_values[found] : add_capture(state, trace, tracer);
}

qb_value qbpy_trace_value(qbpy_state *state, const char *function, qbpy_trace *trace, PyObject *leaf, bool *weak)
{
    if (qbpy_is_tracer(state, leaf)) {
        *weak = ((qbpy_trace_tensor *)leaf)->weak;
        return lift(state, trace, (qbpy_trace_tensor *)leaf);
    }
    qb_tensor *tensor = qbpy_to_operand(state, function, leaf, weak);
    if (!tensor)
        return QB_FAILED;
    qb_value value;
    qb_status status = qb_graph_constant(trace->graph, tensor, &value);
    qb_tensor_release(tensor);
    if (status == QB_OK)
        return value;
    qbpy_raise(state, status);
    return QB_FAILED;
}

PyObject *qbpy_tracer_wrap(qbpy_state *state, qbpy_trace *trace, qb_value value, bool weak)
{
    qbpy_trace_tensor *tracer = PyObject_New(qbpy_trace_tensor, state->trace_tensor_type);
    if (!tracer)
        return NULL;
    tracer->trace = (qbpy_trace *)Py_NewRef(trace);
    tracer->value = value;
    tracer->weak = weak;
    tracer->weakrefs = NULL;
    return (PyObject *)tracer;
}

/* ---- Recording a call */

/* What a call made: a tracer, or a tuple of several. */
static PyObject *wrap_results(qbpy_state *state, qbpy_trace *trace, const qb_call *call)
{
    int count = 1;
    while (count < call->function->result_count && call->results[count] != QB_NONE)
        count++;
    if (count == 1)
        return qbpy_tracer_wrap(state, trace, call->result, call->result_weak);
    PyObject *tuple = PyTuple_New(count);
    for (int i = 0; tuple && i < count; i++) {
        PyObject *tracer = qbpy_tracer_wrap(state, trace, call->results[i], call->result_weak);
        if (tracer)
            PyTuple_SET_ITEM(tuple, i, tracer);
        else
            Py_CLEAR(tuple);
    }
    return tuple;
}

PyObject *qbpy_traced_call(qbpy_state *state, const qb_function *function, const qb_attribute *parameters,
                           int operand_count, PyObject *const *operands)
{
    enum { FEW = 8 };
    qbpy_trace *trace = current;
    qb_value few_values[FEW], *values = few_values;
    bool few_weak[FEW], *weak = few_weak;
    if (!trace) { /* only a tracer brings a call here: it outlived its trace */
        for (int i = 0; i < operand_count; i++)
            if (operands[i] && qbpy_is_tracer(state, operands[i]))
                return qbpy_tracer_escaped(state, operands[i]);
        PyErr_SetString(state->TracerError, "a traced call outside any trace");
        return NULL;
    }
    if (operand_count > FEW) {
        values = PyMem_Malloc((size_t)operand_count * sizeof *values);
        weak = PyMem_Malloc((size_t)operand_count * sizeof *weak);
    }
    PyObject *result = values && weak ? NULL : PyErr_NoMemory();
    bool valid = values && weak;
    trace->graph->source = qbpy_current_source(state, &trace->sources);
    for (int i = 0; valid && i < operand_count; i++) {
        values[i] = QB_NONE;
        weak[i] = false;
        if (operands[i])
            valid = (values[i] = qbpy_trace_value(state, function->name, trace, operands[i], &weak[i])) >= 0;
    }
    if (valid) {
        qb_call call = {.graph = trace->graph,
                        .function = function,
                        .operand_count = operand_count,
                        .operand = values,
                        .weak = weak,
                        .parameter = parameters};
        qb_status status = qb_function_build(&call);
        result = status == QB_OK ? wrap_results(state, trace, &call) : qbpy_raise(state, status);
    }
    if (operand_count > FEW) {
        PyMem_Free(values);
        PyMem_Free(weak);
    }
    return result;
}

/* ---- Tracing a function */

static qbpy_trace *trace_push(qbpy_state *state)
{
    qbpy_trace *trace = PyObject_New(qbpy_trace, state->trace_type);
    if (!trace)
        return NULL;
    trace->graph = NULL;
    trace->parent = (qbpy_trace *)Py_XNewRef(current);
    trace->active = true;
    trace->captures = NULL;
    trace->capture_values = NULL;
    trace->capture_capacity = 0;
    memset(&trace->sources, 0, sizeof trace->sources);
    qb_status status = qb_graph_create(&trace->graph);
    if (status != QB_OK || !(trace->captures = PyList_New(0))) {
        if (status != QB_OK)
            qbpy_raise(state, status);
        Py_DECREF(trace);
        return NULL;
    }
    current = trace;
    return trace;
}

static void trace_pop(qbpy_trace *trace)
{
    trace->active = false;
    current = trace->parent;
}

/* A tracer for one argument, described by an array-like leaf or anything else with shape and dtype (ShapeDtype). */
static PyObject *make_argument(qbpy_state *state, qbpy_trace *trace, PyObject *leaf, const char *name)
{
    qb_type type;
    bool weak = false;
    if (qbpy_is_tracer(state, leaf)) {
        qbpy_tracer_type(leaf, &type);
        weak = ((qbpy_trace_tensor *)leaf)->weak;
    } else if (qbpy_is_tensor(state, leaf)) {
        const qb_tensor *tensor = qbpy_tensor_get(leaf);
        qb_type_set(&type, tensor->dtype, tensor->rank, tensor->shape);
        weak = ((qbpy_tensor *)leaf)->weak;
    } else {
        PyObject *shape = PyObject_GetAttr(leaf, state->str_shape), *dtype = NULL;
        int rank = shape ? qbpy_shape_from_object(shape, "trace", type.shape) : -1;
        int known = rank >= 0 && (dtype = PyObject_GetAttr(leaf, state->str_dtype)) != NULL
                        ? qbpy_dtype_from_object(state, dtype, &type.dtype)
                        : -1;
        PyObject *is_weak = known < 0 ? NULL : PyObject_GetAttrString(leaf, "weak");
        Py_XDECREF(shape);
        Py_XDECREF(dtype);
        if (!is_weak)
            return NULL;
        weak = is_weak == Py_True;
        Py_DECREF(is_weak);
        type.rank = rank;
    }
    qb_value value;
    qb_status status = qb_graph_input(trace->graph, name, type.dtype, type.rank, type.shape, &value);
    return status == QB_OK ? qbpy_tracer_wrap(state, trace, value, weak) : qbpy_raise(state, status);
}

static PyObject *make_arguments(qbpy_state *state, qbpy_trace *trace, PyObject *leaves, PyObject *names)
{
    Py_ssize_t count = PyList_GET_SIZE(leaves);
    PyObject *tracers = PyList_New(count);
    for (Py_ssize_t i = 0; tracers && i < count; i++) {
        const char *name = NULL;
        if (names != Py_None && !(name = PyUnicode_AsUTF8(PyList_GET_ITEM(names, i)))) {
            Py_CLEAR(tracers);
            break;
        }
        PyObject *tracer = make_argument(state, trace, PyList_GET_ITEM(leaves, i), name);
        if (!tracer)
            Py_CLEAR(tracers);
        else
            PyList_SET_ITEM(tracers, i, tracer);
    }
    return tracers;
}

/* Declares the leaves of the result as outputs, and wraps the graph. */
static PyObject *finish(qbpy_state *state, qbpy_trace *trace, PyObject *outputs)
{
    PyObject *fast = PySequence_Fast(outputs, "record: the traced call must return a sequence of leaves");
    if (!fast)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fast);
    bool *weak = PyMem_Calloc((size_t)count + 1, sizeof *weak);
    PyObject *graph = weak ? NULL : PyErr_NoMemory();
    bool valid = weak != NULL;
    for (Py_ssize_t i = 0; valid && i < count; i++) {
        qb_value value = qbpy_trace_value(state, "trace", trace, PySequence_Fast_GET_ITEM(fast, i), &weak[i]);
        qb_status status = value < 0 ? QB_OK : qb_graph_output(trace->graph, value);
        if (status != QB_OK)
            qbpy_raise(state, status);
        valid = value >= 0 && status == QB_OK;
    }
    if (valid)
        graph = qbpy_graph_wrap(state, qb_graph_retain(trace->graph), weak);
    PyMem_Free(weak);
    Py_DECREF(fast);
    return graph;
}

PyDoc_STRVAR(
    trace_doc,
    "record(call, leaves, names=None)\n--\n\n"
    "Runs call(tracers) with one tracer for each leaf (anything with shape and dtype) in a new trace, and returns\n"
    "(Graph of the leaves that call returned, list of captured tracers of enclosing traces).");

static PyObject *trace_function(PyObject *module, PyObject *args)
{
    qbpy_state *state = qbpy_state_of(module);
    PyObject *call, *leaves, *names = Py_None;
    if (!PyArg_ParseTuple(args, "OO!|O", &call, &PyList_Type, &leaves, &names))
        return NULL;
    if (names != Py_None && (!PyList_Check(names) || PyList_GET_SIZE(names) != PyList_GET_SIZE(leaves))) {
        PyErr_SetString(PyExc_TypeError, "record: names must be a list with one name for each leaf");
        return NULL;
    }
    qbpy_trace *trace = trace_push(state);
    if (!trace)
        return NULL;
    PyObject *tracers = make_arguments(state, trace, leaves, names);
    PyObject *outputs = tracers ? PyObject_CallOneArg(call, tracers) : NULL;
    PyObject *graph = outputs ? finish(state, trace, outputs) : NULL;
    trace_pop(trace);
    PyObject *result = graph ? PyTuple_Pack(2, graph, trace->captures) : NULL;
    Py_XDECREF(tracers);
    Py_XDECREF(outputs);
    Py_XDECREF(graph);
    Py_DECREF(trace);
    return result;
}

static PyObject *is_tracing(PyObject *module, PyObject *unused)
{
    (void)module, (void)unused;
    return PyBool_FromLong(current != NULL);
}

static void trace_dealloc(PyObject *self)
{
    qbpy_trace *trace = (qbpy_trace *)self;
    PyTypeObject *type = Py_TYPE(self);
    qb_graph_release(trace->graph);
    Py_XDECREF(trace->parent);
    Py_XDECREF(trace->captures);
    PyMem_Free(trace->capture_values);
    qbpy_source_cache_clear(&trace->sources);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyType_Slot trace_slots[] = {
    {Py_tp_doc, "A graph under construction."},
    {Py_tp_dealloc, (void *)trace_dealloc},
    {0, NULL},
};

static PyType_Spec trace_spec = {
    .name = "quabla._core.Trace",
    .basicsize = sizeof(qbpy_trace),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = trace_slots,
};

/* ---- TraceTensor */

static qbpy_trace_tensor *tracer_of(PyObject *self)
{
    return (qbpy_trace_tensor *)self;
}

void qbpy_tracer_type(PyObject *tracer, qb_type *out)
{
    qb_value_type(tracer_of(tracer)->trace->graph, tracer_of(tracer)->value, out);
}

static qb_shape_text tracer_text(PyObject *self)
{
    qb_type type;
    qbpy_tracer_type(self, &type);
    return qb_print_type(type.dtype, type.rank, type.shape);
}

static void tracer_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (tracer_of(self)->weakrefs)
        PyObject_ClearWeakRefs(self);
    Py_DECREF(tracer_of(self)->trace);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *tracer_repr(PyObject *self)
{
    return PyUnicode_FromFormat("TraceTensor(%%%d: %s)", (int)tracer_of(self)->value, tracer_text(self).text);
}

PyObject *qbpy_tracer_has_no_value(PyObject *self, const char *what)
{
    if (!is_enclosing(current, tracer_of(self)->trace))
        return qbpy_tracer_escaped(qbpy_state_of_object(self), self);
    PyErr_Format(
        qbpy_state_of_object(self)->TracerError,
        "%s of a TraceTensor (%s): while a function is traced, its arrays have no values. Choose between values with "
        "where, between computations with cond; return the value (has_aux=True) to read it after the call",
        what, tracer_text(self).text);
    return NULL;
}

static int tracer_bool(PyObject *self)
{
    (void)qbpy_tracer_has_no_value(self, "bool(), or if, while, and, or, not,");
    return -1;
}

static PyObject *tracer_float(PyObject *self)
{
    return qbpy_tracer_has_no_value(self, "float(), or a function of math (use qb.sin for math.sin),");
}

static PyObject *tracer_int(PyObject *self)
{
    return qbpy_tracer_has_no_value(self, "int()");
}

static PyObject *tracer_index(PyObject *self)
{
    return qbpy_tracer_has_no_value(self, "a Python index or range()");
}

static PyObject *tracer_item(PyObject *self, PyObject *unused)
{
    (void)unused;
    return qbpy_tracer_has_no_value(self, "item()");
}

static PyObject *tracer_tolist(PyObject *self, PyObject *unused)
{
    (void)unused;
    return qbpy_tracer_has_no_value(self, "tolist()");
}

static PyObject *tracer_numpy(PyObject *self, PyObject *unused)
{
    (void)unused;
    return qbpy_tracer_has_no_value(self, "numpy()");
}

static PyObject *tracer_array(PyObject *self, PyObject *args, PyObject *kwargs)
{
    (void)args, (void)kwargs;
    return qbpy_tracer_has_no_value(self, "conversion to a NumPy array");
}

static PyObject *tracer_shape(PyObject *self, void *unused)
{
    (void)unused;
    qb_type type;
    qbpy_tracer_type(self, &type);
    return qbpy_shape_tuple(type.rank, type.shape);
}

static PyObject *tracer_dtype(PyObject *self, void *unused)
{
    (void)unused;
    return qbpy_dtype_object(qbpy_state_of_object(self),
                             qb_graph_dtype(tracer_of(self)->trace->graph, tracer_of(self)->value));
}

static PyObject *tracer_ndim(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(qb_graph_rank(tracer_of(self)->trace->graph, tracer_of(self)->value));
}

static PyObject *tracer_size(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLongLong(qb_value_size(tracer_of(self)->trace->graph, tracer_of(self)->value));
}

static PyObject *tracer_weak(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(tracer_of(self)->weak);
}

static PyMethodDef tracer_methods[] = {
    {"item", tracer_item, METH_NOARGS, NULL},
    {"tolist", tracer_tolist, METH_NOARGS, NULL},
    {"numpy", tracer_numpy, METH_NOARGS, NULL},
    {"__array__", (PyCFunction)(void (*)(void))tracer_array, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef tracer_getset[] = {
    {"shape", tracer_shape, NULL, "The extents, a tuple of ints.", NULL},
    {"dtype", tracer_dtype, NULL, "The dtype of the elements.", NULL},
    {"ndim", tracer_ndim, NULL, "The number of axes.", NULL},
    {"size", tracer_size, NULL, "The number of elements.", NULL},
    {"weak", tracer_weak, NULL, "Whether it is made of Python numbers only, and takes the dtype of the array it meets.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef tracer_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(qbpy_trace_tensor, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot tracer_slots[] = {
    {Py_tp_doc, "An array inside a function that is being traced: it has a shape and a dtype, but no values."},
    {Py_tp_dealloc, (void *)tracer_dealloc},
    {Py_tp_repr, (void *)tracer_repr},
    {Py_tp_methods, tracer_methods},
    {Py_tp_getset, tracer_getset},
    {Py_tp_members, tracer_members},
    {Py_nb_bool, (void *)tracer_bool},
    {Py_nb_float, (void *)tracer_float},
    {Py_nb_int, (void *)tracer_int},
    {Py_nb_index, (void *)tracer_index},
    QBPY_OPERATOR_SLOTS,
    {0, NULL},
};

static PyType_Spec tracer_spec = {
    .name = "quabla._core.TraceTensor",
    .basicsize = sizeof(qbpy_trace_tensor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = tracer_slots,
};

/* ---- The module */

static PyMethodDef functions[] = {
    {"record", trace_function, METH_VARARGS, trace_doc},
    {"is_tracing", is_tracing, METH_NOARGS, "Whether a function is being traced on this thread."},
    {NULL, NULL, 0, NULL},
};

int qbpy_trace_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    if (!(state->trace_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &trace_spec, NULL)) ||
        !(state->trace_tensor_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &tracer_spec, NULL)) ||
        PyModule_AddType(module, state->trace_tensor_type) < 0 || PyModule_AddFunctions(module, functions) < 0)
        return -1;
    return qbpy_graph_install(module) < 0 ? -1 : qbpy_control_install(module);
}
