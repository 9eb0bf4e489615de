/* Memory: the one place where the library asks the system for some.
 *
 * qb_allocate returns NULL when there is none, and, under test, at a chosen allocation: the tests make the n-th
 * allocation fail for every n and check that the call reports QB_ERROR_MEMORY and leaks nothing. */
#ifndef QB_BASE_ALLOCATE_H
#define QB_BASE_ALLOCATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Lines of the processor's cache: a size in bytes, rounded up to whole ones. */
static inline int64_t qb_whole_lines(int64_t size)
{
    return (size + 63) / 64 * 64;
}

void *qb_allocate(size_t size);                      /* size 0 gives a valid pointer too */
void *qb_allocate_zeroed(size_t count, size_t size); /* NULL on overflow of the product too */
void *qb_reallocate(void *memory, size_t size);      /* on failure `memory` stays valid */
void *qb_allocate_aligned(size_t size);              /* on a 64-byte boundary; freed by qb_free_aligned */
void qb_free(void *memory);
void qb_free_aligned(void *memory);

/* For tests: the n-th allocation from now fails (1 is the next), and only that one; 0 switches this off. */
void qb_allocate_fail_at(int64_t n);
/* For tests: whether the chosen allocation has been reached since. */
bool qb_allocate_has_failed(void);

/* A growing array: QB_GROW(array, count, capacity) makes room for one more element; false when memory is out. */
bool qb_grow(void **array, size_t element_size, int32_t count, int32_t *capacity, int32_t extra);
#define QB_GROW(array, count, capacity, extra)                                                                         \
    qb_grow((void **)&(array), sizeof *(array), (count), &(capacity), (extra))

#endif
