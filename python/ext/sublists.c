/* The other way to write einsum: einsum(a, [0, 1], b, [1, 2], [0, 2]).
 *
 * Each operand is followed by a list of its indices, integers from 0 to 51 and an Ellipsis, and the last list, if it
 * follows no operand, is that of the result. It is rewritten as an equation, in which the order of the letters is that
 * of the integers, so that an implicit result has its axes in ascending order, as in NumPy. */
#include "function.h"

#include <string.h>

enum { MOST_CHARACTERS = 1024, LETTERS = 52 };

typedef struct equation {
    char text[MOST_CHARACTERS];
    size_t length;
} equation;

static int append(equation *e, const char *text)
{
    size_t length = strlen(text);
    if (e->length + length > sizeof e->text) {
        PyErr_SetString(PyExc_ValueError, "einsum: too many indices");
        return -1;
    }
    memcpy(e->text + e->length, text, length);
    e->length += length;
    return 0;
}

static int append_index(equation *e, PyObject *index, Py_ssize_t argument)
{
    if (index == Py_Ellipsis)
        return append(e, "...");
    Py_ssize_t number = PyIndex_Check(index) ? PyNumber_AsSsize_t(index, NULL) : -1;
    if (PyErr_Occurred())
        return -1;
    if (number < 0 || number >= LETTERS) {
        PyErr_Format(PyExc_ValueError,
                     "einsum: argument %zd is a list of indices, which are ints from 0 to %d and ..., got %.80R",
                     argument, LETTERS - 1, index);
        return -1;
    }
    const char letter[] = {(char)(number < 26 ? 'A' + number : 'a' + number - 26), '\0'};
    return append(e, letter);
}

static int append_list(equation *e, PyObject *list, Py_ssize_t argument)
{
    if (!PyList_Check(list) && !PyTuple_Check(list)) {
        PyErr_Format(PyExc_TypeError,
                     "einsum: without an equation each operand is followed by a list of its indices; argument %zd is "
                     "of type %.200s",
                     argument, Py_TYPE(list)->tp_name);
        return -1;
    }
    PyObject *items = PySequence_Tuple(list);
    int status = items ? 0 : -1;
    for (Py_ssize_t i = 0; status == 0 && i < PyTuple_GET_SIZE(items); i++)
        status = append_index(e, PyTuple_GET_ITEM(items, i), argument);
    Py_XDECREF(items);
    return status;
}

PyObject *qbpy_einsum_of_sublists(PyObject *einsum, PyObject *const *args, Py_ssize_t nargs)
{
    equation e = {.length = 0};
    Py_ssize_t count = nargs / 2;
    for (Py_ssize_t i = 0; i < count; i++)
        if ((i > 0 && append(&e, ",") < 0) || append_list(&e, args[2 * i + 1], 2 * i + 1) < 0)
            return NULL;
    if (nargs % 2 && (append(&e, "->") < 0 || append_list(&e, args[nargs - 1], nargs - 1) < 0))
        return NULL;
    PyObject **all = PyMem_Malloc((size_t)(count + 1) * sizeof *all), *result = NULL;
    if (!all)
        return PyErr_NoMemory();
    all[0] = PyUnicode_FromStringAndSize(e.text, (Py_ssize_t)e.length);
    for (Py_ssize_t i = 0; i < count; i++)
        all[1 + i] = args[2 * i];
    if (all[0])
        result = PyObject_Vectorcall(einsum, all, (size_t)count + 1, NULL);
    Py_XDECREF(all[0]);
    PyMem_Free(all);
    return result;
}
