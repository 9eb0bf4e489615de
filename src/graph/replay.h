/* Replaying a graph into another: the walk that inlining, simplification and every transform share.
 *
 * The live nodes of `source` are visited in topological order with their operands mapped to values of `target`; the
 * visitor makes whatever stands for the node there and stores its results into the map. */
#ifndef QB_GRAPH_REPLAY_H
#define QB_GRAPH_REPLAY_H

#include "graph/graph.h"

typedef struct qb_replay {
    const qb_graph *source;
    qb_graph *target;
    qb_value *map;         /* of each value of source; QB_NONE where not mapped yet */
    bool *live;            /* values that the outputs need */
    int32_t widest;        /* most operands of a node */
    int32_t source_before; /* the target's, set back at the end: what is made for a node has that node's source */
    qb_value *operands;    /* scratch: the mapped operands of the node at hand */
} qb_replay;

/* Marks what `outputs` need, maps the inputs to `arguments`, and copies the notes. End with qb_replay_end, also
 * after a failure. */
qb_status qb_replay_begin(qb_replay *replay, const qb_graph *source, qb_graph *target, const qb_value *arguments,
                          int output_count, const qb_value *outputs);
void qb_replay_end(qb_replay *replay);

/* The next live node after `index` that is not an input (start with -1), its operands mapped into replay->operands; -1
 * at the end. */
int32_t qb_replay_next(qb_replay *replay, int32_t index);

/* Emits the node unchanged and maps its results. */
bool qb_replay_copy(qb_replay *replay, const qb_node *node);
/* The same without the effects of the graphs that it runs (silent.c). */
bool qb_replay_copy_silent(qb_replay *replay, const qb_node *node);

/* A new graph with inputs[i] of the old inputs for its input i, and outputs[i] of the old outputs for its output i;
 * NULL: the first ones, in their order. An input that is not listed must not be needed. */
qb_status qb_graph_rearrange(const qb_graph *graph, int input_count, const int *inputs, int output_count,
                             const int *outputs, qb_graph **out);

#endif
