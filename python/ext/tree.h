/* Pytrees: nested containers of leaves, seen as a structure and a row of leaves.
 *
 * Containers are exactly dict (keys visited sorted), list, tuple, None (empty), classes made by NamedTuple or
 * namedtuple, and registered classes; everything else is a leaf, subclasses of dict, list and tuple included.
 *
 * A structure is a preorder row of words, one per node, and the objects that the nodes need, in the same order:
 * comparing structures is a memcmp of words and a pointer comparison per object, and flattening into a qbpy_flat makes
 * no Python objects. */
#ifndef QUABLA_EXT_TREE_H
#define QUABLA_EXT_TREE_H

#include "quabla_ext.h"

/* A word: kind in the low 3 bits, number of children above. */
typedef enum qbpy_node_kind {
    QBPY_LEAF,
    QBPY_NONE,
    QBPY_DICT, /* objects: the keys, sorted */
    QBPY_LIST,
    QBPY_TUPLE,
    QBPY_NAMEDTUPLE, /* objects: the class */
    QBPY_DATACLASS,  /* objects: the registration, one object per meta field */
    QBPY_CUSTOM      /* objects: the registration, the metadata that its flatten_fn returned */
} qbpy_node_kind;

static inline qbpy_node_kind qbpy_kind_of(uint32_t word)
{
    return (qbpy_node_kind)(word & 7);
}

static inline int32_t qbpy_count_of(uint32_t word)
{
    return (int32_t)(word >> 3);
}

/* The number of objects that belong to a node, of which `objects` are the next. */
int32_t qbpy_objects_of(uint32_t word, PyObject *const *objects);

/* One step of the hashes of structures, signatures and static values: Fibonacci hashing (Knuth, TAOCP 3, 6.4). */
static inline uint64_t qbpy_mix(uint64_t hash, uint64_t part)
{
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

enum { QBPY_FLAT_INLINE = 48 };

/* The result of flattening: holds strong references to leaves and objects until qbpy_flat_clear. Lives on the C stack;
 * must not be moved or copied while in use (small trees are stored inside it). */
typedef struct qbpy_flat {
    PyObject **leaves;
    uint32_t *words;
    PyObject **objects;
    int32_t leaf_count, leaf_capacity;
    int32_t word_count, word_capacity;
    int32_t object_count, object_capacity;
    uint64_t hash; /* of words and objects, in this order of nodes */
    PyObject *leaf_space[QBPY_FLAT_INLINE];
    PyObject *object_space[QBPY_FLAT_INLINE];
    uint32_t word_space[QBPY_FLAT_INLINE];
} qbpy_flat;

/* A structure as a Python object: immutable, hashable, compared by structure. */
typedef struct qbpy_treedef {
    PyObject_HEAD uint64_t hash;
    int32_t leaf_count, word_count, object_count;
    uint32_t *words;
    PyObject **objects;
} qbpy_treedef;

/* A registered class; made by tree_register.c. */
typedef struct qbpy_registration {
    PyObject_HEAD PyObject *cls;
    PyObject *flatten, *unflatten;       /* of QBPY_CUSTOM, else NULL */
    PyObject *data_fields, *meta_fields; /* of QBPY_DATACLASS: tuples of names, else NULL */
    PyObject *create;                    /* object.__new__ */
} qbpy_registration;

void qbpy_flat_init(qbpy_flat *flat);
void qbpy_flat_clear(qbpy_flat *flat); /* drops the references; init again before another use */

/* Appends the structure and leaves of `tree`. May be called again to append further trees. 0, or -1 with an exception
 * set: then what was appended so far stays, and the caller clears. */
int qbpy_flatten(qbpy_state *state, PyObject *tree, qbpy_flat *flat);

/* Appends a tuple node whose `count` children the caller appends next: qbpy_flat_open(flat, nargs), then qbpy_flatten
 * for each argument, makes the structure of the tuple of arguments without making the tuple. */
int qbpy_flat_open(qbpy_flat *flat, int32_t count);

/* A call's arguments (as vectorcall passes them) as the tree (args tuple, kwargs dict), for which no objects are made.
 * Leaves of positional arguments come first; then keywords in sorted order. */
int qbpy_flatten_call(qbpy_state *state, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, qbpy_flat *flat);

int qbpy_flat_push_leaf(qbpy_flat *flat, PyObject *leaf);

/* A place in a flat: what has been appended so far. */
typedef struct qbpy_mark {
    int32_t leaf, word, object;
} qbpy_mark;

static inline qbpy_mark qbpy_flat_mark(const qbpy_flat *flat)
{
    return (qbpy_mark){flat->leaf_count, flat->word_count, flat->object_count};
}

/* The TreeDef (new reference) of one tree: what was appended between the two marks; the whole flat, when it holds one
 * tree. */
PyObject *qbpy_flat_treedef_between(qbpy_state *state, const qbpy_flat *flat, qbpy_mark from, qbpy_mark to);
PyObject *qbpy_flat_treedef(qbpy_state *state, const qbpy_flat *flat);

/* Whether the whole flat has the structure of `treedef`: 1 or 0; -1 when a user's __eq__ raised. */
int qbpy_flat_matches(const qbpy_flat *flat, const qbpy_treedef *treedef);
int qbpy_treedef_equal(const qbpy_treedef *a, const qbpy_treedef *b);

/* The tree of that structure with treedef->leaf_count leaves (borrowed). New reference. */
PyObject *qbpy_unflatten(qbpy_state *state, PyObject *treedef, PyObject *const *leaves);

/* Appends to `flat` (leaves only, no words) the subtree of `tree` at each leaf of `treedef`, which must be a prefix of
 * it. A mismatch is a ValueError "<function>: at params/w: expected ..., got ...". */
int qbpy_flatten_up_to(qbpy_state *state, const qbpy_treedef *treedef, PyObject *tree, const char *function,
                       qbpy_flat *flat);

/* The other way round: `prefix` is a tree whose leaves (None counts as a leaf) stand for whole subtrees of `treedef`;
 * appends to `flat`, for each leaf of `treedef`, the prefix leaf that covers it. For in_axes and out_axes. */
int qbpy_flatten_prefix(qbpy_state *state, const qbpy_treedef *treedef, PyObject *prefix, const char *function,
                        qbpy_flat *flat);

/* The keys on the way to a leaf as a tuple (dict keys, int positions, field names), and as text "params/layers/0/w"
 * ("" for a tree that is a leaf). qbpy_path_text leaves out the first `skip` keys. New references. */
PyObject *qbpy_leaf_keys(const qbpy_treedef *treedef, int32_t leaf);
/* The keys of all leaves, in order: a list of such tuples. New reference. */
PyObject *qbpy_all_leaf_keys(const qbpy_treedef *treedef);
PyObject *qbpy_path_text(PyObject *keys, Py_ssize_t skip);
PyObject *qbpy_leaf_path(const qbpy_treedef *treedef, int32_t leaf);
/* A leaf of (args, kwargs) as the caller knows it: "argument 0", "argument 'k' at 'w/0'". `statics` (or NULL): the
 * pairs (position or name, value) of arguments that were taken out before. */
PyObject *qbpy_argument_path(const qbpy_treedef *treedef, int32_t leaf, PyObject *statics);

/* The text of a structure: {'b': *, 'w': [*, None]}. */
PyObject *qbpy_treedef_text(const qbpy_treedef *treedef);

/* What an object is as a node; for a registered class also its registration (borrowed). -1: exception set. */
int qbpy_classify(qbpy_state *state, PyObject *object, qbpy_registration **registration);

/* Of an instance of a QBPY_CUSTOM class, what its flatten_fn returns: a new tuple (tuple of children, metadata). */
PyObject *qbpy_custom_parts(const qbpy_registration *registration, PyObject *object);
/* The children of an instance as a new tuple, if it has this metadata; otherwise NULL without an exception. */
PyObject *qbpy_registered_children(const qbpy_registration *registration, PyObject *object, PyObject *const *metadata);

int qbpy_tree_register_install(PyObject *module); /* tree_register.c: tree_register, tree_register_dataclass */

/* Static values (metadata, static arguments) as parts of cache keys: equal types and ==, where floats compare by their
 * bits (NaN is itself, 0.0 is not -0.0) and tuples by elements, so that 1, 1.0 and True differ. Equal values have
 * equal hashes. -1: exception set (TypeError for an unhashable value). */
int qbpy_static_equal(PyObject *a, PyObject *b);
int qbpy_static_hash(PyObject *value, uint64_t *out);

#endif
