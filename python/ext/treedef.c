/* TreeDef, and the functions of quabla.tree. */
#include "tree.h"

static qbpy_treedef *structure_of(PyObject *self)
{
    return (qbpy_treedef *)self;
}

static int treedef_traverse(PyObject *self, visitproc visit, void *arg)
{
    qbpy_treedef *treedef = structure_of(self);
    Py_VISIT(Py_TYPE(self));
    for (int32_t i = 0; i < treedef->object_count; i++)
        Py_VISIT(treedef->objects[i]);
    return 0;
}

/* Structures are immutable, so cycles through them are broken elsewhere: by the dict, instance or class on the way. */
static void treedef_dealloc(PyObject *self)
{
    qbpy_treedef *treedef = structure_of(self);
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (int32_t i = 0; i < treedef->object_count; i++)
        Py_DECREF(treedef->objects[i]);
    PyMem_Free(treedef->objects);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *treedef_repr(PyObject *self)
{
    PyObject *text = qbpy_treedef_text(structure_of(self));
    PyObject *repr = text ? PyUnicode_FromFormat("TreeDef(%U)", text) : NULL;
    Py_XDECREF(text);
    return repr;
}

static Py_hash_t treedef_hash(PyObject *self)
{
    Py_hash_t hash = (Py_hash_t)structure_of(self)->hash;
    return hash == -1 ? -2 : hash;
}

static PyObject *treedef_richcompare(PyObject *self, PyObject *other, int operation)
{
    if (Py_TYPE(self) != Py_TYPE(other) || (operation != Py_EQ && operation != Py_NE))
        Py_RETURN_NOTIMPLEMENTED;
    int equal = qbpy_treedef_equal(structure_of(self), structure_of(other));
    return equal < 0 ? NULL : PyBool_FromLong(equal == (operation == Py_EQ));
}

static PyObject *unflatten_sequence(qbpy_state *state, PyObject *treedef, PyObject *leaves)
{
    PyObject *items = PySequence_Tuple(leaves); /* held: unflatten functions run a user's code */
    if (!items)
        return NULL;
    PyObject *tree = NULL;
    if (PyTuple_GET_SIZE(items) != structure_of(treedef)->leaf_count)
        PyErr_Format(PyExc_ValueError, "unflatten: the structure has %d leaves, got %zd",
                     structure_of(treedef)->leaf_count, PyTuple_GET_SIZE(items));
    else
        tree = qbpy_unflatten(state, treedef, ((PyTupleObject *)items)->ob_item);
    Py_DECREF(items);
    return tree;
}

static PyObject *treedef_unflatten(PyObject *self, PyObject *leaves)
{
    return unflatten_sequence(qbpy_state_of_object(self), self, leaves);
}

/* A tree of zeros with this structure, of which tree_structure makes the structure again. */
static PyObject *treedef_reduce(PyObject *self, PyObject *Py_UNUSED(unused))
{
    PyObject *module = PyType_GetModule(Py_TYPE(self));
    PyObject *structure = module ? PyObject_GetAttrString(module, "tree_structure") : NULL;
    PyObject *zero = structure ? PyLong_FromLong(0) : NULL,
             *zeros = zero ? PyTuple_New(structure_of(self)->leaf_count) : NULL;
    for (int32_t i = 0; zeros && i < structure_of(self)->leaf_count; i++)
        PyTuple_SET_ITEM(zeros, i, Py_NewRef(zero));
    PyObject *tree = zeros ? treedef_unflatten(self, zeros) : NULL;
    PyObject *reduced = tree ? Py_BuildValue("O(O)", structure, tree) : NULL;
    Py_XDECREF(tree);
    Py_XDECREF(zeros);
    Py_XDECREF(zero);
    Py_XDECREF(structure);
    return reduced;
}

static PyObject *treedef_num_leaves(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromLong(structure_of(self)->leaf_count);
}

static PyGetSetDef treedef_getset[] = {
    {"num_leaves", treedef_num_leaves, NULL, "The number of leaves.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef treedef_methods[] = {
    {"unflatten", treedef_unflatten, METH_O,
     "unflatten($self, leaves, /)\n--\n\nThe tree of this structure with these leaves; ValueError for a wrong number "
     "of them."},
    {"__reduce__", treedef_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot treedef_slots[] = {
    {Py_tp_doc, "The structure of a tree: its containers, keys and metadata, without its leaves. Compares and hashes "
                "by structure."},
    {Py_tp_traverse, (void *)treedef_traverse},
    {Py_tp_dealloc, (void *)treedef_dealloc},
    {Py_tp_repr, (void *)treedef_repr},
    {Py_tp_hash, (void *)treedef_hash},
    {Py_tp_richcompare, (void *)treedef_richcompare},
    {Py_tp_getset, treedef_getset},
    {Py_tp_methods, treedef_methods},
    {0, NULL},
};

static PyType_Spec treedef_spec = {
    .name = "quabla.tree.TreeDef",
    .basicsize = sizeof(qbpy_treedef),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = treedef_slots,
};

/* -------------------------------------------------------------------------------------------------------- functions */

/* Flattens into `flat`, which the caller clears, also after a failure. */
static int flatten_new(qbpy_state *state, PyObject *tree, qbpy_flat *flat)
{
    qbpy_flat_init(flat);
    return qbpy_flatten(state, tree, flat);
}

static PyObject *list_of_leaves(const qbpy_flat *flat)
{
    PyObject *list = PyList_New(flat->leaf_count);
    for (int32_t i = 0; list && i < flat->leaf_count; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(flat->leaves[i]));
    return list;
}

/* (first, second), taking over both references, of which either may be NULL after a failure. */
static PyObject *pair(PyObject *first, PyObject *second)
{
    PyObject *tuple = first && second ? PyTuple_Pack(2, first, second) : NULL;
    Py_XDECREF(first);
    Py_XDECREF(second);
    return tuple;
}

static PyObject *tree_flatten(PyObject *module, PyObject *tree)
{
    qbpy_state *state = qbpy_state_of(module);
    qbpy_flat flat;
    PyObject *result = NULL;
    if (flatten_new(state, tree, &flat) == 0)
        result = pair(list_of_leaves(&flat), qbpy_flat_treedef(state, &flat));
    qbpy_flat_clear(&flat);
    return result;
}

static PyObject *tree_leaves(PyObject *module, PyObject *tree)
{
    qbpy_flat flat;
    PyObject *result = flatten_new(qbpy_state_of(module), tree, &flat) == 0 ? list_of_leaves(&flat) : NULL;
    qbpy_flat_clear(&flat);
    return result;
}

static PyObject *tree_structure(PyObject *module, PyObject *tree)
{
    qbpy_state *state = qbpy_state_of(module);
    qbpy_flat flat;
    PyObject *result = flatten_new(state, tree, &flat) == 0 ? qbpy_flat_treedef(state, &flat) : NULL;
    qbpy_flat_clear(&flat);
    return result;
}

static int check_treedef(qbpy_state *state, const char *function, PyObject *object)
{
    if (Py_IS_TYPE(object, state->treedef_type))
        return 0;
    PyErr_Format(PyExc_TypeError, "%s: expected a TreeDef, got an object of type %.200s", function,
                 Py_TYPE(object)->tp_name);
    return -1;
}

static PyObject *tree_unflatten(PyObject *module, PyObject *args)
{
    PyObject *treedef, *leaves;
    qbpy_state *state = qbpy_state_of(module);
    if (!PyArg_ParseTuple(args, "OO:unflatten", &treedef, &leaves) || check_treedef(state, "unflatten", treedef) < 0)
        return NULL;
    return unflatten_sequence(state, treedef, leaves);
}

static PyObject *tree_flatten_with_path(PyObject *module, PyObject *tree)
{
    qbpy_state *state = qbpy_state_of(module);
    qbpy_flat flat;
    PyObject *treedef = flatten_new(state, tree, &flat) == 0 ? qbpy_flat_treedef(state, &flat) : NULL;
    PyObject *keys = treedef ? qbpy_all_leaf_keys(structure_of(treedef)) : NULL;
    PyObject *pairs = keys ? PyList_New(flat.leaf_count) : NULL;
    for (int32_t i = 0; pairs && i < flat.leaf_count; i++) {
        PyObject *item = pair(Py_NewRef(PyList_GET_ITEM(keys, i)), Py_NewRef(flat.leaves[i]));
        if (!item)
            Py_CLEAR(pairs);
        else
            PyList_SET_ITEM(pairs, i, item);
    }
    Py_XDECREF(keys);
    qbpy_flat_clear(&flat);
    return pair(pairs, treedef);
}

static PyObject *tree_leaf_path(PyObject *module, PyObject *args)
{
    PyObject *treedef;
    int leaf;
    if (!PyArg_ParseTuple(args, "Oi:tree_leaf_path", &treedef, &leaf) ||
        check_treedef(qbpy_state_of(module), "tree_leaf_path", treedef) < 0)
        return NULL;
    return qbpy_leaf_path(structure_of(treedef), leaf);
}

static PyObject *tree_argument_path(PyObject *module, PyObject *args)
{
    PyObject *treedef;
    int leaf;
    if (!PyArg_ParseTuple(args, "Oi:tree_argument_path", &treedef, &leaf) ||
        check_treedef(qbpy_state_of(module), "tree_argument_path", treedef) < 0)
        return NULL;
    return qbpy_argument_path(structure_of(treedef), leaf, NULL);
}

/* Calls f on the i-th leaf of every tree, for all i: `flat` holds the leaves of the trees one after the other. */
static PyObject *map_leaves(qbpy_state *state, PyObject *function, const qbpy_flat *flat, PyObject *treedef,
                            Py_ssize_t trees)
{
    int32_t count = structure_of(treedef)->leaf_count;
    PyObject *results = PyTuple_New(count), *tree = NULL;
    PyObject **arguments = results ? PyMem_New(PyObject *, (size_t)trees) : NULL;
    int32_t done = 0;
    for (; arguments && done < count; done++) {
        for (Py_ssize_t k = 0; k < trees; k++)
            arguments[k] = flat->leaves[k * count + done];
        PyObject *result = PyObject_Vectorcall(function, arguments, (size_t)trees, NULL);
        if (!result)
            break;
        PyTuple_SET_ITEM(results, done, result);
    }
    if (results && !arguments)
        PyErr_NoMemory();
    if (arguments && done == count)
        tree = qbpy_unflatten(state, treedef, ((PyTupleObject *)results)->ob_item);
    PyMem_Free(arguments);
    Py_XDECREF(results);
    return tree;
}

static PyObject *tree_map(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    qbpy_state *state = qbpy_state_of(module);
    if (nargs < 2) {
        PyErr_SetString(PyExc_TypeError, "map: expected map(f, tree, *rest)");
        return NULL;
    }
    qbpy_flat flat;
    PyObject *treedef = flatten_new(state, args[1], &flat) == 0 ? qbpy_flat_treedef(state, &flat) : NULL;
    int status = treedef ? 0 : -1;
    for (Py_ssize_t k = 2; status == 0 && k < nargs; k++)
        status = qbpy_flatten_up_to(state, structure_of(treedef), args[k], "map", &flat);
    PyObject *result = status == 0 ? map_leaves(state, args[0], &flat, treedef, nargs - 1) : NULL;
    Py_XDECREF(treedef);
    qbpy_flat_clear(&flat);
    return result;
}

/* A list of what `walk` appends for a structure and another tree. */
static PyObject *walk_list(PyObject *module, PyObject *args, const char *function,
                           int (*walk)(qbpy_state *, const qbpy_treedef *, PyObject *, const char *, qbpy_flat *))
{
    PyObject *treedef, *tree;
    qbpy_state *state = qbpy_state_of(module);
    qbpy_flat flat;
    if (!PyArg_ParseTuple(args, "OO|s", &treedef, &tree, &function) || check_treedef(state, function, treedef) < 0)
        return NULL;
    qbpy_flat_init(&flat);
    PyObject *list = walk(state, structure_of(treedef), tree, function, &flat) == 0 ? list_of_leaves(&flat) : NULL;
    qbpy_flat_clear(&flat);
    return list;
}

static PyObject *tree_flatten_up_to(PyObject *module, PyObject *args)
{
    return walk_list(module, args, "flatten_up_to", qbpy_flatten_up_to);
}

static PyObject *tree_flatten_prefix(PyObject *module, PyObject *args)
{
    return walk_list(module, args, "flatten_prefix", qbpy_flatten_prefix);
}

PyDoc_STRVAR(flatten_doc, "tree_flatten(tree, /)\n--\n\n(leaves, treedef): the leaves as a list, and the structure.");
PyDoc_STRVAR(unflatten_doc, "tree_unflatten(treedef, leaves, /)\n--\n\n"
                            "The tree of that structure with these leaves; ValueError for a wrong number of them.");
PyDoc_STRVAR(leaves_doc, "tree_leaves(tree, /)\n--\n\nThe leaves as a list.");
PyDoc_STRVAR(structure_doc, "tree_structure(tree, /)\n--\n\nThe structure, a TreeDef.");
PyDoc_STRVAR(
    map_doc,
    "tree_map(f, tree, /, *rest)\n--\n\n"
    "A tree like `tree` whose leaves are f(leaf, *others).\n\n"
    "`others` are from the trees in `rest`, which must contain the structure of `tree`: what they have in the place "
    "of\n"
    "a leaf is handed over whole (a None of a gradient, for example). ValueError names the path of a mismatch.");
PyDoc_STRVAR(
    with_path_doc,
    "tree_flatten_with_path(tree, /)\n--\n\n"
    "([(path, leaf), ...], treedef): a path is the tuple of dict keys, positions and field names that lead to\n"
    "the leaf.");
PyDoc_STRVAR(argument_path_doc,
             "tree_argument_path(treedef, leaf, /)\n--\n\n"
             "A leaf of (args, kwargs) as the caller of a function knows it: \"argument 0 at 'w/0'\".");
PyDoc_STRVAR(leaf_path_doc, "tree_leaf_path(treedef, leaf, /)\n--\n\nThe path of a leaf as text: 'params/layers/0/w'.");
PyDoc_STRVAR(
    up_to_doc,
    "tree_flatten_up_to(treedef, tree, function='flatten_up_to', /)\n--\n\n"
    "What `tree` has in the place of each leaf of `treedef`, a list. `function` begins the message of a mismatch.");
PyDoc_STRVAR(prefix_doc,
             "tree_flatten_prefix(treedef, prefix, function='flatten_prefix', /)\n--\n\n"
             "For each leaf of `treedef` the leaf of `prefix` that covers it, a list; None is a leaf of `prefix`.");

#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef module_functions[] = {
    {"tree_flatten", tree_flatten, METH_O, flatten_doc},
    {"tree_unflatten", tree_unflatten, METH_VARARGS, unflatten_doc},
    {"tree_leaves", tree_leaves, METH_O, leaves_doc},
    {"tree_structure", tree_structure, METH_O, structure_doc},
    {"tree_map", METHOD(tree_map), METH_FASTCALL, map_doc},
    {"tree_flatten_with_path", tree_flatten_with_path, METH_O, with_path_doc},
    {"tree_leaf_path", tree_leaf_path, METH_VARARGS, leaf_path_doc},
    {"tree_argument_path", tree_argument_path, METH_VARARGS, argument_path_doc},
    {"tree_flatten_up_to", tree_flatten_up_to, METH_VARARGS, up_to_doc},
    {"tree_flatten_prefix", tree_flatten_prefix, METH_VARARGS, prefix_doc},
    {NULL, NULL, 0, NULL},
};

int qbpy_tree_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    state->treedef_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &treedef_spec, NULL);
    if (!state->treedef_type || PyModule_AddType(module, state->treedef_type) < 0 ||
        PyModule_AddFunctions(module, module_functions) < 0)
        return -1;
    return qbpy_tree_register_install(module);
}
