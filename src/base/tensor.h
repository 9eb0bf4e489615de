/* Tensors: reference-counted, immutable, contiguous arrays.
 *
 * Header, shape and elements are one allocation on a 64-byte boundary, so that a small result costs one call of the
 * allocator. */
#ifndef QB_BASE_TENSOR_H
#define QB_BASE_TENSOR_H

#include "quabla/quabla.h"

#include <stdatomic.h>

struct qb_tensor {
    _Atomic int64_t references;
    void *data;
    int64_t size; /* elements */
    qb_dtype dtype;
    int32_t rank;
    int64_t shape[];
};

/* Of an array, and of all memory together that a program may plan: more is refused before sums of sizes overflow. */
#define QB_MOST_BYTES (INT64_MAX / 4)

/* The number of elements, QB_ERROR_VALUE when rank, an extent, or the bytes at `element_size` are out of range. */
qb_status qb_shape_size(int rank, const int64_t *shape, size_t element_size, int64_t *out);

/* A tensor of a type that qb_shape_size has found valid, and of so many elements; these are to be written. */
qb_status qb_tensor_allocate(qb_dtype dtype, int rank, const int64_t *shape, int64_t size, qb_tensor **out);

static inline size_t qb_tensor_bytes(const qb_tensor *tensor)
{
    return (size_t)tensor->size * qb_dtype_size(tensor->dtype);
}

/* Shapes for messages: "(2, 3)", "(4,)", "()". Cut with "..." where the buffer ends. */
typedef struct qb_shape_text {
    char text[128];
} qb_shape_text;
qb_shape_text qb_print_shape(int rank, const int64_t *shape);
/* A type for messages and graph text: "float64[2,3]", "float32[]". */
qb_shape_text qb_print_type(qb_dtype dtype, int rank, const int64_t *shape);

static inline bool qb_shape_equal(int rank_a, const int64_t *a, int rank_b, const int64_t *b)
{
    if (rank_a != rank_b)
        return false;
    for (int i = 0; i < rank_a; i++)
        if (a[i] != b[i])
            return false;
    return true;
}

#endif
