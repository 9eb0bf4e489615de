/* Compiling and running. */
#include "program/program.h"

#include "base/allocate.h"
#include "base/threads.h"
#include "passes/pipeline.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* What a running program has for itself, in one block of memory: addresses of slots, registers of all kernels, scratch
 * memory for registers, the arena. Addresses of constants, arena slots and scratch registers are set once. */
struct qb_frame {
    char **registers;
    void **addresses; /* of a call's operands, results and workspace */
    char *partials;   /* of the chunks of a kernel */
    char *slots[];
};

/* ---- Devices */

typedef struct device {
    const char *name;
    const char *missing; /* the library that it needs and that this build cannot use; NULL: can run */
    bool numbered;       /* "name:0" is a spelling, too */
} device;

static const device devices[] = {
    {"cpu", NULL, false},
    {"cuda", "the CUDA driver library (libcuda)", true},
    {"opencl", "the OpenCL loader (libOpenCL)", true},
    {"mlx", "the MLX library (libmlx)", false},
};

static bool is_spelling_of(const device *d, const char *name)
{
    size_t length = strlen(d->name);
    if (strncmp(name, d->name, length) != 0)
        return false;
    const char *rest = name + length;
    if (*rest == '\0')
        return true;
    return d->numbered && rest[0] == ':' && rest[1] != '\0' && strspn(rest + 1, "0123456789") == strlen(rest + 1);
}

/* Names of devices, those that can run or the others, with commas between them. */
static void list_devices(bool can_run, size_t room, char *out)
{
    size_t used = 0;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (!devices[i].missing == can_run && used < room)
            used += (size_t)snprintf(out + used, room - used, "%s\"%s\"", used ? ", " : "", devices[i].name);
}

static qb_status fail_unknown_device(const char *name)
{
    char available[128], others[128], lower[16] = "", hint[64] = "";
    list_devices(true, sizeof available, available);
    list_devices(false, sizeof others, others);
    for (size_t i = 0; i + 1 < sizeof lower && name[i]; i++)
        lower[i] = (char)tolower((unsigned char)name[i]);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strlen(name) < sizeof lower && is_spelling_of(&devices[i], lower))
            (void)snprintf(hint, sizeof hint, "; did you mean \"%s\"?", lower);
    return qb_fail(QB_ERROR_VALUE, "unknown device \"%s\": available here: %s; known, but not available: %s%s", name,
                   available, others, hint);
}

qb_status qb_device_check(const char *name)
{
    if (!name)
        return qb_fail(QB_ERROR_VALUE, "compile: no device given; \"cpu\" is one");
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (!is_spelling_of(&devices[i], name))
            continue;
        if (!devices[i].missing)
            return QB_OK;
        return qb_fail_unsupported("compile", name,
                                   "device \"%s\" is not available: this build has no support for %s; use \"cpu\"",
                                   name, devices[i].missing);
    }
    return fail_unknown_device(name);
}

const char *qb_device_name(int index)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (!devices[i].missing && index-- == 0)
            return devices[i].name;
    return NULL;
}

/* ---- Compiling */

static qb_status keep_slots(qb_program *program, const qb_plan *plan)
{
    size_t count = (size_t)plan->slot_count;
    qb_slot *slots = qb_arena_allocate(&program->memory, count * sizeof *slots);
    qb_moving_slot *inputs = qb_arena_allocate(&program->memory, count * sizeof *inputs);
    qb_moving_slot *outputs = qb_arena_allocate(&program->memory, count * sizeof *outputs);
    if (!slots || !inputs || !outputs)
        return qb_fail_memory();
    for (int32_t i = 0; i < plan->slot_count; i++) {
        slots[i] = plan->slots[i];
        if (slots[i].kind == QB_SLOT_INPUT)
            inputs[program->moving_input_count++] = (qb_moving_slot){i, slots[i].index};
        else if (slots[i].kind == QB_SLOT_OUTPUT)
            outputs[program->moving_output_count++] = (qb_moving_slot){i, slots[i].index};
        else if (slots[i].kind == QB_SLOT_CONSTANT)
            (void)qb_tensor_retain(slots[i].constant);
    }
    program->slots = slots;
    program->slot_count = plan->slot_count;
    program->moving_inputs = inputs;
    program->moving_outputs = outputs;
    return QB_OK;
}

static qb_status keep_inputs(qb_program *program, const qb_graph *graph)
{
    const qb_type **inputs = qb_arena_allocate(&program->memory, (size_t)graph->input_count * sizeof *inputs);
    if (!inputs)
        return qb_fail_memory();
    for (int i = 0; i < graph->input_count; i++) {
        const qb_value_info *info = &graph->values[graph->inputs[i]];
        /* a type cut off after the extents it has */
        qb_type *type =
            qb_arena_allocate(&program->memory, offsetof(qb_type, shape) + (size_t)info->rank * sizeof(int64_t));
        if (!type)
            return qb_fail_memory();
        qb_type_set(type, info->dtype, info->rank, info->shape);
        inputs[i] = type;
    }
    program->inputs = inputs;
    program->input_count = graph->input_count;
    return QB_OK;
}

/* The outputs that are an input, a constant or another output: qb_run hands out that tensor, qb_frame_run copies. */
static qb_status keep_copies(qb_program *program, const qb_plan *plan, int32_t output_count)
{
    qb_output_copy *copies = qb_arena_allocate(&program->memory, (size_t)output_count * sizeof *copies);
    if (!copies)
        return qb_fail_memory();
    for (int32_t i = 0; i < output_count; i++) {
        const qb_output *output = &plan->outputs[i];
        int64_t bytes = (int64_t)qb_dtype_size(output->dtype);
        for (int k = 0; k < output->rank; k++)
            bytes *= output->shape[k];
        if (output->kind != QB_OUTPUT_FRESH)
            copies[program->copy_count++] = (qb_output_copy){i, bytes};
    }
    program->copies = copies;
    return QB_OK;
}

static qb_status keep_plan(qb_program *program, qb_plan *plan, qb_graph *graph)
{
    program->regions = plan->regions;
    plan->regions = NULL;
    QB_TRY(keep_inputs(program, graph));
    QB_TRY(keep_copies(program, plan, graph->output_count));
    QB_TRY(keep_slots(program, plan));
    program->outputs = plan->outputs;
    for (int i = 0; i < graph->output_count; i++, program->output_count++)
        if (plan->outputs[i].kind == QB_OUTPUT_CONSTANT)
            (void)qb_tensor_retain(plan->outputs[i].constant);
    program->steps = plan->steps;
    program->step_count = plan->unit_count;
    program->register_count = plan->register_count;
    program->arena_size = plan->arena_size;
    if ((program->flops = qb_graph_flops(graph)) < 0)
        return qb_fail_memory();
    program->thread_count = plan->is_parallel ? qb_thread_count() : 1;
    program->scratch_size = qb_whole_lines(plan->scratch_size);
    int64_t registers = program->register_count * program->thread_count;
    int64_t addresses = program->slot_count + registers + plan->address_count;
    program->scratch_offset = qb_whole_lines((int64_t)sizeof(qb_frame) + addresses * (int64_t)sizeof(char *));
    program->partial_offset = program->scratch_offset + program->scratch_size * program->thread_count;
    program->arena_offset = qb_whole_lines(program->partial_offset + plan->partial_size);
    program->frame_size = program->arena_offset + plan->arena_size;
    program->graph = qb_graph_retain(graph);
    int64_t slots = (int64_t)offsetof(qb_frame, slots);
    qb_code_layout layout = {program->slots, program->arena_offset - slots, program->scratch_offset - slots};
    QB_TRY(qb_codegen(&layout, plan->unit_count, plan->steps, &program->code));
    program->only =
        plan->unit_count == 1 && plan->steps[0].kind == QB_STEP_KERNEL ? plan->steps[0].kernel->whole : NULL;
    return QB_OK;
}

qb_status qb_program_make(qb_context *context, qb_graph *graph, qb_program **out)
{
    qb_program *program = qb_allocate_zeroed(1, sizeof *program);
    if (!program)
        return qb_fail_memory();
    atomic_init(&program->references, 1);
    program->context = context;
    for (int i = 0; i < QB_SPARE_FRAMES; i++)
        atomic_init(&program->spare[i], NULL);
    qb_plan plan;
    qb_status status = qb_plan_make(&plan, context, graph, &program->memory);
    if (status == QB_OK)
        status = keep_plan(program, &plan, graph);
    qb_plan_end(&plan);
    if (status != QB_OK) {
        qb_program_release(program);
        return status;
    }
    *out = program;
    return QB_OK;
}

qb_status qb_compile(qb_context *context, const qb_graph *graph, const char *device_name, qb_program **out)
{
    QB_TRY(qb_device_check(device_name));
    qb_graph *optimized;
    QB_TRY(qb_optimize(graph, &optimized));
    qb_graph *tiled = NULL;
    qb_status status = qb_tile(optimized, &tiled);
    if (status == QB_OK)
        status = qb_program_make(context, tiled ? tiled : optimized, out);
    qb_graph_release(tiled);
    qb_graph_release(optimized);
    return status;
}

bool qb_program_has_loops(const qb_program *program)
{
    return program->regions != NULL;
}

qb_program *qb_program_retain(qb_program *program)
{
    if (program)
        atomic_fetch_add_explicit(&program->references, 1, memory_order_relaxed);
    return program;
}

void qb_program_release(qb_program *program)
{
    if (!program || atomic_fetch_sub_explicit(&program->references, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < QB_SPARE_FRAMES; i++)
        qb_free_aligned(atomic_load(&program->spare[i]));
    for (int32_t i = 0; i < program->slot_count; i++)
        if (program->slots[i].kind == QB_SLOT_CONSTANT)
            qb_tensor_release(program->slots[i].constant);
    for (int32_t i = 0; i < program->output_count; i++)
        if (program->outputs[i].kind == QB_OUTPUT_CONSTANT)
            qb_tensor_release(program->outputs[i].constant);
    qb_regions_release(program->regions);
    qb_code_pages_free(&program->code);
    qb_graph_release(program->graph);
    qb_arena_free(&program->memory);
    qb_free(program);
}

/* ---- Frames */

static void set_registers(const qb_kernel *kernel, char *const *slots, char **registers, char *scratch)
{
    for (int32_t i = 0; i < kernel->fixed_count; i++)
        registers[kernel->bindings[i].target] = slots[kernel->bindings[i].slot] + kernel->bindings[i].offset;
    for (int32_t i = 0; i < kernel->scratch_count; i++)
        registers[kernel->bound_count + i] = scratch + (int64_t)i * kernel->scratch_stride;
    for (int32_t i = 0; i < kernel->load_count; i++)
        if (kernel->loads[i].kind == QB_LOAD_CONSTANT)
            registers[kernel->loads[i].target] = (char *)(uintptr_t)kernel->loads[i].lanes; /* only read */
    char *stack = scratch + (int64_t)kernel->scratch_count * kernel->scratch_stride;
    for (int32_t i = 0; i < kernel->reduction_count; i++, stack += kernel->stack_size)
        registers[kernel->reductions[i].stack] = stack;
}

qb_frame *qb_frame_set_up(const qb_program *program, char *memory)
{
    qb_frame *frame = (qb_frame *)(void *)memory;
    frame->registers = frame->slots + program->slot_count;
    frame->addresses = (void **)(frame->registers + program->register_count * program->thread_count);
    frame->partials = memory + program->partial_offset;
    for (int32_t i = 0; i < program->slot_count; i++) {
        const qb_slot *slot = &program->slots[i];
        if (slot->kind == QB_SLOT_CONSTANT)
            frame->slots[i] = slot->constant->data;
        else if (slot->kind == QB_SLOT_ARENA)
            frame->slots[i] = memory + program->arena_offset + slot->offset;
    }
    for (int32_t i = 0; i < program->step_count; i++)
        for (int32_t t = 0; program->steps[i].kind == QB_STEP_KERNEL && t < program->thread_count; t++)
            set_registers(program->steps[i].kernel, frame->slots,
                          frame->registers + t * program->register_count + program->steps[i].kernel->first_register,
                          memory + program->scratch_offset + t * program->scratch_size);
    return frame;
}

static qb_frame *take_frame(qb_program *program)
{
    for (int i = 0; i < QB_SPARE_FRAMES; i++) {
        if (!atomic_load_explicit(&program->spare[i], memory_order_relaxed))
            continue;
        qb_frame *frame = atomic_exchange_explicit(&program->spare[i], NULL, memory_order_acquire);
        if (frame)
            return frame;
    }
    char *memory = qb_allocate_aligned((size_t)program->frame_size);
    return memory ? qb_frame_set_up(program, memory) : NULL;
}

static void give_frame_back(qb_program *program, qb_frame *frame)
{
    for (int i = 0; i < QB_SPARE_FRAMES; i++) {
        qb_frame *none = NULL;
        if (atomic_compare_exchange_strong_explicit(&program->spare[i], &none, frame, memory_order_release,
                                                    memory_order_relaxed))
            return;
    }
    qb_free_aligned(frame);
}

/* ---- Running */

static qb_status input_mismatch(const qb_type *type, const qb_tensor *given, int index)
{
    if (!given)
        return qb_fail(QB_ERROR_VALUE, "run: input %d is missing", index);
    return qb_fail(QB_ERROR_VALUE, "run: input %d is %s, but the program was compiled for %s", index,
                   qb_print_type(given->dtype, given->rank, given->shape).text,
                   qb_print_type(type->dtype, type->rank, type->shape).text);
}

static qb_status check_inputs(const qb_program *program, qb_tensor *const *inputs)
{
    for (int32_t i = 0; i < program->input_count; i++) {
        const qb_type *type = program->inputs[i];
        const qb_tensor *given = inputs[i];
        if (!given || given->dtype != type->dtype ||
            !qb_shape_equal(given->rank, given->shape, type->rank, type->shape))
            return input_mismatch(type, given, (int)i);
    }
    return QB_OK;
}

/* The tensors of all outputs, in `made`, each with a reference of its own. */
static qb_status make_outputs(const qb_program *program, qb_tensor *const *inputs, qb_tensor **made)
{
    for (int32_t i = 0; i < program->output_count; i++) {
        const qb_output *output = &program->outputs[i];
        qb_status status = QB_OK;
        switch (output->kind) {
        case QB_OUTPUT_FRESH:
            status = qb_tensor_allocate(output->dtype, output->rank, output->shape, output->size, &made[i]);
            break;
        case QB_OUTPUT_INPUT: made[i] = qb_tensor_retain(inputs[output->index]); break;
        case QB_OUTPUT_CONSTANT: made[i] = qb_tensor_retain(output->constant); break;
        case QB_OUTPUT_SAME: made[i] = qb_tensor_retain(made[output->index]); break;
        }
        if (status != QB_OK) {
            while (--i >= 0)
                qb_tensor_release(made[i]);
            return status;
        }
    }
    return QB_OK;
}

static void run_call(const qb_call_step *call, const qb_frame *frame)
{
    const void **operands = (const void **)frame->addresses;
    void **results = frame->addresses + call->operand_count;
    for (int i = 0; i < call->operand_count; i++)
        operands[i] = frame->slots[call->slot[i]] + call->operand_offset[i];
    for (int i = 0; i < call->written_count; i++)
        results[i] = frame->slots[call->slot[call->operand_count + i]];
    call->op->cpu(call->attributes, call->operand_count, call->types, operands, call->types + call->operand_count,
                  results);
}

/* ---- Bands */

typedef struct band_job {
    const qb_program *program;
    const qb_step *step;
    const qb_frame *frame;
} band_job;

static void run_band(void *data, int64_t chunk, int worker)
{
    const band_job *job = data;
    const qb_band *band = job->step->band;
    int64_t first = chunk * band->chunk_rows;
    int64_t limit = band->rows - first < band->chunk_rows ? band->rows : first + band->chunk_rows;
    char **registers = job->frame->registers + worker * job->program->register_count;
    for (const qb_step *step = job->step; step < job->step + band->steps; step++)
        qb_kernel_run_rows(step->kernel, job->frame->slots, registers + step->kernel->first_register, band->rows, first,
                           limit);
}

static qb_status run_steps(const qb_program *program, qb_frame *frame, qb_run_state *state)
{
    const qb_step *end = program->steps + program->step_count;
    for (const qb_step *step = program->steps; step < end; step++) {
        if (step->band) {
            band_job job = {program, step, frame};
            qb_parallel(step->band->chunks, run_band, &job);
            step += step->band->steps - 1;
            continue;
        }
        switch (step->kind) {
        case QB_STEP_KERNEL:
            qb_kernel_run(step->kernel, frame->slots, frame->registers + step->kernel->first_register,
                          program->register_count, frame->partials);
            break;
        case QB_STEP_DOT:
            qb_product_run(step->dot, frame->slots, (char *)frame + program->scratch_offset, program->scratch_size);
            break;
        case QB_STEP_CALL: run_call(step->call, frame); break;
        case QB_STEP_REGION: QB_TRY(qb_region_run(step->region, frame->slots, frame->addresses, state)); break;
        }
    }
    return QB_OK;
}

char **qb_frame_slots(qb_frame *frame)
{
    return frame->slots;
}

qb_status qb_frame_step(const qb_program *program, qb_frame *frame, qb_run_state *state)
{
    if (!program->only)
        return run_steps(program, frame, state);
    program->only(frame->slots); /* what most bodies of loops are */
    return QB_OK;
}

qb_status qb_frame_run(const qb_program *program, qb_frame *frame, char *const *inputs, char *const *outputs,
                       qb_run_state *state)
{
    for (int32_t i = 0; i < program->moving_input_count; i++)
        frame->slots[program->moving_inputs[i].slot] = inputs[program->moving_inputs[i].index];
    for (int32_t i = 0; i < program->moving_output_count; i++)
        frame->slots[program->moving_outputs[i].slot] = outputs[program->moving_outputs[i].index];
    QB_TRY(qb_frame_step(program, frame, state));
    for (int32_t i = 0; i < program->copy_count; i++) {
        const qb_output *output = &program->outputs[program->copies[i].output];
        const void *source = output->kind == QB_OUTPUT_INPUT      ? inputs[output->index]
                             : output->kind == QB_OUTPUT_CONSTANT ? output->constant->data
                                                                  : outputs[output->index];
        qb_parallel_copy(outputs[program->copies[i].output], source, (size_t)program->copies[i].bytes);
    }
    return QB_OK;
}

static qb_status run_on(qb_program *program, qb_tensor *const *inputs, qb_tensor *const *outputs)
{
    qb_frame *frame = take_frame(program);
    if (!frame)
        return qb_fail_memory();
    for (int32_t i = 0; i < program->moving_input_count; i++)
        frame->slots[program->moving_inputs[i].slot] = inputs[program->moving_inputs[i].index]->data;
    for (int32_t i = 0; i < program->moving_output_count; i++)
        frame->slots[program->moving_outputs[i].slot] = outputs[program->moving_outputs[i].index]->data;
    qb_run_state state = {.context = program->context, .patience = 1, .stride = 1};
    qb_status status = run_steps(program, frame, &state);
    give_frame_back(program, frame);
    return status;
}

qb_status qb_run(qb_program *program, qb_tensor *const *inputs, qb_tensor **outputs)
{
    enum { FEW = 32 };
    qb_tensor *few[FEW], **made = few;
    QB_TRY(check_inputs(program, inputs));
    if (program->output_count > FEW && !(made = qb_allocate((size_t)program->output_count * sizeof *made)))
        return qb_fail_memory();
    qb_status status = make_outputs(program, inputs, made);
    if (status == QB_OK) {
        status = run_on(program, inputs, made);
        for (int32_t i = 0; i < program->output_count; i++) {
            if (status == QB_OK)
                outputs[i] = made[i];
            else
                qb_tensor_release(made[i]);
        }
    }
    if (made != few)
        qb_free(made);
    return status;
}
