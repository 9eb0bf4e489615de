/* Cache, and the entries that it keeps. */
#include "cache.h"

#include "base/tensor.h"
#include "program/program.h"
#include "trace.h"

#include <structmember.h>

void qbpy_entry_release(qbpy_entry *e)
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

/* ---- Finding a program */

static int entry_matches(const qbpy_entry *e, const qbpy_signature *s)
{
    if (e->hash != s->hash || e->word_count != s->word_count ||
        memcmp(e->words, s->words, (size_t)s->word_count * sizeof *s->words) != 0)
        return 0;
    int same = qbpy_flat_matches(&s->flat, (qbpy_treedef *)e->treedef);
    return same > 0 ? qbpy_statics_equal(e->statics, s->statics) : same;
}

qbpy_entry *qbpy_cache_find(qbpy_cache *cache, const qbpy_signature *s)
{
    for (int i = 0; i < cache->count; i++) {
        qbpy_entry *e = cache->entries[i];
        e->references++; /* a user's __eq__, which comparing may run, may evict it */
        int same = entry_matches(e, s);
        bool is_kept = i < cache->count && cache->entries[i] == e;
        qbpy_entry_release(e);
        if (same < 0)
            return NULL;
        if (same && is_kept) {
            e->last_use = ++cache->clock;
            return e;
        }
    }
    return NULL;
}

/* ---- Running */

/* Programs of at least this many bytes of arguments and results run without the GIL. */
enum { RELEASE_BYTES = 1 << 14, FEW_TENSORS = 24 };

static PyObject *collect_outputs(qbpy_state *state, const qbpy_entry *e, qb_tensor **outputs)
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

/* Drops outputs that are not finite, with the error that says where they come from. */
static qb_status check_outputs(const qbpy_entry *e, qb_tensor *const *inputs, qb_tensor *const *outputs)
{
    qb_status status = qb_check_finite(e->program, inputs, outputs);
    for (int i = 0; status != QB_OK && i < e->output_count; i++)
        qb_tensor_release(outputs[i]);
    return status;
}

PyObject *qbpy_entry_run(qbpy_state *state, qbpy_entry *e, const qbpy_signature *s, bool check)
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
    if (bytes < RELEASE_BYTES && !qb_program_has_loops(e->program)) {
        status = qb_run(e->program, tensors, outputs);
    } else {
        Py_BEGIN_ALLOW_THREADS status = qb_run(e->program, tensors, outputs);
        Py_END_ALLOW_THREADS
    }
    if (status == QB_OK && check)
        status = check_outputs(e, tensors, outputs);
    PyObject *result = status == QB_OK ? collect_outputs(state, e, outputs) : qbpy_raise(state, status);
    qbpy_entry_release(e);
    if (tensors != few)
        PyMem_Free(tensors);
    return result;
}

/* ---- Making, keeping and evicting */

/* Takes the least recently used entry out, with a warning that names both signatures. -1: the warning was made an
 * error. */
static int evict(qbpy_state *state, qbpy_cache *cache, PyObject *fun, const qbpy_signature *s)
{
    int oldest = 0;
    for (int i = 1; i < cache->count; i++)
        if (cache->entries[i]->last_use < cache->entries[oldest]->last_use)
            oldest = i;
    qbpy_entry *evicted = cache->entries[oldest];
    cache->entries[oldest] = cache->entries[--cache->count];
    PyObject *old = qbpy_signature_describe(evicted->words, evicted->word_count);
    PyObject *new = old ? qbpy_signature_describe(s->words, s->word_count) : NULL;
    int status = -1;
    if (new)
        status = PyErr_WarnFormat(
            state->RetraceWarning, 1,
            "%R has been traced for more than max_traces=%d signatures: %U was evicted for %U. Call it with fewer "
            "shapes, dtypes and static values, pass changing Python numbers as arrays, or raise max_traces",
            fun, cache->limit, old, new);
    Py_XDECREF(old);
    Py_XDECREF(new);
    qbpy_entry_release(evicted);
    return status;
}

qbpy_entry *qbpy_entry_make(qbpy_state *state, const qbpy_signature *s, PyObject *program, PyObject *out_treedef)
{
    qbpy_entry *e = PyMem_Calloc(1, sizeof *e);
    if (!e)
        return (qbpy_entry *)PyErr_NoMemory();
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
        qbpy_entry_release(e);
        return PyErr_Occurred() ? NULL : (qbpy_entry *)PyErr_NoMemory();
    }
    memcpy(e->words, s->words, (size_t)s->word_count * sizeof *e->words);
    memcpy(e->out_weak, compiled->weak, (size_t)e->output_count);
    return e;
}

int qbpy_cache_insert(qbpy_state *state, qbpy_cache *cache, PyObject *fun, const qbpy_signature *s, qbpy_entry *e)
{
    if (qbpy_cache_find(cache, s) || PyErr_Occurred()) {
        qbpy_entry_release(e);
        return PyErr_Occurred() ? -1 : 0;
    }
    while (cache->count == cache->limit) /* again: the warning runs Python code, which may fill the place */
        if (evict(state, cache, fun, s) < 0) {
            qbpy_entry_release(e);
            return -1;
        }
    cache->entries[cache->count++] = e;
    e->last_use = ++cache->clock;
    return 0;
}

/* ---- Cache, the type */

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
    self->entries = PyMem_Calloc((size_t)limit, sizeof(qbpy_entry *));
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
        qbpy_entry_release(self->entries[i]);
    Py_CLEAR(self->stages);
    return 0;
}

static void cache_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
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

int qbpy_cache_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    state->cache_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &cache_spec, NULL);
    return state->cache_type ? PyModule_AddType(module, state->cache_type) : -1;
}
