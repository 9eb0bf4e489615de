/* Status to exception: the one place where the library's failures become Python's. */
#include "quabla_ext.h"

static PyObject *raise_unsupported(qbpy_state *state)
{
    PyObject *error = PyObject_CallFunction(state->UnsupportedOperationError, "sss", qb_error_message(),
                                            qb_error_operation(), qb_error_device());
    if (error) {
        PyErr_SetObject(state->UnsupportedOperationError, error);
        Py_DECREF(error);
    }
    return NULL;
}

PyObject *qbpy_raise(qbpy_state *state, qb_status status)
{
    PyObject *type = NULL;
    switch (status) {
    case QB_ERROR_VALUE: type = PyExc_ValueError; break;
    case QB_ERROR_TYPE: type = PyExc_TypeError; break;
    case QB_ERROR_INDEX: type = PyExc_IndexError; break;
    case QB_ERROR_MEMORY: type = PyExc_MemoryError; break;
    case QB_ERROR_RUNTIME: type = PyExc_RuntimeError; break;
    case QB_ERROR_NONFINITE: type = PyExc_FloatingPointError; break;
    case QB_ERROR_UNSUPPORTED: return raise_unsupported(state);
    case QB_ERROR_INTERRUPTED: /* the signal's handler has set an exception (see poll in module.c) */
        if (PyErr_Occurred())
            return NULL;
        type = PyExc_KeyboardInterrupt;
        break;
    case QB_OK:
    case QB_ERROR_INTERNAL: type = state->QuablaError; break;
    }
    PyErr_SetString(type, qb_error_message());
    return NULL;
}
