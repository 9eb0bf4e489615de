/* The CPU kernel of recurrence (ops/recurrence.c defines the operation). */
#ifndef QB_CPU_RECURRENCE_H
#define QB_CPU_RECURRENCE_H

#include "graph/graph.h"

void qb_recurrence_run(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                       const void *const *operand, const qb_type *result_type, void *const *result);

#endif
