/* Walks of a structure: beside another tree (to take it apart as far as the structure goes, or to spread a prefix over
 * it), and for the paths and the text of messages. */
#include "tree.h"

#include <string.h>

/* A place in a structure; nodes on the way to it are chained through `above`. */
typedef struct walk {
    const uint32_t *word;
    PyObject *const *object;
    qbpy_state *state;
    const char *function;
    qbpy_flat *out;
} walk;

typedef struct step {
    const struct step *above;
    uint32_t word;
    PyObject *const *objects;
    int32_t child;
} step;

/* ------------------------------------------------------------------------------------------------------------ paths */

/* What leads from a node to its child: a dict key, a field name, a position. New reference. */
static PyObject *child_key(uint32_t word, PyObject *const *objects, int32_t child)
{
    if (qbpy_kind_of(word) == QBPY_DICT)
        return Py_NewRef(objects[child]);
    if (qbpy_kind_of(word) == QBPY_DATACLASS)
        return Py_NewRef(PyTuple_GET_ITEM(((qbpy_registration *)objects[0])->data_fields, child));
    if (qbpy_kind_of(word) == QBPY_NAMEDTUPLE) {
        PyObject *fields = PyObject_GetAttrString(objects[0], "_fields");
        PyObject *name = fields ? PySequence_GetItem(fields, child) : NULL;
        Py_XDECREF(fields);
        return name;
    }
    return PyLong_FromLong(child);
}

/* Descends to leaf number *left, keys of the way in `keys`: 1 found, 0 not below here, -1 exception set. */
static int find_leaf(walk *at, int32_t *left, PyObject *keys)
{
    uint32_t word = *at->word++;
    PyObject *const *objects = at->object;
    at->object += qbpy_objects_of(word, objects);
    if (qbpy_kind_of(word) == QBPY_LEAF)
        return (*left)-- == 0;
    int found = 0;
    if (Py_EnterRecursiveCall(" while looking for a leaf"))
        return -1;
    for (int32_t i = 0; found == 0 && i < qbpy_count_of(word); i++) {
        PyObject *key = child_key(word, objects, i);
        found = key && PyList_Append(keys, key) == 0 ? find_leaf(at, left, keys) : -1;
        Py_XDECREF(key);
        if (found == 0 && PyList_SetSlice(keys, PyList_GET_SIZE(keys) - 1, PyList_GET_SIZE(keys), NULL) < 0)
            found = -1;
    }
    Py_LeaveRecursiveCall();
    return found;
}

PyObject *qbpy_leaf_keys(const qbpy_treedef *treedef, int32_t leaf)
{
    if (leaf < 0 || leaf >= treedef->leaf_count) {
        PyErr_Format(PyExc_IndexError, "leaf %d of a tree with %d leaves", leaf, treedef->leaf_count);
        return NULL;
    }
    walk at = {.word = treedef->words, .object = treedef->objects};
    PyObject *keys = PyList_New(0);
    int found = keys ? find_leaf(&at, &leaf, keys) : -1;
    PyObject *tuple = found == 1 ? PyList_AsTuple(keys) : NULL;
    Py_XDECREF(keys);
    return tuple;
}

/* Appends the keys of every leaf below here to `out`; `way`: the keys that lead here. 0, or -1 with an exception. */
static int collect_keys(walk *at, PyObject *way, PyObject *out)
{
    uint32_t word = *at->word++;
    PyObject *const *objects = at->object;
    at->object += qbpy_objects_of(word, objects);
    if (qbpy_kind_of(word) == QBPY_LEAF) {
        PyObject *keys = PyList_AsTuple(way);
        int status = keys ? PyList_Append(out, keys) : -1;
        Py_XDECREF(keys);
        return status;
    }
    if (Py_EnterRecursiveCall(" while listing the leaves of a tree"))
        return -1;
    int status = 0;
    for (int32_t i = 0; status == 0 && i < qbpy_count_of(word); i++) {
        PyObject *key = child_key(word, objects, i);
        status = key && PyList_Append(way, key) == 0 ? collect_keys(at, way, out) : -1;
        Py_XDECREF(key);
        if (status == 0)
            status = PyList_SetSlice(way, PyList_GET_SIZE(way) - 1, PyList_GET_SIZE(way), NULL);
    }
    Py_LeaveRecursiveCall();
    return status;
}

PyObject *qbpy_all_leaf_keys(const qbpy_treedef *treedef)
{
    walk at = {.word = treedef->words, .object = treedef->objects};
    PyObject *way = PyList_New(0), *out = PyList_New(0);
    if (!way || !out || collect_keys(&at, way, out) < 0)
        Py_CLEAR(out);
    Py_XDECREF(way);
    return out;
}

PyObject *qbpy_path_text(PyObject *keys, Py_ssize_t skip)
{
    PyObject *parts = PyList_New(0), *slash = PyUnicode_FromString("/");
    bool complete = parts && slash;
    for (Py_ssize_t i = skip; complete && i < PyTuple_GET_SIZE(keys); i++) {
        PyObject *part = PyObject_Str(PyTuple_GET_ITEM(keys, i));
        complete = part && PyList_Append(parts, part) == 0;
        Py_XDECREF(part);
    }
    PyObject *text = complete ? PyUnicode_Join(slash, parts) : NULL;
    Py_XDECREF(parts);
    Py_XDECREF(slash);
    return text;
}

PyObject *qbpy_leaf_path(const qbpy_treedef *treedef, int32_t leaf)
{
    PyObject *keys = qbpy_leaf_keys(treedef, leaf);
    PyObject *text = keys ? qbpy_path_text(keys, 0) : NULL;
    Py_XDECREF(keys);
    return text;
}

/* The position that an argument has in the call, counting the static ones before it; they ascend. */
static PyObject *position_in_call(PyObject *key, PyObject *statics)
{
    long position = PyLong_AsLong(key);
    for (Py_ssize_t i = 0; statics && i < PyTuple_GET_SIZE(statics); i++) {
        PyObject *where = PyTuple_GET_ITEM(PyTuple_GET_ITEM(statics, i), 0);
        position += PyLong_Check(where) && PyLong_AsLong(where) <= position;
    }
    return PyErr_Occurred() ? NULL : PyLong_FromLong(position);
}

PyObject *qbpy_argument_path(const qbpy_treedef *treedef, int32_t leaf, PyObject *statics)
{
    PyObject *keys = qbpy_leaf_keys(treedef, leaf);
    if (!keys || PyTuple_GET_SIZE(keys) < 2) {
        Py_XDECREF(keys);
        return PyErr_Occurred() ? NULL : PyUnicode_FromString("argument");
    }
    PyObject *key = PyTuple_GET_ITEM(keys, 1), *path = qbpy_path_text(keys, 2), *text = NULL;
    PyObject *where = PyLong_Check(key) ? position_in_call(key, statics) : Py_NewRef(key);
    if (path && where)
        text = PyUnicode_GET_LENGTH(path) ? PyUnicode_FromFormat("argument %R at %R", where, path)
                                          : PyUnicode_FromFormat("argument %R", where);
    Py_XDECREF(keys);
    Py_XDECREF(path);
    Py_XDECREF(where);
    return text;
}

/* " at a/b/0", or "" at the top. */
static PyObject *step_text(const step *last)
{
    int depth = 0;
    for (const step *s = last; s; s = s->above)
        depth++;
    PyObject *keys = PyTuple_New(depth);
    for (const step *s = last; keys && s; s = s->above) {
        PyObject *key = child_key(s->word, s->objects, s->child);
        if (!key)
            Py_CLEAR(keys);
        else
            PyTuple_SET_ITEM(keys, --depth, key);
    }
    PyObject *path = keys ? qbpy_path_text(keys, 0) : NULL;
    PyObject *text = path && last ? PyUnicode_FromFormat(" at %U:", path) : path ? Py_NewRef(path) : NULL;
    Py_XDECREF(path);
    Py_XDECREF(keys);
    return text;
}

/* ---------------------------------------------------------------------------------------------- what does not match */

static PyObject *describe_node(uint32_t word, PyObject *const *objects)
{
    int32_t count = qbpy_count_of(word);
    switch (qbpy_kind_of(word)) {
    case QBPY_LEAF: return PyUnicode_FromString("a leaf");
    case QBPY_NONE: return PyUnicode_FromString("None");
    case QBPY_LIST: return PyUnicode_FromFormat("a list of length %d", count);
    case QBPY_TUPLE: return PyUnicode_FromFormat("a tuple of length %d", count);
    case QBPY_NAMEDTUPLE: return PyUnicode_FromFormat("a %s", ((PyTypeObject *)objects[0])->tp_name);
    case QBPY_DICT: {
        PyObject *keys = PyList_New(count);
        for (int32_t i = 0; keys && i < count; i++)
            PyList_SET_ITEM(keys, i, Py_NewRef(objects[i]));
        PyObject *text = keys ? PyUnicode_FromFormat("a dict with keys %R", keys) : NULL;
        Py_XDECREF(keys);
        return text;
    }
    default:
        return PyUnicode_FromFormat("a %s of the same metadata",
                                    ((PyTypeObject *)((qbpy_registration *)objects[0])->cls)->tp_name);
    }
}

static PyObject *describe_object(PyObject *object)
{
    if (object == Py_None)
        return PyUnicode_FromString("None");
    if (PyList_CheckExact(object) || PyTuple_CheckExact(object))
        return PyUnicode_FromFormat("a %s of length %zd", Py_TYPE(object)->tp_name, PySequence_Fast_GET_SIZE(object));
    if (!PyDict_CheckExact(object))
        return PyUnicode_FromFormat("a %s", Py_TYPE(object)->tp_name);
    PyObject *keys = PyDict_Keys(object);
    PyObject *text = keys ? PyUnicode_FromFormat("a dict with keys %R", keys) : NULL;
    Py_XDECREF(keys);
    return text;
}

static int fail_mismatch(const walk *at, const step *last, uint32_t word, PyObject *const *objects, PyObject *given)
{
    PyObject *where = step_text(last), *expected = where ? describe_node(word, objects) : NULL;
    PyObject *got = expected ? describe_object(given) : NULL;
    if (got)
        PyErr_Format(PyExc_ValueError, "%s:%U expected %U, got %U", at->function, where, expected, got);
    Py_XDECREF(where);
    Py_XDECREF(expected);
    Py_XDECREF(got);
    return -1;
}

/* ---------------------------------------------------------------------------------------------- beside another tree */

/* The children of `tree` in the order of the node, as a new tuple; NULL without an exception when the tree is no such
 * node. */
static PyObject *matching_children(const walk *at, uint32_t word, PyObject *const *objects, PyObject *tree)
{
    qbpy_registration *registration = NULL;
    int32_t count = qbpy_count_of(word);
    int kind = qbpy_classify(at->state, tree, &registration);
    if (kind < 0 || (qbpy_node_kind)kind != qbpy_kind_of(word))
        return NULL;
    switch (kind) {
    case QBPY_LIST: return PyList_GET_SIZE(tree) == count ? PyList_AsTuple(tree) : NULL;
    case QBPY_TUPLE: return PyTuple_GET_SIZE(tree) == count ? Py_NewRef(tree) : NULL;
    case QBPY_NAMEDTUPLE: return (PyObject *)Py_TYPE(tree) == objects[0] ? PyTuple_GetSlice(tree, 0, count) : NULL;
    default: break;
    }
    /* The others through a flattening of their own, one level of which is compared. */
    if (kind == QBPY_DICT) {
        PyObject *children = PyDict_GET_SIZE(tree) == count ? PyTuple_New(count) : NULL;
        for (int32_t i = 0; children && i < count; i++) {
            PyObject *value = PyDict_GetItemWithError(tree, objects[i]);
            if (!value)
                Py_CLEAR(children);
            else
                PyTuple_SET_ITEM(children, i, Py_NewRef(value));
        }
        return children;
    }
    return (PyObject *)registration == objects[0] ? qbpy_registered_children(registration, tree, objects + 1) : NULL;
}

typedef int beside(walk *at, const step *above, PyObject *tree);

/* Goes through the children of a node and of `tree` side by side. */
static int descend(walk *at, const step *above, uint32_t word, PyObject *const *objects, PyObject *tree, beside *next)
{
    PyObject *children = matching_children(at, word, objects, tree);
    if (!children)
        return PyErr_Occurred() ? -1 : fail_mismatch(at, above, word, objects, tree);
    int status = Py_EnterRecursiveCall(" while comparing trees") ? -1 : 0;
    if (status == 0) {
        step here = {above, word, objects, 0};
        for (; status == 0 && here.child < qbpy_count_of(word); here.child++)
            status = next(at, &here, PyTuple_GET_ITEM(children, here.child));
        Py_LeaveRecursiveCall();
    }
    Py_DECREF(children);
    return status;
}

static int take_up_to(walk *at, const step *above, PyObject *tree)
{
    uint32_t word = *at->word++;
    PyObject *const *objects = at->object;
    at->object += qbpy_objects_of(word, objects);
    switch (qbpy_kind_of(word)) {
    case QBPY_LEAF: return qbpy_flat_push_leaf(at->out, tree);
    case QBPY_NONE: return tree == Py_None ? 0 : fail_mismatch(at, above, word, objects, tree);
    default: return descend(at, above, word, objects, tree, take_up_to);
    }
}

int qbpy_flatten_up_to(qbpy_state *state, const qbpy_treedef *treedef, PyObject *tree, const char *function,
                       qbpy_flat *flat)
{
    walk at = {treedef->words, treedef->objects, state, function, flat};
    return take_up_to(&at, NULL, tree);
}

/* Gives `leaf` to every leaf below the node that is next. */
static int spread(walk *at, PyObject *leaf)
{
    for (int64_t nodes = 1; nodes > 0; nodes--) {
        uint32_t word = *at->word++;
        at->object += qbpy_objects_of(word, at->object);
        nodes += qbpy_count_of(word);
        if (qbpy_kind_of(word) == QBPY_LEAF && qbpy_flat_push_leaf(at->out, leaf) < 0)
            return -1;
    }
    return 0;
}

static int take_prefix(walk *at, const step *above, PyObject *prefix)
{
    qbpy_registration *registration = NULL;
    int kind = qbpy_classify(at->state, prefix, &registration);
    if (kind < 0)
        return -1;
    if (kind == QBPY_LEAF || kind == QBPY_NONE)
        return spread(at, prefix);
    uint32_t word = *at->word++;
    PyObject *const *objects = at->object;
    at->object += qbpy_objects_of(word, objects);
    return descend(at, above, word, objects, prefix, take_prefix);
}

int qbpy_flatten_prefix(qbpy_state *state, const qbpy_treedef *treedef, PyObject *prefix, const char *function,
                        qbpy_flat *flat)
{
    walk at = {treedef->words, treedef->objects, state, function, flat};
    return take_prefix(&at, NULL, prefix);
}

/* ------------------------------------------------------------------------------------------------------------- text */

static int append(PyObject *parts, const char *format, PyObject *object)
{
    PyObject *text = object ? PyUnicode_FromFormat(format, object) : PyUnicode_FromString(format);
    int status = text ? PyList_Append(parts, text) : -1;
    Py_XDECREF(text);
    return status;
}

static int write_node(walk *at, PyObject *parts);

/* The items of a node; `named` ones with what leads to them. */
static int write_items(walk *at, uint32_t word, PyObject *const *objects, const char *named, PyObject *parts)
{
    int status = 0;
    for (int32_t i = 0; status == 0 && i < qbpy_count_of(word); i++) {
        PyObject *key = named ? child_key(word, objects, i) : NULL;
        if (i > 0)
            status = append(parts, ", ", NULL);
        if (status == 0 && named)
            status = key ? append(parts, named, key) : -1;
        Py_XDECREF(key);
        if (status == 0)
            status = write_node(at, parts);
    }
    return status;
}

static int write_metadata(uint32_t word, PyObject *const *objects, PyObject *parts)
{
    const qbpy_registration *registration = (qbpy_registration *)objects[0];
    bool first = qbpy_count_of(word) == 0;
    if (qbpy_kind_of(word) == QBPY_CUSTOM)
        return append(parts, first ? "%R" : ", %R", objects[1]);
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(registration->meta_fields); i++, first = false) {
        status = append(parts, first ? "%U=" : ", %U=", PyTuple_GET_ITEM(registration->meta_fields, i));
        if (status == 0)
            status = append(parts, "%R", objects[1 + i]);
    }
    return status;
}

static int write_class(walk *at, uint32_t word, PyObject *const *objects, PyObject *parts)
{
    bool is_named = qbpy_kind_of(word) == QBPY_NAMEDTUPLE;
    PyObject *cls = is_named ? objects[0] : ((qbpy_registration *)objects[0])->cls;
    PyObject *name = PyObject_GetAttrString(cls, "__qualname__");
    int status = name ? append(parts, "%S(", name) : -1;
    Py_XDECREF(name);
    if (status == 0)
        status = write_items(at, word, objects, qbpy_kind_of(word) == QBPY_CUSTOM ? NULL : "%S=", parts);
    if (status == 0 && !is_named)
        status = write_metadata(word, objects, parts);
    return status < 0 ? -1 : append(parts, ")", NULL);
}

static int write_container(walk *at, uint32_t word, PyObject *const *objects, PyObject *parts)
{
    static const char *const open[] = {[QBPY_DICT] = "{", [QBPY_LIST] = "[", [QBPY_TUPLE] = "("};
    static const char *const close[] = {[QBPY_DICT] = "}", [QBPY_LIST] = "]", [QBPY_TUPLE] = ")"};
    qbpy_node_kind kind = qbpy_kind_of(word);
    if (kind > QBPY_TUPLE)
        return write_class(at, word, objects, parts);
    if (append(parts, open[kind], NULL) < 0 ||
        write_items(at, word, objects, kind == QBPY_DICT ? "%R: " : NULL, parts) < 0)
        return -1;
    return append(parts, kind == QBPY_TUPLE && qbpy_count_of(word) == 1 ? ",)" : close[kind], NULL);
}

static int write_node(walk *at, PyObject *parts)
{
    uint32_t word = *at->word++;
    PyObject *const *objects = at->object;
    at->object += qbpy_objects_of(word, objects);
    if (qbpy_kind_of(word) == QBPY_LEAF || qbpy_kind_of(word) == QBPY_NONE)
        return append(parts, qbpy_kind_of(word) == QBPY_LEAF ? "*" : "None", NULL);
    if (Py_EnterRecursiveCall(" while printing a TreeDef"))
        return -1;
    int status = write_container(at, word, objects, parts);
    Py_LeaveRecursiveCall();
    return status;
}

PyObject *qbpy_treedef_text(const qbpy_treedef *treedef)
{
    walk at = {.word = treedef->words, .object = treedef->objects};
    PyObject *parts = PyList_New(0), *nothing = PyUnicode_FromString("");
    bool complete = parts && nothing && write_node(&at, parts) == 0;
    PyObject *text = complete ? PyUnicode_Join(nothing, parts) : NULL;
    Py_XDECREF(parts);
    Py_XDECREF(nothing);
    return text;
}
