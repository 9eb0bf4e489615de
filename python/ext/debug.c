/* Debugging at run time: results that are not finite. */
#include "trace.h"

static _Thread_local bool checks_results;

bool qbpy_debug_nans(void)
{
    return checks_results;
}

static PyObject *set_debug_nans(PyObject *module, PyObject *value)
{
    (void)module;
    int wanted = PyObject_IsTrue(value);
    if (wanted < 0)
        return NULL;
    bool before = checks_results;
    checks_results = wanted;
    return PyBool_FromLong(before);
}

static PyMethodDef functions[] = {
    {"set_debug_nans", set_debug_nans, METH_O,
     "set_debug_nans(value)\n--\n\nWhether a result that is not finite is an error on this thread; returns what it "
     "was."},
    {NULL, NULL, 0, NULL},
};

int qbpy_debug_install(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
