/* The linear recurrence along an axis: what running sums and products, and their derivatives of every order, are
 * made of.
 *
 *     t[k] = a[k] t[k-1] + b[k],  t[-1] = 0        (reverse: t[k] = a[k] t[k+1] + b[k], from the end)
 *
 * It is linear in b, and its transpose is the recurrence in the other direction with the factors moved by one place.
 * The tangent of a factor enters as a term: b gets da[k] t[k-1] more. So no rule divides, and running products are
 * exact where factors are 0.
 *
 * Operands are b and a; without a the factors are 1, and the recurrence is a running sum. Of floating numbers that
 * is exact to about twice the precision, so that its error does not grow with the number of terms. With the attribute
 * `strong` a product is 0 wherever a factor or the value before it is: tangents stay 0 through infinite factors. */
#include "cpu/recurrence.h"
#include "ops/build.h"

static qb_status recurrence_infer(const qb_inference *in)
{
    const qb_type *b = &in->operand[0];
    int64_t axis = in->attribute[0].integer;
    if (in->operand_count != 1 && in->operand_count != 2)
        return qb_fail(QB_ERROR_VALUE, "recurrence: takes terms, and factors if they are not 1; got %d operands",
                       in->operand_count);
    if (b->dtype == QB_BOOL)
        return qb_fail(QB_ERROR_VALUE, "recurrence: takes numbers, got bool; convert with astype");
    if (axis < 0 || axis >= b->rank)
        return qb_fail(QB_ERROR_VALUE, "recurrence: axis %lld is out of range for an array of shape %s",
                       (long long)axis, qb_print_shape(b->rank, b->shape).text);
    const qb_type *a = &in->operand[in->operand_count - 1];
    if (a->dtype != b->dtype || !qb_shape_equal(a->rank, a->shape, b->rank, b->shape))
        return qb_fail(QB_ERROR_VALUE, "recurrence: terms are %s and factors %s, which must be equal here",
                       qb_print_type(b->dtype, b->rank, b->shape).text,
                       qb_print_type(a->dtype, a->rank, a->shape).text);
    *in->result = *b;
    return QB_OK;
}

/* The elements moved by `distance` places along the axis, zeros where none came from. */
static qb_value moved(qb_graph *g, qb_value value, int axis, int distance)
{
    int64_t low[QB_MAX_RANK] = {0}, high[QB_MAX_RANK] = {0}, interior[QB_MAX_RANK] = {0};
    low[axis] = distance;
    high[axis] = -distance;
    return qb_pad(g, value, low, high, interior);
}

static void recurrence_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    int axis = (int)r->attribute[0].integer;
    bool reverse = r->attribute[1].integer != 0;
    qb_value terms = r->tangent[0], factors = r->operand_count == 2 ? r->operand[1] : QB_NONE;
    if (factors != QB_NONE && r->tangent[1] != QB_NONE) {
        qb_value before = moved(g, r->result[0], axis, reverse ? -1 : 1);
        qb_value part = qb_strong_mul(g, r->tangent[1], before);
        terms = terms == QB_NONE ? part : qb_add(g, terms, part);
    }
    r->result_tangent[0] = qb_recurrence(g, terms, factors, axis, reverse, true);
}

/* A cotangent of t[k] reaches t[k-1] through a[k]. */
static void recurrence_transpose(qb_rule *r)
{
    int axis = (int)r->attribute[0].integer;
    bool reverse = r->attribute[1].integer != 0;
    qb_value factors = r->operand_count == 2 ? moved(r->graph, r->operand[1], axis, reverse ? 1 : -1) : QB_NONE;
    r->operand_cotangent[0] =
        qb_recurrence(r->graph, r->cotangent[0], factors, axis, !reverse, r->attribute[2].integer != 0);
}

static void recurrence_batch(qb_rule *r)
{
    qb_value operands[2] = {QB_NONE, QB_NONE};
    for (int i = 0; i < r->operand_count; i++)
        operands[i] = r->mapped[i] ? r->operand[i] : qb_broadcast_leading(r->graph, r->operand[i], r->batch_size);
    r->batched_result[0] = qb_recurrence(r->graph, operands[0], operands[1], (int)r->attribute[0].integer + 1,
                                         r->attribute[1].integer != 0, r->attribute[2].integer != 0);
}

/* One element is its own term; factors that are all 1 are left out. */
static qb_value recurrence_simplify(qb_rule *r)
{
    qb_graph *g = r->graph;
    int64_t axis = r->attribute[0].integer;
    double factor;
    if (qb_graph_shape(g, r->operand[0])[axis] == 1)
        return r->operand[0];
    if (r->operand_count == 2 && qb_splat_number(g, r->operand[1], &factor) && factor == 1)
        return qb_recurrence(g, r->operand[0], QB_NONE, (int)axis, r->attribute[1].integer != 0, false);
    return QB_NONE;
}

static double recurrence_flops(const qb_graph *graph, const qb_node *node)
{
    return (double)qb_value_size(graph, node->result) * node->operand_count; /* an addition; with factors, a product */
}

const qb_op qb_op_recurrence = {.name = "recurrence",
                                .summary = "t[k] = a[k] t[k-1] + b[k] along an axis, in either direction",
                                .arity = -1,
                                .result_count = 1,
                                .attribute_count = 3,
                                .attribute_name = {"axis", "reverse", "strong"},
                                .lane = QB_LANE_NONE,
                                .flops = recurrence_flops,
                                .infer = recurrence_infer,
                                .jvp = recurrence_jvp,
                                .transpose = recurrence_transpose,
                                .batch = recurrence_batch,
                                .simplify = recurrence_simplify,
                                .cpu = qb_recurrence_run};

qb_value qb_recurrence(qb_graph *graph, qb_value terms, qb_value factors, int axis, bool reverse, bool strong)
{
    qb_attribute attributes[] = {qb_int(axis), qb_int(reverse), qb_int(strong && factors != QB_NONE)};
    return qb_emit(graph, &qb_op_recurrence, factors == QB_NONE ? 1 : 2, (qb_value[]){terms, factors}, attributes);
}
