/* Static values as parts of cache keys.
 *
 * Python's == is too generous for a key, since 1 == 1.0 == True make different programs, and too strict, since NaN !=
 * NaN would miss the cache at every call. */
#include "tree.h"

#include <string.h>

static uint64_t float_bits(PyObject *number)
{
    double value = PyFloat_AS_DOUBLE(number);
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

int qbpy_static_equal(PyObject *a, PyObject *b)
{
    if (a == b)
        return 1;
    if (Py_TYPE(a) != Py_TYPE(b))
        return 0;
    if (PyFloat_Check(a))
        return float_bits(a) == float_bits(b);
    if (!PyTuple_CheckExact(a))
        return PyObject_RichCompareBool(a, b, Py_EQ);
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b))
        return 0;
    if (Py_EnterRecursiveCall(" while comparing static values"))
        return -1;
    int equal = 1;
    for (Py_ssize_t i = 0; equal == 1 && i < PyTuple_GET_SIZE(a); i++)
        equal = qbpy_static_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
    Py_LeaveRecursiveCall();
    return equal;
}

int qbpy_static_hash(PyObject *value, uint64_t *out)
{
    uint64_t hash = (uint64_t)(uintptr_t)Py_TYPE(value) >> 4;
    if (PyFloat_Check(value)) {
        *out = qbpy_mix(hash, float_bits(value));
        return 0;
    }
    if (!PyTuple_CheckExact(value)) {
        Py_hash_t part = PyObject_Hash(value);
        *out = qbpy_mix(hash, (uint64_t)part);
        return part == -1 ? -1 : 0;
    }
    if (Py_EnterRecursiveCall(" while hashing static values"))
        return -1;
    int status = 0;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(value); i++) {
        uint64_t part;
        status = qbpy_static_hash(PyTuple_GET_ITEM(value, i), &part);
        if (status == 0)
            hash = qbpy_mix(hash, part);
    }
    Py_LeaveRecursiveCall();
    *out = hash;
    return status;
}
