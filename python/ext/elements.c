/* Copying and converting elements between foreign layouts and tensors.
 *
 * A copy is brought to the fewest axes (neighbouring axes that are one run of memory merge, so anything contiguous is
 * a single row), then done row by row; where the source is transposed, in tiles, so that each cache line of either
 * side is used up while it is there. */
#include "elements.h"

#include "base/dtype.h"
#include "base/threads.h"

#include <stdlib.h>
#include <string.h>

/* X(element, C type, kind) */
#define ELEMENTS(X)                                                                                                    \
    X(FLOAT64, double, 'f')                                                                                            \
    X(FLOAT32, float, 'f')                                                                                             \
    X(BOOL, uint8_t, 'b')                                                                                              \
    X(INT8, int8_t, 'i')                                                                                               \
    X(INT16, int16_t, 'i')                                                                                             \
    X(INT32, int32_t, 'i')                                                                                             \
    X(INT64, int64_t, 'i')                                                                                             \
    X(UINT8, uint8_t, 'u')                                                                                             \
    X(UINT16, uint16_t, 'u')                                                                                           \
    X(UINT32, uint32_t, 'u')                                                                                           \
    X(UINT64, uint64_t, 'u')

static const struct {
    size_t size;
    char kind;
} elements[] = {
#define X(element, type, kind) [QBPY_ELEMENT_##element] = {sizeof(type), kind},
    ELEMENTS(X)
#undef X
};

qbpy_element qbpy_element_find(char kind, size_t size)
{
    int i = 0;
    while (i < QBPY_ELEMENT_COUNT && !(elements[i].kind == kind && elements[i].size == size))
        i++;
    return (qbpy_element)i;
}

qbpy_element qbpy_element_of_dtype(qb_dtype dtype)
{
    return qbpy_element_find(qb_dtype_kind(dtype), qb_dtype_size(dtype));
}

qb_dtype qbpy_element_dtype(qbpy_element element)
{
    for (int i = 0; i < QB_DTYPE_COUNT; i++)
        if (qbpy_element_of_dtype((qb_dtype)i) == element)
            return (qb_dtype)i;
    return elements[element].kind == 'i' ? QB_INT32 : QB_UINT32;
}

/* ------------------------------------------------------------------------------------------------------------- rows */

typedef struct row {
    char *to;
    const char *from;
    int64_t to_step, from_step; /* bytes */
    int64_t count;
} row;

/* Element by element through memcpy, which compiles to a plain (unaligned) load. */
#define CONVERT(S, D, expression)                                                                                      \
    do {                                                                                                               \
        for (int64_t i = 0; i < r.count; i++) {                                                                        \
            S x;                                                                                                       \
            memcpy(&x, r.from + i * r.from_step, sizeof x);                                                            \
            *(D *)(void *)(r.to + i * r.to_step) = (expression);                                                       \
        }                                                                                                              \
    } while (0)

#define CONVERTER_FROM_INTEGER(name, S)                                                                                \
    static void convert_##name(row r, qb_dtype dtype)                                                                  \
    {                                                                                                                  \
        switch (dtype) {                                                                                               \
        case QB_FLOAT64: CONVERT(S, double, (double)x); break;                                                         \
        case QB_FLOAT32: CONVERT(S, float, (float)x); break;                                                           \
        case QB_BOOL: CONVERT(S, uint8_t, x != 0); break;                                                              \
        case QB_INT32: CONVERT(S, int32_t, (int32_t)x); break;                                                         \
        case QB_INT64: CONVERT(S, int64_t, (int64_t)x); break;                                                         \
        case QB_UINT32: CONVERT(S, uint32_t, (uint32_t)x); break;                                                      \
        case QB_UINT64: CONVERT(S, uint64_t, (uint64_t)x); break;                                                      \
        case QB_DTYPE_COUNT: break;                                                                                    \
        }                                                                                                              \
    }

#define CONVERTER_FROM_FLOAT(name, S)                                                                                  \
    static void convert_##name(row r, qb_dtype dtype)                                                                  \
    {                                                                                                                  \
        if (dtype == QB_FLOAT64)                                                                                       \
            CONVERT(S, double, (double)x);                                                                             \
        else if (dtype == QB_FLOAT32)                                                                                  \
            CONVERT(S, float, (float)x);                                                                               \
        else if (dtype == QB_BOOL)                                                                                     \
            CONVERT(S, uint8_t, x != 0);                                                                               \
        else                                                                                                           \
            convert_saturating(r, QBPY_ELEMENT_##name, dtype);                                                         \
    }

/* Floats to integers. */
static void convert_saturating(row r, qbpy_element element, qb_dtype dtype)
{
    for (int64_t i = 0; i < r.count; i++) {
        double x;
        float single;
        if (element == QBPY_ELEMENT_FLOAT64) {
            memcpy(&x, r.from + i * r.from_step, sizeof x);
        } else {
            memcpy(&single, r.from + i * r.from_step, sizeof single);
            x = (double)single;
        }
        qb_dtype_store(dtype, x, r.to + i * r.to_step);
    }
}

CONVERTER_FROM_FLOAT(FLOAT64, double)
CONVERTER_FROM_FLOAT(FLOAT32, float)
CONVERTER_FROM_INTEGER(INT8, int8_t)
CONVERTER_FROM_INTEGER(INT16, int16_t)
CONVERTER_FROM_INTEGER(INT32, int32_t)
CONVERTER_FROM_INTEGER(INT64, int64_t)
CONVERTER_FROM_INTEGER(UINT8, uint8_t)
CONVERTER_FROM_INTEGER(UINT16, uint16_t)
CONVERTER_FROM_INTEGER(UINT32, uint32_t)
CONVERTER_FROM_INTEGER(UINT64, uint64_t)

/* A bool of foreign memory may be any nonzero byte; ours are 0 and 1. */
static void convert_BOOL(row r, qb_dtype dtype)
{
    switch (dtype) {
#define DTYPE(enumerator, type, name, kind)                                                                            \
    case QB_##enumerator:                                                                                              \
        CONVERT(uint8_t, type, (type)(x != 0));                                                                        \
        break;
#include "base/dtype.def"
#undef DTYPE
    case QB_DTYPE_COUNT: break;
    }
}

static void (*const converters[])(row r, qb_dtype dtype) = {
#define X(element, type, kind) [QBPY_ELEMENT_##element] = convert_##element,
    ELEMENTS(X)
#undef X
};

static void move_row(row r, size_t size)
{
    if (r.from_step == (int64_t)size && r.to_step == (int64_t)size)
        qb_parallel_copy(r.to, r.from, (size_t)r.count * size);
    else if (size == 8)
        CONVERT(uint64_t, uint64_t, x);
    else
        CONVERT(uint32_t, uint32_t, x);
}

/* What one copy does to its elements. */
typedef struct conversion {
    qbpy_element element;
    qb_dtype dtype;
    size_t same; /* bytes of an element when both types are the same and bytes just move, else 0 */
} conversion;

static void copy_row(row r, const conversion *how)
{
    if (how->same)
        move_row(r, how->same);
    else
        converters[how->element](r, how->dtype);
}

/* A long row is work for threads, chunk by chunk. */
enum { ROW_CHUNK = 1 << 15, LONG_ROW = 4 * ROW_CHUNK };

typedef struct long_row {
    row whole;
    const conversion *how;
} long_row;

static void copy_chunk(void *data, int64_t chunk, int worker)
{
    const long_row *l = data;
    row r = l->whole;
    int64_t first = chunk * ROW_CHUNK;
    (void)worker;
    r.to += first * r.to_step;
    r.from += first * r.from_step;
    r.count = r.count - first < ROW_CHUNK ? r.count - first : ROW_CHUNK;
    copy_row(r, l->how);
}

static void copy_long_row(row r, const conversion *how)
{
    long_row l = {r, how};
    if (r.count < LONG_ROW || how->same)
        copy_row(r, how);
    else
        qb_parallel((r.count + ROW_CHUNK - 1) / ROW_CHUNK, copy_chunk, &l);
}

/* ------------------------------------------------------------------------------------------------------------- axes */

typedef struct axes {
    int rank;
    int64_t shape[QB_MAX_RANK], from[QB_MAX_RANK], to[QB_MAX_RANK];
} axes;

/* Without axes of extent 1, and with neighbours merged; at least one axis. */
static axes merge_axes(const qbpy_layout *source, int64_t size)
{
    axes a = {0};
    int64_t strides_to[QB_MAX_RANK], step = size;
    for (int i = source->rank - 1; i >= 0; i--) {
        strides_to[i] = step;
        step *= source->shape[i];
    }
    for (int i = 0; i < source->rank; i++) {
        if (source->shape[i] == 1)
            continue;
        int last = a.rank - 1;
        if (a.rank && a.from[last] == source->strides[i] * source->shape[i]) {
            a.shape[last] *= source->shape[i];
        } else {
            last = a.rank++;
            a.shape[last] = source->shape[i];
        }
        a.from[last] = source->strides[i];
        a.to[last] = strides_to[i];
    }
    if (!a.rank) {
        a.rank = 1;
        a.shape[0] = 1;
        a.from[0] = a.to[0] = size;
    }
    return a;
}

/* A tile of the source is 128 pieces of 16 elements: of float64, two cache lines each, a part of the L1 cache. */
enum { TILE_DENSE = 16, TILE_LAST = 128 };

/* The plane of the last axis, along which the destination is dense, and `other`, along which the source is. */
static void copy_plane(const axes *a, int other, char *to, const char *from, const conversion *how)
{
    int last = a->rank - 1;
    for (int64_t i = 0; i < a->shape[other]; i += TILE_DENSE)
        for (int64_t j = 0; j < a->shape[last]; j += TILE_LAST) {
            int64_t count = a->shape[last] - j < TILE_LAST ? a->shape[last] - j : TILE_LAST;
            int64_t end = a->shape[other] - i < TILE_DENSE ? a->shape[other] : i + TILE_DENSE;
            for (int64_t k = i; k < end; k++)
                copy_row((row){.to = to + k * a->to[other] + j * a->to[last],
                               .from = from + k * a->from[other] + j * a->from[last],
                               .to_step = a->to[last],
                               .from_step = a->from[last],
                               .count = count},
                         how);
        }
}

void qbpy_layout_copy(const qbpy_layout *source, qb_dtype dtype, void *destination)
{
    for (int i = 0; i < source->rank; i++)
        if (source->shape[i] == 0)
            return;
    conversion how = {source->element, dtype, 0};
    if (source->element != QBPY_ELEMENT_BOOL && source->element == qbpy_element_of_dtype(dtype))
        how.same = elements[source->element].size;
    axes a = merge_axes(source, (int64_t)qb_dtype_size(dtype));
    int last = a.rank - 1, dense = last;
    for (int i = 0; i < last; i++)
        if (a.from[i] != 0 && llabs(a.from[i]) < llabs(a.from[dense]))
            dense = i;

    int64_t index[QB_MAX_RANK] = {0};
    char *to = destination;
    const char *from = source->data;
    for (;;) {
        if (dense == last)
            copy_long_row((row){to, from, a.to[last], a.from[last], a.shape[last]}, &how);
        else
            copy_plane(&a, dense, to, from, &how);
        int axis = last - 1;
        for (; axis >= 0; axis--) {
            if (axis == dense)
                continue;
            to += a.to[axis];
            from += a.from[axis];
            if (++index[axis] < a.shape[axis])
                break;
            to -= a.to[axis] * a.shape[axis];
            from -= a.from[axis] * a.shape[axis];
            index[axis] = 0;
        }
        if (axis < 0)
            return;
    }
}

/* ---------------------------------------------------------------------------------------------------------- tensors */

void qbpy_layout_of_tensor(const qb_tensor *tensor, qbpy_layout *out)
{
    qb_dtype dtype = qb_tensor_dtype(tensor);
    out->data = qb_tensor_data(tensor);
    out->element = qbpy_element_of_dtype(dtype);
    out->rank = qb_tensor_rank(tensor);
    int64_t step = (int64_t)qb_dtype_size(dtype);
    for (int i = out->rank - 1; i >= 0; i--) {
        out->shape[i] = qb_tensor_shape(tensor)[i];
        out->strides[i] = step;
        step *= out->shape[i];
    }
}

qb_tensor *qbpy_layout_tensor(qbpy_state *state, const qbpy_layout *source, qb_dtype dtype)
{
    qb_tensor *tensor;
    qb_status status = qb_tensor_create(dtype, source->rank, source->shape, NULL, &tensor);
    if (status != QB_OK) {
        qbpy_raise(state, status);
        return NULL;
    }
    qbpy_layout_copy(source, dtype, qb_tensor_data(tensor));
    return tensor;
}

PyObject *qbpy_element_object(qb_dtype dtype, const void *element)
{
    switch (dtype) {
    case QB_FLOAT64: return PyFloat_FromDouble(*(const double *)element);
    case QB_FLOAT32: return PyFloat_FromDouble((double)*(const float *)element);
    case QB_BOOL: return PyBool_FromLong(*(const uint8_t *)element);
    case QB_INT32: return PyLong_FromLong(*(const int32_t *)element);
    case QB_INT64: return PyLong_FromLongLong(*(const int64_t *)element);
    case QB_UINT32: return PyLong_FromUnsignedLong(*(const uint32_t *)element);
    case QB_UINT64: return PyLong_FromUnsignedLongLong(*(const uint64_t *)element);
    case QB_DTYPE_COUNT: break;
    }
    PyErr_SetString(PyExc_SystemError, "an element of no dtype");
    return NULL;
}
