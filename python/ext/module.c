/* The module quabla._core: its state, and the order in which its files add to it. */
#include "quabla_ext.h"

#include "base/status.h"

#include <string.h>

qbpy_state *qbpy_state_of_type(PyTypeObject *type)
{
    for (; type && PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE); type = type->tp_base) {
        PyObject *module = ((PyHeapTypeObject *)type)->ht_module;
        if (module && PyModule_GetDef(module) == &qbpy_module_def)
            return qbpy_state_of(module);
    }
    return NULL;
}

static int import_errors(qbpy_state *state)
{
    PyObject *errors = PyImport_ImportModule("quabla.errors");
    if (!errors)
        return -1;
    bool found = (state->QuablaError = PyObject_GetAttrString(errors, "QuablaError")) &&
                 (state->UnsupportedOperationError = PyObject_GetAttrString(errors, "UnsupportedOperationError")) &&
                 (state->TracerError = PyObject_GetAttrString(errors, "TracerError")) &&
                 (state->RetraceLimitError = PyObject_GetAttrString(errors, "RetraceLimitError")) &&
                 (state->RetraceWarning = PyObject_GetAttrString(errors, "RetraceWarning"));
    Py_DECREF(errors);
    return found ? 0 : -1;
}

static int intern_strings(qbpy_state *state)
{
#define X(field, text)                                                                                                 \
    if (!(state->str_##field = PyUnicode_InternFromString(text)))                                                      \
        return -1;
    QBPY_STATE_STRINGS(X)
#undef X
    return 0;
}

/* Runs Python's handlers of signals that came while a loop was running. */
static qb_status poll_signals(void *unused)
{
    (void)unused;
    PyGILState_STATE held;
    if (!qbpy_take_lock(&held))
        return QB_OK;
    int failed = PyErr_CheckSignals();
    PyGILState_Release(held);
    return failed ? qb_fail(QB_ERROR_INTERRUPTED, "interrupted") : QB_OK;
}

/* What the other modules of the package alone use; the functions on trees are public as quabla.tree. */
static bool is_internal(const char *name)
{
    static const char *const internal[] = {
        "Cache",      "Graph",        "Transform",      "TreeDef",          "check_device", "checkpoint", "compress",
        "custom_end", "custom_jvp",   "custom_vjp",     "linalg_functions", "loop",         "operations", "public",
        "record",     "record_print", "set_debug_nans", "switch",           "version"};
    for (size_t i = 0; i < sizeof internal / sizeof *internal; i++)
        if (strcmp(name, internal[i]) == 0)
            return true;
    return name[0] == '_' || strncmp(name, "tree_", 5) == 0;
}

/* __all__: what `import quabla` makes public of this module. */
static int add_public_names(PyObject *module)
{
    PyObject *names = PyList_New(0), *name, *value;
    int status = names ? 0 : -1;
    for (Py_ssize_t at = 0; status == 0 && PyDict_Next(PyModule_GetDict(module), &at, &name, &value);) {
        const char *text = PyUnicode_AsUTF8(name);
        status = !text ? -1 : is_internal(text) ? 0 : PyList_Append(names, name);
    }
    if (status == 0)
        status = PyModule_AddObjectRef(module, "__all__", names);
    Py_XDECREF(names);
    return status;
}

static int module_exec(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    if (import_errors(state) < 0 || intern_strings(state) < 0)
        return -1;
    qb_status status = qb_context_create(&state->context);
    if (status != QB_OK) {
        qbpy_raise(state, status);
        return -1;
    }
    qb_context_on_poll(state->context, poll_signals, NULL);
    if (qbpy_dtype_install(module) < 0 || qbpy_tensor_install(module) < 0 || qbpy_convert_install(module) < 0 ||
        qbpy_tree_install(module) < 0)
        return -1;
    if (qbpy_source_install(module) < 0 || qbpy_debug_install(module) < 0 || qbpy_boundary_install(module) < 0 ||
        qbpy_trace_install(module) < 0 || qbpy_install_functions(module) < 0 || qbpy_at_install(module) < 0 ||
        qbpy_transform_install(module) < 0)
        return -1;
    return add_public_names(module);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    qbpy_state *state = qbpy_state_of(module);
#define X(field) Py_VISIT(state->field);
    QBPY_STATE_TYPES(X)
    QBPY_STATE_OBJECTS(X)
#undef X
    for (int i = 0; i < QB_DTYPE_COUNT; i++)
        Py_VISIT(state->dtypes[i]);
    return 0;
}

static int module_clear(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
#define X(field) Py_CLEAR(state->field);
    QBPY_STATE_TYPES(X)
    QBPY_STATE_OBJECTS(X)
#undef X
#define X(field, text) Py_CLEAR(state->str_##field);
    QBPY_STATE_STRINGS(X)
#undef X
    for (int i = 0; i < QB_DTYPE_COUNT; i++)
        Py_CLEAR(state->dtypes[i]);
    return 0;
}

static void module_free(void *module)
{
    qbpy_state *state = qbpy_state_of((PyObject *)module);
    (void)module_clear((PyObject *)module);
    qb_context_destroy(state->context);
    state->context = NULL;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

PyModuleDef qbpy_module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "quabla._core",
    .m_doc = "The core of Quabla: arrays, pytrees, tracing and transforms.",
    .m_size = sizeof(qbpy_state),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit__core(void);

PyMODINIT_FUNC PyInit__core(void)
{
    return PyModuleDef_Init(&qbpy_module_def);
}
