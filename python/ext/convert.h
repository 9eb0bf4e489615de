/* From Python objects to tensors: what convert.c and nested.c share. */
#ifndef QUABLA_EXT_CONVERT_H
#define QUABLA_EXT_CONVERT_H

#include "elements.h"

/* How a conversion goes: the target dtype or -1 for the inferred one; whether integers keep an integer dtype then; the
 * function named in messages. */
typedef struct qbpy_conversion {
    qbpy_state *state;
    const char *function;
    int dtype;
    bool keep_integers;
} qbpy_conversion;

/* Whether the object offers an array of its own: buffer protocol, __dlpack__ or __array__; not str and bytes. */
bool qbpy_is_foreign_array(const qbpy_state *state, PyObject *object);
/* A copy of it. *is_scalar: a NumPy scalar. */
qb_tensor *qbpy_import_foreign(const qbpy_conversion *how, PyObject *object, bool *is_scalar);

/* A converted tensor, the same one (retained) where there is nothing to convert. */
qb_tensor *qbpy_tensor_astype(qbpy_state *state, qb_tensor *tensor, qb_dtype dtype);

/* Stores a Python bool, int or float (or an instance of a subclass) as an element; -1 with a ValueError when it does
 * not fit. `exact`: an int that float64 cannot hold exactly is an error. */
int qbpy_store_number(const char *function, PyObject *number, qb_dtype dtype, bool exact, void *element);

/* nested.c: a list or tuple, nested to any depth, of numbers and arrays. */
qb_tensor *qbpy_convert_nested(const qbpy_conversion *how, PyObject *sequence);

/* TracerError for a traced array where its value is needed. */
void qbpy_refuse_tracer(qbpy_state *state, const char *function);

/* TypeError for an object that is no array. `where` is "" or " element [1][0]". */
void qbpy_refuse_object(const char *function, const char *where, PyObject *object);

/* Arguments of a function with the given parameter names (NULL ends them), of which the first `required` must be
 * there, as vectorcall passes them; absent ones are NULL in `out`. 0, or -1 with a TypeError. */
int qbpy_parse_arguments(const char *function, const char *const *names, int required, PyObject *const *args,
                         Py_ssize_t nargs, PyObject *kwnames, PyObject **out);

/* create.c: zeros, ones, arange ... */
int qbpy_create_install(PyObject *module);

#endif
