/* Elementwise functions: those that are one primitive, and arithmetic made of a few. */
#include "functions/builder.h"

#include <float.h>
#include <math.h>

/* An integer to a negative power is none; of an exponent that is a number this can be told. */
static qb_status check_integer_exponent(const qb_call *call, qb_value exponent)
{
    double number;
    if (exponent < 0 || !qb_dtype_is_integer(qb_graph_dtype(call->graph, exponent)) ||
        !qb_splat_number(call->graph, exponent, &number) || number >= 0)
        return QB_OK;
    return qb_fail(QB_ERROR_VALUE,
                   "power: integers to the negative integer power %g are not integers; convert with "
                   "astype(float64)",
                   number);
}

/* x^2.0: C's pow, unless x has a root that the square undoes. */
static qb_value square_as_power(qb_graph *g, qb_value x, qb_value two)
{
    qb_value square = qb_square_of_root(g, x);
    return square == QB_NONE ? qb_pow(g, x, two) : square;
}

qb_status qb_build_elementwise(qb_call *call)
{
    const qb_function *function = call->function;
    qb_value operands[2];
    if (function->primitive->arity == 1)
        QB_TRY(qb_take_operand(call, function->takes, 0, &operands[0]));
    else
        QB_TRY(qb_take_pair(call, function->takes, &operands[0], &operands[1]));
    if (function->primitive == &qb_op_pow)
        QB_TRY(check_integer_exponent(call, operands[1]));
    double exponent;
    if (function->primitive == &qb_op_mul)
        call->result = qb_product(call->graph, operands[0], operands[1]);
    else if (function->primitive == &qb_op_pow && operands[1] >= 0 &&
             qb_splat_number(call->graph, operands[1], &exponent) && exponent == 2)
        call->result = square_as_power(call->graph, operands[0], operands[1]);
    else
        call->result = qb_emit(call->graph, function->primitive, function->primitive->arity, operands, NULL);
    if (function->takes == QB_TAKES_ANY || function->takes == QB_TAKES_TESTABLE)
        call->result_weak = false; /* truth values are not numbers */
    return QB_OK;
}

/* ---- Powers */

qb_value qb_product(qb_graph *graph, qb_value a, qb_value b)
{
    qb_value square = a == b ? qb_square_of_root(graph, a) : QB_NONE;
    return square == QB_NONE ? qb_mul(graph, a, b) : square;
}

qb_value qb_integer_power(qb_graph *graph, qb_value x, int64_t n)
{
    if (n == 0)
        return qb_splat_like(graph, x, 1);
    qb_value result = QB_NONE;
    for (qb_value square = x;; square = qb_product(graph, square, square)) {
        if (n & 1)
            result = result == QB_NONE ? square : qb_mul(graph, result, square);
        n >>= 1;
        if (n == 0)
            return result;
    }
}

qb_status qb_build_square(qb_call *call)
{
    qb_value x;
    QB_TRY(qb_take_operand(call, QB_TAKES_NUMERIC, 0, &x));
    call->result = qb_product(call->graph, x, x);
    return QB_OK;
}

qb_status qb_build_reciprocal(qb_call *call)
{
    qb_value x;
    QB_TRY(qb_take_operand(call, QB_TAKES_FLOATING, 0, &x));
    call->result = qb_div(call->graph, qb_splat_like(call->graph, x, 1), x);
    return QB_OK;
}

qb_status qb_build_integer_power(qb_call *call)
{
    int64_t n = call->parameter[0].integer;
    if (n < 0)
        return qb_fail(QB_ERROR_VALUE, "integer_power: n must be 0 or more, got %lld; power takes negative exponents",
                       (long long)n);
    qb_value x;
    QB_TRY(qb_take_operand(call, QB_TAKES_NUMERIC, 0, &x));
    call->result = qb_integer_power(call->graph, x, n);
    return QB_OK;
}

/* ---- Remainders and logarithms of sums */

/* fmod has the sign of a; where that differs from the sign of b, the remainder of that sign is b further. The
 * derivative in b, -trunc(a / b) of fmod, so becomes -floor(a / b). A zero gets the sign of b, too, as in NumPy: adding
 * +0 makes every zero positive. */
qb_status qb_build_mod(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value a, b;
    QB_TRY(qb_take_pair(call, QB_TAKES_NUMERIC, &a, &b));
    qb_value remainder = qb_fmod(g, a, b), zero = qb_splat_like(g, remainder, 0), down = qb_less(g, b, zero);
    if (remainder >= 0 && qb_dtype_is_floating(g->values[remainder].dtype)) {
        qb_value positive = qb_add(g, remainder, zero), negative = qb_neg(g, qb_add(g, qb_neg(g, remainder), zero));
        remainder = qb_select(g, down, negative, positive);
    }
    qb_value signs_differ = qb_bit_xor(g, qb_less(g, remainder, zero), down);
    qb_value wrong_side = qb_bit_and(g, qb_not_equal(g, remainder, zero), signs_differ);
    call->result = qb_select(g, wrong_side, qb_add(g, remainder, b), remainder);
    return QB_OK;
}

/* larger + softplus(smaller - larger). Chosen by selects, not by max and min: the function is smooth where a = b, and
 * its second derivative there, lost by the halves that max shares out, comes out right. Two equal infinities are the
 * sum, with derivative 0. */
qb_status qb_build_logaddexp(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value a, b;
    QB_TRY(qb_take_pair(call, QB_TAKES_FLOATING, &a, &b));
    qb_value a_is_larger = qb_less_equal(g, b, a);
    qb_value larger = qb_select(g, a_is_larger, a, b), smaller = qb_select(g, a_is_larger, b, a);
    qb_value both_infinite = qb_bit_and(g, qb_equal(g, a, b), qb_isinf(g, a));
    qb_value distance = qb_select(g, both_infinite, qb_splat_like(g, a, 0), qb_sub(g, smaller, larger));
    call->result = qb_select(g, both_infinite, qb_stop_gradient(g, a), qb_add(g, larger, qb_softplus(g, distance)));
    return QB_OK;
}

/* ---- Selections */

/* `bound` where x is not beyond it. NaN stays: x is kept where it is NaN, and a bound that is NaN is never passed. */
static qb_value limit(qb_graph *g, qb_value inside, qb_value x, qb_value bound)
{
    qb_value keep = qb_bit_or(g, inside, qb_not_equal(g, x, x));
    return qb_select(g, keep, x, bound);
}

qb_status qb_build_clip(qb_call *call)
{
    qb_graph *g = call->graph;
    bool has_lo = qb_call_has(call, 1), has_hi = qb_call_has(call, 2);
    int which[3] = {0}, count = 1;
    if (has_lo)
        which[count++] = 1;
    if (has_hi)
        which[count++] = 2;
    qb_value values[3];
    QB_TRY(qb_promote_operands(call, QB_TAKES_NUMERIC, count, which, values));
    QB_TRY(qb_broadcast_together(call, count, values));
    qb_value x = values[0];
    if (has_lo)
        x = limit(g, qb_less(g, values[1], x), x, values[1]);
    if (has_hi)
        x = limit(g, qb_less(g, x, values[count - 1]), x, values[count - 1]);
    call->result = x;
    return QB_OK;
}

qb_status qb_build_where(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value values[3] = {qb_to_bool(g, call->operand[0])};
    QB_TRY(qb_promote_operands(call, QB_TAKES_ANY, 2, (const int[]){1, 2}, values + 1));
    QB_TRY(qb_broadcast_together(call, 3, values));
    call->result = qb_select(g, values[0], values[1], values[2]);
    return QB_OK;
}

qb_status qb_build_nan_to_num(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value x;
    QB_TRY(qb_take_operand(call, QB_TAKES_ANY, 0, &x));
    call->result = x;
    if (x < 0 || !qb_dtype_is_floating(g->values[x].dtype))
        return QB_OK;
    double largest = g->values[x].dtype == QB_FLOAT32 ? (double)FLT_MAX : DBL_MAX;
    const qb_attribute *nan = &call->parameter[0], *posinf = &call->parameter[1], *neginf = &call->parameter[2];
    qb_value is_nan = qb_isnan(g, x);
    qb_value is_posinf = qb_equal(g, x, qb_splat_like(g, x, INFINITY));
    qb_value is_neginf = qb_equal(g, x, qb_splat_like(g, x, -INFINITY));
    qb_value y = qb_select(g, is_nan, qb_splat_like(g, x, qb_is_none(nan) ? 0 : nan->number), x);
    y = qb_select(g, is_posinf, qb_splat_like(g, x, qb_is_none(posinf) ? largest : posinf->number), y);
    call->result = qb_select(g, is_neginf, qb_splat_like(g, x, qb_is_none(neginf) ? -largest : neginf->number), y);
    return QB_OK;
}

qb_status qb_build_stop_gradient(qb_call *call)
{
    qb_value x;
    QB_TRY(qb_take_operand(call, QB_TAKES_ANY, 0, &x));
    call->result = qb_stop_gradient(call->graph, x);
    return QB_OK;
}
