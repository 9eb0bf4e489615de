/* Making arrays from nothing: zeros, ones, full, eye, arange, linspace. */
#include "base/dtype.h"
#include "base/tensor.h"

#include "convert.h"
#include "function.h"

#include <math.h>
#include <string.h>

/* What these functions share: the state, and the arguments of a call. */
typedef struct arguments {
    qbpy_state *state;
    const char *function;
    PyObject *at[4];
} arguments;

/* A new tensor with unset elements; `dtype` -1: float64. */
static qb_tensor *new_tensor(const arguments *call, int dtype, int rank, const int64_t *shape)
{
    qb_tensor *tensor = NULL;
    qb_status status = qb_tensor_create(dtype < 0 ? QB_FLOAT64 : (qb_dtype)dtype, rank, shape, NULL, &tensor);
    if (status == QB_OK)
        return tensor;
    qbpy_raise(call->state, status);
    return NULL;
}

/* Repeats one element over a tensor's memory. */
static void fill_tensor(qb_tensor *tensor, const void *element)
{
    size_t size = qb_dtype_size(tensor->dtype);
    char *data = tensor->data;
    static const char zero[16];
    if (memcmp(element, zero, size) == 0) {
        memset(data, 0, qb_tensor_bytes(tensor));
        return;
    }
    for (int64_t i = 0; i < tensor->size; i++)
        memcpy(data + (size_t)i * size, element, size);
}

static qb_tensor *filled(const arguments *call, int dtype, int rank, const int64_t *shape, double number)
{
    qb_tensor *tensor = new_tensor(call, dtype, rank, shape);
    if (tensor) {
        char element[16];
        qb_dtype_store(tensor->dtype, number, element);
        fill_tensor(tensor, element);
    }
    return tensor;
}

static int parse(arguments *call, PyObject *module, const char *function, const char *const *names, int required,
                 PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    call->state = qbpy_state_of(module);
    call->function = function;
    return qbpy_parse_arguments(function, names, required, args, nargs, kwnames, call->at);
}

/* --------------------------------------------------------------------------------------------- zeros, ones and full */

static PyObject *constant(PyObject *module, const char *function, double number, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"shape", "dtype", NULL};
    arguments call;
    int64_t shape[QB_MAX_RANK];
    int dtype;
    if (parse(&call, module, function, names, 1, args, nargs, kwnames) < 0 ||
        qbpy_optional_dtype(call.state, call.at[1], &dtype) < 0)
        return NULL;
    int rank = qbpy_shape_from_object(call.at[0], function, shape);
    return rank < 0 ? NULL : qbpy_tensor_wrap(call.state, filled(&call, dtype, rank, shape, number), false);
}

static PyObject *core_zeros(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return constant(module, "zeros", 0, args, nargs, kwnames);
}

static PyObject *core_ones(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return constant(module, "ones", 1, args, nargs, kwnames);
}

/* Copies `value` into `tensor` as NumPy broadcasts it. */
static int broadcast_into(const arguments *call, const qb_tensor *value, qb_tensor *tensor)
{
    qbpy_layout layout;
    qbpy_layout_of_tensor(value, &layout);
    int missing = tensor->rank - value->rank;
    for (int i = 0; i < value->rank; i++)
        if (missing < 0 || (value->shape[i] != 1 && value->shape[i] != tensor->shape[missing + i])) {
            PyErr_Format(PyExc_ValueError, "%s: a value of shape %s does not broadcast to shape %s", call->function,
                         qb_print_shape(value->rank, value->shape).text,
                         qb_print_shape(tensor->rank, tensor->shape).text);
            return -1;
        }
    for (int i = tensor->rank - 1; i >= 0; i--) {
        int own = i - missing;
        layout.strides[i] = own < 0 || value->shape[own] == 1 ? 0 : layout.strides[own];
        layout.shape[i] = tensor->shape[i];
    }
    layout.rank = tensor->rank;
    qbpy_layout_copy(&layout, tensor->dtype, tensor->data);
    return 0;
}

/* A traced value: its own methods do it, so that it stays differentiable. */
static PyObject *full_traced(PyObject *value, int rank, const int64_t *shape, PyObject *dtype)
{
    PyObject *extents = qbpy_shape_tuple(rank, shape);
    PyObject *array = extents ? PyObject_CallMethod(value, "broadcast_to", "(O)", extents) : NULL;
    Py_XDECREF(extents);
    if (array && dtype && dtype != Py_None)
        Py_SETREF(array, PyObject_CallMethod(array, "astype", "(O)", dtype));
    return array;
}

static PyObject *full(const arguments *call, int rank, const int64_t *shape, PyObject *value, int dtype,
                      PyObject *dtype_object)
{
    if (qbpy_is_trace_tensor(call->state, value))
        return full_traced(value, rank, shape, dtype_object);
    if (qbpy_holds_tracer(call->state, value)) {
        PyObject *stacked = qbpy_stack_items(call->state, value);
        PyObject *result = stacked ? full_traced(stacked, rank, shape, dtype_object) : NULL;
        Py_XDECREF(stacked);
        return result;
    }
    qb_tensor *element = qbpy_to_tensor(call->state, call->function, value, dtype, NULL);
    qb_tensor *tensor = element ? new_tensor(call, (int)element->dtype, rank, shape) : NULL;
    if (tensor && element->rank == 0) {
        fill_tensor(tensor, element->data);
    } else if (tensor && broadcast_into(call, element, tensor) < 0) {
        qb_tensor_release(tensor);
        tensor = NULL;
    }
    qb_tensor_release(element);
    return qbpy_tensor_wrap(call->state, tensor, false);
}

static PyObject *core_full(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"shape", "fill_value", "dtype", NULL};
    arguments call;
    int64_t shape[QB_MAX_RANK];
    int dtype;
    if (parse(&call, module, "full", names, 2, args, nargs, kwnames) < 0 ||
        qbpy_optional_dtype(call.state, call.at[2], &dtype) < 0)
        return NULL;
    int rank = qbpy_shape_from_object(call.at[0], "full", shape);
    return rank < 0 ? NULL : full(&call, rank, shape, call.at[1], dtype, call.at[2]);
}

/* ------------------------------------------------------------------------------------------------------ eye, ranges */

/* A number as a double; a traced one or an array of several elements is an error. */
static int read_number(const arguments *call, const char *name, PyObject *object, double *out)
{
    if (qbpy_is_trace_tensor(call->state, object)) {
        qbpy_refuse_tracer(call->state, call->function);
        return -1;
    }
    *out = PyFloat_AsDouble(object);
    if (*out != -1 || !PyErr_Occurred())
        return 0;
    if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError, "%s: %s must be a number, got %.80R", call->function, name, object);
    return -1;
}

/* An int of at least 0. */
static int read_count(const arguments *call, const char *name, PyObject *object, int64_t *out)
{
    *out = PyIndex_Check(object) ? PyNumber_AsSsize_t(object, PyExc_ValueError) : -1;
    if (*out >= 0)
        return 0;
    if (!PyErr_Occurred())
        PyErr_Format(PyIndex_Check(object) ? PyExc_ValueError : PyExc_TypeError,
                     "%s: %s must be an int of at least 0, got %.80R", call->function, name, object);
    return -1;
}

static PyObject *core_eye(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"n", "m", "dtype", NULL};
    arguments call;
    int dtype;
    if (parse(&call, module, "eye", names, 1, args, nargs, kwnames) < 0 ||
        qbpy_optional_dtype(call.state, call.at[2], &dtype) < 0)
        return NULL;
    int64_t shape[2];
    if (read_count(&call, "n", call.at[0], &shape[0]) < 0)
        return NULL;
    shape[1] = shape[0];
    if (call.at[1] && call.at[1] != Py_None && read_count(&call, "m", call.at[1], &shape[1]) < 0)
        return NULL;
    qb_tensor *tensor = filled(&call, dtype, 2, shape, 0);
    if (tensor) {
        size_t size = qb_dtype_size(tensor->dtype), step = (size_t)(shape[1] + 1) * size;
        for (int64_t i = 0; i < shape[0] && i < shape[1]; i++)
            qb_dtype_store_integer(tensor->dtype, 1, (char *)tensor->data + (size_t)i * step);
    }
    return qbpy_tensor_wrap(call.state, tensor, false);
}

/* NumPy's arange: start + i * delta, where delta is the difference of the first two elements as the dtype holds them.
 * A plain sum of steps would drift. */
static void fill_range(qb_tensor *tensor, double start, double step)
{
#define FILL(type, first, second)                                                                                      \
    do {                                                                                                               \
        type *out = tensor->data, begin = (first), delta = (type)((second)-begin);                                     \
        for (int64_t i = 0; i < tensor->size; i++)                                                                     \
            out[i] = (type)(begin + (type)i * delta);                                                                  \
    } while (0)

    char first[16], second[16];
    qb_dtype_store(tensor->dtype, start, first);
    qb_dtype_store(tensor->dtype, start + step, second);
    switch (tensor->dtype) {
    case QB_FLOAT64: FILL(double, *(double *)(void *)first, *(double *)(void *)second); break;
    case QB_FLOAT32: FILL(float, *(float *)(void *)first, *(float *)(void *)second); break;
    default: { /* modulo 2^64: the last steps may leave int64 where the numbers of uint64 are */
        double low = trunc(start), high = trunc(start + step);
        uint64_t begin = low < 0 ? (uint64_t)(int64_t)low : (uint64_t)low;
        uint64_t delta = (high < 0 ? (uint64_t)(int64_t)high : (uint64_t)high) - begin;
        for (int64_t i = 0; i < tensor->size; i++)
            qb_dtype_store_integer(tensor->dtype, (int64_t)(begin + (uint64_t)i * delta),
                                   (char *)tensor->data + (size_t)i * qb_dtype_size(tensor->dtype));
    }
    }
#undef FILL
}

/* Whether an integer dtype holds the numbers from start to start + step * (count - 1), and the next one too. */
static bool range_fits(int dtype, double start, double step, int64_t count)
{
    if (dtype < 0 || !qb_dtype_is_integer((qb_dtype)dtype))
        return true;
    bool is_signed = qb_dtype_kind((qb_dtype)dtype) == 'i';
    double high = ldexp(1, 8 * (int)qb_dtype_size((qb_dtype)dtype) - is_signed), low = is_signed ? -high : 0;
    double last = start + step * (double)(count > 1 ? count - 1 : 0);
    return trunc(fmin(start, last)) >= low && fmax(start, last) < high && fabs(start + step) < 0x1p63;
}

static PyObject *core_arange(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"start", "stop", "step", "dtype", NULL};
    arguments call;
    int dtype;
    double start, stop, step = 1;
    if (parse(&call, module, "arange", names, 1, args, nargs, kwnames) < 0 ||
        qbpy_optional_dtype(call.state, call.at[3], &dtype) < 0 || read_number(&call, "start", call.at[0], &start) < 0)
        return NULL;
    if (!call.at[1] || call.at[1] == Py_None) {
        stop = start;
        start = 0;
    } else if (read_number(&call, "stop", call.at[1], &stop) < 0) {
        return NULL;
    }
    if (call.at[2] && read_number(&call, "step", call.at[2], &step) < 0)
        return NULL;
    if (dtype == QB_BOOL) {
        PyErr_SetString(PyExc_ValueError, "arange: a range of bool elements; use an integer or floating dtype");
        return NULL;
    }
    double length = ceil((stop - start) / step);
    if (step == 0 || isnan(length) || length > 0x1p62) {
        PyErr_Format(PyExc_ValueError,
                     "arange: no finite number of steps leads from start to stop (start %R, stop %R, step %R)",
                     call.at[0], call.at[1] ? call.at[1] : Py_None, call.at[2] ? call.at[2] : Py_None);
        return NULL;
    }
    int64_t count = length > 0 ? (int64_t)length : 0;
    if (!range_fits(dtype, start, step, count)) {
        PyErr_Format(PyExc_ValueError, "arange: the numbers from %R on do not fit into %s", call.at[0],
                     qb_dtype_name((qb_dtype)dtype));
        return NULL;
    }
    qb_tensor *tensor = new_tensor(&call, dtype, 1, &count);
    if (tensor)
        fill_range(tensor, start, step);
    return qbpy_tensor_wrap(call.state, tensor, false);
}

static PyObject *core_linspace(PyObject *module, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    static const char *const names[] = {"start", "stop", "num", "dtype", NULL};
    arguments call;
    int dtype;
    double start, stop;
    if (parse(&call, module, "linspace", names, 3, args, nargs, kwnames) < 0 ||
        qbpy_optional_dtype(call.state, call.at[3], &dtype) < 0 ||
        read_number(&call, "start", call.at[0], &start) < 0 || read_number(&call, "stop", call.at[1], &stop) < 0)
        return NULL;
    int64_t count;
    if (read_count(&call, "num", call.at[2], &count) < 0)
        return NULL;
    qb_tensor *tensor = new_tensor(&call, dtype, 1, &count);
    if (!tensor)
        return NULL;
    size_t size = qb_dtype_size(tensor->dtype);
    bool whole = qb_dtype_is_integer(tensor->dtype);
    double intervals = (double)(count - 1), delta = stop - start, step = delta / intervals;
    for (int64_t i = 0; i < count; i++) {
        /* A step that underflows to zero is avoided by dividing first, as NumPy does. */
        double offset = count == 1 ? 0 : step != 0 ? (double)i * step : (double)i / intervals * delta;
        double number = count > 1 && i == count - 1 ? stop : offset + start;
        qb_dtype_store(tensor->dtype, whole ? floor(number) : number, (char *)tensor->data + (size_t)i * size);
    }
    return qbpy_tensor_wrap(call.state, tensor, false);
}

/* ----------------------------------------------------------------------------------------------------------- module */

PyDoc_STRVAR(zeros_doc, "zeros(shape, dtype=None)\n--\n\nZeros; float64 unless `dtype` says otherwise.");
PyDoc_STRVAR(ones_doc, "ones(shape, dtype=None)\n--\n\nOnes; float64 unless `dtype` says otherwise.");
PyDoc_STRVAR(
    full_doc,
    "full(shape, fill_value, dtype=None)\n--\n\n"
    "An array of that shape filled with `fill_value`, a number or an array that broadcasts to it; of the dtype that\n"
    "array(fill_value) has, unless `dtype` says otherwise.");
PyDoc_STRVAR(eye_doc, "eye(n, m=None, dtype=None)\n--\n\n"
                      "The n x m matrix (m = n by default) with ones on the diagonal and zeros elsewhere.");
PyDoc_STRVAR(arange_doc, "arange(start, stop=None, step=1.0, dtype=None)\n--\n\n"
                         "start, start + step, ... up to but not including stop; arange(stop) starts at 0.\n\n"
                         "float64 unless `dtype` says otherwise. ValueError for step 0 and for endless ranges.");
PyDoc_STRVAR(linspace_doc, "linspace(start, stop, num, dtype=None)\n--\n\n"
                           "`num` evenly spaced numbers from start to stop, both included.\n\n"
                           "float64 unless `dtype` says otherwise; integer dtypes round down.");

#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef module_functions[] = {
    {"zeros", METHOD(core_zeros), METH_FASTCALL | METH_KEYWORDS, zeros_doc},
    {"ones", METHOD(core_ones), METH_FASTCALL | METH_KEYWORDS, ones_doc},
    {"full", METHOD(core_full), METH_FASTCALL | METH_KEYWORDS, full_doc},
    {"eye", METHOD(core_eye), METH_FASTCALL | METH_KEYWORDS, eye_doc},
    {"arange", METHOD(core_arange), METH_FASTCALL | METH_KEYWORDS, arange_doc},
    {"linspace", METHOD(core_linspace), METH_FASTCALL | METH_KEYWORDS, linspace_doc},
    {NULL, NULL, 0, NULL},
};

int qbpy_create_install(PyObject *module)
{
    return PyModule_AddFunctions(module, module_functions);
}
