/* The user's lines: where an operation was written, and which frames a traceback shows. A frame is the package's own
 * if its file lies in the package's folder. The environment variable QUABLA_FULL_TRACEBACKS=1 shows those too. */
#include "trace.h"

#include "base/source.h"

static bool is_own(const qbpy_state *state, PyCodeObject *code)
{
    Py_ssize_t length, own_length;
    const char *file = PyUnicode_AsUTF8AndSize(code->co_filename, &length);
    const char *own = PyUnicode_AsUTF8AndSize(state->package_folder, &own_length);
    if (!file || !own) {
        PyErr_Clear(); /* a name that is no text is nobody's */
        return false;
    }
    return length > own_length && memcmp(file, own, (size_t)own_length) == 0;
}

/* The innermost frame outside the package, or NULL; new references to it and its code. */
static PyFrameObject *user_frame(const qbpy_state *state, PyCodeObject **code)
{
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame) {
        *code = PyFrame_GetCode(frame);
        if (!is_own(state, *code))
            break;
        PyFrameObject *outer = PyFrame_GetBack(frame);
        Py_DECREF(*code);
        Py_DECREF(frame);
        frame = outer;
    }
    return frame;
}

/* What tells the lines of a frame's code apart, cheaply. */
static int instruction_of(PyFrameObject *frame)
{
#if PY_VERSION_HEX >= 0x030b0000
    return PyFrame_GetLasti(frame);
#else
    return PyFrame_GetLineNumber(frame);
#endif
}

static int32_t source_of(PyFrameObject *frame, PyCodeObject *code)
{
    const char *file = PyUnicode_AsUTF8(code->co_filename);
    if (file)
        return qb_source_intern(file, PyFrame_GetLineNumber(frame));
    PyErr_Clear();
    return 0;
}

int32_t qbpy_current_source(qbpy_state *state, qbpy_source_cache *cache)
{
    PyCodeObject *code;
    PyFrameObject *frame = user_frame(state, &code);
    if (!frame)
        return 0;
    int32_t source;
    if (!cache) {
        source = source_of(frame, code);
    } else {
        int instruction = instruction_of(frame);
        uintptr_t key = ((uintptr_t)code >> 5) ^ (uintptr_t)(unsigned)instruction;
        size_t place = (size_t)((key ^ (key >> 6)) % QBPY_SOURCES);
        if (cache->entries[place].code != (PyObject *)code || cache->entries[place].instruction != instruction) {
            Py_XSETREF(cache->entries[place].code, Py_NewRef((PyObject *)code));
            cache->entries[place].instruction = instruction;
            cache->entries[place].source = source_of(frame, code);
        }
        source = cache->entries[place].source;
    }
    Py_DECREF(code);
    Py_DECREF(frame);
    return source;
}

void qbpy_source_cache_clear(qbpy_source_cache *cache)
{
    for (int i = 0; i < QBPY_SOURCES; i++)
        Py_CLEAR(cache->entries[i].code);
}

/* ---- Tracebacks */

/* Links of the chain that belong to the user's frames; those between are the package's, and say nothing to the user. */
static PyObject *without_own(const qbpy_state *state, PyObject *traceback)
{
    PyObject *kept = NULL, **end = &kept;
    for (PyTracebackObject *entry = (PyTracebackObject *)traceback; entry; entry = entry->tb_next) {
        PyCodeObject *code = PyFrame_GetCode(entry->tb_frame);
        if (!is_own(state, code)) {
            Py_XSETREF(*end, Py_NewRef((PyObject *)entry));
            end = (PyObject **)&entry->tb_next;
        }
        Py_DECREF(code);
    }
    Py_CLEAR(*end); /* what comes after the last of them */
    return kept;
}

void qbpy_trim_traceback(qbpy_state *state)
{
    if (state->full_tracebacks)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *kept = without_own(state, traceback);
    Py_XDECREF(traceback);
    if (value && PyExceptionInstance_Check(value))
        (void)PyException_SetTraceback(value, kept ? kept : Py_None);
    PyErr_Restore(type, value, kept);
}

int qbpy_source_install(PyObject *module)
{
    qbpy_state *state = qbpy_state_of(module);
    PyObject *errors = PyImport_ImportModule("quabla.errors");
    PyObject *file = errors ? PyObject_GetAttrString(errors, "__file__") : NULL;
    Py_XDECREF(errors);
    if (!file)
        return -1;
    Py_ssize_t length = PyUnicode_GET_LENGTH(file);
    while (length > 0 && PyUnicode_READ_CHAR(file, length - 1) != '/')
        length--;
    const char *full = getenv("QUABLA_FULL_TRACEBACKS");
    state->full_tracebacks = full && *full && strcmp(full, "0") != 0;
    state->package_folder = PyUnicode_Substring(file, 0, length); /* with its slash */
    Py_DECREF(file);
    return state->package_folder ? 0 : -1;
}
