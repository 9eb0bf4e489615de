/* Places: of extremes along an axis, and in a sorted array. They are integers, and have no derivative. */
#include "ops/build.h"

#include <math.h>

#define IS_NAN(x) _Generic((x), double : isnan((double)(x)), float : isnan((float)(x)), default : 0)

/* ---- argmax, argmin: the first extreme along an axis, or the first NaN */

static qb_status place_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0];
    int64_t axis = in->attribute[0].integer;
    if (axis < 0 || axis >= a->rank || a->shape[axis] == 0)
        return qb_fail(QB_ERROR_VALUE, "%s: an array of shape %s has no element to choose along axis %lld",
                       in->op->name, qb_print_shape(a->rank, a->shape).text, (long long)axis);
    qb_type_set(in->result, QB_INT64, 0, NULL);
    for (int i = 0; i < a->rank; i++)
        if (i != axis)
            in->result->shape[in->result->rank++] = a->shape[i];
    int64_t size;
    return qb_shape_size(in->result->rank, in->result->shape, qb_dtype_size(QB_INT64), &size);
}

static void place_batch(qb_rule *r)
{
    qb_attribute attribute = qb_int(r->attribute[0].integer + 1);
    r->batched_result[0] = qb_emit(r->graph, r->op, 1, r->operand, &attribute);
}

enum { EXTREME_BLOCK = 512, COLUMNS = 64 };

/* beats: whether x takes the place of the extreme before it. first: where it is among n neighbours, given the
 * extreme of each block of them by the vectorized reduction. columns: the places in n rows of `count` columns,
 * `inner` apart. */
#define DTYPE(enumerator, type, dtype_name, kind)                                                                      \
    static bool beats_##enumerator(bool of_max, type x, type best)                                                     \
    {                                                                                                                  \
        return (of_max ? x > best : x < best) || (IS_NAN(x) && !IS_NAN(best));                                         \
    }                                                                                                                  \
    static int64_t first_##enumerator(bool of_max, int64_t n, const void *elements, const qb_reduce_kernel *reduce)    \
    {                                                                                                                  \
        const type *a = elements;                                                                                      \
        type best = a[0];                                                                                              \
        int64_t place = 0;                                                                                             \
        for (int64_t start = 0; start < n; start += EXTREME_BLOCK) {                                                   \
            type extreme;                                                                                              \
            reduce->at_once((size_t)(n - start < EXTREME_BLOCK ? n - start : EXTREME_BLOCK), &extreme, a + start);     \
            if (beats_##enumerator(of_max, extreme, best)) {                                                           \
                best = extreme;                                                                                        \
                place = start;                                                                                         \
            }                                                                                                          \
        }                                                                                                              \
        while (!(a[place] == best || (IS_NAN(best) && IS_NAN(a[place]))))                                              \
            place++;                                                                                                   \
        return place;                                                                                                  \
    }                                                                                                                  \
    static void columns_##enumerator(bool of_max, int64_t n, int64_t inner, int64_t count, const void *elements,       \
                                     int64_t *places)                                                                  \
    {                                                                                                                  \
        const type *a = elements;                                                                                      \
        type best[COLUMNS];                                                                                            \
        for (int64_t i = 0; i < count; i++) {                                                                          \
            best[i] = a[i];                                                                                            \
            places[i] = 0;                                                                                             \
        }                                                                                                              \
        for (int64_t k = 1; k < n; k++)                                                                                \
            for (int64_t i = 0; i < count; i++) {                                                                      \
                bool beaten = beats_##enumerator(of_max, a[k * inner + i], best[i]);                                   \
                best[i] = beaten ? a[k * inner + i] : best[i];                                                         \
                places[i] = beaten ? k : places[i];                                                                    \
            }                                                                                                          \
    }
#include "base/dtype.def"
#undef DTYPE

static const struct {
    int64_t (*first)(bool of_max, int64_t n, const void *elements, const qb_reduce_kernel *reduce);
    void (*columns)(bool of_max, int64_t n, int64_t inner, int64_t count, const void *elements, int64_t *places);
} extreme_functions[] = {
#define DTYPE(enumerator, type, dtype_name, kind) [QB_##enumerator] = {first_##enumerator, columns_##enumerator},
#include "base/dtype.def"
#undef DTYPE
};

static void find_extremes(bool of_max, int axis, const qb_type *type, const char *elements, int64_t *places)
{
    int64_t outer = 1, inner = 1, n = type->shape[axis], size = (int64_t)qb_dtype_size(type->dtype);
    for (int i = 0; i < type->rank; i++) {
        outer *= i < axis ? type->shape[i] : 1;
        inner *= i > axis ? type->shape[i] : 1;
    }
    const qb_reduce_kernel *reduce = qb_reduce_lookup(of_max ? QB_REDUCE_max : QB_REDUCE_min, type->dtype);
    for (int64_t o = 0; o < outer; o++) {
        const char *block = elements + o * n * inner * size;
        if (inner == 1)
            places[o] = extreme_functions[type->dtype].first(of_max, n, block, reduce);
        for (int64_t column = 0; inner > 1 && column < inner; column += COLUMNS)
            extreme_functions[type->dtype].columns(of_max, n, inner,
                                                   inner - column < COLUMNS ? inner - column : COLUMNS,
                                                   block + column * size, places + o * inner + column);
    }
}

#define PLACE(op_name, of_max, text)                                                                                   \
    static void op_name##_cpu(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,           \
                              const void *const *operand, const qb_type *result_type, void *const *result)             \
    {                                                                                                                  \
        (void)operand_count, (void)result_type;                                                                        \
        find_extremes(of_max, (int)attribute[0].integer, operand_type, operand[0], result[0]);                         \
    }                                                                                                                  \
    const qb_op qb_op_##op_name = {.name = #op_name,                                                                   \
                                   .summary = text,                                                                    \
                                   .arity = 1,                                                                         \
                                   .result_count = 1,                                                                  \
                                   .flags = QB_OP_FLAT,                                                                \
                                   .attribute_count = 1,                                                               \
                                   .attribute_name = {"axis"},                                                         \
                                   .lane = QB_LANE_NONE,                                                               \
                                   .flops = qb_flops_of_operand,                                                       \
                                   .infer = place_infer,                                                               \
                                   .batch = place_batch,                                                               \
                                   .cpu = op_name##_cpu};                                                              \
    qb_value qb_##op_name(qb_graph *graph, qb_value a, int axis)                                                       \
    {                                                                                                                  \
        qb_attribute attribute = qb_int(axis);                                                                         \
        return qb_emit(graph, &qb_op_##op_name, 1, &a, &attribute);                                                    \
    }

PLACE(argmax, true, "The place of the first maximum along an axis, or of the first NaN")
PLACE(argmin, false, "The place of the first minimum along an axis, or of the first NaN")

/* ---- searchsorted: both operands have `batch` axes in front, then one: of the sorted elements, and of those to be
 * placed */

static qb_status searchsorted_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0], *v = &in->operand[1];
    int64_t batch = in->attribute[1].integer;
    if (a->dtype != v->dtype || a->rank != batch + 1 || v->rank != batch + 1 ||
        !qb_shape_equal((int)batch, a->shape, (int)batch, v->shape))
        return qb_fail(QB_ERROR_VALUE, "searchsorted: %s does not take its place in %s, with %lld batch axes",
                       qb_print_type(v->dtype, v->rank, v->shape).text, qb_print_type(a->dtype, a->rank, a->shape).text,
                       (long long)batch);
    int64_t size;
    qb_type_set(in->result, QB_INT64, v->rank, v->shape);
    return qb_shape_size(v->rank, v->shape, qb_dtype_size(QB_INT64), &size);
}

static qb_value with_batch_axis(qb_rule *r, int operand)
{
    return r->mapped[operand] ? r->operand[operand]
                              : qb_broadcast_leading(r->graph, r->operand[operand], r->batch_size);
}

/* More elements to be placed in the one sorted array are a longer row of them. */
static void searchsorted_batch(qb_rule *r)
{
    qb_graph *g = r->graph;
    bool right = r->attribute[0].integer != 0;
    int batch = (int)r->attribute[1].integer;
    if (r->mapped[0] || batch > 0) {
        r->batched_result[0] = qb_searchsorted(g, with_batch_axis(r, 0), with_batch_axis(r, 1), right, batch + 1);
        return;
    }
    qb_type type;
    qb_value_type(g, r->operand[1], &type);
    int64_t size = type.shape[0] * type.shape[1];
    qb_value places = qb_searchsorted(g, r->operand[0], qb_reshape(g, r->operand[1], 1, &size), right, 0);
    r->batched_result[0] = qb_reshape(g, places, 2, type.shape);
}

/* How many elements come before v: those that are less, and on the right side those that are equal, too. */
#define DTYPE(enumerator, type, dtype_name, kind)                                                                      \
    static void place_##enumerator(int64_t n, const void *elements, int64_t m, const void *wanted, bool right,         \
                                   int64_t *places)                                                                    \
    {                                                                                                                  \
        const type *a = elements, *values = wanted;                                                                    \
        for (int64_t i = 0; i < m; i++) {                                                                              \
            type v = values[i];                                                                                        \
            bool v_is_nan = IS_NAN(v);                                                                                 \
            int64_t low = 0, high = n;                                                                                 \
            while (low < high) {                                                                                       \
                int64_t middle = low + (high - low) / 2;                                                               \
                bool is_nan = IS_NAN(a[middle]);                                                                       \
                bool before = right ? (v_is_nan || a[middle] <= v) : (a[middle] < v || (v_is_nan && !is_nan));         \
                low = before ? middle + 1 : low;                                                                       \
                high = before ? high : middle;                                                                         \
            }                                                                                                          \
            places[i] = low;                                                                                           \
        }                                                                                                              \
    }
#include "base/dtype.def"
#undef DTYPE

typedef void (*place_function)(int64_t n, const void *elements, int64_t m, const void *wanted, bool right,
                               int64_t *places);

static const place_function place_functions[] = {
#define DTYPE(enumerator, type, dtype_name, kind) [QB_##enumerator] = place_##enumerator,
#include "base/dtype.def"
#undef DTYPE
};

static void searchsorted_cpu(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                             const void *const *operand, const qb_type *result_type, void *const *result)
{
    (void)operand_count;
    int batch = (int)attribute[1].integer;
    int64_t rows = 1, n = operand_type[0].shape[batch], m = result_type->shape[batch];
    int64_t size = (int64_t)qb_dtype_size(operand_type[0].dtype);
    for (int i = 0; i < batch; i++)
        rows *= result_type->shape[i];
    for (int64_t row = 0; row < rows; row++)
        place_functions[operand_type[0].dtype](n, (const char *)operand[0] + row * n * size, m,
                                               (const char *)operand[1] + row * m * size, attribute[0].integer != 0,
                                               (int64_t *)result[0] + row * m);
}

/* Bisection for each wanted element. */
static double searchsorted_flops(const qb_graph *graph, const qb_node *node)
{
    double n = (double)graph->values[qb_operand(graph, node, 0)].shape[node->attributes[1].integer];
    return (double)qb_value_size(graph, node->result) * ceil(log2(n + 1));
}

const qb_op qb_op_searchsorted = {.name = "searchsorted",
                                  .summary = "The places at which elements keep a sorted array sorted",
                                  .arity = 2,
                                  .result_count = 1,
                                  .flags = QB_OP_FLAT,
                                  .attribute_count = 2,
                                  .attribute_name = {"right", "batch"},
                                  .lane = QB_LANE_NONE,
                                  .flops = searchsorted_flops,
                                  .infer = searchsorted_infer,
                                  .batch = searchsorted_batch,
                                  .cpu = searchsorted_cpu};

qb_value qb_searchsorted(qb_graph *graph, qb_value a, qb_value v, bool right, int batch)
{
    qb_attribute attributes[] = {qb_int(right), qb_int(batch)};
    return qb_emit(graph, &qb_op_searchsorted, 2, (qb_value[]){a, v}, attributes);
}
