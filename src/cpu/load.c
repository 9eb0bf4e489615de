/* Loads that move memory: lanes gathered by strides into a register.
 *
 * Elements are moved as bits, so there is one routine per element size. The two innermost axes are done in one loop nest; the
 * inner one is a memcpy, a fill, or a loop whose trip count is a constant where it is tiny. */
#include "cpu/cpu.h"
#include "graph/graph.h"

/* Rows of `extent` lanes: source rows lie row_stride apart, lanes of a row `stride` apart. SMALL(n) unrolls rows of n lanes. */
#define SMALL(T, n)                                                                                                    \
    case n:                                                                                                            \
        for (int64_t r = 0; r < rows; r++, source += row_stride, target += n)                                          \
            for (int i = 0; i < n; i++)                                                                                \
                target[i] = source[i * stride];                                                                        \
        return;

#define DEFINE_ROWS(T)                                                                                                 \
    static void repeat_##T(int64_t rows, int64_t extent, int64_t row_stride, const T *source, T *target)               \
    {                                                                                                                  \
        for (int64_t r = 0; r < rows; r++, source += row_stride)                                                       \
            for (int64_t i = 0; i < extent; i++)                                                                       \
                *target++ = *source;                                                                                   \
    }                                                                                                                  \
                                                                                                                       \
    static void rows_##T(int64_t rows, int64_t extent, int64_t row_stride, int64_t stride, const T *source, T *target) \
    {                                                                                                                  \
        switch (extent) {                                                                                              \
            SMALL(T, 1)                                                                                                \
            SMALL(T, 2)                                                                                                \
            SMALL(T, 3)                                                                                                \
            SMALL(T, 4)                                                                                                \
        default: break;                                                                                                \
        }                                                                                                              \
        if (stride == 0) {                                                                                             \
            repeat_##T(rows, extent, row_stride, source, target);                                                      \
        } else if (stride == 1) {                                                                                      \
            for (int64_t r = 0; r < rows; r++, source += row_stride, target += extent)                                 \
                memcpy(target, source, (size_t)extent * sizeof *target);                                               \
        } else {                                                                                                       \
            for (int64_t r = 0; r < rows; r++, source += row_stride, target += extent)                                 \
                for (int64_t i = 0; i < extent; i++)                                                                   \
                    target[i] = source[i * stride];                                                                    \
        }                                                                                                              \
    }

DEFINE_ROWS(uint8_t)
DEFINE_ROWS(uint32_t)
DEFINE_ROWS(uint64_t)

static void copy_rows(size_t size, int64_t rows, int64_t extent, int64_t row_stride, int64_t stride, const char *source,
                      char *target)
{
    if (size == 8)
        rows_uint64_t(rows, extent, row_stride, stride, (const uint64_t *)(const void *)source, (uint64_t *)(void *)target);
    else if (size == 4)
        rows_uint32_t(rows, extent, row_stride, stride, (const uint32_t *)(const void *)source, (uint32_t *)(void *)target);
    else
        rows_uint8_t(rows, extent, row_stride, stride, (const uint8_t *)source, (uint8_t *)target);
}

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
    for (; axis > 0 && c->index[axis] == load->extent[axis]; axis--) {
        c->index[axis] = 0;
        c->index[axis - 1]++;
        c->source += (load->stride[axis - 1] - load->extent[axis] * load->stride[axis]) * c->size;
    }
}

void qb_load_gather(const qb_load *load, const void *memory, void *target, int64_t first, int64_t count)
{
    cursor c;
    start(&c, load, memory, first);
    char *out = target;
    int last = load->rank - 1;
    int64_t extent = load->extent[last], stride = load->stride[last];
    while (count > 0) {
        if (last > 0 && c.index[last] == 0 && count >= extent) {
            int64_t rows = count / extent, left = load->extent[last - 1] - c.index[last - 1];
            rows = rows < left ? rows : left;
            copy_rows((size_t)c.size, rows, extent, load->stride[last - 1], stride, c.source, out);
            advance(&c, last - 1, rows);
            count -= rows * extent;
            out += rows * extent * c.size;
        } else {
            int64_t run = extent - c.index[last];
            run = run < count ? run : count;
            copy_rows((size_t)c.size, 1, run, 0, stride, c.source, out);
            advance(&c, last, run);
            count -= run;
            out += run * c.size;
        }
    }
}

void qb_load_spread(size_t size, const void *element, void *target, int64_t count)
{
    copy_rows(size, 1, count, 0, 0, element, target);
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
