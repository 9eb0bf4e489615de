/* CPU kernels of the operations in ops/gather.c, which describes them: see qb_op.cpu for the arguments. */
#ifndef QB_CPU_GATHER_H
#define QB_CPU_GATHER_H

#include "graph/graph.h"

/* What an index out of range means: the values of the attribute `bounds`. */
typedef enum qb_bounds { QB_BOUNDS_CLAMP, QB_BOUNDS_DROP } qb_bounds;

#define QB_GATHER_KERNEL(name)                                                                                         \
    void name(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,                           \
              const void *const *operand, const qb_type *result_type, void *const *result)

QB_GATHER_KERNEL(qb_gather_run);
QB_GATHER_KERNEL(qb_scatter_set_run);
QB_GATHER_KERNEL(qb_scatter_add_run);
QB_GATHER_KERNEL(qb_scatter_mul_run);
QB_GATHER_KERNEL(qb_scatter_max_run);
QB_GATHER_KERNEL(qb_scatter_min_run);
QB_GATHER_KERNEL(qb_writers_run);
QB_GATHER_KERNEL(qb_insert_run);

#endif
