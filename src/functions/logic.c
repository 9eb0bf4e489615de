/* Comparisons that are others with operands exchanged, and logic on truth values: what is not 0 is true. */
#include "functions/builder.h"

static qb_status build_comparison(qb_call *call, const qb_op *op)
{
    qb_value a, b;
    QB_TRY(qb_take_pair(call, QB_TAKES_ANY, &a, &b));
    call->result = qb_emit(call->graph, op, 2, (qb_value[]){b, a}, NULL);
    call->result_weak = false;
    return QB_OK;
}

qb_status qb_build_greater(qb_call *call)
{
    return build_comparison(call, &qb_op_less);
}

qb_status qb_build_greater_equal(qb_call *call)
{
    return build_comparison(call, &qb_op_less_equal);
}

qb_status qb_build_logical_not(qb_call *call)
{
    call->result = qb_bit_not(call->graph, qb_to_bool(call->graph, call->operand[0]));
    return QB_OK;
}

/* No promotion: each operand becomes a truth value by itself. */
static qb_status build_connective(qb_call *call, const qb_op *op)
{
    qb_value operands[2] = {qb_to_bool(call->graph, call->operand[0]), qb_to_bool(call->graph, call->operand[1])};
    QB_TRY(qb_broadcast_together(call, 2, operands));
    call->result = qb_emit(call->graph, op, 2, operands, NULL);
    return QB_OK;
}

qb_status qb_build_logical_and(qb_call *call)
{
    return build_connective(call, &qb_op_bit_and);
}

qb_status qb_build_logical_or(qb_call *call)
{
    return build_connective(call, &qb_op_bit_or);
}

qb_status qb_build_logical_xor(qb_call *call)
{
    return build_connective(call, &qb_op_bit_xor);
}

/* any and all are the maximum and minimum of truth values. */
static qb_status build_quantifier(qb_call *call, bool is_any)
{
    qb_graph *g = call->graph;
    qb_reduced over;
    QB_TRY(qb_take_reduction(call, &over));
    qb_value x = qb_to_bool(g, call->operand[0]), result;
    if (over.extent == 0)
        result = qb_splat(g, QB_BOOL, over.left, over.left_shape, is_any ? 0 : 1);
    else
        result = is_any ? qb_reduce_max(g, x, over.count, over.axes) : qb_reduce_min(g, x, over.count, over.axes);
    call->result = qb_keep_axes(call, &over, &call->parameter[1], result);
    return QB_OK;
}

qb_status qb_build_any(qb_call *call)
{
    return build_quantifier(call, true);
}

qb_status qb_build_all(qb_call *call)
{
    return build_quantifier(call, false);
}
