/* Order: the permutation that sorts, and places in a sorted array. Both give integers, so their derivative is zero; what is sorted is
 * gathered by the permutation, and has the derivative of that.
 *
 * NaN is the last of all, zeros of both signs are equal, and equal elements keep their order: as NumPy's stable sort. */
#include "ops/build.h"

#include "base/allocate.h"

#include <math.h>

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

/* An unsigned number that is ordered as the element is. */
static uint64_t key_of(qb_dtype dtype, const void *element)
{
    const uint64_t sign64 = (uint64_t)1 << 63, sign32 = (uint64_t)1 << 31;
    uint64_t bits = 0;
    uint32_t narrow = 0;
    switch (dtype) {
    case QB_FLOAT64:
        memcpy(&bits, element, sizeof bits);
        if ((bits & ~sign64) > 0x7ff0000000000000u)
            return UINT64_MAX;
        return bits == sign64 ? sign64 : bits & sign64 ? ~bits : bits | sign64;
    case QB_FLOAT32:
        memcpy(&narrow, element, sizeof narrow);
        if ((narrow & ~sign32) > 0x7f800000u)
            return UINT32_MAX;
        return narrow == sign32 ? sign32 : narrow & sign32 ? (uint32_t)~narrow : narrow | sign32;
    case QB_INT32: memcpy(&narrow, element, sizeof narrow); return narrow ^ sign32;
    case QB_UINT32: memcpy(&narrow, element, sizeof narrow); return narrow;
    case QB_INT64: memcpy(&bits, element, sizeof bits); return bits ^ sign64;
    case QB_UINT64: memcpy(&bits, element, sizeof bits); return bits;
    case QB_BOOL: return *(const uint8_t *)element;
    case QB_DTYPE_COUNT: break;
    }
    return 0;
}

typedef struct entry {
    uint64_t key;
    int64_t place;
} entry;

static void insertion_sort(entry *entries, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        entry moving = entries[i];
        int64_t k = i;
        for (; k > 0 && entries[k - 1].key > moving.key; k--)
            entries[k] = entries[k - 1];
        entries[k] = moving;
    }
}

/* By bytes of the keys, last byte first (Knuth, TAOCP 3, 5.2.5), each pass stable; bytes that all keys share need none. Returns where
 * the sorted entries are: in `entries` or in `spare`. */
static entry *radix_sort(entry *entries, entry *spare, int64_t n)
{
    int64_t count[8][256] = {{0}};
    for (int64_t i = 0; i < n; i++)
        for (int byte = 0; byte < 8; byte++)
            count[byte][entries[i].key >> (8 * byte) & 255]++;
    for (int byte = 0; byte < 8; byte++) {
        int64_t *start = count[byte], next = 0;
        if (start[entries[0].key >> (8 * byte) & 255] == n)
            continue;
        for (int digit = 0; digit < 256; digit++) {
            int64_t here = start[digit];
            start[digit] = next;
            next += here;
        }
        for (int64_t i = 0; i < n; i++)
            spare[start[entries[i].key >> (8 * byte) & 255]++] = entries[i];
        entry *sorted = spare;
        spare = entries;
        entries = sorted;
    }
    return entries;
}

/* A run of elements, `step` bytes apart, whose order goes to places `stride` apart. */
typedef struct run {
    qb_dtype dtype;
    const char *elements;
    int64_t step;
    int64_t *order;
    int64_t stride;
    int64_t n;
} run;

static bool comes_before(const run *r, int64_t i, int64_t k)
{
    uint64_t of_i = key_of(r->dtype, r->elements + i * r->step), of_k = key_of(r->dtype, r->elements + k * r->step);
    return of_i < of_k || (of_i == of_k && i < k);
}

static void sift_down(const run *r, int64_t root, int64_t n)
{
    int64_t moving = r->order[root * r->stride];
    for (int64_t child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && comes_before(r, r->order[child * r->stride], r->order[(child + 1) * r->stride]))
            child++;
        if (!comes_before(r, moving, r->order[child * r->stride]))
            break;
        r->order[root * r->stride] = r->order[child * r->stride];
    }
    r->order[root * r->stride] = moving;
}

/* In place, for want of memory: the same order, since places decide between equal keys. */
static void heap_sort(const run *r)
{
    for (int64_t i = 0; i < r->n; i++)
        r->order[i * r->stride] = i;
    for (int64_t i = r->n / 2 - 1; i >= 0; i--)
        sift_down(r, i, r->n);
    for (int64_t last = r->n - 1; last > 0; last--) {
        int64_t largest = r->order[0];
        r->order[0] = r->order[last * r->stride];
        r->order[last * r->stride] = largest;
        sift_down(r, 0, last);
    }
}

enum { FEW = 64 }; /* elements for which passes over all bytes do not pay */

/* `entries` has room for 2 n of them. */
static void sort_run(const run *r, entry *entries)
{
    for (int64_t i = 0; i < r->n; i++)
        entries[i] = (entry){key_of(r->dtype, r->elements + i * r->step), i};
    const entry *sorted = entries;
    if (r->n <= FEW)
        insertion_sort(entries, r->n);
    else
        sorted = radix_sort(entries, entries + r->n, r->n);
    for (int64_t i = 0; i < r->n; i++)
        r->order[i * r->stride] = sorted[i].place;
}

static void argsort_cpu(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                        const void *const *operand, const qb_type *result_type, void *const *result)
{
    (void)operand_count;
    int axis = (int)attribute[0].integer;
    int64_t outer = 1, inner = 1, n = result_type->shape[axis];
    for (int i = 0; i < result_type->rank; i++) {
        outer *= i < axis ? result_type->shape[i] : 1;
        inner *= i > axis ? result_type->shape[i] : 1;
    }
    entry few[FEW], *entries = n <= FEW ? few : qb_allocate(2 * (size_t)n * sizeof *entries);
    int64_t size = (int64_t)qb_dtype_size(operand_type->dtype);
    for (int64_t i = 0; i < outer * inner; i++) {
        int64_t first = i / inner * n * inner + i % inner;
        run r = {.dtype = operand_type->dtype,
                 .elements = (const char *)operand[0] + first * size,
                 .step = inner * size,
                 .order = (int64_t *)result[0] + first,
                 .stride = inner,
                 .n = n};
        if (entries)
            sort_run(&r, entries);
        else
            heap_sort(&r);
    }
    if (entries != few)
        qb_free(entries);
}

const qb_op qb_op_argsort = {.name = "argsort",
                             .summary = "The places of the elements in ascending order along an axis; stable, NaN last",
                             .arity = 1,
                             .result_count = 1,
                             .flags = QB_OP_FLAT,
                             .attribute_count = 1,
                             .attribute_name = {"axis"},
                             .lane = QB_LANE_NONE,
                             .infer = argsort_infer,
                             .batch = argsort_batch,
                             .cpu = argsort_cpu};

qb_value qb_argsort(qb_graph *graph, qb_value a, int axis)
{
    qb_attribute attribute = qb_int(axis);
    return qb_emit(graph, &qb_op_argsort, 1, &a, &attribute);
}

/* ---- searchsorted: both operands have `batch` axes in front, then one: of the sorted elements, and of those to be placed */

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

#define IS_NAN(x) _Generic((x), double : isnan((double)(x)), float : isnan((float)(x)), default : 0)

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

const qb_op qb_op_searchsorted = {.name = "searchsorted",
                                  .summary = "The places at which elements keep a sorted array sorted",
                                  .arity = 2,
                                  .result_count = 1,
                                  .flags = QB_OP_FLAT,
                                  .attribute_count = 2,
                                  .attribute_name = {"right", "batch"},
                                  .lane = QB_LANE_NONE,
                                  .infer = searchsorted_infer,
                                  .batch = searchsorted_batch,
                                  .cpu = searchsorted_cpu};

qb_value qb_searchsorted(qb_graph *graph, qb_value a, qb_value v, bool right, int batch)
{
    qb_attribute attributes[] = {qb_int(right), qb_int(batch)};
    return qb_emit(graph, &qb_op_searchsorted, 2, (qb_value[]){a, v}, attributes);
}
