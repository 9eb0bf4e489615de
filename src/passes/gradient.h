/* The gradient of a graph in the mode that costs less. */
#ifndef QB_PASSES_GRADIENT_H
#define QB_PASSES_GRADIENT_H

#include "graph/graph.h"

/* As qb_graph_gradient; `what` stands in the note that tells of the mode: "gradient of f". */
qb_status qb_choose_gradient(const qb_graph *graph, const char *what, int wrt_count, const int *wrt, qb_graph **out);

#endif
