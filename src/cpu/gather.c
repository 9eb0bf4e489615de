/* Reading and writing elements by arrays of indices, and writing a regular part of an array.
 *
 * An entry addresses a set of runs of neighbouring elements: all axes behind the last indexed one are one run, and the
 * axes between indexed ones, if any, are walked. On the side of the result (gather) or the updates (scatter), runs
 * follow one another in memory. */
#include "cpu/gather.h"

#include "base/threads.h"
#include "cpu/lanes.h"

typedef struct layout {
    int count; /* index arrays */
    const int64_t *index[QB_MAX_RANK];
    int64_t extent[QB_MAX_RANK], stride[QB_MAX_RANK]; /* of the indexed axes; strides in elements, here and below */
    bool clamp;
    int64_t batch, outer, entries; /* how many there are */
    int64_t block;                 /* elements of the array from one outer position to the next */
    int64_t run;                   /* elements */
    int walked;                    /* axes between indexed ones */
    int64_t walked_extent[QB_MAX_RANK], walked_stride[QB_MAX_RANK];
    int64_t chunk; /* elements that an entry addresses in all */
    size_t size;   /* of an element */
} layout;

static int64_t product(int count, const int64_t *extents)
{
    int64_t size = 1;
    for (int i = 0; i < count; i++)
        size *= extents[i];
    return size;
}

static void lay_out(layout *l, const qb_attribute *attribute, const qb_type *array, int count, const qb_type *index,
                    const void *const *indices)
{
    const int64_t *axes = attribute[0].integers;
    int batch = (int)attribute[1].integer;
    l->count = count;
    l->clamp = attribute[2].integer == QB_BOUNDS_CLAMP;
    l->batch = product(batch, array->shape);
    l->outer = product((int)axes[0] - batch, array->shape + batch);
    l->entries = product(index->rank - batch, index->shape + batch);
    l->size = qb_dtype_size(array->dtype);
    l->walked = 0;
    int64_t stride = 1;
    for (int axis = array->rank - 1, next = count - 1; axis >= axes[0]; axis--) {
        if (next == count - 1 && axis == axes[next])
            l->run = stride;
        if (next >= 0 && axis == axes[next]) {
            l->index[next] = indices[next];
            l->extent[next] = array->shape[axis];
            l->stride[next--] = stride;
        } else if (next < count - 1) { /* the innermost first */
            l->walked_extent[l->walked] = array->shape[axis];
            l->walked_stride[l->walked++] = stride;
        }
        stride *= array->shape[axis];
    }
    l->block = stride;
    l->chunk = l->run * product(l->walked, l->walked_extent);
}

/* Where along an axis the index points; -1: nowhere. */
static inline int64_t position(int64_t index, int64_t extent, bool clamp)
{
    int64_t i = index < 0 ? index + extent : index;
    if ((uint64_t)i < (uint64_t)extent)
        return i;
    return !clamp || extent == 0 ? -1 : i < 0 ? 0 : extent - 1;
}

/* The first element that an entry addresses, from the beginning of its block; -1: none. */
static inline int64_t place(const layout *l, int64_t entry)
{
    int64_t offset = 0;
    for (int k = 0; k < l->count; k++) {
        int64_t i = position(l->index[k][entry], l->extent[k], l->clamp);
        if (i < 0)
            return -1;
        offset += i * l->stride[k];
    }
    return offset;
}

/* Entries are taken in groups: first their places, then the elements, so that a processor that looks ahead has many
 * elements on their way from memory at once. */
enum { GROUP = 128 };

static inline int find_places(const layout *l, int64_t first, int64_t limit, int64_t *places)
{
    int count = limit - first < GROUP ? (int)(limit - first) : GROUP;
    if (l->count == 1)
        for (int e = 0; e < count; e++) {
            int64_t i = position(l->index[0][first + e], l->extent[0], l->clamp);
            places[e] = i < 0 ? -1 : i * l->stride[0];
        }
    else
        for (int e = 0; e < count; e++)
            places[e] = place(l, first + e);
    return count;
}

/* ---- Reading */

static char *read_walked(const layout *l, int axis, const char *source, char *target)
{
    if (axis < 0) {
        memcpy(target, source, (size_t)l->run * l->size);
        return target + (size_t)l->run * l->size;
    }
    for (int64_t i = 0; i < l->walked_extent[axis]; i++)
        target = read_walked(l, axis - 1, source + (size_t)(i * l->walked_stride[axis]) * l->size, target);
    return target;
}

/* Runs of `row` bytes. Compiled for the common sizes, so that copying one is a move. */
static inline __attribute__((always_inline)) void read_rows(int count, const int64_t *places, const char *source,
                                                            char *target, size_t size, size_t row)
{
    for (int e = 0; e < count; e++, target += row)
        if (places[e] >= 0)
            memcpy(target, source + (size_t)places[e] * size, row);
        else
            memset(target, 0, row);
}

/* Entries first .. limit-1, all at one outer position. */
static void read_entries(const layout *l, int64_t first, int64_t limit, const char *source, char *target)
{
    int64_t places[GROUP];
    size_t row = (size_t)l->chunk * l->size;
    for (int count; first < limit; first += count, target += (size_t)count * row) {
        count = find_places(l, first, limit, places);
        if (l->walked > 0)
            for (int e = 0; e < count; e++)
                if (places[e] >= 0)
                    (void)read_walked(l, l->walked - 1, source + (size_t)places[e] * l->size, target + (size_t)e * row);
                else
                    memset(target + (size_t)e * row, 0, row);
        else if (row == 8 && l->size == 8)
            read_rows(count, places, source, target, 8, 8);
        else if (row == 4 && l->size == 4)
            read_rows(count, places, source, target, 4, 4);
        else
            read_rows(count, places, source, target, l->size, row);
    }
}

/* Reads are numbered as their results follow one another: (b, o, entry). Chunks of them are work for threads. */
typedef struct reading {
    layout l;
    const char *source;
    char *target;
    int64_t count, per_chunk;
} reading;

static void read_chunk(void *data, int64_t chunk, int worker)
{
    const reading *r = data;
    const layout *l = &r->l;
    int64_t first = chunk * r->per_chunk;
    int64_t limit = r->count - first < r->per_chunk ? r->count : first + r->per_chunk;
    (void)worker;
    while (first < limit) {
        int64_t position = first / l->entries, entry = first % l->entries;
        int64_t count = limit - first < l->entries - entry ? limit - first : l->entries - entry;
        int64_t from = position / l->outer * l->entries + entry;
        read_entries(l, from, from + count, r->source + (size_t)(position * l->block) * l->size,
                     r->target + (size_t)(first * l->chunk) * l->size);
        first += count;
    }
}

/* Bytes that a chunk moves, an entry's own cost counted as some: enough to be worth a thread's while. */
enum { CHUNK_BYTES = 1 << 18, ENTRY_BYTES = 24 };

QB_GATHER_KERNEL(qb_gather_run)
{
    reading r = {.source = operand[0], .target = result[0]};
    layout *l = &r.l;
    lay_out(l, attribute, &operand_type[0], operand_count - 1, &operand_type[1], operand + 1);
    if (product(result_type->rank, result_type->shape) == 0)
        return;
    int64_t bytes = l->chunk * (int64_t)l->size + ENTRY_BYTES;
    r.count = l->batch * l->outer * l->entries;
    r.per_chunk = bytes < CHUNK_BYTES ? CHUNK_BYTES / bytes : 1;
    qb_parallel((r.count + r.per_chunk - 1) / r.per_chunk, read_chunk, &r);
}

/* ---- Writing */

static const char *write_walked(const layout *l, qb_lane_kernel combine, int axis, const char *source, char *target)
{
    if (axis < 0) {
        if (combine)
            combine((size_t)l->run, target, target, source, NULL);
        else
            memcpy(target, source, (size_t)l->run * l->size);
        return source + (size_t)l->run * l->size;
    }
    for (int64_t i = 0; i < l->walked_extent[axis]; i++)
        source = write_walked(l, combine, axis - 1, source, target + (size_t)(i * l->walked_stride[axis]) * l->size);
    return source;
}

static inline __attribute__((always_inline)) void set_rows(int count, const int64_t *places, const char *source,
                                                           char *target, size_t size, size_t row)
{
    for (int e = 0; e < count; e++, source += row)
        if (places[e] >= 0)
            memcpy(target + (size_t)places[e] * size, source, row);
}

/* Sums of single floating elements, the common case of a gradient, without a call for each. */
#define ADD_ELEMENTS(type)                                                                                             \
    {                                                                                                                  \
        for (int e = 0; e < count; e++)                                                                                \
            if (places[e] >= 0)                                                                                        \
                ((type *)(void *)target)[places[e]] += ((const type *)(const void *)source)[e];                        \
    }

/* How the elements are combined: by a lane kernel, or (NULL) replaced. */
typedef struct combination {
    qb_lane lane;
    qb_dtype dtype;
    qb_lane_kernel kernel;
} combination;

static void write_group(const layout *l, const combination *how, int count, const int64_t *places, const char *source,
                        char *target)
{
    size_t row = (size_t)l->chunk * l->size;
    if (l->walked == 0 && !how->kernel && row == 8 && l->size == 8)
        set_rows(count, places, source, target, 8, 8);
    else if (l->walked == 0 && !how->kernel && row == 4 && l->size == 4)
        set_rows(count, places, source, target, 4, 4);
    else if (l->walked == 0 && !how->kernel)
        set_rows(count, places, source, target, l->size, row);
    else if (l->chunk == 1 && how->lane == QB_LANE_add && how->dtype == QB_FLOAT64)
        ADD_ELEMENTS(double)
    else if (l->chunk == 1 && how->lane == QB_LANE_add && how->dtype == QB_FLOAT32)
        ADD_ELEMENTS(float)
    else
        for (int e = 0; e < count; e++)
            if (places[e] >= 0)
                (void)write_walked(l, how->kernel, l->walked - 1, source + (size_t)e * row,
                                   target + (size_t)places[e] * l->size);
}

static void scatter(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                    const void *const *operand, void *result, qb_lane lane)
{
    layout l;
    const qb_type *array = &operand_type[0];
    combination how = {lane, array->dtype, NULL};
    if (lane != QB_LANE_NONE)
        how.kernel = qb_lane_lookup(lane, array->dtype, array->dtype);
    lay_out(&l, attribute, array, operand_count - 2, &operand_type[2], operand + 2);
    size_t bytes = (size_t)product(array->rank, array->shape) * l.size;
    if (bytes > 0 && result != operand[0])
        qb_parallel_copy(result, operand[0], bytes);
    if (product(operand_type[1].rank, operand_type[1].shape) == 0)
        return;
    const char *source = operand[1];
    char *target = result;
    for (int64_t b = 0; b < l.batch; b++)
        for (int64_t o = 0; o < l.outer; o++, target += (size_t)l.block * l.size) {
            int64_t places[GROUP], first = b * l.entries, limit = first + l.entries;
            for (int count; first < limit; first += count, source += (size_t)(count * l.chunk) * l.size) {
                count = find_places(&l, first, limit, places);
                write_group(&l, &how, count, places, source, target);
            }
        }
}

#define SCATTER_KERNEL(kind, lane)                                                                                     \
    QB_GATHER_KERNEL(qb_scatter_##kind##_run)                                                                          \
    {                                                                                                                  \
        (void)result_type;                                                                                             \
        scatter(attribute, operand_count, operand_type, operand, result[0], lane);                                     \
    }

SCATTER_KERNEL(set, QB_LANE_NONE)
SCATTER_KERNEL(add, QB_LANE_add)
SCATTER_KERNEL(mul, QB_LANE_mul)
SCATTER_KERNEL(max, QB_LANE_max)
SCATTER_KERNEL(min, QB_LANE_min)

/* ---- Who writes what */

QB_GATHER_KERNEL(qb_writers_run)
{
    layout l = {.count = operand_count, .clamp = attribute[2].integer == QB_BOUNDS_CLAMP};
    int batch = (int)attribute[1].integer;
    int64_t stride = 1, batches = product(batch, result_type->shape);
    l.entries = product(operand_type->rank - batch, operand_type->shape + batch);
    for (int k = operand_count - 1; k >= 0; k--) {
        l.index[k] = operand[k];
        l.extent[k] = attribute[0].integers[k];
        l.stride[k] = stride;
        stride *= l.extent[k];
    }
    int64_t *previous = result[0];
    for (int64_t b = 0; b < batches; b++, previous += stride) {
        int64_t *last = previous + l.entries;
        for (int64_t i = 0; i < stride; i++)
            last[i] = l.entries;
        for (int64_t e = 0; e < l.entries; e++) {
            int64_t to = place(&l, b * l.entries + e);
            *previous++ = to < 0 ? l.entries : last[to];
            if (to >= 0)
                last[to] = e;
        }
    }
}

/* ---- Inserting */

static const char *insert_axis(const qb_attribute *attribute, const qb_type *array, const qb_type *part, int axis,
                               const char *source, char *target)
{
    size_t size = qb_dtype_size(array->dtype);
    if (axis == part->rank) {
        memcpy(target, source, size);
        return source + size;
    }
    size_t inner = (size_t)product(array->rank - axis - 1, array->shape + axis + 1) * size;
    size_t step = (size_t)attribute[1].integers[axis] * inner;
    int64_t count = part->shape[axis];
    target += (size_t)attribute[0].integers[axis] * inner;
    bool whole_below = attribute[1].integers[axis] == 1;
    for (int i = axis + 1; i < part->rank; i++)
        whole_below = whole_below && part->shape[i] == array->shape[i];
    if (whole_below) {
        memcpy(target, source, (size_t)count * inner);
        return source + (size_t)count * inner;
    }
    if (axis == part->rank - 1 && size == 8) { /* a column, or every other element */
        for (int64_t i = 0; i < count; i++, source += 8, target += step)
            memcpy(target, source, 8);
        return source;
    }
    for (int64_t i = 0; i < count; i++, target += step)
        source = insert_axis(attribute, array, part, axis + 1, source, target);
    return source;
}

QB_GATHER_KERNEL(qb_insert_run)
{
    (void)operand_count;
    size_t bytes = (size_t)product(result_type->rank, result_type->shape) * qb_dtype_size(result_type->dtype);
    if (bytes > 0 && result[0] != operand[0])
        qb_parallel_copy(result[0], operand[0], bytes);
    if (product(operand_type[1].rank, operand_type[1].shape) > 0)
        (void)insert_axis(attribute, &operand_type[0], &operand_type[1], 0, operand[1], result[0]);
}
