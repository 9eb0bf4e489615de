/* Parameters that are not arrays: from Python objects to attributes. */
#include "function.h"

static int refuse(const qb_function *function, const qb_parameter *parameter, const char *expected, PyObject *object)
{
    if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s: %s must be %s, got %.80R", function->name, parameter->name, expected,
                     object);
    }
    return -1;
}

static int store(const qb_function *function, int64_t integer, qbpy_integers *space)
{
    if (space->count >= QB_MAX_INTEGERS) {
        PyErr_Format(PyExc_ValueError, "%s: more integers than any array has axes", function->name);
        return -1;
    }
    space->data[space->count++] = integer;
    return 0;
}

/* An int, or anything with __index__. */
static int read_integer(PyObject *object, int64_t *out)
{
    if (PyLong_CheckExact(object)) {
        *out = PyLong_AsLongLong(object);
        return *out == -1 && PyErr_Occurred() ? -1 : 0;
    }
    PyObject *integer = PyNumber_Index(object);
    if (!integer)
        return -1;
    *out = PyLong_AsLongLong(integer);
    Py_DECREF(integer);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static int store_all(const qb_function *function, PyObject *const *objects, Py_ssize_t count, qb_attribute *out,
                     qbpy_integers *space)
{
    int first = space->count;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t integer;
        if (read_integer(objects[i], &integer) < 0 || store(function, integer, space) < 0)
            return -1;
    }
    *out = qb_ints(space->count - first, space->data + first);
    return 0;
}

/* An int or a tuple or list of ints. */
static int read_integers(const qb_function *function, PyObject *object, qb_attribute *out, qbpy_integers *space)
{
    if (!PyTuple_Check(object) && !PyList_Check(object))
        return store_all(function, &object, 1, out, space);
    PyObject *fast = PySequence_Tuple(object); /* a list could change while __index__ runs */
    if (!fast)
        return -1;
    int status = store_all(function, &PyTuple_GET_ITEM(fast, 0), PyTuple_GET_SIZE(fast), out, space);
    Py_DECREF(fast);
    return status;
}

/* n, or a pair of ints or sequences of ints. */
static int read_pairs(const qb_function *function, PyObject *object, qb_attribute *out, qbpy_integers *space)
{
    if (!PyTuple_Check(object) && !PyList_Check(object))
        return read_integers(function, object, out, space);
    PyObject *pair = PySequence_Tuple(object);
    int first = space->count, status = pair && PyTuple_GET_SIZE(pair) == 2 ? 0 : -1;
    qb_attribute of_a = {.count = 0}, of_b = {.count = 0};
    if (status == 0)
        status = store(function, 0, space);
    if (status == 0)
        status = read_integers(function, PyTuple_GET_ITEM(pair, 0), &of_a, space);
    if (status == 0)
        status = read_integers(function, PyTuple_GET_ITEM(pair, 1), &of_b, space);
    Py_XDECREF(pair);
    if (status < 0)
        return -1;
    if (of_a.count != of_b.count) {
        PyErr_Format(PyExc_ValueError, "%s: %d axes of the first operand are paired with %d of the second",
                     function->name, (int)of_a.count, (int)of_b.count);
        return -1;
    }
    space->data[first] = of_a.count;
    *out = qb_ints(space->count - first, space->data + first);
    return 0;
}

/* A width for both ends, or one for each. */
static int read_width(const qb_function *function, PyObject *object, qbpy_integers *space)
{
    qb_attribute pair;
    int first = space->count;
    if (read_integers(function, object, &pair, space) < 0)
        return -1;
    if (pair.count == 1)
        return store(function, space->data[first], space);
    if (pair.count == 2)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s: a pair of widths was expected, got %.80R", function->name, object);
    return -1;
}

/* An int, a pair of ints, or a sequence of these, one for each axis. */
static int read_widths(const qb_function *function, PyObject *object, qb_attribute *out, qbpy_integers *space)
{
    int first = space->count;
    bool is_sequence = PyTuple_Check(object) || PyList_Check(object);
    PyObject *items = is_sequence ? PySequence_Tuple(object) : NULL;
    if (is_sequence && !items)
        return -1;
    bool is_nested = items && PyTuple_GET_SIZE(items) > 0 &&
                     (PyTuple_Check(PyTuple_GET_ITEM(items, 0)) || PyList_Check(PyTuple_GET_ITEM(items, 0)));
    int status = is_nested ? 0 : read_width(function, items ? items : object, space);
    for (Py_ssize_t i = 0; is_nested && status == 0 && i < PyTuple_GET_SIZE(items); i++)
        status = read_width(function, PyTuple_GET_ITEM(items, i), space);
    Py_XDECREF(items);
    *out = qb_ints(space->count - first, space->data + first);
    return status;
}

static int read_text(const qb_function *function, PyObject *object, qb_attribute *out, qbpy_integers *space)
{
    Py_ssize_t length;
    const char *text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &length) : NULL;
    if (!text)
        return -1;
    int count = qb_pack_text((size_t)length, text, QB_MAX_INTEGERS - space->count, space->data + space->count);
    if (count < 0 || strlen(text) != (size_t)length) {
        PyErr_Format(PyExc_ValueError, "%s: a text of %zd characters cannot be read", function->name, length);
        return -1;
    }
    *out = qb_ints(count, space->data + space->count);
    space->count += count;
    return 0;
}

/* ---- Any parameter */

static int read_number(PyObject *object, qb_attribute *out)
{
    *out = qb_none_attribute();
    if (object == Py_None)
        return 0;
    double number = PyFloat_AsDouble(object);
    if (number == -1 && PyErr_Occurred())
        return -1;
    *out = (qb_attribute){.kind = QB_ATTRIBUTE_NUMBER, .number = number};
    return 0;
}

int qbpy_parameter_from_object(qbpy_state *state, const qb_function *function, const qb_parameter *parameter,
                               PyObject *object, qb_attribute *out, qbpy_integers *space)
{
    int64_t integer;
    int dtype, truth;
    switch (parameter->kind) {
    case QB_PARAMETER_INT:
        if (read_integer(object, &integer) < 0)
            return refuse(function, parameter, "an int", object);
        *out = qb_int(integer);
        return 0;
    case QB_PARAMETER_BOOL:
        if ((truth = PyObject_IsTrue(object)) < 0)
            return -1;
        *out = qb_int(truth);
        return 0;
    case QB_PARAMETER_NUMBER: return read_number(object, out) < 0 ? refuse(function, parameter, "a number", object) : 0;
    case QB_PARAMETER_AXIS:
        *out = qb_none_attribute();
        if (object == Py_None)
            return 0;
        return store_all(function, &object, 1, out, space) < 0 ? refuse(function, parameter, "an int or None", object)
                                                               : 0;
    case QB_PARAMETER_AXES:
        *out = qb_none_attribute();
        if (object == Py_None)
            return 0;
        return read_integers(function, object, out, space) < 0
                   ? refuse(function, parameter, "an int, a tuple of ints or None", object)
                   : 0;
    case QB_PARAMETER_SHAPE:
        return read_integers(function, object, out, space) < 0
                   ? refuse(function, parameter, "an int or a tuple of ints", object)
                   : 0;
    case QB_PARAMETER_DTYPE:
        if (qbpy_optional_dtype(state, object, &dtype) < 0)
            return -1;
        *out = qb_int(dtype);
        return 0;
    case QB_PARAMETER_PAIRS:
        return read_pairs(function, object, out, space) < 0
                   ? refuse(function, parameter, "an int or a pair of axes", object)
                   : 0;
    case QB_PARAMETER_WIDTHS:
        return read_widths(function, object, out, space) < 0
                   ? refuse(function, parameter, "an int, a pair of ints or a pair for each axis", object)
                   : 0;
    case QB_PARAMETER_TEXT:
        return read_text(function, object, out, space) < 0 ? refuse(function, parameter, "a str", object) : 0;
    case QB_PARAMETER_INDEX: /* has arrays in it: see qbpy_call_indexed */
    case QB_PARAMETER_OPERAND:
    case QB_PARAMETER_OPERANDS:
    case QB_PARAMETER_INDICES: break;
    }
    PyErr_Format(PyExc_SystemError, "%s: parameter %s is an operand", function->name, parameter->name);
    return -1;
}

int qbpy_parameter_from_objects(const qb_function *function, const qb_parameter *parameter, PyObject *const *objects,
                                Py_ssize_t count, qb_attribute *out, qbpy_integers *space)
{
    if (store_all(function, objects, count, out, space) == 0)
        return 0;
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "%s: %s must be ints", function->name, parameter->name);
    }
    return -1;
}
