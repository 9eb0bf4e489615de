/* qb.linalg: orthogonal decompositions, and what is made of them. */
#include "functions/builder.h"

static qb_status take_matrices(qb_call *call, bool square, qb_type *type, qb_value *out)
{
    qb_value_type(call->graph, call->operand[0], type);
    if (type->rank < 2 || (square && type->shape[type->rank - 1] != type->shape[type->rank - 2]))
        return qb_fail(QB_ERROR_VALUE, "%s: takes %smatrices, in the last two axes, got shape %s", call->function->name,
                       square ? "square " : "", qb_print_shape(type->rank, type->shape).text);
    QB_TRY(qb_take_operand(call, QB_TAKES_FLOATING, 0, out));
    if (*out >= 0)
        type->dtype = qb_graph_dtype(call->graph, *out);
    return QB_OK;
}

static qb_value swapped(qb_graph *g, qb_value a, int rank)
{
    int64_t order[QB_MAX_RANK];
    for (int i = 0; i < rank; i++)
        order[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    return qb_permute(g, a, rank, order);
}

qb_status qb_build_eigh(qb_call *call)
{
    qb_type type;
    qb_value a;
    QB_TRY(take_matrices(call, true, &type, &a));
    qb_eigh(call->graph, a, call->results);
    call->results[1] = swapped(call->graph, call->results[1], type.rank);
    return QB_OK;
}

qb_status qb_build_svd(qb_call *call)
{
    qb_type type;
    qb_value a;
    bool values_only = call->parameter[1].integer == 0;
    QB_TRY(take_matrices(call, false, &type, &a));
    qb_svd(call->graph, a, call->parameter[0].integer != 0 && !values_only, call->results);
    if (values_only) {
        call->result = call->results[1];
        call->results[1] = call->results[2] = QB_NONE;
    }
    return QB_OK;
}

/* Wide matrices are a square beside what Q takes to the rest of R. */
static void build_wide_qr(qb_call *call, qb_value a, const qb_type *type)
{
    qb_graph *g = call->graph;
    int rank = type->rank;
    int64_t rows = type->shape[rank - 2], columns = type->shape[rank - 1], batch[QB_MAX_RANK];
    for (int i = 0; i < rank - 2; i++)
        batch[i] = i;
    qb_value square = qb_part(g, a, type, rank - 1, 0, rows), rest = qb_part(g, a, type, rank - 1, rows, columns);
    qb_qr(g, square, false, call->results);
    int64_t axis = rank - 2;
    qb_value more = qb_dot(g, call->results[0], rest, 1, &axis, &axis, rank - 2, batch, batch);
    call->results[1] = qb_concat(g, 2, (qb_value[]){call->results[1], more}, rank - 1);
}

qb_status qb_build_qr(qb_call *call)
{
    qb_type type;
    qb_value a;
    char mode[12];
    bool known = qb_attribute_text(&call->parameter[0], sizeof mode, mode);
    bool complete = known && strcmp(mode, "complete") == 0;
    bool triangle_only = known && strcmp(mode, "r") == 0;
    if (!complete && !triangle_only && !(known && strcmp(mode, "reduced") == 0))
        return qb_fail(QB_ERROR_VALUE, "%s: mode must be 'reduced', 'complete' or 'r'", call->function->name);
    QB_TRY(take_matrices(call, false, &type, &a));
    if (type.shape[type.rank - 2] < type.shape[type.rank - 1])
        build_wide_qr(call, a, &type);
    else
        qb_qr(call->graph, a, complete, call->results);
    if (triangle_only) {
        call->result = call->results[1];
        call->results[1] = QB_NONE;
    }
    return QB_OK;
}
