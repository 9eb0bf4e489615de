/* Making and ending tensors, and shapes in words. */
#include "base/tensor.h"

#include "base/allocate.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/threads.h"

#include <stdio.h>
#include <string.h>

qb_status qb_shape_size(int rank, const int64_t *shape, size_t element_size, int64_t *out)
{
    if (rank < 0 || rank > QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "an array of rank %d: ranks go from 0 to %d", rank, QB_MAX_RANK);
    /* Extents of 0 are left out of the bound: no product of some of the extents overflows either, as strides need
     * it. */
    int64_t size = 1, bytes = (int64_t)element_size;
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return qb_fail(QB_ERROR_VALUE, "shape %s: extents cannot be negative", qb_print_shape(rank, shape).text);
        empty = empty || shape[i] == 0;
        if (shape[i] != 0 && (__builtin_mul_overflow(bytes, shape[i], &bytes) || bytes > QB_MOST_BYTES))
            return qb_fail(QB_ERROR_VALUE, "shape %s: too many elements for this machine",
                           qb_print_shape(rank, shape).text);
        size *= shape[i] != 0 ? shape[i] : 1;
    }
    *out = empty ? 0 : size;
    return QB_OK;
}

qb_status qb_tensor_allocate(qb_dtype dtype, int rank, const int64_t *shape, int64_t size, qb_tensor **out)
{
    size_t header = (size_t)qb_whole_lines((int64_t)(sizeof(qb_tensor) + (size_t)rank * sizeof(int64_t)));
    size_t bytes = (size_t)size * qb_dtype_size(dtype);
    qb_tensor *tensor = qb_allocate_aligned(header + bytes);
    if (!tensor)
        return qb_fail(QB_ERROR_MEMORY, "out of memory: %zu bytes for an array of shape %s", bytes,
                       qb_print_shape(rank, shape).text);
    atomic_init(&tensor->references, 1);
    tensor->data = (char *)tensor + header;
    tensor->size = size;
    tensor->dtype = dtype;
    tensor->rank = rank;
    for (int i = 0; i < rank; i++)
        tensor->shape[i] = shape[i];
    *out = tensor;
    return QB_OK;
}

qb_status qb_tensor_create(qb_dtype dtype, int rank, const int64_t *shape, const void *data, qb_tensor **out)
{
    int64_t size;
    QB_TRY(qb_dtype_check(dtype));
    QB_TRY(qb_shape_size(rank, shape, qb_dtype_size(dtype), &size));
    QB_TRY(qb_tensor_allocate(dtype, rank, shape, size, out));
    if (data)
        qb_parallel_copy((*out)->data, data, qb_tensor_bytes(*out));
    return QB_OK;
}

qb_tensor *qb_tensor_retain(qb_tensor *tensor)
{
    if (tensor)
        atomic_fetch_add_explicit(&tensor->references, 1, memory_order_relaxed);
    return tensor;
}

void qb_tensor_release(qb_tensor *tensor)
{
    if (tensor && atomic_fetch_sub_explicit(&tensor->references, 1, memory_order_acq_rel) == 1)
        qb_free_aligned(tensor);
}

qb_dtype qb_tensor_dtype(const qb_tensor *tensor)
{
    return tensor->dtype;
}

int qb_tensor_rank(const qb_tensor *tensor)
{
    return tensor->rank;
}

const int64_t *qb_tensor_shape(const qb_tensor *tensor)
{
    return tensor->shape;
}

int64_t qb_tensor_size(const qb_tensor *tensor)
{
    return tensor->size;
}

void *qb_tensor_data(const qb_tensor *tensor)
{
    return tensor->data;
}

static qb_shape_text print_extents(const char *before, int rank, const int64_t *shape, const char *between,
                                   const char *after)
{
    qb_shape_text out;
    size_t room = sizeof out.text, used = (size_t)snprintf(out.text, room, "%s", before);
    for (int i = 0; i < rank; i++) {
        if (used > room - 40) {
            used += (size_t)snprintf(out.text + used, room - used, "...");
            break;
        }
        used += (size_t)snprintf(out.text + used, room - used, "%s%lld", i ? between : "", (long long)shape[i]);
    }
    (void)snprintf(out.text + used, room - used, "%s", after);
    return out;
}

qb_shape_text qb_print_shape(int rank, const int64_t *shape)
{
    return print_extents("(", rank, shape, ", ", rank == 1 ? ",)" : ")");
}

qb_shape_text qb_print_type(qb_dtype dtype, int rank, const int64_t *shape)
{
    char before[32];
    (void)snprintf(before, sizeof before, "%s[", qb_dtype_name(dtype));
    return print_extents(before, rank, shape, ",", "]");
}
