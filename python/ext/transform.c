/* Transform: the way of a call to its compiled program.
 *
 * A Transform wraps a user's function with a rule, `impl(fun, args, kwargs)`, which runs under a trace and says what
 * the transform means (quabla/transforms.py). A call flattens its arguments and then
 *   - under a trace with a tracer among the leaves: runs impl in that trace (transforms compose by being traced);
 *   - otherwise: looks its signature up in the Cache and runs the program found, or has one built. */
#include "cache.h"
#include "trace.h"

#include <structmember.h>

typedef struct qbpy_transform {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject *fun;  /* the user's function */
    PyObject *impl; /* impl(fun, args, kwargs) -> result, run under a trace */
    /* build(transform, treedef, leaves, is_input, statics) -> (Program, out_treedef), or (None, result) */
    PyObject *build;
    qbpy_cache *cache;
    PyObject *number_argnums;  /* tuple: positional arguments whose Python numbers become arrays */
    PyObject *static_argnums;  /* tuple, or NULL */
    PyObject *static_argnames; /* frozenset, or NULL */
    bool debug_nans;           /* results that are not finite are errors */
    PyObject *dict;
    PyObject *weakrefs;
} qbpy_transform;

/* A list of the leaves, and which of them are inputs, for build. */
static PyObject *build_arguments(qbpy_state *state, const qbpy_transform *self, const qbpy_signature *s)
{
    int count = s->flat.leaf_count;
    PyObject *leaves = PyList_New(count), *flags = PyList_New(count), *treedef = qbpy_flat_treedef(state, &s->flat);
    PyObject *arguments = NULL;
    for (int i = 0; leaves && flags && i < count; i++) {
        PyList_SET_ITEM(leaves, i, Py_NewRef(s->flat.leaves[i]));
        PyList_SET_ITEM(flags, i, PyBool_FromLong(s->is_input[i]));
    }
    if (leaves && flags && treedef)
        arguments = PyTuple_Pack(5, (PyObject *)self, treedef, leaves, flags, s->statics ? s->statics : Py_None);
    Py_XDECREF(leaves);
    Py_XDECREF(flags);
    Py_XDECREF(treedef);
    return arguments;
}

static PyObject *build_and_run(qbpy_state *state, const qbpy_transform *self, const qbpy_signature *s)
{
    PyObject *arguments = build_arguments(state, self, s);
    PyObject *built = arguments ? PyObject_CallObject(self->build, arguments) : NULL;
    Py_XDECREF(arguments);
    PyObject *program, *second, *result = NULL;
    if (!built)
        return NULL;
    if (!PyArg_ParseTuple(built, "OO;build must return (Program, TreeDef) or (None, result)", &program, &second)) {
        Py_DECREF(built);
        return NULL;
    }
    if (program == Py_None) { /* tracers of an enclosing trace were captured: the result is part of that trace */
        result = Py_NewRef(second);
    } else {
        qbpy_entry *e = qbpy_entry_make(state, s, program, second);
        if (e) {
            e->references++;
            if (qbpy_cache_insert(state, self->cache, self->fun, s, e) == 0)
                result = qbpy_entry_run(state, e, s, self->debug_nans || qbpy_debug_nans());
            qbpy_entry_release(e);
        }
    }
    Py_DECREF(built);
    return result;
}

/* ---- The call */

/* Splits static arguments off: dynamic positional and keyword arguments stay in order in `args` (scratch, borrowed),
 * their keyword names in *kwnames (a new reference or NULL). */
static int split_statics(const qbpy_transform *self, PyObject *const *given, Py_ssize_t nargs, PyObject *given_names,
                         PyObject **args, Py_ssize_t *dynamic, PyObject **kwnames, PyObject **statics)
{
    Py_ssize_t total = nargs + (given_names ? PyTuple_GET_SIZE(given_names) : 0), kept = 0;
    PyObject *pairs = PyList_New(0), *names = PyList_New(0);
    bool valid = pairs && names;
    for (Py_ssize_t k = 0; valid && k < total; k++) {
        bool is_static = false;
        PyObject *key;
        if (k < nargs) {
            for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->static_argnums); i++) {
                Py_ssize_t argnum = PyLong_AsSsize_t(PyTuple_GET_ITEM(self->static_argnums, i));
                is_static = is_static || argnum == k || argnum + nargs == k;
            }
            key = PyLong_FromSsize_t(k);
            *dynamic = is_static ? *dynamic : *dynamic + 1;
        } else {
            key = Py_NewRef(PyTuple_GET_ITEM(given_names, k - nargs));
            is_static = PySet_Contains(self->static_argnames, key) > 0;
        }
        PyObject *pair = key && is_static ? PyTuple_Pack(2, key, given[k]) : NULL;
        if (!key || (is_static && (!pair || PyList_Append(pairs, pair) < 0)) ||
            (!is_static && k >= nargs && PyList_Append(names, key) < 0))
            valid = false;
        if (!is_static)
            args[kept++] = given[k];
        Py_XDECREF(key);
        Py_XDECREF(pair);
    }
    *statics = valid ? PyList_AsTuple(pairs) : NULL;
    *kwnames = valid && PyList_GET_SIZE(names) > 0 ? PyList_AsTuple(names) : NULL;
    Py_XDECREF(pairs);
    Py_XDECREF(names);
    return *statics ? 0 : -1;
}

static PyObject *call_impl(const qbpy_transform *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *positional = PyTuple_New(nargs), *keywords = PyDict_New(), *result = NULL;
    bool valid = positional && keywords;
    for (Py_ssize_t i = 0; valid && i < nargs; i++)
        PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
    for (Py_ssize_t i = 0; valid && kwnames && i < PyTuple_GET_SIZE(kwnames); i++)
        valid = PyDict_SetItem(keywords, PyTuple_GET_ITEM(kwnames, i), args[nargs + i]) == 0;
    if (valid)
        result = PyObject_CallFunctionObjArgs(self->impl, self->fun, positional, keywords, NULL);
    Py_XDECREF(positional);
    Py_XDECREF(keywords);
    return result;
}

static PyObject *dispatch(qbpy_state *state, const qbpy_transform *self, qbpy_signature *s, PyObject *const *args,
                          Py_ssize_t nargs, PyObject *kwnames, bool *traced)
{
    *traced = false;
    if (qbpy_flatten_call(state, args, nargs, kwnames, &s->flat) < 0 ||
        qbpy_signature_finish(state, self->number_argnums, args, nargs, s) < 0)
        return NULL;
    if (s->has_tracer) {
        *traced = true;
        return NULL;
    }
    qbpy_entry *e = qbpy_cache_find(self->cache, s);
    if (e)
        return qbpy_entry_run(state, e, s, self->debug_nans || qbpy_debug_nans());
    return PyErr_Occurred() ? NULL : build_and_run(state, self, s);
}

static PyObject *transform_call(PyObject *callable, PyObject *const *given, size_t nargsf, PyObject *given_names)
{
    const qbpy_transform *self = (qbpy_transform *)callable;
    qbpy_state *state = qbpy_state_of_object(callable);
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), dynamic = nargs;
    PyObject *const *args = given;
    PyObject *kwnames = given_names, *own_names = NULL, **scratch = NULL;
    qbpy_signature s;
    qbpy_signature_init(&s);
    bool traced = false, valid = true;
    if (self->static_argnums) {
        Py_ssize_t total = nargs + (given_names ? PyTuple_GET_SIZE(given_names) : 0);
        dynamic = 0;
        scratch = PyMem_Malloc((size_t)total * sizeof *scratch + 1);
        valid =
            scratch && split_statics(self, given, nargs, given_names, scratch, &dynamic, &own_names, &s.statics) == 0;
        args = scratch;
        kwnames = own_names;
        if (!scratch)
            PyErr_NoMemory();
    }
    PyObject *result = valid ? dispatch(state, self, &s, args, dynamic, kwnames, &traced) : NULL;
    qbpy_signature_clear(&s);
    Py_XDECREF(own_names);
    PyMem_Free(scratch);
    if (traced)
        result = call_impl(self, given, nargs, given_names);
    if (!result)
        qbpy_trim_traceback(state);
    return result;
}

/* ---- Transform, the type */

static PyObject *transform_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {
        "fun", "impl", "build", "cache", "number_argnums", "static_argnums", "static_argnames", "debug_nans", NULL};
    PyObject *fun, *impl, *build, *cache, *numbers = NULL, *static_argnums = NULL, *static_argnames = NULL;
    int debug_nans = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|O!O!O!p", keywords, &fun, &impl, &build, &cache, &PyTuple_Type,
                                     &numbers, &PyTuple_Type, &static_argnums, &PyFrozenSet_Type, &static_argnames,
                                     &debug_nans))
        return NULL;
    qbpy_state *state = qbpy_state_of_type(type);
    if (!Py_IS_TYPE(cache, state->cache_type)) {
        PyErr_SetString(PyExc_TypeError, "cache must be a Cache");
        return NULL;
    }
    qbpy_transform *self = (qbpy_transform *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->vectorcall = transform_call;
    self->debug_nans = debug_nans;
    self->fun = Py_NewRef(fun);
    self->impl = Py_NewRef(impl);
    self->build = Py_NewRef(build);
    self->cache = (qbpy_cache *)Py_NewRef(cache);
    self->number_argnums = numbers ? Py_NewRef(numbers) : PyTuple_New(0);
    bool has_static = (static_argnums && PyTuple_GET_SIZE(static_argnums) > 0) ||
                      (static_argnames && PySet_GET_SIZE(static_argnames) > 0);
    if (has_static) {
        self->static_argnums = static_argnums ? Py_NewRef(static_argnums) : PyTuple_New(0);
        self->static_argnames = static_argnames ? Py_NewRef(static_argnames) : PyFrozenSet_New(NULL);
    }
    if (!self->number_argnums || (has_static && (!self->static_argnums || !self->static_argnames))) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static int transform_traverse(PyObject *object, visitproc visit, void *arg)
{
    qbpy_transform *self = (qbpy_transform *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->fun);
    Py_VISIT(self->impl);
    Py_VISIT(self->build);
    Py_VISIT(self->cache);
    Py_VISIT(self->dict);
    return 0;
}

static int transform_clear(PyObject *object)
{
    qbpy_transform *self = (qbpy_transform *)object;
    Py_CLEAR(self->fun);
    Py_CLEAR(self->impl);
    Py_CLEAR(self->build);
    Py_CLEAR(self->cache);
    Py_CLEAR(self->number_argnums);
    Py_CLEAR(self->static_argnums);
    Py_CLEAR(self->static_argnames);
    Py_CLEAR(self->dict);
    return 0;
}

static void transform_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (((qbpy_transform *)object)->weakrefs)
        PyObject_ClearWeakRefs(object);
    (void)transform_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

/* As a class attribute it binds like a function. */
static PyObject *transform_get(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

static PyObject *transform_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<transformed %R>", ((qbpy_transform *)self)->fun);
}

/* __name__, __qualname__, __module__ and the like are the wrapped function's. (The type has a __module__ of its
 * own.) */
static PyObject *transform_getattro(PyObject *self, PyObject *name)
{
    if (PyUnicode_CompareWithASCIIString(name, "__module__") == 0)
        return PyObject_GetAttr(((qbpy_transform *)self)->fun, name);
    PyObject *found = PyObject_GenericGetAttr(self, name);
    if (found || !PyErr_ExceptionMatches(PyExc_AttributeError) || PyUnicode_GET_LENGTH(name) < 4 ||
        PyUnicode_READ_CHAR(name, 0) != '_' || PyUnicode_READ_CHAR(name, 1) != '_')
        return found;
    PyErr_Clear();
    return PyObject_GetAttr(((qbpy_transform *)self)->fun, name);
}

static PyObject *get_doc(PyObject *self, void *unused)
{
    (void)unused;
    return PyObject_GetAttrString(((qbpy_transform *)self)->fun, "__doc__");
}

static PyGetSetDef transform_getset[] = {
    {"__doc__", get_doc, NULL, NULL, NULL},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* As for functions, a copy is the object itself: what it holds never changes. */
static PyObject *transform_same(PyObject *self, PyObject *unused)
{
    (void)unused;
    return Py_NewRef(self);
}

static PyMethodDef transform_methods[] = {
    {"__copy__", transform_same, METH_NOARGS, NULL},
    {"__deepcopy__", transform_same, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef transform_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(qbpy_transform, fun), READONLY, NULL},
    {"impl", T_OBJECT, offsetof(qbpy_transform, impl), READONLY, NULL},
    {"cache", T_OBJECT, offsetof(qbpy_transform, cache), READONLY, NULL},
    {"number_argnums", T_OBJECT, offsetof(qbpy_transform, number_argnums), READONLY, NULL},
    {"static_argnums", T_OBJECT, offsetof(qbpy_transform, static_argnums), READONLY, NULL},
    {"static_argnames", T_OBJECT, offsetof(qbpy_transform, static_argnames), READONLY, NULL},
    {"debug_nans", T_BOOL, offsetof(qbpy_transform, debug_nans), READONLY, NULL},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(qbpy_transform, vectorcall), READONLY, NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(qbpy_transform, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(qbpy_transform, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot transform_slots[] = {
    {Py_tp_new, (void *)transform_new},
    {Py_tp_dealloc, (void *)transform_dealloc},
    {Py_tp_traverse, (void *)transform_traverse},
    {Py_tp_clear, (void *)transform_clear},
    {Py_tp_repr, (void *)transform_repr},
    {Py_tp_call, (void *)PyVectorcall_Call},
    {Py_tp_descr_get, (void *)transform_get},
    {Py_tp_getattro, (void *)transform_getattro},
    {Py_tp_getset, transform_getset},
    {Py_tp_members, transform_members},
    {Py_tp_methods, transform_methods},
    {0, NULL},
};

static PyType_Spec transform_spec = {
    .name = "quabla._core.Transform",
    .basicsize = sizeof(qbpy_transform),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = transform_slots,
};

int qbpy_transform_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    if (qbpy_cache_install(module) < 0 ||
        !(state->transform_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &transform_spec, NULL)))
        return -1;
    return PyModule_AddType(module, state->transform_type);
}
