/* Bands: kernels that follow one another and do the same for every row (a softmax: the largest element, the
 * exponentials and their sum, the quotients) run row by row, some rows at a time, so that what one of them leaves is
 * still in the cache when the next reads it. Bands are also the chunks for threads, without a barrier between kernels.
 *
 * A row is a contiguous part of each array: the r-th of `rows` equal parts. Kernels may join where what one reads of
 * another's results lies in the same row, and where no row's memory is another's by then. Each row is computed as it
 * would be alone, so results do not depend on bands. */
#include "base/allocate.h"
#include "program/plan.h"

enum {
    LEAST_LANES = 1 << 16, /* of all kernels together: less stays in the cache anyway */
    BAND_BYTES = 192 * 1024,
    FEWEST_BANDS = 8
};

/* Memory that the kernels of a band touch. */
typedef struct part {
    qb_slot_kind kind;
    int64_t begin, end; /* bytes in the arena; of an output, its index and the next */
    int64_t bytes;      /* of the array */
    bool written;
    bool in_rows; /* read or written row by row only */
} part;

typedef struct banding {
    qb_plan *plan;
    int64_t rows;
    part *parts;
    int32_t part_count;
    int64_t multiple; /* rows of a band are a multiple of it */
    double lanes;
    int large; /* kernels with more than an element in a row */
} banding;

static part part_of(const banding *b, int32_t slot)
{
    const qb_slot *s = &b->plan->slots[slot];
    part p = {.kind = s->kind, .bytes = s->count * (int64_t)qb_dtype_size(s->dtype)};
    p.begin = s->kind == QB_SLOT_ARENA ? s->offset : s->kind == QB_SLOT_CONSTANT ? slot : s->index;
    p.end = s->kind == QB_SLOT_ARENA ? p.begin + p.bytes : p.begin + 1;
    return p;
}

static bool overlap(const part *a, const part *b)
{
    return a->kind == b->kind && a->begin < b->end && b->begin < a->end;
}

/* Whether lanes of a row of the kernel read elements of the same row of the slot only. */
static bool stays_in_rows(const banding *b, const qb_kernel *kernel, const qb_load *load)
{
    int64_t count = b->plan->slots[load->slot].count, rows = b->rows;
    if (count % rows != 0)
        return false;
    if (load->kind == QB_LOAD_DIRECT)
        return load->offset == 0 && count == kernel->count;
    if (load->kind != QB_LOAD_STRIDED || load->extent[0] % rows != 0)
        return false;
    int64_t in_row = load->extent[0] / rows, farthest = load->offset + (in_row - 1) * load->stride[0];
    bool forward = load->offset >= 0 && load->stride[0] >= 0;
    for (int i = 1; i < load->rank; i++) {
        farthest += (load->extent[i] - 1) * load->stride[i];
        forward = forward && load->stride[i] >= 0;
    }
    return forward && in_row * load->stride[0] == count / rows && farthest < count / rows;
}

/* Adds memory that is read or written; false where that would come between rows. */
static bool touch(banding *b, int32_t slot, bool written, bool in_rows)
{
    part p = part_of(b, slot);
    p.written = written;
    p.in_rows = in_rows;
    bool known = false;
    for (int32_t i = 0; i < b->part_count; i++) {
        part *other = &b->parts[i];
        if (!overlap(&p, other))
            continue;
        if (p.written || other->written) {
            bool same = p.begin == other->begin && p.bytes == other->bytes;
            if (!same || !p.in_rows || !other->in_rows)
                return false;
        }
        if (p.begin == other->begin && p.bytes == other->bytes) {
            other->written = other->written || p.written;
            other->in_rows = other->in_rows && p.in_rows;
            known = true;
        }
    }
    if (!known)
        b->parts[b->part_count++] = p;
    return true;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool join(banding *b, const qb_kernel *kernel)
{
    if (kernel->count == 0 || kernel->count % b->rows != 0 ||
        (kernel->reduction_count > 0 && kernel->outer % b->rows != 0))
        return false;
    int64_t in_row = kernel->count / b->rows;
    for (int32_t i = 0; i < kernel->load_count; i++) {
        const qb_load *load = &kernel->loads[i];
        if (load->kind == QB_LOAD_CONSTANT)
            continue;
        if (!touch(b, load->slot, false, stays_in_rows(b, kernel, load)))
            return false;
        if (load->kind == QB_LOAD_STRIDED && load->periodic) { /* filled once: blocks begin where it does */
            int64_t period = qb_load_period(load), step = period / common_divisor(period, in_row);
            b->multiple *= step / common_divisor(step, b->multiple);
        }
    }
    for (int32_t i = 0; i < kernel->store_count; i++)
        if (!touch(b, kernel->stores[i].slot, true, b->plan->slots[kernel->stores[i].slot].count == kernel->count))
            return false;
    for (int32_t i = 0; i < kernel->reduction_count; i++)
        if (!touch(b, kernel->reductions[i].slot, true, true))
            return false;
    b->lanes += (double)kernel->count;
    b->large += in_row > 1;
    return true;
}

/* How many rows a band has; 0: bands are not worth while. */
static int64_t rows_of_band(const banding *b)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < b->part_count; i++)
        bytes += b->parts[i].in_rows ? b->parts[i].bytes / b->rows : 0;
    int64_t rows = BAND_BYTES / (bytes > 0 ? bytes : 1) / b->multiple * b->multiple;
    if (rows == 0 && bytes * b->multiple <= 2 * BAND_BYTES)
        rows = b->multiple;
    return rows > 0 && (b->rows - 1) / rows + 1 >= FEWEST_BANDS ? rows : 0;
}

/* Tries the steps from `first` on, cut into the rows of the first reduction; how many steps join. */
static int32_t find_band(banding *b, int32_t first)
{
    const qb_plan *plan = b->plan;
    b->rows = 0;
    for (int32_t i = first; b->rows == 0 && i < plan->unit_count && plan->steps[i].kind == QB_STEP_KERNEL; i++)
        b->rows = plan->steps[i].kernel->reduction_count > 0 ? plan->steps[i].kernel->outer : 0;
    if (b->rows < FEWEST_BANDS)
        return 0;
    b->part_count = 0;
    b->multiple = 1;
    b->lanes = 0;
    b->large = 0;
    int32_t count = 0;
    while (first + count < plan->unit_count && plan->steps[first + count].kind == QB_STEP_KERNEL) {
        banding before = *b;
        if (!join(b, plan->steps[first + count].kernel)) {
            *b = before; /* parts may say more than before, which is on the safe side */
            break;
        }
        count++;
    }
    return b->large >= 2 && b->lanes >= LEAST_LANES ? count : 0;
}

static int32_t most_parts(const qb_plan *plan)
{
    int32_t count = 0;
    for (int32_t i = 0; i < plan->unit_count; i++)
        if (plan->steps[i].kind == QB_STEP_KERNEL)
            count += plan->steps[i].kernel->load_count + plan->steps[i].kernel->store_count +
                     plan->steps[i].kernel->reduction_count;
    return count;
}

qb_status qb_plan_band(qb_plan *plan)
{
    banding b = {.plan = plan};
    if (plan->unit_count < 2)
        return QB_OK;
    b.parts = qb_plan_scratch(plan, (size_t)most_parts(plan), sizeof *b.parts);
    if (!b.parts)
        return qb_fail_memory();
    for (int32_t i = 0, count; i<plan->unit_count; i += count> 0 ? count : 1) {
        count = find_band(&b, i);
        int64_t rows = count > 1 ? rows_of_band(&b) : 0;
        if (rows == 0) {
            count = 0;
            continue;
        }
        qb_band *band = qb_arena_allocate(plan->memory, sizeof *band);
        if (!band)
            return qb_fail_memory();
        *band = (qb_band){.steps = count, .rows = b.rows, .chunk_rows = rows, .chunks = (b.rows - 1) / rows + 1};
        plan->steps[i].band = band;
        plan->is_parallel = true;
    }
    return QB_OK;
}
