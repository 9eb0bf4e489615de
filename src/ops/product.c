/* dot: the product of two arrays summed over paired axes; every matrix product is one. */
#include "ops/build.h"

#include <string.h>

/* How the axes of an operand serve, as read from the attributes. */
typedef struct roles {
    int batch_count, contract_count, free_count;
    const int64_t *batch, *contract;
    int64_t free[QB_MAX_RANK];
} roles;

static roles roles_of(const qb_attribute *attribute, int operand, int rank)
{
    const qb_attribute *contract = &attribute[operand], *batch = &attribute[2 + operand];
    roles out = {.batch_count = batch->count,
                 .contract_count = contract->count,
                 .batch = batch->integers,
                 .contract = contract->integers};
    bool used[QB_MAX_RANK + 1] = {false};
    for (int i = 0; i < batch->count; i++)
        used[batch->integers[i]] = true;
    for (int i = 0; i < contract->count; i++)
        used[contract->integers[i]] = true;
    for (int i = 0; i < rank; i++)
        if (!used[i])
            out.free[out.free_count++] = i;
    return out;
}

static bool axes_valid(const qb_attribute *contract, const qb_attribute *batch, int rank)
{
    bool used[QB_MAX_RANK] = {false};
    for (int i = 0; i < contract->count + batch->count; i++) {
        int64_t axis = i < contract->count ? contract->integers[i] : batch->integers[i - contract->count];
        if (axis < 0 || axis >= rank || used[axis])
            return false;
        used[axis] = true;
    }
    return true;
}

static qb_status dot_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0], *b = &in->operand[1];
    const qb_attribute *at = in->attribute;
    if (a->dtype != b->dtype || a->dtype == QB_BOOL)
        return qb_fail(QB_ERROR_VALUE, "dot: operands have dtypes %s and %s; convert one with astype",
                       qb_dtype_name(a->dtype), qb_dtype_name(b->dtype));
    bool valid = at[0].count == at[1].count && at[2].count == at[3].count && axes_valid(&at[0], &at[2], a->rank) &&
                 axes_valid(&at[1], &at[3], b->rank);
    for (int i = 0; valid && i < at[0].count; i++)
        valid = a->shape[at[0].integers[i]] == b->shape[at[1].integers[i]];
    for (int i = 0; valid && i < at[2].count; i++)
        valid = a->shape[at[2].integers[i]] == b->shape[at[3].integers[i]];
    if (!valid)
        return qb_fail(QB_ERROR_VALUE, "dot: arrays of shapes %s and %s do not pair along axes %s and %s",
                       qb_print_shape(a->rank, a->shape).text, qb_print_shape(b->rank, b->shape).text,
                       qb_print_shape(at[0].count, at[0].integers).text,
                       qb_print_shape(at[1].count, at[1].integers).text);
    roles ra = roles_of(at, 0, a->rank), rb = roles_of(at, 1, b->rank);
    if (ra.batch_count + ra.free_count + rb.free_count > QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "dot: the result would have rank %d; ranks go to %d",
                       ra.batch_count + ra.free_count + rb.free_count, QB_MAX_RANK);
    qb_type_set(in->result, a->dtype, 0, NULL);
    for (int i = 0; i < ra.batch_count; i++)
        in->result->shape[in->result->rank++] = a->shape[ra.batch[i]];
    for (int i = 0; i < ra.free_count; i++)
        in->result->shape[in->result->rank++] = a->shape[ra.free[i]];
    for (int i = 0; i < rb.free_count; i++)
        in->result->shape[in->result->rank++] = b->shape[rb.free[i]];
    int64_t size;
    return qb_shape_size(in->result->rank, in->result->shape, qb_dtype_size(a->dtype), &size);
}

static void dot_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    for (int i = 0; i < 2; i++) {
        if (r->tangent[i] == QB_NONE)
            continue;
        qb_value operands[2] = {r->operand[0], r->operand[1]};
        operands[i] = r->tangent[i];
        qb_value t = qb_emit(g, r->op, 2, operands, r->attribute);
        r->result_tangent[0] = r->result_tangent[0] == QB_NONE ? t : qb_add(g, r->result_tangent[0], t);
    }
}

/* The cotangent times the other operand, summed over the axes that came from it. The product has axes (batch, own
 * free axes, own contracted axes in the order of the other operand's), which are then put where the operand has
 * them. */
static void transpose_operand(qb_rule *r, int operand)
{
    qb_graph *g = r->graph;
    int other = 1 - operand;
    qb_type other_type;
    qb_value_type(g, r->operand[other], &other_type);
    int rank = r->operand_type[operand].rank;
    roles own = roles_of(r->attribute, operand, rank), its = roles_of(r->attribute, other, other_type.rank);
    int its_first = own.batch_count + (operand == 0 ? own.free_count : 0);

    int64_t ct_contract[QB_MAX_RANK], ct_batch[QB_MAX_RANK];
    for (int i = 0; i < its.free_count; i++)
        ct_contract[i] = its_first + i;
    for (int i = 0; i < own.batch_count; i++)
        ct_batch[i] = i;
    qb_value sum = qb_dot(g, r->cotangent[0], r->operand[other], its.free_count, ct_contract, its.free, own.batch_count,
                          ct_batch, its.batch);

    int64_t order[QB_MAX_RANK]; /* order[axis of the operand] = axis of `sum` */
    for (int i = 0; i < own.batch_count; i++)
        order[own.batch[i]] = i;
    for (int i = 0; i < own.free_count; i++)
        order[own.free[i]] = own.batch_count + i;
    for (int i = 0; i < own.contract_count; i++) {
        int place =
            0; /* of its contracted axis i among all of them in ascending order: the free axes of that product */
        for (int k = 0; k < own.contract_count; k++)
            place += its.contract[k] < its.contract[i];
        order[own.contract[i]] = own.batch_count + own.free_count + place;
    }
    r->operand_cotangent[operand] = qb_permute(g, sum, rank, order);
}

static void dot_transpose(qb_rule *r)
{
    for (int i = 0; i < 2; i++)
        if (r->linear[i])
            transpose_operand(r, i);
}

static const int64_t *shifted(const qb_attribute *axes, bool mapped, int64_t *out)
{
    for (int i = 0; i < axes->count; i++)
        out[i] = axes->integers[i] + mapped;
    return out;
}

static void dot_batch_both(qb_rule *r)
{
    int64_t contract[2][QB_MAX_RANK], batch[2][QB_MAX_RANK + 1];
    for (int i = 0; i < 2; i++) {
        (void)shifted(&r->attribute[i], true, contract[i]);
        (void)shifted(&r->attribute[2 + i], true, batch[i] + 1);
        batch[i][0] = 0;
    }
    r->batched_result[0] = qb_dot(r->graph, r->operand[0], r->operand[1], r->attribute[0].count, contract[0],
                                  contract[1], r->attribute[2].count + 1, batch[0], batch[1]);
}

/* Only one operand is mapped: its batch axis is one more free axis, the first of them. With that operand on the left
 * it comes right after the dot's own batch axes; the free axes of both sides then go where the caller expects them. */
static void dot_batch_one(qb_rule *r, int mapped)
{
    qb_graph *g = r->graph;
    int other = 1 - mapped;
    qb_type type, other_type;
    qb_value_type(g, r->operand[mapped], &type);
    qb_value_type(g, r->operand[other], &other_type);
    int64_t contract[QB_MAX_RANK], batch[QB_MAX_RANK];
    int batch_count = r->attribute[2].count, contract_count = r->attribute[0].count;
    (void)shifted(&r->attribute[mapped], true, contract);
    (void)shifted(&r->attribute[2 + mapped], true, batch);
    qb_value sum = qb_dot(g, r->operand[mapped], r->operand[other], contract_count, contract,
                          r->attribute[other].integers, batch_count, batch, r->attribute[2 + other].integers);
    int free = type.rank - 1 - batch_count - contract_count,
        other_free = other_type.rank - batch_count - contract_count;
    int first_count = mapped == 0 ? free : other_free, second_count = mapped == 0 ? other_free : free;
    int first = batch_count + 1 + (mapped == 0 ? 0 : free), second = batch_count + 1 + (mapped == 0 ? free : 0);
    int64_t order[QB_MAX_RANK + 1]; /* one more than a result has: then the product has failed */
    int rank = 0;
    order[rank++] = batch_count;
    for (int i = 0; i < batch_count; i++)
        order[rank++] = i;
    for (int i = 0; i < first_count; i++)
        order[rank++] = first + i;
    for (int i = 0; i < second_count; i++)
        order[rank++] = second + i;
    r->batched_result[0] = qb_permute(g, sum, rank, order);
}

static void dot_batch(qb_rule *r)
{
    if (r->mapped[0] && r->mapped[1])
        dot_batch_both(r);
    else
        dot_batch_one(r, r->mapped[0] ? 0 : 1);
}

/* A multiplication and an addition for each term; no addition where there is one term. */
static double dot_flops(const qb_graph *graph, const qb_node *node)
{
    const qb_value_info *a = &graph->values[qb_operand(graph, node, 0)];
    const qb_attribute *contract = &node->attributes[0];
    double terms = 1;
    for (int i = 0; i < contract->count; i++)
        terms *= (double)a->shape[contract->integers[i]];
    return (double)qb_value_size(graph, node->result) * (terms > 1 ? 2 * terms : terms);
}

const qb_op qb_op_dot = {.name = "dot",
                         .summary = "Product summed over paired axes",
                         .arity = 2,
                         .result_count = 1,
                         .flags = QB_OP_BILINEAR,
                         .attribute_count = 4,
                         .attribute_name = {"contract_a", "contract_b", "batch_a", "batch_b"},
                         .lane = QB_LANE_NONE,
                         .flops = dot_flops,
                         .infer = dot_infer,
                         .jvp = dot_jvp,
                         .transpose = dot_transpose,
                         .batch = dot_batch};

qb_value qb_dot(qb_graph *graph, qb_value a, qb_value b, int contract_count, const int64_t *a_contract,
                const int64_t *b_contract, int batch_count, const int64_t *a_batch, const int64_t *b_batch)
{
    qb_attribute attributes[] = {qb_ints(contract_count, a_contract), qb_ints(contract_count, b_contract),
                                 qb_ints(batch_count, a_batch), qb_ints(batch_count, b_batch)};
    return qb_emit(graph, &qb_op_dot, 2, (qb_value[]){a, b}, attributes);
}
