/* From a kernel program to code.
 *
 * Instructions fall into segments: runs of those that are arithmetic here (see lower), and calls between them. A segment
 * is done for four lanes at a time, then for what two and one are left. Within it, values stay in vector registers:
 * operands are loaded when first needed, results written at once where the kernel stores them, and otherwise only when
 * a register is wanted for something else or a later segment reads them. Of the registers, the one whose value is
 * needed last gives way (Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
 * Journal 5, 1966). At calls and between segments all values are in memory, each in the place that the interpreter
 * gives it; so a call reads and writes what it would there. */
#include "codegen/kernel.h"

#include "base/allocate.h"

enum {
    VALUE_REGISTERS = 13, /* 13 to 15 are for what an instruction needs besides */
    FIRST_SPARE = VALUE_REGISTERS,
    NONE = -1,
    NEVER = INT32_MAX
};

#define SIGN_64      0x8000000000000000u
#define SIGN_32      0x8000000080000000u
#define MAGNITUDE_64 0x7fffffffffffffffu
#define MAGNITUDE_32 0x7fffffff7fffffffu

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
} vector;

typedef struct codegen {
    qb_x86 *x;
    const qb_code_layout *layout;
    const qb_kernel *kernel;
    place *places;      /* of the kernel's registers */
    bool *is_called;    /* whether a call reads the register */
    int32_t *held_in;   /* vector register of each; NONE */
    int32_t (*next)[4]; /* of each instruction: who reads its operands and its result next */
    vector vectors[VALUE_REGISTERS];
    int width;    /* lanes at a time */
    int64_t lane; /* first of them, */
    bool is_loop; /* or that plus R13 */
    bool uses_wide;
} codegen;

/* ---- What there is an instruction for */

static bool is_copy(const qb_instruction *i)
{
    return i->lane == QB_LANE_convert && i->dtype == i->result_dtype;
}

static bool is_arithmetic(const qb_instruction *i)
{
    if (i->dtype != QB_FLOAT64 && i->dtype != QB_FLOAT32)
        return false;
    switch (i->lane) {
    case QB_LANE_neg:
    case QB_LANE_abs:
    case QB_LANE_add:
    case QB_LANE_sub:
    case QB_LANE_mul:
    case QB_LANE_div:
    case QB_LANE_strong_mul:
    case QB_LANE_strong_div:
    case QB_LANE_max:
    case QB_LANE_min:
    case QB_LANE_sqrt:
    case QB_LANE_root: return true;
    default: return is_copy(i);
    }
}

/* The selections are those of lanes.def. A result is written last, so that it may be an operand's register. */
static void lower(codegen *g, const qb_instruction *i, int result, int a, int b)
{
    enum { S = FIRST_SPARE, T, U };
    qb_x86 *x = g->x;
    qb_x86_lanes lanes = {(qb_dtype)i->dtype, g->width};
    bool is_64 = i->dtype == QB_FLOAT64;
    qb_x86_memory sign = {.constant = NONE};
    switch (i->lane) {
    case QB_LANE_neg:
        sign.constant = qb_x86_constant(x, is_64 ? SIGN_64 : SIGN_32);
        qb_x86_broadcast(x, lanes, S, sign);
        qb_x86_arithmetic(x, lanes, QB_X86_XOR, result, a, S);
        return;
    case QB_LANE_abs:
        sign.constant = qb_x86_constant(x, is_64 ? MAGNITUDE_64 : MAGNITUDE_32);
        qb_x86_broadcast(x, lanes, S, sign);
        qb_x86_arithmetic(x, lanes, QB_X86_AND, result, a, S);
        return;
    case QB_LANE_add: qb_x86_arithmetic(x, lanes, QB_X86_ADD, result, a, b); return;
    case QB_LANE_sub: qb_x86_arithmetic(x, lanes, QB_X86_SUB, result, a, b); return;
    case QB_LANE_mul: qb_x86_arithmetic(x, lanes, QB_X86_MUL, result, a, b); return;
    case QB_LANE_div: qb_x86_arithmetic(x, lanes, QB_X86_DIV, result, a, b); return;
    case QB_LANE_strong_mul:
        qb_x86_arithmetic(x, lanes, QB_X86_XOR, S, S, S);
        qb_x86_compare(x, lanes, QB_X86_EQUAL, T, a, S);
        qb_x86_compare(x, lanes, QB_X86_EQUAL, U, b, S);
        qb_x86_arithmetic(x, lanes, QB_X86_OR, T, T, U);
        qb_x86_arithmetic(x, lanes, QB_X86_MUL, U, a, b);
        qb_x86_arithmetic(x, lanes, QB_X86_AND_NOT, result, T, U);
        return;
    case QB_LANE_strong_div:
        qb_x86_arithmetic(x, lanes, QB_X86_XOR, S, S, S);
        qb_x86_compare(x, lanes, QB_X86_EQUAL, T, a, S);
        qb_x86_arithmetic(x, lanes, QB_X86_DIV, U, a, b);
        qb_x86_arithmetic(x, lanes, QB_X86_AND_NOT, result, T, U);
        return;
    case QB_LANE_max:
    case QB_LANE_min:
        qb_x86_arithmetic(x, lanes, i->lane == QB_LANE_max ? QB_X86_MAX : QB_X86_MIN, S, a, b);
        qb_x86_compare(x, lanes, QB_X86_UNORDERED, T, a, a);
        qb_x86_blend(x, lanes, result, T, a, S);
        return;
    case QB_LANE_sqrt:
    case QB_LANE_root: qb_x86_arithmetic(x, lanes, QB_X86_SQRT, result, a, a); return;
    default: qb_x86_move(x, lanes, result, a); return; /* a copy */
    }
}

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
        for (int k = 0; k < 3 && !is_arithmetic(&kernel->instructions[i]); k++)
            g->is_called[kernel->instructions[i].operand[k]] = true;
    for (int32_t i = 0; i < kernel->reduction_count; i++)
        g->is_called[kernel->reductions[i].source] = true;
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
        if (load->kind == QB_LOAD_CONSTANT)
            g->places[load->target] =
                (place){.kind = ABSOLUTE, .address = load->lanes, .is_splat = true, .is_constant = true};
        else if (load->kind == QB_LOAD_SPLAT && !g->is_called[load->target]) {
            place *p = &g->places[load->target];
            *p = in_slot(g, load->slot, load->offset * (int64_t)qb_dtype_size(load->dtype));
            p->is_splat = true;
        }
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
        qb_x86_load_pointer(g->x, QB_RAX, p->slot * (int64_t)sizeof(char *));
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
    qb_x86_store(g->x, (qb_x86_lanes){vector->dtype, g->width}, v,
                 lanes_in_memory(g, &g->places[vector->holds], vector->dtype));
    vector->dirty = false;
}

/* A vector register for something new; none of those that hold `kept`. */
static int take_vector(codegen *g, const int32_t *kept)
{
    int last = NONE;
    for (int v = 0; v < VALUE_REGISTERS; v++) {
        const vector *vector = &g->vectors[v];
        if (vector->holds == NONE)
            return v;
        bool is_kept = vector->holds == kept[0] || vector->holds == kept[1] || vector->holds == kept[2];
        if (!is_kept && (last == NONE || vector->next > g->vectors[last].next))
            last = v;
    }
    if (g->vectors[last].dirty)
        write_back(g, last);
    forget(g, last);
    return last;
}

static void hold(codegen *g, int v, int32_t reg, qb_dtype dtype, int32_t next)
{
    g->vectors[v] = (vector){.holds = reg, .next = next, .dtype = dtype};
    g->held_in[reg] = v;
}

/* The vector register that holds operand k of instruction i. */
static int operand(codegen *g, int32_t i, int k)
{
    const qb_instruction *instruction = &g->kernel->instructions[i];
    int32_t reg = instruction->operand[k];
    qb_dtype dtype = (qb_dtype)instruction->dtype;
    int v = g->held_in[reg];
    if (v == NONE) {
        const place *p = &g->places[reg];
        qb_x86_lanes lanes = {dtype, g->width};
        v = take_vector(g, instruction->operand);
        if (p->is_splat && p->is_constant)
            qb_x86_broadcast(g->x, lanes, v,
                             (qb_x86_memory){.constant = qb_x86_constant(g->x, element_bits(p, dtype))});
        else if (p->is_splat)
            qb_x86_broadcast(g->x, lanes, v, lanes_in_memory(g, p, dtype));
        else
            qb_x86_load(g->x, lanes, v, lanes_in_memory(g, p, dtype));
        hold(g, v, reg, dtype, NEVER);
    }
    g->vectors[v].next = g->next[i][k];
    return v;
}

static void compute(codegen *g, int32_t i)
{
    static const int32_t nothing[3] = {NONE, NONE, NONE};
    const qb_instruction *instruction = &g->kernel->instructions[i];
    int a = operand(g, i, 0), b = operand(g, i, 1);
    for (int k = 0; k < 2; k++) { /* whoever is dead, or about to be written anew */
        int v = g->held_in[instruction->operand[k]];
        if (v != NONE && g->vectors[v].next == NEVER)
            forget(g, v);
    }
    int32_t reg = instruction->result, next = g->next[i][3];
    if (g->held_in[reg] != NONE)
        forget(g, g->held_in[reg]);
    int v = take_vector(g, nothing);
    lower(g, instruction, v, a, b);
    hold(g, v, reg, (qb_dtype)instruction->result_dtype, next);
    g->vectors[v].dirty = true;
    if (reg < g->kernel->bound_count)
        write_back(g, v);
    if (next == NEVER)
        forget(g, v);
}

/* ---- Segments */

static void end_strip(codegen *g)
{
    for (int v = 0; v < VALUE_REGISTERS; v++) {
        if (g->vectors[v].holds != NONE && g->vectors[v].dirty)
            write_back(g, v);
        forget(g, v);
    }
}

static void compute_strip(codegen *g, int32_t first, int32_t limit)
{
    for (int32_t i = first; i < limit; i++) {
        g->uses_wide = g->uses_wide || (g->width == 4 && g->kernel->instructions[i].dtype == QB_FLOAT64);
        compute(g, i);
    }
    end_strip(g);
}

static void compute_segment(codegen *g, int32_t first, int32_t limit)
{
    int64_t count = g->kernel->count;
    g->lane = 0;
    for (g->width = 4; g->width > 0; g->width /= 2) {
        int64_t strips = (count - g->lane) / g->width;
        g->is_loop = strips > 1;
        if (g->is_loop) { /* only the first time: at most one strip is left after it */
            qb_x86_set(g->x, QB_R13, 0);
            int32_t begin = qb_x86_begin_loop(g->x);
            compute_strip(g, first, limit);
            qb_x86_end_loop(g->x, begin, g->width, strips * g->width);
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

static void call_kernel(codegen *g, const qb_instruction *i)
{
    begin_call(g);
    qb_x86_set(g->x, QB_RDI, (uint64_t)g->kernel->count);
    address_of(g, QB_RSI, &g->places[i->result]);
    address_of(g, QB_RDX, &g->places[i->operand[0]]);
    address_of(g, QB_RCX, &g->places[i->operand[1]]);
    address_of(g, QB_R8, &g->places[i->operand[2]]);
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
        qb_x86_set(g->x, QB_R8, (uint64_t)g->kernel->count);
        qb_x86_call(g->x, (function)qb_load_gather);
    } else if (load->kind == QB_LOAD_SPLAT && !g->places[load->target].is_splat) {
        size_t size = qb_dtype_size(load->dtype);
        memory = in_slot(g, load->slot, load->offset * (int64_t)size);
        qb_x86_set(g->x, QB_RDI, size); /* qb_load_spread(size, element, target, count) */
        address_of(g, QB_RSI, &memory);
        address_of(g, QB_RDX, &g->places[load->target]);
        qb_x86_set(g->x, QB_RCX, (uint64_t)g->kernel->count);
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

bool qb_code_suits(const qb_code_layout *layout, const qb_kernel *kernel)
{
    enum { LEAST = 2, MOST = 4096 };
    bool one_block = kernel->chunk_count == 1 && kernel->count <= kernel->lanes && kernel->count > 0 &&
                     (kernel->traversal == QB_TRAVERSE_LINEAR || kernel->traversal == QB_TRAVERSE_SHORT ||
                      kernel->traversal == QB_TRAVERSE_ROWS);
    int32_t arithmetic = 0;
    for (int32_t i = 0; one_block && i < kernel->instruction_count; i++)
        arithmetic += is_arithmetic(&kernel->instructions[i]);
    return arithmetic >= LEAST && kernel->instruction_count <= MOST && reaches_memory(layout, kernel);
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

static void generate(codegen *g)
{
    const qb_kernel *kernel = g->kernel;
    qb_x86_align(g->x);
    qb_x86_enter(g->x);
    for (int32_t i = 0; i < kernel->once_count + kernel->gather_count; i++)
        fill(g, &kernel->loads[i]);
    for (int32_t i = 0; i < kernel->instruction_count;) {
        int32_t first = i;
        while (i < kernel->instruction_count && is_arithmetic(&kernel->instructions[i]))
            i++;
        if (i > first)
            compute_segment(g, first, i);
        else
            call_kernel(g, &kernel->instructions[i++]);
    }
    for (int32_t i = 0; i < kernel->reduction_count; i++)
        reduce(g, &kernel->reductions[i]);
    qb_x86_leave(g->x, g->uses_wide);
}

qb_status qb_code_kernel(qb_x86 *x, const qb_code_layout *layout, const qb_kernel *kernel)
{
    size_t registers = (size_t)kernel->register_count;
    codegen g = {.x = x, .layout = layout, .kernel = kernel};
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
        find_called(&g);
        find_places(&g);
        generate(&g);
    }
    qb_free(g.places);
    qb_free(g.is_called);
    qb_free(g.held_in);
    qb_free(g.next);
    return ready && !x->failed ? QB_OK : qb_fail_memory();
}
