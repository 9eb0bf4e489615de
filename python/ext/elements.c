/* Copying and converting elements between foreign layouts and tensors.
 *
 * A copy is brought to the fewest axes (neighbouring axes that are one run of memory merge, so anything contiguous is a single row),
 * then done row by row; where the source is transposed, in square tiles, so that each cache line of either side is used up while it
 * is there. */
#include "elements.h"

#include "base/dtype.h"

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

/* ---------------------------------------------------------------------------------------------------------------- rows */

typedef struct row {
    char *to;
    const char *from;
    int64_t to_step, from_step; /* bytes */
    int64_t count;
} row;

/* Element by element through memcpy, which compiles to a plain (unaligned) load. */
#define ROW_LOOP(S, D, expression)                                                                                     \
    for (int64_t i = 0; i < r.count; i++) {                                                                            \
        S x;                                                                                                           \
        memcpy(&x, r.from + i * r.from_step, sizeof x);                                                                \
        *(D *)(void *)(r.to + i * r.to_step) = (expression);                                                           \
    }

#define CONVERT_ANY(S)                                                                                                 \
    case QB_FLOAT64: ROW_LOOP(S, double, (double)x) break;                                                             \
    case QB_FLOAT32: ROW_LOOP(S, float, (float)x) break;                                                               \
    case QB_BOOL: ROW_LOOP(S, uint8_t, x != 0) break;

#define CONVERT_INTEGER(S)                                                                                             \
    case QB_INT32: ROW_LOOP(S, int32_t, (int32_t)x) break;                                                             \
    case QB_INT64: ROW_LOOP(S, int64_t, (int64_t)x) break;                                                             \
    case QB_UINT32: ROW_LOOP(S, uint32_t, (uint32_t)x) break;                                                          \
    case QB_UINT64: ROW_LOOP(S, uint64_t, (uint64_t)x) break;

#define CONVERTER_FROM_INTEGER(name, S)                                                                                \
    static void convert_##name(row r, qb_dtype dtype)                                                                  \
    {                                                                                                                  \
        switch (dtype) {                                                                                               \
            CONVERT_ANY(S)                                                                                             \
            CONVERT_INTEGER(S)                                                                                         \
        case QB_DTYPE_COUNT: break;                                                                                    \
        }                                                                                                              \
    }

#define CONVERTER_FROM_FLOAT(name, S)                                                                                  \
    static void convert_##name(row r, qb_dtype dtype)                                                                  \
    {                                                                                                                  \
        switch (dtype) {                                                                                               \
            CONVERT_ANY(S)                                                                                             \
        default:                                                                                                       \
            for (int64_t i = 0; i < r.count; i++) {                                                                    \
                S x;                                                                                                   \
                memcpy(&x, r.from + i * r.from_step, sizeof x);                                                        \
                qb_dtype_store(dtype, (double)x, r.to + i * r.to_step);                                                \
            }                                                                                                          \
        }                                                                                                              \
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
    case QB_##enumerator: ROW_LOOP(uint8_t, type, (type)(x != 0)) break;
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
        memcpy(r.to, r.from, (size_t)r.count * size);
    else if (size == 8)
        ROW_LOOP(uint64_t, uint64_t, x)
    else
        ROW_LOOP(uint32_t, uint32_t, x)
}

static void copy_row(row r, qbpy_element element, qb_dtype dtype)
{
    if (element != QBPY_ELEMENT_BOOL && element == qbpy_element_of_dtype(dtype))
        move_row(r, elements[element].size);
    else
        converters[element](r, dtype);
}

/* ---------------------------------------------------------------------------------------------------------------- axes */

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

enum { TILE = 32 };

/* The plane of the last axis and `other`, in tiles; rows run along the axis that is dense in the source. */
static void copy_plane(const axes *a, int other, char *to, const char *from, qbpy_element element, qb_dtype dtype)
{
    int last = a->rank - 1;
    for (int64_t i = 0; i < a->shape[other]; i += TILE)
        for (int64_t j = 0; j < a->shape[last]; j += TILE) {
            int64_t count = a->shape[other] - i < TILE ? a->shape[other] - i : TILE;
            int64_t end = a->shape[last] - j < TILE ? a->shape[last] : j + TILE;
            for (int64_t k = j; k < end; k++)
                copy_row((row){.to = to + i * a->to[other] + k * a->to[last],
                               .from = from + i * a->from[other] + k * a->from[last],
                               .to_step = a->to[other],
                               .from_step = a->from[other],
                               .count = count},
                         element, dtype);
        }
}

void qbpy_layout_copy(const qbpy_layout *source, qb_dtype dtype, void *destination)
{
    for (int i = 0; i < source->rank; i++)
        if (source->shape[i] == 0)
            return;
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
            copy_row((row){to, from, a.to[last], a.from[last], a.shape[last]}, source->element, dtype);
        else
            copy_plane(&a, dense, to, from, source->element, dtype);
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

/* ------------------------------------------------------------------------------------------------------------- tensors */

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
