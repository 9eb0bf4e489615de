/* The extension module quabla._core: what its files share.
 *
 * One C file per Python type, only conversion and lifetime; what is computed is computed by the library. Everything
 * that lives as long as the module hangs on qbpy_state, so that the module has multi-phase initialisation, may exist
 * once per interpreter, and holds no static Python object. A function that fails returns NULL, -1 or false with a
 * Python exception set.
 *
 * To add a type or another object to the state, add a row to QBPY_STATE_TYPES or QBPY_STATE_OBJECTS: clearing and
 * garbage collection follow from the lists. */
#ifndef QUABLA_EXT_H
#define QUABLA_EXT_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "quabla/quabla.h"

#include <stdbool.h>

/* ------------------------------------------------------------------------------------------------------------ state */

#define QBPY_STATE_TYPES(X)                                                                                            \
    X(dtype_type)                                                                                                      \
    X(tensor_type)                                                                                                     \
    X(treedef_type)                                                                                                    \
    X(tree_registration_type)                                                                                          \
    X(trace_tensor_type)                                                                                               \
    X(trace_type)                                                                                                      \
    X(graph_type)                                                                                                      \
    X(program_type)                                                                                                    \
    X(function_type)                                                                                                   \
    X(at_type)                                                                                                         \
    X(at_index_type)                                                                                                   \
    X(method_type)                                                                                                     \
    X(transform_type)                                                                                                  \
    X(cache_type)                                                                                                      \
    X(boundary_type)

/* Exceptions (from quabla/errors.py), registries, and interned strings (str_*, text given in module.c). */
#define QBPY_STATE_OBJECTS(X)                                                                                          \
    X(QuablaError)                                                                                                     \
    X(UnsupportedOperationError)                                                                                       \
    X(TracerError)                                                                                                     \
    X(RetraceLimitError)                                                                                               \
    X(RetraceWarning)                                                                                                  \
    X(package_folder) /* str: where the package's Python files lie, with a slash */                                    \
    X(tree_registry)  /* dict: class -> registration */                                                                \
    X(numpy_asarray)  /* numpy.asarray, or NULL as long as nobody asked for NumPy */

#define QBPY_STATE_STRINGS(X)                                                                                          \
    X(name, "name")                                                                                                    \
    X(shape, "shape")                                                                                                  \
    X(dtype, "dtype")                                                                                                  \
    X(astype, "astype")                                                                                                \
    X(fields, "_fields")                                                                                               \
    X(array_, "__array__")                                                                                             \
    X(dlpack_, "__dlpack__")                                                                                           \
    X(dlpack_device_, "__dlpack_device__")                                                                             \
    X(op, "op")                                                                                                        \
    X(device, "device")                                                                                                \
    X(dataclass_fields, "__dataclass_fields__")                                                                        \
    X(module_, "__module__")                                                                                           \
    X(at, "at")

typedef struct qbpy_state {
    qb_context *context;
#define X(field) PyTypeObject *field;
    QBPY_STATE_TYPES(X)
#undef X
#define X(field) PyObject *field;
    QBPY_STATE_OBJECTS(X)
#undef X
#define X(field, text) PyObject *str_##field;
    QBPY_STATE_STRINGS(X)
#undef X
    bool full_tracebacks;             /* source.c */
    PyObject *dtypes[QB_DTYPE_COUNT]; /* the one object of each dtype */
} qbpy_state;

extern PyModuleDef qbpy_module_def;

/* Takes Python's lock in any thread, which PyGILState_Release gives back; false where the interpreter has ended: a
 * thread may go on then. */
static inline bool qbpy_take_lock(PyGILState_STATE *held)
{
    if (!Py_IsInitialized())
        return false;
    *held = PyGILState_Ensure();
    return true;
}

static inline qbpy_state *qbpy_state_of(PyObject *module)
{
    return (qbpy_state *)PyModule_GetState(module);
}

/* The state of the module that made `type` or one of its bases; NULL, with no exception set, for other types. Works
 * for both operands of a binary slot, of which either may be foreign. (PyType_GetModuleByDef does this from Python
 * 3.11 on.) */
qbpy_state *qbpy_state_of_type(PyTypeObject *type);

static inline qbpy_state *qbpy_state_of_object(PyObject *object)
{
    return qbpy_state_of_type(Py_TYPE(object));
}

/* ----------------------------------------------------------------------------------------------------------- errors */

/* Sets the exception that belongs to a failed status, with qb_error_message(); returns NULL. */
PyObject *qbpy_raise(qbpy_state *state, qb_status status);

/* ----------------------------------------------------------------------------------------------------------- dtypes */

typedef struct qbpy_dtype {
    PyObject_HEAD qb_dtype value;
} qbpy_dtype;

/* The dtype's object, a new reference. Never fails. */
PyObject *qbpy_dtype_object(qbpy_state *state, qb_dtype dtype);

/* From one of our dtype objects, a NumPy dtype or scalar type, a name ("float32"), or Python's float, int (int64) and
 * bool. 0, or -1 with a TypeError that lists what is accepted. */
int qbpy_dtype_from_object(qbpy_state *state, PyObject *object, qb_dtype *out);

/* The same for an optional argument: NULL and None give -1 in *out. */
int qbpy_optional_dtype(qbpy_state *state, PyObject *object, int *out);

/* ---------------------------------------------------------------------------------------------------------- tensors */

/* Immutable; not a container, so not tracked by the garbage collector. */
typedef struct qbpy_tensor {
    PyObject_HEAD qb_tensor *tensor; /* owned, never NULL */
    bool weak;                       /* made of Python numbers only: takes the dtype of the array it meets */
    PyObject *weakrefs;
} qbpy_tensor;

/* A Tensor around `stolen`, whose reference passes to it also when this fails (NULL is passed through, with its
 * exception). */
PyObject *qbpy_tensor_wrap(qbpy_state *state, qb_tensor *stolen, bool weak);

/* Tensor and TraceTensor cannot be subclassed: an exact test suffices. */
static inline bool qbpy_is_tensor(const qbpy_state *state, PyObject *object)
{
    return Py_IS_TYPE(object, state->tensor_type);
}

static inline bool qbpy_is_trace_tensor(const qbpy_state *state, PyObject *object)
{
    return state->trace_tensor_type && Py_IS_TYPE(object, state->trace_tensor_type);
}

static inline qb_tensor *qbpy_tensor_get(PyObject *tensor)
{
    return ((qbpy_tensor *)tensor)->tensor;
}

/* int, tuple of ints (or list, or anything that __index__ accepts) to a shape of at most QB_MAX_RANK extents: the
 * rank, or -1. */
int qbpy_shape_from_object(PyObject *object, const char *function, int64_t *shape);
PyObject *qbpy_shape_tuple(int rank, const int64_t *shape);

/* ------------------------------------------------------------------------------------------------------- conversion */

/* Converts anything array-like as qb.asarray does (integer data becomes float64), to `dtype`, or to the inferred one
 * when it is -1. `function` is named in messages. *weak (may be NULL): a Python or NumPy number, or a weak Tensor. A
 * new reference, or NULL with an exception set; a TraceTensor, alone or in a list, is a TracerError. */
qb_tensor *qbpy_to_tensor(qbpy_state *state, const char *function, PyObject *object, int dtype, bool *weak);

/* The same for an operand of arithmetic: integers keep an integer dtype (Python int: weak int64, beyond its range
 * uint64, beyond that float64; int8 and int16: int32; uint8 and uint16: uint32), so that the promotion rules decide
 * what they become. Python bool: weak bool. */
qb_tensor *qbpy_to_operand(qbpy_state *state, const char *function, PyObject *object, bool *weak);

/* Whether the object is an array-like leaf that qbpy_to_tensor takes without looking inside: Tensor, TraceTensor,
 * Python number (bool, int, float), or a foreign array (buffer protocol, __array__, __dlpack__; not text or lists). */
bool qbpy_is_arraylike(qbpy_state *state, PyObject *object);

/* -------------------------------------------------------------------------------- what each file adds to the module */

int qbpy_dtype_install(PyObject *module);   /* dtype.c: dtype, float64 ... */
int qbpy_tensor_install(PyObject *module);  /* tensor.c: Tensor */
int qbpy_convert_install(PyObject *module); /* convert.c: array, asarray, zeros ... */
int qbpy_tree_install(PyObject *module);    /* tree.c: TreeDef, tree_flatten ... */
int qbpy_install_functions(
    PyObject *module);                       /* function.c: the functions of functions.def, and the methods of arrays */
int qbpy_at_install(PyObject *module);       /* at.c: what x.at is */
int qbpy_source_install(PyObject *module);   /* source.c */
int qbpy_boundary_install(PyObject *module); /* boundary.c: public */
int qbpy_debug_install(PyObject *module);    /* debug.c */
int qbpy_trace_install(PyObject *module);    /* trace.c */
int qbpy_transform_install(PyObject *module); /* transform.c */

/* repr.c: the text of a Tensor. */
PyObject *qbpy_tensor_repr(PyObject *tensor);

#endif
