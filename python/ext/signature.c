/* Signatures of calls. */
#include "signature.h"

#include "base/tensor.h"
#include "trace.h"

enum { TAG_ARRAY = 1, TAG_FLOAT, TAG_INT, TAG_BOOL };

void qbpy_signature_init(qbpy_signature *s)
{
    qbpy_flat_init(&s->flat);
    s->words = s->word_space;
    s->word_count = 0;
    s->word_capacity = QBPY_SIGNATURE_INLINE;
    s->statics = NULL;
    s->is_input = s->input_space;
    s->has_tracer = false;
}

void qbpy_signature_clear(qbpy_signature *s)
{
    qbpy_flat_clear(&s->flat);
    if (s->words != s->word_space)
        PyMem_Free(s->words);
    if (s->is_input != s->input_space)
        PyMem_Free(s->is_input);
    Py_XDECREF(s->statics);
}

static bool reserve_words(qbpy_signature *s, int extra)
{
    if (s->word_count + extra <= s->word_capacity)
        return true;
    int capacity = 2 * (s->word_count + extra);
    uint64_t *moved = s->words == s->word_space ? PyMem_Malloc((size_t)capacity * sizeof *moved)
                                                : PyMem_Realloc(s->words, (size_t)capacity * sizeof *moved);
    if (!moved) {
        PyErr_NoMemory();
        return false;
    }
    if (s->words == s->word_space)
        memcpy(moved, s->word_space, (size_t)s->word_count * sizeof *moved);
    s->words = moved;
    s->word_capacity = capacity;
    return true;
}

static void add_array(qbpy_signature *s, qb_dtype dtype, bool weak, int rank, const int64_t *shape)
{
    s->words[s->word_count++] = TAG_ARRAY | (uint64_t)dtype << 8 | (uint64_t)weak << 16 | (uint64_t)rank << 24;
    for (int i = 0; i < rank; i++)
        s->words[s->word_count++] = (uint64_t)shape[i];
}

/* A Python number as a static value: type and bits, so that 1, 1.0 and True, 0.0 and -0.0 differ and NaN equals itself.
 * 0: done; 1: not such a number; -1: exception. */
static int add_number(qbpy_signature *s, PyObject *leaf)
{
    if (PyFloat_Check(leaf)) {
        double number = PyFloat_AS_DOUBLE(leaf);
        s->words[s->word_count++] = TAG_FLOAT;
        memcpy(&s->words[s->word_count++], &number, sizeof number);
        return 0;
    }
    if (!PyLong_Check(leaf))
        return 1;
    int overflow;
    long long number = PyLong_AsLongLongAndOverflow(leaf, &overflow);
    if (overflow) {
        PyErr_SetString(PyExc_ValueError, "an int argument beyond the range of int64; pass it as a static argument "
                                          "(static_argnums) or as an array");
        return -1;
    }
    s->words[s->word_count++] = PyBool_Check(leaf) ? TAG_BOOL : TAG_INT;
    s->words[s->word_count++] = (uint64_t)number;
    return 0;
}

/* Whether the positional argument that holds `leaf` is one whose numbers become arrays. */
static int becomes_array(qbpy_state *state, PyObject *number_argnums, PyObject *const *args, Py_ssize_t nargs, int leaf)
{
    Py_ssize_t differentiated = PyTuple_GET_SIZE(number_argnums);
    int before = 0;
    for (Py_ssize_t k = 0; differentiated && k < nargs; k++) {
        qbpy_flat flat;
        qbpy_flat_init(&flat);
        int status = qbpy_flatten(state, args[k], &flat);
        before += flat.leaf_count;
        qbpy_flat_clear(&flat);
        if (status < 0)
            return -1;
        if (leaf >= before)
            continue;
        for (Py_ssize_t i = 0; i < differentiated; i++) {
            Py_ssize_t argnum = PyLong_AsSsize_t(PyTuple_GET_ITEM(number_argnums, i));
            if (argnum == k || argnum + nargs == k)
                return 1;
        }
        return 0;
    }
    return 0;
}

/* Which argument a leaf is, in words. */
static PyObject *path_of_leaf(qbpy_state *state, const qbpy_signature *s, int i)
{
    PyObject *treedef = qbpy_flat_treedef(state, &s->flat);
    PyObject *path = treedef ? qbpy_argument_path((qbpy_treedef *)treedef, i, s->statics) : NULL;
    Py_XDECREF(treedef);
    return path;
}

/* Converts anew what could not be converted, now with the name of the argument for the message. */
static qb_tensor *convert_by_name(qbpy_state *state, const qbpy_signature *s, int i, int dtype)
{
    if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError))
        return NULL;
    PyErr_Clear();
    PyObject *path = path_of_leaf(state, s, i);
    const char *name = path ? PyUnicode_AsUTF8(path) : NULL;
    qb_tensor *tensor = name ? qbpy_to_tensor(state, name, s->flat.leaves[i], dtype, NULL) : NULL;
    Py_XDECREF(path);
    return tensor;
}

/* Replaces the leaf by the Tensor that it converts to. */
static int convert_leaf(qbpy_state *state, qbpy_signature *s, int i, int dtype)
{
    qb_tensor *tensor = qbpy_to_tensor(state, "argument", s->flat.leaves[i], dtype, NULL);
    PyObject *wrapped = qbpy_tensor_wrap(state, tensor ? tensor : convert_by_name(state, s, i, dtype), false);
    if (!wrapped)
        return -1;
    Py_SETREF(s->flat.leaves[i], wrapped);
    return 0;
}

static void unknown_leaf(const qbpy_signature *s, qbpy_state *state, int i)
{
    PyObject *path = path_of_leaf(state, s, i);
    if (path)
        PyErr_Format(PyExc_TypeError,
                     "%U is of type %s, which is neither an array, a number, nor a known container: convert it, "
                     "register its class (qb.tree.register, qb.tree.register_dataclass), or have jit pass it as it is "
                     "(static_argnums; 0 for the self of a method)",
                     path, Py_TYPE(s->flat.leaves[i])->tp_name);
    Py_XDECREF(path);
}

/* A TypeError of a static value that has no hash is told of the argument. */
static void unhashable_static(PyObject *pair)
{
    if (!PyErr_ExceptionMatches(PyExc_TypeError))
        return;
    PyErr_Format(PyExc_TypeError,
                 "argument %R is static, but unhashable (%.200s): a static argument says which program is run; pass a "
                 "tuple instead of a list, and arrays as ordinary arguments",
                 PyTuple_GET_ITEM(pair, 0), Py_TYPE(PyTuple_GET_ITEM(pair, 1))->tp_name);
}

static int add_leaf(qbpy_state *state, PyObject *number_argnums, PyObject *const *args, Py_ssize_t nargs,
                    qbpy_signature *s, int i)
{
    PyObject *leaf = s->flat.leaves[i];
    if (!reserve_words(s, QB_MAX_RANK + 2))
        return -1;
    s->is_input[i] = true;
    if (qbpy_is_tensor(state, leaf)) {
        const qb_tensor *tensor = qbpy_tensor_get(leaf);
        add_array(s, tensor->dtype, ((qbpy_tensor *)leaf)->weak, tensor->rank, tensor->shape);
        return 0;
    }
    if (qbpy_is_tracer(state, leaf)) {
        s->has_tracer = true;
        return 0;
    }
    if (PyFloat_Check(leaf) || PyLong_Check(leaf)) {
        int array = becomes_array(state, number_argnums, args, nargs, i);
        if (array <= 0) {
            s->is_input[i] = false;
            return array < 0 ? -1 : add_number(s, leaf);
        }
        if (convert_leaf(state, s, i, QB_FLOAT64) < 0)
            return -1;
    } else if (!qbpy_is_arraylike(state, leaf)) {
        unknown_leaf(s, state, i);
        return -1;
    } else if (convert_leaf(state, s, i, -1) < 0) {
        return -1;
    }
    const qb_tensor *tensor = qbpy_tensor_get(s->flat.leaves[i]);
    add_array(s, tensor->dtype, false, tensor->rank, tensor->shape);
    return 0;
}

int qbpy_signature_finish(qbpy_state *state, PyObject *number_argnums, PyObject *const *args, Py_ssize_t nargs,
                          qbpy_signature *s)
{
    int count = s->flat.leaf_count;
    if (count > QBPY_FLAT_INLINE && !(s->is_input = PyMem_Malloc((size_t)count))) {
        s->is_input = s->input_space;
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < count; i++)
        if (add_leaf(state, number_argnums, args, nargs, s, i) < 0)
            return -1;
    uint64_t hash = s->flat.hash;
    for (int i = 0; i < s->word_count; i++)
        hash = qbpy_mix(hash, s->words[i]);
    for (Py_ssize_t i = 0; s->statics && i < PyTuple_GET_SIZE(s->statics); i++) {
        uint64_t part;
        if (qbpy_static_hash(PyTuple_GET_ITEM(s->statics, i), &part) < 0) {
            unhashable_static(PyTuple_GET_ITEM(s->statics, i));
            return -1;
        }
        hash = qbpy_mix(hash, part);
    }
    s->hash = hash;
    return 0;
}

int qbpy_statics_equal(PyObject *a, PyObject *b)
{
    if (!a || !b)
        return a == b;
    Py_ssize_t count = PyTuple_GET_SIZE(a);
    if (count != PyTuple_GET_SIZE(b))
        return 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        int equal = qbpy_static_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
        if (equal <= 0)
            return equal;
    }
    return 1;
}

/* ---- In words */

static void describe(qb_shape_text *out, const uint64_t *words)
{
    int64_t shape[QB_MAX_RANK];
    int rank = (int)(words[0] >> 24);
    for (int i = 0; i < rank; i++)
        shape[i] = (int64_t)words[1 + i];
    *out = qb_print_type((qb_dtype)(words[0] >> 8 & 0xff), rank, shape);
}

/* The signature in words: "(float64[8], float64[], 3)". */
PyObject *qbpy_signature_describe(const uint64_t *words, int count)
{
    PyObject *parts = PyList_New(0);
    for (int i = 0; parts && i < count;) {
        PyObject *part = NULL;
        qb_shape_text text;
        double number;
        switch (words[i] & 0xff) {
        case TAG_ARRAY:
            describe(&text, words + i);
            part = PyUnicode_FromString(text.text);
            i += 1 + (int)(words[i] >> 24);
            break;
        case TAG_FLOAT:
            memcpy(&number, &words[i + 1], sizeof number);
            PyObject *value = PyFloat_FromDouble(number);
            part = value ? PyObject_Repr(value) : NULL;
            Py_XDECREF(value);
            i += 2;
            break;
        default:
            part = words[i] == TAG_BOOL ? PyUnicode_FromString(words[i + 1] ? "True" : "False")
                                        : PyUnicode_FromFormat("%lld", (long long)words[i + 1]);
            i += 2;
        }
        if (!part || PyList_Append(parts, part) < 0)
            Py_CLEAR(parts);
        Py_XDECREF(part);
    }
    PyObject *comma = parts ? PyUnicode_FromString(", ") : NULL;
    PyObject *joined = comma ? PyUnicode_Join(comma, parts) : NULL;
    PyObject *text = joined ? PyUnicode_FromFormat("(%U)", joined) : NULL;
    Py_XDECREF(parts);
    Py_XDECREF(comma);
    Py_XDECREF(joined);
    return text;
}
