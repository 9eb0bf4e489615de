/* CPU kernels of the operations in ops/spectral.c, which describes them, and the memory that they work in: see
 * qb_op.cpu and qb_op.workspace. */
#ifndef QB_CPU_SPECTRAL_H
#define QB_CPU_SPECTRAL_H

#include "cpu/linalg.h"

#define QB_SMALLER(m, n) ((m) < (n) ? (m) : (n))
#define QB_LARGER(m, n)  ((m) < (n) ? (n) : (m))

/* The elements that syevd and gesdd ask for, with blocks of 64: a number that they take as 32 bits. */
#define QB_EIGH_WORK(n) (1 + 6 * (n) + 2 * (n) * (n))
#define QB_SVD_WORK(m, n)                                                                                              \
    (4 * QB_SMALLER(m, n) * QB_SMALLER(m, n) + 7 * QB_SMALLER(m, n) + QB_LARGER(m, n) +                                \
     QB_SMALLER(64, QB_SMALLER(m, n)) * ((m) + (n)) + 1)
#define QB_SINGULAR_VALUES_WORK(m, n)                                                                                  \
    (10 * QB_SMALLER(m, n) + QB_LARGER(m, n) + QB_SMALLER(64, QB_SMALLER(m, n)) * ((m) + (n)))

int64_t qb_eigh_workspace(const qb_graph *graph, const qb_node *node);
int64_t qb_svd_workspace(const qb_graph *graph, const qb_node *node);
int64_t qb_singular_values_workspace(const qb_graph *graph, const qb_node *node);
int64_t qb_qr_workspace(const qb_graph *graph, const qb_node *node);

QB_LINALG_KERNEL(qb_eigh_run);
QB_LINALG_KERNEL(qb_svd_run);
QB_LINALG_KERNEL(qb_singular_values_run);
QB_LINALG_KERNEL(qb_qr_run);
QB_LINALG_KERNEL(qb_pseudo_inverse_run);

#endif
