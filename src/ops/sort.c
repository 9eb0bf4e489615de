/* Sorting along an axis: the elements, and the permutation that sorts them.
 *
 * NaN is the last of all, zeros of both signs are equal, and equal elements keep their order, as in NumPy's stable
 * sort. The permutation is of integers, and has no derivative; the derivative of the sorted elements is gathered by
 * it. */
#include "ops/build.h"

#include "base/allocate.h"

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

/* An unsigned number that is ordered as the element is; that of -0 is just below that of 0, or the same. */
static uint64_t key_of(qb_dtype dtype, const void *element, bool equal_zeros)
{
    const uint64_t sign64 = (uint64_t)1 << 63, sign32 = (uint64_t)1 << 31;
    uint64_t bits = 0;
    uint32_t narrow = 0;
    switch (dtype) {
    case QB_FLOAT64:
        memcpy(&bits, element, sizeof bits);
        if ((bits & ~sign64) > 0x7ff0000000000000u)
            return UINT64_MAX;
        return bits == sign64 && equal_zeros ? sign64 : bits & sign64 ? ~bits : bits | sign64;
    case QB_FLOAT32:
        memcpy(&narrow, element, sizeof narrow);
        if ((narrow & ~sign32) > 0x7f800000u)
            return UINT32_MAX;
        return narrow == sign32 && equal_zeros ? sign32 : narrow & sign32 ? (uint32_t)~narrow : narrow | sign32;
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

/* insertion_sort, and radix_sort by the `width` low bytes of the keys, last byte first (Knuth, TAOCP 3, 5.2.5): each pass is stable,
 * and bytes that all keys share need none. That returns where the sorted entries are: in `entries` or in `spare`. */
#define SORTING(T, KEY)                                                                                                \
    static void insertion_sort_##T(T *entries, int64_t n)                                                              \
    {                                                                                                                  \
        for (int64_t i = 1; i < n; i++) {                                                                              \
            T moving = entries[i];                                                                                     \
            int64_t k = i;                                                                                             \
            for (; k > 0 && KEY(entries[k - 1]) > KEY(moving); k--)                                                    \
                entries[k] = entries[k - 1];                                                                           \
            entries[k] = moving;                                                                                       \
        }                                                                                                              \
    }                                                                                                                  \
    static T *radix_sort_##T(T *entries, T *spare, int64_t n, int width)                                               \
    {                                                                                                                  \
        int64_t count[8][256] = {{0}};                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            for (int byte = 0; byte < width; byte++)                                                                   \
                count[byte][KEY(entries[i]) >> (8 * byte) & 255]++;                                                    \
        for (int byte = 0; byte < width; byte++) {                                                                     \
            int64_t *start = count[byte], next = 0;                                                                    \
            if (start[KEY(entries[0]) >> (8 * byte) & 255] == n)                                                       \
                continue;                                                                                              \
            for (int digit = 0; digit < 256; digit++) {                                                                \
                int64_t here = start[digit];                                                                           \
                start[digit] = next;                                                                                   \
                next += here;                                                                                          \
            }                                                                                                          \
            for (int64_t i = 0; i < n; i++)                                                                            \
                spare[start[KEY(entries[i]) >> (8 * byte) & 255]++] = entries[i];                                      \
            T *sorted = spare;                                                                                         \
            spare = entries;                                                                                           \
            entries = sorted;                                                                                          \
        }                                                                                                              \
        return entries;                                                                                                \
    }
#define KEY_OF_ENTRY(x) (x).key
#define KEY_ITSELF(x)   (x)
SORTING(entry, KEY_OF_ENTRY)
SORTING(uint64_t, KEY_ITSELF)

enum { FEW = 64 }; /* elements for which passes over all bytes do not pay */

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
    uint64_t of_i = key_of(r->dtype, r->elements + i * r->step, true),
             of_k = key_of(r->dtype, r->elements + k * r->step, true);
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

/* `entries` has room for 2 n of them. */
static void sort_run(const run *r, entry *entries)
{
    for (int64_t i = 0; i < r->n; i++)
        entries[i] = (entry){key_of(r->dtype, r->elements + i * r->step, true), i};
    const entry *sorted = entries;
    if (r->n <= FEW)
        insertion_sort_entry(entries, r->n);
    else
        sorted = radix_sort_entry(entries, entries + r->n, r->n, (int)qb_dtype_size(r->dtype));
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
                             .flops = sort_flops,
                             .infer = argsort_infer,
                             .batch = argsort_batch,
                             .cpu = argsort_cpu};

qb_value qb_argsort(qb_graph *graph, qb_value a, int axis)
{
    qb_attribute attribute = qb_int(axis);
    return qb_emit(graph, &qb_op_argsort, 1, &a, &attribute);
}

/* ---- sort: by keys alone, from which the elements come back (every NaN as the same) */

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

static void element_of(qb_dtype dtype, uint64_t key, void *element)
{
    const uint64_t sign64 = (uint64_t)1 << 63, sign32 = (uint64_t)1 << 31;
    uint64_t bits = key;
    uint32_t narrow = (uint32_t)key;
    switch (dtype) {
    case QB_FLOAT64:
        bits = key == UINT64_MAX ? 0x7ff8000000000000u : key & sign64 ? key ^ sign64 : ~key;
        memcpy(element, &bits, sizeof bits);
        break;
    case QB_FLOAT32:
        narrow = narrow == UINT32_MAX ? 0x7fc00000u : (uint32_t)(key & sign32 ? key ^ sign32 : ~key);
        memcpy(element, &narrow, sizeof narrow);
        break;
    case QB_INT32:
        narrow ^= (uint32_t)sign32;
        memcpy(element, &narrow, sizeof narrow);
        break;
    case QB_UINT32: memcpy(element, &narrow, sizeof narrow); break;
    case QB_INT64:
        bits ^= sign64;
        memcpy(element, &bits, sizeof bits);
        break;
    case QB_UINT64: memcpy(element, &bits, sizeof bits); break;
    case QB_BOOL: *(uint8_t *)element = (uint8_t)key; break;
    case QB_DTYPE_COUNT: break;
    }
}

/* In place, for want of memory, by Shell's method (Knuth, TAOCP 3, 5.2.1). Negative zeros come first here. */
static void shell_sort(qb_dtype dtype, char *elements, int64_t step, int64_t n)
{
    int64_t gap = 1;
    while (gap < n / 3)
        gap = 3 * gap + 1;
    for (; gap > 0; gap /= 3)
        for (int64_t i = gap; i < n; i++) {
            uint64_t moving = key_of(dtype, elements + i * step, false), before;
            int64_t k = i;
            for (; k >= gap && (before = key_of(dtype, elements + (k - gap) * step, false)) > moving; k -= gap)
                element_of(dtype, before, elements + k * step);
            element_of(dtype, moving, elements + k * step);
        }
}

/* Zeros of both signs are equal, and so keep their order, which their keys do not. */
static void keep_order_of_zeros(qb_dtype dtype, const char *elements, int64_t step, int64_t n, uint64_t *sorted)
{
    if (!qb_dtype_is_floating(dtype))
        return;
    const uint64_t zero = (uint64_t)1 << (8 * qb_dtype_size(dtype) - 1), negative_zero = zero - 1;
    int64_t first = 0, end = n;
    while (first < end) {
        int64_t middle = first + (end - first) / 2;
        if (sorted[middle] < negative_zero)
            first = middle + 1;
        else
            end = middle;
    }
    for (end = first; end < n && sorted[end] <= zero;)
        end++;
    if (first == end || sorted[first] == sorted[end - 1])
        return;
    for (int64_t i = 0; i < n && first < end; i++) {
        uint64_t key = key_of(dtype, elements + i * step, false);
        if (key == zero || key == negative_zero)
            sorted[first++] = key;
    }
}

/* n elements `step` bytes apart; `keys` has room for 2 n. */
static void sort_elements(qb_dtype dtype, char *elements, int64_t step, int64_t n, uint64_t *keys)
{
    for (int64_t i = 0; i < n; i++)
        keys[i] = key_of(dtype, elements + i * step, false);
    uint64_t *sorted = keys;
    if (n <= FEW)
        insertion_sort_uint64_t(keys, n);
    else
        sorted = radix_sort_uint64_t(keys, keys + n, n, (int)qb_dtype_size(dtype));
    keep_order_of_zeros(dtype, elements, step, n, sorted);
    for (int64_t i = 0; i < n; i++)
        element_of(dtype, sorted[i], elements + i * step);
}

static void sort_cpu(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                     const void *const *operand, const qb_type *result_type, void *const *result)
{
    (void)operand_count, (void)operand_type;
    int axis = (int)attribute[0].integer;
    int64_t outer = 1, inner = 1, n = result_type->shape[axis], size = (int64_t)qb_dtype_size(result_type->dtype);
    for (int i = 0; i < result_type->rank; i++) {
        outer *= i < axis ? result_type->shape[i] : 1;
        inner *= i > axis ? result_type->shape[i] : 1;
    }
    if (outer * n * inner == 0)
        return;
    memmove(result[0], operand[0], (size_t)(outer * n * inner * size));
    uint64_t few[FEW], *keys = n <= FEW ? few : qb_allocate(2 * (size_t)n * sizeof *keys);
    for (int64_t i = 0; i < outer * inner; i++) {
        char *first = (char *)result[0] + (i / inner * n * inner + i % inner) * size;
        if (keys)
            sort_elements(result_type->dtype, first, inner * size, n, keys);
        else
            shell_sort(result_type->dtype, first, inner * size, n);
    }
    if (keys != few)
        qb_free(keys);
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
                          .cpu = sort_cpu};

qb_value qb_sort(qb_graph *graph, qb_value a, int axis)
{
    qb_attribute attribute = qb_int(axis);
    return qb_emit(graph, &qb_op_sort, 1, &a, &attribute);
}
