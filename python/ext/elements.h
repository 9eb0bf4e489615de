/* Elements in memory: foreign layouts and types on one side, the library's dtypes, contiguous, on the other. */
#ifndef QUABLA_EXT_ELEMENTS_H
#define QUABLA_EXT_ELEMENTS_H

#include "quabla_ext.h"

/* Element types that can be imported: the library's own and the small integers. */
typedef enum qbpy_element {
    QBPY_ELEMENT_FLOAT64,
    QBPY_ELEMENT_FLOAT32,
    QBPY_ELEMENT_BOOL,
    QBPY_ELEMENT_INT8,
    QBPY_ELEMENT_INT16,
    QBPY_ELEMENT_INT32,
    QBPY_ELEMENT_INT64,
    QBPY_ELEMENT_UINT8,
    QBPY_ELEMENT_UINT16,
    QBPY_ELEMENT_UINT32,
    QBPY_ELEMENT_UINT64,
    QBPY_ELEMENT_COUNT
} qbpy_element;

/* A foreign array: memory that somebody else keeps alive while this is in use. Strides are in bytes, of any sign, 0
 * included; elements need not be aligned. */
typedef struct qbpy_layout {
    const char *data;
    qbpy_element element;
    int rank;
    int64_t shape[QB_MAX_RANK];
    int64_t strides[QB_MAX_RANK];
} qbpy_layout;

/* The element type of that kind ('f', 'b', 'i', 'u') and size in bytes; QBPY_ELEMENT_COUNT: none. */
qbpy_element qbpy_element_find(char kind, size_t size);
qbpy_element qbpy_element_of_dtype(qb_dtype dtype);
/* The dtype that holds every value of the element type exactly: itself, or int32 or uint32 for the small integers. */
qb_dtype qbpy_element_dtype(qbpy_element element);

/* The layout of a tensor's own memory. */
void qbpy_layout_of_tensor(const qb_tensor *tensor, qbpy_layout *out);

/* Copies all elements, converted to `dtype`, to contiguous row-major memory. Integers wrap, floats are cut towards
 * zero and saturate, as astype does. At memory speed for equal types and for integers to floating ones, whatever the
 * strides. */
void qbpy_layout_copy(const qbpy_layout *source, qb_dtype dtype, void *destination);

/* A new tensor with a converted copy; NULL with an exception set. */
qb_tensor *qbpy_layout_tensor(qbpy_state *state, const qbpy_layout *source, qb_dtype dtype);

/* An element as a Python bool, int or float. */
PyObject *qbpy_element_object(qb_dtype dtype, const void *element);

#endif
