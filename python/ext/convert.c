/* array and asarray: from whatever Python has for an array to a tensor.
 *
 * Numbers, nested sequences (nested.c), tensors, and foreign arrays by the first protocol they have: the buffer
 * protocol, DLPack, __array__. NumPy is not needed for any of it and never imported here. Every import copies, so that
 * a tensor never aliases foreign memory. Which dtype data get when none is asked for is decided in this file and in
 * nested.c alone. */
#include "convert.h"

#include "base/dtype.h"
#include "base/tensor.h"
#include "dlpack.h"
#include "function.h"

#include <math.h>
#include <string.h>

void qbpy_refuse_tracer(qbpy_state *state, const char *function)
{
    PyErr_Format(
        state->TracerError,
        "%s: a traced array has no value while the function is traced; use the functions of quabla on it (where or "
        "cond to decide by its value), or return it from the function",
        function);
}

void qbpy_refuse_object(const char *function, const char *where, PyObject *object)
{
    const char *colon = *where ? ":" : "";
    if (PyUnicode_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object))
        PyErr_Format(PyExc_TypeError, "%s:%s%s a string is not a number: %.80R", function, where, colon, object);
    else
        PyErr_Format(PyExc_TypeError,
                     "%s:%s%s cannot convert an object of type %.200s; expected a number, an array, or nested lists "
                     "of them",
                     function, where, colon, Py_TYPE(object)->tp_name);
}

/* ---------------------------------------------------------------------------------------------------------- numbers */

static int refuse_number(const char *function, PyObject *number, qb_dtype dtype)
{
    PyErr_Format(PyExc_ValueError, "%s: %.100S does not fit into %s", function, number, qb_dtype_name(dtype));
    return -1;
}

static int store_integer(const char *function, PyObject *number, qb_dtype dtype, void *element)
{
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (value == -1 && !overflow && PyErr_Occurred())
        return -1;
    if (dtype == QB_UINT64 && overflow > 0) {
        unsigned long long wide = PyLong_AsUnsignedLongLong(number);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return refuse_number(function, number, dtype);
        }
        *(uint64_t *)element = wide;
        return 0;
    }
    qb_dtype_store_integer(dtype, value, element);
    bool fits = !overflow && (dtype == QB_INT64 || (dtype == QB_UINT64 && value >= 0) ||
                              (dtype == QB_INT32 && value == *(int32_t *)element) ||
                              (dtype == QB_UINT32 && value == *(uint32_t *)element));
    return fits ? 0 : refuse_number(function, number, dtype);
}

/* An int for a floating dtype. */
static int store_rounded(const char *function, PyObject *number, qb_dtype dtype, bool exact, void *element)
{
    double value = PyLong_AsDouble(number);
    if (value == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return refuse_number(function, number, dtype);
    }
    if (exact && fabs(value) >= 0x1p53) {
        PyObject *back = PyLong_FromDouble(value);
        int same = back ? PyObject_RichCompareBool(back, number, Py_EQ) : -1;
        Py_XDECREF(back);
        if (same < 0)
            return -1;
        if (!same) {
            PyErr_Format(PyExc_ValueError,
                         "%s: the integer %.100S is not exact in float64, the dtype of integer data; pass dtype=int64 "
                         "(or uint64) to keep it, or dtype=float64 to round it",
                         function, number);
            return -1;
        }
    }
    qb_dtype_store(dtype, value, element);
    return 0;
}

int qbpy_store_number(const char *function, PyObject *number, qb_dtype dtype, bool exact, void *element)
{
    if (PyFloat_Check(number)) {
        double value = PyFloat_AS_DOUBLE(number);
        qb_dtype_store(dtype, value, element);
        if (!qb_dtype_is_integer(dtype))
            return 0;
        /* The integer part, as NumPy, if there is one and it fits. */
        bool is_signed = qb_dtype_kind(dtype) == 'i';
        double limit = ldexp(1, 8 * (int)qb_dtype_size(dtype) - is_signed), whole = trunc(value);
        return whole < limit && whole >= (is_signed ? -limit : 0) ? 0 : refuse_number(function, number, dtype);
    }
    if (dtype == QB_BOOL) {
        int truth = PyObject_IsTrue(number);
        *(uint8_t *)element = truth > 0;
        return truth < 0 ? -1 : 0;
    }
    return qb_dtype_is_floating(dtype) ? store_rounded(function, number, dtype, exact, element)
                                       : store_integer(function, number, dtype, element);
}

/* The dtype of a Python number: 'weak' ones only know their kind. */
static qb_dtype dtype_of_number(const qbpy_conversion *how, PyObject *number)
{
    if (PyBool_Check(number))
        return QB_BOOL;
    if (PyFloat_Check(number) || !how->keep_integers)
        return QB_FLOAT64;
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(number, &overflow);
    (void)value;
    if (overflow <= 0)
        return overflow ? QB_FLOAT64 : QB_INT64;
    PyObject *limit = PyLong_FromUnsignedLongLong(UINT64_MAX);
    int fits = limit ? PyObject_RichCompareBool(number, limit, Py_LE) : 0;
    Py_XDECREF(limit);
    PyErr_Clear();
    return fits > 0 ? QB_UINT64 : QB_FLOAT64;
}

static qb_tensor *convert_number(const qbpy_conversion *how, PyObject *number)
{
    qb_dtype dtype = how->dtype >= 0 ? (qb_dtype)how->dtype : dtype_of_number(how, number);
    qb_tensor *tensor;
    qb_status status = qb_tensor_create(dtype, 0, NULL, NULL, &tensor);
    if (status != QB_OK) {
        qbpy_raise(how->state, status);
        return NULL;
    }
    if (qbpy_store_number(how->function, number, dtype, how->dtype < 0 && !how->keep_integers, tensor->data) < 0) {
        qb_tensor_release(tensor);
        return NULL;
    }
    return tensor;
}

/* --------------------------------------------------------------------------------------------------- foreign arrays */

static bool is_of_numpy(PyObject *object)
{
    return strncmp(Py_TYPE(object)->tp_name, "numpy.", 6) == 0;
}

static bool is_text(PyObject *object)
{
    return PyUnicode_Check(object) || PyBytes_Check(object) || PyByteArray_Check(object);
}

static bool has_attribute(PyObject *object, PyObject *name)
{
    PyObject *attribute = PyObject_GetAttr((PyObject *)Py_TYPE(object), name);
    PyErr_Clear();
    Py_XDECREF(attribute);
    return attribute != NULL;
}

bool qbpy_is_foreign_array(const qbpy_state *state, PyObject *object)
{
    if (PyObject_CheckBuffer(object))
        return !is_text(object);
    return has_attribute(object, state->str_dlpack_) || has_attribute(object, state->str_array_);
}

/* The element type that a format of the struct module means; QBPY_ELEMENT_COUNT and an exception for all others. */
static qbpy_element read_format(const char *function, const Py_buffer *view)
{
    const char *format = view->format ? view->format : "B";
    char order = *format && strchr("@=<>!", *format) ? *format++ : '@';
    char kind = 0;
    if (format[0] && !format[1])
        kind = strchr("bhilqn", format[0])   ? 'i'
               : strchr("BHILQN", format[0]) ? 'u'
               : strchr("fd", format[0])     ? 'f'
               : format[0] == '?'            ? 'b'
                                             : 0;
    qbpy_element element = kind ? qbpy_element_find(kind, (size_t)view->itemsize) : QBPY_ELEMENT_COUNT;
    if (element == QBPY_ELEMENT_COUNT) {
        const char *what = strcmp(format, "e") == 0   ? "float16"
                           : strcmp(format, "g") == 0 ? "extended precision (longdouble)"
                           : format[0] == 'Z'         ? "complex"
                           : format[0] == 'O'         ? "object"
                           : strchr("sSwuc", format[strspn(format, "0123456789")]) != NULL ? "string"
                                                                                           : "structured";
        PyErr_Format(PyExc_TypeError,
                     "%s: %s data (format '%s') is not supported; convert it to float32 or float64 first", function,
                     what, view->format);
        return element;
    }
    bool swapped = order == (PY_BIG_ENDIAN ? '<' : '>') || (order == '!' && !PY_BIG_ENDIAN);
    if (swapped && view->itemsize > 1) {
        PyErr_Format(
            PyExc_ValueError,
            "%s: byte-swapped data (format '%s') is not supported; convert it to native byte order first, in NumPy "
            "x.astype(x.dtype.newbyteorder('='))",
            function, view->format);
        return QBPY_ELEMENT_COUNT;
    }
    return element;
}

/* What data of a foreign element type become when no dtype is asked for. */
static qb_dtype inferred_dtype(const qbpy_conversion *how, qbpy_element element)
{
    qb_dtype own = qbpy_element_dtype(element);
    if (how->dtype >= 0)
        return (qb_dtype)how->dtype;
    return qb_dtype_is_integer(own) && !how->keep_integers ? QB_FLOAT64 : own;
}

static qb_tensor *import_view(const qbpy_conversion *how, const Py_buffer *view)
{
    qbpy_layout layout = {.data = view->buf, .rank = view->ndim};
    layout.element = read_format(how->function, view);
    if (layout.element == QBPY_ELEMENT_COUNT)
        return NULL;
    if (view->ndim > QB_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "%s: an array of rank %d: ranks go from 0 to %d", how->function, view->ndim,
                     QB_MAX_RANK);
        return NULL;
    }
    int64_t step = view->itemsize; /* ctypes leaves the strides out even where they are asked for */
    for (int i = view->ndim - 1; i >= 0; i--) {
        layout.shape[i] = view->shape ? view->shape[i] : view->len / view->itemsize;
        layout.strides[i] = view->strides ? view->strides[i] : step;
        step *= layout.shape[i];
    }
    return qbpy_layout_tensor(how->state, &layout, inferred_dtype(how, layout.element));
}

/* The buffer protocol refused: NumPy says so of dates, for example. */
static void refuse_buffer(const char *function, PyObject *object)
{
    PyErr_Clear();
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    PyErr_Clear();
    if (dtype)
        PyErr_Format(PyExc_TypeError, "%s: data of dtype %S is not supported; convert it to float32 or float64 first",
                     function, dtype);
    else
        qbpy_refuse_object(function, "", object);
    Py_XDECREF(dtype);
}

static qb_tensor *import_buffer(const qbpy_conversion *how, PyObject *object, bool *is_scalar)
{
    Py_buffer view;
    if (PyObject_GetBuffer(object, &view, PyBUF_RECORDS_RO) < 0) {
        if (!PyErr_ExceptionMatches(PyExc_MemoryError))
            refuse_buffer(how->function, object);
        return NULL;
    }
    *is_scalar = is_of_numpy(object) && strcmp(Py_TYPE(object)->tp_name, "numpy.ndarray") != 0;
    qb_tensor *tensor = NULL;
    if (*is_scalar && view.ndim != 0) /* NumPy exports the scalars of other dtypes, such as dates, as bare bytes */
        refuse_buffer(how->function, object);
    else
        tensor = import_view(how, &view);
    PyBuffer_Release(&view);
    return tensor;
}

qb_tensor *qbpy_import_foreign(const qbpy_conversion *how, PyObject *object, bool *is_scalar)
{
    qbpy_state *state = how->state;
    *is_scalar = false;
    if (PyObject_CheckBuffer(object))
        return import_buffer(how, object, is_scalar);
    bool has_array = has_attribute(object, state->str_array_);
    if (has_attribute(object, state->str_dlpack_)) {
        int integers = how->keep_integers ? -1 : QB_FLOAT64;
        qb_tensor *tensor = qbpy_dlpack_import(state, object, how->function, how->dtype, integers);
        if (tensor || !has_array || PyErr_ExceptionMatches(PyExc_MemoryError))
            return tensor;
        PyErr_Clear();
    }
    PyObject *array = PyObject_CallMethodNoArgs(object, state->str_array_);
    if (!array)
        return NULL;
    qb_tensor *tensor = NULL;
    if (PyObject_CheckBuffer(array) && !is_text(array))
        tensor = import_buffer(how, array, is_scalar);
    else
        PyErr_Format(PyExc_TypeError, "%s: __array__ of %.200s returned an object of type %.200s, not an array",
                     how->function, Py_TYPE(object)->tp_name, Py_TYPE(array)->tp_name);
    Py_DECREF(array);
    return tensor;
}

/* --------------------------------------------------------------------------------------------------------- anything */

qb_tensor *qbpy_tensor_astype(qbpy_state *state, qb_tensor *tensor, qb_dtype dtype)
{
    if (tensor->dtype == dtype)
        return qb_tensor_retain(tensor);
    qbpy_layout layout;
    qbpy_layout_of_tensor(tensor, &layout);
    return qbpy_layout_tensor(state, &layout, dtype);
}

static qb_tensor *convert(const qbpy_conversion *how, PyObject *object, bool *weak)
{
    qbpy_state *state = how->state;
    bool ignored = false;
    weak = weak ? weak : &ignored;
    *weak = false;
    if (qbpy_is_tensor(state, object)) {
        qb_tensor *tensor = qbpy_tensor_get(object);
        *weak = ((qbpy_tensor *)object)->weak;
        return qbpy_tensor_astype(state, tensor, how->dtype >= 0 ? (qb_dtype)how->dtype : tensor->dtype);
    }
    if (PyFloat_CheckExact(object) || PyLong_Check(object) || (PyFloat_Check(object) && !is_of_numpy(object))) {
        *weak = true;
        return convert_number(how, object);
    }
    if (PyList_Check(object) || PyTuple_Check(object) || PyRange_Check(object))
        return qbpy_convert_nested(how, object);
    if (qbpy_is_trace_tensor(state, object)) {
        qbpy_refuse_tracer(state, how->function);
        return NULL;
    }
    if (qbpy_is_foreign_array(state, object))
        return qbpy_import_foreign(how, object, weak);
    qbpy_refuse_object(how->function, "", object);
    return NULL;
}

qb_tensor *qbpy_to_tensor(qbpy_state *state, const char *function, PyObject *object, int dtype, bool *weak)
{
    return convert(&(qbpy_conversion){state, function, dtype, false}, object, weak);
}

qb_tensor *qbpy_to_operand(qbpy_state *state, const char *function, PyObject *object, bool *weak)
{
    return convert(&(qbpy_conversion){state, function, -1, true}, object, weak);
}

bool qbpy_is_arraylike(qbpy_state *state, PyObject *object)
{
    return qbpy_is_tensor(state, object) || qbpy_is_trace_tensor(state, object) || PyFloat_Check(object) ||
           PyLong_Check(object) || qbpy_is_foreign_array(state, object);
}

/* -------------------------------------------------------------------------------------------------------- arguments */

static int place_keyword(const char *function, const char *const *names, PyObject *keyword, PyObject *value,
                         PyObject **out)
{
    for (int i = 0; names[i]; i++) {
        if (PyUnicode_CompareWithASCIIString(keyword, names[i]) != 0)
            continue;
        if (out[i]) {
            PyErr_Format(PyExc_TypeError, "%s: argument %R is given twice", function, keyword);
            return -1;
        }
        out[i] = value;
        return 0;
    }
    PyErr_Format(PyExc_TypeError, "%s: no parameter is named %R", function, keyword);
    return -1;
}

int qbpy_parse_arguments(const char *function, const char *const *names, int required, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames, PyObject **out)
{
    int count = 0;
    while (names[count])
        count++;
    if (nargs > count) {
        PyErr_Format(PyExc_TypeError, "%s: takes at most %d positional arguments, got %zd", function, count, nargs);
        return -1;
    }
    for (int i = 0; i < count; i++)
        out[i] = i < nargs ? args[i] : NULL;
    for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
        if (place_keyword(function, names, PyTuple_GET_ITEM(kwnames, i), args[nargs + i], out) < 0)
            return -1;
    for (int i = 0; i < required; i++)
        if (!out[i]) {
            PyErr_Format(PyExc_TypeError, "%s: argument '%s' is missing", function, names[i]);
            return -1;
        }
    return 0;
}

int qbpy_shape_from_object(PyObject *object, const char *function, int64_t *shape)
{
    if (PyIndex_Check(object) && !PyTuple_Check(object) && !PyList_Check(object)) {
        shape[0] = PyNumber_AsSsize_t(object, PyExc_ValueError);
        return shape[0] == -1 && PyErr_Occurred() ? -1 : 1;
    }
    if (!PyTuple_Check(object) && !PyList_Check(object)) {
        PyErr_Format(PyExc_TypeError, "%s: a shape is an int or a tuple of ints, got %.80R", function, object);
        return -1;
    }
    Py_ssize_t rank = PySequence_Fast_GET_SIZE(object);
    if (rank > QB_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "%s: a shape of %zd axes: ranks go from 0 to %d", function, rank, QB_MAX_RANK);
        return -1;
    }
    for (Py_ssize_t i = 0; i < rank && i < PySequence_Fast_GET_SIZE(object); i++) {
        PyObject *extent = Py_NewRef(PySequence_Fast_GET_ITEM(object, i));
        bool is_index = PyIndex_Check(extent);
        shape[i] = is_index ? PyNumber_AsSsize_t(extent, PyExc_ValueError) : -1;
        if (!is_index)
            PyErr_Format(PyExc_TypeError, "%s: a shape is an int or a tuple of ints, got %.80R", function, object);
        Py_DECREF(extent);
        if (shape[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return (int)rank;
}

/* ------------------------------------------------------------------------------------------------ array and asarray */

/* A traced array stays one: itself, or what its method astype gives. */
static PyObject *convert_tracer(qbpy_state *state, PyObject *tracer, PyObject *dtype)
{
    qb_dtype wanted, own;
    if (!dtype || dtype == Py_None)
        return Py_NewRef(tracer);
    PyObject *own_object = PyObject_GetAttr(tracer, state->str_dtype);
    bool known = own_object && qbpy_dtype_from_object(state, own_object, &own) == 0;
    Py_XDECREF(own_object);
    if (!known || qbpy_dtype_from_object(state, dtype, &wanted) < 0)
        return NULL;
    return own == wanted ? Py_NewRef(tracer) : PyObject_CallMethodOneArg(tracer, state->str_astype, dtype);
}

static PyObject *make_array(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
                            const char *function, bool always_new)
{
    static const char *const names[] = {"obj", "dtype", NULL};
    qbpy_state *state = qbpy_state_of(module);
    PyObject *argument[2];
    int dtype;
    if (qbpy_parse_arguments(function, names, 1, args, nargs, kwnames, argument) < 0)
        return NULL;
    PyObject *object = argument[0];
    if (qbpy_is_trace_tensor(state, object))
        return convert_tracer(state, object, argument[1]);
    if (qbpy_holds_tracer(state, object)) {
        PyObject *stacked = qbpy_stack_items(state, object);
        PyObject *array = stacked ? convert_tracer(state, stacked, argument[1]) : NULL;
        Py_XDECREF(stacked);
        return array;
    }
    if (qbpy_optional_dtype(state, argument[1], &dtype) < 0)
        return NULL;
    bool is_tensor = qbpy_is_tensor(state, object);
    if (is_tensor && !always_new && (dtype < 0 || (int)qbpy_tensor_get(object)->dtype == dtype))
        return Py_NewRef(object);
    qb_tensor *tensor = convert(&(qbpy_conversion){state, function, dtype, false}, object, NULL);
    return qbpy_tensor_wrap(state, tensor, is_tensor && dtype < 0 && ((qbpy_tensor *)object)->weak);
}

static PyObject *core_array(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return make_array(module, args, nargs, kwnames, "array", true);
}

static PyObject *core_asarray(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return make_array(module, args, nargs, kwnames, "asarray", false);
}

static PyObject *core_from_dlpack(PyObject *module, PyObject *object)
{
    qbpy_state *state = qbpy_state_of(module);
    if (!PyCapsule_CheckExact(object) && !has_attribute(object, state->str_dlpack_)) {
        PyErr_Format(PyExc_TypeError,
                     "from_dlpack: expected an array with __dlpack__, got an object of type %.200s; use asarray for "
                     "other arrays",
                     Py_TYPE(object)->tp_name);
        return NULL;
    }
    return qbpy_tensor_wrap(state, qbpy_dlpack_import(state, object, "from_dlpack", -1, -1), false);
}

PyDoc_STRVAR(
    array_doc,
    "array(obj, dtype=None)\n--\n\n"
    "A new Tensor with the elements of `obj`.\n\n"
    "obj: a number, nested lists or tuples of numbers and arrays, or an array of any library: anything with the\n"
    "buffer protocol, __dlpack__ or __array__. Its memory is copied.\n"
    "dtype: of the result. By default floating and bool data keep theirs, Python floats give float64, bools bool_,\n"
    "and integers float64.\n\n"
    "A traced array is returned as it is, and a list with traced arrays in it is one. TypeError for strings, objects "
    "and unsupported element types,\n"
    "ValueError for ragged lists, byte-swapped data and numbers that do not fit the dtype.");
PyDoc_STRVAR(asarray_doc, "asarray(obj, dtype=None)\n--\n\n"
                          "`obj` itself when it is a Tensor of that dtype, otherwise array(obj, dtype).");
PyDoc_STRVAR(from_dlpack_doc,
             "from_dlpack(x, /)\n--\n\n"
             "A new Tensor with the elements of `x`, an array of any library with __dlpack__ in host memory.\n\n"
             "Keeps integer dtypes (8 and 16 bits become 32).");

#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef module_functions[] = {
    {"array", METHOD(core_array), METH_FASTCALL | METH_KEYWORDS, array_doc},
    {"asarray", METHOD(core_asarray), METH_FASTCALL | METH_KEYWORDS, asarray_doc},
    {"from_dlpack", core_from_dlpack, METH_O, from_dlpack_doc},
    {NULL, NULL, 0, NULL},
};

int qbpy_convert_install(PyObject *module)
{
    if (PyModule_AddFunctions(module, module_functions) < 0)
        return -1;
    return qbpy_create_install(module);
}
