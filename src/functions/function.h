/* Functions: what users call, with NumPy's semantics, built from primitives.
 *
 * functions.def lists every function once: name, signature, summary, builder; the elementwise primitives join it from
 * ops/elementwise.def. From this come the C call qb_apply, the Python module functions and methods with their
 * signatures and docstrings, the cache of eager calls, and the documentation.
 *
 * A signature is written as in Python, with a type after the colon of each parameter that is not an array, and behind
 * an arrow the names of the results, where there are several:
 *
 *     "x, axis: axes = None, keepdims: bool = False"
 *     "a -> sign, logabsdet"
 *
 * Parameters without a type are operands (arrays or numbers); "arrays: operands" is a list of them, "i: indices" an
 * array of integers; an operand with the default None may be absent. Operands stand together, and other parameters
 * may come before them. A star ("x, *shape: shape", "*arrays: operands") says that Python's callers may give the
 * integers or arrays one by one. Builders see operands as graph values and the other parameters as attributes. */
#ifndef QB_FUNCTIONS_FUNCTION_H
#define QB_FUNCTIONS_FUNCTION_H

#include "ops/build.h"

typedef enum qb_parameter_kind {
    QB_PARAMETER_OPERAND,  /* an array or a number */
    QB_PARAMETER_OPERANDS, /* a sequence of them: takes all operands that single operands leave */
    QB_PARAMETER_INT,      /* -> INT */
    QB_PARAMETER_BOOL,     /* -> INT 0 or 1 */
    QB_PARAMETER_NUMBER,   /* -> NUMBER, or None */
    QB_PARAMETER_AXIS,     /* an int -> INTS of length 1, or None */
    QB_PARAMETER_AXES,     /* an int or a tuple of ints -> INTS, or None */
    QB_PARAMETER_SHAPE,    /* an int or a tuple of ints -> INTS */
    QB_PARAMETER_DTYPE,    /* -> INT; None -> INT -1 */
    QB_PARAMETER_PAIRS,  /* for contractions: an int n -> INTS {n}; two tuples of k axes -> INTS {k, axes of a, axes of
                           b} */
    QB_PARAMETER_WIDTHS, /* an int, a pair of ints, or a pair for each axis -> INTS, two to a pair */
    QB_PARAMETER_TEXT,   /* a str -> INTS, eight characters to an integer: see qb_attribute_text */
    QB_PARAMETER_INDEX,  /* an index, the inside of x[...] -> INTS, four to an entry: see qb_index_kind */
    QB_PARAMETER_INDICES /* an operand: an array of integers, which stay integers */
} qb_parameter_kind;

/* None, for parameters that become NUMBER or INTS otherwise: an INT. */
static inline qb_attribute qb_none_attribute(void)
{
    return qb_int(0);
}

static inline bool qb_is_none(const qb_attribute *attribute)
{
    return attribute->kind == QB_ATTRIBUTE_INT;
}

/* The entries of an index: {kind, start, stop, step}; an absent start or stop is QB_INDEX_ABSENT. */
typedef enum qb_index_kind {
    QB_INDEX_INTEGER, /* start: the position, negative from the end; the axis vanishes */
    QB_INDEX_SLICE,   /* start:stop:step, as Python reads it */
    QB_INDEX_NEW_AXIS,
    QB_INDEX_ELLIPSIS,
    QB_INDEX_ARRAY, /* start: which of the call's index arrays, which are operands behind those of the signature; stop:
                       the extent that the axis must have, for an array made of a boolean one */
    QB_INDEX_FLAG   /* start: likewise, an array of [0] or []: a boolean alone, which indexes a new axis of extent 1 */
} qb_index_kind;

#define QB_INDEX_ABSENT INT64_MIN

enum {
    QB_INDEX_FIELDS = 4,
    QB_MAX_INDEX = 2 * QB_MAX_RANK + 1,
    QB_MAX_PARAMETERS = 6,
    QB_MAX_RESULTS = 4,
    QB_MAX_INTEGERS = 4 * QB_MAX_INDEX
};

typedef struct qb_parameter {
    char name[16];
    qb_parameter_kind kind;
    bool has_default;
    bool is_spread; /* "*shape" */
    int place;      /* among the operands, or among the parameters of a call */
    qb_attribute default_value;
    int64_t default_integer; /* what a default of INTS points to */
} qb_parameter;

/* Which dtypes an operation takes, and what it does to the others. */
typedef enum qb_takes {
    QB_TAKES_ANY,
    QB_TAKES_NUMERIC,  /* arithmetic: floating and integers; bool is an error */
    QB_TAKES_FLOATING, /* mathematics: integers become float64; bool is an error */
    QB_TAKES_TESTABLE, /* tests of floating numbers: bool and integers become float64 */
    QB_TAKES_BITWISE,  /* bool and integers; floating is an error */
    QB_TAKES_ORDERED   /* any, and gives the same */
} qb_takes;

typedef struct qb_call {
    qb_graph *graph;
    const struct qb_function *function;
    int operand_count;
    const qb_value *operand; /* QB_NONE: absent */
    const bool *weak; /* a Python number, or made of such only: takes the dtype of the array it meets (NULL: none) */
    const qb_attribute *parameter; /* one for each parameter that is not an operand, in the order of the signature */
    union {
        qb_value result;
        qb_value results[QB_MAX_RESULTS]; /* of a function that gives several; QB_NONE behind those that a call gives */
    };
    bool result_weak;
    qb_value failed; /* bool, of an entry for each matrix (element of a batch): no result; QB_NONE: cannot be. An eager
                        call with one such is a ValueError; other programs have NaN or infinities in the results. */
    const char *failure; /* what one such is: "is singular" */
} qb_call;

typedef struct qb_function {
    const char *name;
    const char *signature;
    const char *summary;
    bool is_method; /* a method of arrays too */
    qb_status (*build)(qb_call *call);
    const qb_op *primitive; /* of a function that is one elementwise primitive */
    qb_takes takes;         /* likewise */

    /* Derived from the signature once, when the table is first used. */
    int parameter_count;
    int operand_parameters;            /* how many are operands; a list of operands is the last of them */
    int operand_at[QB_MAX_PARAMETERS]; /* where they stand in the signature */
    int required_operands;             /* of the single ones */
    bool takes_operand_list;           /* the last operand parameter is a list */
    bool takes_index;                  /* it has an INDEX */
    bool takes_indices;                /* it has an INDEX or INDICES */
    qb_parameter parameter[QB_MAX_PARAMETERS];
    char call_text[96]; /* the signature without types: "x, axis=None, keepdims=False" */
    int result_count;
    char result_name[QB_MAX_RESULTS][16]; /* where there are several */
} qb_function;

static inline bool qb_parameter_is_operand(const qb_parameter *parameter)
{
    return parameter->kind == QB_PARAMETER_OPERAND || parameter->kind == QB_PARAMETER_OPERANDS ||
           parameter->kind == QB_PARAMETER_INDICES;
}

/* The characters of a TEXT attribute; false when `out` has no room for them and a final NUL. */
bool qb_attribute_text(const qb_attribute *text, size_t room, char *out);
/* Packs characters into at most `capacity` integers; the number of integers, or -1 when they do not fit. */
int qb_pack_text(size_t length, const char *text, int capacity, int64_t *out);

int qb_function_find(const char *name); /* -1: none */
/* Pointers are valid for ever, and equal for equal functions. */
const qb_function *qb_function_at(int index);

/* Builds a call into a graph. On failure the graph is as usable as before (left-over nodes are dead). The message names
 * the function and the operands' shapes or dtypes. */
qb_status qb_function_build(qb_call *call);

/* What the function getitem gives for a tensor, without a program: `index` is an INDEX attribute, `arrays` its
 * arrays. */
qb_status qb_tensor_index(qb_tensor *tensor, const qb_attribute *index, int array_count, qb_tensor *const *arrays,
                          qb_tensor **out);

/* Before a call on concrete operands is run, which has been built already: QB_ERROR_INDEX when an index is out of
 * range. */
qb_status qb_check_call(const qb_function *function, const qb_attribute *parameters, int operand_count,
                        qb_tensor *const *operands);

#endif
