/* The table of kernels that one compilation of lanes.c makes: one per instruction set, chosen in lanes_select.c. */
#ifndef QB_CPU_LANES_TABLE_H
#define QB_CPU_LANES_TABLE_H

#include "cpu/lanes.h"

typedef struct qb_lane_table {
    const char *instruction_set;
    qb_lane_kernel kernels[QB_LANE_COUNT][QB_DTYPE_COUNT];  /* the row of QB_LANE_convert is empty */
    qb_lane_kernel convert[QB_DTYPE_COUNT][QB_DTYPE_COUNT]; /* from, to */
    qb_reduce_kernel reduce[QB_REDUCE_COUNT][QB_DTYPE_COUNT];
    qb_lane_kernel norm[QB_DTYPE_COUNT]; /* of two norms */
} qb_lane_table;

/* The i-th table that this machine can run, widest instruction set first; NULL past the last. Table 0 is the
 * default. */
const qb_lane_table *qb_lane_table_at(int i);

#endif
