/* quabla._core.Function: binding of arguments, and the way of a call to a trace or to a program. */
#include "function.h"
#include "convert.h"
#include "index.h"

#include "program/program.h"
#include "trace.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

typedef struct qbpy_function {
    PyObject_HEAD vectorcallfunc vectorcall;
    const qb_function *function;
    qbpy_state *state; /* of the module, which the type keeps alive */
    PyObject *name;
    PyObject *result_type;                       /* a named tuple, of several results; NULL: one */
    PyObject *parameter_name[QB_MAX_PARAMETERS]; /* interned */
    PyObject *weakrefs;
} qbpy_function;

/* ---- Operands */

/* More elements than this, and other threads may run meanwhile. */
enum { WORTH_RELEASING = 1 << 14, FEW_OPERANDS = 8 };

/* The operands of an eager call. */
typedef struct eager_operands {
    qb_tensor **tensors;
    bool *weak;
    bool *owned; /* converted for this call */
    int count;   /* so far */
    int64_t size;
} eager_operands;

/* Numbers keep their kind (int or float) for the promotion rules; so do the integers of other arrays beside an array of
 * ours. Without one, they are converted as asarray does. */
static qb_tensor *convert_operand(qbpy_state *state, const char *function, PyObject *object, bool beside_tensor,
                                  bool *weak)
{
    qb_tensor *tensor;
    if (PyFloat_CheckExact(object)) {
        double number = PyFloat_AS_DOUBLE(object);
        *weak = true;
        qb_status status = qb_tensor_create(QB_FLOAT64, 0, NULL, &number, &tensor);
        return status == QB_OK ? tensor : (qb_tensor *)qbpy_raise(state, status);
    }
    if (beside_tensor || PyLong_Check(object) || PyFloat_Check(object))
        return qbpy_to_operand(state, function, object, weak);
    return qbpy_to_tensor(state, function, object, -1, weak);
}

static int collect(qbpy_state *state, const qb_function *function, PyObject *const *operands, int count,
                   bool beside_tensor, eager_operands *out)
{
    for (int i = 0; i < count; i++) {
        PyObject *object = operands[i];
        out->owned[i] = false;
        out->weak[i] = false;
        out->tensors[i] = NULL;
        if (object && qbpy_is_tensor(state, object)) {
            out->tensors[i] = qbpy_tensor_get(object);
            out->weak[i] = ((qbpy_tensor *)object)->weak;
        } else if (object) {
            if (object == Py_None) {
                PyErr_Format(PyExc_TypeError, "%s: expected an array or a number, got None", function->name);
                return -1;
            }
            bool is_indices = i < function->operand_parameters &&
                              function->parameter[function->operand_at[i]].kind == QB_PARAMETER_INDICES;
            out->tensors[i] =
                convert_operand(state, function->name, object, beside_tensor || is_indices, &out->weak[i]);
            if (!out->tensors[i])
                return -1;
            out->owned[i] = true;
        }
        out->count = i + 1;
        out->size += out->tensors[i] ? qb_tensor_size(out->tensors[i]) : 0;
    }
    return 0;
}

/* As NumPy: integers to a negative power are none. Of traced values nobody can tell. */
static int check_power(const eager_operands *operands)
{
    const qb_tensor *base = operands->tensors[0], *exponent = operands->tensors[1];
    if (!qb_dtype_is_integer(base->dtype) || qb_dtype_kind(exponent->dtype) != 'i')
        return 0;
    for (int64_t i = 0; i < exponent->size; i++) {
        bool is_negative = exponent->dtype == QB_INT32 ? ((const int32_t *)exponent->data)[i] < 0
                                                       : ((const int64_t *)exponent->data)[i] < 0;
        if (!is_negative)
            continue;
        PyErr_SetString(PyExc_ValueError,
                        "power: integers to negative integer powers are not integers; convert with astype(float64)");
        return -1;
    }
    return 0;
}

static bool is_finite(const qb_tensor *tensor)
{
    bool finite = true;
    size_t size = qb_dtype_size(tensor->dtype);
    for (int64_t i = 0; qb_dtype_is_floating(tensor->dtype) && finite && i < tensor->size; i++)
        finite = isfinite(qb_dtype_load(tensor->dtype, (const char *)tensor->data + (size_t)i * size));
    return finite;
}

/* Where an operand is not finite either, the user gave it. */
static bool makes_nonfinite(const qb_tensor *result, const eager_operands *operands)
{
    bool made = !is_finite(result);
    for (int i = 0; made && i < operands->count; i++)
        made = !operands->tensors[i] || is_finite(operands->tensors[i]);
    return made;
}

/* The results of a function: an array, or a tuple of several. References to the tensors are taken. */
static PyObject *wrap_results(qbpy_state *state, const qb_function *function, qb_tensor *const *results, bool weak)
{
    int count = 1;
    while (count < function->result_count && results[count])
        count++;
    if (count == 1)
        return qbpy_tensor_wrap(state, results[0], weak);
    PyObject *tuple = PyTuple_New(count);
    bool complete = tuple != NULL;
    for (int i = 0; i < count; i++) {
        PyObject *tensor = complete ? qbpy_tensor_wrap(state, results[i], weak) : NULL;
        if (!complete)
            qb_tensor_release(results[i]);
        complete = tensor != NULL;
        if (complete)
            PyTuple_SET_ITEM(tuple, i, tensor);
    }
    if (!complete)
        Py_CLEAR(tuple);
    return tuple;
}

/* One that is not finite, of finite operands; NULL: none. */
static const qb_tensor *made_nonfinite(const qb_function *function, qb_tensor *const *results,
                                       const eager_operands *operands)
{
    for (int i = 0; i < function->result_count && results[i]; i++)
        if (makes_nonfinite(results[i], operands))
            return results[i];
    return NULL;
}

static PyObject *run_eagerly(qbpy_state *state, const qb_function *function, const qb_attribute *parameters,
                             const eager_operands *operands)
{
    qb_tensor *results[QB_MAX_RESULTS];
    const qb_tensor *blamed;
    bool weak = false;
    qb_status status;
    if (operands->size < WORTH_RELEASING) {
        status = qb_call_eagerly(state->context, function, parameters, operands->count, operands->tensors,
                                 operands->weak, results, &weak);
    } else {
        Py_BEGIN_ALLOW_THREADS;
        status = qb_call_eagerly(state->context, function, parameters, operands->count, operands->tensors,
                                 operands->weak, results, &weak);
        Py_END_ALLOW_THREADS;
    }
    if (status == QB_OK && qbpy_debug_nans() && (blamed = made_nonfinite(function, results, operands))) {
        status = qb_fail_nonfinite(function->name, qbpy_current_source(state, NULL), blamed, operands->count,
                                   operands->tensors);
        for (int i = 0; i < function->result_count; i++)
            qb_tensor_release(results[i]);
    }
    return status == QB_OK ? wrap_results(state, function, results, weak) : qbpy_raise(state, status);
}

static PyObject *call_eagerly(qbpy_state *state, const qb_function *function, const qb_attribute *parameters, int count,
                              PyObject *const *objects, bool beside_tensor)
{
    qb_tensor *few_tensors[FEW_OPERANDS];
    bool few_flags[2 * FEW_OPERANDS];
    eager_operands operands = {few_tensors, few_flags, few_flags + FEW_OPERANDS, 0, 0};
    if (count > FEW_OPERANDS) {
        char *memory = PyMem_Malloc((size_t)count * (sizeof *operands.tensors + 2 * sizeof *operands.weak));
        if (!memory)
            return PyErr_NoMemory();
        operands.tensors = (qb_tensor **)(void *)memory;
        operands.weak = (bool *)(memory + (size_t)count * sizeof *operands.tensors);
        operands.owned = operands.weak + count;
    }
    PyObject *result = NULL;
    if (collect(state, function, objects, count, beside_tensor, &operands) == 0 &&
        (function != qbpy_operator.power || check_power(&operands) == 0))
        result = run_eagerly(state, function, parameters, &operands);
    for (int i = 0; i < operands.count; i++)
        if (operands.owned[i])
            qb_tensor_release(operands.tensors[i]);
    if (count > FEW_OPERANDS)
        PyMem_Free(operands.tensors);
    return result;
}

/* The dtype of an array, or -1 for anything else. */
static int dtype_of_array(const qbpy_state *state, PyObject *object)
{
    if (qbpy_is_tensor(state, object))
        return (int)qbpy_tensor_get(object)->dtype;
    if (!qbpy_is_trace_tensor(state, object))
        return -1;
    const qbpy_trace_tensor *tracer = (qbpy_trace_tensor *)object;
    return (int)tracer->trace->graph->values[tracer->value].dtype;
}

static bool is_numpy_integer(PyObject *object)
{
    const char *name = Py_TYPE(object)->tp_name;
    return strncmp(name, "numpy.int", 9) == 0 || strncmp(name, "numpy.uint", 10) == 0;
}

/* Whether operand i promotes with the others: an index does not, nor what stands behind the operands of the
 * signature. */
static bool promotes(const qb_function *function, int i)
{
    if (function->takes_operand_list && i >= function->operand_parameters - 1)
        return function->operand_parameters == 1;
    return i < function->operand_parameters &&
           function->parameter[function->operand_at[i]].kind == QB_PARAMETER_OPERAND;
}

/* An int, a NumPy integer, or integers made of such only, which are int64 or uint64. */
static bool is_weak_integer(const qbpy_state *state, PyObject *object)
{
    if (qbpy_is_tensor(state, object))
        return ((qbpy_tensor *)object)->weak &&
               (qbpy_tensor_get(object)->dtype == QB_INT64 || qbpy_tensor_get(object)->dtype == QB_UINT64);
    return PyLong_Check(object) || is_numpy_integer(object);
}

static int check_integer(const qb_function *function, PyObject *number, qb_dtype dtype)
{
    PyObject *integer = PyNumber_Index(number);
    uint64_t element;
    if (integer && qbpy_store_number(function->name, integer, dtype, false, &element) < 0 &&
        PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_ValueError,
                     "%s: the number %.100S does not fit into %s, the dtype of the array that it meets; convert the "
                     "array with astype first",
                     function->name, integer, qb_dtype_name(dtype));
    }
    Py_XDECREF(integer);
    return PyErr_Occurred() ? -1 : 0;
}

static int check_elements(const qb_function *function, const qb_tensor *tensor, qb_dtype dtype)
{
    for (int64_t i = 0; i < tensor->size; i++) {
        const void *element = (const int64_t *)tensor->data + i;
        PyObject *number = tensor->dtype == QB_UINT64 ? PyLong_FromUnsignedLongLong(*(const uint64_t *)element)
                                                      : PyLong_FromLongLong(*(const int64_t *)element);
        int status = number ? check_integer(function, number, dtype) : -1;
        Py_XDECREF(number);
        if (status < 0)
            return -1;
    }
    return 0;
}

/* An int takes the dtype of the integer arrays that it meets, where a conversion would wrap it around silently. */
static int check_integers(const qbpy_state *state, const qb_function *function, const qb_attribute *parameters,
                          int count, PyObject *const *operands)
{
    int number_count = 0, dtype = -1;
    for (int i = 0; i < count; i++) {
        if (!operands[i] || !promotes(function, i))
            continue;
        bool is_number = is_weak_integer(state, operands[i]);
        int own = dtype_of_array(state, operands[i]);
        if (own < 0 && !is_number)
            return 0; /* a float, or a foreign array */
        if (is_number)
            number_count++;
        else if (own != QB_BOOL && dtype >= 0 && own != dtype)
            return 0; /* the wider, or an error, which promotion tells */
        else if (own != QB_BOOL)
            dtype = own;
    }
    if (!number_count || dtype < 0 || !qb_dtype_is_integer((qb_dtype)dtype))
        return 0;
    for (int i = 0; i < function->parameter_count; i++)
        if (function->parameter[i].kind == QB_PARAMETER_DTYPE && parameters[function->parameter[i].place].integer >= 0)
            return 0; /* the dtype is asked for */
    for (int i = 0; i < count; i++) {
        if (!operands[i] || !promotes(function, i) || !is_weak_integer(state, operands[i]))
            continue;
        if ((qbpy_is_tensor(state, operands[i])
                 ? check_elements(function, qbpy_tensor_get(operands[i]), (qb_dtype)dtype)
                 : check_integer(function, operands[i], (qb_dtype)dtype)) < 0)
            return -1;
    }
    return 0;
}

/* ---- Nested lists with tracers among their items */

static bool is_sequence(PyObject *object)
{
    return PyList_Check(object) || PyTuple_Check(object);
}

static bool holds_tracer(qbpy_state *state, PyObject *sequence, int depth)
{
    bool found = false;
    for (Py_ssize_t i = 0; depth < QB_MAX_RANK && !found && i < PySequence_Fast_GET_SIZE(sequence); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(sequence, i);
        found = qbpy_is_tracer(state, item) || (is_sequence(item) && holds_tracer(state, item, depth + 1));
    }
    return found;
}

bool qbpy_holds_tracer(qbpy_state *state, PyObject *object)
{
    return is_sequence(object) && holds_tracer(state, object, 0);
}

PyObject *qbpy_stack_items(qbpy_state *state, PyObject *sequence)
{
    const qb_attribute axis = qb_int(0);
    PyObject *items = PySequence_List(sequence), *array = NULL;
    bool complete = items != NULL;
    for (Py_ssize_t i = 0; complete && i < PyList_GET_SIZE(items); i++) {
        if (!is_sequence(PyList_GET_ITEM(items, i)))
            continue;
        PyObject *inner = qbpy_stack_items(state, PyList_GET_ITEM(items, i));
        complete = inner && PyList_SetItem(items, i, inner) == 0;
    }
    if (complete)
        array = qbpy_call_function(state, qbpy_operator.stack, &axis, (int)PyList_GET_SIZE(items),
                                   PySequence_Fast_ITEMS(items));
    Py_XDECREF(items);
    return array;
}

/* The call with operand `place`, such a list, as one array. */
static PyObject *call_with_stacked(qbpy_state *state, const qb_function *function, const qb_attribute *parameters,
                                   int count, PyObject *const *operands, int place)
{
    PyObject **all = PyMem_Malloc((size_t)count * sizeof *all), *result = NULL;
    PyObject *array = all ? qbpy_stack_items(state, operands[place]) : PyErr_NoMemory();
    if (array) {
        for (int i = 0; i < count; i++)
            all[i] = i == place ? array : operands[i];
        result = qbpy_call_function(state, function, parameters, count, all);
    }
    Py_XDECREF(array);
    PyMem_Free(all);
    return result;
}

PyObject *qbpy_call_function(qbpy_state *state, const qb_function *function, const qb_attribute *parameters,
                             int operand_count, PyObject *const *operands)
{
    for (int i = 0; i < operand_count; i++)
        if (operands[i] && qbpy_holds_tracer(state, operands[i]))
            return call_with_stacked(state, function, parameters, operand_count, operands, i);
    if (check_integers(state, function, parameters, operand_count, operands) < 0)
        return NULL;
    bool beside_tensor = false;
    for (int i = 0; i < operand_count; i++) {
        if (!operands[i])
            continue;
        if (qbpy_is_tracer(state, operands[i]))
            return qbpy_traced_call(state, function, parameters, operand_count, operands);
        beside_tensor = beside_tensor || qbpy_is_tensor(state, operands[i]);
    }
    return call_eagerly(state, function, parameters, operand_count, operands, beside_tensor);
}

PyObject *qbpy_call_power(qbpy_state *state, PyObject *a, PyObject *b)
{
    if (PyLong_Check(b) && !PyBool_Check(b)) {
        int overflow;
        long long n = PyLong_AsLongLongAndOverflow(b, &overflow);
        if (overflow == 0 && n >= 0) {
            const qb_attribute exponent = qb_int(n);
            return qbpy_call_function(state, qbpy_operator.integer_power, &exponent, 1, &a);
        }
    }
    return qbpy_call_function(state, qbpy_operator.power, NULL, 2, (PyObject *const[]){a, b});
}

/* ---- Binding: arguments as vectorcall passes them -> one object for each parameter */

/* What was given for each parameter (borrowed); of one that takes integers one by one, the objects after it belong to
 * it, too. */
typedef struct binding {
    PyObject *given[QB_MAX_PARAMETERS];
    PyObject *const *spread;
    Py_ssize_t spread_count;
} binding;

static int find_keyword(const qbpy_function *self, PyObject *keyword)
{
    int count = self->function->parameter_count;
    for (int i = 0; i < count; i++)
        if (self->parameter_name[i] == keyword)
            return i;
    for (int i = 0; i < count; i++)
        if (PyUnicode_Compare(self->parameter_name[i], keyword) == 0)
            return i;
    return -1;
}

static int bind_keywords(const qbpy_function *self, PyObject *const *values, PyObject *names, binding *out)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        int place = find_keyword(self, name);
        if (place < 0 || out->given[place]) {
            const char *message = place < 0 ? "%U() got an unexpected keyword argument %R; the signature is %U(%s)"
                                            : "%U() got multiple values for argument %R; the signature is %U(%s)";
            if (!PyErr_Occurred())
                PyErr_Format(PyExc_TypeError, message, self->name, name, self->name, self->function->call_text);
            return -1;
        }
        out->given[place] = values[i];
    }
    return 0;
}

static int bind(const qbpy_function *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, binding *out)
{
    const qb_function *function = self->function;
    int count = function->parameter_count;
    memset(out, 0, sizeof *out);
    if (nargs > count) {
        if (!function->parameter[count - 1].is_spread) {
            PyErr_Format(PyExc_TypeError, "%U() takes at most %d arguments, got %zd; the signature is %U(%s)",
                         self->name, count, nargs, self->name, function->call_text);
            return -1;
        }
        out->spread = args + count - 1;
        out->spread_count = nargs - (count - 1);
    }
    for (int i = 0; i < count && i < nargs; i++)
        out->given[i] = args[i];
    if (kwnames && bind_keywords(self, args + nargs, kwnames, out) < 0)
        return -1;
    for (int i = 0; i < count; i++) {
        if (out->given[i] || function->parameter[i].has_default)
            continue;
        PyErr_Format(PyExc_TypeError, "%U() misses the argument '%s'; the signature is %U(%s)", self->name,
                     function->parameter[i].name, self->name, function->call_text);
        return -1;
    }
    return 0;
}

static int convert_parameters(const qbpy_function *self, const binding *bound, qb_attribute *out, qbpy_integers *space)
{
    const qb_function *function = self->function;
    for (int i = 0; i < function->parameter_count; i++) {
        const qb_parameter *parameter = &function->parameter[i];
        if (qb_parameter_is_operand(parameter))
            continue;
        qb_attribute *attribute = &out[function->parameter[i].place];
        int status = 0;
        if (!bound->given[i])
            *attribute = parameter->default_value;
        else if (parameter->is_spread && bound->spread_count > 0)
            status =
                qbpy_parameter_from_objects(function, parameter, bound->spread, bound->spread_count, attribute, space);
        else
            status = qbpy_parameter_from_object(self->state, function, parameter, bound->given[i], attribute, space);
        if (status < 0)
            return -1;
    }
    return 0;
}

/* f([a, b, c], ...): the items of a sequence are the operands. */
static PyObject *call_with_list(const qbpy_function *self, PyObject *sequence, const qb_attribute *parameters)
{
    const qb_function *function = self->function;
    bool is_number = PyFloat_Check(sequence) || PyLong_Check(sequence);
    if (is_number ||
        (!PyList_Check(sequence) && !PyTuple_Check(sequence) && !qbpy_is_arraylike(self->state, sequence))) {
        PyErr_Format(PyExc_TypeError, "%U() takes a list or tuple of arrays, got an object of type %.200s", self->name,
                     Py_TYPE(sequence)->tp_name);
        return NULL;
    }
    PyObject *items = PySequence_Tuple(sequence); /* of its own: conversion may run code that changes a list */
    if (!items)
        return NULL;
    PyObject *result = NULL;
    if (PyTuple_GET_SIZE(items) > INT32_MAX)
        PyErr_Format(PyExc_ValueError, "%U(): too many arrays", self->name);
    else
        result = qbpy_call_function(self->state, function, parameters, (int)PyTuple_GET_SIZE(items),
                                    &PyTuple_GET_ITEM(items, 0));
    Py_DECREF(items);
    return result;
}

/* f(x, [i, j], ...): single operands, and behind them a sequence of others, each a number. */
static PyObject *call_with_numbers(const qbpy_function *self, PyObject *const *singles, PyObject *sequence,
                                   const qb_attribute *parameters)
{
    PyObject *all[QB_MAX_PARAMETERS + QB_MAX_RANK];
    int first = self->function->operand_parameters - 1;
    PyObject *items = PyLong_Check(sequence) ? PyTuple_Pack(1, sequence) : PySequence_Tuple(sequence);
    if (!items)
        return NULL;
    PyObject *result = NULL;
    if (PyTuple_GET_SIZE(items) > QB_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "%U(): %zd numbers, and arrays have %d axes at most", self->name,
                     PyTuple_GET_SIZE(items), QB_MAX_RANK);
    } else {
        int count = (int)PyTuple_GET_SIZE(items);
        for (int i = 0; i < first + count; i++)
            all[i] = i < first ? singles[i] : PyTuple_GET_ITEM(items, i - first);
        result = qbpy_call_function(self->state, self->function, parameters, first + count, all);
    }
    Py_DECREF(items);
    return result;
}

/* f(a, b, c, ...), or f([a, b, c], ...) where an item is an array: a sequence of numbers is one array, as in NumPy. */
static PyObject *call_with_spread(const qbpy_function *self, const binding *bound, const qb_attribute *parameters)
{
    if (bound->spread_count > 0)
        return qbpy_call_function(self->state, self->function, parameters, (int)bound->spread_count, bound->spread);
    PyObject *only = bound->given[self->function->operand_at[0]];
    bool is_list = (PyList_Check(only) || PyTuple_Check(only)) && PySequence_Fast_GET_SIZE(only) == 0;
    for (Py_ssize_t i = 0; (PyList_Check(only) || PyTuple_Check(only)) && i < PySequence_Fast_GET_SIZE(only); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(only, i);
        is_list = is_list || (!PyFloat_Check(item) && !PyLong_Check(item) && qbpy_is_arraylike(self->state, item));
    }
    return is_list ? call_with_list(self, only, parameters)
                   : qbpy_call_function(self->state, self->function, parameters, 1, &only);
}

static PyObject *call_bound(const qbpy_function *self, binding *bound)
{
    const qb_function *function = self->function;
    if (function->takes_index)
        return qbpy_call_indexed(self->state, function, bound->given, bound->given[function->operand_parameters]);
    qb_attribute parameters[QB_MAX_PARAMETERS];
    qbpy_integers space; /* large: only the count is set */
    space.count = 0;
    if (convert_parameters(self, bound, parameters, &space) < 0)
        return NULL;
    PyObject *operands[QB_MAX_PARAMETERS];
    for (int i = 0; i < function->operand_parameters; i++) {
        const qb_parameter *parameter = &function->parameter[function->operand_at[i]];
        operands[i] = bound->given[function->operand_at[i]];
        if (operands[i] == Py_None && parameter->has_default)
            operands[i] = NULL;
    }
    if (function->takes_operand_list && function->operand_parameters > 1)
        return call_with_numbers(self, operands, operands[function->operand_parameters - 1], parameters);
    if (function->takes_operand_list)
        return function->parameter[function->operand_at[0]].is_spread ? call_with_spread(self, bound, parameters)
                                                                      : call_with_list(self, operands[0], parameters);
    if (function == qbpy_operator.power)
        return qbpy_call_power(self->state, operands[0], operands[1]);
    return qbpy_call_function(self->state, function, parameters, function->operand_parameters, operands);
}

static PyObject *function_vectorcall(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    const qbpy_function *self = (qbpy_function *)callable;
    const qb_function *function = self->function;
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf);
    /* Only operands, all of them, by position: nothing to bind. */
    if (!kwnames && nargs == function->parameter_count && nargs == function->required_operands &&
        function != qbpy_operator.power)
        return qbpy_call_function(self->state, function, NULL, (int)nargs, args);
    if (function == qbpy_operator.einsum && nargs > 1 && !kwnames && !PyUnicode_Check(args[0]))
        return qbpy_einsum_of_sublists(callable, args, nargs);
    binding bound;
    return bind(self, args, nargs, kwnames, &bound) < 0 ? NULL : call_bound(self, &bound);
}

/* Several results as the function's named tuple; an array alone as it is. */
static PyObject *function_vectorcall_many(PyObject *callable, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *tuple = function_vectorcall(callable, args, nargsf, kwnames), *result = NULL;
    if (tuple && !PyTuple_Check(tuple))
        return tuple;
    if (tuple)
        result = PyObject_CallObject(((qbpy_function *)callable)->result_type, tuple);
    Py_XDECREF(tuple);
    return result;
}

/* ---- What a function tells of itself */

/* Without the name of the module that it is in: "linalg.". */
static const char *own_name(const qb_function *function)
{
    const char *point = strchr(function->name, '.');
    return point ? point + 1 : function->name;
}

static PyObject *function_name(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((qbpy_function *)self)->name);
}

static PyObject *function_module(PyObject *self, void *unused)
{
    (void)unused;
    bool is_linalg = strchr(((qbpy_function *)self)->function->name, '.') != NULL;
    return PyUnicode_InternFromString(is_linalg ? "quabla.linalg" : "quabla");
}

static PyObject *function_text_signature(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromFormat("(%s)", ((qbpy_function *)self)->function->call_text);
}

static const char *describe_dtypes(const qb_function *function)
{
    if (!function->primitive)
        return "";
    switch (function->takes) {
    case QB_TAKES_ANY: return "Takes operands of any dtypes that promote to a common one; gives bool.\n";
    case QB_TAKES_NUMERIC: return "Takes floating and integer operands; bool is a ValueError.\n";
    case QB_TAKES_FLOATING: return "Takes floating operands, and integers as float64; bool is a ValueError.\n";
    case QB_TAKES_TESTABLE: return "Takes any dtype; gives bool.\n";
    case QB_TAKES_ORDERED: return "Takes operands of any dtypes that promote to a common one, and gives that.\n";
    case QB_TAKES_BITWISE: return "Takes bool and integer operands; floating ones are a ValueError.\n";
    }
    return "";
}

static PyObject *function_doc(PyObject *object, void *unused)
{
    (void)unused;
    const qb_function *function = ((qbpy_function *)object)->function;
    const char *broadcast =
        function->required_operands > 1 ? "Operands broadcast as in NumPy, unless said otherwise. " : "";
    const char *method = function->is_method ? "Also a method of arrays.\n" : "";
    return PyUnicode_FromFormat(
        "%s(%s)\n\n%s.\n\n%s%s%sWhat does not fit is a ValueError that names the shapes or dtypes.", own_name(function),
        function->call_text, function->summary, describe_dtypes(function), method, broadcast);
}

static PyObject *function_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<function quabla.%s>", ((qbpy_function *)self)->function->name);
}

/* Pickled by name. */
static PyObject *function_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(((qbpy_function *)self)->name);
}

/* x.sum: the function with x as its first argument. */
static PyObject *function_get(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

/* ---- The type */

static int function_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((qbpy_function *)self)->result_type);
    return 0;
}

static void function_dealloc(PyObject *object)
{
    qbpy_function *self = (qbpy_function *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->weakrefs)
        PyObject_ClearWeakRefs(object);
    Py_XDECREF(self->name);
    Py_XDECREF(self->result_type);
    for (int i = 0; i < QB_MAX_PARAMETERS; i++)
        Py_XDECREF(self->parameter_name[i]);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyGetSetDef function_getset[] = {
    {"__name__", function_name, NULL, NULL, NULL},
    {"__qualname__", function_name, NULL, NULL, NULL},
    {"__module__", function_module, NULL, NULL, NULL},
    {"__doc__", function_doc, NULL, NULL, NULL},
    {"__text_signature__", function_text_signature, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef function_methods[] = {
    {"__reduce__", function_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(qbpy_function, vectorcall), READONLY, NULL},
    {"result_type", T_OBJECT, offsetof(qbpy_function, result_type), READONLY,
     "the named tuple of several results, or None"},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(qbpy_function, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_dealloc, (void *)function_dealloc},
    {Py_tp_traverse, (void *)function_traverse},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_descr_get, (void *)function_get},
    {Py_tp_repr, (void *)function_repr},
    {Py_tp_getset, function_getset},
    {Py_tp_methods, function_methods},
    {Py_tp_members, function_members},
    {0, NULL},
};

static PyType_Spec function_spec = {
    .name = "quabla._core.Function",
    .basicsize = sizeof(qbpy_function),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR |
             Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = function_slots,
};

/* collections.namedtuple("SlogdetResult", ["sign", "logabsdet"], module="quabla.linalg") */
static PyObject *make_result_type(const qb_function *function)
{
    char name[48];
    PyOS_snprintf(name, sizeof name, "%sResult", own_name(function));
    name[0] = (char)toupper((unsigned char)name[0]);
    PyObject *collections = PyImport_ImportModule("collections"), *type = NULL;
    PyObject *make = collections ? PyObject_GetAttrString(collections, "namedtuple") : NULL;
    PyObject *fields = PyList_New(0);
    bool complete = make && fields;
    for (int i = 0; complete && i < function->result_count; i++) {
        PyObject *field = PyUnicode_InternFromString(function->result_name[i]);
        complete = field && PyList_Append(fields, field) == 0;
        Py_XDECREF(field);
    }
    PyObject *args = complete ? Py_BuildValue("(sO)", name, fields) : NULL;
    PyObject *kwargs = args ? Py_BuildValue("{ss}", "module", "quabla.linalg") : NULL;
    if (kwargs)
        type = PyObject_Call(make, args, kwargs);
    Py_XDECREF(kwargs);
    Py_XDECREF(args);
    Py_XDECREF(fields);
    Py_XDECREF(make);
    Py_XDECREF(collections);
    return type;
}

static PyObject *make_function(qbpy_state *state, const qb_function *function)
{
    qbpy_function *self = PyObject_GC_New(qbpy_function, state->function_type);
    if (!self)
        return NULL;
    self->vectorcall = function->result_count > 1 ? function_vectorcall_many : function_vectorcall;
    self->result_type = NULL;
    self->function = function;
    self->state = state;
    self->weakrefs = NULL;
    memset(self->parameter_name, 0, sizeof self->parameter_name);
    self->name = PyUnicode_InternFromString(own_name(function));
    bool complete = self->name != NULL;
    if (complete && function->result_count > 1)
        complete = (self->result_type = make_result_type(function)) != NULL;
    for (int i = 0; complete && i < function->parameter_count; i++)
        complete = (self->parameter_name[i] = PyUnicode_InternFromString(function->parameter[i].name)) != NULL;
    PyObject_GC_Track((PyObject *)self);
    if (complete)
        return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

/* Into the module, or into the dict of functions that have a module of their own. */
static int install(PyObject *module, PyObject *linalg, const qb_function *row, PyObject *function)
{
    qbpy_state *state = qbpy_state_of(module);
    if (strchr(row->name, '.'))
        return PyDict_SetItemString(linalg, own_name(row), function);
    int status = PyModule_AddObjectRef(module, row->name, function);
    if (status == 0 && row->is_method)
        status = PyObject_SetAttrString((PyObject *)state->tensor_type, row->name, function);
    if (status == 0 && row->is_method)
        status = PyObject_SetAttrString((PyObject *)state->trace_tensor_type, row->name, function);
    return status;
}

int qbpy_install_functions(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    if (qbpy_find_operators() < 0)
        return -1;
    state->function_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &function_spec, NULL);
    if (!state->function_type || qbpy_add_array_attributes(state->tensor_type) < 0 ||
        qbpy_add_array_attributes(state->trace_tensor_type) < 0)
        return -1;
    PyObject *linalg = PyDict_New();
    int status = linalg ? PyModule_AddObjectRef(module, "linalg_functions", linalg) : -1;
    for (int i = 0; status == 0 && i < qb_function_count(); i++) {
        PyObject *function = make_function(state, qb_function_at(i));
        status = function ? install(module, linalg, qb_function_at(i), function) : -1;
        Py_XDECREF(function);
    }
    Py_XDECREF(linalg);
    return status;
}
