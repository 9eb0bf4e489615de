/* Activations, and exponentials that are normalised. */
#include "functions/builder.h"

#include <math.h>

/* A select, which keeps NaN (no comparison holds for it) and has derivative 0 at 0. */
qb_status qb_build_relu(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value x;
    QB_TRY(qb_take_operand(call, QB_TAKES_NUMERIC, 0, &x));
    qb_value zero = qb_splat_like(g, x, 0);
    call->result = qb_select(g, qb_less_equal(g, x, zero), zero, x);
    return QB_OK;
}

/* x where it is above the bound (or NaN), else 0: a factor of what vanishes there, that no infinity comes into. */
static qb_value above(qb_graph *g, qb_value x, double bound)
{
    return qb_select(g, qb_less_equal(g, x, qb_splat_like(g, x, bound)), qb_splat_like(g, x, 0), x);
}

/* x where it is finite; at infinity a number at which the sigmoid and the normal distribution are 1 in either
 * format. Nothing flows back there, where the other factor would make an infinite cotangent of it. */
static qb_value saturated(qb_graph *g, qb_value x)
{
    return qb_select(g, qb_less(g, x, qb_splat_like(g, x, INFINITY)), x, qb_splat_like(g, x, 100));
}

qb_status qb_build_silu(qb_call *call)
{
    qb_value x;
    QB_TRY(qb_take_operand(call, QB_TAKES_FLOATING, 0, &x));
    x = above(call->graph, x, -INFINITY);
    call->result = qb_mul(call->graph, x, qb_sigmoid(call->graph, saturated(call->graph, x)));
    return QB_OK;
}

/* x/2 (1 + tanh z) = x sigmoid(2 z) with z = sqrt(2/pi) (x + 0.044715 x^3) (Hendrycks and Gimpel, "Gaussian Error
 * Linear Units", 2016): the sigmoid keeps the tail that 1 + tanh cancels. Beyond 32 it is 0 or 1 in either format, and
 * z is not formed: its cube would overflow. Exact: x/2 erfc(-x / sqrt 2), likewise. */
qb_status qb_build_gelu(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value x;
    QB_TRY(qb_take_operand(call, QB_TAKES_FLOATING, 0, &x));
    if (call->parameter[0].integer) {
        double scale = 2 * M_SQRT2 / sqrt(M_PI);
        qb_value linear = qb_splat_like(g, x, scale), cubic = qb_splat_like(g, x, scale * 0.044715);
        qb_value far = qb_splat_like(g, x, 32), near = qb_less(g, qb_abs(g, x), far);
        qb_value inner = qb_select(g, near, x, qb_select(g, qb_less(g, x, far), qb_neg(g, far), far));
        qb_value slope = qb_add(g, linear, qb_mul(g, cubic, qb_mul(g, inner, inner)));
        call->result = qb_mul(g, above(g, x, -32), qb_sigmoid(g, qb_mul(g, inner, slope)));
    } else {
        x = above(g, x, -INFINITY);
        qb_value argument = qb_mul(g, saturated(g, x), qb_splat_like(g, x, -M_SQRT1_2));
        call->result = qb_mul(g, qb_mul(g, x, qb_splat_like(g, x, 0.5)), qb_erfc(g, argument));
    }
    return QB_OK;
}

/* ---- Exponentials shifted by their maximum. A shift of 0 where that is not finite gives the limits: all -inf sum to
 * 0, whose logarithm is -inf with derivative 0 (the strong zero), and +inf stays. */

static qb_status take_exponents(qb_call *call, qb_reduced *over, qb_value *x)
{
    QB_TRY(qb_take_reduction(call, over));
    return qb_take_operand(call, QB_TAKES_FLOATING, 0, x);
}

qb_status qb_build_logsumexp(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_reduced over;
    qb_value x;
    QB_TRY(take_exponents(call, &over, &x));
    qb_value result;
    if (over.extent == 0) {
        qb_dtype dtype = qb_dtype_is_floating(over.type.dtype) ? over.type.dtype : QB_FLOAT64;
        result = qb_splat(g, dtype, over.left, over.left_shape, -INFINITY);
    } else {
        qb_value shift = qb_shift_over(g, &over, x);
        qb_value exponentials = qb_exp(g, qb_sub(g, x, qb_spread(g, &over, shift)));
        result = qb_add(g, qb_log(g, qb_sum_over(g, &over, exponentials)), shift);
    }
    call->result = qb_keep_axes(call, &over, &call->parameter[1], result);
    return QB_OK;
}

/* The sum of exponentials as a divisor and under a logarithm: 1 where all are 0. */
static qb_value safe_sum(qb_graph *g, const qb_reduced *over, qb_value exponentials)
{
    qb_value sum = qb_sum_over(g, over, exponentials);
    return qb_select(g, qb_equal(g, sum, qb_splat_like(g, sum, 0)), qb_splat_like(g, sum, 1), sum);
}

qb_status qb_build_softmax(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_reduced over;
    qb_value x;
    QB_TRY(take_exponents(call, &over, &x));
    call->result = x;
    if (over.extent == 0)
        return QB_OK;
    qb_value exponentials = qb_exp(g, qb_sub(g, x, qb_spread(g, &over, qb_shift_over(g, &over, x))));
    qb_value sum = safe_sum(g, &over, exponentials); /* at least 1: one quotient for each sum, not for each element */
    call->result = qb_mul(g, exponentials, qb_spread(g, &over, qb_div(g, qb_splat_like(g, sum, 1), sum)));
    return QB_OK;
}

qb_status qb_build_log_softmax(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_reduced over;
    qb_value x;
    QB_TRY(take_exponents(call, &over, &x));
    call->result = x;
    if (over.extent == 0)
        return QB_OK;
    qb_value shifted = qb_sub(g, x, qb_spread(g, &over, qb_shift_over(g, &over, x)));
    qb_value sum = safe_sum(g, &over, qb_exp(g, shifted));
    call->result = qb_sub(g, shifted, qb_spread(g, &over, qb_log(g, sum)));
    return QB_OK;
}
