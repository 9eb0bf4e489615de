/* Writing kernels: the loads, registers and instructions of each unit, its slots, and the steps.
 *
 * First every operand and result is a virtual register, in SSA form, with the instruction that reads it last. Then
 * registers are placed: bound ones lie in arrays, those filled once a run keep their memory, all others share scratch
 * memory by liveness. */
#include "program/plan.h"

#include "base/allocate.h"
#include "program/region.h"

enum { NEVER_DIES = INT32_MAX, UNPLACED = -1 };

/* Of an array that is only copied: blocks of it, lanes of one at least, and bytes that no cache holds. */
enum { COPIED_BLOCKS = 16, LEAST_COPIED = 1 << 16, PAST_CACHES = 1 << 24 };

typedef struct virtual_register {
    qb_dtype dtype;
    int32_t load;     /* that fills it; -1: an instruction does */
    int32_t value;    /* plan value stored in it, -1: none */
    int32_t defined;  /* instruction; -1 for loads */
    int32_t last_use; /* instruction */
    int32_t place;    /* register number */
    bool bound;
} virtual_register;

typedef struct emitter {
    qb_plan *plan;
    qb_buffers *buffers;
    int32_t *register_of; /* of plan values; valid where stamp is the unit's */
    int32_t *stamp;
    int32_t *loads_of; /* number of loads of this root; likewise by root_stamp */
    int32_t *root_stamp;
    const void **constant_lanes; /* of plan values: spread constants */
    int32_t *constant_count;

    /* of the unit at hand; capacities fit every unit */
    int32_t unit;
    virtual_register *registers;
    qb_load *loads;
    int32_t *load_register;
    qb_instruction *instructions;
    qb_kernel_reduction *reductions;
    int32_t *free_places[9]; /* by bytes of an element, likewise their number */
    int32_t free_count[9];
    int32_t register_count, load_count, instruction_count, reduction_count, store_count;
    int32_t bound_count, scratch_count;
    qb_kernel kernel;
} emitter;

/* ---- Virtual registers */

static int32_t add_register(emitter *e, qb_dtype dtype, int32_t load, int32_t defined)
{
    e->registers[e->register_count] = (virtual_register){
        .dtype = dtype, .load = load, .value = -1, .defined = defined, .last_use = defined, .place = UNPLACED};
    return e->register_count++;
}

static void remember(emitter *e, int32_t value, int32_t reg)
{
    e->register_of[value] = reg;
    e->stamp[value] = e->unit;
}

static qb_status classify_load(emitter *e, qb_load *load, const qb_view *view, const qb_plan_value *root)
{
    int64_t extent[QB_MAX_RANK], stride[QB_MAX_RANK];
    int rank = qb_view_collapse(view, extent, stride);
    bool splat = true;
    for (int i = 0; i < rank; i++)
        splat = splat && stride[i] == 0;
    load->offset = view->offset;
    if (e->kernel.count <= 1 || (rank == 1 && stride[0] == 1)) {
        load->kind = QB_LOAD_DIRECT;
    } else if (splat) {
        load->kind = root->role == QB_ROLE_CONSTANT ? QB_LOAD_CONSTANT : QB_LOAD_SPLAT;
    } else {
        int64_t *axes = qb_arena_allocate(e->plan->memory, 2 * (size_t)rank * sizeof *axes);
        if (!axes)
            return qb_fail_memory();
        memcpy(axes, extent, (size_t)rank * sizeof *axes);
        memcpy(axes + rank, stride, (size_t)rank * sizeof *axes);
        load->kind = QB_LOAD_STRIDED;
        load->rank = rank;
        load->extent = axes;
        load->stride = axes + rank;
    }
    return QB_OK;
}

/* A load of the root, contiguous (view NULL) or seen through the view. */
static qb_status add_load(emitter *e, int32_t root, const qb_view *view, int32_t *out)
{
    const qb_plan_value *value = &e->plan->values[root];
    qb_load *load = &e->loads[e->load_count];
    *load = (qb_load){.kind = QB_LOAD_DIRECT, .dtype = (qb_dtype)value->dtype};
    load->slot = qb_buffers_slot(e->buffers, root);
    load->target = root; /* until the register is placed */
    if (load->slot < 0)
        return qb_fail_memory();
    if (view)
        QB_TRY(classify_load(e, load, view, value));
    if (e->root_stamp[root] != e->unit) {
        e->root_stamp[root] = e->unit;
        e->loads_of[root] = 0;
    }
    e->loads_of[root]++;
    *out = add_register(e, load->dtype, e->load_count, -1);
    e->registers[*out].bound = load->kind == QB_LOAD_DIRECT;
    e->load_register[e->load_count++] = *out;
    return QB_OK;
}

/* The register that holds operand `id`, loaded if need be. */
static qb_status register_of(emitter *e, int32_t id, int32_t *out)
{
    if (e->stamp[id] == e->unit) {
        *out = e->register_of[id];
        return QB_OK;
    }
    const qb_plan_value *value = &e->plan->values[id];
    QB_TRY(add_load(e, value->root, value->role == QB_ROLE_VIEW ? value->view : NULL, out));
    remember(e, id, *out);
    return QB_OK;
}

/* ---- Members */

static void read_register(emitter *e, int32_t reg, int32_t instruction)
{
    if (e->registers[reg].last_use < instruction)
        e->registers[reg].last_use = instruction;
}

static qb_status add_instruction(emitter *e, int32_t value, qb_instruction instruction, int count,
                                 const int32_t *operands)
{
    int32_t index = e->instruction_count++;
    if (!instruction.kernel)
        return qb_fail_unsupported(e->plan->values[value].node->op->name, "cpu",
                                   "%s: the device cpu has no kernel for %s", e->plan->values[value].node->op->name,
                                   qb_dtype_name((qb_dtype)instruction.dtype));
    for (int i = 0; i < 3; i++)
        instruction.operand[i] = operands[i < count ? i : 0];
    for (int i = 0; i < count; i++)
        read_register(e, operands[i], index);
    instruction.result = add_register(e, (qb_dtype)instruction.result_dtype, -1, index);
    e->instructions[index] = instruction;
    remember(e, value, instruction.result);
    return QB_OK;
}

static qb_status emit_lane(emitter *e, int32_t v)
{
    const qb_plan_value *value = &e->plan->values[v];
    const int32_t *ids = e->plan->operands + value->operand;
    int32_t operands[3] = {0};
    for (int i = 0; i < value->operand_count; i++)
        QB_TRY(register_of(e, ids[i], &operands[i]));
    qb_lane lane = value->lane;
    qb_dtype dtype = e->registers[operands[lane == QB_LANE_select ? 1 : 0]].dtype, result = (qb_dtype)value->dtype;
    bool copies = lane == QB_LANE_convert && dtype == result;
    qb_instruction instruction = {.kernel = copies ? qb_copy_lookup(qb_dtype_size(dtype))
                                                   : qb_lane_lookup(lane, dtype, result),
                                  .lane = (int16_t)lane,
                                  .dtype = (uint8_t)dtype,
                                  .result_dtype = (uint8_t)result};
    return add_instruction(e, v, instruction, value->operand_count, operands);
}

static qb_status emit_copy(emitter *e, int32_t v)
{
    const qb_plan_value *value = &e->plan->values[v];
    int32_t root = e->plan->operands[value->operand], reg;
    if (e->stamp[root] == e->unit && value->view->offset == 0 && qb_view_is_contiguous(value->view) &&
        value->count == e->plan->values[root].count)
        reg = e->register_of[root];
    else
        QB_TRY(add_load(e, root, value->view, &reg));
    bool gathered = e->registers[reg].load >= 0 && e->loads[e->registers[reg].load].kind == QB_LOAD_STRIDED;
    if (!value->stored || gathered) { /* the gather writes the array itself */
        remember(e, v, reg);
        return QB_OK;
    }
    qb_instruction instruction = {.kernel = qb_copy_lookup(qb_dtype_size((qb_dtype)value->dtype)),
                                  .lane = QB_LANE_convert,
                                  .dtype = value->dtype,
                                  .result_dtype = value->dtype};
    return add_instruction(e, v, instruction, 1, &reg);
}

static qb_status emit_reduce(emitter *e, int32_t v)
{
    const qb_plan_value *value = &e->plan->values[v];
    int32_t source;
    QB_TRY(register_of(e, e->plan->operands[value->operand], &source));
    e->registers[source].last_use = NEVER_DIES;
    qb_reduction reduction = value->split->reduction;
    qb_dtype dtype = (qb_dtype)value->dtype;
    qb_kernel_reduction *red = &e->reductions[e->reduction_count++];
    *red = (qb_kernel_reduction){.reduction = reduction,
                                 .dtype = dtype,
                                 .source = source,
                                 .reduce = qb_reduce_lookup(reduction, dtype),
                                 .fold = qb_loops()->fold[reduction][dtype],
                                 .combine = qb_reduce_combine(reduction, dtype)};
    if (!red->reduce || !red->fold || !red->combine)
        return qb_fail_unsupported(value->node->op->name, "cpu", "%s: the device cpu has no kernel for %s",
                                   value->node->op->name, qb_dtype_name(dtype));
    e->kernel.outer = value->split->outer;
    e->kernel.extent = value->split->extent;
    e->kernel.inner = value->split->inner;
    red->slot = v; /* becomes the slot once all members have one */
    return QB_OK;
}

static qb_status emit_member(emitter *e, int32_t v)
{
    const qb_plan_value *value = &e->plan->values[v];
    if (value->role == QB_ROLE_REDUCE)
        return emit_reduce(e, v);
    QB_TRY(value->role == QB_ROLE_COPY ? emit_copy(e, v) : emit_lane(e, v));
    if (!value->stored)
        return QB_OK;
    virtual_register *reg = &e->registers[e->register_of[v]];
    reg->bound = true;
    reg->value = v;
    e->store_count++;
    return QB_OK;
}

/* ---- Slots of what the kernel stores */

/* A direct load of a value that dies here, of the same size, and read last by the instruction that writes `reg` or
 * before. */
static int32_t dying_load(emitter *e, const virtual_register *reg)
{
    const qb_plan_value *values = e->plan->values, *value = &values[reg->value];
    if (reg->defined < 0 || value->output >= 0)
        return -1;
    const int32_t *operands = e->plan->operands + value->operand;
    for (int i = 0; i < value->operand_count; i++) {
        int32_t id = operands[i];
        const qb_plan_value *operand = &values[id];
        if (id != operand->root || e->stamp[id] != e->unit || operand->last_step != e->unit || operand->output >= 0 ||
            operand->step < 0 || operand->step == e->unit || operand->count != value->count ||
            qb_dtype_size((qb_dtype)operand->dtype) != qb_dtype_size((qb_dtype)value->dtype))
            continue;
        const virtual_register *source = &e->registers[e->register_of[id]];
        if (source->load >= 0 && source->bound && source->value < 0 && source->last_use <= reg->defined &&
            e->loads_of[id] == 1) {
            e->loads_of[id] = 0; /* taken */
            return id;
        }
    }
    return -1;
}

static qb_status define_slots(emitter *e)
{
    for (int32_t r = 0; r < e->register_count; r++) {
        virtual_register *reg = &e->registers[r];
        if (reg->value >= 0)
            QB_TRY(qb_buffers_define(e->buffers, reg->value, dying_load(e, reg)));
    }
    for (int32_t i = 0; i < e->reduction_count; i++) {
        int32_t value = e->reductions[i].slot;
        QB_TRY(qb_buffers_define(e->buffers, value, -1));
        e->reductions[i].slot = e->plan->values[value].slot;
    }
    return QB_OK;
}

/* ---- Lanes of a block, and which loads are filled once a run */

/* Whether every block starts at a multiple of the load's period. */
static bool repeats_in_blocks(const qb_kernel *kernel, int64_t period)
{
    switch (kernel->traversal) {
    case QB_TRAVERSE_LINEAR:
    case QB_TRAVERSE_SHORT:
    case QB_TRAVERSE_ROWS: return kernel->lanes % period == 0;
    case QB_TRAVERSE_COLUMNS: return kernel->inner % period == 0;
    case QB_TRAVERSE_LONG:
    case QB_TRAVERSE_WIDE: break;
    }
    return false;
}

/* Whether all that is reduced is memory as it lies. */
static bool only_reduces(const emitter *e)
{
    bool result = e->instruction_count == 0;
    for (int32_t i = 0; i < e->load_count; i++)
        result = result && e->loads[i].kind == QB_LOAD_DIRECT;
    return result;
}

/* Without reductions the block is free: a multiple of a repeating load's period lets that load be filled once. */
static void adapt_lanes(emitter *e)
{
    qb_kernel *kernel = &e->kernel;
    if (kernel->traversal == QB_TRAVERSE_LINEAR && e->instruction_count == 0) {
        int64_t part = (kernel->count + COPIED_BLOCKS - 1) / COPIED_BLOCKS; /* tiles pay beyond a block */
        kernel->lanes = part < LEAST_COPIED ? LEAST_COPIED : part < INT32_MAX ? (int32_t)part : INT32_MAX;
        for (int32_t i = 0; i < e->load_count; i++)
            e->loads[i].past_caches = kernel->count * (int64_t)qb_dtype_size(e->loads[i].dtype) >= PAST_CACHES;
        return;
    }
    for (int32_t i = 0; kernel->traversal == QB_TRAVERSE_LINEAR && i < e->load_count; i++) {
        int64_t period = e->loads[i].kind == QB_LOAD_STRIDED ? qb_load_period(&e->loads[i]) : 0;
        if (period > 0 && period <= kernel->lanes && kernel->count > kernel->lanes) {
            kernel->lanes -= (int32_t)(kernel->lanes % period);
            break;
        }
    }
    for (int32_t i = 0; i < e->load_count; i++) {
        qb_load *load = &e->loads[i];
        bool is_gathered = load->kind == QB_LOAD_STRIDED && !e->registers[e->load_register[i]].bound;
        load->periodic =
            is_gathered && kernel->count > kernel->lanes && repeats_in_blocks(kernel, qb_load_period(load));
    }
}

/* ---- Places */

static bool is_filled_once(const qb_load *load)
{
    return load->kind == QB_LOAD_SPLAT || (load->kind == QB_LOAD_STRIDED && load->periodic);
}

/* A place serves elements of one size: lanes that are computed four at a time must not meet others' of another size. */
static void take_place(emitter *e, virtual_register *reg)
{
    size_t size = qb_dtype_size(reg->dtype);
    reg->place = e->free_count[size] > 0 ? e->free_places[size][--e->free_count[size]] : e->scratch_count++;
}

static void give_place_back(emitter *e, virtual_register *reg)
{
    size_t size = qb_dtype_size(reg->dtype);
    if (!reg->bound && reg->place != UNPLACED)
        e->free_places[size][e->free_count[size]++] = reg->place;
}

static bool reuses_place(const emitter *e, const virtual_register *reg)
{
    return !reg->bound &&
           (reg->load < 0 || (e->loads[reg->load].kind == QB_LOAD_STRIDED && !e->loads[reg->load].periodic));
}

/* Places in scratch memory are counted from 0 here; bound registers come before them in the end. */
static void place_registers(emitter *e)
{
    for (int32_t r = 0; r < e->register_count; r++)
        if (e->registers[r].bound)
            e->registers[r].place = e->bound_count++;
    for (int32_t r = 0; r < e->register_count; r++) {
        virtual_register *reg = &e->registers[r];
        if (reg->load >= 0 && !reg->bound && e->loads[reg->load].kind != QB_LOAD_CONSTANT)
            take_place(e, reg);
    }
    for (int32_t i = 0; i < e->instruction_count; i++) {
        const qb_instruction *instruction = &e->instructions[i];
        virtual_register *result = &e->registers[instruction->result];
        for (int k = 0; k < 3; k++) { /* operands may lend their places to the result */
            virtual_register *operand = &e->registers[instruction->operand[k]];
            if (operand->last_use != i || !reuses_place(e, operand))
                continue;
            give_place_back(e, operand);
            operand->last_use = NEVER_DIES; /* given back only once */
        }
        if (!result->bound)
            take_place(e, result);
        if (result->last_use == i)
            give_place_back(e, result);
    }
}

/* ---- Constants spread over a block */

static qb_status spread_constant(emitter *e, qb_load *load, int32_t constant, int64_t lanes)
{
    bool shared = e->plan->values[constant].count == 1;
    if (!shared || e->constant_count[constant] < lanes) {
        size_t size = qb_dtype_size(load->dtype);
        char *memory = qb_arena_allocate(e->plan->memory, (size_t)lanes * size + QB_FRAME_ALIGNMENT);
        if (!memory)
            return qb_fail_memory();
        memory += QB_FRAME_ALIGNMENT - (uintptr_t)memory % QB_FRAME_ALIGNMENT;
        const char *data = e->plan->values[constant].constant->data;
        qb_load_spread(size, data + load->offset * (int64_t)size, memory, lanes);
        e->constant_lanes[constant] = memory;
        e->constant_count[constant] = (int32_t)lanes;
    }
    load->lanes = e->constant_lanes[constant];
    return QB_OK;
}

/* ---- The finished kernel */

static int32_t final_place(const emitter *e, int32_t reg)
{
    return e->registers[reg].bound ? e->registers[reg].place : e->bound_count + e->registers[reg].place;
}

static qb_status finish_loads(emitter *e, qb_load *out, int64_t lanes)
{
    int32_t next = 0, constants = 0;
    for (int order = 0; order < 3; order++) { /* filled once, filled per block, the others */
        for (int32_t i = 0; i < e->load_count; i++) {
            qb_load *load = &e->loads[i];
            int own = is_filled_once(load) ? 0 : load->kind == QB_LOAD_STRIDED ? 1 : 2;
            if (own != order)
                continue;
            e->kernel.once_count += own == 0;
            e->kernel.gather_count += own == 1;
            virtual_register *reg = &e->registers[e->load_register[i]];
            if (load->kind == QB_LOAD_CONSTANT) {
                reg->place = e->scratch_count + constants++; /* after scratch */
                QB_TRY(spread_constant(e, load, load->target, lanes));
            }
            load->target = final_place(e, e->load_register[i]);
            out[next++] = *load;
        }
    }
    for (int32_t i = 0; i < e->reduction_count; i++)
        e->reductions[i].stack = e->bound_count + e->scratch_count + constants + i;
    e->kernel.register_count = e->bound_count + e->scratch_count + constants + e->reduction_count;
    return QB_OK;
}

/* A kernel of one block finds arrays of the program's own where they were in the run before. */
static bool is_fixed(const emitter *e, int32_t slot)
{
    const qb_kernel *kernel = &e->kernel;
    bool one_block = kernel->count <= kernel->lanes && kernel->chunk_count == 1 &&
                     (kernel->traversal == QB_TRAVERSE_LINEAR || kernel->traversal == QB_TRAVERSE_SHORT ||
                      kernel->traversal == QB_TRAVERSE_ROWS);
    qb_slot_kind kind = e->plan->slots[slot].kind;
    return one_block && (kind == QB_SLOT_ARENA || kind == QB_SLOT_CONSTANT);
}

static void finish_bindings(emitter *e, qb_binding *bindings, qb_store *stores)
{
    int32_t binding = 0, store = 0;
    for (int moving = 0; moving < 2; moving++) {
        for (int32_t r = 0; r < e->register_count; r++) {
            const virtual_register *reg = &e->registers[r];
            if (!reg->bound)
                continue;
            int64_t size = (int64_t)qb_dtype_size(reg->dtype);
            bool stored = reg->value >= 0;
            int32_t slot = stored ? e->plan->values[reg->value].slot : e->loads[reg->load].slot;
            if (is_fixed(e, slot) == (moving != 0))
                continue;
            bindings[binding++] = (qb_binding){reg->place, slot, stored ? 0 : e->loads[reg->load].offset * size, size};
            if (stored)
                stores[store++] = (qb_store){slot, reg->place, reg->dtype};
        }
        e->kernel.fixed_count = moving ? e->kernel.fixed_count : binding;
    }
}

static qb_status finish_kernel(emitter *e, qb_kernel **out)
{
    qb_plan *plan = e->plan;
    qb_kernel *kernel = &e->kernel;
    size_t size = sizeof *kernel + (size_t)e->load_count * sizeof(qb_load) +
                  (size_t)e->bound_count * sizeof(qb_binding) + (size_t)e->instruction_count * sizeof(qb_instruction) +
                  (size_t)e->reduction_count * sizeof(qb_kernel_reduction) + (size_t)e->store_count * sizeof(qb_store);
    qb_kernel *kept = qb_arena_allocate(plan->memory, size);
    if (!kept)
        return qb_fail_memory();
    qb_load *loads = (qb_load *)(kept + 1);
    qb_instruction *instructions = (qb_instruction *)(loads + e->load_count);
    qb_kernel_reduction *reductions = (qb_kernel_reduction *)(instructions + e->instruction_count);
    qb_binding *bindings = (qb_binding *)(reductions + e->reduction_count);
    qb_store *stores = (qb_store *)(bindings + e->bound_count);
    int64_t lanes = kernel->count < kernel->lanes ? kernel->count : kernel->lanes;
    QB_TRY(finish_loads(e, loads, lanes));
    finish_bindings(e, bindings, stores);
    for (int32_t i = 0; i < e->instruction_count; i++) {
        instructions[i] = e->instructions[i];
        instructions[i].result = final_place(e, instructions[i].result);
        for (int k = 0; k < 3; k++)
            instructions[i].operand[k] = final_place(e, instructions[i].operand[k]);
    }
    for (int32_t i = 0; i < e->reduction_count; i++) {
        reductions[i] = e->reductions[i];
        reductions[i].source = final_place(e, reductions[i].source);
    }
    kernel->scratch_stride = (int32_t)qb_whole_lines(lanes * 8);
    kernel->load_count = e->load_count;
    kernel->instruction_count = e->instruction_count;
    kernel->store_count = e->store_count;
    kernel->bound_count = e->bound_count;
    kernel->scratch_count = e->scratch_count;
    kernel->loads = loads;
    kernel->instructions = instructions;
    kernel->reductions = reductions;
    kernel->bindings = bindings;
    kernel->stores = stores;
    kernel->first_register = (int32_t)plan->register_count;
    plan->register_count += kernel->register_count;
    int64_t scratch = (int64_t)e->scratch_count * kernel->scratch_stride + e->reduction_count * kernel->stack_size;
    plan->scratch_size = plan->scratch_size > scratch ? plan->scratch_size : scratch;
    int64_t partial = qb_kernel_partial_size(kernel);
    plan->partial_size = plan->partial_size > partial ? plan->partial_size : partial;
    plan->is_parallel = plan->is_parallel || kernel->chunk_count > 1;
    *kept = *kernel;
    *out = kept;
    return QB_OK;
}

/* About how long a lane takes: memory, and arithmetic by the operations that cost estimates count. */
static double lane_nanoseconds(const emitter *e, const qb_unit *unit)
{
    double time = 0.1 * (e->load_count + e->store_count);
    for (int32_t i = 0; i < unit->count; i++) {
        const qb_plan_value *value = &e->plan->values[e->plan->members[unit->first + i]];
        int flops = value->role == QB_ROLE_LANE && value->node ? value->node->op->element_flops : 1;
        time += 0.12 * (flops > 1 ? flops : 1);
    }
    return time;
}

static qb_status emit_kernel(emitter *e, const qb_unit *unit, qb_kernel **out)
{
    qb_plan *plan = e->plan;
    const qb_plan_value *first = &plan->values[plan->members[unit->first]];
    const qb_reduction_split *split = first->role == QB_ROLE_REDUCE ? first->split : NULL;
    int64_t count = split ? split->outer * split->extent * split->inner : first->count;
    e->register_count = e->load_count = e->instruction_count = e->reduction_count = e->store_count = 0;
    memset(e->free_count, 0, sizeof e->free_count);
    e->bound_count = e->scratch_count = 0;
    e->kernel = (qb_kernel){.count = count, .outer = 1, .extent = count, .inner = 1};
    for (int32_t i = 0; i < unit->count; i++)
        QB_TRY(emit_member(e, plan->members[unit->first + i]));
    QB_TRY(define_slots(e));
    e->kernel.reduction_count = e->reduction_count;
    qb_kernel_choose_traversal(&e->kernel, only_reduces(e));
    adapt_lanes(e);
    qb_kernel_choose_chunks(&e->kernel, lane_nanoseconds(e, unit));
    place_registers(e);
    return finish_kernel(e, out);
}

/* ---- Products and calls */

static qb_status emit_dot(emitter *e, int32_t v, const qb_product **out)
{
    qb_plan_value *value = &e->plan->values[v];
    const int32_t *operands = e->plan->operands + value->operand;
    QB_TRY(qb_buffers_define(e->buffers, v, qb_buffers_overwritten(e->plan, v)));
    value->dot->a = qb_buffers_slot(e->buffers, operands[0]);
    value->dot->b = qb_buffers_slot(e->buffers, operands[1]);
    value->dot->c = value->slot;
    if (value->operand_count == 3)
        value->dot->addend = qb_buffers_slot(e->buffers, operands[2]);
    if (value->dot->a < 0 || value->dot->b < 0 || (value->operand_count == 3 && value->dot->addend < 0))
        return qb_fail_memory();
    qb_product_prepare(value->dot);
    int64_t scratch = value->dot->scratch_size;
    e->plan->scratch_size = e->plan->scratch_size > scratch ? e->plan->scratch_size : scratch;
    e->plan->is_parallel = e->plan->is_parallel || (scratch > 0 && value->dot->chunk_count > 1);
    *out = value->dot;
    return QB_OK;
}

/* Slots of the operands of value `v`, with the offsets (in bytes) at which they begin; and of its `results` results,
 * of which a workspace is one. */
static qb_status address_call(emitter *e, int32_t v, int results, int32_t *slots, int64_t *offsets)
{
    qb_plan *plan = e->plan;
    int count = plan->values[v].node->operand_count;
    for (int i = 0; i < count; i++) {
        const qb_plan_value *operand = &plan->values[plan->operands[plan->values[v].operand + i]];
        bool is_view = operand->role == QB_ROLE_VIEW;
        slots[i] = qb_buffers_slot(e->buffers, operand->root);
        if (slots[i] < 0)
            return qb_fail_memory();
        offsets[i] = is_view ? operand->view->offset * (int64_t)qb_dtype_size((qb_dtype)operand->dtype) : 0;
    }
    for (int i = 0; i < results; i++) {
        QB_TRY(qb_buffers_define(e->buffers, v + i, i == 0 ? qb_buffers_overwritten(plan, v) : -1));
        slots[count + i] = plan->values[v + i].slot;
    }
    plan->address_count = plan->address_count > count + results ? plan->address_count : count + results;
    return QB_OK;
}

static qb_status emit_call(emitter *e, const qb_unit *unit, const qb_call_step **out)
{
    qb_plan *plan = e->plan;
    int32_t v = plan->members[unit->first];
    const qb_node *node = plan->values[v].node;
    int count = node->operand_count, results = node->result_count, written = results + (node->op->workspace != NULL);
    qb_call_step *call = qb_arena_allocate(plan->memory, sizeof *call);
    int32_t *slots = qb_arena_allocate(plan->memory, (size_t)(count + written) * sizeof *slots);
    int64_t *offsets = qb_arena_allocate(plan->memory, (size_t)count * sizeof *offsets);
    qb_type *types = qb_arena_allocate(plan->memory, (size_t)(count + results) * sizeof *types);
    if (!call || !slots || !offsets || !types)
        return qb_fail_memory();
    QB_TRY(address_call(e, v, written, slots, offsets));
    for (int i = 0; i < count; i++)
        qb_value_type(plan->graph, qb_operand(plan->graph, node, i), &types[i]);
    for (int i = 0; i < results; i++)
        qb_value_type(plan->graph, node->result + i, &types[count + i]);
    *call = (qb_call_step){node->op, node->attributes, count, results, written, slots, offsets, types};
    *out = call;
    return QB_OK;
}

static qb_status emit_region(emitter *e, const qb_unit *unit, const qb_region **out)
{
    qb_plan *plan = e->plan;
    int32_t v = plan->members[unit->first];
    qb_region *region = plan->values[v].region;
    int count = region->operand_count, results = region->result_count + 1; /* the workspace, too */
    int32_t *slots = qb_arena_allocate(plan->memory, (size_t)(count + results) * sizeof *slots);
    int64_t *offsets = qb_arena_allocate(plan->memory, (size_t)count * sizeof *offsets);
    if (!slots || !offsets)
        return qb_fail_memory();
    QB_TRY(address_call(e, v, results, slots, offsets));
    region->slot = slots;
    region->operand_offset = offsets;
    *out = region;
    return QB_OK;
}

/* ---- All steps */

static qb_status emit_step(emitter *e, const qb_unit *unit, qb_step *step)
{
    *step = (qb_step){.kind = unit->kind};
    switch (unit->kind) {
    case QB_STEP_KERNEL: return emit_kernel(e, unit, &step->kernel);
    case QB_STEP_DOT: return emit_dot(e, e->plan->members[unit->first], &step->dot);
    case QB_STEP_CALL: return emit_call(e, unit, &step->call);
    case QB_STEP_REGION: return emit_region(e, unit, &step->region);
    }
    return QB_OK;
}

static qb_status begin(emitter *e, qb_plan *plan)
{
    size_t values = (size_t)plan->value_count, operands = (size_t)plan->operand_count, registers = values + operands;
    *e = (emitter){.plan = plan,
                   .buffers = qb_buffers_begin(plan),
                   .register_of = qb_plan_scratch(plan, values, sizeof(int32_t)),
                   .stamp = qb_plan_scratch(plan, values, sizeof(int32_t)),
                   .loads_of = qb_plan_scratch(plan, values, sizeof(int32_t)),
                   .root_stamp = qb_plan_scratch(plan, values, sizeof(int32_t)),
                   .constant_lanes = qb_plan_scratch_zeroed(plan, values, sizeof(void *)),
                   .constant_count = qb_plan_scratch_zeroed(plan, values, sizeof(int32_t)),
                   .registers = qb_plan_scratch(plan, registers, sizeof(virtual_register)),
                   .loads = qb_plan_scratch(plan, operands, sizeof(qb_load)),
                   .load_register = qb_plan_scratch(plan, operands, sizeof(int32_t)),
                   .instructions = qb_plan_scratch(plan, values, sizeof(qb_instruction)),
                   .reductions = qb_plan_scratch(plan, values, sizeof(qb_kernel_reduction))};
    bool places = true;
    for (size_t size = 1; size <= 8; size = size == 1 ? 4 : 2 * size)
        places = (e->free_places[size] = qb_plan_scratch(plan, registers, sizeof(int32_t))) != NULL && places;
    plan->steps = qb_arena_allocate(plan->memory, (size_t)plan->unit_count * sizeof *plan->steps);
    if (!e->buffers || !e->register_of || !e->stamp || !e->loads_of || !e->root_stamp || !e->constant_lanes ||
        !e->constant_count || !e->registers || !e->loads || !e->load_register || !e->instructions || !e->reductions ||
        !places || !plan->steps)
        return qb_fail_memory();
    memset(e->stamp, -1, values * sizeof(int32_t));
    memset(e->root_stamp, -1, values * sizeof(int32_t));
    return QB_OK;
}

qb_status qb_plan_emit(qb_plan *plan)
{
    emitter e;
    QB_TRY(begin(&e, plan));
    for (e.unit = 0; e.unit < plan->unit_count; e.unit++) {
        QB_TRY(emit_step(&e, &plan->units[e.unit], &plan->steps[e.unit]));
        qb_buffers_retire(e.buffers, e.unit);
    }
    return QB_OK;
}
