/* Transforms: graph to graph. Each rule is the op's own (ops/); none is known here by name, but that split.c makes a
 * broadcast again rather than keep it.
 *
 * There is one derivative rule per op, forward. Reverse mode is forward mode, then the transpose of its linear part
 * (Radul et al., "You Only Linearize Once", POPL 2023), so the two modes cannot disagree, and any order is the same
 * rewrite again. */
#ifndef QB_TRANSFORMS_TRANSFORMS_H
#define QB_TRANSFORMS_TRANSFORMS_H

#include "ops/build.h"

/* Forward mode: writes `source` into `target` with, beside each value, its tangent. tangents[i] belongs to input i and
 * may be QB_NONE (zero); output tangents are QB_NONE where zero. Each costs about what its primal costs. */
qb_status qb_jvp(const qb_graph *source, qb_graph *target, qb_forward forward, const qb_value *primals,
                 const qb_value *tangents, qb_value *primals_out, qb_value *tangents_out);

/* qb_graph_jvp such that the result can be split at its tangents: no primal depends on one. */
qb_status qb_graph_linearize(const qb_graph *graph, int wrt_count, const int *wrt, qb_graph **out);

/* The graph of the outputs, then the gradients of output 0, a floating scalar: by one scalar input in forward mode,
 * by any inputs in reverse mode. */
qb_status qb_gradient_forward(const qb_graph *graph, int wrt, qb_graph **out);
qb_status qb_gradient_reverse(const qb_graph *graph, int wrt_count, const int *wrt, qb_graph **out);

/* Whether something in the graph has no forward derivative. */
bool qb_is_reverse_only(const qb_graph *graph);

/* The failure of what has a reverse derivative only. */
qb_status qb_refuse_forward(void);

/* Transposes the part of `graph` that leads linearly from the values `linear` to the values `outputs`: given a
 * cotangent for each output (QB_NONE: zero), appends to the same graph the cotangent of each linear value (QB_NONE:
 * zero). */
qb_status qb_transpose(qb_graph *graph, int linear_count, const qb_value *linear, int output_count,
                       const qb_value *outputs, const qb_value *output_cotangents, qb_value *cotangents);

/* Batching: writes `source` into `target` over a leading axis of extent `size`, which the arguments with mapped[i]
 * have. Nodes that depend on no mapped argument are written once, unbatched; outputs_mapped tells which outputs have
 * the axis. */
qb_status qb_vmap(const qb_graph *source, qb_graph *target, const qb_value *arguments, const bool *mapped, int64_t size,
                  qb_value *outputs, bool *outputs_mapped);

/* The same where only the examples of which `active`, bool[size], is true count: loops run for them only (what the
 * others get is unspecified). A loop is batched then even if nothing that it reads is mapped. */
qb_status qb_vmap_active(const qb_graph *source, qb_graph *target, qb_value active, const qb_value *arguments,
                         const bool *mapped, int64_t size, qb_value *outputs, bool *outputs_mapped);

/* One step of it: the node on operands of which some (at least one) have the axis. Elementwise operands that lack it
 * are broadcast, in place. results_mapped tells which results have the axis. */
qb_status qb_batch_node(qb_graph *graph, const qb_node *node, qb_value *operands, const bool *mapped, int64_t size,
                        qb_value active, qb_value *results, bool *results_mapped);

/* Splits a graph at what can be known early: `early` computes outputs [0, early_outputs) and the residuals from the
 * inputs not marked late; `late` has the residuals and the late inputs as inputs, and computes the other outputs.
 * Linearizing is the jvp split at its tangents; a pullback is the vjp split at its cotangents. `frugal`: what is
 * cheap to compute again from other residuals is none; without it only constants and repetitions are computed again. */
qb_status qb_split(const qb_graph *graph, const bool *late_input, int early_outputs, bool frugal, qb_graph **early,
                   qb_graph **late);

/* Taylor mode: coefficients 0 to `order` of the outputs along a path, from those of the inputs. inputs[i * (order +
 * 1) + k] is coefficient k of input i (QB_NONE: zero, for k > 0); outputs likewise. O(order^2) times the cost of the
 * function. */
qb_status qb_taylor(const qb_graph *source, qb_graph *target, int order, const qb_value *inputs, qb_value *outputs);

/* Forward Laplacian: per output the value, its derivatives along `directions` tangents (with a leading axis;
 * QB_NONE: zero), and the sum of its second derivatives along them. tangents[i] of input i has that axis, or is
 * QB_NONE. */
qb_status qb_laplacian(const qb_graph *source, qb_graph *target, int64_t directions, const qb_value *primals,
                       const qb_value *tangents, qb_value *outputs);

#endif
