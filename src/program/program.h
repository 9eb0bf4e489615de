/* Programs: a graph made ready to run on a device, and the cache of eager calls.
 *
 * The way of a graph: qb_compile runs the passes (passes/pipeline.h), then the planner (program/plan.h) decides what is
 * fused into one kernel, where each value lives in one arena, and leaves a list of steps; qb_run resolves addresses and
 * executes the steps. Running allocates the outputs and nothing else: frames, which hold the arena and all addresses
 * that do not change from run to run, are pooled per program, so one program runs in many threads at once. */
#ifndef QB_PROGRAM_PROGRAM_H
#define QB_PROGRAM_PROGRAM_H

#include "codegen/codegen.h"
#include "functions/function.h"
#include "program/plan.h"
#include "program/region.h"

enum { QB_SPARE_FRAMES = 8 };

typedef struct qb_frame qb_frame; /* program.c */

/* A slot that gets another address in every run: that of an input or an output. */
typedef struct qb_moving_slot {
    int32_t slot, index;
} qb_moving_slot;

/* An output of a region's program that no step writes: it is copied. */
typedef struct qb_output_copy {
    int32_t output;
    int64_t bytes;
} qb_output_copy;

struct qb_program {
    _Atomic int64_t references;
    qb_context *context;
    qb_arena memory; /* everything below, and all that steps point to */
    qb_graph *graph; /* after the passes: for the attributes of calls, and for finding numbers that are not finite */
    int32_t input_count, output_count, step_count, slot_count;
    int32_t moving_input_count, moving_output_count;
    const qb_type **inputs;
    const qb_output *outputs;
    const qb_step *steps;
    const qb_slot *slots;
    const qb_moving_slot *moving_inputs, *moving_outputs;
    const qb_output_copy *copies;
    int32_t copy_count;
    qb_region *regions;
    int64_t register_count;
    int32_t thread_count; /* that may run a kernel: each has a table of registers, and scratch memory */
    int64_t scratch_offset, scratch_size, partial_offset, arena_offset, frame_size; /* bytes, in a frame */
    int64_t arena_size;
    double flops; /* of the graph */
    qb_code_pages code;
    qb_code only; /* of the one step that there is; NULL: there are more, or it has none */
    _Atomic(qb_frame *) spare[QB_SPARE_FRAMES];
};

/* Whether it may run long whatever its size is. */
bool qb_program_has_loops(const qb_program *program);

/* Compiles a graph that is optimized already. */
qb_status qb_program_make(qb_context *context, qb_graph *graph, qb_program **out);

/* ---- Running a program as a part of another (region.c): memory is the caller's */

/* Makes a frame in `memory` of program->frame_size bytes, aligned to 64. */
qb_frame *qb_frame_set_up(const qb_program *program, char *memory);
/* Addresses of inputs and outputs are to be written there, see moving_inputs and moving_outputs; */
char **qb_frame_slots(qb_frame *frame);
/* then this runs, and makes all outputs but those that are copied. */
qb_status qb_frame_step(const qb_program *program, qb_frame *frame, qb_run_state *state);
/* Runs on inputs of the program's types, writing the outputs where they are wanted; the two must not overlap. */
qb_status qb_frame_run(const qb_program *program, qb_frame *frame, char *const *inputs, char *const *outputs,
                       qb_run_state *state);

/* An eager call: looks the program up by (function, parameters, dtypes, shapes and weakness of operands), builds and
 * compiles it on a miss, and runs it. `operand[i]` may be NULL (absent); `out` gets function->result_count tensors
 * (NULL behind those that the call gives). Where the function tells that it has no result (qb_call.failed):
 * QB_ERROR_VALUE. Safe from any thread. */
qb_status qb_call_eagerly(qb_context *context, const qb_function *function, const qb_attribute *parameters,
                          int operand_count, qb_tensor *const *operands, const bool *weak, qb_tensor **out,
                          bool *out_weak);

/* Fails with QB_ERROR_NONFINITE: what the operation, written at `source`, made of its operands. */
qb_status qb_fail_nonfinite(const char *operation, int32_t source, const qb_tensor *result, int operand_count,
                            qb_tensor *const *operands);

/* Looks inside an operation that runs graphs for what is not finite: QB_ERROR_NONFINITE; QB_OK where nothing is
 * found. */
qb_status qb_search_region(const qb_node *node, qb_tensor *const *operands);

/* ---- The parts of a context */

typedef struct qb_eager_cache qb_eager_cache;
qb_status qb_eager_cache_create(qb_eager_cache **out);
void qb_eager_cache_destroy(qb_eager_cache *cache);
qb_eager_cache *qb_context_eager_cache(qb_context *context);
/* Asks the host whether a run is to go on; QB_OK where nobody is to be asked. */
qb_status qb_context_poll(const qb_context *context);

#endif
