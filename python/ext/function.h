/* The functions of the library as Python objects, and Python's operators on arrays.
 *
 * quabla._core.Function has one instance for each row of functions.def. It is the module function and the method at
 * once: methods are found through the descriptor protocol, as Python's own functions are. Tensor and TraceTensor share
 * every operator. */
#ifndef QUABLA_EXT_FUNCTION_H
#define QUABLA_EXT_FUNCTION_H

#include "functions/function.h"
#include "quabla_ext.h"

/* Calls a function on operands (NULL: absent; arrays, numbers, array-likes): recorded in the innermost trace when one
 * of them is a tracer, executed otherwise. A new reference to a Tensor or TraceTensor, or to a tuple of several. */
PyObject *qbpy_call_function(qbpy_state *state, const qb_function *function, const qb_attribute *parameters,
                             int operand_count, PyObject *const *operands);

/* power(a, b): by repeated multiplication where b is a Python int of 0 or more. */
PyObject *qbpy_call_power(qbpy_state *state, PyObject *a, PyObject *b);

/* ---- parameters.c: what Python passes as a parameter -> attribute */

/* Space for the integers that attributes point to. */
typedef struct qbpy_integers {
    int count;
    int64_t data[QB_MAX_INTEGERS];
} qbpy_integers;

/* 0, or -1 with an exception that names function and parameter. */
int qbpy_parameter_from_object(qbpy_state *state, const qb_function *function, const qb_parameter *parameter,
                               PyObject *object, qb_attribute *out, qbpy_integers *space);
/* The same for integers given one by one: f(x, 2, 3). */
int qbpy_parameter_from_objects(const qb_function *function, const qb_parameter *parameter, PyObject *const *objects,
                                Py_ssize_t count, qb_attribute *out, qbpy_integers *space);

/* ---- operators.c */

/* Functions that operators stand for: found by name once, when the module is made. */
#define QBPY_OPERATORS(X)                                                                                              \
    X(add)                                                                                                             \
    X(subtract)                                                                                                        \
    X(multiply)                                                                                                        \
    X(divide)                                                                                                          \
    X(floor_divide)                                                                                                    \
    X(mod)                                                                                                             \
    X(power)                                                                                                           \
    X(integer_power)                                                                                                   \
    X(matmul)                                                                                                          \
    X(negative)                                                                                                        \
    X(abs)                                                                                                             \
    X(round)                                                                                                           \
    X(einsum)                                                                                                          \
    X(less)                                                                                                            \
    X(less_equal)                                                                                                      \
    X(greater)                                                                                                         \
    X(greater_equal)                                                                                                   \
    X(equal)                                                                                                           \
    X(any)                                                                                                             \
    X(bitwise_and)                                                                                                     \
    X(bitwise_or)                                                                                                      \
    X(bitwise_xor)                                                                                                     \
    X(bitwise_not)                                                                                                     \
    X(transpose)                                                                                                       \
    X(stack)                                                                                                           \
    X(getitem)                                                                                                         \
    X(index_set)                                                                                                       \
    X(index_add)                                                                                                       \
    X(index_multiply)                                                                                                  \
    X(index_min)                                                                                                       \
    X(index_max)

typedef struct qbpy_operators {
#define X(name) const qb_function *name;
    QBPY_OPERATORS(X)
#undef X
} qbpy_operators;

extern qbpy_operators qbpy_operator;

/* function.c: whether the object is a list or tuple with a tracer in it, at any depth; and such a list as an array. */
bool qbpy_holds_tracer(qbpy_state *state, PyObject *object);
PyObject *qbpy_stack_items(qbpy_state *state, PyObject *sequence);

/* sublists.c: einsum(a, [0, 1], b, [1, 2], [0, 2]), by a call of `einsum` with an equation. */
PyObject *qbpy_einsum_of_sublists(PyObject *einsum, PyObject *const *args, Py_ssize_t nargs);

int qbpy_find_operators(void);
/* What a type of arrays has beside its slots: T, __round__, and what tells NumPy to leave operators to us. */
int qbpy_add_array_attributes(PyTypeObject *type);

PyObject *qbpy_add(PyObject *a, PyObject *b);
PyObject *qbpy_subtract(PyObject *a, PyObject *b);
PyObject *qbpy_multiply(PyObject *a, PyObject *b);
PyObject *qbpy_divide(PyObject *a, PyObject *b);
PyObject *qbpy_floor_divide(PyObject *a, PyObject *b);
PyObject *qbpy_mod(PyObject *a, PyObject *b);
PyObject *qbpy_divmod(PyObject *a, PyObject *b);
PyObject *qbpy_power(PyObject *a, PyObject *b, PyObject *modulus);
PyObject *qbpy_matmul(PyObject *a, PyObject *b);
PyObject *qbpy_and(PyObject *a, PyObject *b);
PyObject *qbpy_or(PyObject *a, PyObject *b);
PyObject *qbpy_xor(PyObject *a, PyObject *b);
PyObject *qbpy_negative(PyObject *a);
PyObject *qbpy_positive(PyObject *a);
PyObject *qbpy_absolute(PyObject *a);
PyObject *qbpy_invert(PyObject *a);
PyObject *qbpy_compare(PyObject *a, PyObject *b, int comparison);
PyObject *qbpy_getitem(PyObject *array, PyObject *index);
PyObject *qbpy_item(PyObject *array, Py_ssize_t position);
Py_ssize_t qbpy_length(PyObject *array);
PyObject *qbpy_iterate(PyObject *array);
int qbpy_contains(PyObject *array, PyObject *value);
Py_hash_t qbpy_hash(PyObject *array);

/* The operators of a type of arrays, for its PyType_Spec. == and != are left to object, and so compare identity. */
#define QBPY_OPERATOR_SLOTS                                                                                            \
    {Py_nb_add, (void *)qbpy_add}, {Py_nb_subtract, (void *)qbpy_subtract}, {Py_nb_multiply, (void *)qbpy_multiply},   \
        {Py_nb_true_divide, (void *)qbpy_divide}, {Py_nb_floor_divide, (void *)qbpy_floor_divide},                     \
        {Py_nb_remainder, (void *)qbpy_mod}, {Py_nb_divmod, (void *)qbpy_divmod}, {Py_nb_power, (void *)qbpy_power},   \
        {Py_nb_matrix_multiply, (void *)qbpy_matmul}, {Py_nb_and, (void *)qbpy_and}, {Py_nb_or, (void *)qbpy_or},      \
        {Py_nb_xor, (void *)qbpy_xor}, {Py_nb_negative, (void *)qbpy_negative},                                        \
        {Py_nb_positive, (void *)qbpy_positive}, {Py_nb_absolute, (void *)qbpy_absolute},                              \
        {Py_nb_invert, (void *)qbpy_invert}, {Py_tp_richcompare, (void *)qbpy_compare},                                \
        {Py_tp_hash, (void *)qbpy_hash}, {Py_tp_iter, (void *)qbpy_iterate}, {Py_mp_subscript, (void *)qbpy_getitem},  \
        {Py_mp_length, (void *)qbpy_length}, {Py_sq_item, (void *)qbpy_item},                                          \
    {                                                                                                                  \
        Py_sq_contains, (void *)qbpy_contains                                                                          \
    }

#endif
