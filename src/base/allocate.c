/* Memory, with a mode that fails on demand. */
#include "base/allocate.h"

#include "base/large.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int64_t countdown; /* 0: never fails */
static _Atomic bool failed;

static bool fails_now(void)
{
    if (atomic_load_explicit(&countdown, memory_order_relaxed) == 0)
        return false;
    if (atomic_fetch_sub(&countdown, 1) != 1)
        return false;
    atomic_store(&failed, true);
    return true;
}

void qb_allocate_fail_at(int64_t n)
{
    atomic_store(&failed, false);
    atomic_store(&countdown, n);
}

bool qb_allocate_has_failed(void)
{
    return atomic_load(&failed);
}

void *qb_allocate(size_t size)
{
    return fails_now() ? NULL : malloc(size ? size : 1);
}

void *qb_allocate_zeroed(size_t count, size_t size)
{
    if (fails_now() || (size > 0 && count > SIZE_MAX / size))
        return NULL;
    return calloc(count ? count : 1, size ? size : 1);
}

void *qb_reallocate(void *memory, size_t size)
{
    return fails_now() ? NULL : realloc(memory, size ? size : 1);
}

/* malloc keeps small blocks in a cache of the thread, aligned_alloc does not and costs five times as much (glibc 2.36):
 * so the boundary is found here, and the bytes before it say where the block begins and how large it is. malloc's own
 * alignment leaves room for them. */
enum { BOUNDARY = 64 };

typedef struct aligned_header {
    size_t size; /* of the whole block */
    size_t shift;
} aligned_header;

_Static_assert(sizeof(aligned_header) <= _Alignof(max_align_t), "the header fits before the boundary");

void *qb_allocate_aligned(size_t size)
{
    if (fails_now() || size > SIZE_MAX - BOUNDARY)
        return NULL;
    aligned_header header = {.size = size + BOUNDARY};
    char *block = header.size >= QB_LARGE_BLOCK ? qb_large_take(size + BOUNDARY, &header.size) : NULL;
    if (!block) {
        header.size = size + BOUNDARY;
        block = header.size >= QB_LARGE_BLOCK ? qb_large_allocate(header.size) : malloc(header.size);
    }
    if (!block)
        return NULL;
    header.shift = BOUNDARY - (uintptr_t)block % BOUNDARY;
    memcpy(block + header.shift - sizeof header, &header, sizeof header);
    return block + header.shift;
}

void qb_free(void *memory)
{
    free(memory);
}

void qb_free_aligned(void *memory)
{
    aligned_header header;
    if (!memory)
        return;
    memcpy(&header, (char *)memory - sizeof header, sizeof header);
    char *block = (char *)memory - header.shift;
    if (header.size >= QB_LARGE_BLOCK)
        qb_large_give(block, header.size);
    else
        free(block);
}

bool qb_grow(void **array, size_t element_size, int32_t count, int32_t *capacity, int32_t extra)
{
    if (count > INT32_MAX / 2 - extra)
        return false;
    if (count + extra <= *capacity)
        return true;
    int32_t grown = *capacity * 2 > count + extra ? *capacity * 2 : count + extra;
    if (grown < 16)
        grown = 16;
    void *moved = qb_reallocate(*array, (size_t)grown * element_size);
    if (!moved)
        return false;
    *array = moved;
    *capacity = grown;
    return true;
}
