/* Python's operators on Tensor and TraceTensor: each is a function of the library. */
#include "function.h"
#include "index.h"
#include "trace.h"

qbpy_operators qbpy_operator;

int qbpy_find_operators(void)
{
#define X(name)                                                                                                        \
    if (!(qbpy_operator.name = qb_function_at(qb_function_find(#name)))) {                                             \
        PyErr_SetString(PyExc_SystemError, "quabla: the function " #name " is not in the library");                    \
        return -1;                                                                                                     \
    }
    QBPY_OPERATORS(X)
#undef X
    return 0;
}

/* ---- Arithmetic. Either operand may be the foreign one. */

static bool is_array(const qbpy_state *state, PyObject *object)
{
    return qbpy_is_tensor(state, object) || qbpy_is_tracer(state, object);
}

/* Whether the operator is ours to answer, or to be left to the other operand's type. */
static bool takes(qbpy_state *state, PyObject *object)
{
    return is_array(state, object) || PyFloat_Check(object) || PyLong_Check(object) || PyList_Check(object) ||
           PyTuple_Check(object) || qbpy_is_arraylike(state, object);
}

static inline qbpy_state *state_of_either(PyObject *a, PyObject *b)
{
    qbpy_state *state = qbpy_state_of_object(a);
    return state && is_array(state, a) ? state : qbpy_state_of_object(b);
}

static PyObject *binary(const qb_function *function, PyObject *a, PyObject *b)
{
    qbpy_state *state = state_of_either(a, b);
    if (!takes(state, a) || !takes(state, b))
        Py_RETURN_NOTIMPLEMENTED;
    return qbpy_call_function(state, function, NULL, 2, (PyObject *const[]){a, b});
}

PyObject *qbpy_add(PyObject *a, PyObject *b)
{
    return binary(qbpy_operator.add, a, b);
}

PyObject *qbpy_subtract(PyObject *a, PyObject *b)
{
    return binary(qbpy_operator.subtract, a, b);
}

PyObject *qbpy_multiply(PyObject *a, PyObject *b)
{
    return binary(qbpy_operator.multiply, a, b);
}

PyObject *qbpy_divide(PyObject *a, PyObject *b)
{
    return binary(qbpy_operator.divide, a, b);
}

PyObject *qbpy_floor_divide(PyObject *a, PyObject *b)
{
    return binary(qbpy_operator.floor_divide, a, b);
}

PyObject *qbpy_mod(PyObject *a, PyObject *b)
{
    return binary(qbpy_operator.mod, a, b);
}

PyObject *qbpy_divmod(PyObject *a, PyObject *b)
{
    PyObject *quotient = qbpy_floor_divide(a, b);
    if (!quotient || quotient == Py_NotImplemented)
        return quotient;
    PyObject *remainder = qbpy_mod(a, b);
    if (!remainder) {
        Py_DECREF(quotient);
        return NULL;
    }
    return Py_BuildValue("NN", quotient, remainder);
}

PyObject *qbpy_power(PyObject *a, PyObject *b, PyObject *modulus)
{
    qbpy_state *state = state_of_either(a, b);
    if (!state || modulus != Py_None || !takes(state, a) || !takes(state, b))
        Py_RETURN_NOTIMPLEMENTED;
    return qbpy_call_power(state, a, b);
}

PyObject *qbpy_matmul(PyObject *a, PyObject *b)
{
    return binary(qbpy_operator.matmul, a, b);
}

PyObject *qbpy_and(PyObject *a, PyObject *b)
{
    return binary(qbpy_operator.bitwise_and, a, b);
}

PyObject *qbpy_or(PyObject *a, PyObject *b)
{
    return binary(qbpy_operator.bitwise_or, a, b);
}

PyObject *qbpy_xor(PyObject *a, PyObject *b)
{
    return binary(qbpy_operator.bitwise_xor, a, b);
}

static PyObject *unary(const qb_function *function, PyObject *a)
{
    return qbpy_call_function(qbpy_state_of_object(a), function, NULL, 1, &a);
}

PyObject *qbpy_negative(PyObject *a)
{
    return unary(qbpy_operator.negative, a);
}

PyObject *qbpy_positive(PyObject *a)
{
    return Py_NewRef(a);
}

PyObject *qbpy_absolute(PyObject *a)
{
    return unary(qbpy_operator.abs, a);
}

PyObject *qbpy_invert(PyObject *a)
{
    return unary(qbpy_operator.bitwise_not, a);
}

PyObject *qbpy_compare(PyObject *a, PyObject *b, int comparison)
{
    switch (comparison) {
    case Py_LT: return binary(qbpy_operator.less, a, b);
    case Py_LE: return binary(qbpy_operator.less_equal, a, b);
    case Py_GT: return binary(qbpy_operator.greater, a, b);
    case Py_GE: return binary(qbpy_operator.greater_equal, a, b);
    default: Py_RETURN_NOTIMPLEMENTED; /* == and != compare identity: arrays are keys of dicts */
    }
}

Py_hash_t qbpy_hash(PyObject *array)
{
    return PyBaseObject_Type.tp_hash(array);
}

/* ---- Elements along the first axis */

static int rank_and_length(PyObject *array, int64_t *length)
{
    qbpy_state *state = qbpy_state_of_object(array);
    if (qbpy_is_tensor(state, array)) {
        const qb_tensor *tensor = qbpy_tensor_get(array);
        int rank = qb_tensor_rank(tensor);
        *length = rank ? qb_tensor_shape(tensor)[0] : 0;
        return rank;
    }
    qb_type type;
    qbpy_tracer_type(array, &type);
    *length = type.rank ? type.shape[0] : 0;
    return type.rank;
}

Py_ssize_t qbpy_length(PyObject *array)
{
    int64_t length;
    if (rank_and_length(array, &length) > 0)
        return (Py_ssize_t)length;
    PyErr_SetString(PyExc_TypeError, "len() of an array of shape ()");
    return -1;
}

PyObject *qbpy_iterate(PyObject *array)
{
    int64_t length;
    if (rank_and_length(array, &length) > 0)
        return PySeqIter_New(array);
    PyErr_SetString(PyExc_TypeError, "iteration over an array of shape ()");
    return NULL;
}

/* value in array: whether an element equals the value, as in NumPy. */
int qbpy_contains(PyObject *array, PyObject *value)
{
    qbpy_state *state = qbpy_state_of_object(array);
    if (!takes(state, value))
        return 0;
    const qb_attribute parameters[] = {qb_none_attribute(), qb_int(0)};
    PyObject *equal = qbpy_call_function(state, qbpy_operator.equal, NULL, 2, (PyObject *const[]){array, value});
    PyObject *any = equal ? qbpy_call_function(state, qbpy_operator.any, parameters, 1, &equal) : NULL;
    int found = any ? PyObject_IsTrue(any) : -1;
    Py_XDECREF(equal);
    Py_XDECREF(any);
    return found;
}

/* ---- Attributes that are no slots */

static PyObject *get_transposed(PyObject *self, void *unused)
{
    (void)unused;
    const qb_attribute axes = qb_none_attribute();
    return qbpy_call_function(qbpy_state_of_object(self), qbpy_operator.transpose, &axes, 1, &self);
}

static PyObject *round_array(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs > 0 && args[0] != Py_None) {
        PyErr_SetString(PyExc_TypeError,
                        "round() of an array takes no number of digits; write round(x * 10**n) / 10**n");
        return NULL;
    }
    return unary(qbpy_operator.round, self);
}

static PyGetSetDef transposed = {"T", get_transposed, NULL, "The array with its axes reversed.", NULL};
static PyGetSetDef at = {"at", qbpy_at, NULL, "Updates: x.at[index].set(values) is x with these elements changed.",
                         NULL};
static PyMethodDef round_method = {"__round__", (PyCFunction)(void (*)(void))round_array, METH_FASTCALL,
                                   "__round__($self, /)\n--\n\nThe nearest integers, halves to even."};

static int add_descriptor(PyTypeObject *type, const char *name, PyObject *descriptor)
{
    int status = descriptor ? PyObject_SetAttrString((PyObject *)type, name, descriptor) : -1;
    Py_XDECREF(descriptor);
    return status;
}

int qbpy_add_array_attributes(PyTypeObject *type)
{
    if (add_descriptor(type, transposed.name, PyDescr_NewGetSet(type, &transposed)) < 0 ||
        add_descriptor(type, at.name, PyDescr_NewGetSet(type, &at)) < 0)
        return -1;
    return add_descriptor(type, round_method.ml_name, PyDescr_NewMethod(type, &round_method));
}
