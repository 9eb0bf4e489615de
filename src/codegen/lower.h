/* One instruction of a kernel as instructions of the processor. */
#ifndef QB_CODEGEN_LOWER_H
#define QB_CODEGEN_LOWER_H

#include "codegen/x86_64.h"
#include "program/kernel.h"

/* Whether there is such a way; otherwise the instruction's kernel is called. */
bool qb_code_is_arithmetic(const qb_instruction *i);
/* v: the vector registers of the three operands. The result is written last, so it may be one of them. */
void qb_code_lower(qb_x86 *x, qb_x86_lanes lanes, const qb_instruction *i, int result, const int *v);

#endif
