/* The inside of x[...], and elements along the first axis. */
#include "index.h"

#include "base/dtype.h"
#include "base/tensor.h"

#include "convert.h"
#include "trace.h"

/* ---- Entries */

static int refuse_entry(PyObject *object)
{
    PyErr_Format(PyExc_IndexError,
                 "arrays are indexed by ints, slices, None, ... and arrays or lists of ints or bools, got %.80R",
                 object);
    return -1;
}

static int refuse_dtype(qb_dtype dtype)
{
    PyErr_Format(PyExc_IndexError, "arrays of indices must be integers or bools, got %s; convert with astype(int64)",
                 qb_dtype_name(dtype));
    return -1;
}

static int add_entry(qbpy_index *index, qb_index_kind kind, int64_t start, int64_t stop, int64_t step)
{
    if (index->entry_count == QB_MAX_INDEX) {
        PyErr_Format(PyExc_IndexError, "too many indices: arrays have %d axes at most", QB_MAX_RANK);
        return -1;
    }
    int64_t *entry = index->entries + index->entry_count++ * QB_INDEX_FIELDS;
    entry[0] = kind;
    entry[1] = start;
    entry[2] = stop;
    entry[3] = step;
    return 0;
}

/* Steals the array, also when it fails; NULL is passed on. */
static int add_array(qbpy_index *index, qb_index_kind kind, PyObject *stolen, int64_t mask_extent)
{
    if (!stolen)
        return -1;
    if (index->array_count == QB_MAX_RANK) {
        Py_DECREF(stolen);
        PyErr_Format(PyExc_IndexError, "too many indices: arrays have %d axes at most", QB_MAX_RANK);
        return -1;
    }
    index->arrays[index->array_count++] = stolen;
    return add_entry(index, kind, index->array_count - 1, mask_extent, QB_INDEX_ABSENT);
}

/* ---- Booleans */

static PyObject *new_places(qbpy_state *state, int64_t count, int64_t **out)
{
    qb_tensor *tensor;
    qb_status status = qb_tensor_create(QB_INT64, 1, &count, NULL, &tensor);
    if (status != QB_OK)
        return qbpy_raise(state, status);
    *out = tensor->data;
    return qbpy_tensor_wrap(state, tensor, false);
}

static int add_flag(qbpy_state *state, qbpy_index *index, bool flag)
{
    int64_t *place;
    PyObject *array = new_places(state, flag, &place);
    if (array && flag)
        *place = 0;
    return add_array(index, QB_INDEX_FLAG, array, QB_INDEX_ABSENT);
}

/* One array for each axis of the mask: where it is true, in row-major order. */
static int add_mask(qbpy_state *state, qbpy_index *index, const qb_tensor *mask)
{
    const uint8_t *is_set = mask->data;
    int64_t count = 0, *places[QB_MAX_RANK], position[QB_MAX_RANK] = {0};
    for (int64_t i = 0; i < mask->size; i++)
        count += is_set[i] != 0;
    for (int axis = 0; axis < mask->rank; axis++)
        if (add_array(index, QB_INDEX_ARRAY, new_places(state, count, &places[axis]), mask->shape[axis]) < 0)
            return -1;
    int last = mask->rank - 1;
    int64_t found = 0, extent = mask->shape[last];
    for (int64_t row = 0; row < mask->size; row += extent) {
        for (int64_t i = 0; i < extent; i++) {
            if (!is_set[row + i])
                continue;
            for (int axis = 0; axis < last; axis++)
                places[axis][found] = position[axis];
            places[last][found++] = i;
        }
        for (int axis = last - 1; axis >= 0 && ++position[axis] == mask->shape[axis]; axis--)
            position[axis] = 0;
    }
    return 0;
}

/* ---- Arrays */

static int add_integer(qbpy_index *index, PyObject *object)
{
    Py_ssize_t position = PyNumber_AsSsize_t(object, PyExc_IndexError);
    if (position == -1 && PyErr_Occurred())
        return -1;
    return add_entry(index, QB_INDEX_INTEGER, position, QB_INDEX_ABSENT, QB_INDEX_ABSENT);
}

static int add_element(qbpy_index *index, const qb_tensor *tensor)
{
    if (tensor->dtype == QB_UINT64 && *(const uint64_t *)tensor->data > INT64_MAX) {
        PyErr_SetString(PyExc_IndexError, "cannot fit an index into 64 bits with a sign");
        return -1;
    }
    int64_t position = tensor->dtype == QB_INT64 || tensor->dtype == QB_UINT64
                           ? *(const int64_t *)tensor->data
                           : (int64_t)qb_dtype_load(tensor->dtype, tensor->data);
    return add_entry(index, QB_INDEX_INTEGER, position, QB_INDEX_ABSENT, QB_INDEX_ABSENT);
}

/* Arrays of the smaller integers become int64 here, so that in a graph their values can be seen. */
static int add_tensor(qbpy_state *state, qbpy_index *index, qb_tensor *tensor)
{
    if (tensor->dtype == QB_BOOL)
        return tensor->rank == 0 ? add_flag(state, index, *(const uint8_t *)tensor->data)
                                 : add_mask(state, index, tensor);
    if (!qb_dtype_is_integer(tensor->dtype))
        return refuse_dtype(tensor->dtype);
    if (tensor->rank == 0)
        return add_element(index, tensor);
    qb_tensor *places =
        tensor->dtype == QB_UINT64 ? qb_tensor_retain(tensor) : qbpy_tensor_astype(state, tensor, QB_INT64);
    return add_array(index, QB_INDEX_ARRAY, qbpy_tensor_wrap(state, places, false), QB_INDEX_ABSENT);
}

static int add_tracer(qbpy_state *state, qbpy_index *index, PyObject *tracer)
{
    qb_type type;
    qbpy_tracer_type(tracer, &type);
    if (type.dtype == QB_BOOL) {
        PyErr_SetString(
            state->TracerError,
            "an array is indexed by a traced boolean array: how many elements that selects is not known while "
            "the function is traced. Use where(mask, x, other), or a mask whose values are known");
        return -1;
    }
    if (!qb_dtype_is_integer(type.dtype))
        return refuse_dtype(type.dtype);
    return add_array(index, QB_INDEX_ARRAY, Py_NewRef(tracer), QB_INDEX_ABSENT);
}

static bool is_sequence(PyObject *object)
{
    return PyList_Check(object) || PyTuple_Check(object);
}

static int add_converted(qbpy_state *state, qbpy_index *index, PyObject *object)
{
    if (qbpy_holds_tracer(state, object)) {
        PyObject *array = qbpy_stack_items(state, object);
        int status = !array                         ? -1
                     : qbpy_is_tracer(state, array) ? add_tracer(state, index, array)
                                                    : add_tensor(state, index, qbpy_tensor_get(array));
        Py_XDECREF(array);
        return status;
    }
    bool weak;
    qb_tensor *tensor = qbpy_to_operand(state, "index", object, &weak);
    if (!tensor) {
        if (PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(state->TracerError)) {
            PyErr_Clear();
            return refuse_entry(object);
        }
        return -1;
    }
    int status;
    if (tensor->size == 0 && tensor->dtype == QB_FLOAT64 && (is_sequence(object) || PyRange_Check(object))) {
        qb_tensor *none = qbpy_tensor_astype(state, tensor, QB_INT64); /* [] selects nothing */
        status = none ? add_tensor(state, index, none) : -1;
        qb_tensor_release(none);
    } else {
        status = add_tensor(state, index, tensor);
    }
    qb_tensor_release(tensor);
    return status;
}

/* ---- The whole index */

static int slice_bound(PyObject *object, int64_t *out)
{
    *out = QB_INDEX_ABSENT;
    if (object == Py_None)
        return 0;
    if (!PyIndex_Check(object)) {
        PyErr_Format(PyExc_TypeError, "the bounds of a slice are ints or None, got %.80R", object);
        return -1;
    }
    Py_ssize_t bound =
        PyNumber_AsSsize_t(object, NULL); /* beyond the range of a Py_ssize_t: cut, as Python's slices do */
    if (bound == -1 && PyErr_Occurred())
        return -1;
    *out = bound == (Py_ssize_t)QB_INDEX_ABSENT ? bound + 1 : bound;
    return 0;
}

static int read_slice(qbpy_index *index, const PySliceObject *slice)
{
    int64_t start, stop, step;
    if (slice_bound(slice->start, &start) < 0 || slice_bound(slice->stop, &stop) < 0 ||
        slice_bound(slice->step, &step) < 0)
        return -1;
    return add_entry(index, QB_INDEX_SLICE, start, stop, step);
}

static int read_entry(qbpy_state *state, qbpy_index *index, PyObject *object)
{
    if (PyLong_CheckExact(object))
        return add_integer(index, object);
    if (object == Py_None)
        return add_entry(index, QB_INDEX_NEW_AXIS, QB_INDEX_ABSENT, QB_INDEX_ABSENT, QB_INDEX_ABSENT);
    if (object == Py_Ellipsis)
        return add_entry(index, QB_INDEX_ELLIPSIS, QB_INDEX_ABSENT, QB_INDEX_ABSENT, QB_INDEX_ABSENT);
    if (PySlice_Check(object))
        return read_slice(index, (PySliceObject *)object);
    if (PyBool_Check(object))
        return add_flag(state, index, object == Py_True);
    if (qbpy_is_tracer(state, object))
        return add_tracer(state, index, object);
    if (qbpy_is_tensor(state, object))
        return add_tensor(state, index, qbpy_tensor_get(object));
    if (is_sequence(object) || PyRange_Check(object) || qbpy_is_foreign_array(state, object))
        return add_converted(state, index, object);
    return PyIndex_Check(object) ? add_integer(index, object) : refuse_entry(object);
}

int qbpy_index_read(qbpy_state *state, PyObject *object, qbpy_index *out)
{
    out->entry_count = out->array_count = 0;
    int status = 0;
    if (PyTuple_Check(object))
        for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(object); i++)
            status = read_entry(state, out, PyTuple_GET_ITEM(object, i));
    else
        status = read_entry(state, out, object);
    out->attribute = qb_ints(out->entry_count * QB_INDEX_FIELDS, out->entries);
    if (status < 0)
        qbpy_index_release(out);
    return status;
}

void qbpy_index_release(qbpy_index *index)
{
    for (int i = 0; i < index->array_count; i++)
        Py_DECREF(index->arrays[i]);
}

/* ---- Calls */

/* A tensor is read directly: a program for every index would fill the cache. */
static PyObject *read_tensor(qbpy_state *state, PyObject *array, const qb_attribute *index, int count,
                             PyObject *const *places)
{
    enum { WORTH_RELEASING = 1 << 14 };
    qb_tensor *tensor = qbpy_tensor_get(array), *arrays[QB_MAX_RANK], *result = NULL;
    qb_status status;
    int64_t size = 0;
    for (int i = 0; i < count; i++) {
        arrays[i] = qbpy_tensor_get(places[i]);
        size += arrays[i]->size;
    }
    if (size < WORTH_RELEASING) {
        status = qb_tensor_index(tensor, index, count, arrays, &result);
    } else {
        Py_BEGIN_ALLOW_THREADS;
        status = qb_tensor_index(tensor, index, count, arrays, &result);
        Py_END_ALLOW_THREADS;
    }
    return status == QB_OK ? qbpy_tensor_wrap(state, result, ((qbpy_tensor *)array)->weak) : qbpy_raise(state, status);
}

static PyObject *call(qbpy_state *state, const qb_function *function, PyObject *const *operands,
                      const qb_attribute *index, int count, PyObject *const *places)
{
    PyObject *all[QB_MAX_RANK + 2];
    int own = function->operand_parameters;
    bool direct = function == qbpy_operator.getitem && qbpy_is_tensor(state, operands[0]);
    for (int i = 0; i < count; i++) {
        all[own + i] = places[i];
        direct = direct && qbpy_is_tensor(state, places[i]);
    }
    if (direct)
        return read_tensor(state, operands[0], index, count, places);
    for (int i = 0; i < own; i++)
        all[i] = operands[i];
    return qbpy_call_function(state, function, index, own + count, all);
}

PyObject *qbpy_call_indexed(qbpy_state *state, const qb_function *function, PyObject *const *operands, PyObject *object)
{
    qbpy_index index;
    if (qbpy_index_read(state, object, &index) < 0)
        return NULL;
    PyObject *result = call(state, function, operands, &index.attribute, index.array_count, index.arrays);
    qbpy_index_release(&index);
    return result;
}

PyObject *qbpy_getitem(PyObject *array, PyObject *object)
{
    return qbpy_call_indexed(qbpy_state_of_object(array), qbpy_operator.getitem, &array, object);
}

PyObject *qbpy_item(PyObject *array, Py_ssize_t position)
{
    const int64_t entry[QB_INDEX_FIELDS] = {QB_INDEX_INTEGER, position, QB_INDEX_ABSENT, QB_INDEX_ABSENT};
    const qb_attribute index = qb_ints(QB_INDEX_FIELDS, entry);
    return call(qbpy_state_of_object(array), qbpy_operator.getitem, &array, &index, 0, NULL);
}
