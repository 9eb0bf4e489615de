/* What running a program costs: arithmetic, counted on its graph when it is compiled (ops/flops.c), and memory traffic,
 * read off the steps: what is fused into one kernel moves no bytes. */
#include "program/program.h"

/* Elements of an array that a load reads: each once, however often it is repeated. */
static int64_t loaded_elements(const qb_kernel *kernel, const qb_load *load)
{
    int64_t count = 1;
    if (load->kind == QB_LOAD_DIRECT)
        return kernel->count;
    for (int i = 0; load->kind == QB_LOAD_STRIDED && i < load->rank; i++)
        count *= load->stride[i] != 0 ? load->extent[i] : 1;
    return count;
}

static int64_t kernel_bytes(const qb_kernel *kernel)
{
    int64_t bytes = 0;
    for (int i = 0; i < kernel->load_count; i++)
        if (kernel->loads[i].kind != QB_LOAD_CONSTANT)
            bytes += loaded_elements(kernel, &kernel->loads[i]) * (int64_t)qb_dtype_size(kernel->loads[i].dtype);
    for (int i = 0; i < kernel->store_count; i++)
        bytes += kernel->count * (int64_t)qb_dtype_size(kernel->stores[i].dtype);
    for (int i = 0; i < kernel->reduction_count; i++)
        bytes += kernel->outer * kernel->inner * (int64_t)qb_dtype_size(kernel->reductions[i].dtype);
    return bytes;
}

/* Of the two factors, each batch of which is read once, what they are added to, and the product. */
static int64_t product_bytes(const qb_product *dot)
{
    int64_t a = dot->shape.m * dot->shape.k, b = dot->shape.k * dot->shape.n;
    for (int i = 0; i < dot->batch_rank; i++) {
        a *= dot->a_batch[i] != 0 ? dot->batch[i] : 1;
        b *= dot->b_batch[i] != 0 ? dot->batch[i] : 1;
    }
    int64_t c = dot->batch_count * dot->shape.m * dot->shape.n;
    return (a + b + (dot->addend >= 0 ? 2 * c : c)) * (int64_t)qb_dtype_size(dot->dtype);
}

static int64_t type_bytes(const qb_type *type)
{
    int64_t bytes = (int64_t)qb_dtype_size(type->dtype);
    for (int i = 0; i < type->rank; i++)
        bytes *= type->shape[i];
    return bytes;
}

static int64_t call_bytes(const qb_call_step *call)
{
    int64_t bytes = 0;
    for (int i = 0; i < call->operand_count + call->result_count; i++)
        bytes += type_bytes(&call->types[i]);
    return bytes;
}

/* Programs of a loop as often as they can run (without a bound once), of a switch the one that moves most. */
static int64_t region_bytes(const qb_region *region)
{
    int64_t sum = 0, most = 0;
    for (int32_t i = 0; i < region->program_count; i++) {
        qb_cost cost;
        qb_program_cost(region->programs[i], &cost);
        sum += cost.bytes;
        most = cost.bytes > most ? cost.bytes : most;
    }
    if (region->op == &qb_op_loop)
        return region->capacity < 0 ? sum : sum * region->capacity;
    return region->op == &qb_op_switch ? most : sum;
}

static int64_t step_bytes(const qb_step *step)
{
    switch (step->kind) {
    case QB_STEP_KERNEL: return kernel_bytes(step->kernel);
    case QB_STEP_DOT: return product_bytes(step->dot);
    case QB_STEP_CALL: return call_bytes(step->call);
    case QB_STEP_REGION: return region_bytes(step->region);
    }
    return 0;
}

static int64_t output_bytes(const qb_output *output)
{
    int64_t bytes = (int64_t)qb_dtype_size(output->dtype);
    for (int i = 0; i < output->rank; i++)
        bytes *= output->shape[i];
    return bytes;
}

void qb_program_cost(const qb_program *program, qb_cost *out)
{
    qb_cost cost = {.flops = program->flops < 0x1p63 ? (int64_t)program->flops : INT64_MAX,
                    .peak_bytes = program->arena_size};
    for (int32_t i = 0; i < program->step_count; i++)
        cost.bytes += step_bytes(&program->steps[i]);
    for (int32_t i = 0; i < program->output_count; i++)
        if (program->outputs[i].kind == QB_OUTPUT_FRESH)
            cost.peak_bytes += output_bytes(&program->outputs[i]);
    *out = cost;
}
