/* The interpreter of kernel programs: blocks of lanes, one indirect call per instruction and block.
 *
 * A block's direct loads and stores are pointers into the arrays, so a block is bound by setting those pointers.
 * Reductions decide the order of blocks: see qb_traversal. Pieces are combined by a binary counter, as in summing
 * pairwise (Higham, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14, 1993): the error grows with
 * the logarithm of the number of terms, and the tree depends on the split only.
 *
 * A long kernel is cut into chunks for threads. A chunk of a long reduction is a complete subtree: an aligned 2^n
 * pieces (or the rest), so that the chunks' values, combined by the same counter, give the same bits as one pass. */
#include "cpu/cpu.h"

#include "base/threads.h"

#include <string.h>

enum {
    SHORT_EXTENT = 64,    /* up to here a plain chain of operations is as exact as a tree needs its leaves to be */
    WIDE_CHAIN = 8,       /* rows that a wide column reduction adds up one by one before they enter the counter */
    MOST_IN_PANEL = 1024, /* columns: two pages of a row, and partial results that stay in the cache */
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
    const qb_binding *binding = kernel->bindings + kernel->fixed_count;
    for (int i = kernel->fixed_count; i < kernel->bound_count; i++, binding++)
        registers[binding->target] = r->slots[binding->slot] + binding->offset + first * binding->size;
    const qb_load *load = kernel->loads + kernel->once_count;
    for (int i = 0; i < kernel->gather_count; i++, load++)
        qb_load_gather(load, r->slots[load->slot], registers[load->target], first, count);
    if (kernel->block && count == kernel->lanes) {
        kernel->block(registers);
        return;
    }
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

/* `rest` is what came after the pieces of the stack, combined already; NULL: nothing. */
static void finish(const qb_kernel_reduction *red, char *stack, int64_t stride, int64_t pieces, size_t width,
                   char *rest, char *out)
{
    char *sum = rest;
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

/* ---- Units of work, and running some: a block, or a piece of a reduction */

static int64_t quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Groups are reduced each by itself: some columns (all of inner, or a panel) of one outer position. */
static int64_t panels_of(const qb_kernel *kernel)
{
    return kernel->traversal == QB_TRAVERSE_WIDE ? quotient_up(kernel->inner, kernel->panel) : 1;
}

static int64_t column_of(const qb_kernel *kernel, int64_t group)
{
    return group % panels_of(kernel) * kernel->panel;
}

static int64_t width_of(const qb_kernel *kernel, int64_t group)
{
    return smaller(kernel->panel, kernel->inner - column_of(kernel, group));
}

/* Of each group that is reduced over in pieces. */
static int64_t pieces_of(const qb_kernel *kernel)
{
    int64_t rows = kernel->traversal == QB_TRAVERSE_COLUMNS ? kernel->lanes / kernel->inner
                   : kernel->traversal == QB_TRAVERSE_WIDE  ? WIDE_CHAIN
                                                            : QB_KERNEL_PIECE;
    return quotient_up(kernel->extent, rows);
}

static bool is_in_pieces(const qb_kernel *kernel)
{
    return kernel->traversal == QB_TRAVERSE_LONG || kernel->traversal == QB_TRAVERSE_COLUMNS ||
           kernel->traversal == QB_TRAVERSE_WIDE;
}

static int64_t units_of(const qb_kernel *kernel)
{
    return is_in_pieces(kernel) ? kernel->outer * panels_of(kernel) * pieces_of(kernel)
                                : quotient_up(kernel->count, kernel->lanes);
}

static void run_linear(const run *r, int64_t first, int64_t limit)
{
    for (; first < limit; first += r->kernel->lanes)
        compute_block(r, first, smaller(r->kernel->lanes, limit - first));
}

static void run_short(const run *r, int64_t first, int64_t limit)
{
    const qb_kernel *kernel = r->kernel;
    int64_t group = kernel->extent * kernel->inner;
    for (; first < limit; first += kernel->lanes) {
        int64_t count = smaller(kernel->lanes, limit - first);
        compute_block(r, first, count);
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            red->fold((size_t)(count / group), (size_t)kernel->extent, (size_t)kernel->inner,
                      result_at(r, red, first / kernel->extent), r->registers[red->source]);
        }
    }
}

void qb_reduce_rows(const qb_kernel_reduction *red, int64_t rows, int64_t extent, char *out, const char *source)
{
    int64_t size = (int64_t)qb_dtype_size(red->dtype);
    for (int64_t i = 0; i < rows; i++, source += extent * size, out += size)
        red->reduce->at_once((size_t)extent, out, source);
}

static void run_rows(const run *r, int64_t first, int64_t limit)
{
    const qb_kernel *kernel = r->kernel;
    for (; first < limit; first += kernel->lanes) {
        int64_t count = smaller(kernel->lanes, limit - first);
        compute_block(r, first, count);
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            qb_reduce_rows(red, count / kernel->extent, kernel->extent, result_at(r, red, first / kernel->extent),
                           r->registers[red->source]);
        }
    }
}

/* Bytes from one partial vector to the next. */
static int64_t vector_stride(int64_t lanes)
{
    return (lanes * 8 + VECTOR_ALIGNMENT - 1) / VECTOR_ALIGNMENT * VECTOR_ALIGNMENT;
}

/* Where the value of reduction i over some pieces goes. */
typedef struct target {
    const run *r;
    int64_t index;  /* of the result, or */
    char *partial;  /* the first reduction's place among partial results, where not NULL, */
    int64_t stride; /* the others' this far apart */
} target;

static char *target_of(const target *t, int i)
{
    return t->partial ? t->partial + i * t->stride : result_at(t->r, &t->r->kernel->reductions[i], t->index);
}

static void add_to_totals(const run *r, int64_t first, int64_t count, bool begins)
{
    compute_block(r, first, count);
    for (int i = 0; i < r->kernel->reduction_count; i++) {
        const qb_kernel_reduction *red = &r->kernel->reductions[i];
        red->reduce->add((size_t)count, r->registers[red->stack], r->registers[red->source], begins);
    }
}

/* Pieces first .. first+count-1 of group o. */
static void reduce_long(const run *r, int64_t o, int64_t first, int64_t count, const target *out)
{
    const qb_kernel *kernel = r->kernel;
    for (int64_t p = 0; p < count; p++) {
        int64_t begin = (first + p) * QB_KERNEL_PIECE, end = smaller(begin + QB_KERNEL_PIECE, kernel->extent);
        for (int64_t e = begin; e < end; e += kernel->lanes)
            add_to_totals(r, o * kernel->extent + e, smaller(kernel->lanes, end - e), e == begin);
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            _Alignas(8) char piece[8];
            char *totals = r->registers[red->stack];
            red->reduce->total(totals, piece);
            push(red, totals + QB_TOTALS_BYTES, 8, p, 1, piece);
        }
    }
    for (int i = 0; i < kernel->reduction_count; i++) {
        const qb_kernel_reduction *red = &kernel->reductions[i];
        finish(red, r->registers[red->stack] + QB_TOTALS_BYTES, 8, count, 1, NULL, target_of(out, i));
    }
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

static void reduce_columns(const run *r, int64_t o, int64_t first, int64_t count, const target *out)
{
    const qb_kernel *kernel = r->kernel;
    int64_t rows = kernel->lanes / kernel->inner, inner = kernel->inner, stride = vector_stride(kernel->lanes);
    for (int64_t p = 0; p < count; p++) {
        int64_t e = (first + p) * rows, here = smaller(rows, kernel->extent - e);
        compute_block(r, (o * kernel->extent + e) * inner, here * inner);
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            char *spare = r->registers[red->stack];
            char *piece = halve(red, r->registers[red->source], spare, here, inner);
            push(red, spare + stride, stride, p, (size_t)inner, piece);
        }
    }
    for (int i = 0; i < kernel->reduction_count; i++) {
        const qb_kernel_reduction *red = &kernel->reductions[i];
        finish(red, r->registers[red->stack] + stride, stride, count, (size_t)inner, NULL, target_of(out, i));
    }
}

/* Adds a block, `place` columns into a row that begins at lane `row`, to the chains of the panel, or begins them. */
static void add_block(const run *r, int64_t row, int64_t place, int64_t count, bool begins)
{
    const qb_kernel *kernel = r->kernel;
    compute_block(r, row + place, count);
    for (int i = 0; i < kernel->reduction_count; i++) {
        const qb_kernel_reduction *red = &kernel->reductions[i];
        size_t size = qb_dtype_size(red->dtype);
        char *chain = r->registers[red->stack] + place * (int64_t)size, *source = r->registers[red->source];
        if (begins)
            memcpy(chain, source, (size_t)count * size);
        else
            red->combine((size_t)count, chain, chain, source, chain);
    }
}

/* Rows in the order of memory; WIDE_CHAIN of them, added up one by one, are a piece. */
static void reduce_panel(const run *r, int64_t group, int64_t first, int64_t count, const target *out)
{
    const qb_kernel *kernel = r->kernel;
    int64_t o = group / panels_of(kernel), column = column_of(kernel, group), width = width_of(kernel, group);
    int64_t stride = vector_stride(kernel->panel);
    for (int64_t p = 0; p < count; p++) {
        int64_t row = (first + p) * WIDE_CHAIN, limit = smaller(row + WIDE_CHAIN, kernel->extent);
        for (int64_t e = row; e < limit; e++)
            for (int64_t c = 0; c < width; c += kernel->lanes)
                add_block(r, (o * kernel->extent + e) * kernel->inner + column, c, smaller(kernel->lanes, width - c),
                          e == row);
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            char *chain = r->registers[red->stack];
            push(red, chain + stride, stride, p, (size_t)width, chain);
        }
    }
    for (int i = 0; i < kernel->reduction_count; i++) {
        const qb_kernel_reduction *red = &kernel->reductions[i];
        finish(red, r->registers[red->stack] + stride, stride, count, (size_t)width, NULL, target_of(out, i));
    }
}

static void reduce_pieces(const run *r, int64_t group, int64_t first, int64_t count, const target *out)
{
    switch (r->kernel->traversal) {
    case QB_TRAVERSE_LONG: reduce_long(r, group, first, count, out); break;
    case QB_TRAVERSE_COLUMNS: reduce_columns(r, group, first, count, out); break;
    default: reduce_panel(r, group, first, count, out); break;
    }
}

static int64_t result_of_group(const qb_kernel *kernel, int64_t group)
{
    return group / panels_of(kernel) * kernel->inner + column_of(kernel, group);
}

/* Whole groups group .. limit-1. */
static void run_groups(const run *r, int64_t group, int64_t limit)
{
    for (; group < limit; group++)
        reduce_pieces(r, group, 0, pieces_of(r->kernel), &(target){.r = r, .index = result_of_group(r->kernel, group)});
}

/* ---- Choice */

void qb_kernel_choose_traversal(qb_kernel *kernel, bool only_reduces)
{
    int64_t lanes = only_reduces ? QB_KERNEL_PIECE : QB_KERNEL_LANES;
    int64_t extent = kernel->extent, inner = kernel->inner;
    kernel->stack_size = 0;
    kernel->panel = (int32_t)smaller(inner, MOST_IN_PANEL);
    if (kernel->reduction_count == 0 || kernel->count == 0) {
        kernel->traversal = QB_TRAVERSE_LINEAR;
    } else if (extent <= SHORT_EXTENT && extent * inner <= QB_KERNEL_LANES) {
        kernel->traversal = QB_TRAVERSE_SHORT;
        lanes -= lanes % (extent * inner);
    } else if (inner == 1 && extent <= lanes) {
        kernel->traversal = QB_TRAVERSE_ROWS;
        lanes -= lanes % extent;
    } else if (inner == 1) {
        kernel->traversal = QB_TRAVERSE_LONG;
        kernel->stack_size = QB_TOTALS_BYTES + 8 * levels((extent + QB_KERNEL_PIECE - 1) / QB_KERNEL_PIECE);
    } else if (inner <= QB_KERNEL_LANES / 2) {
        kernel->traversal = QB_TRAVERSE_COLUMNS;
        lanes = QB_KERNEL_LANES - QB_KERNEL_LANES % inner;
        int64_t rows = lanes / inner;
        kernel->stack_size = vector_stride(lanes) * (1 + levels((extent + rows - 1) / rows));
    } else {
        kernel->traversal = QB_TRAVERSE_WIDE;
        kernel->stack_size = vector_stride(kernel->panel) * (1 + levels((extent + WIDE_CHAIN - 1) / WIDE_CHAIN));
    }
    kernel->lanes = (int32_t)lanes;
    kernel->stack_size = (kernel->stack_size + VECTOR_ALIGNMENT - 1) / VECTOR_ALIGNMENT * VECTOR_ALIGNMENT;
}

/* Nanoseconds that a chunk should take at least: some times what it costs to hand it to another thread. */
enum { CHUNK_NANOSECONDS = 15000, WHOLE_GROUPS = 8 };

void qb_kernel_choose_chunks(qb_kernel *kernel, double lane_nanoseconds)
{
    int64_t groups = kernel->outer * panels_of(kernel);
    int64_t units = kernel->count > 0 ? units_of(kernel) : 0;
    kernel->chunk_count = 1;
    kernel->chunk_units = units;
    kernel->partial_stride = 0;
    if (units < 2 || lane_nanoseconds * (double)kernel->count < 2 * CHUNK_NANOSECONDS)
        return;
    double wanted = CHUNK_NANOSECONDS / lane_nanoseconds / ((double)kernel->count / (double)units);
    int64_t least = wanted < 1 ? 1 : wanted > (double)units ? units : (int64_t)wanted;
    if (!is_in_pieces(kernel)) {
        kernel->chunk_units = least;
        kernel->chunk_count = quotient_up(units, least);
    } else if (groups >= WHOLE_GROUPS) { /* units are groups */
        kernel->chunk_units = quotient_up(least, pieces_of(kernel));
        kernel->chunk_count = quotient_up(groups, kernel->chunk_units);
    } else { /* chunks of one group: their values wait to be combined */
        int64_t pieces = 1;
        while (pieces < least)
            pieces *= 2;
        kernel->chunk_units = pieces;
        kernel->chunk_count = groups * quotient_up(pieces_of(kernel), pieces);
        kernel->partial_stride = kernel->traversal == QB_TRAVERSE_LONG ? 8 : vector_stride(kernel->panel);
    }
}

int64_t qb_kernel_partial_size(const qb_kernel *kernel)
{
    return kernel->chunk_count > 1 ? kernel->reduction_count * kernel->chunk_count * kernel->partial_stride : 0;
}

/* ---- Entry */

static void run_chunk(const run *r, int64_t chunk, char *partials)
{
    const qb_kernel *kernel = r->kernel;
    int64_t first = chunk * kernel->chunk_units, limit = first + kernel->chunk_units;
    switch (kernel->traversal) {
    case QB_TRAVERSE_LINEAR: run_linear(r, first * kernel->lanes, smaller(limit * kernel->lanes, kernel->count)); break;
    case QB_TRAVERSE_SHORT: run_short(r, first * kernel->lanes, smaller(limit * kernel->lanes, kernel->count)); break;
    case QB_TRAVERSE_ROWS: run_rows(r, first * kernel->lanes, smaller(limit * kernel->lanes, kernel->count)); break;
    case QB_TRAVERSE_LONG:
    case QB_TRAVERSE_COLUMNS:
    case QB_TRAVERSE_WIDE:
        if (kernel->chunk_count > 1 && kernel->partial_stride > 0) {
            int64_t pieces = pieces_of(kernel), chunks = quotient_up(pieces, kernel->chunk_units);
            first = chunk % chunks * kernel->chunk_units;
            target out = {.r = r,
                          .partial = partials + chunk * kernel->partial_stride,
                          .stride = kernel->chunk_count * kernel->partial_stride};
            reduce_pieces(r, chunk / chunks, first, smaller(kernel->chunk_units, pieces - first), &out);
        } else {
            int64_t groups = kernel->outer * panels_of(kernel);
            run_groups(r, first, kernel->chunk_count > 1 ? smaller(limit, groups) : groups);
        }
        break;
    }
}

/* Bytes from one entry of a group's stack to the next. */
static int64_t stack_stride(const qb_kernel *kernel)
{
    return kernel->traversal == QB_TRAVERSE_LONG   ? 8
           : kernel->traversal == QB_TRAVERSE_WIDE ? vector_stride(kernel->panel)
                                                   : vector_stride(kernel->lanes);
}

/* The chunks' values into results: by the counter, as if there had been no chunks. */
static void combine_chunks(const run *r, char *partials)
{
    const qb_kernel *kernel = r->kernel;
    int64_t pieces = pieces_of(kernel), chunks = quotient_up(pieces, kernel->chunk_units);
    int64_t whole = pieces / kernel->chunk_units, stride = stack_stride(kernel);
    int64_t groups = kernel->outer * panels_of(kernel);
    for (int i = 0; i < kernel->reduction_count; i++) {
        const qb_kernel_reduction *red = &kernel->reductions[i];
        char *stack = r->registers[red->stack] + (kernel->traversal == QB_TRAVERSE_LONG ? QB_TOTALS_BYTES : stride);
        char *value = partials + i * kernel->chunk_count * kernel->partial_stride;
        for (int64_t group = 0; group < groups; group++) {
            size_t width = (size_t)width_of(kernel, group);
            for (int64_t c = 0; c < whole; c++, value += kernel->partial_stride)
                push(red, stack, stride, c, width, value);
            finish(red, stack, stride, whole, width, chunks > whole ? value : NULL,
                   result_at(r, red, result_of_group(kernel, group)));
            value += chunks > whole ? kernel->partial_stride : 0;
        }
    }
}

typedef struct job {
    const qb_kernel *kernel;
    char *const *slots;
    char **registers;
    int64_t register_stride;
    char *partials;
    bool filled[QB_MOST_THREADS];
} job;

static void run_job(void *data, int64_t chunk, int worker)
{
    job *j = data;
    run r = {j->kernel, j->slots, j->registers + worker * j->register_stride};
    if (!j->filled[worker])
        fill_once(&r);
    j->filled[worker] = true;
    run_chunk(&r, chunk, j->partials);
}

void qb_kernel_run(const qb_kernel *kernel, char *const *slots, char **registers, int64_t register_stride,
                   char *partials)
{
    if (kernel->whole) {
        kernel->whole(slots);
        return;
    }
    run r = {kernel, slots, registers};
    if (kernel->count == 0) {
        for (int i = 0; i < kernel->reduction_count; i++) {
            const qb_kernel_reduction *red = &kernel->reductions[i];
            qb_reduce_identity(red->reduction, red->dtype, kernel->outer * kernel->inner, slots[red->slot]);
        }
        return;
    }
    if (kernel->chunk_count > 1) {
        job j = {kernel, slots, registers, register_stride, partials, {false}};
        qb_parallel(kernel->chunk_count, run_job, &j);
        if (kernel->partial_stride > 0)
            combine_chunks(&r, partials);
        return;
    }
    fill_once(&r);
    if (kernel->traversal == QB_TRAVERSE_LINEAR && kernel->count <= kernel->lanes)
        compute_block(&r, 0, kernel->count); /* what most steps of a small program are */
    else
        run_chunk(&r, 0, NULL);
}

void qb_kernel_run_rows(const qb_kernel *kernel, char *const *slots, char **registers, int64_t rows, int64_t first,
                        int64_t limit)
{
    qb_kernel part = *kernel;
    run r = {&part, slots, registers};
    int64_t lanes = kernel->count / rows, groups = kernel->outer * panels_of(kernel) / rows;
    part.fixed_count = 0; /* blocks begin elsewhere */
    fill_once(&r);
    switch (kernel->traversal) {
    case QB_TRAVERSE_LINEAR: run_linear(&r, first * lanes, limit * lanes); break;
    case QB_TRAVERSE_SHORT: run_short(&r, first * lanes, limit * lanes); break;
    case QB_TRAVERSE_ROWS: run_rows(&r, first * lanes, limit * lanes); break;
    case QB_TRAVERSE_LONG:
    case QB_TRAVERSE_COLUMNS:
    case QB_TRAVERSE_WIDE: run_groups(&r, first * groups, limit * groups); break;
    }
}
