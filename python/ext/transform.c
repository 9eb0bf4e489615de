/* Transform and Cache: the way of a call to its compiled program.
 *
 * A Transform wraps a user's function with a rule, `impl(fun, args, kwargs)`, which runs under a trace and says what the transform means
 * (python/quabla/transforms.py). A call flattens its arguments and then
 *   - under a trace with a tracer among the leaves: runs impl in that trace (transforms compose by being traced);
 *   - otherwise: looks its signature up in the Cache and runs the program found, or has one built.
 *
 * The signature is the structure of the arguments; dtype, shape and weakness of each array; type and bits of each Python number, which
 * is static unless its argument is differentiated; and the static arguments. Caches belong to the function and the configuration of
 * the transform, not to the Transform, so a transform made again in a loop finds its programs (transforms.py keeps the table). */
#include "base/tensor.h"
#include "trace.h"
#include "tree.h"

#include <structmember.h>

/* ---------------------------------------------------------------------------------------------------------- signature */

enum { SIGNATURE_INLINE = 64 };

/* One call's signature, on the C stack. */
typedef struct signature {
    qbpy_flat flat;
    uint64_t *words; /* of the leaves */
    int word_count, word_capacity;
    PyObject *statics; /* tuple of (position or name, value)..., or NULL */
    uint64_t hash;
    bool *is_input; /* per leaf: an array, or a number that becomes one */
    bool has_tracer;
    uint64_t word_space[SIGNATURE_INLINE];
    bool input_space[QBPY_FLAT_INLINE];
} signature;

enum { TAG_ARRAY = 1, TAG_FLOAT, TAG_INT, TAG_BOOL };

static void signature_init(signature *s)
{
    qbpy_flat_init(&s->flat);
    s->words = s->word_space;
    s->word_count = 0;
    s->word_capacity = SIGNATURE_INLINE;
    s->statics = NULL;
    s->is_input = s->input_space;
    s->has_tracer = false;
}

static void signature_clear(signature *s)
{
    qbpy_flat_clear(&s->flat);
    if (s->words != s->word_space)
        PyMem_Free(s->words);
    if (s->is_input != s->input_space)
        PyMem_Free(s->is_input);
    Py_XDECREF(s->statics);
}

static bool reserve_words(signature *s, int extra)
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

static void add_array(signature *s, qb_dtype dtype, bool weak, int rank, const int64_t *shape)
{
    s->words[s->word_count++] = TAG_ARRAY | (uint64_t)dtype << 8 | (uint64_t)weak << 16 | (uint64_t)rank << 24;
    for (int i = 0; i < rank; i++)
        s->words[s->word_count++] = (uint64_t)shape[i];
}

/* A Python number as a static value: type and bits, so that 1, 1.0 and True, 0.0 and -0.0 differ and NaN equals itself. 0: done; 1: not
 * such a number; -1: exception. */
static int add_number(signature *s, PyObject *leaf)
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

/* ---------------------------------------------------------------------------------------------------------- the types */

/* Entries are counted, since one may be evicted by another thread while its program runs without the GIL. */
typedef struct entry {
    int references;
    uint64_t hash;
    uint64_t last_use;
    PyObject *treedef; /* of the call */
    PyObject *statics; /* or NULL */
    uint64_t *words;
    int word_count;
    int input_count, output_count;
    qb_program *program;
    PyObject *out_treedef;
    bool *out_weak;
    bool out_is_leaf;
} entry;

typedef struct qbpy_cache {
    PyObject_HEAD
    entry **entries;
    int count, limit;
    uint64_t clock;
    PyObject *stages; /* dict for the front: traced graphs by signature */
} qbpy_cache;

typedef struct qbpy_transform {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *fun;   /* the user's function */
    PyObject *impl;  /* impl(fun, args, kwargs) -> result, run under a trace */
    PyObject *build; /* build(transform, treedef, leaves, is_input, statics) -> (Program, out_treedef), or (None, result) */
    qbpy_cache *cache;
    PyObject *number_argnums;  /* tuple: positional arguments whose Python numbers become arrays */
    PyObject *static_argnums;  /* tuple, or NULL */
    PyObject *static_argnames; /* frozenset, or NULL */
    PyObject *dict;
    PyObject *weakrefs;
} qbpy_transform;

static void entry_release(entry *e)
{
    if (!e || --e->references > 0)
        return;
    Py_XDECREF(e->treedef);
    Py_XDECREF(e->statics);
    Py_XDECREF(e->out_treedef);
    qb_program_release(e->program);
    PyMem_Free(e->words);
    PyMem_Free(e->out_weak);
    PyMem_Free(e);
}

/* ------------------------------------------------------------------------------------------- the signature of a call */

/* Whether the positional argument that holds `leaf` is one whose numbers become arrays. */
static int becomes_array(qbpy_state *state, const qbpy_transform *self, PyObject *const *args, Py_ssize_t nargs, int leaf)
{
    Py_ssize_t differentiated = PyTuple_GET_SIZE(self->number_argnums);
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
            Py_ssize_t argnum = PyLong_AsSsize_t(PyTuple_GET_ITEM(self->number_argnums, i));
            if (argnum == k || argnum + nargs == k)
                return 1;
        }
        return 0;
    }
    return 0;
}

/* Replaces the leaf by the Tensor that it converts to. */
static int convert_leaf(qbpy_state *state, signature *s, int i, int dtype)
{
    bool weak;
    qb_tensor *tensor = qbpy_to_tensor(state, s->flat.leaves[i], dtype, &weak);
    PyObject *wrapped = qbpy_tensor_wrap(state, tensor, false);
    if (!wrapped)
        return -1;
    Py_SETREF(s->flat.leaves[i], wrapped);
    return 0;
}

static void unknown_leaf(const signature *s, qbpy_state *state, int i)
{
    PyObject *treedef = qbpy_flat_treedef(state, &s->flat);
    PyObject *path = treedef ? qbpy_leaf_path((qbpy_treedef *)treedef, i) : NULL;
    if (path)
        PyErr_Format(PyExc_TypeError,
                     "argument at %R is of type %s, which is neither an array, a number, nor a known container: convert it, "
                     "register its class (qb.tree.register, qb.tree.register_dataclass), or name it in static_argnums",
                     path, Py_TYPE(s->flat.leaves[i])->tp_name);
    Py_XDECREF(treedef);
    Py_XDECREF(path);
}

static int add_leaf(qbpy_state *state, const qbpy_transform *self, PyObject *const *args, Py_ssize_t nargs, signature *s, int i)
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
        int array = becomes_array(state, self, args, nargs, i);
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

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

static int finish_signature(qbpy_state *state, const qbpy_transform *self, PyObject *const *args, Py_ssize_t nargs, signature *s)
{
    int count = s->flat.leaf_count;
    if (count > QBPY_FLAT_INLINE && !(s->is_input = PyMem_Malloc((size_t)count))) {
        s->is_input = s->input_space;
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < count; i++)
        if (add_leaf(state, self, args, nargs, s, i) < 0)
            return -1;
    uint64_t hash = s->flat.hash;
    for (int i = 0; i < s->word_count; i++)
        hash = mix(hash, s->words[i]);
    for (Py_ssize_t i = 0; s->statics && i < PyTuple_GET_SIZE(s->statics); i++) {
        uint64_t part;
        if (qbpy_static_hash(PyTuple_GET_ITEM(s->statics, i), &part) < 0)
            return -1;
        hash = mix(hash, part);
    }
    s->hash = hash;
    return 0;
}

/* -------------------------------------------------------------------------------------------------- finding a program */

static int statics_equal(PyObject *a, PyObject *b)
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

static int entry_matches(const entry *e, const signature *s)
{
    if (e->hash != s->hash || e->word_count != s->word_count ||
        memcmp(e->words, s->words, (size_t)s->word_count * sizeof *s->words) != 0)
        return 0;
    int same = qbpy_flat_matches(&s->flat, (qbpy_treedef *)e->treedef);
    return same > 0 ? statics_equal(e->statics, s->statics) : same;
}

/* The entry, or NULL (with an exception only if comparing raised one). */
static entry *cache_find(qbpy_cache *cache, const signature *s)
{
    for (int i = 0; i < cache->count; i++) {
        int same = entry_matches(cache->entries[i], s);
        if (same < 0)
            return NULL;
        if (same) {
            cache->entries[i]->last_use = ++cache->clock;
            return cache->entries[i];
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------------ running */

/* Programs of at least this many bytes of arguments and results run without the GIL. */
enum { RELEASE_BYTES = 1 << 14, FEW_TENSORS = 24 };

static PyObject *collect_outputs(qbpy_state *state, const entry *e, qb_tensor **outputs)
{
    PyObject *few[FEW_TENSORS], **leaves = few;
    if (e->output_count > FEW_TENSORS)
        leaves = PyMem_Calloc((size_t)e->output_count, sizeof *leaves);
    bool valid = leaves != NULL;
    int made = 0;
    for (int i = 0; i < e->output_count; i++) {
        PyObject *leaf = valid ? qbpy_tensor_wrap(state, outputs[i], e->out_weak[i]) : NULL;
        if (!valid)
            qb_tensor_release(outputs[i]);
        valid = valid && leaf;
        if (valid)
            leaves[made++] = leaf;
    }
    PyObject *result = NULL;
    if (valid)
        result = e->out_is_leaf ? Py_NewRef(leaves[0]) : qbpy_unflatten(state, e->out_treedef, leaves);
    else if (!PyErr_Occurred())
        PyErr_NoMemory();
    for (int i = 0; i < made; i++)
        Py_DECREF(leaves[i]);
    if (leaves != few)
        PyMem_Free(leaves);
    return result;
}

static PyObject *run_entry(qbpy_state *state, entry *e, const signature *s)
{
    qb_tensor *few[FEW_TENSORS], **tensors = few;
    int total = e->input_count + e->output_count;
    if (total > FEW_TENSORS && !(tensors = PyMem_Malloc((size_t)total * sizeof *tensors)))
        return PyErr_NoMemory();
    size_t bytes = 0;
    int count = 0;
    for (int i = 0; i < s->flat.leaf_count; i++)
        if (s->is_input[i]) {
            tensors[count] = qbpy_tensor_get(s->flat.leaves[i]);
            bytes += qb_tensor_bytes(tensors[count++]);
        }
    e->references++;
    qb_tensor **outputs = tensors + e->input_count;
    qb_status status;
    if (bytes < RELEASE_BYTES) {
        status = qb_run(e->program, tensors, outputs);
    } else {
        Py_BEGIN_ALLOW_THREADS
        status = qb_run(e->program, tensors, outputs);
        Py_END_ALLOW_THREADS
    }
    PyObject *result = status == QB_OK ? collect_outputs(state, e, outputs) : qbpy_raise(state, status);
    entry_release(e);
    if (tensors != few)
        PyMem_Free(tensors);
    return result;
}

/* ----------------------------------------------------------------------------------------------------------- building */

static void describe(qb_shape_text *out, const uint64_t *words)
{
    int64_t shape[QB_MAX_RANK];
    int rank = (int)(words[0] >> 24);
    for (int i = 0; i < rank; i++)
        shape[i] = (int64_t)words[1 + i];
    *out = qb_print_type((qb_dtype)(words[0] >> 8 & 0xff), rank, shape);
}

/* The signature in words: "(float64[8], float64[], 3)". */
static PyObject *describe_signature(const uint64_t *words, int count)
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

/* Takes the least recently used entry out, with a warning that names both signatures. -1: the warning was made an error. */
static int evict(qbpy_state *state, const qbpy_transform *self, const signature *s)
{
    qbpy_cache *cache = self->cache;
    int oldest = 0;
    for (int i = 1; i < cache->count; i++)
        if (cache->entries[i]->last_use < cache->entries[oldest]->last_use)
            oldest = i;
    entry *evicted = cache->entries[oldest];
    cache->entries[oldest] = cache->entries[--cache->count];
    PyObject *old = describe_signature(evicted->words, evicted->word_count);
    PyObject *new = old ? describe_signature(s->words, s->word_count) : NULL;
    int status = -1;
    if (new)
        status = PyErr_WarnFormat(state->RetraceWarning, 1,
                                  "%R has been traced for more than max_traces=%d signatures: %U was evicted for %U. Call it with fewer "
                                  "shapes, dtypes and static values, pass changing Python numbers as arrays, or raise max_traces",
                                  self->fun, cache->limit, old, new);
    Py_XDECREF(old);
    Py_XDECREF(new);
    entry_release(evicted);
    return status;
}

static entry *make_entry(qbpy_state *state, const signature *s, PyObject *program, PyObject *out_treedef)
{
    entry *e = PyMem_Calloc(1, sizeof *e);
    if (!e)
        return (entry *)PyErr_NoMemory();
    qbpy_program *compiled = (qbpy_program *)program;
    e->references = 1;
    e->hash = s->hash;
    e->word_count = s->word_count;
    e->input_count = compiled->input_count;
    e->output_count = compiled->output_count;
    e->program = qb_program_retain(compiled->program);
    e->statics = Py_XNewRef(s->statics);
    e->out_treedef = Py_NewRef(out_treedef);
    e->out_is_leaf = ((qbpy_treedef *)out_treedef)->word_count == 1 && ((qbpy_treedef *)out_treedef)->leaf_count == 1;
    e->words = PyMem_Malloc((size_t)s->word_count * sizeof *e->words + 1);
    e->out_weak = PyMem_Malloc((size_t)e->output_count + 1);
    e->treedef = qbpy_flat_treedef(state, &s->flat);
    if (!e->words || !e->out_weak || !e->treedef) {
        entry_release(e);
        return PyErr_Occurred() ? NULL : (entry *)PyErr_NoMemory();
    }
    memcpy(e->words, s->words, (size_t)s->word_count * sizeof *e->words);
    memcpy(e->out_weak, compiled->weak, (size_t)e->output_count);
    return e;
}

/* Unless another thread has traced the same signature meanwhile. Takes the reference, also when it fails. */
static int cache_insert(qbpy_state *state, const qbpy_transform *self, const signature *s, entry *e)
{
    qbpy_cache *cache = self->cache;
    if (cache_find(cache, s) || PyErr_Occurred()) {
        entry_release(e);
        return PyErr_Occurred() ? -1 : 0;
    }
    if (cache->count == cache->limit && evict(state, self, s) < 0) {
        entry_release(e);
        return -1;
    }
    cache->entries[cache->count++] = e;
    e->last_use = ++cache->clock;
    return 0;
}

/* A list of the leaves, and which of them are inputs, for build. */
static PyObject *build_arguments(qbpy_state *state, const qbpy_transform *self, const signature *s)
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

static PyObject *build_and_run(qbpy_state *state, const qbpy_transform *self, const signature *s)
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
    if (program == Py_None) { /* the function captured tracers of an enclosing trace: its result is part of that trace */
        result = Py_NewRef(second);
    } else {
        entry *e = make_entry(state, s, program, second);
        if (e) {
            e->references++;
            if (cache_insert(state, self, s, e) == 0)
                result = run_entry(state, e, s);
            entry_release(e);
        }
    }
    Py_DECREF(built);
    return result;
}

/* -------------------------------------------------------------------------------------------------------- the call */

/* Splits static arguments off: dynamic positional and keyword arguments stay in order in `args` (scratch, borrowed), their keyword names
 * in *kwnames (a new reference or NULL). */
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

static PyObject *dispatch(qbpy_state *state, const qbpy_transform *self, signature *s, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames, bool *traced)
{
    *traced = false;
    if (qbpy_flatten_call(state, args, nargs, kwnames, &s->flat) < 0 || finish_signature(state, self, args, nargs, s) < 0)
        return NULL;
    if (s->has_tracer) {
        *traced = true;
        return NULL;
    }
    entry *e = cache_find(self->cache, s);
    if (e)
        return run_entry(state, e, s);
    return PyErr_Occurred() ? NULL : build_and_run(state, self, s);
}

static PyObject *transform_call(PyObject *callable, PyObject *const *given, size_t nargsf, PyObject *given_names)
{
    const qbpy_transform *self = (qbpy_transform *)callable;
    qbpy_state *state = qbpy_state_of_object(callable);
    Py_ssize_t nargs = PyVectorcall_NARGS(nargsf), dynamic = nargs;
    PyObject *const *args = given;
    PyObject *kwnames = given_names, *own_names = NULL, **scratch = NULL;
    signature s;
    signature_init(&s);
    bool traced = false, valid = true;
    if (self->static_argnums) {
        Py_ssize_t total = nargs + (given_names ? PyTuple_GET_SIZE(given_names) : 0);
        dynamic = 0;
        scratch = PyMem_Malloc((size_t)total * sizeof *scratch + 1);
        valid = scratch && split_statics(self, given, nargs, given_names, scratch, &dynamic, &own_names, &s.statics) == 0;
        args = scratch;
        kwnames = own_names;
        if (!scratch)
            PyErr_NoMemory();
    }
    PyObject *result = valid ? dispatch(state, self, &s, args, dynamic, kwnames, &traced) : NULL;
    signature_clear(&s);
    Py_XDECREF(own_names);
    PyMem_Free(scratch);
    return traced ? call_impl(self, given, nargs, given_names) : result;
}

/* ------------------------------------------------------------------------------------------------------ Transform type */


static PyObject *transform_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"fun", "impl", "build", "cache", "number_argnums", "static_argnums", "static_argnames", NULL};
    PyObject *fun, *impl, *build, *cache, *numbers = NULL, *static_argnums = NULL, *static_argnames = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|O!O!O!", keywords, &fun, &impl, &build, &cache, &PyTuple_Type, &numbers,
                                     &PyTuple_Type, &static_argnums, &PyFrozenSet_Type, &static_argnames))
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

/* __name__, __qualname__, __module__ and their like are the wrapped function's. (The type has a __module__ of its own.) */
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

static PyMemberDef transform_members[] = {
    {"__wrapped__", T_OBJECT, offsetof(qbpy_transform, fun), READONLY, NULL},
    {"impl", T_OBJECT, offsetof(qbpy_transform, impl), READONLY, NULL},
    {"cache", T_OBJECT, offsetof(qbpy_transform, cache), READONLY, NULL},
    {"number_argnums", T_OBJECT, offsetof(qbpy_transform, number_argnums), READONLY, NULL},
    {"static_argnums", T_OBJECT, offsetof(qbpy_transform, static_argnums), READONLY, NULL},
    {"static_argnames", T_OBJECT, offsetof(qbpy_transform, static_argnames), READONLY, NULL},
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
    {0, NULL},
};

static PyType_Spec transform_spec = {
    .name = "quabla._core.Transform",
    .basicsize = sizeof(qbpy_transform),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = transform_slots,
};

/* ---------------------------------------------------------------------------------------------------------- Cache type */

static PyObject *cache_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *keywords[] = {"max_traces", NULL};
    int limit;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i", keywords, &limit))
        return NULL;
    if (limit < 1) {
        PyErr_Format(PyExc_ValueError, "max_traces must be at least 1, got %d", limit);
        return NULL;
    }
    qbpy_cache *self = (qbpy_cache *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->limit = limit;
    self->entries = PyMem_Calloc((size_t)limit, sizeof(entry *));
    self->stages = PyDict_New();
    if (!self->entries || !self->stages) {
        Py_DECREF(self);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static int cache_traverse(PyObject *object, visitproc visit, void *arg)
{
    qbpy_cache *self = (qbpy_cache *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->stages);
    for (int i = 0; i < self->count; i++) {
        Py_VISIT(self->entries[i]->treedef);
        Py_VISIT(self->entries[i]->statics);
        Py_VISIT(self->entries[i]->out_treedef);
    }
    return 0;
}

static int cache_clear(PyObject *object)
{
    qbpy_cache *self = (qbpy_cache *)object;
    int count = self->count;
    self->count = 0;
    for (int i = 0; i < count; i++)
        entry_release(self->entries[i]);
    Py_CLEAR(self->stages);
    return 0;
}

static void cache_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (((qbpy_cache *)object)->entries)
        (void)cache_clear(object);
    PyMem_Free(((qbpy_cache *)object)->entries);
    type->tp_free(object);
    Py_DECREF(type);
}

static Py_ssize_t cache_length(PyObject *object)
{
    return ((qbpy_cache *)object)->count;
}

static PyMemberDef cache_members[] = {
    {"stages", T_OBJECT, offsetof(qbpy_cache, stages), READONLY, "Traced graphs by signature, kept by the transforms."},
    {"max_traces", T_INT, offsetof(qbpy_cache, limit), READONLY, "Most programs kept."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot cache_slots[] = {
    {Py_tp_doc, "Cache(max_traces)\n--\n\nThe programs of one function under one configuration of a transform."},
    {Py_tp_new, (void *)cache_new},
    {Py_tp_dealloc, (void *)cache_dealloc},
    {Py_tp_traverse, (void *)cache_traverse},
    {Py_tp_clear, (void *)cache_clear},
    {Py_tp_members, cache_members},
    {Py_sq_length, (void *)cache_length},
    {0, NULL},
};

static PyType_Spec cache_spec = {
    .name = "quabla._core.Cache",
    .basicsize = sizeof(qbpy_cache),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = cache_slots,
};

int qbpy_transform_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    if (!(state->transform_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &transform_spec, NULL)) ||
        !(state->cache_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &cache_spec, NULL)))
        return -1;
    return PyModule_AddType(module, state->transform_type) < 0 || PyModule_AddType(module, state->cache_type) < 0 ? -1 : 0;
}
