/* Classes of a user's that are containers in trees: how they are registered, and how their instances come apart.
 *
 * The registry, a dict from class to registration, hangs on the module and only grows: structures refer to
 * registrations, and a class that was a container once must stay one. */
#include "tree.h"

#include <stddef.h>
#include <structmember.h>

PyObject *qbpy_custom_parts(const qbpy_registration *registration, PyObject *object)
{
    PyObject *pair = PyObject_CallOneArg(registration->flatten, object);
    if (!pair)
        return NULL;
    PyObject *parts = NULL;
    if (!PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        PyErr_Format(PyExc_TypeError, "the flatten_fn of %.200s must return (children, metadata), got %.200R",
                     ((PyTypeObject *)registration->cls)->tp_name, pair);
    } else {
        PyObject *children = PySequence_Tuple(PyTuple_GET_ITEM(pair, 0));
        parts = children ? PyTuple_Pack(2, children, PyTuple_GET_ITEM(pair, 1)) : NULL;
        Py_XDECREF(children);
    }
    Py_DECREF(pair);
    return parts;
}

static PyObject *custom_children(const qbpy_registration *registration, PyObject *object, PyObject *metadata)
{
    PyObject *parts = qbpy_custom_parts(registration, object);
    int equal = parts ? qbpy_static_equal(PyTuple_GET_ITEM(parts, 1), metadata) : -1;
    PyObject *children = equal == 1 ? Py_NewRef(PyTuple_GET_ITEM(parts, 0)) : NULL;
    Py_XDECREF(parts);
    return children;
}

PyObject *qbpy_registered_children(const qbpy_registration *registration, PyObject *object, PyObject *const *metadata)
{
    if (!registration->data_fields)
        return custom_children(registration, object, metadata[0]);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(registration->meta_fields); i++) {
        PyObject *value = PyObject_GetAttr(object, PyTuple_GET_ITEM(registration->meta_fields, i));
        int equal = value ? qbpy_static_equal(value, metadata[i]) : -1;
        Py_XDECREF(value);
        if (equal != 1)
            return NULL;
    }
    Py_ssize_t count = PyTuple_GET_SIZE(registration->data_fields);
    PyObject *children = PyTuple_New(count);
    for (Py_ssize_t i = 0; children && i < count; i++) {
        PyObject *value = PyObject_GetAttr(object, PyTuple_GET_ITEM(registration->data_fields, i));
        if (!value)
            Py_CLEAR(children);
        else
            PyTuple_SET_ITEM(children, i, value);
    }
    return children;
}

/* ---------------------------------------------------------------------------------------------------- registrations */

static int registration_traverse(PyObject *self, visitproc visit, void *arg)
{
    qbpy_registration *registration = (qbpy_registration *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(registration->cls);
    Py_VISIT(registration->flatten);
    Py_VISIT(registration->unflatten);
    Py_VISIT(registration->data_fields);
    Py_VISIT(registration->meta_fields);
    Py_VISIT(registration->create);
    return 0;
}

static int registration_clear(PyObject *self)
{
    qbpy_registration *registration = (qbpy_registration *)self;
    Py_CLEAR(registration->cls);
    Py_CLEAR(registration->flatten);
    Py_CLEAR(registration->unflatten);
    Py_CLEAR(registration->data_fields);
    Py_CLEAR(registration->meta_fields);
    Py_CLEAR(registration->create);
    return 0;
}

static void registration_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    (void)registration_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot registration_slots[] = {
    {Py_tp_traverse, (void *)registration_traverse},
    {Py_tp_clear, (void *)registration_clear},
    {Py_tp_dealloc, (void *)registration_dealloc},
    {0, NULL},
};

static PyType_Spec registration_spec = {
    .name = "quabla._core.TreeRegistration",
    .basicsize = sizeof(qbpy_registration),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = registration_slots,
};

/* ------------------------------------------------------------------------------------------------------ registering */

static int check_class(qbpy_state *state, const char *function, PyObject *cls)
{
    if (!PyType_Check(cls)) {
        PyErr_Format(PyExc_TypeError, "%s: expected a class, got %.200R", function, cls);
        return -1;
    }
    PyTypeObject *type = (PyTypeObject *)cls;
    if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || type == state->tensor_type ||
        type == state->trace_tensor_type) {
        PyErr_Format(PyExc_ValueError, "%s: %.200s is a leaf or a container already and cannot be registered", function,
                     type->tp_name);
        return -1;
    }
    int known = PyDict_Contains(state->tree_registry, cls);
    if (known == 1)
        PyErr_Format(PyExc_ValueError, "%s: class %.200s is registered already", function, type->tp_name);
    return known == 0 ? 0 : -1;
}

/* Takes no references; those given are borrowed and may be NULL. */
static PyObject *add_registration(qbpy_state *state, PyObject *cls, PyObject *flatten, PyObject *unflatten,
                                  PyObject *data, PyObject *meta)
{
    PyObject *create = PyObject_GetAttrString((PyObject *)&PyBaseObject_Type, "__new__");
    qbpy_registration *registration = create ? PyObject_GC_New(qbpy_registration, state->tree_registration_type) : NULL;
    if (!registration) {
        Py_XDECREF(create);
        return NULL;
    }
    registration->cls = Py_NewRef(cls);
    registration->flatten = Py_XNewRef(flatten);
    registration->unflatten = Py_XNewRef(unflatten);
    registration->data_fields = Py_XNewRef(data);
    registration->meta_fields = Py_XNewRef(meta);
    registration->create = create;
    PyObject_GC_Track(registration);
    int status = PyDict_SetItem(state->tree_registry, cls, (PyObject *)registration);
    Py_DECREF(registration);
    return status < 0 ? NULL : Py_NewRef(cls);
}

static PyObject *tree_register(PyObject *module, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"cls", "flatten_fn", "unflatten_fn", NULL};
    qbpy_state *state = qbpy_state_of(module);
    PyObject *cls, *flatten, *unflatten;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:register", names, &cls, &flatten, &unflatten) ||
        check_class(state, "register", cls) < 0)
        return NULL;
    if (!PyCallable_Check(flatten) || !PyCallable_Check(unflatten)) {
        PyErr_SetString(PyExc_TypeError, "register: flatten_fn and unflatten_fn must be callable");
        return NULL;
    }
    return add_registration(state, cls, flatten, unflatten, NULL, NULL);
}

/* A tuple of interned field names, which makes attribute access quick. */
static PyObject *field_names(PyObject *object)
{
    PyObject *names = PySequence_Tuple(object);
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = PyTuple_GET_ITEM(names, i);
        if (!PyUnicode_CheckExact(name)) {
            PyErr_Format(PyExc_TypeError, "register_dataclass: field names are strings, got %.200R", name);
            Py_CLEAR(names);
        }
    }
    PyObject *interned = names ? PyTuple_New(PyTuple_GET_SIZE(names)) : NULL;
    for (Py_ssize_t i = 0; interned && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *name = Py_NewRef(PyTuple_GET_ITEM(names, i));
        PyUnicode_InternInPlace(&name);
        PyTuple_SET_ITEM(interned, i, name);
    }
    Py_XDECREF(names);
    return interned;
}

/* The class and its fields, as tree.py found them. */
static PyObject *tree_register_dataclass(PyObject *module, PyObject *args)
{
    qbpy_state *state = qbpy_state_of(module);
    PyObject *cls, *data_object, *meta_object;
    if (!PyArg_ParseTuple(args, "OOO:register_dataclass", &cls, &data_object, &meta_object) ||
        check_class(state, "register_dataclass", cls) < 0)
        return NULL;
    PyObject *data = field_names(data_object), *meta = data ? field_names(meta_object) : NULL;
    PyObject *result = meta ? add_registration(state, cls, NULL, NULL, data, meta) : NULL;
    Py_XDECREF(data);
    Py_XDECREF(meta);
    return result;
}

PyDoc_STRVAR(register_doc,
             "tree_register(cls, flatten_fn, unflatten_fn)\n--\n\n"
             "Makes instances of exactly `cls` containers.\n\n"
             "flatten_fn(instance) returns (children, metadata), the metadata hashable and part of every cache key;\n"
             "unflatten_fn(metadata, children) makes an instance of a tuple of children, which may be any objects.\n"
             "Returns the class. ValueError when it is registered already.");
PyDoc_STRVAR(register_dataclass_doc, "tree_register_dataclass(cls, data_fields, meta_fields, /)\n--\n\n"
                                     "What quabla.tree.register_dataclass calls with all field names.");

#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef module_functions[] = {
    {"tree_register", METHOD(tree_register), METH_VARARGS | METH_KEYWORDS, register_doc},
    {"tree_register_dataclass", tree_register_dataclass, METH_VARARGS, register_dataclass_doc},
    {NULL, NULL, 0, NULL},
};

int qbpy_tree_register_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    state->tree_registry = PyDict_New();
    state->tree_registration_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &registration_spec, NULL);
    if (!state->tree_registry || !state->tree_registration_type)
        return -1;
    return PyModule_AddFunctions(module, module_functions);
}
