/* Sorting along an axis: the elements, and the permutation that sorts them.
 *
 * NaN is the last of all, zeros of both signs are equal, and equal elements keep their order, as in NumPy's stable
 * sort. The permutation is of integers, and has no derivative; the derivative of the sorted elements is gathered by
 * it. */
#include "ops/build.h"

#include "cpu/sort.h"

#include <math.h>

/* About n log2 n comparisons along the axis. */
static double sort_flops(const qb_graph *graph, const qb_node *node)
{
    double n = (double)graph->values[node->result].shape[node->attributes[0].integer];
    return n > 1 ? (double)qb_value_size(graph, node->result) * ceil(log2(n)) : 0;
}

/* ---- argsort */

static qb_status argsort_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    int64_t axis = in->attribute[0].integer;
    if (axis < 0 || axis >= a->rank)
        return qb_fail(QB_ERROR_VALUE, "argsort: axis %lld is out of range for an array of shape %s", (long long)axis,
                       qb_print_shape(a->rank, a->shape).text);
    int64_t size;
    qb_type_set(in->result, QB_INT64, a->rank, a->shape);
    return qb_shape_size(a->rank, a->shape, qb_dtype_size(QB_INT64), &size);
}

static void argsort_batch(qb_rule *r)
{
    r->batched_result[0] = qb_argsort(r->graph, r->operand[0], (int)r->attribute[0].integer + 1);
}

/* The extents before the axis, along it, and behind it. */
static qb_sort_rows rows_of(const qb_type *a, const qb_attribute *axis, bool places)
{
    qb_sort_rows rows = {.dtype = a->dtype, .places = places, .outer = 1, .n = a->shape[axis->integer], .inner = 1};
    for (int i = 0; i < a->rank; i++) {
        rows.outer *= i < axis->integer ? a->shape[i] : 1;
        rows.inner *= i > axis->integer ? a->shape[i] : 1;
    }
    return rows;
}

static int64_t argsort_workspace(const qb_attribute *attribute, const qb_type *operand_type)
{
    const qb_sort_rows rows = rows_of(operand_type, attribute, true);
    return qb_sort_workspace(&rows);
}

static void argsort_cpu(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                        const void *const *operand, const qb_type *result_type, void *const *result)
{
    (void)operand_count, (void)result_type;
    const qb_sort_rows rows = rows_of(operand_type, attribute, true);
    qb_sort_run(&rows, operand[0], result[0], result[1]);
}

const qb_op qb_op_argsort = {.name = "argsort",
                             .summary = "The places of the elements in ascending order along an axis; stable, NaN last",
                             .arity = 1,
                             .result_count = 1,
                             .flags = QB_OP_FLAT,
                             .attribute_count = 1,
                             .attribute_name = {"axis"},
                             .lane = QB_LANE_NONE,
                             .flops = sort_flops,
                             .infer = argsort_infer,
                             .batch = argsort_batch,
                             .workspace = argsort_workspace,
                             .cpu = argsort_cpu};

qb_value qb_argsort(qb_graph *graph, qb_value a, int axis)
{
    qb_attribute attribute = qb_int(axis);
    return qb_emit(graph, &qb_op_argsort, 1, &a, &attribute);
}

/* ---- sort */

static qb_status sort_infer(const qb_inference *in)
{
    QB_TRY(argsort_infer(in));
    *in->result = in->operand[0];
    return QB_OK;
}

static void sort_batch(qb_rule *r)
{
    r->batched_result[0] = qb_sort(r->graph, r->operand[0], (int)r->attribute[0].integer + 1);
}

/* The axis goes last meanwhile: the others pair up. */
static void sort_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    int axis = (int)r->attribute[0].integer, rank = qb_graph_rank(g, r->operand[0]);
    int64_t order[QB_MAX_RANK], inverse[QB_MAX_RANK], last = rank - 1;
    for (int i = 0, next = 0; i < rank; i++)
        order[i == axis ? last : next++] = i;
    for (int i = 0; i < rank; i++)
        inverse[order[i]] = i;
    qb_value places = qb_permute(g, qb_argsort(g, r->operand[0], axis), rank, order);
    qb_value tangent = qb_permute(g, r->tangent[0], rank, order);
    tangent = qb_gather(g, tangent, 1, &places, &last, (int)last, QB_BOUNDS_CLAMP);
    r->result_tangent[0] = qb_permute(g, tangent, rank, inverse);
}

static int64_t sort_workspace(const qb_attribute *attribute, const qb_type *operand_type)
{
    const qb_sort_rows rows = rows_of(operand_type, attribute, false);
    return qb_sort_workspace(&rows);
}

static void sort_cpu(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                     const void *const *operand, const qb_type *result_type, void *const *result)
{
    (void)operand_count, (void)result_type;
    const qb_sort_rows rows = rows_of(operand_type, attribute, false);
    qb_sort_run(&rows, operand[0], result[0], result[1]);
}

const qb_op qb_op_sort = {.name = "sort",
                          .summary = "The elements in ascending order along an axis, NaN last",
                          .arity = 1,
                          .result_count = 1,
                          .attribute_count = 1,
                          .attribute_name = {"axis"},
                          .lane = QB_LANE_NONE,
                          .flops = sort_flops,
                          .infer = sort_infer,
                          .jvp = sort_jvp,
                          .batch = sort_batch,
                          .workspace = sort_workspace,
                          .cpu = sort_cpu};

qb_value qb_sort(qb_graph *graph, qb_value a, int axis)
{
    qb_attribute attribute = qb_int(axis);
    return qb_emit(graph, &qb_op_sort, 1, &a, &attribute);
}
