/* x.at[index].set(values): updates that leave x as it is and return a new array. */
#include "index.h"

#include <structmember.h>

/* x.at, and with an index, x.at[index]. */
typedef struct at {
    PyObject_HEAD PyObject *array;
    PyObject *index; /* NULL in x.at */
} at;

static PyObject *make_at(PyTypeObject *type, PyObject *array, PyObject *index)
{
    at *self = PyObject_GC_New(at, type);
    if (!self)
        return NULL;
    self->array = Py_NewRef(array);
    self->index = Py_XNewRef(index);
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

PyObject *qbpy_at(PyObject *array, void *unused)
{
    (void)unused;
    return make_at(qbpy_state_of_object(array)->at_type, array, NULL);
}

static PyObject *at_getitem(PyObject *self, PyObject *index)
{
    return make_at(qbpy_state_of_object(self)->at_index_type, ((at *)self)->array, index);
}

static PyObject *at_repr(PyObject *object)
{
    const at *self = (at *)object;
    return self->index ? PyUnicode_FromFormat("%R.at[%R]", self->array, self->index)
                       : PyUnicode_FromFormat("%R.at", self->array);
}

static PyObject *update(PyObject *object, const qb_function *function, PyObject *values)
{
    const at *self = (at *)object;
    return qbpy_call_indexed(qbpy_state_of_object(object), function, (PyObject *const[]){self->array, values},
                             self->index);
}

#define UPDATES(X) X(set) X(add) X(multiply) X(min) X(max)

/* The functions under the names by which messages call them here. */
#define X(name) static qb_function update_##name;
UPDATES(X)
#undef X

static void name_updates(void)
{
#define X(function)                                                                                                    \
    update_##function = *qbpy_operator.index_##function;                                                               \
    update_##function.name = "x.at[...]." #function;
    UPDATES(X)
#undef X
}

#define X(name)                                                                                                        \
    static PyObject *at_##name(PyObject *self, PyObject *values)                                                       \
    {                                                                                                                  \
        return update(self, &update_##name, values);                                                                   \
    }
UPDATES(X)
#undef X

static PyObject *at_get(PyObject *object, PyObject *unused)
{
    (void)unused;
    return qbpy_getitem(((at *)object)->array, ((at *)object)->index);
}

PyDoc_STRVAR(get_doc, "get($self, /)\n--\n\nx[index].");
PyDoc_STRVAR(
    set_doc,
    "set($self, values, /)\n--\n\n"
    "x with the elements x[index] replaced by values, which broadcast to the shape of x[index].\n\n"
    "Where the index names an element twice, the last value counts. The result has the dtype of x; values of\n"
    "another floating dtype are a ValueError. An index out of range is an IndexError, in a traced array of indices\n"
    "its value is dropped. Differentiable in x and values.");
PyDoc_STRVAR(
    add_doc,
    "add($self, values, /)\n--\n\n"
    "x with values added to the elements x[index]; where the index names an element more than once, one after\n"
    "the other, in the order of the index. Otherwise as set.");
PyDoc_STRVAR(multiply_doc,
             "multiply($self, values, /)\n--\n\n"
             "x with the elements x[index] multiplied by values, by all where the index names an element more than\n"
             "once. The derivative never divides, so it is exact with zeros. Otherwise as set.");
PyDoc_STRVAR(mul_doc, "mul($self, values, /)\n--\n\nAnother name of multiply.");
PyDoc_STRVAR(min_doc,
             "min($self, values, /)\n--\n\n"
             "x with the elements x[index] replaced by values that are smaller; NaN wins. Ties share the derivative\n"
             "evenly. Otherwise as set.");
PyDoc_STRVAR(max_doc,
             "max($self, values, /)\n--\n\n"
             "x with the elements x[index] replaced by values that are larger; NaN wins. Ties share the derivative\n"
             "evenly. Otherwise as set.");

static PyMethodDef at_methods[] = {
    {"get", at_get, METH_NOARGS, get_doc}, {"set", at_set, METH_O, set_doc},
    {"add", at_add, METH_O, add_doc},      {"multiply", at_multiply, METH_O, multiply_doc},
    {"mul", at_multiply, METH_O, mul_doc}, {"min", at_min, METH_O, min_doc},
    {"max", at_max, METH_O, max_doc},      {NULL, NULL, 0, NULL},
};

/* ---- The types */

static int at_traverse(PyObject *object, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(((at *)object)->array);
    Py_VISIT(((at *)object)->index);
    return 0;
}

static void at_dealloc(PyObject *object)
{
    at *self = (at *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->array);
    Py_XDECREF(self->index);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyType_Slot at_slots[] = {
    {Py_tp_doc, "x.at: x.at[index] names elements of x for an update."},
    {Py_tp_dealloc, (void *)at_dealloc},
    {Py_tp_traverse, (void *)at_traverse},
    {Py_tp_repr, (void *)at_repr},
    {Py_mp_subscript, (void *)at_getitem},
    {0, NULL},
};

static PyType_Slot at_index_slots[] = {
    {Py_tp_doc, "x.at[index]: its methods give x with these elements changed; x stays as it is."},
    {Py_tp_dealloc, (void *)at_dealloc},
    {Py_tp_traverse, (void *)at_traverse},
    {Py_tp_repr, (void *)at_repr},
    {Py_tp_methods, at_methods},
    {0, NULL},
};

#define SPEC(type_name, type_slots)                                                                                    \
    {                                                                                                                  \
        .name = type_name, .basicsize = sizeof(at),                                                                    \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, .slots = type_slots      \
    }

static PyType_Spec at_spec = SPEC("quabla._core.At", at_slots);
static PyType_Spec at_index_spec = SPEC("quabla._core.AtIndex", at_index_slots);

int qbpy_at_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    name_updates();
    state->at_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &at_spec, NULL);
    state->at_index_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &at_index_spec, NULL);
    return state->at_type && state->at_index_type ? 0 : -1;
}
