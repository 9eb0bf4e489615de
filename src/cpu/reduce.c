/* What reductions are made of besides their kernels: the combination of partial results, and the result of nothing. */
#include "cpu/cpu.h"

qb_lane_kernel qb_reduce_combine(qb_reduction reduction, qb_dtype dtype)
{
    switch (reduction) {
    case QB_REDUCE_sum: return qb_lane_lookup(QB_LANE_add, dtype, dtype);
    case QB_REDUCE_prod: return qb_lane_lookup(QB_LANE_mul, dtype, dtype);
    case QB_REDUCE_max: return qb_lane_lookup(dtype == QB_BOOL ? QB_LANE_bit_or : QB_LANE_max, dtype, dtype);
    case QB_REDUCE_min: return qb_lane_lookup(dtype == QB_BOOL ? QB_LANE_bit_and : QB_LANE_min, dtype, dtype);
    case QB_REDUCE_norm: return qb_norm_lookup(dtype);
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
