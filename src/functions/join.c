/* Arrays joined, and one array repeated. */
#include "functions/builder.h"

#include "base/allocate.h"

/* ---- Joining any number of arrays */

/* All operands, of one dtype: `count` values that the caller frees. */
static qb_status take_all(qb_call *call, qb_value **out)
{
    int count = call->operand_count;
    if (count == 0)
        return qb_fail(QB_ERROR_VALUE, "%s: needs an array at least", call->function->name);
    int *which = qb_allocate((size_t)count * sizeof *which);
    qb_value *values = qb_allocate((size_t)count * sizeof *values);
    qb_status status = which && values ? QB_OK : qb_fail_memory();
    for (int i = 0; i < count && status == QB_OK; i++)
        which[i] = i;
    if (status == QB_OK)
        status = qb_promote_operands(call, QB_TAKES_ANY, count, which, values);
    qb_free(which);
    if (status == QB_OK)
        *out = values;
    else
        qb_free(values);
    return status;
}

static qb_status fail_to_join(const qb_call *call, int i)
{
    qb_type first, other;
    qb_value_type(call->graph, call->operand[0], &first);
    qb_value_type(call->graph, call->operand[i], &other);
    return qb_fail(QB_ERROR_VALUE, "%s: array 0 has shape %s and array %d has shape %s; %s", call->function->name,
                   qb_print_shape(first.rank, first.shape).text, i, qb_print_shape(other.rank, other.shape).text,
                   call->function->build == qb_build_stack ? "all shapes must be equal"
                                                           : "they must be equal except along the axis");
}

/* Whether the shapes agree, except along `axis` (-1: nowhere). */
static qb_status check_shapes(const qb_call *call, const qb_type *first, int64_t axis)
{
    for (int i = 1; i < call->operand_count; i++) {
        const qb_value_info *other = &call->graph->values[call->operand[i]];
        if (other->rank != first->rank)
            return fail_to_join(call, i);
        for (int k = 0; k < first->rank; k++)
            if (k != axis && other->shape[k] != first->shape[k])
                return fail_to_join(call, i);
    }
    return QB_OK;
}

static qb_status join(qb_call *call, int64_t axis, int rank, const int64_t *reshape_to, bool flatten)
{
    qb_value *values = NULL;
    QB_TRY(take_all(call, &values));
    for (int i = 0; i < call->operand_count; i++) {
        if (reshape_to)
            values[i] = qb_reshape(call->graph, values[i], rank, reshape_to);
        else if (flatten)
            values[i] = qb_flatten(call->graph, values[i], qb_value_size(call->graph, call->operand[i]));
    }
    call->result = qb_concat(call->graph, call->operand_count, values, (int)axis);
    qb_free(values);
    return QB_OK;
}

qb_status qb_build_concat(qb_call *call)
{
    if (call->operand_count == 0 || qb_is_none(&call->parameter[0]))
        return join(call, 0, 1, NULL, true);
    qb_type first;
    int64_t axis = 0;
    qb_value_type(call->graph, call->operand[0], &first);
    if (first.rank == 0)
        return qb_fail(QB_ERROR_VALUE,
                       "%s: array 0 has shape () and no axis to join along; stack joins along a new one",
                       call->function->name);
    QB_TRY(qb_required_axis(call, &call->parameter[0], &first, &axis));
    QB_TRY(check_shapes(call, &first, axis));
    return join(call, axis, first.rank, NULL, false);
}

qb_status qb_build_stack(qb_call *call)
{
    if (call->operand_count == 0)
        return join(call, 0, 1, NULL, false);
    qb_type first;
    qb_value_type(call->graph, call->operand[0], &first);
    QB_TRY(check_shapes(call, &first, -1));
    int64_t shape[QB_MAX_RANK], axis = 0;
    bool is_new[QB_MAX_RANK];
    if (first.rank == QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "stack: arrays of shape %s have as many axes as an array can have",
                       qb_print_shape(first.rank, first.shape).text);
    QB_TRY(qb_normalize_new_axes(call, 1, &call->parameter[0].integer, &first, is_new));
    for (int k = 0, own = 0; k <= first.rank; k++) {
        axis = is_new[k] ? k : axis;
        shape[k] = is_new[k] ? 1 : first.shape[own++];
    }
    return join(call, axis, first.rank + 1, shape, false);
}

/* ---- Repetition: a new axis, broadcast, and merged with its neighbour by a reshape */

typedef struct repetition {
    int spread_rank;
    int64_t spread[2 * QB_MAX_RANK]; /* with the new axes */
    int64_t own[QB_MAX_RANK];        /* which of them are the operand's */
    int merged_rank;
    int64_t merged[QB_MAX_RANK];
} repetition;

static qb_status finish_repetition(qb_call *call, qb_value x, const repetition *r)
{
    int64_t size;
    if (r->spread_rank > QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "%s: more repeated axes than an array can have", call->function->name);
    QB_TRY(qb_shape_size(r->merged_rank, r->merged, sizeof(double), &size));
    qb_value spread = qb_broadcast(call->graph, x, r->spread_rank, r->spread, r->own);
    call->result = qb_reshape(call->graph, spread, r->merged_rank, r->merged);
    return QB_OK;
}

static qb_status check_repetitions(const qb_call *call, int64_t count)
{
    if (count < 0 || count > INT32_MAX)
        return qb_fail(QB_ERROR_VALUE, "%s: cannot repeat %lld times", call->function->name, (long long)count);
    return QB_OK;
}

qb_status qb_build_tile(qb_call *call)
{
    const qb_attribute *reps = &call->parameter[0];
    qb_type type;
    qb_value_type(call->graph, call->operand[0], &type);
    call->result_weak = qb_call_weak(call, 0);
    int rank = type.rank > reps->count ? type.rank : reps->count;
    if (rank > QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "tile: %d repetitions; arrays have %d axes at most", (int)reps->count,
                       QB_MAX_RANK);
    repetition r = {.merged_rank = rank};
    for (int axis = 0; axis < rank; axis++) {
        int own = axis - (rank - type.rank), given = axis - (rank - reps->count);
        int64_t extent = own < 0 ? 1 : type.shape[own], count = given < 0 ? 1 : reps->integers[given];
        QB_TRY(check_repetitions(call, count));
        if (count != 1 || own < 0)
            r.spread[r.spread_rank++] = count;
        if (own >= 0) {
            r.own[own] = r.spread_rank;
            r.spread[r.spread_rank++] = extent;
        }
        r.merged[axis] = extent * count;
    }
    return finish_repetition(call, call->operand[0], &r);
}

qb_status qb_build_repeat(qb_call *call)
{
    qb_graph *g = call->graph;
    int64_t repeats = call->parameter[0].integer, axis = 0;
    qb_type type;
    qb_value x = call->operand[0];
    qb_value_type(g, x, &type);
    call->result_weak = qb_call_weak(call, 0);
    QB_TRY(check_repetitions(call, repeats));
    if (qb_is_none(&call->parameter[1])) {
        int64_t size = qb_value_size(g, x);
        x = qb_flatten(g, x, size);
        qb_type_set(&type, type.dtype, 1, &size);
    } else {
        QB_TRY(qb_required_axis(call, &call->parameter[1], &type, &axis));
    }
    repetition r = {.merged_rank = type.rank};
    for (int k = 0; k < type.rank; k++) {
        r.own[k] = r.spread_rank;
        r.spread[r.spread_rank++] = type.shape[k];
        if (k == axis)
            r.spread[r.spread_rank++] = repeats;
        r.merged[k] = k == axis ? type.shape[k] * repeats : type.shape[k];
    }
    return finish_repetition(call, x, &r);
}
