/* Loads that move memory: lanes gathered by strides into a register. The two innermost axes are done in one call of a
 * loop. */
#include "cpu/cpu.h"
#include "cpu/loops.h"
#include "graph/graph.h"

/* The position of a gather: digits of the next lane, and its address. */
typedef struct cursor {
    const qb_load *load;
    const char *source;
    int64_t size;
    int64_t index[QB_MAX_RANK];
} cursor;

static void start(cursor *c, const qb_load *load, const char *memory, int64_t first)
{
    c->load = load;
    c->size = (int64_t)qb_dtype_size(load->dtype);
    int64_t offset = load->offset;
    for (int i = load->rank - 1; i >= 0; i--) {
        c->index[i] = first == 0 ? 0 : first % load->extent[i];
        first = first == 0 ? 0 : first / load->extent[i];
        offset += c->index[i] * load->stride[i];
    }
    c->source = memory + offset * c->size;
}

/* Moves the digit of `axis` by `steps`, which reach at most its end; carries. */
static void advance(cursor *c, int axis, int64_t steps)
{
    const qb_load *load = c->load;
    c->index[axis] += steps;
    c->source += steps * load->stride[axis] * c->size;
    for (int i = axis; i > 0; i--) {
        if (c->index[i] < load->extent[i])
            break;
        c->index[i] = 0;
        c->index[i - 1]++;
        c->source += (load->stride[i - 1] - load->extent[i] * load->stride[i]) * c->size;
    }
}

void qb_load_gather(const qb_load *load, const void *memory, void *target, int64_t first, int64_t count)
{
    cursor c;
    qb_copy_loop copy = qb_copy_loop_of(qb_dtype_size(load->dtype));
    start(&c, load, memory, first);
    char *out = target;
    int last = load->rank - 1;
    int64_t extent = load->extent[last], stride = load->stride[last];
    while (count > 0) {
        if (last > 0 && c.index[last] == 0 && count >= extent) {
            int64_t rows = count / extent, left = load->extent[last - 1] - c.index[last - 1];
            rows = rows < left ? rows : left;
            copy(rows, extent, load->stride[last - 1], stride, c.source, out, load->past_caches);
            advance(&c, last - 1, rows);
            count -= rows * extent;
            out += rows * extent * c.size;
        } else {
            int64_t run = extent - c.index[last];
            run = run < count ? run : count;
            copy(1, run, 0, stride, c.source, out, false);
            advance(&c, last, run);
            count -= run;
            out += run * c.size;
        }
    }
}

void qb_load_spread(size_t size, const void *element, void *target, int64_t count)
{
    qb_copy_loop_of(size)(1, count, 0, 0, element, target, false);
}

int64_t qb_load_period(const qb_load *load)
{
    int64_t period = 1;
    int axis = 0;
    while (axis < load->rank && load->stride[axis] == 0)
        axis++;
    for (; axis < load->rank; axis++)
        period *= load->extent[axis];
    return period;
}

static void copy_1(size_t n, void *result, const void *a, const void *b, const void *c)
{
    (void)b, (void)c;
    memmove(result, a, n);
}

static void copy_4(size_t n, void *result, const void *a, const void *b, const void *c)
{
    (void)b, (void)c;
    memmove(result, a, n * 4);
}

static void copy_8(size_t n, void *result, const void *a, const void *b, const void *c)
{
    (void)b, (void)c;
    memmove(result, a, n * 8);
}

qb_lane_kernel qb_copy_lookup(size_t size)
{
    return size == 8 ? copy_8 : size == 4 ? copy_4 : copy_1;
}
