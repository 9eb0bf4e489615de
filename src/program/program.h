/* Programs: a graph made ready to run on a device, and the cache of eager calls.
 *
 * The way of a graph: qb_compile runs the passes (passes/pipeline.h), then the planner decides what is fused into one kernel, where
 * each value lives in one work buffer, and leaves a list of steps; qb_run resolves addresses and executes the steps. Running
 * allocates the outputs and nothing else: work buffers are pooled per program, so one program runs in many threads at once. */
#ifndef QB_PROGRAM_PROGRAM_H
#define QB_PROGRAM_PROGRAM_H

#include "functions/function.h"

/* An eager call: looks the program up by (function, parameters, dtypes, shapes and weakness of operands), builds and compiles it on a
 * miss, and runs it. `operand[i]` may be NULL (absent). Safe from any thread. */
qb_status qb_call_eagerly(qb_context *context, const qb_function *function, const qb_attribute *parameters, int operand_count,
                          qb_tensor *const *operands, const bool *weak, qb_tensor **out, bool *out_weak);

#endif
