/* Large blocks of memory, kept for reuse.
 *
 * The C library gives the pages of a large block back to the system when it is freed and asks for new ones, which must
 * be zeroed and mapped page by page, at the next allocation. For a program that makes arrays of megabytes over and over
 * this costs more than its arithmetic (measured: three results of 8 MB, 30 ms instead of 7). So a few freed blocks are
 * kept, at most QB_LARGE_KEPT bytes of them in the whole process; the oldest goes first. */
#ifndef QB_BASE_LARGE_H
#define QB_BASE_LARGE_H

#include <stddef.h>

#define QB_LARGE_BLOCK ((size_t)1 << 18) /* from here on a block is large */
#define QB_LARGE_KEPT  ((size_t)1 << 28)

/* A new block of at least QB_LARGE_BLOCK bytes, or NULL; for free(), or qb_large_give. */
void *qb_large_allocate(size_t size);
/* A kept block of at least `size` bytes and not much more, or NULL; its own size is stored. Safe from any thread. */
void *qb_large_take(size_t size, size_t *own_size);
/* Takes the block over, to be kept, or frees it. */
void qb_large_give(void *block, size_t size);

#endif
