/* Sorting for want of memory: sort.h's functions that take none. */
#include "cpu/sort.h"

#include <string.h>

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

void qb_sort_places_in_place(qb_dtype dtype, int64_t outer, int64_t n, int64_t inner, const void *elements,
                             int64_t *result)
{
    int64_t size = (int64_t)qb_dtype_size(dtype);
    for (int64_t i = 0; i < outer * inner; i++) {
        int64_t first = i / inner * n * inner + i % inner;
        run r = {.dtype = dtype,
                 .elements = (const char *)elements + first * size,
                 .step = inner * size,
                 .order = result + first,
                 .stride = inner,
                 .n = n};
        heap_sort(&r);
    }
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

void qb_sort_elements_in_place(qb_dtype dtype, int64_t outer, int64_t n, int64_t inner, const void *elements,
                               void *result)
{
    int64_t size = (int64_t)qb_dtype_size(dtype);
    memcpy(result, elements, (size_t)(outer * n * inner * size));
    for (int64_t i = 0; i < outer * inner; i++)
        shell_sort(dtype, (char *)result + (i / inner * n * inner + i % inner) * size, inner * size, n);
}
