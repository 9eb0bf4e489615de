/* The interpreter of kernel programs: blocks of lanes, one indirect call per instruction and block.
 *
 * A block's direct loads and stores are pointers into the arrays, so a block is bound by setting those pointers.
 * Reductions decide the order of blocks: see qb_traversal. Pieces are combined by a binary counter, as in summing
 * pairwise (Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14, 1993): the error grows with
 * the logarithm of the number of terms, and the tree depends on the split only. */
#include "cpu/cpu.h"

#include <string.h>

enum {
    SHORT_EXTENT = 32, /* up to here a plain chain of operations is as exact as a tree needs its leaves to be */
    WIDE_CHAIN = 8,    /* rows that a wide column reduction adds up one by one before they enter the counter */
    VECTOR_ALIGNMENT = 64
};

typedef struct run {
    const qb_kernel *kernel;
    char *const *slots;
    char **registers;
} run;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- One block */

static void fill_once(const run *r)
{
    const qb_kernel *kernel = r->kernel;
    int64_t lanes = smaller(kernel->lanes, kernel->count);
    for (int i = 0; i < kernel->once_count; i++) {
        const qb_load *load = &kernel->loads[i];
        const char *memory = r->slots[load->slot];
        char *target = r->registers[load->target];
        if (load->kind == QB_LOAD_SPLAT) {
            size_t size = qb_dtype_size(load->dtype);
            qb_load_spread(size, memory + load->offset * (int64_t)size, target, lanes);
        } else {
            qb_load_gather(load, memory, target, 0, lanes);
        }
    }
}

static void compute_block(const run *r, int64_t first, int64_t count)
{
    const qb_kernel *kernel = r->kernel;
    char **registers = r->registers;
    const qb_binding *binding = kernel->bindings;
    for (int i = 0; i < kernel->bound_count; i++, binding++)
        registers[binding->target] = r->slots[binding->slot] + binding->offset + first * binding->size;
    const qb_load *load = kernel->loads + kernel->once_count;
    for (int i = 0; i < kernel->gather_count; i++, load++)
        qb_load_gather(load, r->slots[load->slot], registers[load->target], first, count);
    const qb_instruction *end = kernel->instructions + kernel->instruction_count;
    for (const qb_instruction *i = kernel->instructions; i < end; i++)
        i->kernel((size_t)count, registers[i->result], registers[i->operand[0]], registers[i->operand[1]],
                  registers[i->operand[2]]);
}

/* ---- Pairwise combination: a binary counter of partial results. Entry i of the stack holds 2^i pieces; entries are
 * `stride` bytes apart. */

static void push(const qb_kernel_reduction *red, char *stack, int64_t stride, int64_t pieces, size_t width, char *piece)
{
    int level = 0;
    for (; pieces >> level & 1; level++) {
        char *here = stack + level * stride;
        char *result = pieces >> (level + 1) & 1 ? here : here + stride;
        red->combine(width, result, here, piece, here);
        piece = result;
    }
    if (level == 0)
        memcpy(stack, piece, width * qb_dtype_size(red->dtype));
}

static void finish(const qb_kernel_reduction *red, char *stack, int64_t stride, int64_t pieces, size_t width, char *out)
{
    char *sum = NULL;
    for (int level = 0; pieces >> level; level++) {
        char *here = stack + level * stride;
        if (!(pieces >> level & 1))
            continue;
        if (sum)
            red->combine(width, here, here, sum, here);
        sum = here;
    }
    if (sum)
        memcpy(out, sum, width * qb_dtype_size(red->dtype));
}

static int levels(int64_t pieces)
{
    int count = 1;
    while (pieces >> count)
        count++;
    return count + 1;
}

static char *result_at(const run *r, const qb_kernel_reduction *red, int64_t index)
{
    return r->slots[red->slot] + index * (int64_t)qb_dtype_size(red->dtype);
}

/* ---- Traversals */

static void traverse_linear(const run *r)
{
    const qb_kernel *kernel = r->kernel;
    for (int64_t first = 0; first < kernel->count; first += kernel->lanes)
        compute_block(r, first, smaller(kernel->lanes, kernel->count - first));
}

static void traverse_short(const run *r)
{
    const qb_kernel *kernel = r->kernel;
    int64_t group = kernel->extent * kernel->inner;
    for (int64_t first = 0; first < kernel->count; first += kernel->lanes) {
        int64_t count = smaller(kernel->lanes, kernel->count - first);
        compute_block(r, first, count);
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            red->fold((size_t)(count / group), (size_t)kernel->extent, (size_t)kernel->inner,
                      result_at(r, red, first / kernel->extent), r->registers[red->source]);
        }
    }
}

static void traverse_rows(const run *r)
{
    const qb_kernel *kernel = r->kernel;
    for (int64_t first = 0; first < kernel->count; first += kernel->lanes) {
        int64_t count = smaller(kernel->lanes, kernel->count - first);
        compute_block(r, first, count);
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            int64_t size = (int64_t)qb_dtype_size(red->dtype);
            const char *row = r->registers[red->source];
            char *out = result_at(r, red, first / kernel->extent);
            for (int64_t k = 0; k < count; k += kernel->extent, row += kernel->extent * size, out += size)
                red->reduce((size_t)kernel->extent, out, row);
        }
    }
}

static void traverse_long(const run *r)
{
    const qb_kernel *kernel = r->kernel;
    for (int64_t o = 0; o < kernel->outer; o++) {
        int64_t pieces = 0;
        for (int64_t e = 0; e < kernel->extent; e += kernel->lanes, pieces++) {
            int64_t count = smaller(kernel->lanes, kernel->extent - e);
            compute_block(r, o * kernel->extent + e, count);
            for (int i = 0; i < kernel->reduction_count; i++) {
                const qb_kernel_reduction *red = &kernel->reductions[i];
                _Alignas(8) char piece[8];
                red->reduce((size_t)count, piece, r->registers[red->source]);
                push(red, r->registers[red->stack], 8, pieces, 1, piece);
            }
        }
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            finish(red, r->registers[red->stack], 8, pieces, 1, result_at(r, red, o));
        }
    }
}

/* Bytes from one partial vector to the next. */
static int64_t vector_stride(int64_t lanes)
{
    return (lanes * 8 + VECTOR_ALIGNMENT - 1) / VECTOR_ALIGNMENT * VECTOR_ALIGNMENT;
}

/* Combines the rows of a block by halving; the result is in `rows` itself (one row) or in `spare`. */
static char *halve(const qb_kernel_reduction *red, char *rows, char *spare, int64_t count, int64_t inner)
{
    int64_t row = inner * (int64_t)qb_dtype_size(red->dtype);
    while (count > 1) {
        int64_t lower = count / 2, upper = count - lower;
        red->combine((size_t)(lower * inner), spare, rows, rows + upper * row, rows);
        if (upper > lower && rows != spare)
            memcpy(spare + lower * row, rows + lower * row, (size_t)row);
        rows = spare;
        count = upper;
    }
    return rows;
}

static void traverse_columns(const run *r)
{
    const qb_kernel *kernel = r->kernel;
    int64_t rows = kernel->lanes / kernel->inner, inner = kernel->inner, stride = vector_stride(kernel->lanes);
    for (int64_t o = 0; o < kernel->outer; o++) {
        int64_t pieces = 0;
        for (int64_t e = 0; e < kernel->extent; e += rows, pieces++) {
            int64_t count = smaller(rows, kernel->extent - e);
            compute_block(r, (o * kernel->extent + e) * inner, count * inner);
            for (int i = 0; i < kernel->reduction_count; i++) {
                const qb_kernel_reduction *red = &kernel->reductions[i];
                char *spare = r->registers[red->stack];
                char *piece = halve(red, r->registers[red->source], spare, count, inner);
                push(red, spare + stride, stride, pieces, (size_t)inner, piece);
            }
        }
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            finish(red, r->registers[red->stack] + stride, stride, pieces, (size_t)inner, result_at(r, red, o * inner));
        }
    }
}

/* The columns column .. column+count-1 of group o. */
static void reduce_strip(const run *r, int64_t o, int64_t column, int64_t count)
{
    const qb_kernel *kernel = r->kernel;
    int64_t stride = vector_stride(kernel->lanes), pieces = 0;
    for (int64_t e = 0; e < kernel->extent; e++) {
        compute_block(r, (o * kernel->extent + e) * kernel->inner + column, count);
        bool full = e % WIDE_CHAIN == WIDE_CHAIN - 1 || e == kernel->extent - 1;
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            char *chain = r->registers[red->stack], *source = r->registers[red->source];
            if (e % WIDE_CHAIN == 0)
                memcpy(chain, source, (size_t)count * qb_dtype_size(red->dtype));
            else
                red->combine((size_t)count, chain, chain, source, chain);
            if (full)
                push(red, chain + stride, stride, pieces, (size_t)count, chain);
        }
        pieces += full;
    }
    for (int i = 0; i < kernel->reduction_count; i++) {
        const qb_kernel_reduction *red = &kernel->reductions[i];
        finish(red, r->registers[red->stack] + stride, stride, pieces, (size_t)count,
               result_at(r, red, o * kernel->inner + column));
    }
}

static void traverse_wide(const run *r)
{
    const qb_kernel *kernel = r->kernel;
    for (int64_t o = 0; o < kernel->outer; o++)
        for (int64_t column = 0; column < kernel->inner; column += kernel->lanes)
            reduce_strip(r, o, column, smaller(kernel->lanes, kernel->inner - column));
}

/* ---- Choice and entry */

void qb_kernel_choose_traversal(qb_kernel *kernel)
{
    int64_t lanes = QB_KERNEL_LANES, extent = kernel->extent, inner = kernel->inner;
    kernel->stack_size = 0;
    if (kernel->reduction_count == 0 || kernel->count == 0) {
        kernel->traversal = QB_TRAVERSE_LINEAR;
    } else if (extent <= SHORT_EXTENT && extent * inner <= lanes) {
        kernel->traversal = QB_TRAVERSE_SHORT;
        lanes -= lanes % (extent * inner);
    } else if (inner == 1 && extent <= lanes) {
        kernel->traversal = QB_TRAVERSE_ROWS;
        lanes -= lanes % extent;
    } else if (inner == 1) {
        kernel->traversal = QB_TRAVERSE_LONG;
        kernel->stack_size = 8 * levels((extent + lanes - 1) / lanes);
    } else if (inner <= lanes / 2) {
        kernel->traversal = QB_TRAVERSE_COLUMNS;
        lanes -= lanes % inner;
        int64_t rows = lanes / inner;
        kernel->stack_size = vector_stride(lanes) * (1 + levels((extent + rows - 1) / rows));
    } else {
        kernel->traversal = QB_TRAVERSE_WIDE;
        kernel->stack_size = vector_stride(lanes) * (1 + levels((extent + WIDE_CHAIN - 1) / WIDE_CHAIN));
    }
    kernel->lanes = (int32_t)lanes;
    kernel->stack_size = (kernel->stack_size + VECTOR_ALIGNMENT - 1) / VECTOR_ALIGNMENT * VECTOR_ALIGNMENT;
}

void qb_kernel_run(const qb_kernel *kernel, char *const *slots, char **registers)
{
    run r = {kernel, slots, registers};
    if (kernel->count == 0) {
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            qb_reduce_identity(red->reduction, red->dtype, kernel->outer * kernel->inner, slots[red->slot]);
        }
        return;
    }
    fill_once(&r);
    switch (kernel->traversal) {
    case QB_TRAVERSE_LINEAR: traverse_linear(&r); break;
    case QB_TRAVERSE_SHORT: traverse_short(&r); break;
    case QB_TRAVERSE_ROWS: traverse_rows(&r); break;
    case QB_TRAVERSE_LONG: traverse_long(&r); break;
    case QB_TRAVERSE_COLUMNS: traverse_columns(&r); break;
    case QB_TRAVERSE_WIDE: traverse_wide(&r); break;
    }
}
