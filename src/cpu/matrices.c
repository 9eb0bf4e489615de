#include "cpu/matrices.h"

#include "base/threads.h"

#include <math.h>
#include <string.h>

enum { CHUNK_FLOPS = 200000, TILE = 8 };

typedef struct ranges {
    qb_range_work work;
    const void *data;
    int64_t count, size;
} ranges;

static void run_range(void *data, int64_t chunk, int worker)
{
    (void)worker;
    const ranges *r = data;
    int64_t first = chunk * r->size, limit = r->count - first < r->size ? r->count : first + r->size;
    r->work(r->data, first, limit);
}

int64_t qb_chunk_size(int64_t count, double flops_each, int64_t multiple)
{
    double wanted = ceil(CHUNK_FLOPS / (flops_each + 1) / (double)multiple);
    int64_t size = wanted < (double)count ? (int64_t)wanted * multiple : count;
    return size < 1 ? 1 : size;
}

void qb_in_chunks(int64_t count, double flops_each, int64_t multiple, qb_range_work work, const void *data)
{
    ranges r = {work, data, count, qb_chunk_size(count, flops_each, multiple)};
    qb_parallel((count + r.size - 1) / r.size, run_range, &r);
}

int64_t qb_batch_of(const qb_type *type)
{
    int64_t count = 1;
    for (int i = 0; i < type->rank - 2; i++)
        count *= type->shape[i];
    return count;
}

void *qb_element(const void *array, qb_dtype dtype, int64_t place)
{
    return (char *)(uintptr_t)array + place * (int64_t)qb_dtype_size(dtype);
}

void qb_fill_with_nan(qb_dtype dtype, void *array, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (dtype == QB_FLOAT64)
            ((double *)array)[i] = NAN;
        else
            ((float *)array)[i] = NAN;
}

#define TAKE_SYMMETRIC(T)                                                                                              \
    static void take_symmetric_##T(const T *a, T *l, int64_t n, int64_t first, int64_t limit)                          \
    {                                                                                                                  \
        for (int64_t rows = first; rows < limit; rows += TILE)                                                         \
            for (int64_t columns = 0; columns < limit && columns <= rows; columns += TILE)                             \
                for (int64_t i = rows; i < limit && i < rows + TILE; i++)                                              \
                    for (int64_t j = columns; j <= i && j < columns + TILE; j++) {                                     \
                        T x = a[i * n + j], y = a[j * n + i];                                                          \
                        l[i * n + j] = x == y ? x : (T)0.5 * x + (T)0.5 * y;                                           \
                    }                                                                                                  \
        for (int64_t i = first; i < limit; i++)                                                                        \
            memset(l + i * n + i + 1, 0, (size_t)(n - i - 1) * sizeof *l);                                             \
    }
TAKE_SYMMETRIC(double)
TAKE_SYMMETRIC(float)

void qb_take_symmetric(qb_dtype dtype, int64_t n, int64_t first, int64_t limit, const void *a, void *lower)
{
    if (dtype == QB_FLOAT64)
        take_symmetric_double(a, lower, n, first, limit);
    else
        take_symmetric_float(a, lower, n, first, limit);
}

bool qb_all_finite(qb_dtype dtype, const void *a, int64_t count)
{
    double sum = 0; /* of zeros, unless an element is infinite or NaN */
    for (int64_t i = 0; i < count; i++)
        sum += 0 * (dtype == QB_FLOAT64 ? ((const double *)a)[i] : (double)((const float *)a)[i]);
    return sum == 0;
}
