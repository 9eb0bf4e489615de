/* Debugging at run time: results that are not finite, and values that programs print. */
#include "trace.h"

static _Thread_local bool checks_results;

bool qbpy_debug_nans(void)
{
    return checks_results;
}

static PyObject *set_debug_nans(PyObject *module, PyObject *value)
{
    (void)module;
    int wanted = PyObject_IsTrue(value);
    if (wanted < 0)
        return NULL;
    bool before = checks_results;
    checks_results = wanted;
    return PyBool_FromLong(before);
}

/* ---- Printing */

static PyObject *printed_tensor(qbpy_state *state, const qb_printed *value)
{
    qb_tensor *tensor;
    qb_status status = qb_tensor_create(value->dtype, value->rank, value->shape, value->data, &tensor);
    return status == QB_OK ? qbpy_tensor_wrap(state, tensor, false) : qbpy_raise(state, status);
}

static int print_line(const char *format, int count, const qb_printed *values)
{
    PyObject *debug = PyImport_ImportModule("quabla.debug"), *core = PyImport_ImportModule("quabla._core");
    PyObject *arguments = PyTuple_New(count), *result = NULL;
    bool valid = debug && core && arguments;
    for (int i = 0; valid && i < count; i++) {
        PyObject *tensor = printed_tensor(qbpy_state_of(core), &values[i]);
        valid = tensor != NULL;
        if (valid)
            PyTuple_SET_ITEM(arguments, i, tensor);
    }
    if (valid)
        result = PyObject_CallMethod(debug, "show", "sO", format, arguments);
    Py_XDECREF(debug);
    Py_XDECREF(core);
    Py_XDECREF(arguments);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* From a running program, in any thread. An error cannot be raised there: it is reported, and the program goes on. */
static void print_values(const char *format, int count, const qb_printed *values)
{
    PyGILState_STATE held;
    if (!qbpy_take_lock(&held))
        return;
    if (print_line(format, count, values) < 0)
        PyErr_WriteUnraisable(NULL);
    PyGILState_Release(held);
}

static PyObject *record_print(PyObject *module, PyObject *args)
{
    qbpy_state *state = qbpy_state_of(module);
    const char *format;
    PyObject *arrays;
    if (!PyArg_ParseTuple(args, "sO!", &format, &PyTuple_Type, &arrays))
        return NULL;
    qbpy_trace *trace = qbpy_current_trace();
    if (!trace) {
        PyErr_SetString(state->TracerError, "record_print: no function is being traced");
        return NULL;
    }
    int count = (int)PyTuple_GET_SIZE(arrays);
    qb_value *values = PyMem_Calloc((size_t)count + 1, sizeof *values);
    if (!values)
        return PyErr_NoMemory();
    trace->graph->source = qbpy_current_source(state, &trace->sources);
    bool valid = true, weak;
    for (int i = 0; valid && i < count; i++)
        valid = (values[i] = qbpy_trace_value(state, "debug_print", trace, PyTuple_GET_ITEM(arrays, i), &weak)) >= 0;
    qb_status status = valid ? qb_graph_print(trace->graph, format, count, values) : QB_OK;
    PyMem_Free(values);
    if (status != QB_OK)
        return qbpy_raise(state, status);
    return valid ? Py_NewRef(Py_None) : NULL;
}

static PyObject *note(PyObject *module, PyObject *text)
{
    qbpy_state *state = qbpy_state_of(module);
    qbpy_trace *trace = qbpy_current_trace();
    const char *line = PyUnicode_AsUTF8(text);
    if (!line)
        return NULL;
    qb_status status = trace ? qb_graph_note(trace->graph, line) : QB_OK;
    return status == QB_OK ? Py_NewRef(Py_None) : qbpy_raise(state, status);
}

static PyMethodDef functions[] = {
    {"note", note, METH_O, "note(text)\n--\n\nA line for the text of the program that is being traced."},
    {"set_debug_nans", set_debug_nans, METH_O,
     "set_debug_nans(value)\n--\n\nWhether a result that is not finite is an error on this thread; returns what it "
     "was."},
    {"record_print", record_print, METH_VARARGS,
     "record_print(format, arrays)\n--\n\nLets the traced function print the arrays when it runs."},
    {NULL, NULL, 0, NULL},
};

int qbpy_debug_install(PyObject *module)
{
    qb_on_print(print_values);
    return PyModule_AddFunctions(module, functions);
}
