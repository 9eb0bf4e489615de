/* What builders of functions share: operands brought to one dtype and shape, axes made non-negative, reductions with
 * kept axes.
 *
 * A builder reads call->operand, call->weak and call->parameter, emits nodes, and leaves call->result and
 * call->result_weak. Mistakes of the caller it reports itself, before emitting anything that would fail, so that
 * messages name the function and not a primitive. Values may be QB_FAILED midway (memory ran out); nothing here reads
 * the shape of such a value: builders take shapes from their operands, and qb_function_build finds the failure at the
 * end. */
#ifndef QB_FUNCTIONS_BUILDER_H
#define QB_FUNCTIONS_BUILDER_H

#include "functions/function.h"

#define FUNCTION(name, signature, where, builder, summary) qb_status builder(qb_call *call);
#include "functions/functions.def"
#undef FUNCTION
qb_status qb_build_elementwise(qb_call *call);

/* ---- promote.c: dtypes */

static inline bool qb_call_weak(const qb_call *call, int operand)
{
    return call->weak && call->weak[operand];
}

static inline bool qb_call_has(const qb_call *call, int operand)
{
    return operand < call->operand_count && call->operand[operand] != QB_NONE;
}

/* The value with another dtype. A constant number becomes another constant, so that a Python number leaves no trace of
 * float64 in a float32 graph. */
qb_value qb_adopt(qb_graph *graph, qb_value value, qb_dtype dtype);

/* Brings operands which[0..count-1] to one dtype by the promotion rules, weak ones adopting, and sets call->result_weak
 * when the outcome is weak. QB_ERROR_VALUE for mixtures that need astype, and for what `takes` excludes. */
qb_status qb_promote_operands(qb_call *call, qb_takes takes, int count, const int *which, qb_value *out);
/* The same for one operand. */
qb_status qb_take_operand(qb_call *call, qb_takes takes, int operand, qb_value *out);
/* Operands 0 and 1, of one dtype and one shape. */
qb_status qb_take_pair(qb_call *call, qb_takes takes, qb_value *a, qb_value *b);

/* ---- promote.c: shapes */

/* Broadcasts up to four values to their common shape by NumPy's rule; QB_ERROR_VALUE names the shapes. */
qb_status qb_broadcast_together(const qb_call *call, int count, qb_value *values);
/* The common shape alone, into out->shape and out->rank. */
qb_status qb_broadcast_shapes(const qb_call *call, int count, const qb_type *types, qb_type *out);

/* Non-negative axis; QB_ERROR_INDEX would be Python's IndexError, but NumPy's AxisError is a ValueError too, and so is
 * this: "sum: axis 3 is out of range for an array of shape (2, 3)". */
qb_status qb_normalize_axis(const qb_call *call, int64_t axis, int rank, const int64_t *shape, int64_t *out);
/* The axes of an AXES attribute, distinct and ascending; all of them for None. */
qb_status qb_normalize_axes(const qb_call *call, const qb_attribute *axes, const qb_type *type, int *count,
                            int64_t *out);
/* For axes that an operation adds to an array, as the result counts them: is_new[k] of each of the result's axes. */
qb_status qb_normalize_new_axes(const qb_call *call, int count, const int64_t *axes, const qb_type *type, bool *is_new);
/* The axis of an AXIS attribute that must be there. */
qb_status qb_required_axis(const qb_call *call, const qb_attribute *axis, const qb_type *type, int64_t *out);

/* x != 0 */
static inline qb_value qb_to_bool(qb_graph *graph, qb_value value)
{
    return qb_convert(graph, value, QB_BOOL);
}

/* ---- reduce.c: reductions of one value over axes that may be kept */

typedef struct qb_reduced {
    qb_type type; /* before */
    int count;    /* reduced axes */
    int64_t axes[QB_MAX_RANK];
    int left; /* the other axes */
    int64_t left_axes[QB_MAX_RANK];
    int64_t left_shape[QB_MAX_RANK];
    int64_t extent; /* elements that go into one result */
} qb_reduced;

void qb_reduced_over(qb_reduced *reduced, const qb_type *type, int count, const int64_t *axes);
/* Of operand 0 over parameter 0, an AXES. */
qb_status qb_take_reduction(const qb_call *call, qb_reduced *out);
/* The result with the reduced axes as axes of extent 1, if the BOOL says so. */
qb_value qb_keep_axes(const qb_call *call, const qb_reduced *reduced, const qb_attribute *keepdims, qb_value result);
/* The reduction's result spread over the reduced axes again. */
qb_value qb_spread(qb_graph *graph, const qb_reduced *reduced, qb_value result);
qb_value qb_sum_over(qb_graph *graph, const qb_reduced *reduced, qb_value value);
/* The maximum over the axes as a shift for exponentials: without derivative, and 0 where it is infinite or NaN. */
qb_value qb_shift_over(qb_graph *graph, const qb_reduced *reduced, qb_value value);

/* The dtype in which elements of `dtype` are summed and multiplied up: 64 bits for bool and integers. */
qb_dtype qb_sum_dtype(qb_dtype dtype);

/* ---- shape.c */

/* The `size` elements along one axis. */
qb_value qb_flatten(qb_graph *graph, qb_value value, int64_t size);
/* Elements start .. limit-1 along the axis, of a value of that type. */
qb_value qb_part(qb_graph *graph, qb_value value, const qb_type *type, int64_t axis, int64_t start, int64_t limit);

/* ---- arithmetic.c */

/* radial.c: x * x where x has a root in it that the square undoes, such as that of a sum of squares; else QB_NONE. */
qb_value qb_square_of_root(qb_graph *graph, qb_value x);
/* a * b; a square of a root of a sum of squares is that sum. */
qb_value qb_product(qb_graph *graph, qb_value a, qb_value b);
/* x^n by repeated squaring; x^0 is 1 everywhere. */
qb_value qb_integer_power(qb_graph *graph, qb_value x, int64_t n);

#endif
