/* Element types as Python objects: one object per dtype, so that identity is equality.
 *
 * A NumPy dtype of the same name compares equal, and NumPy takes our objects wherever it takes a dtype (through the
 * attribute `dtype`, as it does for other classes). */
#include "base/dtype.h"

#include "quabla_ext.h"

#include <string.h>

PyObject *qbpy_dtype_object(qbpy_state *state, qb_dtype dtype)
{
    return Py_NewRef(state->dtypes[dtype]);
}

/* ----------------------------------------------------------------------------------------------- from other objects */

static bool find_name(const char *name, qb_dtype *out)
{
    if (strcmp(name, "bool_") == 0)
        name = "bool";
    for (int i = 0; i < QB_DTYPE_COUNT; i++)
        if (strcmp(name, qb_dtype_name((qb_dtype)i)) == 0) {
            *out = (qb_dtype)i;
            return true;
        }
    return false;
}

static bool is_of_numpy(PyTypeObject *type)
{
    return strncmp(type->tp_name, "numpy.", 6) == 0;
}

/* The name by which `object` means a dtype: a new reference, or NULL without an exception. */
static PyObject *name_meant(qbpy_state *state, PyObject *object)
{
    if (PyUnicode_Check(object))
        return Py_NewRef(object);
    PyObject *name;
    if (!PyType_Check(object))
        name = PyObject_GetAttr(object, state->str_name);
    else if (is_of_numpy((PyTypeObject *)object))
        name = PyUnicode_FromString(strrchr(((PyTypeObject *)object)->tp_name, '.') + 1);
    else
        return NULL;
    if (name && PyUnicode_Check(name))
        return name;
    PyErr_Clear();
    Py_XDECREF(name);
    return NULL;
}

int qbpy_dtype_from_object(qbpy_state *state, PyObject *object, qb_dtype *out)
{
    if (Py_IS_TYPE(object, state->dtype_type)) {
        *out = ((qbpy_dtype *)object)->value;
        return 0;
    }
    if (object == (PyObject *)&PyFloat_Type || object == (PyObject *)&PyLong_Type ||
        object == (PyObject *)&PyBool_Type) {
        *out = object == (PyObject *)&PyFloat_Type  ? QB_FLOAT64
               : object == (PyObject *)&PyLong_Type ? QB_INT64
                                                    : QB_BOOL;
        return 0;
    }
    PyObject *name = name_meant(state, object);
    const char *text = name ? PyUnicode_AsUTF8(name) : NULL;
    bool found = text && find_name(text, out);
    Py_XDECREF(name);
    if (found)
        return 0;
    PyErr_Clear();
    char accepted[256];
    size_t used = 0;
    for (int i = 0; i < QB_DTYPE_COUNT; i++)
        used += (size_t)snprintf(accepted + used, sizeof accepted - used, "%s%s", i ? ", " : "",
                                 qb_dtype_name((qb_dtype)i));
    PyErr_Format(PyExc_TypeError, "dtype: expected one of %s, its name, or a NumPy dtype of that name; got %R",
                 accepted, object);
    return -1;
}

int qbpy_optional_dtype(qbpy_state *state, PyObject *object, int *out)
{
    qb_dtype dtype;
    *out = -1;
    if (!object || object == Py_None)
        return 0;
    if (qbpy_dtype_from_object(state, object, &dtype) < 0)
        return -1;
    *out = (int)dtype;
    return 0;
}

/* --------------------------------------------------------------------------------------------------------- the type */

static const char *dtype_text(PyObject *self)
{
    return qb_dtype_name(((qbpy_dtype *)self)->value);
}

static PyObject *dtype_repr(PyObject *self)
{
    return PyUnicode_FromString(dtype_text(self));
}

static PyObject *dtype_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dtype", NULL};
    PyObject *object;
    qb_dtype dtype;
    qbpy_state *state = qbpy_state_of_type(type);
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:dtype", names, &object) ||
        qbpy_dtype_from_object(state, object, &dtype) < 0)
        return NULL;
    return qbpy_dtype_object(state, dtype);
}

static void dtype_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *dtype_richcompare(PyObject *self, PyObject *other, int operation)
{
    if (operation != Py_EQ && operation != Py_NE)
        Py_RETURN_NOTIMPLEMENTED;
    bool equal = self == other;
    if (!equal && is_of_numpy(Py_TYPE(other))) {
        PyObject *name = PyObject_GetAttrString(other, "name");
        equal = name && PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, dtype_text(self)) == 0;
        PyErr_Clear();
        Py_XDECREF(name);
    } else if (!equal) {
        Py_RETURN_NOTIMPLEMENTED;
    }
    return PyBool_FromLong(equal == (operation == Py_EQ));
}

static Py_hash_t dtype_hash(PyObject *self)
{
    return 0x71b1e5 + (Py_hash_t)((qbpy_dtype *)self)->value;
}

static PyObject *dtype_reduce(PyObject *self, PyObject *Py_UNUSED(unused))
{
    return Py_BuildValue("O(s)", Py_TYPE(self), dtype_text(self));
}

static PyObject *dtype_get_itemsize(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSize_t(qb_dtype_size(((qbpy_dtype *)self)->value));
}

static PyObject *dtype_get_name(PyObject *self, void *Py_UNUSED(closure))
{
    return dtype_repr(self);
}

static PyObject *dtype_get_kind(PyObject *self, void *Py_UNUSED(closure))
{
    return PyUnicode_FromFormat("%c", qb_dtype_kind(((qbpy_dtype *)self)->value));
}

static PyObject *dtype_get_dtype(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *dtype = numpy ? PyObject_CallMethod(numpy, "dtype", "s", dtype_text(self)) : NULL;
    Py_XDECREF(numpy);
    return dtype;
}

static PyGetSetDef dtype_getset[] = {
    {"name", dtype_get_name, NULL, "The name, such as 'float64'.", NULL},
    {"itemsize", dtype_get_itemsize, NULL, "Bytes of an element.", NULL},
    {"kind", dtype_get_kind, NULL, "'f' floating, 'i' signed, 'u' unsigned integer, 'b' bool.", NULL},
    {"dtype", dtype_get_dtype, NULL, "The NumPy dtype of this name (imports NumPy).", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef dtype_methods[] = {
    {"__reduce__", dtype_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(dtype_doc,
             "dtype(dtype)\n--\n\n"
             "The type of an array's elements: float64, float32, bool_, int32, int64, uint32 or uint64.\n\n"
             "dtype(x) gives the one object that x means: a name, a NumPy dtype, or float, int (int64) or bool.");

static PyType_Slot dtype_slots[] = {
    {Py_tp_doc, (void *)dtype_doc},   {Py_tp_new, (void *)dtype_new},   {Py_tp_dealloc, (void *)dtype_dealloc},
    {Py_tp_repr, (void *)dtype_repr}, {Py_tp_hash, (void *)dtype_hash}, {Py_tp_richcompare, (void *)dtype_richcompare},
    {Py_tp_getset, dtype_getset},     {Py_tp_methods, dtype_methods},   {0, NULL},
};

static PyType_Spec dtype_spec = {
    .name = "quabla.dtype",
    .basicsize = sizeof(qbpy_dtype),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = dtype_slots,
};

int qbpy_dtype_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    state->dtype_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &dtype_spec, NULL);
    if (!state->dtype_type || PyModule_AddType(module, state->dtype_type) < 0)
        return -1;
    for (int i = 0; i < QB_DTYPE_COUNT; i++) {
        qbpy_dtype *dtype = PyObject_New(qbpy_dtype, state->dtype_type);
        if (!dtype)
            return -1;
        dtype->value = (qb_dtype)i;
        state->dtypes[i] = (PyObject *)dtype;
        /* bool_, so that `from quabla import *` leaves the built-in alone */
        const char *name = i == QB_BOOL ? "bool_" : qb_dtype_name((qb_dtype)i);
        if (PyModule_AddObjectRef(module, name, (PyObject *)dtype) < 0)
            return -1;
    }
    return 0;
}
