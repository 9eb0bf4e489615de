/* Forward mode. */
#include "transforms/transforms.h"

#include "base/allocate.h"
#include "graph/replay.h"

typedef struct walk {
    qb_replay replay;
    qb_value *tangent;          /* of each value of the source */
    qb_value *operand_tangents; /* scratch for the node at hand */
    qb_forward forward;
} walk;

/* The tangents of a node's operands; false when all are zero, or the op has no derivative. */
static bool gather_tangents(walk *w, const qb_node *node)
{
    bool any = false;
    for (int i = 0; i < node->operand_count; i++) {
        w->operand_tangents[i] = w->tangent[qb_operand(w->replay.source, node, i)];
        any = any || w->operand_tangents[i] != QB_NONE;
    }
    return any && !(node->op->flags & QB_OP_FLAT);
}

static qb_status visit(walk *w, const qb_node *node)
{
    qb_graph *target = w->replay.target;
    bool any = gather_tangents(w, node); /* then a rule of an op with graphs stands for its effects, too */
    if (!(any ? qb_replay_copy_silent : qb_replay_copy)(&w->replay, node))
        return qb_graph_take_status(target);
    if (!any)
        return QB_OK;
    if (!node->op->jvp)
        return qb_fail(QB_ERROR_UNSUPPORTED, "%s has no derivative rule", node->op->name);
    qb_rule rule = {.graph = target,
                    .op = node->op,
                    .attribute = node->attributes,
                    .operand_count = node->operand_count,
                    .result_count = node->result_count,
                    .operand = w->replay.operands,
                    .result = &w->replay.map[node->result],
                    .tangent = w->operand_tangents,
                    .result_tangent = &w->tangent[node->result],
                    .forward = w->forward};
    node->op->jvp(&rule);
    return qb_graph_take_status(target);
}

static qb_status begin(walk *w, const qb_graph *source, qb_graph *target, const qb_value *primals,
                       const qb_value *tangents)
{
    QB_TRY(qb_replay_begin(&w->replay, source, target, primals, source->output_count, source->outputs));
    size_t count = (size_t)source->value_count;
    w->tangent = qb_allocate(count * sizeof *w->tangent);
    w->operand_tangents = qb_allocate((size_t)w->replay.widest * sizeof *w->operand_tangents);
    if (!w->tangent || !w->operand_tangents)
        return qb_fail_memory();
    for (size_t i = 0; i < count; i++)
        w->tangent[i] = QB_NONE;
    for (int i = 0; i < source->input_count; i++)
        w->tangent[source->inputs[i]] = tangents[i];
    return QB_OK;
}

qb_status qb_jvp(const qb_graph *source, qb_graph *target, qb_forward forward, const qb_value *primals,
                 const qb_value *tangents, qb_value *primals_out, qb_value *tangents_out)
{
    walk w = {.forward = forward};
    qb_status status = begin(&w, source, target, primals, tangents);
    for (int32_t n = -1; status == QB_OK && (n = qb_replay_next(&w.replay, n)) >= 0;)
        status = visit(&w, &source->nodes[n]);
    for (int i = 0; status == QB_OK && i < source->output_count; i++) {
        primals_out[i] = w.replay.map[source->outputs[i]];
        tangents_out[i] = w.tangent[source->outputs[i]];
    }
    qb_replay_end(&w.replay);
    qb_free(w.tangent);
    qb_free(w.operand_tangents);
    return status;
}
