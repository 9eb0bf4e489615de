/* Tensor: an immutable array, as a Python object.
 *
 * It is the owner of one reference to a qb_tensor and nothing else. Memory goes out read-only and without a copy,
 * through the buffer protocol (which np.asarray and memoryview use). Operators come from operators.c and the methods
 * that are functions of the library from function.c, for traced arrays as well. */
#include "base/tensor.h"
#include "base/dtype.h"

#include "dlpack.h"
#include "elements.h"
#include "function.h"
#include "quabla_ext.h"

#include <stddef.h>
#include <structmember.h>

PyObject *qbpy_tensor_wrap(qbpy_state *state, qb_tensor *stolen, bool weak)
{
    if (!stolen)
        return NULL;
    qbpy_tensor *self = PyObject_New(qbpy_tensor, state->tensor_type);
    if (!self) {
        qb_tensor_release(stolen);
        return NULL;
    }
    self->tensor = stolen;
    self->weak = weak;
    self->weakrefs = NULL;
    return (PyObject *)self;
}

static void tensor_dealloc(PyObject *object)
{
    qbpy_tensor *self = (qbpy_tensor *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->weakrefs)
        PyObject_ClearWeakRefs(object);
    qb_tensor_release(self->tensor);
    type->tp_free(object);
    Py_DECREF(type);
}

/* The constructor of version 0.1: Tensor(shape, flat_data, dtype=None). */
static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"shape", "data", "dtype", NULL};
    PyObject *shape_object, *data = NULL, *dtype_object = NULL;
    qbpy_state *state = qbpy_state_of_type(type);
    int64_t shape[QB_MAX_RANK], size;
    int dtype;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OO:Tensor", names, &shape_object, &data, &dtype_object) ||
        qbpy_optional_dtype(state, dtype_object, &dtype) < 0)
        return NULL;
    if (!data) {
        PyErr_SetString(PyExc_TypeError,
                        "Tensor(shape, data) takes a shape and a flat sequence; to convert numbers, nested lists "
                        "and arrays use quabla.array(x)");
        return NULL;
    }
    int rank = qbpy_shape_from_object(shape_object, "Tensor", shape);
    if (rank < 0)
        return NULL;
    qb_tensor *flat = qbpy_to_tensor(state, "Tensor", data, dtype, NULL);
    if (!flat)
        return NULL;
    qb_tensor *tensor = NULL;
    qb_status status = qb_shape_size(rank, shape, qb_dtype_size(flat->dtype), &size);
    if (status == QB_OK && size != flat->size)
        PyErr_Format(PyExc_ValueError, "Tensor: shape %s has %lld elements, data has %lld",
                     qb_print_shape(rank, shape).text, (long long)size, (long long)flat->size);
    else if (status != QB_OK || (status = qb_tensor_create(flat->dtype, rank, shape, flat->data, &tensor)) != QB_OK)
        qbpy_raise(state, status);
    qb_tensor_release(flat);
    return qbpy_tensor_wrap(state, tensor, false);
}

/* ------------------------------------------------------------------------------------------------------- attributes */

PyObject *qbpy_shape_tuple(int rank, const int64_t *shape)
{
    PyObject *tuple = PyTuple_New(rank);
    for (int i = 0; tuple && i < rank; i++) {
        PyObject *extent = PyLong_FromLongLong(shape[i]);
        if (!extent)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, extent);
    }
    return tuple;
}

static PyObject *get_shape(PyObject *self, void *Py_UNUSED(closure))
{
    const qb_tensor *tensor = qbpy_tensor_get(self);
    return qbpy_shape_tuple(tensor->rank, tensor->shape);
}

static PyObject *get_dtype(PyObject *self, void *Py_UNUSED(closure))
{
    return qbpy_dtype_object(qbpy_state_of_object(self), qbpy_tensor_get(self)->dtype);
}

static PyObject *get_ndim(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(qbpy_tensor_get(self)->rank);
}

static PyObject *get_size(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLongLong(qbpy_tensor_get(self)->size);
}

static PyObject *get_nbytes(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(qb_tensor_bytes(qbpy_tensor_get(self)));
}

static PyObject *get_itemsize(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(qb_dtype_size(qbpy_tensor_get(self)->dtype));
}

static PyObject *get_device(PyObject *Py_UNUSED(self), void *Py_UNUSED(closure))
{
    return PyUnicode_InternFromString("cpu");
}

/* ------------------------------------------------------------------------------------------------- Python's numbers */

/* The only element as a Python number; an error names `what` otherwise. */
static PyObject *only_element(PyObject *self, const char *what, PyObject *error)
{
    const qb_tensor *tensor = qbpy_tensor_get(self);
    if (tensor->size == 1)
        return qbpy_element_object(tensor->dtype, tensor->data);
    PyErr_Format(error, "%s needs a Tensor of one element, got shape %s", what,
                 qb_print_shape(tensor->rank, tensor->shape).text);
    return NULL;
}

static PyObject *tensor_item(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return only_element(self, "item()", PyExc_ValueError);
}

static PyObject *tensor_float(PyObject *self)
{
    PyObject *element = only_element(self, "float()", PyExc_TypeError);
    PyObject *number = element ? PyNumber_Float(element) : NULL;
    Py_XDECREF(element);
    return number;
}

static PyObject *tensor_int(PyObject *self)
{
    PyObject *element = only_element(self, "int()", PyExc_TypeError);
    PyObject *number = element ? PyNumber_Long(element) : NULL;
    Py_XDECREF(element);
    return number;
}

static PyObject *tensor_index(PyObject *self)
{
    const qb_tensor *tensor = qbpy_tensor_get(self);
    if (tensor->rank == 0 && qb_dtype_is_integer(tensor->dtype))
        return qbpy_element_object(tensor->dtype, tensor->data);
    PyErr_Format(PyExc_TypeError, "only an integer Tensor of shape () can be used as an index, got %s",
                 qb_print_type(tensor->dtype, tensor->rank, tensor->shape).text);
    return NULL;
}

static int tensor_bool(PyObject *self)
{
    const qb_tensor *tensor = qbpy_tensor_get(self);
    if (tensor->size == 1)
        return qb_dtype_load(tensor->dtype, tensor->data) != 0;
    PyErr_Format(PyExc_ValueError, "the truth value of a Tensor of shape %s is ambiguous; use any() or all()",
                 qb_print_shape(tensor->rank, tensor->shape).text);
    return -1;
}

static PyObject *nested_list(const qb_tensor *tensor, int axis, const char **element)
{
    if (axis == tensor->rank) {
        PyObject *number = qbpy_element_object(tensor->dtype, *element);
        *element += qb_dtype_size(tensor->dtype);
        return number;
    }
    PyObject *list = PyList_New((Py_ssize_t)tensor->shape[axis]);
    for (int64_t i = 0; list && i < tensor->shape[axis]; i++) {
        PyObject *item = nested_list(tensor, axis + 1, element);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    }
    return list;
}

static PyObject *tensor_tolist(PyObject *self, PyObject *Py_UNUSED(unused))
{
    const char *element = qbpy_tensor_get(self)->data;
    return nested_list(qbpy_tensor_get(self), 0, &element);
}

/* f"{loss:.3e}": a format belongs to a number, so one of rank 0. */
static PyObject *tensor_format(PyObject *self, PyObject *format)
{
    const qb_tensor *tensor = qbpy_tensor_get(self);
    if (!PyUnicode_Check(format) || PyUnicode_GET_LENGTH(format) == 0)
        return PyObject_Str(self);
    if (tensor->rank > 0) {
        PyErr_Format(PyExc_TypeError, "the format %R applies to a number, not to a Tensor of shape %s", format,
                     qb_print_shape(tensor->rank, tensor->shape).text);
        return NULL;
    }
    PyObject *number = qbpy_element_object(tensor->dtype, tensor->data);
    PyObject *text = number ? PyObject_Format(number, format) : NULL;
    Py_XDECREF(number);
    return text;
}

/* ----------------------------------------------------------------------------------------------------------- memory */

/* The characters of the struct module. NumPy spells its 64-bit integer 'l' where long has 64 bits. */
static const char *buffer_format(qb_dtype dtype)
{
    switch (dtype) {
    case QB_FLOAT64: return "d";
    case QB_FLOAT32: return "f";
    case QB_BOOL: return "?";
    case QB_INT32: return "i";
    case QB_UINT32: return "I";
    case QB_INT64: return sizeof(long) == 8 ? "l" : "q";
    case QB_UINT64: return sizeof(long) == 8 ? "L" : "Q";
    case QB_DTYPE_COUNT: break;
    }
    return "";
}

static bool is_column_major(const qb_tensor *tensor)
{
    int wide = 0;
    for (int i = 0; i < tensor->rank; i++)
        wide += tensor->shape[i] != 1;
    return wide <= 1 || tensor->size == 0;
}

static int tensor_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    const qb_tensor *tensor = qbpy_tensor_get(self);
    view->obj = NULL;
    if (flags & PyBUF_WRITABLE) {
        PyErr_SetString(PyExc_BufferError,
                        "a Tensor is immutable and exports read-only memory; copy it to change elements");
        return -1;
    }
    if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && !is_column_major(tensor)) {
        PyErr_SetString(PyExc_BufferError, "a Tensor is row-major");
        return -1;
    }
    Py_ssize_t *extents = NULL;
    if ((flags & PyBUF_ND) && tensor->rank) {
        extents = PyMem_New(Py_ssize_t, 2 * (size_t)tensor->rank);
        if (!extents) {
            PyErr_NoMemory();
            return -1;
        }
        Py_ssize_t step = (Py_ssize_t)qb_dtype_size(tensor->dtype);
        for (int i = tensor->rank - 1; i >= 0; i--) {
            extents[i] = (Py_ssize_t)tensor->shape[i];
            extents[tensor->rank + i] = step;
            step *= extents[i];
        }
    }
    *view = (Py_buffer){
        .obj = Py_NewRef(self),
        .buf = tensor->data,
        .len = (Py_ssize_t)qb_tensor_bytes(tensor),
        .itemsize = (Py_ssize_t)qb_dtype_size(tensor->dtype),
        .readonly = 1,
        .ndim = flags & PyBUF_ND ? tensor->rank : 1,
        .format = flags & PyBUF_FORMAT ? (char *)(uintptr_t)buffer_format(tensor->dtype) : NULL,
        .shape = extents,
        .strides = extents && (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? extents + tensor->rank : NULL,
        .internal = extents,
    };
    return 0;
}

static void tensor_releasebuffer(PyObject *Py_UNUSED(self), Py_buffer *view)
{
    PyMem_Free(view->internal);
}

/* A read-only view by NumPy. It reads the buffer protocol before anything else, so that this does not come back to
 * __array__. */
static PyObject *numpy_view(PyObject *self)
{
    qbpy_state *state = qbpy_state_of_object(self);
    if (!state->numpy_asarray) {
        PyObject *numpy = PyImport_ImportModule("numpy");
        state->numpy_asarray = numpy ? PyObject_GetAttrString(numpy, "asarray") : NULL;
        Py_XDECREF(numpy);
        if (!state->numpy_asarray)
            return NULL;
    }
    return PyObject_CallOneArg(state->numpy_asarray, self);
}

static PyObject *tensor_numpy(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return numpy_view(self);
}

static PyObject *tensor_array(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", names, &dtype, &copy))
        return NULL;
    int wants_copy = copy == Py_None ? -1 : PyObject_IsTrue(copy);
    if (wants_copy < 0 && PyErr_Occurred())
        return NULL;
    PyObject *view = numpy_view(self);
    if (!view || (dtype == Py_None && wants_copy != 1))
        return view;
    if (dtype == Py_None) {
        Py_SETREF(view, PyObject_CallMethod(view, "copy", NULL));
        return view;
    }
    PyObject *cast = PyObject_CallMethod(view, "astype", "OssOO", dtype, "K", "unsafe", Py_True,
                                         wants_copy == 1 ? Py_True : Py_False);
    if (cast && wants_copy == 0 && cast != view) {
        PyErr_Format(PyExc_ValueError,
                     "__array__: dtype %S is not the Tensor's %s, so it needs a copy, which copy=False forbids", dtype,
                     qb_dtype_name(qbpy_tensor_get(self)->dtype));
        Py_CLEAR(cast);
    }
    Py_DECREF(view);
    return cast;
}

/* --------------------------------------------------------------------------------------------------- copies, pickle */

static PyObject *tensor_same(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(self); /* immutable: a copy is the thing itself */
}

/* (restore function, (dtype, shape, weak, bytes)); from protocol 5 on, elements may travel out of band. */
static PyObject *tensor_reduce_ex(PyObject *self, PyObject *protocol_object)
{
    const qb_tensor *tensor = qbpy_tensor_get(self);
    long protocol = PyLong_AsLong(protocol_object);
    if (protocol == -1 && PyErr_Occurred())
        return NULL;
    PyObject *module = PyType_GetModule(Py_TYPE(self));
    PyObject *restore = module ? PyObject_GetAttrString(module, "_restore_tensor") : NULL;
    PyObject *shape = restore ? qbpy_shape_tuple(tensor->rank, tensor->shape) : NULL;
    PyObject *memory = !shape          ? NULL
                       : protocol >= 5 ? PyPickleBuffer_FromObject(self)
                                       : PyBytes_FromStringAndSize(tensor->data, (Py_ssize_t)qb_tensor_bytes(tensor));
    PyObject *reduced = memory ? Py_BuildValue("O(sOOO)", restore, qb_dtype_name(tensor->dtype), shape,
                                               ((qbpy_tensor *)self)->weak ? Py_True : Py_False, memory)
                               : NULL;
    Py_XDECREF(memory);
    Py_XDECREF(shape);
    Py_XDECREF(restore);
    return reduced;
}

static PyObject *restore_tensor(PyObject *module, PyObject *args)
{
    qbpy_state *state = qbpy_state_of(module);
    PyObject *dtype_object, *shape_object;
    int weak;
    Py_buffer memory;
    qb_dtype dtype;
    int64_t shape[QB_MAX_RANK], size;
    if (!PyArg_ParseTuple(args, "OOpy*:_restore_tensor", &dtype_object, &shape_object, &weak, &memory))
        return NULL;
    qb_tensor *tensor = NULL;
    int rank = qbpy_dtype_from_object(state, dtype_object, &dtype) < 0
                   ? -1
                   : qbpy_shape_from_object(shape_object, "_restore_tensor", shape);
    qb_status status = rank < 0 ? QB_OK : qb_shape_size(rank, shape, qb_dtype_size(dtype), &size);
    if (rank >= 0 && status == QB_OK && (size_t)memory.len != (size_t)size * qb_dtype_size(dtype)) {
        PyErr_SetString(PyExc_ValueError, "a pickled Tensor whose bytes do not fit its shape");
        rank = -1;
    }
    if (rank >= 0 && status == QB_OK)
        status = qb_tensor_create(dtype, rank, shape, memory.buf, &tensor);
    if (status != QB_OK)
        qbpy_raise(state, status);
    PyBuffer_Release(&memory);
    return qbpy_tensor_wrap(state, tensor, weak);
}

/* --------------------------------------------------------------------------------------------------------- the type */

static PyObject *tensor_weak(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((qbpy_tensor *)self)->weak);
}

static PyGetSetDef tensor_getset[] = {
    {"shape", get_shape, NULL, "The extents of the axes, a tuple.", NULL},
    {"dtype", get_dtype, NULL, "The type of the elements.", NULL},
    {"ndim", get_ndim, NULL, "The number of axes.", NULL},
    {"size", get_size, NULL, "The number of elements.", NULL},
    {"weak", tensor_weak, NULL, "Whether it is made of Python numbers only, and takes the dtype of the array it meets.",
     NULL},
    {"nbytes", get_nbytes, NULL, "Bytes of all elements.", NULL},
    {"itemsize", get_itemsize, NULL, "Bytes of an element.", NULL},
    {"device", get_device, NULL, "Where the elements are: 'cpu'.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(numpy_doc, "numpy($self, /)\n--\n\nA read-only NumPy array on the same memory, without a copy.");
PyDoc_STRVAR(tolist_doc,
             "tolist($self, /)\n--\n\nThe elements as nested lists of Python numbers; of shape (), a number.");
PyDoc_STRVAR(item_doc,
             "item($self, /)\n--\n\nThe only element as a Python number; ValueError where there are more or none.");
PyDoc_STRVAR(array_doc, "__array__($self, /, dtype=None, copy=None)\n--\n\n"
                        "For NumPy: a read-only array on the same memory; a copy for another dtype.");
PyDoc_STRVAR(dlpack_doc,
             "__dlpack__($self, /, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
             "A DLPack capsule: read-only and on the same memory for max_version >= (1, 0), a copy for older ones.");
PyDoc_STRVAR(dlpack_device_doc, "__dlpack_device__($self, /)\n--\n\n(1, 0): host memory.");

#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef tensor_methods[] = {
    {"numpy", tensor_numpy, METH_NOARGS, numpy_doc},
    {"tolist", tensor_tolist, METH_NOARGS, tolist_doc},
    {"item", tensor_item, METH_NOARGS, item_doc},
    {"__array__", METHOD(tensor_array), METH_VARARGS | METH_KEYWORDS, array_doc},
    {"__dlpack__", METHOD(qbpy_tensor_dlpack), METH_VARARGS | METH_KEYWORDS, dlpack_doc},
    {"__dlpack_device__", qbpy_tensor_dlpack_device, METH_NOARGS, dlpack_device_doc},
    {"__format__", tensor_format, METH_O, NULL},
    {"__copy__", tensor_same, METH_NOARGS, NULL},
    {"__deepcopy__", tensor_same, METH_O, NULL},
    {"__reduce_ex__", tensor_reduce_ex, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef tensor_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(qbpy_tensor, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(
    tensor_doc,
    "Tensor(shape, data, dtype=None)\n--\n\n"
    "An immutable array.\n\n"
    "quabla.array and the other functions make tensors; this constructor takes a shape and the elements in row-major\n"
    "order as a flat sequence. ValueError when their number does not fit the shape.");

static PyType_Slot tensor_slots[] = {
    {Py_tp_doc, (void *)tensor_doc},
    {Py_tp_new, (void *)tensor_new},
    {Py_tp_dealloc, (void *)tensor_dealloc},
    {Py_tp_repr, (void *)qbpy_tensor_repr},
    {Py_tp_getset, tensor_getset},
    {Py_tp_methods, tensor_methods},
    {Py_tp_members, tensor_members},
    {Py_nb_float, (void *)tensor_float},
    {Py_nb_int, (void *)tensor_int},
    {Py_nb_index, (void *)tensor_index},
    {Py_nb_bool, (void *)tensor_bool},
    {Py_bf_getbuffer, (void *)tensor_getbuffer},
    {Py_bf_releasebuffer, (void *)tensor_releasebuffer},
    QBPY_OPERATOR_SLOTS,
    {0, NULL},
};

static PyType_Spec tensor_spec = {
    .name = "quabla.Tensor",
    .basicsize = sizeof(qbpy_tensor),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = tensor_slots,
};

static PyMethodDef module_functions[] = {
    {"_restore_tensor", restore_tensor, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

int qbpy_tensor_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    state->tensor_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &tensor_spec, NULL);
    if (!state->tensor_type || PyModule_AddType(module, state->tensor_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, module_functions);
}
