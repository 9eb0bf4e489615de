/* The passes between a transformed graph and its plan: each takes a graph and leaves an equivalent one. */
#ifndef QB_PASSES_PIPELINE_H
#define QB_PASSES_PIPELINE_H

#include "graph/graph.h"

/* All passes in the order of pipeline.c: a new graph with the same inputs and outputs. */
qb_status qb_optimize(const qb_graph *graph, qb_graph **out);

/* The graph with what it does for many examples as loops over tiles of them (tile.c), for a program to be made of;
 * *out is NULL where it is better left as it is. */
qb_status qb_tile(const qb_graph *graph, qb_graph **out);

#endif
