/* The list of all descriptors. */
#include "ops/op.h"

const qb_op *const qb_ops[] = {
#define OP(name) &qb_op_##name,
#include "ops/ops.def"
#undef OP
};

const int qb_op_count = (int)(sizeof qb_ops / sizeof *qb_ops);
