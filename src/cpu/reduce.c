/* Reductions of many short groups, and what combines partial results. Integers are reduced modulo 2^n. */
#include "cpu/cpu.h"

#include <string.h>

#define ADD(a, b)      ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
#define LARGER(a, b)   ((a) > (b) || (a) != (a) ? (a) : (b)) /* NaN wins */
#define SMALLER(a, b)  ((a) < (b) || (a) != (a) ? (a) : (b))

/* FOLD(name, type, combine). Groups of `inner` > 1 lanes go row by row, single lanes as a scalar chain. */
#define FOLD(name, T, COMBINE)                                                                                         \
    static void fold_##name##_##T(size_t outer, size_t extent, size_t inner, T *result, const T *a)                    \
    {                                                                                                                  \
        if (inner == 1) {                                                                                              \
            for (size_t o = 0; o < outer; o++, a += extent) {                                                          \
                T sum = a[0];                                                                                          \
                for (size_t e = 1; e < extent; e++)                                                                    \
                    sum = (T)COMBINE(sum, a[e]);                                                                       \
                result[o] = sum;                                                                                       \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (size_t o = 0; o < outer; o++, result += inner) {                                                          \
            memcpy(result, a, inner * sizeof *a);                                                                      \
            a += inner;                                                                                                \
            for (size_t e = 1; e < extent; e++, a += inner)                                                            \
                for (size_t i = 0; i < inner; i++)                                                                     \
                    result[i] = (T)COMBINE(result[i], a[i]);                                                           \
        }                                                                                                              \
    }

/* Sums and products wrap, so they run in the unsigned type of the size. */
#define FOLD_ALL(T)                                                                                                    \
    FOLD(sum, T, ADD)                                                                                                  \
    FOLD(prod, T, MULTIPLY)                                                                                            \
    FOLD(max, T, LARGER)                                                                                               \
    FOLD(min, T, SMALLER)

FOLD_ALL(double)
FOLD_ALL(float)
FOLD_ALL(uint32_t)
FOLD_ALL(uint64_t)
FOLD(max, uint8_t, LARGER)
FOLD(min, uint8_t, SMALLER)
FOLD(max, int32_t, LARGER)
FOLD(min, int32_t, SMALLER)
FOLD(max, int64_t, LARGER)
FOLD(min, int64_t, SMALLER)

typedef void (*fold)(size_t outer, size_t extent, size_t inner, void *result, const void *a);

/* The typed functions behind one type of pointer, without casting the functions. */
#define ERASE(name, T)                                                                                                 \
    static void any_##name##_##T(size_t outer, size_t extent, size_t inner, void *result, const void *a)               \
    {                                                                                                                  \
        fold_##name##_##T(outer, extent, inner, result, a);                                                            \
    }
#define ERASE_ALL(T)                                                                                                   \
    ERASE(sum, T)                                                                                                      \
    ERASE(prod, T)                                                                                                     \
    ERASE(max, T)                                                                                                      \
    ERASE(min, T)

ERASE_ALL(double)
ERASE_ALL(float)
ERASE_ALL(uint32_t)
ERASE_ALL(uint64_t)
ERASE(max, uint8_t)
ERASE(min, uint8_t)
ERASE(max, int32_t)
ERASE(min, int32_t)
ERASE(max, int64_t)
ERASE(min, int64_t)

#define ROW(wrapping, T)                                                                                               \
    {any_sum_##wrapping, any_prod_##wrapping, any_max_##T, any_min_##T}

static const fold folds[QB_DTYPE_COUNT][QB_REDUCE_COUNT] = {
    [QB_FLOAT64] = ROW(double, double),      [QB_FLOAT32] = ROW(float, float),
    [QB_BOOL] = {NULL, NULL, any_max_uint8_t, any_min_uint8_t},
    [QB_INT32] = ROW(uint32_t, int32_t),     [QB_INT64] = ROW(uint64_t, int64_t),
    [QB_UINT32] = ROW(uint32_t, uint32_t),   [QB_UINT64] = ROW(uint64_t, uint64_t),
};

void qb_fold(qb_reduction reduction, qb_dtype dtype, size_t outer, size_t extent, size_t inner, void *result,
             const void *a)
{
    folds[dtype][reduction](outer, extent, inner, result, a);
}

qb_lane_kernel qb_reduce_combine(qb_reduction reduction, qb_dtype dtype)
{
    switch (reduction) {
    case QB_REDUCE_sum: return qb_lane_lookup(QB_LANE_add, dtype, dtype);
    case QB_REDUCE_prod: return qb_lane_lookup(QB_LANE_mul, dtype, dtype);
    case QB_REDUCE_max: return qb_lane_lookup(dtype == QB_BOOL ? QB_LANE_bit_or : QB_LANE_max, dtype, dtype);
    case QB_REDUCE_min: return qb_lane_lookup(dtype == QB_BOOL ? QB_LANE_bit_and : QB_LANE_min, dtype, dtype);
    case QB_REDUCE_COUNT: break;
    }
    return NULL;
}

void qb_reduce_identity(qb_reduction reduction, qb_dtype dtype, int64_t count, void *result)
{
    size_t size = qb_dtype_size(dtype);
    for (int64_t i = 0; i < count; i++)
        qb_dtype_store(dtype, reduction == QB_REDUCE_prod ? 1 : 0, (char *)result + (size_t)i * size);
}
