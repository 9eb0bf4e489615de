/* CPU kernels of the operations in ops/linalg.c, which describes them: see qb_op.cpu for the arguments. */
#ifndef QB_CPU_LINALG_H
#define QB_CPU_LINALG_H

#include "graph/graph.h"

#define QB_LINALG_KERNEL(name)                                                                                         \
    void name(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,                           \
              const void *const *operand, const qb_type *result_type, void *const *result)

QB_LINALG_KERNEL(qb_cholesky_run);
QB_LINALG_KERNEL(qb_triangular_solve_run);
QB_LINALG_KERNEL(qb_lu_run);
QB_LINALG_KERNEL(qb_permutation_run);
QB_LINALG_KERNEL(qb_lu_solve_run);
QB_LINALG_KERNEL(qb_determinant_run);

#endif
