/* A program's plan in words: steps, kernels with their instructions, slots. */
#include "base/text.h"

#include "base/allocate.h"
#include "program/program.h"

static const char *const lane_names[] = {
#define UNARY(name, operands, result, product, flops, partial, summary)               #name,
#define BINARY(name, operands, result, product, flops, partial_a, partial_b, summary) #name,
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
    "select", "convert"};

static const int lane_arities[] = {
#define UNARY(name, operands, result, product, flops, partial, summary)               1,
#define BINARY(name, operands, result, product, flops, partial_a, partial_b, summary) 2,
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
    3, 1};

static const char *const reduction_names[] = {"sum", "prod", "max", "min", "norm"};

static void add_slot(qb_text *text, const qb_program *program, int32_t index)
{
    const qb_slot *slot = &program->slots[index];
    switch (slot->kind) {
    case QB_SLOT_INPUT: qb_text_add(text, "input%d", (int)slot->index); break;
    case QB_SLOT_OUTPUT: qb_text_add(text, "output%d", (int)slot->index); break;
    case QB_SLOT_CONSTANT: qb_text_add(text, "constant%d", (int)index); break;
    case QB_SLOT_ARENA: qb_text_add(text, "buffer%d", (int)index); break;
    }
}

static void add_integers(qb_text *text, int count, const int64_t *integers)
{
    for (int i = 0; i < count; i++)
        qb_text_add(text, "%s%lld", i ? "," : "", (long long)integers[i]);
}

static void add_load(qb_text *text, const qb_program *program, const qb_load *load)
{
    qb_text_add(text, "    r%d = load ", (int)load->target);
    add_slot(text, program, load->slot);
    if (load->offset != 0)
        qb_text_add(text, "+%lld", (long long)load->offset);
    if (load->kind == QB_LOAD_STRIDED) {
        qb_text_add(text, " extents ");
        add_integers(text, load->rank, load->extent);
        qb_text_add(text, " strides ");
        add_integers(text, load->rank, load->stride);
        qb_text_add(text, "%s", load->periodic ? " once" : "");
    } else if (load->kind == QB_LOAD_CONSTANT) {
        const qb_tensor *tensor = program->slots[load->slot].constant;
        const char *element = (const char *)tensor->data + load->offset * (int64_t)qb_dtype_size(load->dtype);
        qb_text_add(text, " splat ");
        qb_text_add_number(text, qb_dtype_load(load->dtype, element), load->dtype == QB_FLOAT32);
    } else if (load->kind == QB_LOAD_SPLAT) {
        qb_text_add(text, " splat");
    }
    qb_text_add(text, " : %s\n", qb_dtype_name(load->dtype));
}

static void add_kernel(qb_text *text, const qb_program *program, const qb_kernel *kernel)
{
    static const char *const traversals[] = {"linear", "short", "rows", "long rows", "columns", "wide columns"};
    qb_text_add(text, "kernel of %lld lanes, blocks of %d, %s%s\n", (long long)kernel->count, (int)kernel->lanes,
                traversals[kernel->traversal], kernel->whole || kernel->block ? ", machine code" : "");
    for (int i = 0; i < kernel->load_count; i++)
        add_load(text, program, &kernel->loads[i]);
    for (int i = 0; i < kernel->instruction_count; i++) {
        const qb_instruction *instruction = &kernel->instructions[i];
        qb_text_add(text, "    r%d = %s", (int)instruction->result, lane_names[instruction->lane]);
        for (int k = 0; k < lane_arities[instruction->lane]; k++)
            qb_text_add(text, "%sr%d", k ? ", " : " ", (int)instruction->operand[k]);
        qb_text_add(text, " : %s\n", qb_dtype_name((qb_dtype)instruction->result_dtype));
    }
    for (int i = 0; i < kernel->store_count; i++) {
        qb_text_add(text, "    store ");
        add_slot(text, program, kernel->stores[i].slot);
        qb_text_add(text, " = r%d\n", (int)kernel->stores[i].source);
    }
    for (int i = 0; i < kernel->reduction_count; i++) {
        const qb_kernel_reduction *red = &kernel->reductions[i];
        qb_text_add(text, "    reduce ");
        add_slot(text, program, red->slot);
        qb_text_add(text, " = %s r%d over the middle of %lld,%lld,%lld\n", reduction_names[red->reduction],
                    (int)red->source, (long long)kernel->outer, (long long)kernel->extent, (long long)kernel->inner);
    }
}

static void add_dot(qb_text *text, const qb_program *program, const qb_product *dot)
{
    qb_text_add(text, "dot ");
    add_slot(text, program, dot->c);
    qb_text_add(text, " = ");
    if (dot->addend >= 0) {
        add_slot(text, program, dot->addend);
        qb_text_add(text, " + ");
    }
    add_slot(text, program, dot->a);
    qb_text_add(text, " strides %lld,%lld x ", (long long)dot->shape.a_m, (long long)dot->shape.a_k);
    add_slot(text, program, dot->b);
    qb_text_add(text, " strides %lld,%lld", (long long)dot->shape.b_k, (long long)dot->shape.b_n);
    if (dot->batch_rank > 0) {
        qb_text_add(text, " batch ");
        add_integers(text, dot->batch_rank, dot->batch);
    }
    qb_text_add(text, " m,n,k %lld,%lld,%lld by %s : %s\n", (long long)dot->shape.m, (long long)dot->shape.n,
                (long long)dot->shape.k, qb_product_method(dot), qb_dtype_name(dot->dtype));
}

static void add_call(qb_text *text, const qb_program *program, const qb_call_step *call)
{
    qb_text_add(text, "call %s", call->op->name);
    for (int i = 0; i < call->operand_count + call->result_count; i++) {
        qb_text_add(text, "%s", i == call->operand_count ? " -> " : i ? ", " : " ");
        add_slot(text, program, call->slot[i]);
    }
    qb_text_add(text, "\n");
}

static void add_program(qb_text *text, const qb_program *program);

static void add_region(qb_text *text, const qb_program *program, const qb_region *region)
{
    qb_text_add(text, "%s", region->op->name);
    if (region->op == &qb_op_loop && region->capacity >= 0)
        qb_text_add(text, " of %s%lld iterations", region->counted || region->tested ? "at most " : "",
                    (long long)region->capacity);
    for (int i = 0; i < region->operand_count + region->result_count; i++) {
        qb_text_add(text, "%s", i == region->operand_count ? " -> " : i ? ", " : " ");
        add_slot(text, program, region->slot[i]);
    }
    qb_text_add(text, "\n");
    for (int i = 0; i < region->program_count; i++) {
        qb_text_add(text, "begin ");
        add_program(text, region->programs[i]);
        qb_text_add(text, "end\n");
    }
}

static void add_outputs(qb_text *text, const qb_program *program)
{
    for (int i = 0; i < program->output_count; i++) {
        const qb_output *output = &program->outputs[i];
        qb_text_add(text, "output%d : %s", i, qb_print_type(output->dtype, output->rank, output->shape).text);
        if (output->kind == QB_OUTPUT_INPUT)
            qb_text_add(text, " is input%d", (int)output->index);
        else if (output->kind == QB_OUTPUT_SAME)
            qb_text_add(text, " is output%d", (int)output->index);
        else if (output->kind == QB_OUTPUT_CONSTANT)
            qb_text_add(text, " is a constant");
        qb_text_add(text, "\n");
    }
}

static void add_program(qb_text *text, const qb_program *program)
{
    int kernels = 0, instructions = 0;
    for (int32_t i = 0; i < program->step_count; i++) {
        if (program->steps[i].kind != QB_STEP_KERNEL)
            continue;
        kernels++;
        instructions += program->steps[i].kernel->instruction_count;
    }
    qb_text_add(text, "program for cpu (%s): %d steps, %d kernels, %d instructions, %lld bytes of buffers\n",
                qb_lane_instruction_set(), (int)program->step_count, kernels, instructions,
                (long long)program->arena_size);
    for (int32_t i = 0; i < program->step_count; i++) {
        const qb_step *step = &program->steps[i];
        if (step->band)
            qb_text_add(text, "%d steps in bands of %lld of %lld rows:\n", (int)step->band->steps,
                        (long long)step->band->chunk_rows, (long long)step->band->rows);
        qb_text_add(text, "%3d: ", (int)i);
        switch (step->kind) {
        case QB_STEP_KERNEL: add_kernel(text, program, step->kernel); break;
        case QB_STEP_DOT: add_dot(text, program, step->dot); break;
        case QB_STEP_CALL: add_call(text, program, step->call); break;
        case QB_STEP_REGION: add_region(text, program, step->region); break;
        }
    }
    for (int32_t i = 0; i < program->slot_count; i++)
        if (program->slots[i].kind == QB_SLOT_ARENA)
            qb_text_add(text, "buffer%d : %s[%lld] at %lld\n", (int)i, qb_dtype_name(program->slots[i].dtype),
                        (long long)program->slots[i].count, (long long)program->slots[i].offset);
    add_outputs(text, program);
}

qb_status qb_program_text(const qb_program *program, char **out)
{
    qb_text text = {0};
    add_program(&text, program);
    return qb_text_take(&text, out);
}
