/* Sets of element numbers, each kept once: equal sets have equal numbers, so that an array of sets is an array of
 * ints, what many elements share costs nothing, and uniting the same two sets again is a look-up. */
#ifndef QB_TRANSFORMS_INDEX_SETS_H
#define QB_TRANSFORMS_INDEX_SETS_H

#include "base/status.h"

typedef struct qb_index_sets qb_index_sets;

enum { QB_SET_EMPTY = 0 };

/* Set 0 is empty, set i + 1 is {i} for i < universe. NULL when memory is out. */
qb_index_sets *qb_index_sets_create(int64_t universe);
void qb_index_sets_destroy(qb_index_sets *sets);

/* The union. After a failure, which qb_index_sets_status tells, any set. */
int32_t qb_index_sets_unite(qb_index_sets *sets, int32_t a, int32_t b);
/* The union of sets[0], sets[stride], ..., `count` of them. */
int32_t qb_index_sets_unite_all(qb_index_sets *sets, int64_t count, const int32_t *ids, int64_t stride);

int64_t qb_index_set_size(const qb_index_sets *sets, int32_t id);
const int32_t *qb_index_set_items(const qb_index_sets *sets, int32_t id); /* ascending; until the next union */

/* The first failure: no memory, or more elements in all sets than fit (QB_ERROR_VALUE). */
qb_status qb_index_sets_status(const qb_index_sets *sets);

#endif
