/* Operations whose attributes are graphs: loops, branches, recomputed regions, functions with derivatives of their own.
 *
 * Their rules are transforms of those graphs, so this folder stands on transforms/ and passes/, which know nothing of
 * it. A loop's derivative is a loop, a branch's a branch: so every order and every mixture of modes is the same few
 * rewrites again.
 *
 *   loop.c        what a loop is: its parts, its types
 *   loop_jvp.c    forward mode, and cutting a loop in two: what is known early, and what is linear in the rest
 *   loop_transpose.c, loop_batch.c, loop_refine.c
 *   branch.c      switch
 *   checkpoint.c  a region that is computed again where its derivative needs it
 *   custom.c      custom_jvp, custom_vjp and its pullback
 *   reach.c       what depends on what
 *   subgraph.c    what they share */
#ifndef QB_CONTROL_CONTROL_H
#define QB_CONTROL_CONTROL_H

#include "graph/replay.h"
#include "ops/build.h"

/* ---- Loops
 *
 *     for n = 0, 1, ... while n < capacity, n < count and condition(i, consts, carries):       i = n
 *         carries, y = body(i, consts, carries, x[i] of each sequence);   ys[i] = y
 *
 * or, reversed (never with a condition), for the same iterations from the last to the first. ys of iterations that do
 * not happen are 0. Results: the carries, the ys, and with a condition the number of iterations that happened. */
typedef struct qb_loop {
    qb_graph *body;      /* inputs: i (int64), consts, carries, slices of sequences; outputs: carries, ys */
    qb_graph *condition; /* inputs: i, consts, carries; output: bool. NULL: none */
    int64_t capacity;    /* most iterations; -1: no limit, possible without sequences and ys */
    bool reverse;
    qb_value count; /* int64: iterations, clamped to [0, capacity]; QB_NONE: capacity */
    int consts, carries, sequences;
    const qb_value *operands; /* consts, carries, sequences */
} qb_loop;

static inline int qb_loop_operands(const qb_loop *loop)
{
    return loop->consts + loop->carries + loop->sequences;
}

static inline int qb_loop_ys(const qb_loop *loop)
{
    return loop->body->output_count - loop->carries;
}

/* The loop of a node; without count and operands where `operands` is NULL. */
qb_loop qb_loop_of(const qb_attribute *attribute, int operand_count, const qb_value *operands);
/* Emits the loop; results[carries + ys (+ 1 with a condition)]. False: the failure is kept in the graph. */
bool qb_loop_emit(qb_graph *graph, const qb_loop *loop, qb_value *results);

void qb_loop_jvp(qb_rule *rule);
void qb_loop_transpose(qb_rule *rule);
void qb_loop_batch(qb_rule *rule);
void qb_loop_refine(qb_rule *rule);
qb_status qb_loop_needs(const qb_node *node, const bool *used, bool *needed);

/* ---- Memory of a rule: freed as a whole */

typedef struct qb_scratch {
    qb_arena arena;
    bool failed; /* memory was out */
} qb_scratch;

/* Zeroed; NULL, with `failed` set, when memory is out: to be asked once, after all pieces are taken. */
void *qb_scratch_take(qb_scratch *scratch, int count, size_t size);
/* The same, of values, all QB_NONE. */
qb_value *qb_scratch_values(qb_scratch *scratch, int count);

/* ---- Graphs in graphs (subgraph.c) */

/* A value where there is one, else zeros of the type of `like` in `source`. */
qb_value qb_or_zeros(qb_graph *graph, qb_value value, const qb_graph *source, qb_value like);
/* A jvp of `source` as a graph: its inputs, then a tangent for each input with has_tangent[i]. Outputs: those of
 * source, then the tangents that are not zero, told by has_tangent_out; where require[i] (may be NULL) also those
 * that are. */
qb_status qb_subgraph_jvp(const qb_graph *source, qb_forward forward, const bool *has_tangent, const bool *require,
                          bool *has_tangent_out, qb_graph **out);
/* The transpose of `source`, linear in the inputs with linear[i]: inputs are the others, then a cotangent for each
 * output with has_cotangent[i]; outputs are the cotangents of the linear inputs that are not zero, told by
 * has_result; where require[i] (may be NULL) also those that are. */
qb_status qb_subgraph_transpose(const qb_graph *source, const bool *linear, const bool *has_cotangent,
                                const bool *require, bool *has_result, qb_graph **out);

/* ---- Dependence (reach.c) */

/* Marks the carries, among the marked inputs of the body, that depend on a marked input after some iterations.
 * `smooth`: that may have a derivative by it. */
qb_status qb_loop_reach(const qb_loop *loop, bool smooth, bool *inputs);
/* Marks the carries, among the marked outputs of the body, by which a marked output may have a derivative. */
qb_status qb_loop_reach_back(const qb_loop *loop, bool *outputs);
/* Which outputs of the body must be computed, and which of its inputs are needed for that, where these results are
 * used: a carry is needed where its result is, where the condition reads it, or where what is needed depends on it. */
qb_status qb_loop_needed(const qb_loop *loop, const bool *used, bool *outputs, bool *needed);
/* Whether an output depends on a marked input. */
qb_status qb_reaches(const qb_graph *graph, int output, const bool *inputs, bool *out);

/* ---- Smaller graphs (subgraph.c) */

/* The passes on the graph with the outputs that are wanted. Inputs stay, needed or not. */
qb_status qb_subgraph_optimize(const qb_graph *source, const bool *wanted, qb_graph **out);
/* Refines a node to `source` on these operands: optimized first, since nothing refines again what is in it. */
qb_status qb_refine_inline(qb_rule *r, const qb_graph *source, const qb_value *operands);
/* Sets live[i] where an output needs input i, by what the nodes name. */
qb_status qb_mark_live_inputs(const qb_graph *graph, bool *live);
/* Replaces the graph by itself with these of its inputs only. */
qb_status qb_subgraph_keep_inputs(qb_graph **graph, int count, const int *inputs);

#endif
