/* Nested lists and tuples to tensors, in two passes over the sequence.
 *
 * The first finds the shape, which the way to the first number or array decides and everything else must repeat, and
 * which kinds of numbers and which dtypes occur; arrays in the lists are converted on the way and kept. The second
 * stores the elements in the same order. Converting an array may run a user's code, which may change the lists: so
 * each length is checked in both passes. */
#include "convert.h"

#include "base/dtype.h"
#include "base/tensor.h"

#include <stdio.h>
#include <string.h>

typedef struct nested {
    const qbpy_conversion *how;
    int rank; /* -1: not known yet */
    int64_t shape[QB_MAX_RANK];
    Py_ssize_t index[QB_MAX_RANK]; /* where the walk is */
    bool has_bool, has_int, has_float, has_float32;
    int dtype;          /* of all arrays together; -1: there were none */
    qb_tensor **arrays; /* in the order of the walk */
    Py_ssize_t array_count, array_capacity, next_array;
    char *out;
} nested;

typedef struct short_text {
    char text[sizeof(qb_shape_text) + 64];
} short_text;

static bool is_sequence(PyObject *object)
{
    return PyList_Check(object) || PyTuple_Check(object) || PyRange_Check(object);
}

/* " element [1][0]", or nothing at the top */
static const char *position(const nested *walk, int depth, char *text, size_t room)
{
    size_t used = depth ? (size_t)snprintf(text, room, " element ") : 0;
    text[used] = 0;
    for (int i = 0; i < depth && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "[%zd]", walk->index[i]);
    return text;
}

enum { POSITION_ROOM = 16 + 22 * QB_MAX_RANK };

/* ------------------------------------------------------------------------------------------------------- first pass */

static int fail_ragged(const nested *walk, int depth, const char *given, const char *expected)
{
    char where[POSITION_ROOM];
    PyErr_Format(PyExc_ValueError, "%s: ragged nested sequence:%s %s, expected %s", walk->how->function,
                 position(walk, depth, where, sizeof where), given, expected);
    return -1;
}

/* What the place at this depth must hold, once the rank is known. */
static short_text expected_at(const nested *walk, int depth)
{
    short_text out;
    if (depth == walk->rank)
        (void)snprintf(out.text, sizeof out.text, "a number");
    else if (depth + 1 == walk->rank)
        (void)snprintf(out.text, sizeof out.text, "%lld numbers", (long long)walk->shape[depth]);
    else
        (void)snprintf(out.text, sizeof out.text, "shape %s",
                       qb_print_shape(walk->rank - depth, walk->shape + depth).text);
    return out;
}

static int meet_sequence(nested *walk, int depth, Py_ssize_t length)
{
    short_text given;
    if (depth == QB_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "%s: lists nested more than %d deep", walk->how->function, QB_MAX_RANK);
        return -1;
    }
    (void)snprintf(given.text, sizeof given.text, "has length %zd", length);
    if (walk->rank < 0) {
        walk->shape[depth] = length;
        if (length == 0)
            walk->rank = depth + 1;
    } else if (depth == walk->rank) {
        return fail_ragged(walk, depth, given.text, "a number");
    } else if (walk->shape[depth] != length) {
        short_text expected;
        (void)snprintf(expected.text, sizeof expected.text, "%lld", (long long)walk->shape[depth]);
        return fail_ragged(walk, depth, given.text, expected.text);
    }
    return 0;
}

static int meet_number(nested *walk, int depth, PyObject *number)
{
    if (walk->rank < 0)
        walk->rank = depth;
    if (depth != walk->rank)
        return fail_ragged(walk, depth, "is a number", expected_at(walk, depth).text);
    if (PyFloat_Check(number))
        walk->has_float = true;
    else if (PyBool_Check(number))
        walk->has_bool = true;
    else
        walk->has_int = true;
    return 0;
}

static int meet_shape(nested *walk, int depth, const qb_tensor *array)
{
    if (depth + array->rank > QB_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "%s: lists of arrays of rank %d, nested %d deep: ranks go from 0 to %d",
                     walk->how->function, array->rank, depth, QB_MAX_RANK);
        return -1;
    }
    if (walk->rank < 0) {
        walk->rank = depth + array->rank;
        for (int i = 0; i < array->rank; i++)
            walk->shape[depth + i] = array->shape[i];
    }
    if (depth <= walk->rank && qb_shape_equal(array->rank, array->shape, walk->rank - depth, walk->shape + depth))
        return 0;
    short_text given;
    (void)snprintf(given.text, sizeof given.text, "has shape %s", qb_print_shape(array->rank, array->shape).text);
    return fail_ragged(walk, depth, given.text, expected_at(walk, depth).text);
}

/* The dtype of an array counts; a NumPy scalar counts as a number, and so do foreign integers that are to become
 * floating. */
static int meet_dtype(nested *walk, qb_dtype dtype, bool is_foreign, bool is_scalar)
{
    if (is_scalar || (is_foreign && !walk->how->keep_integers && qb_dtype_is_integer(dtype))) {
        walk->has_bool |= dtype == QB_BOOL;
        walk->has_int |= qb_dtype_is_integer(dtype);
        walk->has_float |= dtype == QB_FLOAT64;
        walk->has_float32 |= dtype == QB_FLOAT32;
        return 0;
    }
    qb_dtype joined = dtype;
    qb_status status = walk->dtype < 0 || walk->how->dtype >= 0
                           ? QB_OK
                           : qb_dtype_promote(walk->how->function, (qb_dtype)walk->dtype, dtype, &joined);
    if (status != QB_OK) {
        qbpy_raise(walk->how->state, status);
        return -1;
    }
    walk->dtype = (int)joined;
    return 0;
}

static int keep_array(nested *walk, qb_tensor *stolen)
{
    if (walk->array_count == walk->array_capacity) {
        Py_ssize_t capacity = walk->array_capacity ? 2 * walk->array_capacity : 16;
        qb_tensor **grown = PyMem_Realloc(walk->arrays, (size_t)capacity * sizeof *grown);
        if (!grown) {
            qb_tensor_release(stolen);
            PyErr_NoMemory();
            return -1;
        }
        walk->arrays = grown;
        walk->array_capacity = capacity;
    }
    walk->arrays[walk->array_count++] = stolen;
    return 0;
}

static int refuse_item(const nested *walk, int depth, PyObject *object)
{
    char where[POSITION_ROOM];
    position(walk, depth, where, sizeof where);
    if (qbpy_is_trace_tensor(walk->how->state, object))
        PyErr_Format(walk->how->state->TracerError,
                     "%s:%s is a traced array, which has no value yet; join traced arrays with quabla.stack([...])",
                     walk->how->function, where);
    else
        qbpy_refuse_object(walk->how->function, where, object);
    return -1;
}

static int meet_array(nested *walk, int depth, PyObject *object)
{
    qbpy_state *state = walk->how->state;
    bool is_own = qbpy_is_tensor(state, object), is_scalar = false;
    if (!is_own && (qbpy_is_trace_tensor(state, object) || !qbpy_is_foreign_array(state, object)))
        return refuse_item(walk, depth, object);
    qbpy_conversion as_it_is = {state, walk->how->function, -1, true};
    qb_tensor *array =
        is_own ? qb_tensor_retain(qbpy_tensor_get(object)) : qbpy_import_foreign(&as_it_is, object, &is_scalar);
    if (!array || keep_array(walk, array) < 0)
        return -1;
    return meet_dtype(walk, array->dtype, !is_own, is_scalar) < 0 ? -1 : meet_shape(walk, depth, array);
}

static int measure(nested *walk, int depth, PyObject *object)
{
    if (PyFloat_Check(object) || PyLong_Check(object))
        return meet_number(walk, depth, object);
    if (!is_sequence(object))
        return meet_array(walk, depth, object);
    PyObject *items = PySequence_Fast(object, "");
    int result = items ? meet_sequence(walk, depth, PySequence_Fast_GET_SIZE(items)) : -1;
    for (Py_ssize_t i = 0; result == 0 && i < PySequence_Fast_GET_SIZE(items); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, i);
        if (PyFloat_CheckExact(item) && walk->rank == depth + 1) {
            walk->has_float = true;
            continue;
        }
        walk->index[depth] = i;
        Py_INCREF(item);
        result = measure(walk, depth + 1, item);
        Py_DECREF(item);
    }
    Py_XDECREF(items);
    return result;
}

static qb_dtype inferred_dtype(const nested *walk)
{
    const qbpy_conversion *how = walk->how;
    qb_dtype of_integers = how->keep_integers ? QB_INT64 : QB_FLOAT64;
    if (how->dtype >= 0)
        return (qb_dtype)how->dtype;
    if (walk->dtype >= 0 && qb_dtype_is_floating((qb_dtype)walk->dtype))
        return (qb_dtype)walk->dtype;
    if (walk->has_float || walk->has_float32)
        return walk->has_float ? QB_FLOAT64 : QB_FLOAT32;
    if (walk->dtype >= 0 && !(walk->dtype == QB_BOOL && walk->has_int))
        return (qb_dtype)walk->dtype;
    return walk->has_int ? of_integers : walk->has_bool ? QB_BOOL : QB_FLOAT64;
}

/* ------------------------------------------------------------------------------------------------------ second pass */

static int fail_changed(const nested *walk)
{
    PyErr_Format(PyExc_RuntimeError, "%s: the sequence changed while it was converted", walk->how->function);
    return -1;
}

static int fill_array(nested *walk, int depth, qb_dtype dtype)
{
    if (walk->next_array == walk->array_count)
        return fail_changed(walk);
    const qb_tensor *array = walk->arrays[walk->next_array++];
    if (depth > walk->rank || !qb_shape_equal(array->rank, array->shape, walk->rank - depth, walk->shape + depth))
        return fail_changed(walk);
    qbpy_layout layout;
    qbpy_layout_of_tensor(array, &layout);
    qbpy_layout_copy(&layout, dtype, walk->out);
    walk->out += (size_t)array->size * qb_dtype_size(dtype);
    return 0;
}

static int fill(nested *walk, int depth, PyObject *object, qb_dtype dtype)
{
    size_t size = qb_dtype_size(dtype);
    if (PyFloat_Check(object) || PyLong_Check(object)) {
        if (depth != walk->rank)
            return fail_changed(walk);
        bool exact = walk->how->dtype < 0 && !walk->how->keep_integers;
        if (qbpy_store_number(walk->how->function, object, dtype, exact, walk->out) < 0)
            return -1;
        walk->out += size;
        return 0;
    }
    if (!is_sequence(object))
        return fill_array(walk, depth, dtype);
    PyObject *items = PySequence_Fast(object, "");
    if (!items)
        return -1;
    int result = 0;
    if (depth >= walk->rank || PySequence_Fast_GET_SIZE(items) != walk->shape[depth])
        result = fail_changed(walk);
    for (Py_ssize_t i = 0; result == 0 && i < PySequence_Fast_GET_SIZE(items); i++) {
        PyObject *item = PySequence_Fast_GET_ITEM(items, i);
        if (dtype == QB_FLOAT64 && depth + 1 == walk->rank && PyFloat_CheckExact(item)) {
            *(double *)(void *)walk->out = PyFloat_AS_DOUBLE(item);
            walk->out += size;
        } else {
            result = fill(walk, depth + 1, item, dtype);
        }
    }
    Py_DECREF(items);
    return result;
}

qb_tensor *qbpy_convert_nested(const qbpy_conversion *how, PyObject *sequence)
{
    nested walk = {.how = how, .rank = -1, .dtype = -1};
    qb_tensor *tensor = NULL;
    if (measure(&walk, 0, sequence) == 0) {
        qb_dtype dtype = inferred_dtype(&walk);
        qb_status status = qb_tensor_create(dtype, walk.rank, walk.shape, NULL, &tensor);
        if (status != QB_OK) {
            qbpy_raise(how->state, status);
        } else {
            walk.out = tensor->data;
            if (fill(&walk, 0, sequence, dtype) < 0) {
                qb_tensor_release(tensor);
                tensor = NULL;
            }
        }
    }
    for (Py_ssize_t i = 0; i < walk.array_count; i++)
        qb_tensor_release(walk.arrays[i]);
    PyMem_Free(walk.arrays);
    return tensor;
}
