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
 * is kept in twice the precision, so that its error does not grow with the number of terms. With the attribute
 * `strong` a product is 0 wherever a factor or the value before it is: tangents stay 0 through infinite factors. */
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

/* ---- Kernels: columns column .. column+width-1 of one block of n rows, rows `step` elements apart (negative: from
 * the end) */

enum { STRIP = 32, RENORMALIZED_EVERY = 32 };

/* The sum and what rounding has added to it so far (Knuth's two-sum; Ogita, Rump and Oishi, "Accurate Sum and Dot
 * Product", 2005). From time to time they are added anew, so that the cost stays below a unit in the last place of
 * the sum and its own rounding does not matter. An infinite or NaN sum has no cost. Starting from -0 and subtracting
 * the cost keeps the sign of sums that are zero. */
#define SUM(T, width)                                                                                                  \
    static void sum_##T##_##width(const void *terms, void *sums, int64_t n, int64_t step, int64_t count)               \
    {                                                                                                                  \
        const T *b = terms;                                                                                            \
        T *t = sums, sum[width], cost[width] = {0};                                                                    \
        for (int64_t i = 0; i < width; i++)                                                                            \
            sum[i] = (T)-0.0;                                                                                          \
        for (int64_t k = 0; k < n; k++, b += step, t += step) {                                                        \
            for (int64_t i = 0; i < count; i++) {                                                                      \
                T x = b[i], s = sum[i] + x, z = s - sum[i], e = (sum[i] - (s - z)) + (x - z);                          \
                cost[i] -= e - e == 0 ? e : 0;                                                                         \
                sum[i] = s;                                                                                            \
                t[i] = s - cost[i];                                                                                    \
            }                                                                                                          \
            if (k % RENORMALIZED_EVERY != 0)                                                                           \
                continue;                                                                                              \
            for (int64_t i = 0; i < count; i++) {                                                                      \
                T s = sum[i] - cost[i], e = cost[i] - (sum[i] - s);                                                    \
                cost[i] = e - e == 0 ? e : 0;                                                                          \
                sum[i] = s;                                                                                            \
            }                                                                                                          \
        }                                                                                                              \
    }
SUM(double, 1)
SUM(float, 1)
SUM(double, STRIP)
SUM(float, STRIP)

#define PLAIN(a, t)  ((a) * (t))
#define STRONG(a, t) ((a) == 0 || (t) == 0 ? 0 : (a) * (t))

/* With factors; the value before a row is the row just written. T is unsigned for integers, whose sums and products
 * wrap. */
#define RECURRENCE(T, product)                                                                                         \
    static void recurrence_##T##_##product(const void *terms, const void *factors, void *values, int64_t n,            \
                                           int64_t step, int64_t count)                                                \
    {                                                                                                                  \
        const T *b = terms, *a = factors;                                                                              \
        T *t = values, before = b[0];                                                                                  \
        for (int64_t i = 0; i < count; i++)                                                                            \
            t[i] = b[i];                                                                                               \
        for (int64_t k = 1; count == 1 && k < n; k++) {                                                                \
            before = (a ? product(a[k * step], before) : before) + b[k * step];                                        \
            t[k * step] = before;                                                                                      \
        }                                                                                                              \
        for (int64_t k = 1; count > 1 && k < n; k++) {                                                                 \
            b += step, t += step;                                                                                      \
            if (a)                                                                                                     \
                a += step;                                                                                             \
            for (int64_t i = 0; i < count; i++)                                                                        \
                t[i] = (a ? product(a[i], t[i - step]) : t[i - step]) + b[i];                                          \
        }                                                                                                              \
    }
RECURRENCE(double, PLAIN)
RECURRENCE(float, PLAIN)
RECURRENCE(uint32_t, PLAIN)
RECURRENCE(uint64_t, PLAIN)
RECURRENCE(double, STRONG)
RECURRENCE(float, STRONG)

/* One block: n rows of `inner` elements. */
static void run_block(qb_dtype dtype, bool strong, const void *b, const void *a, void *t, int64_t n, int64_t step,
                      int64_t inner)
{
    if (dtype == QB_FLOAT64 && a)
        (strong ? recurrence_double_STRONG : recurrence_double_PLAIN)(b, a, t, n, step, inner);
    else if (dtype == QB_FLOAT32 && a)
        (strong ? recurrence_float_STRONG : recurrence_float_PLAIN)(b, a, t, n, step, inner);
    else if (qb_dtype_size(dtype) == 4 && !qb_dtype_is_floating(dtype))
        recurrence_uint32_t_PLAIN(b, a, t, n, step, inner);
    else if (!qb_dtype_is_floating(dtype))
        recurrence_uint64_t_PLAIN(b, a, t, n, step, inner);
    else if (inner == 1)
        (dtype == QB_FLOAT64 ? sum_double_1 : sum_float_1)(b, t, n, step, 1);
    else
        for (int64_t column = 0, width; column < inner; column += width) {
            width = inner - column < STRIP ? inner - column : STRIP;
            if (dtype == QB_FLOAT64)
                sum_double_STRIP((const double *)b + column, (double *)t + column, n, step, width);
            else
                sum_float_STRIP((const float *)b + column, (float *)t + column, n, step, width);
        }
}

static void recurrence_cpu(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                           const void *const *operand, const qb_type *result_type, void *const *result)
{
    (void)operand_type;
    int axis = (int)attribute[0].integer;
    int64_t outer = 1, inner = 1, n = result_type->shape[axis];
    for (int i = 0; i < result_type->rank; i++) {
        outer *= i < axis ? result_type->shape[i] : 1;
        inner *= i > axis ? result_type->shape[i] : 1;
    }
    if (n * inner == 0)
        return;
    bool reverse = attribute[1].integer != 0;
    size_t size = qb_dtype_size(result_type->dtype), block = (size_t)(n * inner) * size;
    size_t first = reverse ? (size_t)((n - 1) * inner) * size : 0;
    for (int64_t o = 0; o < outer; o++) {
        size_t place = (size_t)o * block + first;
        run_block(result_type->dtype, attribute[2].integer != 0, (const char *)operand[0] + place,
                  operand_count == 2 ? (const char *)operand[1] + place : NULL, (char *)result[0] + place, n,
                  reverse ? -inner : inner, inner);
    }
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
                                .cpu = recurrence_cpu};

qb_value qb_recurrence(qb_graph *graph, qb_value terms, qb_value factors, int axis, bool reverse, bool strong)
{
    qb_attribute attributes[] = {qb_int(axis), qb_int(reverse), qb_int(strong && factors != QB_NONE)};
    return qb_emit(graph, &qb_op_recurrence, factors == QB_NONE ? 1 : 2, (qb_value[]){terms, factors}, attributes);
}
