/* Cache: the programs of one function under one configuration of a transform, by signature.
 *
 * Caches belong to the function and the configuration, not to the Transform, so a transform made again in a loop finds
 * its programs (quabla/staging.py keeps the table). At most max_traces programs are kept; one more evicts the least
 * recently used. */
#ifndef QUABLA_EXT_CACHE_H
#define QUABLA_EXT_CACHE_H

#include "signature.h"

/* A compiled signature. Counted, since one may be evicted by another thread while its program runs without the GIL. */
typedef struct qbpy_entry {
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
} qbpy_entry;

typedef struct qbpy_cache {
    PyObject_HEAD qbpy_entry **entries;
    int count, limit;
    uint64_t clock;
    PyObject *stages; /* dict for the front: traced graphs by signature */
} qbpy_cache;

void qbpy_entry_release(qbpy_entry *e);

/* A new entry for the signature: `program` a Program, `out_treedef` the structure of its outputs. */
qbpy_entry *qbpy_entry_make(qbpy_state *state, const qbpy_signature *s, PyObject *program, PyObject *out_treedef);

/* Runs the program on the call's inputs: the result, a tree of Tensors. `check`: a result that is not finite is an
 * error. */
PyObject *qbpy_entry_run(qbpy_state *state, qbpy_entry *e, const qbpy_signature *s, bool check);

/* The entry (borrowed), or NULL (with an exception only if comparing raised one). */
qbpy_entry *qbpy_cache_find(qbpy_cache *cache, const qbpy_signature *s);

/* Keeps the entry, unless another thread has traced the same signature meanwhile. Takes the reference, also when it
 * fails: a RetraceWarning about `fun` may have been made an error. */
int qbpy_cache_insert(qbpy_state *state, qbpy_cache *cache, PyObject *fun, const qbpy_signature *s, qbpy_entry *e);

int qbpy_cache_install(PyObject *module);

#endif
