/* Pytrees: flattening, structures as rows of words, and going back. The interface is in tree.h.
 *
 * Flattening appends to a qbpy_flat: a word per node in preorder, the objects that nodes need, the leaves. Nothing is
 * allocated for a tree of ordinary size, and no Python object is made except by the functions of registered classes.
 * Those run a user's code, which may change the containers being walked: so items are held while they are visited, and
 * lengths checked again. */
#include "tree.h"

#include <string.h>

static uint32_t word_of(qbpy_node_kind kind, Py_ssize_t count)
{
    return (uint32_t)kind | (uint32_t)count << 3;
}

/* -------------------------------------------------------------------------------------------------------- appending */

void qbpy_flat_init(qbpy_flat *flat)
{
    flat->leaves = flat->leaf_space;
    flat->objects = flat->object_space;
    flat->words = flat->word_space;
    flat->leaf_count = flat->object_count = flat->word_count = 0;
    flat->leaf_capacity = flat->object_capacity = flat->word_capacity = QBPY_FLAT_INLINE;
    flat->hash = 0;
}

void qbpy_flat_clear(qbpy_flat *flat)
{
    for (int32_t i = 0; i < flat->leaf_count; i++)
        Py_DECREF(flat->leaves[i]);
    for (int32_t i = 0; i < flat->object_count; i++)
        Py_DECREF(flat->objects[i]);
    if (flat->leaves != flat->leaf_space)
        PyMem_Free(flat->leaves);
    if (flat->objects != flat->object_space)
        PyMem_Free(flat->objects);
    if (flat->words != flat->word_space)
        PyMem_Free(flat->words);
}

/* Makes room for `more` elements in an array that begins inside the struct and moves to the heap when it outgrows
 * that. */
static int grow(void **array, const void *inline_space, size_t element, int32_t count, int32_t *capacity,
                Py_ssize_t more)
{
    Py_ssize_t wanted = 2 * ((Py_ssize_t)count + more);
    if (wanted > INT32_MAX / 16) {
        PyErr_SetString(PyExc_ValueError, "a tree of more than 2^26 nodes");
        return -1;
    }
    void *grown = *array == inline_space ? PyMem_Malloc((size_t)wanted * element)
                                         : PyMem_Realloc(*array, (size_t)wanted * element);
    if (!grown) {
        PyErr_NoMemory();
        return -1;
    }
    if (*array == inline_space)
        memcpy(grown, inline_space, (size_t)count * element);
    *array = grown;
    *capacity = (int32_t)wanted;
    return 0;
}

#define MAKE_ROOM(flat, array, noun, more)                                                                             \
    ((flat)->noun##_count + (more) <= (flat)->noun##_capacity                                                          \
         ? 0                                                                                                           \
         : grow((void **)&(flat)->array, (flat)->noun##_space, sizeof *(flat)->array, (flat)->noun##_count,            \
                &(flat)->noun##_capacity, (more)))

static inline int push_word(qbpy_flat *flat, uint32_t word)
{
    if (MAKE_ROOM(flat, words, word, 1) < 0)
        return -1;
    flat->words[flat->word_count++] = word;
    flat->hash = qbpy_mix(flat->hash, word);
    return 0;
}

static inline int push_node(qbpy_flat *flat, qbpy_node_kind kind, Py_ssize_t count)
{
    if (count > INT32_MAX / 16) {
        PyErr_SetString(PyExc_ValueError, "a tree with a container of more than 2^26 items");
        return -1;
    }
    return push_word(flat, word_of(kind, count));
}

static inline int push_leaf(qbpy_flat *flat, PyObject *leaf)
{
    if (MAKE_ROOM(flat, leaves, leaf, 1) < 0)
        return -1;
    flat->leaves[flat->leaf_count++] = Py_NewRef(leaf);
    return 0;
}

int qbpy_flat_push_leaf(qbpy_flat *flat, PyObject *leaf)
{
    return push_leaf(flat, leaf);
}

static int push_object(qbpy_flat *flat, PyObject *object)
{
    if (MAKE_ROOM(flat, objects, object, 1) < 0)
        return -1;
    flat->objects[flat->object_count++] = Py_NewRef(object);
    return 0;
}

/* Adds an object of a node to a hash. Strings, nearly all of them, keep their hash themselves. */
static inline int hash_object(PyObject *object, uint64_t *hash)
{
    uint64_t part;
    if (PyUnicode_CheckExact(object)) {
        Py_hash_t known = ((PyASCIIObject *)object)->hash;
        part = (uint64_t)(known != -1 ? known : PyObject_Hash(object));
    } else if (qbpy_static_hash(object, &part) < 0) {
        return -1;
    }
    *hash = qbpy_mix(*hash, part);
    return 0;
}

static int fail_changed(void)
{
    PyErr_SetString(PyExc_RuntimeError, "a container changed while the tree was flattened");
    return -1;
}

/* ------------------------------------------------------------------------------------------------------ sorted keys */

static int compare_strings(PyObject *a, PyObject *b)
{
    if (PyUnicode_IS_COMPACT_ASCII(a) && PyUnicode_IS_COMPACT_ASCII(b)) {
        Py_ssize_t length_a = PyUnicode_GET_LENGTH(a), length_b = PyUnicode_GET_LENGTH(b);
        int order = memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b), (size_t)(length_a < length_b ? length_a : length_b));
        return order ? order : length_a < length_b ? -1 : length_a > length_b;
    }
    return PyUnicode_Compare(a, b);
}

enum { SMALL_DICT = 16 };

static int sort_strings(PyObject **keys, Py_ssize_t count)
{
    for (Py_ssize_t i = 1; i < count; i++) {
        PyObject *key = keys[i];
        Py_ssize_t at = i;
        for (; at > 0 && compare_strings(keys[at - 1], key) > 0; at--)
            keys[at] = keys[at - 1];
        keys[at] = key;
    }
    return 0;
}

/* Through list.sort: any keys, any number. The keys stay the same objects, so their references stay where they are. */
static int sort_any(PyObject **keys, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    if (!list)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(keys[i]));
    int status = PyList_Sort(list);
    if (status < 0 && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError,
                     "the keys of a dict in a tree are visited sorted, but these cannot be sorted: %.200R", list);
    } else if (status == 0 && PyList_GET_SIZE(list) == count) {
        for (Py_ssize_t i = 0; i < count; i++)
            keys[i] = PyList_GET_ITEM(list, i);
    }
    Py_DECREF(list);
    return status;
}

/* Sorts the last `count` objects of the flat, keys of one dict, and adds them to its hash. */
static int sort_keys(qbpy_flat *flat, Py_ssize_t count)
{
    PyObject **keys = flat->objects + flat->object_count - count;
    bool strings = count <= SMALL_DICT;
    for (Py_ssize_t i = 0; strings && i < count; i++)
        strings = PyUnicode_CheckExact(keys[i]);
    if ((strings ? sort_strings(keys, count) : sort_any(keys, count)) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++)
        if (hash_object(keys[i], &flat->hash) < 0)
            return -1;
    return 0;
}

/* ------------------------------------------------------------------------------------------------------- flattening */

static int classify_other(qbpy_state *state, PyObject *object, qbpy_registration **registration)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    if (PyDict_GET_SIZE(state->tree_registry)) {
        PyObject *found = PyDict_GetItemWithError(state->tree_registry, type);
        if (found) {
            *registration = (qbpy_registration *)found;
            return (*registration)->data_fields ? QBPY_DATACLASS : QBPY_CUSTOM;
        }
        if (PyErr_Occurred())
            return -1;
    }
    if (!PyTuple_Check(object))
        return QBPY_LEAF;
    PyObject *fields = PyObject_GetAttr(type, state->str_fields);
    bool is_named = fields && PyTuple_Check(fields) && PyTuple_GET_SIZE(fields) == PyTuple_GET_SIZE(object);
    Py_XDECREF(fields);
    PyErr_Clear();
    return is_named ? QBPY_NAMEDTUPLE : QBPY_LEAF;
}

int qbpy_classify(qbpy_state *state, PyObject *object, qbpy_registration **registration)
{
    PyTypeObject *type = Py_TYPE(object);
    if (type == state->tensor_type || type == state->trace_tensor_type || type == &PyFloat_Type ||
        type == &PyLong_Type || type == &PyBool_Type)
        return QBPY_LEAF;
    if (type == &PyDict_Type)
        return QBPY_DICT;
    if (type == &PyList_Type)
        return QBPY_LIST;
    if (type == &PyTuple_Type)
        return QBPY_TUPLE;
    if (object == Py_None)
        return QBPY_NONE;
    return classify_other(state, object, registration);
}

static inline int flatten_child(qbpy_state *state, PyObject *child, qbpy_flat *flat)
{
    if (Py_IS_TYPE(child, state->tensor_type))
        return push_word(flat, word_of(QBPY_LEAF, 0)) < 0 ? -1 : push_leaf(flat, child);
    return qbpy_flatten(state, child, flat);
}

/* A dict of few keys, all of them strings: keys and values are sorted together, which saves looking the values up. 1
 * when there are other keys, and nothing is done. */
static int flatten_small_dict(qbpy_state *state, PyObject *dict, qbpy_flat *flat)
{
    PyObject *key, *value, *values[SMALL_DICT];
    Py_ssize_t count = 0, position = 0;
    PyObject **keys = flat->objects + flat->object_count;
    while (PyDict_Next(dict, &position, &key, &value)) {
        if (!PyUnicode_CheckExact(key)) {
            for (; count > 0; count--) {
                Py_DECREF(keys[count - 1]);
                Py_DECREF(values[count - 1]);
            }
            return 1;
        }
        Py_ssize_t at = count++;
        for (; at > 0 && compare_strings(keys[at - 1], key) > 0; at--) {
            keys[at] = keys[at - 1];
            values[at] = values[at - 1];
        }
        keys[at] = Py_NewRef(key);
        values[at] = Py_NewRef(value);
    }
    flat->object_count += (int32_t)count;
    int status = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        (void)hash_object(keys[i], &flat->hash); /* cannot fail for strings */
    for (Py_ssize_t i = 0; i < count; i++) {
        if (status == 0)
            status = flatten_child(state, values[i], flat);
        Py_DECREF(values[i]);
    }
    return status;
}

static int flatten_dict(qbpy_state *state, PyObject *dict, qbpy_flat *flat)
{
    Py_ssize_t count = PyDict_GET_SIZE(dict), position = 0;
    PyObject *key, *value;
    if (push_node(flat, QBPY_DICT, count) < 0 || MAKE_ROOM(flat, objects, object, count) < 0)
        return -1;
    int status = count <= SMALL_DICT ? flatten_small_dict(state, dict, flat) : 1;
    if (status <= 0)
        return status;
    int32_t first = flat->object_count;
    while (PyDict_Next(dict, &position, &key, &value))
        flat->objects[flat->object_count++] = Py_NewRef(key);
    if (sort_keys(flat, count) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        value = PyDict_GetItemWithError(dict, flat->objects[first + i]);
        if (!value)
            return PyErr_Occurred() ? -1 : fail_changed();
        Py_INCREF(value);
        status = flatten_child(state, value, flat);
        Py_DECREF(value);
        if (status < 0)
            return -1;
    }
    return 0;
}

static int flatten_list(qbpy_state *state, PyObject *list, qbpy_flat *flat)
{
    Py_ssize_t count = PyList_GET_SIZE(list);
    int status = push_node(flat, QBPY_LIST, count);
    for (Py_ssize_t i = 0; status == 0 && i < count; i++) {
        if (PyList_GET_SIZE(list) != count)
            return fail_changed();
        PyObject *item = Py_NewRef(PyList_GET_ITEM(list, i));
        status = flatten_child(state, item, flat);
        Py_DECREF(item);
    }
    return status;
}

static int flatten_items(qbpy_state *state, PyObject *tuple, qbpy_flat *flat)
{
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(tuple); i++)
        status = flatten_child(state, PyTuple_GET_ITEM(tuple, i), flat);
    return status;
}

/* Metadata becomes part of cache keys, so it must hash. */
static int push_metadata(qbpy_flat *flat, const qbpy_registration *registration, PyObject *name, PyObject *value)
{
    if (push_object(flat, value) < 0)
        return -1;
    if (hash_object(value, &flat->hash) == 0)
        return 0;
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError,
                     "metadata of %.200s must be hashable, since it is part of cache keys; %s%S is a %.200s",
                     ((PyTypeObject *)registration->cls)->tp_name, name ? "field " : "flatten_fn's ",
                     name ? name : registration->flatten, Py_TYPE(value)->tp_name);
    }
    return -1;
}

static int flatten_dataclass(qbpy_state *state, PyObject *object, const qbpy_registration *registration,
                             qbpy_flat *flat)
{
    PyObject *data = registration->data_fields, *meta = registration->meta_fields;
    if (push_node(flat, QBPY_DATACLASS, PyTuple_GET_SIZE(data)) < 0 ||
        push_object(flat, (PyObject *)registration) < 0 || hash_object(registration->cls, &flat->hash) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(meta); i++) {
        PyObject *value = PyObject_GetAttr(object, PyTuple_GET_ITEM(meta, i));
        int status = value ? push_metadata(flat, registration, PyTuple_GET_ITEM(meta, i), value) : -1;
        Py_XDECREF(value);
        if (status < 0)
            return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(data); i++) {
        PyObject *value = PyObject_GetAttr(object, PyTuple_GET_ITEM(data, i));
        int status = value ? qbpy_flatten(state, value, flat) : -1;
        Py_XDECREF(value);
        if (status < 0)
            return -1;
    }
    return 0;
}

static int flatten_custom(qbpy_state *state, PyObject *object, const qbpy_registration *registration, qbpy_flat *flat)
{
    PyObject *parts = qbpy_custom_parts(registration, object);
    if (!parts)
        return -1;
    PyObject *children = PyTuple_GET_ITEM(parts, 0);
    int status = push_node(flat, QBPY_CUSTOM, PyTuple_GET_SIZE(children));
    if (status == 0)
        status = push_object(flat, (PyObject *)registration);
    if (status == 0)
        status = hash_object(registration->cls, &flat->hash);
    if (status == 0)
        status = push_metadata(flat, registration, NULL, PyTuple_GET_ITEM(parts, 1));
    if (status == 0)
        status = flatten_items(state, children, flat);
    Py_DECREF(parts);
    return status;
}

static int flatten_container(qbpy_state *state, PyObject *tree, int kind, const qbpy_registration *registration,
                             qbpy_flat *flat)
{
    switch (kind) {
    case QBPY_DICT: return flatten_dict(state, tree, flat);
    case QBPY_LIST: return flatten_list(state, tree, flat);
    case QBPY_TUPLE:
        return push_node(flat, QBPY_TUPLE, PyTuple_GET_SIZE(tree)) < 0 ? -1 : flatten_items(state, tree, flat);
    case QBPY_NAMEDTUPLE:
        if (push_node(flat, QBPY_NAMEDTUPLE, PyTuple_GET_SIZE(tree)) < 0 ||
            push_object(flat, (PyObject *)Py_TYPE(tree)) < 0 || hash_object((PyObject *)Py_TYPE(tree), &flat->hash) < 0)
            return -1;
        return flatten_items(state, tree, flat);
    case QBPY_DATACLASS: return flatten_dataclass(state, tree, registration, flat);
    default: return flatten_custom(state, tree, registration, flat);
    }
}

int qbpy_flatten(qbpy_state *state, PyObject *tree, qbpy_flat *flat)
{
    qbpy_registration *registration = NULL;
    int kind = qbpy_classify(state, tree, &registration);
    if (kind < 0)
        return -1;
    if (kind == QBPY_LEAF)
        return push_word(flat, word_of(QBPY_LEAF, 0)) < 0 ? -1 : push_leaf(flat, tree);
    if (kind == QBPY_NONE)
        return push_word(flat, word_of(QBPY_NONE, 0));
    if (Py_EnterRecursiveCall(" while flattening a tree"))
        return -1;
    int status = flatten_container(state, tree, kind, registration, flat);
    Py_LeaveRecursiveCall();
    return status;
}

int qbpy_flat_open(qbpy_flat *flat, int32_t count)
{
    return push_node(flat, QBPY_TUPLE, count);
}

/* Keywords, of which the objects are sorted while the values stay where vectorcall has them. */
static int flatten_keywords(qbpy_state *state, PyObject *const *values, PyObject *kwnames, qbpy_flat *flat)
{
    Py_ssize_t count = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    if (push_node(flat, QBPY_DICT, count) < 0 || MAKE_ROOM(flat, objects, object, count) < 0)
        return -1;
    int32_t first = flat->object_count;
    for (Py_ssize_t i = 0; i < count; i++)
        flat->objects[flat->object_count++] = Py_NewRef(PyTuple_GET_ITEM(kwnames, i));
    if (sort_keys(flat, count) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t at = 0;
        while (PyTuple_GET_ITEM(kwnames, at) != flat->objects[first + i])
            at++;
        if (qbpy_flatten(state, values[at], flat) < 0)
            return -1;
    }
    return 0;
}

int qbpy_flatten_call(qbpy_state *state, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, qbpy_flat *flat)
{
    if (push_node(flat, QBPY_TUPLE, 2) < 0 || push_node(flat, QBPY_TUPLE, nargs) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < nargs; i++)
        if (qbpy_flatten(state, args[i], flat) < 0)
            return -1;
    return flatten_keywords(state, args + nargs, kwnames, flat);
}

/* ------------------------------------------------------------------------------------------------------- structures */

static int same_structure(const uint32_t *words_a, int32_t word_count_a, PyObject *const *objects_a,
                          int32_t object_count_a, const uint32_t *words_b, int32_t word_count_b,
                          PyObject *const *objects_b, int32_t object_count_b)
{
    if (word_count_a != word_count_b || object_count_a != object_count_b ||
        memcmp(words_a, words_b, (size_t)word_count_a * sizeof *words_a) != 0)
        return 0;
    for (int32_t i = 0; i < object_count_a; i++) {
        int equal = objects_a[i] == objects_b[i] ? 1 : qbpy_static_equal(objects_a[i], objects_b[i]);
        if (equal != 1)
            return equal;
    }
    return 1;
}

int qbpy_flat_matches(const qbpy_flat *flat, const qbpy_treedef *treedef)
{
    return same_structure(flat->words, flat->word_count, flat->objects, flat->object_count, treedef->words,
                          treedef->word_count, treedef->objects, treedef->object_count);
}

int qbpy_treedef_equal(const qbpy_treedef *a, const qbpy_treedef *b)
{
    if (a == b)
        return 1;
    if (a->hash != b->hash)
        return 0;
    return same_structure(a->words, a->word_count, a->objects, a->object_count, b->words, b->word_count, b->objects,
                          b->object_count);
}

int32_t qbpy_objects_of(uint32_t word, PyObject *const *objects)
{
    switch (qbpy_kind_of(word)) {
    case QBPY_DICT: return qbpy_count_of(word);
    case QBPY_NAMEDTUPLE: return 1;
    case QBPY_DATACLASS: return 1 + (int32_t)PyTuple_GET_SIZE(((qbpy_registration *)objects[0])->meta_fields);
    case QBPY_CUSTOM: return 2;
    default: return 0;
    }
}

/* The hash that the flattening of this structure alone would have had. */
static int hash_structure(const qbpy_treedef *treedef, uint64_t *out)
{
    uint64_t hash = 0;
    PyObject **object = treedef->objects;
    for (int32_t i = 0; i < treedef->word_count; i++) {
        uint32_t word = treedef->words[i];
        qbpy_node_kind kind = qbpy_kind_of(word);
        hash = qbpy_mix(hash, word);
        for (int32_t left = qbpy_objects_of(word, object), first = 1; left > 0; left--, object++, first = 0) {
            bool is_registration = first && (kind == QBPY_DATACLASS || kind == QBPY_CUSTOM);
            if (hash_object(is_registration ? ((qbpy_registration *)*object)->cls : *object, &hash) < 0)
                return -1;
        }
    }
    *out = hash;
    return 0;
}

PyObject *qbpy_flat_treedef_between(qbpy_state *state, const qbpy_flat *flat, qbpy_mark from, qbpy_mark to)
{
    qbpy_treedef *treedef = PyObject_GC_New(qbpy_treedef, state->treedef_type);
    if (!treedef)
        return NULL;
    treedef->leaf_count = to.leaf - from.leaf;
    treedef->word_count = to.word - from.word;
    treedef->object_count = 0;
    size_t objects = (size_t)(to.object - from.object) * sizeof(PyObject *);
    size_t words = (size_t)treedef->word_count * sizeof(uint32_t);
    treedef->objects = PyMem_Malloc(objects + words);
    if (!treedef->objects) {
        Py_DECREF(treedef);
        return PyErr_NoMemory();
    }
    treedef->words = (uint32_t *)(treedef->objects + (to.object - from.object));
    memcpy(treedef->words, flat->words + from.word, words);
    for (int32_t i = from.object; i < to.object; i++)
        treedef->objects[treedef->object_count++] = Py_NewRef(flat->objects[i]);
    if (from.word == 0 && to.word == flat->word_count) {
        treedef->hash = flat->hash;
    } else if (hash_structure(treedef, &treedef->hash) < 0) {
        Py_DECREF(treedef);
        return NULL;
    }
    PyObject_GC_Track(treedef);
    return (PyObject *)treedef;
}

PyObject *qbpy_flat_treedef(qbpy_state *state, const qbpy_flat *flat)
{
    return qbpy_flat_treedef_between(state, flat, (qbpy_mark){0, 0, 0}, qbpy_flat_mark(flat));
}

/* ----------------------------------------------------------------------------------------------------- unflattening */

typedef struct cursor {
    const uint32_t *word;
    PyObject *const *object;
    PyObject *const *leaf;
} cursor;

static PyObject *build(cursor *at);

static PyObject *build_tuple(cursor *at, int32_t count)
{
    PyObject *tuple = PyTuple_New(count);
    for (int32_t i = 0; tuple && i < count; i++) {
        PyObject *item = build(at);
        if (!item)
            Py_CLEAR(tuple);
        else
            PyTuple_SET_ITEM(tuple, i, item);
    }
    return tuple;
}

static PyObject *build_list(cursor *at, int32_t count)
{
    PyObject *list = PyList_New(count);
    for (int32_t i = 0; list && i < count; i++) {
        PyObject *item = build(at);
        if (!item)
            Py_CLEAR(list);
        else
            PyList_SET_ITEM(list, i, item);
    }
    return list;
}

static PyObject *build_dict(cursor *at, int32_t count)
{
    PyObject *const *keys = at->object;
    PyObject *dict = PyDict_New();
    at->object += count;
    for (int32_t i = 0; dict && i < count; i++) {
        PyObject *item = build(at);
        if (!item || PyDict_SetItem(dict, keys[i], item) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(item);
    }
    return dict;
}

/* By tuple.__new__, as the class's own _make does, so that a __new__ of the user's sees no placeholders. */
static PyObject *build_namedtuple(cursor *at, int32_t count)
{
    PyTypeObject *type = (PyTypeObject *)*at->object++;
    PyObject *items = build_tuple(at, count);
    PyObject *arguments = items ? PyTuple_Pack(1, items) : NULL;
    PyObject *named = arguments ? PyTuple_Type.tp_new(type, arguments, NULL) : NULL;
    Py_XDECREF(arguments);
    Py_XDECREF(items);
    return named;
}

/* Without __init__, which may check or convert values that are tracers now: an instance gets its fields, no more. */
static PyObject *build_dataclass(cursor *at)
{
    const qbpy_registration *registration = (qbpy_registration *)*at->object++;
    PyObject *data = registration->data_fields, *meta = registration->meta_fields;
    PyObject *object = PyObject_CallOneArg(registration->create, registration->cls);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(meta); i++, at->object++)
        if (object && PyObject_GenericSetAttr(object, PyTuple_GET_ITEM(meta, i), *at->object) < 0)
            Py_CLEAR(object);
    for (Py_ssize_t i = 0; object && i < PyTuple_GET_SIZE(data); i++) {
        PyObject *item = build(at);
        if (!item || PyObject_GenericSetAttr(object, PyTuple_GET_ITEM(data, i), item) < 0)
            Py_CLEAR(object);
        Py_XDECREF(item);
    }
    return object;
}

static PyObject *build_custom(cursor *at, int32_t count)
{
    const qbpy_registration *registration = (qbpy_registration *)at->object[0];
    PyObject *metadata = at->object[1];
    at->object += 2;
    PyObject *children = build_tuple(at, count);
    PyObject *object =
        children ? PyObject_CallFunctionObjArgs(registration->unflatten, metadata, children, NULL) : NULL;
    Py_XDECREF(children);
    return object;
}

static PyObject *build_container(cursor *at, uint32_t word)
{
    int32_t count = qbpy_count_of(word);
    switch (qbpy_kind_of(word)) {
    case QBPY_DICT: return build_dict(at, count);
    case QBPY_LIST: return build_list(at, count);
    case QBPY_TUPLE: return build_tuple(at, count);
    case QBPY_NAMEDTUPLE: return build_namedtuple(at, count);
    case QBPY_DATACLASS: return build_dataclass(at);
    default: return build_custom(at, count);
    }
}

static PyObject *build(cursor *at)
{
    uint32_t word = *at->word++;
    if (qbpy_kind_of(word) == QBPY_LEAF)
        return Py_NewRef(*at->leaf++);
    if (qbpy_kind_of(word) == QBPY_NONE)
        Py_RETURN_NONE;
    if (Py_EnterRecursiveCall(" while unflattening a tree"))
        return NULL;
    PyObject *tree = build_container(at, word);
    Py_LeaveRecursiveCall();
    return tree;
}

PyObject *qbpy_unflatten(qbpy_state *Py_UNUSED(state), PyObject *treedef, PyObject *const *leaves)
{
    const qbpy_treedef *structure = (qbpy_treedef *)treedef;
    cursor at = {structure->words, structure->objects, leaves};
    return build(&at);
}
