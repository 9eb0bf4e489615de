/* Boundary: a public function of the package's Python files. It is that function in every respect, but that errors
 * which leave it show the user's frames only (source.c). */
#include "trace.h"

#include <structmember.h>

typedef struct qbpy_boundary {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject *fun;
} qbpy_boundary;

static PyObject *fun_of(PyObject *self)
{
    return ((qbpy_boundary *)self)->fun;
}

static PyObject *boundary_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *kwnames)
{
    PyObject *result = PyObject_Vectorcall(fun_of(self), args, nargsf, kwnames);
    if (!result)
        qbpy_trim_traceback(qbpy_state_of_object(self));
    return result;
}

static PyObject *boundary_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *fun;
    if (kwargs && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "public: takes one function, no keywords");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "O", &fun))
        return NULL;
    qbpy_boundary *self = (qbpy_boundary *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->vectorcall = boundary_call;
    self->fun = Py_NewRef(fun);
    return (PyObject *)self;
}

static int boundary_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(fun_of(self));
    return 0;
}

static int boundary_clear(PyObject *self)
{
    Py_CLEAR(((qbpy_boundary *)self)->fun);
    return 0;
}

static void boundary_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)boundary_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *boundary_get(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

static PyObject *boundary_repr(PyObject *self)
{
    return PyObject_Repr(fun_of(self));
}

/* __name__, __defaults__ and the like are the function's. (The type has a __module__ of its own.) */
static PyObject *boundary_getattro(PyObject *self, PyObject *name)
{
    if (PyUnicode_CompareWithASCIIString(name, "__module__") == 0)
        return PyObject_GetAttr(fun_of(self), name);
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError))
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(fun_of(self), name);
}

static PyObject *get_doc(PyObject *self, void *unused)
{
    (void)unused;
    return PyObject_GetAttrString(fun_of(self), "__doc__");
}

/* By its name, as functions are. */
static PyObject *boundary_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    return PyObject_GetAttrString(fun_of(self), "__qualname__");
}

static PyObject *boundary_same(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyGetSetDef boundary_getset[] = {
    {"__doc__", get_doc, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef boundary_methods[] = {
    {"__reduce__", boundary_reduce, METH_NOARGS, NULL},
    {"__copy__", boundary_same, METH_NOARGS, NULL},
    {"__deepcopy__", boundary_same, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef boundary_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(qbpy_boundary, fun), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(qbpy_boundary, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot boundary_slots[] = {
    {Py_tp_new, (void *)boundary_new},
    {Py_tp_dealloc, (void *)boundary_dealloc},
    {Py_tp_traverse, (void *)boundary_traverse},
    {Py_tp_clear, (void *)boundary_clear},
    {Py_tp_repr, (void *)boundary_repr},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_descr_get, (void *)boundary_get},
    {Py_tp_getattro, (void *)boundary_getattro},
    {Py_tp_getset, boundary_getset},
    {Py_tp_members, boundary_members},
    {Py_tp_methods, boundary_methods},
    {0, NULL},
};

static PyType_Spec boundary_spec = {
    .name = "quabla._core.public",
    .basicsize = sizeof(qbpy_boundary),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = boundary_slots,
};

int qbpy_boundary_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    if (!(state->boundary_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &boundary_spec, NULL)))
        return -1;
    return PyModule_AddType(module, state->boundary_type);
}
