/* What kernels on batches of matrices share: chunks for the threads, addresses, and small loops over elements. */
#ifndef QB_CPU_MATRICES_H
#define QB_CPU_MATRICES_H

#include "graph/graph.h"

/* work on 0 .. count-1, in chunks of a multiple of `multiple`, each of enough operations (or all) to keep a core
 * busy for some tens of microseconds. Chunks depend on these numbers alone. */
typedef void (*qb_range_work)(const void *data, int64_t first, int64_t limit);
void qb_in_chunks(int64_t count, double flops_each, int64_t multiple, qb_range_work work, const void *data);
/* How many of them a chunk has. */
int64_t qb_chunk_size(int64_t count, double flops_each, int64_t multiple);

/* How many matrices there are, in the last two axes. */
int64_t qb_batch_of(const qb_type *type);
/* The address of an element; an operand's may be written through it only where it is a result's, too. */
void *qb_element(const void *array, qb_dtype dtype, int64_t place);

void qb_fill_with_nan(qb_dtype dtype, void *array, int64_t count);
bool qb_all_finite(qb_dtype dtype, const void *a, int64_t count);
/* Rows first .. limit-1 of the lower triangle of (a + a^T) / 2, n x n, and zeros above it. */
void qb_take_symmetric(qb_dtype dtype, int64_t n, int64_t first, int64_t limit, const void *a, void *lower);

#endif
