/* Machine code for kernels: what a kernel program says, as instructions of the processor.
 *
 * The interpreter (cpu/execute.c) pays a call for each instruction and block, and moves every value through memory.
 * With one lane or eight the calls are nearly all there is, and such kernels are what the body of a loop over time
 * steps or a small model consists of; with hundreds, values kept in registers save half the time. So a kernel of one
 * block becomes code whole, and of a larger one what it does to a full block: arithmetic is done in vector registers,
 * and whatever else there is (tanh, conversions, gathers, reductions) is a call of the function that the interpreter
 * calls. The results have the same bits.
 *
 * Code is made once, when a program is compiled, and lies in memory of the program's own that is first written and then
 * made executable, never both. Where that is refused, or the processor is another one, the interpreter goes on doing
 * the work: machine code is never needed. QUABLA_MACHINE_CODE=0 in the environment switches it off. */
#ifndef QB_CODEGEN_CODEGEN_H
#define QB_CODEGEN_CODEGEN_H

#include "program/plan.h"

/* Where memory lies in a frame, in bytes from its table of slots, which code is called with. */
typedef struct qb_code_layout {
    const qb_slot *slots;
    int64_t arena, scratch;
} qb_code_layout;

typedef struct qb_code_pages {
    void *memory;
    size_t size;
} qb_code_pages;

/* Gives the steps that are kernels worth it their code. Only failing to allocate is a failure. */
qb_status qb_codegen(const qb_code_layout *layout, int32_t step_count, const qb_step *steps, qb_code_pages *out);
void qb_code_pages_free(qb_code_pages *pages);

#endif
