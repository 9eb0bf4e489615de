/* CPU kernels of the operations in ops/spectral.c, which describes them, and how much memory they want for an m x n
 * matrix: elements, and integers of 32 bits. See qb_op.cpu for the arguments. */
#ifndef QB_CPU_SPECTRAL_H
#define QB_CPU_SPECTRAL_H

#include "cpu/linalg.h"

#define QB_SMALLER(m, n) ((m) < (n) ? (m) : (n))
#define QB_LARGER(m, n)  ((m) < (n) ? (n) : (m))

/* What syevd, gesdd, gelqf and orglq ask for, with blocks of 64. */
#define QB_EIGH_WORK(n)     (1 + 6 * (n) + 2 * (n) * (n))
#define QB_EIGH_ELEMENTS(n) QB_EIGH_WORK(n)
#define QB_EIGH_INTEGERS(n) (3 + 5 * (n))
#define QB_SVD_WORK(m, n)                                                                                              \
    (4 * QB_SMALLER(m, n) * QB_SMALLER(m, n) + 7 * QB_SMALLER(m, n) + QB_LARGER(m, n) +                                \
     QB_SMALLER(64, QB_SMALLER(m, n)) * ((m) + (n)) + 1)
#define QB_SVD_ELEMENTS(m, n) ((m) * (n) + QB_SVD_WORK(m, n))
#define QB_SVD_INTEGERS(m, n) (8 * QB_SMALLER(m, n))
#define QB_QR_WORK(m, n)      (64 * (m) + 1)
#define QB_QR_ELEMENTS(m, n)  ((n) + QB_QR_WORK(m, n))

QB_LINALG_KERNEL(qb_eigh_run);
QB_LINALG_KERNEL(qb_svd_run);
QB_LINALG_KERNEL(qb_qr_run);
QB_LINALG_KERNEL(qb_pseudo_inverse_run);

#endif
