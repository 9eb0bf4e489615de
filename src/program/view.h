/* Views: how the elements of an array lie in the memory of another.
 *
 * A view says for every element of an array, in row-major order of the view's axes, where it is: `offset` plus the sum
 * of index times stride over the axes, in elements of the root's memory. Strides may be 0 (repeated), negative
 * (reversed) or anything else. The operations flagged QB_OP_VIEW compose to one view of one root, which a kernel reads
 * as a load and a product as its strides; no memory moves. */
#ifndef QB_PROGRAM_VIEW_H
#define QB_PROGRAM_VIEW_H

#include "graph/graph.h"

typedef struct qb_view {
    int64_t offset;
    int32_t rank;
    bool shaped; /* the axes are those of the array's shape; otherwise only their order is that of its elements */
    int64_t *extent;
    int64_t *stride;
} qb_view;

/* Each makes a view in `arena`; NULL when memory is out. */
qb_view *qb_view_whole(qb_arena *arena, int rank, const int64_t *shape); /* contiguous, row-major */
/* `node`, an op flagged QB_OP_VIEW, on top of `view`, which is how its operand lies, shaped. */
qb_view *qb_view_compose(qb_arena *arena, const qb_view *view, const qb_node *node);
/* The same elements in order under another shape; not `shaped` where strides cannot say so. */
qb_view *qb_view_reshape(qb_arena *arena, const qb_view *view, int rank, const int64_t *shape);
qb_view *qb_view_keep(qb_arena *arena, const qb_view *view); /* a copy */
/* Axes in the given order; `count` of them, the others having been proved to be of extent 1. */
qb_view *qb_view_pick(qb_arena *arena, const qb_view *view, int count, const int64_t *axes);

/* Neighbouring axes that step alike merged, axes of extent 1 dropped; writes up to view->rank axes, returns their
 * number. */
int qb_view_collapse(const qb_view *view, int64_t *extent, int64_t *stride);

/* Whether the axes, in the given order, walk through memory with one stride: their product and that stride. */
bool qb_view_merge(const qb_view *view, int count, const int64_t *axes, int64_t *extent, int64_t *stride);

/* Whether the elements in order are those of memory from `offset` on. */
bool qb_view_is_contiguous(const qb_view *view);

#endif
