/* x[index] and x.at[index]: from Python's index objects to an INDEX attribute and arrays of indices. */
#ifndef QUABLA_EXT_INDEX_H
#define QUABLA_EXT_INDEX_H

#include "function.h"

/* Large: only the counts are set before it is filled. */
typedef struct qbpy_index {
    qb_attribute attribute;
    int array_count;
    PyObject *arrays[QB_MAX_RANK]; /* owned: integer Tensors and TraceTensors, as the attribute names them */
    int entry_count;
    int64_t entries[QB_MAX_INDEX * QB_INDEX_FIELDS];
} qbpy_index;

/* Reads the inside of x[...]; 0, or -1 with an exception and nothing to release. A boolean array becomes arrays of the
 * places where it is true, and must therefore not be traced. */
int qbpy_index_read(qbpy_state *state, PyObject *object, qbpy_index *out);
void qbpy_index_release(qbpy_index *index);

/* Calls a function with an INDEX parameter, which is its only one, on operands. */
PyObject *qbpy_call_indexed(qbpy_state *state, const qb_function *function, PyObject *const *operands, PyObject *index);

/* at.c: the attribute `at` of an array type. */
PyObject *qbpy_at(PyObject *array, void *unused);

#endif
