/* Simplification: asks each op whether its operands allow something simpler (a product with 1, a view of one number
 * repeated, ...). Which identities hold is the op's knowledge and stands with the op. */
#include "passes/passes.h"

qb_status qb_simplify_visit(qb_replay *replay, const qb_node *node)
{
    qb_graph *target = replay->target;
    if (node->op->simplify) {
        qb_rule rule = {.graph = target,
                        .op = node->op,
                        .attribute = node->attributes,
                        .operand_count = node->operand_count,
                        .result_count = node->result_count,
                        .operand = replay->operands};
        qb_value simpler = node->op->simplify(&rule);
        QB_TRY(qb_graph_take_status(target));
        if (simpler != QB_NONE) {
            replay->map[node->result] = simpler;
            return QB_OK;
        }
    }
    return qb_replay_copy(replay, node) ? QB_OK : qb_graph_take_status(target);
}
