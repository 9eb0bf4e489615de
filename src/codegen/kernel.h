/* One kernel as code. */
#ifndef QB_CODEGEN_KERNEL_H
#define QB_CODEGEN_KERNEL_H

#include "codegen/codegen.h"
#include "codegen/x86_64.h"

/* Whether the kernel gains by being code: it is small, and more than calls. */
bool qb_code_suits(const qb_code_layout *layout, const qb_kernel *kernel);
/* Adds a function of the table of slots that does all that the kernel does. */
qb_status qb_code_kernel(qb_x86 *x, const qb_code_layout *layout, const qb_kernel *kernel);

#endif
