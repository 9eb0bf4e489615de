/* Exchange through DLPack. Layouts are in dlpack_abi.h.
 *
 * Out: tensors are immutable, so a capsule that shares their memory must say so. Consumers of DLPack 1.0 and later get
 * read-only shared memory; older ones, which know no read-only flag, get a copy of their own. In: always a copy, as
 * every import. */
#include "dlpack.h"

#include "base/dtype.h"
#include "dlpack_abi.h"

#include <string.h>

static const char plain_name[] = "dltensor", plain_used[] = "used_dltensor";
static const char versioned_name[] = "dltensor_versioned", versioned_used[] = "used_dltensor_versioned";

/* -------------------------------------------------------------------------------------------------------------- out */

static void delete_plain(qbpy_dl_managed *self)
{
    qb_tensor_release(self->owner);
    PyMem_RawFree(self);
}

static void delete_versioned(qbpy_dl_versioned *self)
{
    qb_tensor_release(self->owner);
    PyMem_RawFree(self);
}

static void end_plain(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, plain_name)) {
        qbpy_dl_managed *managed = PyCapsule_GetPointer(capsule, plain_name);
        managed->deleter(managed);
    }
}

static void end_versioned(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, versioned_name)) {
        qbpy_dl_versioned *managed = PyCapsule_GetPointer(capsule, versioned_name);
        managed->deleter(managed);
    }
}

static uint8_t code_of_kind(char kind)
{
    return kind == 'f' ? QBPY_DL_FLOAT : kind == 'i' ? QBPY_DL_INT : kind == 'u' ? QBPY_DL_UINT : QBPY_DL_BOOL;
}

/* Describes the tensor; `extents` has room for shape and strides. */
static void describe(qb_tensor *tensor, int64_t *extents, qbpy_dl_tensor *out)
{
    qb_dtype dtype = qb_tensor_dtype(tensor);
    int rank = qb_tensor_rank(tensor);
    *out = (qbpy_dl_tensor){
        .data = qb_tensor_data(tensor),
        .device = {QBPY_DL_CPU, 0},
        .rank = rank,
        .dtype = {code_of_kind(qb_dtype_kind(dtype)), (uint8_t)(8 * qb_dtype_size(dtype)), 1},
        .shape = extents,
        .strides = extents + rank,
    };
    int64_t step = 1;
    for (int i = rank - 1; i >= 0; i--) {
        out->shape[i] = qb_tensor_shape(tensor)[i];
        out->strides[i] = step;
        step *= out->shape[i];
    }
}

/* Both take over the reference to `tensor`. */
static PyObject *export_plain(qb_tensor *tensor)
{
    size_t extents = 2 * (size_t)qb_tensor_rank(tensor) * sizeof(int64_t);
    qbpy_dl_managed *managed = PyMem_RawMalloc(sizeof *managed + extents);
    if (!managed) {
        qb_tensor_release(tensor);
        return PyErr_NoMemory();
    }
    describe(tensor, (int64_t *)(managed + 1), &managed->tensor);
    managed->owner = tensor;
    managed->deleter = delete_plain;
    PyObject *capsule = PyCapsule_New(managed, plain_name, end_plain);
    if (!capsule)
        delete_plain(managed);
    return capsule;
}

static PyObject *export_versioned(qb_tensor *tensor, uint64_t flags)
{
    size_t extents = 2 * (size_t)qb_tensor_rank(tensor) * sizeof(int64_t);
    qbpy_dl_versioned *managed = PyMem_RawMalloc(sizeof *managed + extents);
    if (!managed) {
        qb_tensor_release(tensor);
        return PyErr_NoMemory();
    }
    describe(tensor, (int64_t *)(managed + 1), &managed->tensor);
    managed->major = QBPY_DL_MAJOR;
    managed->minor = QBPY_DL_MINOR;
    managed->flags = flags;
    managed->owner = tensor;
    managed->deleter = delete_versioned;
    PyObject *capsule = PyCapsule_New(managed, versioned_name, end_versioned);
    if (!capsule)
        delete_versioned(managed);
    return capsule;
}

/* 0 when the optional arguments ask for something that a tensor in host memory can give. */
static int check_request(PyObject *stream, PyObject *device)
{
    if (stream != Py_None) {
        PyErr_SetString(PyExc_BufferError, "__dlpack__: stream must be None for an array in host memory");
        return -1;
    }
    if (device == Py_None)
        return 0;
    long type, id;
    if (!PyTuple_Check(device) || PyTuple_GET_SIZE(device) != 2) {
        PyErr_SetString(PyExc_TypeError, "__dlpack__: dl_device is a tuple (device type, device id)");
        return -1;
    }
    type = PyLong_AsLong(PyTuple_GET_ITEM(device, 0));
    id = PyLong_AsLong(PyTuple_GET_ITEM(device, 1));
    if (PyErr_Occurred())
        return -1;
    if (type != QBPY_DL_CPU || id != 0) {
        PyErr_Format(PyExc_BufferError,
                     "__dlpack__: the array is in host memory, device (1, 0), not on device (%ld, %ld)", type, id);
        return -1;
    }
    return 0;
}

PyObject *qbpy_tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names, &stream, &version, &device, &copy) ||
        check_request(stream, device) < 0)
        return NULL;
    long major = 0;
    if (version != Py_None) {
        if (!PyTuple_Check(version) || PyTuple_GET_SIZE(version) != 2) {
            PyErr_SetString(PyExc_TypeError, "__dlpack__: max_version is a tuple (major, minor)");
            return NULL;
        }
        major = PyLong_AsLong(PyTuple_GET_ITEM(version, 0));
        if (major == -1 && PyErr_Occurred())
            return NULL;
    }
    int wants_copy = copy == Py_None ? 0 : PyObject_IsTrue(copy);
    if (wants_copy < 0)
        return NULL;
    if (copy != Py_None && !wants_copy && major < QBPY_DL_MAJOR) {
        PyErr_SetString(PyExc_BufferError,
                        "__dlpack__: arrays are read-only, which DLPack before 1.0 cannot say; allow a copy, "
                        "or ask for max_version=(1, 0)");
        return NULL;
    }
    qb_tensor *tensor = qbpy_tensor_get(self);
    if (!wants_copy && major >= QBPY_DL_MAJOR)
        return export_versioned(qb_tensor_retain(tensor), QBPY_DL_READ_ONLY);
    qb_tensor *own;
    qb_status status = qb_tensor_create(qb_tensor_dtype(tensor), qb_tensor_rank(tensor), qb_tensor_shape(tensor),
                                        qb_tensor_data(tensor), &own);
    if (status != QB_OK)
        return qbpy_raise(qbpy_state_of_object(self), status);
    return major >= QBPY_DL_MAJOR ? export_versioned(own, QBPY_DL_IS_COPIED) : export_plain(own);
}

PyObject *qbpy_tensor_dlpack_device(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("(ii)", QBPY_DL_CPU, 0);
}

/* --------------------------------------------------------------------------------------------------------------- in */

static bool in_host_memory(long type)
{
    return type == QBPY_DL_CPU || type == QBPY_DL_CUDA_HOST || type == QBPY_DL_ROCM_HOST ||
           type == QBPY_DL_CUDA_MANAGED;
}

static int refuse_device(const char *function, long type)
{
    PyErr_Format(PyExc_ValueError, "%s: the array is in the memory of DLPack device type %ld; copy it to the CPU first",
                 function, type);
    return -1;
}

static void refuse_elements(const char *function, qbpy_dl_dtype dtype)
{
    const char *name = dtype.code == QBPY_DL_FLOAT     ? "float"
                       : dtype.code == QBPY_DL_BFLOAT  ? "bfloat"
                       : dtype.code == QBPY_DL_COMPLEX ? "complex"
                       : dtype.code == QBPY_DL_INT     ? "int"
                       : dtype.code == QBPY_DL_UINT    ? "uint"
                                                       : NULL;
    if (name && dtype.lanes == 1)
        PyErr_Format(PyExc_TypeError, "%s: %s%d data are not supported; convert the array to float32 or float64 first",
                     function, name, dtype.bits);
    else
        PyErr_Format(PyExc_TypeError,
                     "%s: elements of DLPack type (code %d, %d bits, %d lanes) are not supported; convert the array "
                     "to float32 or float64 first",
                     function, dtype.code, dtype.bits, dtype.lanes);
}

static int read_layout(const char *function, const qbpy_dl_tensor *tensor, qbpy_layout *out)
{
    static const char kinds[] = {
        [QBPY_DL_INT] = 'i', [QBPY_DL_UINT] = 'u', [QBPY_DL_FLOAT] = 'f', [QBPY_DL_BOOL] = 'b'};
    if (!in_host_memory(tensor->device.type))
        return refuse_device(function, tensor->device.type);
    qbpy_dl_dtype dtype = tensor->dtype;
    out->element = QBPY_ELEMENT_COUNT;
    if (dtype.code < sizeof kinds && dtype.lanes == 1 && dtype.bits % 8 == 0)
        out->element = qbpy_element_find(kinds[dtype.code], dtype.bits / 8);
    if (out->element == QBPY_ELEMENT_COUNT) {
        refuse_elements(function, dtype);
        return -1;
    }
    if (tensor->rank < 0 || tensor->rank > QB_MAX_RANK) {
        PyErr_Format(PyExc_ValueError, "%s: an array of rank %d: ranks go from 0 to %d", function, tensor->rank,
                     QB_MAX_RANK);
        return -1;
    }
    out->data = (const char *)tensor->data + tensor->byte_offset;
    out->rank = tensor->rank;
    int64_t step = dtype.bits / 8, size = step;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        out->shape[i] = tensor->shape[i];
        out->strides[i] = tensor->strides ? tensor->strides[i] * size : step;
        step *= tensor->shape[i];
    }
    return 0;
}

static qb_tensor *import_tensor(qbpy_state *state, const qbpy_dl_tensor *foreign, const char *function, int dtype,
                                int dtype_of_integers)
{
    qbpy_layout layout;
    if (read_layout(function, foreign, &layout) < 0)
        return NULL;
    qb_dtype own = qbpy_element_dtype(layout.element);
    if (dtype < 0)
        dtype = dtype_of_integers >= 0 && qb_dtype_is_integer(own) ? dtype_of_integers : (int)own;
    return qbpy_layout_tensor(state, &layout, (qb_dtype)dtype);
}

static qb_tensor *import_capsule(qbpy_state *state, PyObject *capsule, const char *function, int dtype,
                                 int dtype_of_integers)
{
    if (PyCapsule_IsValid(capsule, versioned_name)) {
        qbpy_dl_versioned *managed = PyCapsule_GetPointer(capsule, versioned_name);
        if (managed->major > QBPY_DL_MAJOR) {
            PyErr_Format(PyExc_BufferError, "%s: DLPack version %u is newer than the supported 1", function,
                         managed->major);
            return NULL;
        }
        qb_tensor *tensor = import_tensor(state, &managed->tensor, function, dtype, dtype_of_integers);
        if (tensor && PyCapsule_SetName(capsule, versioned_used) == 0 && managed->deleter)
            managed->deleter(managed);
        return tensor;
    }
    if (PyCapsule_IsValid(capsule, plain_name)) {
        qbpy_dl_managed *managed = PyCapsule_GetPointer(capsule, plain_name);
        qb_tensor *tensor = import_tensor(state, &managed->tensor, function, dtype, dtype_of_integers);
        if (tensor && PyCapsule_SetName(capsule, plain_used) == 0 && managed->deleter)
            managed->deleter(managed);
        return tensor;
    }
    PyErr_Format(PyExc_ValueError, "%s: expected an unused DLPack capsule, got %R", function, capsule);
    return NULL;
}

/* The capsule of an object, asked for as DLPack 1.0 and, where the object knows no such argument, as before. */
static PyObject *request_capsule(qbpy_state *state, PyObject *object, const char *function)
{
    PyObject *device = PyObject_CallMethodNoArgs(object, state->str_dlpack_device_);
    if (!device)
        return NULL;
    long type = PyTuple_Check(device) && PyTuple_GET_SIZE(device) == 2 ? PyLong_AsLong(PyTuple_GET_ITEM(device, 0))
                                                                       : QBPY_DL_CPU;
    Py_DECREF(device);
    if (type == -1 && PyErr_Occurred())
        return NULL;
    if (!in_host_memory(type)) {
        refuse_device(function, type);
        return NULL;
    }
    PyObject *method = PyObject_GetAttr(object, state->str_dlpack_);
    PyObject *options = method ? Py_BuildValue("{s(ii)}", "max_version", QBPY_DL_MAJOR, QBPY_DL_MINOR) : NULL;
    PyObject *none = options ? PyTuple_New(0) : NULL;
    PyObject *capsule = none ? PyObject_Call(method, none, options) : NULL;
    if (none && !capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_CallNoArgs(method);
    }
    Py_XDECREF(none);
    Py_XDECREF(options);
    Py_XDECREF(method);
    return capsule;
}

qb_tensor *qbpy_dlpack_import(qbpy_state *state, PyObject *object, const char *function, int dtype,
                              int dtype_of_integers)
{
    PyObject *capsule = PyCapsule_CheckExact(object) ? Py_NewRef(object) : request_capsule(state, object, function);
    if (!capsule)
        return NULL;
    qb_tensor *tensor = NULL;
    if (PyCapsule_CheckExact(capsule))
        tensor = import_capsule(state, capsule, function, dtype, dtype_of_integers);
    else
        PyErr_Format(PyExc_TypeError, "%s: __dlpack__ of %.200s returned %R, not a capsule", function,
                     Py_TYPE(object)->tp_name, capsule);
    Py_DECREF(capsule);
    return tensor;
}
