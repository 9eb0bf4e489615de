/* From a kernel program to code.
 *
 * Instructions fall into segments: runs of those that are arithmetic here (lower.h), and calls between them. A
 * segment is done for as many lanes at a time as a vector holds, then for half as many, and so on, where some are
 * left. Within it, values stay in vector registers: operands are loaded when first needed, results written at once
 * where the kernel stores them, and otherwise only when a register is wanted for something else or a later segment
 * reads them. Of the registers, the one whose value is needed last gives way (Belady, "A study of replacement
 * algorithms for a virtual-storage computer", IBM Systems Journal 5, 1966). At calls and between segments all values
 * are in memory, each in the place that the interpreter gives it; so a call reads and writes what it would there. */
#include "codegen/kernel.h"

#include "base/allocate.h"
#include "codegen/lower.h"

enum { VALUE_REGISTERS = QB_X86_SPARE, NONE = -1, NEVER = INT32_MAX };

/* What keeps addresses in loops: registers that a call may change, since there are no calls within. */
static const qb_x86_register bases[] = {QB_RDX, QB_RSI, QB_RDI, QB_R8, QB_R9, QB_R10, QB_R11};
enum { BASES = sizeof bases / sizeof *bases };

/* Where the lanes of a register of the kernel are in memory. */
typedef struct place {
    enum { IN_FRAME, IN_SLOT, ABSOLUTE } kind;
    int32_t slot;
    int64_t offset; /* bytes from the frame's table of slots, or in the slot */
    const char *address;
    bool is_splat; /* one element for all lanes */
    bool is_constant;
} place;

typedef struct vector {
    int32_t holds; /* a register of the kernel; NONE: free */
    int32_t next;  /* instruction that reads it next */
    bool dirty;    /* not in memory yet */
    qb_dtype dtype;
    qb_dtype lanes; /* those of a mask, where dtype is bool; otherwise dtype */
} vector;

typedef struct codegen {
    qb_x86 *x;
    const qb_code_layout *layout; /* NULL: a block, called with its registers */
    const qb_kernel *kernel;
    int64_t count;      /* lanes */
    place *places;      /* of the kernel's registers */
    bool *is_called;    /* whether a call reads the register */
    int32_t *held_in;   /* vector register of each; NONE */
    int32_t (*next)[4]; /* of each instruction: who reads its operands and its result next */
    vector vectors[VALUE_REGISTERS];
    int touched;            /* vectors[touched ...] have been free since the strip began */
    int32_t in_base[BASES]; /* the slot whose address bases[i] holds in a loop; NONE */
    int width;              /* lanes at a time */
    int64_t lane;           /* first of them, */
    bool is_loop;           /* or that plus R13 */
    bool uses_wide;
} codegen;

/* ---- Places */

static place in_slot(const codegen *g, int32_t number, int64_t offset)
{
    const qb_slot *slot = &g->layout->slots[number];
    switch (slot->kind) {
    case QB_SLOT_ARENA: return (place){.kind = IN_FRAME, .offset = g->layout->arena + slot->offset + offset};
    case QB_SLOT_CONSTANT:
        return (place){.kind = ABSOLUTE,
                       .address = (const char *)slot->constant->data + offset,
                       .is_splat = g->kernel->count <= 1,
                       .is_constant = true};
    case QB_SLOT_INPUT:
    case QB_SLOT_OUTPUT: break;
    }
    return (place){.kind = IN_SLOT, .slot = number, .offset = offset};
}

/* Marks the registers that a call reads: they have to be whole in memory. */
static void find_called(codegen *g)
{
    const qb_kernel *kernel = g->kernel;
    for (int32_t i = 0; i < kernel->instruction_count; i++)
        for (int k = 0; k < 3 && !qb_code_is_arithmetic(&kernel->instructions[i]); k++)
            g->is_called[kernel->instructions[i].operand[k]] = true;
    for (int32_t i = 0; i < kernel->reduction_count; i++)
        g->is_called[kernel->reductions[i].source] = true;
}

static place constant_place(const qb_load *load)
{
    return (place){.kind = ABSOLUTE, .address = load->lanes, .is_splat = true, .is_constant = true};
}

static void find_places(codegen *g)
{
    const qb_kernel *kernel = g->kernel;
    for (int32_t i = 0; i < kernel->bound_count; i++)
        g->places[kernel->bindings[i].target] = in_slot(g, kernel->bindings[i].slot, kernel->bindings[i].offset);
    for (int32_t i = 0; i < kernel->scratch_count; i++)
        g->places[kernel->bound_count + i] =
            (place){.kind = IN_FRAME, .offset = g->layout->scratch + (int64_t)i * kernel->scratch_stride};
    for (int32_t i = 0; i < kernel->load_count; i++) {
        const qb_load *load = &kernel->loads[i];
        if (load->kind == QB_LOAD_CONSTANT) {
            g->places[load->target] = constant_place(load);
        } else if (load->kind == QB_LOAD_SPLAT && !g->is_called[load->target]) {
            place *p = &g->places[load->target];
            *p = in_slot(g, load->slot, load->offset * (int64_t)qb_dtype_size(load->dtype));
            p->is_splat = true;
        }
    }
}

/* In a block all registers have their addresses in the table. */
static void find_places_in_table(codegen *g)
{
    const qb_kernel *kernel = g->kernel;
    for (int32_t r = 0; r < kernel->register_count; r++)
        g->places[r] = (place){.kind = IN_SLOT, .slot = r};
    for (int32_t i = 0; i < kernel->load_count; i++) {
        const qb_load *load = &kernel->loads[i];
        if (load->kind == QB_LOAD_CONSTANT)
            g->places[load->target] = constant_place(load);
        else if (load->kind == QB_LOAD_SPLAT)
            g->places[load->target].is_splat = true; /* all its lanes are there, too */
    }
}

/* The address of a place, without its lanes, in a general register. */
static void address_of(codegen *g, qb_x86_register to, const place *p)
{
    switch (p->kind) {
    case IN_FRAME: qb_x86_address(g->x, to, p->offset); break;
    case IN_SLOT:
        qb_x86_load_pointer(g->x, to, p->slot * (int64_t)sizeof(char *));
        qb_x86_add(g->x, to, p->offset);
        break;
    case ABSOLUTE: qb_x86_set(g->x, to, (uint64_t)(uintptr_t)p->address); break;
    }
}

/* The register that holds the address of a slot: one that keeps it through a loop, or RAX from here on. */
static qb_x86_register base_of(codegen *g, int32_t slot)
{
    for (int i = 0; i < BASES; i++)
        if (g->in_base[i] == slot)
            return bases[i];
    qb_x86_load_pointer(g->x, QB_RAX, slot * (int64_t)sizeof(char *));
    return QB_RAX;
}

static void keep_base(codegen *g, int32_t reg)
{
    const place *p = &g->places[reg];
    for (int i = 0; p->kind == IN_SLOT && i < BASES; i++) {
        if (g->in_base[i] == p->slot)
            return;
        if (g->in_base[i] == NONE) {
            g->in_base[i] = p->slot;
            qb_x86_load_pointer(g->x, bases[i], p->slot * (int64_t)sizeof(char *));
            return;
        }
    }
}

/* Before a loop: addresses of the arrays that it reads and writes, as many as there are registers for. */
static void keep_bases(codegen *g, int32_t first, int32_t limit)
{
    for (int32_t i = first; i < limit; i++) {
        for (int k = 0; k < 3; k++)
            keep_base(g, g->kernel->instructions[i].operand[k]);
        keep_base(g, g->kernel->instructions[i].result);
    }
}

static void drop_bases(codegen *g)
{
    for (int i = 0; i < BASES; i++)
        g->in_base[i] = NONE;
}

/* The lanes at hand of a register in memory. */
static qb_x86_memory lanes_in_memory(codegen *g, const place *p, qb_dtype dtype)
{
    int size = (int)qb_dtype_size(dtype);
    qb_x86_memory memory = {.base = QB_RAX, .constant = NONE};
    int64_t lane = p->is_splat ? 0 : g->lane * size;
    memory.scale = g->is_loop && !p->is_splat ? size : 0;
    switch (p->kind) {
    case IN_FRAME:
        memory.base = QB_RBX;
        lane += p->offset;
        break;
    case IN_SLOT:
        memory.base = base_of(g, p->slot);
        lane += p->offset;
        break;
    case ABSOLUTE: qb_x86_set(g->x, QB_RAX, (uint64_t)(uintptr_t)p->address); break;
    }
    memory.displacement = (int32_t)lane;
    return memory;
}

static uint64_t element_bits(const place *p, qb_dtype dtype)
{
    uint64_t bits = 0;
    memcpy(&bits, p->address, qb_dtype_size(dtype));
    return bits;
}

/* ---- Values in vector registers */

static void forget(codegen *g, int v)
{
    if (g->vectors[v].holds != NONE)
        g->held_in[g->vectors[v].holds] = NONE;
    g->vectors[v] = (vector){.holds = NONE, .next = NEVER};
}

static void write_back(codegen *g, int v)
{
    vector *vector = &g->vectors[v];
    qb_x86_lanes lanes = {vector->lanes, g->width};
    qb_x86_memory memory = lanes_in_memory(g, &g->places[vector->holds], vector->dtype);
    if (vector->dtype == QB_BOOL)
        qb_x86_store_mask(g->x, lanes, v, memory);
    else
        qb_x86_store(g->x, lanes, v, memory);
    vector->dirty = false;
}

/* A vector register for something new; none of those that hold `kept`. */
static int take_vector(codegen *g, const int32_t *kept)
{
    int last = NONE;
    for (int v = 0; v < VALUE_REGISTERS; v++) {
        const vector *vector = &g->vectors[v];
        if (vector->holds == NONE) {
            g->touched = v < g->touched ? g->touched : v + 1;
            return v;
        }
        bool is_kept = vector->holds == kept[0] || vector->holds == kept[1] || vector->holds == kept[2];
        if (!is_kept && (last == NONE || vector->next > g->vectors[last].next))
            last = v;
    }
    if (g->vectors[last].dirty)
        write_back(g, last);
    forget(g, last);
    return last;
}

static void hold(codegen *g, int v, int32_t reg, qb_dtype dtype, qb_dtype lanes)
{
    g->vectors[v] = (vector){.holds = reg, .next = NEVER, .dtype = dtype, .lanes = lanes};
    g->held_in[reg] = v;
}

/* The lanes that an instruction works on: floating operands' or results'; masks that meet are of one kind. */
static qb_dtype lanes_of(const codegen *g, const qb_instruction *i)
{
    if (i->dtype != QB_BOOL)
        return (qb_dtype)i->dtype;
    if (i->lane == QB_LANE_convert)
        return (qb_dtype)i->result_dtype;
    for (int k = 0; k < 2; k++)
        if (g->held_in[i->operand[k]] != NONE)
            return g->vectors[g->held_in[i->operand[k]]].lanes;
    return QB_FLOAT64;
}

static void load(codegen *g, qb_x86_lanes lanes, int v, const place *p, qb_dtype dtype)
{
    if (dtype == QB_BOOL && p->is_splat) {
        qb_x86_broadcast_mask(g->x, lanes, v, lanes_in_memory(g, p, dtype));
    } else if (dtype == QB_BOOL) {
        qb_x86_load_mask(g->x, lanes, v, lanes_in_memory(g, p, dtype));
    } else if (p->is_splat && p->is_constant) {
        int32_t constant = qb_x86_constant(g->x, element_bits(p, dtype));
        qb_x86_broadcast(g->x, lanes, v, (qb_x86_memory){.constant = constant});
    } else if (p->is_splat) {
        qb_x86_broadcast(g->x, lanes, v, lanes_in_memory(g, p, dtype));
    } else {
        qb_x86_load(g->x, lanes, v, lanes_in_memory(g, p, dtype));
    }
}

/* The vector register that holds operand k of instruction i. */
static int operand(codegen *g, int32_t i, int k, qb_x86_lanes lanes)
{
    const qb_instruction *instruction = &g->kernel->instructions[i];
    int32_t reg = instruction->operand[k];
    bool is_mask = instruction->dtype == QB_BOOL || (instruction->lane == QB_LANE_select && k == 0);
    int v = g->held_in[reg];
    if (v != NONE && g->vectors[v].lanes != lanes.dtype) { /* a mask of lanes of another size */
        if (g->vectors[v].dirty)
            write_back(g, v);
        forget(g, v);
        v = NONE;
    }
    if (v == NONE) {
        v = take_vector(g, instruction->operand);
        load(g, lanes, v, &g->places[reg], is_mask ? QB_BOOL : lanes.dtype);
        hold(g, v, reg, is_mask ? QB_BOOL : lanes.dtype, lanes.dtype);
    }
    g->vectors[v].next = g->next[i][k];
    return v;
}

static void compute(codegen *g, int32_t i)
{
    static const int32_t nothing[3] = {NONE, NONE, NONE};
    const qb_instruction *instruction = &g->kernel->instructions[i];
    qb_x86_lanes lanes = {lanes_of(g, instruction), g->width};
    int operands[3];
    for (int k = 0; k < 3; k++) /* those that it lacks repeat the first */
        operands[k] = operand(g, i, k, lanes);
    for (int k = 0; k < 3; k++) { /* whoever is dead, or about to be written anew */
        int v = g->held_in[instruction->operand[k]];
        if (v != NONE && g->vectors[v].next == NEVER)
            forget(g, v);
    }
    int32_t reg = instruction->result;
    if (g->held_in[reg] != NONE)
        forget(g, g->held_in[reg]);
    int v = take_vector(g, nothing);
    qb_code_lower(g->x, lanes, instruction, v, operands);
    hold(g, v, reg, (qb_dtype)instruction->result_dtype, lanes.dtype);
    g->vectors[v].next = g->next[i][3];
    g->vectors[v].dirty = true;
    g->uses_wide = g->uses_wide || lanes.width * (int)qb_dtype_size(lanes.dtype) > 16;
    if (reg < g->kernel->bound_count)
        write_back(g, v);
    if (g->vectors[v].next == NEVER)
        forget(g, v);
}

/* ---- Segments */

static void end_strip(codegen *g)
{
    for (int v = 0; v < g->touched; v++) {
        if (g->vectors[v].holds != NONE && g->vectors[v].dirty)
            write_back(g, v);
        forget(g, v);
    }
    g->touched = 0;
}

static void compute_strip(codegen *g, int32_t first, int32_t limit)
{
    for (int32_t i = first; i < limit; i++)
        compute(g, i);
    end_strip(g);
}

/* Lanes at a time: as many of the largest that are computed with as a vector holds. */
static int widest(const codegen *g, int32_t first, int32_t limit)
{
    size_t size = 4;
    for (int32_t i = first; i < limit; i++) {
        const qb_instruction *instruction = &g->kernel->instructions[i];
        if (instruction->dtype == QB_FLOAT64 || instruction->dtype == QB_BOOL)
            size = 8; /* a mask may be as wide */
    }
    return g->x->widest / (int)size;
}

static void compute_segment(codegen *g, int32_t first, int32_t limit)
{
    g->lane = 0;
    for (g->width = widest(g, first, limit); g->width > 0; g->width /= 2) {
        int64_t strips = (g->count - g->lane) / g->width;
        g->is_loop = strips > 1;
        if (g->is_loop) { /* only the first time: at most one strip is left after it */
            qb_x86_set(g->x, QB_R13, 0);
            keep_bases(g, first, limit);
            int32_t begin = qb_x86_begin_loop(g->x);
            compute_strip(g, first, limit);
            qb_x86_end_loop(g->x, begin, g->width, strips * g->width);
            drop_bases(g);
        } else if (strips == 1) {
            compute_strip(g, first, limit);
        }
        g->lane += strips * g->width;
    }
}

/* ---- Calls */

typedef void (*function)(void);

static void begin_call(codegen *g)
{
    if (g->uses_wide)
        qb_x86_clear_upper(g->x);
    g->uses_wide = false;
}

/* Operands that an instruction lacks repeat the first, which is in RDX. */
static void address_of_another(codegen *g, qb_x86_register to, const qb_instruction *i, int k)
{
    if (i->operand[k] == i->operand[0])
        qb_x86_copy(g->x, to, QB_RDX);
    else
        address_of(g, to, &g->places[i->operand[k]]);
}

static void call_kernel(codegen *g, const qb_instruction *i)
{
    begin_call(g);
    qb_x86_set(g->x, QB_RDI, (uint64_t)g->count);
    address_of(g, QB_RSI, &g->places[i->result]);
    address_of(g, QB_RDX, &g->places[i->operand[0]]);
    address_of_another(g, QB_RCX, i, 1);
    address_of_another(g, QB_R8, i, 2);
    qb_x86_call(g->x, (function)i->kernel);
}

/* Loads that no instruction here does: gathers, and what a call wants to find spread. */
static void fill(codegen *g, const qb_load *load)
{
    place memory = in_slot(g, load->slot, 0);
    if (load->kind == QB_LOAD_STRIDED) { /* qb_load_gather(load, memory, target, 0, count) */
        qb_x86_set(g->x, QB_RDI, (uint64_t)(uintptr_t)load);
        address_of(g, QB_RSI, &memory);
        address_of(g, QB_RDX, &g->places[load->target]);
        qb_x86_set(g->x, QB_RCX, 0);
        qb_x86_set(g->x, QB_R8, (uint64_t)g->count);
        qb_x86_call(g->x, (function)qb_load_gather);
    } else if (load->kind == QB_LOAD_SPLAT && !g->places[load->target].is_splat) {
        size_t size = qb_dtype_size(load->dtype);
        memory = in_slot(g, load->slot, load->offset * (int64_t)size);
        qb_x86_set(g->x, QB_RDI, size); /* qb_load_spread(size, element, target, count) */
        address_of(g, QB_RSI, &memory);
        address_of(g, QB_RDX, &g->places[load->target]);
        qb_x86_set(g->x, QB_RCX, (uint64_t)g->count);
        qb_x86_call(g->x, (function)qb_load_spread);
    }
}

static void reduce(codegen *g, const qb_kernel_reduction *red)
{
    const qb_kernel *kernel = g->kernel;
    place out = in_slot(g, red->slot, 0);
    begin_call(g);
    if (kernel->traversal == QB_TRAVERSE_SHORT) { /* fold(outer, extent, inner, out, source) */
        qb_x86_set(g->x, QB_RDI, (uint64_t)kernel->outer);
        qb_x86_set(g->x, QB_RSI, (uint64_t)kernel->extent);
        qb_x86_set(g->x, QB_RDX, (uint64_t)kernel->inner);
        address_of(g, QB_RCX, &out);
        address_of(g, QB_R8, &g->places[red->source]);
        qb_x86_call(g->x, (function)red->fold);
    } else { /* qb_reduce_rows(reduction, rows, extent, out, source) */
        qb_x86_set(g->x, QB_RDI, (uint64_t)(uintptr_t)red);
        qb_x86_set(g->x, QB_RSI, (uint64_t)kernel->outer);
        qb_x86_set(g->x, QB_RDX, (uint64_t)kernel->extent);
        address_of(g, QB_RCX, &out);
        address_of(g, QB_R8, &g->places[red->source]);
        qb_x86_call(g->x, (function)qb_reduce_rows);
    }
}

/* ---- The whole kernel */

/* Displacements have 32 bits. */
enum { FAR = 1 << 30 };

static bool is_near(const qb_code_layout *layout, int32_t slot, int64_t offset)
{
    bool in_arena = layout->slots[slot].kind == QB_SLOT_ARENA;
    return offset < FAR && (!in_arena || layout->arena + layout->slots[slot].offset + offset < FAR);
}

static bool reaches_memory(const qb_code_layout *layout, const qb_kernel *kernel)
{
    bool all = layout->scratch + (int64_t)kernel->scratch_count * kernel->scratch_stride < FAR;
    for (int32_t i = 0; i < kernel->bound_count; i++)
        all = all && is_near(layout, kernel->bindings[i].slot, kernel->bindings[i].offset);
    for (int32_t i = 0; i < kernel->load_count; i++)
        all = all && is_near(layout, kernel->loads[i].slot, kernel->loads[i].offset * 8);
    for (int32_t i = 0; i < kernel->reduction_count; i++)
        all = all && is_near(layout, kernel->reductions[i].slot, 0);
    return all;
}

static bool has_work(const qb_kernel *kernel)
{
    enum { LEAST = 2, MOST = 4096 };
    int32_t arithmetic = 0;
    for (int32_t i = 0; i < kernel->instruction_count; i++)
        arithmetic += qb_code_is_arithmetic(&kernel->instructions[i]);
    return kernel->count > 0 && arithmetic >= LEAST && kernel->instruction_count <= MOST;
}

bool qb_code_suits_whole(const qb_code_layout *layout, const qb_kernel *kernel)
{
    bool one_block = kernel->chunk_count == 1 && kernel->count <= kernel->lanes &&
                     (kernel->traversal == QB_TRAVERSE_LINEAR || kernel->traversal == QB_TRAVERSE_SHORT ||
                      kernel->traversal == QB_TRAVERSE_ROWS);
    return one_block && has_work(kernel) && reaches_memory(layout, kernel);
}

bool qb_code_suits_block(const qb_kernel *kernel)
{
    return has_work(kernel) && kernel->count >= kernel->lanes;
}

/* Who reads each operand and result next; what a reduction reads is needed after the last instruction. */
static void find_next_uses(codegen *g, int32_t *next_use)
{
    const qb_kernel *kernel = g->kernel;
    for (int32_t r = 0; r < kernel->register_count; r++)
        next_use[r] = NEVER;
    for (int32_t i = 0; i < kernel->reduction_count; i++)
        next_use[kernel->reductions[i].source] = kernel->instruction_count;
    for (int32_t i = kernel->instruction_count - 1; i >= 0; i--) {
        const qb_instruction *instruction = &kernel->instructions[i];
        g->next[i][3] = next_use[instruction->result];
        next_use[instruction->result] = NEVER;
        for (int k = 0; k < 3; k++)
            g->next[i][k] = next_use[instruction->operand[k]];
        for (int k = 0; k < 3; k++)
            next_use[instruction->operand[k]] = i;
    }
}

static void instructions(codegen *g)
{
    const qb_kernel *kernel = g->kernel;
    for (int32_t i = 0; i < kernel->instruction_count;) {
        int32_t first = i;
        while (i < kernel->instruction_count && qb_code_is_arithmetic(&kernel->instructions[i]))
            i++;
        if (i > first)
            compute_segment(g, first, i);
        else
            call_kernel(g, &kernel->instructions[i++]);
    }
}

static void generate(codegen *g)
{
    const qb_kernel *kernel = g->kernel;
    drop_bases(g);
    find_called(g);
    if (g->layout)
        find_places(g);
    else
        find_places_in_table(g);
    qb_x86_enter(g->x);
    for (int32_t i = 0; g->layout && i < kernel->once_count + kernel->gather_count; i++)
        fill(g, &kernel->loads[i]);
    instructions(g);
    for (int32_t i = 0; g->layout && i < kernel->reduction_count; i++)
        reduce(g, &kernel->reductions[i]);
    qb_x86_leave(g->x, g->uses_wide);
}

static qb_status generate_with(codegen g)
{
    const qb_kernel *kernel = g.kernel;
    size_t registers = (size_t)kernel->register_count;
    g.places = qb_allocate_zeroed(registers, sizeof *g.places);
    g.is_called = qb_allocate_zeroed(registers, sizeof *g.is_called);
    g.held_in = qb_allocate(registers * sizeof *g.held_in);
    g.next = qb_allocate((size_t)kernel->instruction_count * sizeof *g.next);
    bool ready = g.places && g.is_called && g.held_in && g.next;
    if (ready) {
        find_next_uses(&g, g.held_in);
        for (size_t r = 0; r < registers; r++)
            g.held_in[r] = NONE;
        for (int v = 0; v < VALUE_REGISTERS; v++)
            g.vectors[v] = (vector){.holds = NONE, .next = NEVER};
        generate(&g);
    }
    qb_free(g.places);
    qb_free(g.is_called);
    qb_free(g.held_in);
    qb_free(g.next);
    return ready && !g.x->failed ? QB_OK : qb_fail_memory();
}

qb_status qb_code_whole(qb_x86 *x, const qb_code_layout *layout, const qb_kernel *kernel)
{
    return generate_with((codegen){.x = x, .layout = layout, .kernel = kernel, .count = kernel->count});
}

qb_status qb_code_block(qb_x86 *x, const qb_kernel *kernel)
{
    return generate_with((codegen){.x = x, .kernel = kernel, .count = kernel->lanes});
}
