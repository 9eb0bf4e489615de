/* Exchange through DLPack: tensors out, foreign arrays in. */
#ifndef QUABLA_EXT_DLPACK_H
#define QUABLA_EXT_DLPACK_H

#include "elements.h"

/* Tensor.__dlpack__ and Tensor.__dlpack_device__ */
PyObject *qbpy_tensor_dlpack(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *qbpy_tensor_dlpack_device(PyObject *self, PyObject *unused);

/* A copy of an object with __dlpack__ (or of a DLPack capsule, which is used up), in the dtype that holds its elements
 * exactly, or in `dtype` unless that is -1; integers in `dtype_of_integers`, unless that is -1. */
qb_tensor *qbpy_dlpack_import(qbpy_state *state, PyObject *object, const char *function, int dtype,
                              int dtype_of_integers);

#endif
