/* The passes themselves, each from a graph to a new equivalent one; pipeline.c has their order. Every one is a replay,
 * so dead code falls away and equal nodes merge on the way. */
#ifndef QB_PASSES_PASSES_H
#define QB_PASSES_PASSES_H

#include "graph/replay.h"
#include "ops/build.h"

/* Visits one node: stores what stands for its results into replay->map. */
typedef qb_status (*qb_pass_visit)(qb_replay *replay, const qb_node *node);

/* Operations with graphs made smaller, down to their bodies where those need not stand apart. */
qb_status qb_refine(const qb_graph *graph, qb_graph **out);

/* Rebuilds a graph node by node. */
qb_status qb_pass_run(qb_pass_visit visit, const qb_graph *graph, qb_graph **out);

qb_status qb_simplify_visit(qb_replay *replay, const qb_node *node); /* the ops' own identities */
qb_status qb_fold_visit(qb_replay *replay, const qb_node *node); /* arithmetic of constants and of repeated values */

#endif
