/* Products: every function here is one contraction, or an elementwise product.
 *
 * Operands are not copied to broadcast them: a batch axis that only one operand has is a free axis of that operand, and
 * the axes are put in NumPy's order afterwards. So (batch, n, k) @ (k, m) is one product of batch * n rows, and the
 * derivative in the second operand contracts the batch at once. */
#include "functions/builder.h"

/* ---- matmul */

/* One operand of matmul: its type without batch axes of extent 1 that the other broadcasts, and what its axes mean. */
typedef struct side {
    qb_value value;
    qb_type type;
    int batch_rank; /* as given */
    int kept;       /* axes so far */
    int64_t shape[QB_MAX_RANK];
    int64_t target[QB_MAX_RANK]; /* where each free axis goes in the result */
    int free;
    int64_t batch[QB_MAX_RANK];
} side;

static void side_set(side *s, qb_graph *g, qb_value value, int core_rank)
{
    *s = (side){.value = value};
    qb_value_type(g, value, &s->type);
    s->batch_rank = s->type.rank - (s->type.rank < core_rank ? s->type.rank : core_rank);
}

static int64_t batch_extent(const side *s, int position, int batch_rank)
{
    int own = position - (batch_rank - s->batch_rank);
    return own < 0 ? 1 : s->type.shape[own];
}

static void keep_axis(side *s, int64_t extent)
{
    s->shape[s->kept++] = extent;
}

/* Sorts the batch axes: shared ones pair up, others are free in the operand that has them. Returns the number of pairs,
 * whose places in the result go to `target`. */
static int pair_batch_axes(side *a, side *b, int batch_rank, int64_t *target)
{
    int pairs = 0;
    for (int position = 0; position < batch_rank; position++) {
        int64_t of_a = batch_extent(a, position, batch_rank), of_b = batch_extent(b, position, batch_rank);
        if (of_a == of_b) {
            a->batch[pairs] = a->kept;
            b->batch[pairs] = b->kept;
            target[pairs++] = position;
            keep_axis(a, of_a);
            keep_axis(b, of_b);
        } else {
            side *owner = of_b == 1 ? a : b;
            owner->target[owner->free++] = position;
            keep_axis(owner, of_b == 1 ? of_a : of_b);
        }
    }
    return pairs;
}

static qb_value put_in_order(qb_graph *g, qb_value product, int rank, const int64_t *target)
{
    int64_t order[QB_MAX_RANK];
    for (int axis = 0; axis < rank; axis++)
        order[target[axis]] = axis;
    return qb_permute(g, product, rank, order);
}

static qb_status check_matmul(const qb_call *call, const side *a, const side *b)
{
    const qb_type *x = &a->type, *y = &b->type;
    if (x->rank == 0 || y->rank == 0)
        return qb_fail(QB_ERROR_VALUE,
                       "matmul: operands must have an axis at least, got shapes %s and %s; multiply by a scalar with *",
                       qb_print_shape(x->rank, x->shape).text, qb_print_shape(y->rank, y->shape).text);
    int64_t of_a = x->shape[x->rank - 1], of_b = y->shape[y->rank > 1 ? y->rank - 2 : 0];
    if (of_a != of_b)
        return qb_fail(
            QB_ERROR_VALUE,
            "matmul: shapes %s and %s: the last extent of the first, %lld, must equal the %s of the second, %lld",
            qb_print_shape(x->rank, x->shape).text, qb_print_shape(y->rank, y->shape).text, (long long)of_a,
            y->rank > 1 ? "last but one" : "extent", (long long)of_b);
    qb_type batch_a, batch_b, batch;
    qb_type_set(&batch_a, x->dtype, a->batch_rank, x->shape);
    qb_type_set(&batch_b, y->dtype, b->batch_rank, y->shape);
    if (qb_broadcast_shapes(call, 2, (const qb_type[]){batch_a, batch_b}, &batch) != QB_OK)
        return qb_fail(QB_ERROR_VALUE, "matmul: shapes %s and %s: the axes before the last two do not broadcast",
                       qb_print_shape(x->rank, x->shape).text, qb_print_shape(y->rank, y->shape).text);
    return QB_OK;
}

static qb_value without_broadcast_axes(qb_graph *g, const side *s)
{
    return qb_reshape(g, s->value, s->kept, s->shape);
}

qb_status qb_build_matmul(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value operands[2];
    QB_TRY(qb_promote_operands(call, QB_TAKES_NUMERIC, 2, (const int[]){0, 1}, operands));
    if (operands[0] < 0 || operands[1] < 0)
        return QB_OK;
    side a, b;
    side_set(&a, g, operands[0], 2);
    side_set(&b, g, operands[1], 2);
    QB_TRY(check_matmul(call, &a, &b));
    int batch_rank = a.batch_rank > b.batch_rank ? a.batch_rank : b.batch_rank;
    bool has_rows = a.type.rank > 1, has_columns = b.type.rank > 1;
    int64_t target[QB_MAX_RANK];
    int pairs = pair_batch_axes(&a, &b, batch_rank, target), rank = pairs;
    if (has_rows) {
        a.target[a.free++] = batch_rank;
        keep_axis(&a, a.type.shape[a.type.rank - 2]);
    }
    int64_t contract_a = a.kept, contract_b = b.kept;
    keep_axis(&a, a.type.shape[a.type.rank - 1]);
    keep_axis(&b, a.type.shape[a.type.rank - 1]);
    if (has_columns) {
        b.target[b.free++] = batch_rank + (has_rows ? 1 : 0);
        keep_axis(&b, b.type.shape[b.type.rank - 1]);
    }
    for (int i = 0; i < a.free; i++)
        target[rank++] = a.target[i];
    for (int i = 0; i < b.free; i++)
        target[rank++] = b.target[i];
    qb_value product = qb_dot(g, without_broadcast_axes(g, &a), without_broadcast_axes(g, &b), 1, &contract_a,
                              &contract_b, pairs, a.batch, b.batch);
    call->result = put_in_order(g, product, rank, target);
    return QB_OK;
}

/* ---- dot, tensordot, outer */

static qb_status build_contraction(qb_call *call, int count, const int64_t *axes_a, const int64_t *axes_b)
{
    qb_graph *g = call->graph;
    qb_value operands[2];
    QB_TRY(qb_promote_operands(call, QB_TAKES_NUMERIC, 2, (const int[]){0, 1}, operands));
    qb_type a, b;
    qb_value_type(g, call->operand[0], &a);
    qb_value_type(g, call->operand[1], &b);
    for (int i = 0; i < count; i++)
        if (a.shape[axes_a[i]] != b.shape[axes_b[i]])
            return qb_fail(QB_ERROR_VALUE,
                           "%s: shapes %s and %s: axis %lld of the first and axis %lld of the second are summed "
                           "together, with extents %lld and %lld",
                           call->function->name, qb_print_shape(a.rank, a.shape).text,
                           qb_print_shape(b.rank, b.shape).text, (long long)axes_a[i], (long long)axes_b[i],
                           (long long)a.shape[axes_a[i]], (long long)b.shape[axes_b[i]]);
    if (a.rank + b.rank - 2 * count > QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "%s: shapes %s and %s: the result would have more than %d axes",
                       call->function->name, qb_print_shape(a.rank, a.shape).text, qb_print_shape(b.rank, b.shape).text,
                       QB_MAX_RANK);
    call->result = qb_dot(g, operands[0], operands[1], count, axes_a, axes_b, 0, NULL, NULL);
    return QB_OK;
}

qb_status qb_build_dot(qb_call *call)
{
    qb_graph *g = call->graph;
    int rank_a = qb_graph_rank(g, call->operand[0]), rank_b = qb_graph_rank(g, call->operand[1]);
    if (rank_a > 0 && rank_b > 0)
        return build_contraction(call, 1, (const int64_t[]){rank_a - 1},
                                 (const int64_t[]){rank_b > 1 ? rank_b - 2 : 0});
    qb_value a, b;
    QB_TRY(qb_take_pair(call, QB_TAKES_NUMERIC, &a, &b));
    call->result = qb_mul(g, a, b);
    return QB_OK;
}

/* The axes of one operand in a PAIRS attribute, non-negative and distinct. */
static qb_status paired_axes(const qb_call *call, const int64_t *given, int count, qb_value value, int64_t *out)
{
    qb_type type;
    qb_value_type(call->graph, value, &type);
    int64_t distinct[QB_MAX_RANK];
    int found = 0;
    qb_attribute axes = qb_ints(count, given);
    QB_TRY(qb_normalize_axes(call, &axes, &type, &found, distinct));
    for (int i = 0; i < count; i++)
        QB_TRY(qb_normalize_axis(call, given[i], type.rank, type.shape, &out[i]));
    return QB_OK;
}

qb_status qb_build_tensordot(qb_call *call)
{
    const qb_attribute *axes = &call->parameter[0];
    int64_t count = axes->integers[0], axes_a[QB_MAX_RANK], axes_b[QB_MAX_RANK];
    int rank_a = qb_graph_rank(call->graph, call->operand[0]), rank_b = qb_graph_rank(call->graph, call->operand[1]);
    if (count < 0 || count > rank_a || count > rank_b)
        return qb_fail(QB_ERROR_VALUE, "tensordot: cannot sum over %lld axes of arrays with %d and %d",
                       (long long)count, rank_a, rank_b);
    if (axes->count > 1) {
        QB_TRY(paired_axes(call, axes->integers + 1, (int)count, call->operand[0], axes_a));
        QB_TRY(paired_axes(call, axes->integers + 1 + count, (int)count, call->operand[1], axes_b));
    } else {
        for (int i = 0; i < count; i++) {
            axes_a[i] = rank_a - count + i;
            axes_b[i] = i;
        }
    }
    return build_contraction(call, (int)count, axes_a, axes_b);
}

qb_status qb_build_outer(qb_call *call)
{
    qb_graph *g = call->graph;
    qb_value operands[2];
    QB_TRY(qb_promote_operands(call, QB_TAKES_NUMERIC, 2, (const int[]){0, 1}, operands));
    int64_t shape[2] = {qb_value_size(g, call->operand[0]), qb_value_size(g, call->operand[1])};
    qb_value a = qb_broadcast(g, qb_flatten(g, operands[0], shape[0]), 2, shape, (const int64_t[]){0});
    qb_value b = qb_broadcast(g, qb_flatten(g, operands[1], shape[1]), 2, shape, (const int64_t[]){1});
    call->result = qb_mul(g, a, b);
    return QB_OK;
}
