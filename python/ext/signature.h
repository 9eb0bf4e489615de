/* The signature of a call: what decides which compiled program serves it.
 *
 * It is the structure of the arguments; dtype, shape and weakness of each array; type and bits of each Python number,
 * which is static unless its argument is differentiated; and the static arguments. Made on the C stack, without Python
 * objects. */
#ifndef QUABLA_EXT_SIGNATURE_H
#define QUABLA_EXT_SIGNATURE_H

#include "tree.h"

enum { QBPY_SIGNATURE_INLINE = 64 };

/* Must not be moved while in use (small signatures are stored inside it). */
typedef struct qbpy_signature {
    qbpy_flat flat;
    uint64_t *words; /* of the leaves */
    int word_count, word_capacity;
    PyObject *statics; /* tuple of (position or name, value)..., or NULL */
    uint64_t hash;
    bool *is_input; /* per leaf: an array, or a number that becomes one */
    bool has_tracer;
    uint64_t word_space[QBPY_SIGNATURE_INLINE];
    bool input_space[QBPY_FLAT_INLINE];
} qbpy_signature;

void qbpy_signature_init(qbpy_signature *s);
void qbpy_signature_clear(qbpy_signature *s);

/* Completes the signature of a call whose arguments are flattened into s->flat: words, inputs, hash. Leaves that are
 * not arrays yet are converted in place; numbers of the positional arguments in `number_argnums` become float64 arrays.
 * -1: exception set. */
int qbpy_signature_finish(qbpy_state *state, PyObject *number_argnums, PyObject *const *args, Py_ssize_t nargs,
                          qbpy_signature *s);

/* Whether two tuples of static arguments are equal (see qbpy_static_equal); -1: a user's __eq__ raised. */
int qbpy_statics_equal(PyObject *a, PyObject *b);

/* The leaves in words: "(float64[8], float64[], 3)". */
PyObject *qbpy_signature_describe(const uint64_t *words, int count);

#endif
