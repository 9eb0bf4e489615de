/* One kernel as code. */
#ifndef QB_CODEGEN_KERNEL_H
#define QB_CODEGEN_KERNEL_H

#include "codegen/codegen.h"
#include "codegen/x86_64.h"

/* Whether all of the kernel can be code: it is one block, and more than calls. */
bool qb_code_suits_whole(const qb_code_layout *layout, const qb_kernel *kernel);
/* Adds a function of the table of slots that does all that the kernel does. */
qb_status qb_code_whole(qb_x86 *x, const qb_code_layout *layout, const qb_kernel *kernel);

/* Whether the instructions of a full block are worth being code. */
bool qb_code_suits_block(const qb_kernel *kernel);
/* Adds a function of the table of registers that does the instructions for kernel->lanes lanes. */
qb_status qb_code_block(qb_x86 *x, const qb_kernel *kernel);

#endif
