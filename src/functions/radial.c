/* The square of a root is what stands under it, before any derivative is taken.
 *
 * The derivatives of a root are 0 where it is 0, by convention, so the square of a norm would have second derivatives 0
 * at its centre and not 2, silently. What stands under the root replaces the square where it is surely not negative:
 * sums of squares and what else is recognised here. The root may be scaled, negated and moved about. Elsewhere the
 * square stays a square: under a root that may be negative the value is NaN. */
#include "functions/builder.h"

#include <math.h>

/* Nodes looked at for one square. */
enum { MOST_NODES = 256, MOST_CONSTANTS = 4096 };

static bool is_nonnegative(const qb_graph *g, qb_value x, int *budget);

/* a times b is a square, but for a factor that is not negative. */
static bool is_square(const qb_graph *g, qb_value a, qb_value b, int *budget)
{
    if (a == b)
        return true;
    const qb_value pair[] = {a, b};
    for (int i = 0; i < 2; i++) {
        const qb_node *node = qb_node_of(g, pair[i]);
        if (node->op != &qb_op_mul)
            continue;
        for (int k = 0; k < 2; k++)
            if (qb_operand(g, node, k) == pair[1 - i])
                return is_nonnegative(g, qb_operand(g, node, 1 - k), budget);
    }
    return false;
}

/* A contraction of an array with itself over axes that pair with themselves. */
static bool is_square_sum(const qb_graph *g, const qb_node *node, int *budget)
{
    const qb_attribute *at = node->attributes;
    int rank = qb_graph_rank(g, qb_operand(g, node, 0));
    bool alike = at[0].count + at[2].count == rank && qb_graph_rank(g, qb_operand(g, node, 1)) == rank;
    for (int i = 0; alike && i < at[0].count; i++)
        alike = at[0].integers[i] == at[1].integers[i];
    for (int i = 0; alike && i < at[2].count; i++)
        alike = at[2].integers[i] == at[3].integers[i];
    return alike && is_square(g, qb_operand(g, node, 0), qb_operand(g, node, 1), budget);
}

static bool is_nonnegative_constant(const qb_tensor *tensor)
{
    if (!qb_dtype_is_floating(tensor->dtype) || tensor->size > MOST_CONSTANTS)
        return false;
    for (int64_t i = 0; i < tensor->size; i++)
        if (!(qb_dtype_load(tensor->dtype, (const char *)tensor->data + (size_t)i * qb_dtype_size(tensor->dtype)) >= 0))
            return false;
    return true;
}

static bool all_nonnegative(const qb_graph *g, const qb_node *node, int first, int count, int *budget)
{
    for (int i = first; i < count; i++)
        if (!is_nonnegative(g, qb_operand(g, node, i), budget))
            return false;
    return true;
}

static bool is_even_power(const qb_graph *g, const qb_node *node)
{
    double exponent;
    return qb_splat_number(g, qb_operand(g, node, 1), &exponent) && fmod(exponent, 2) == 0;
}

/* Whether no element is below 0 (NaN is not). */
static bool is_nonnegative(const qb_graph *g, qb_value x, int *budget)
{
    if (x < 0 || --*budget < 0)
        return false;
    const qb_node *node = qb_node_of(g, x);
    const qb_op *op = node->op;
    if (op == &qb_op_constant)
        return is_nonnegative_constant(node->attributes[0].tensor);
    if (op == &qb_op_abs || op == &qb_op_exp || op == &qb_op_exp2 || op == &qb_op_cosh || op == &qb_op_hypot ||
        op == &qb_op_reduce_norm || op == &qb_op_sqrt || op == &qb_op_sigmoid || op == &qb_op_softplus)
        return true;
    if (op == &qb_op_mul && is_square(g, qb_operand(g, node, 0), qb_operand(g, node, 1), budget))
        return true;
    if (op == &qb_op_pow && is_even_power(g, node))
        return true;
    if (op == &qb_op_dot && is_square_sum(g, node, budget))
        return true;
    if (op == &qb_op_mul || op == &qb_op_dot || op == &qb_op_add || op == &qb_op_div || op == &qb_op_min ||
        op == &qb_op_concat || (op == &qb_op_convert && qb_dtype_is_floating(g->values[x].dtype)))
        return all_nonnegative(g, node, 0, node->operand_count, budget);
    if (op == &qb_op_select)
        return all_nonnegative(g, node, 1, 3, budget);
    if (op == &qb_op_pow || op == &qb_op_gather || op == &qb_op_reduce_sum || op == &qb_op_reduce_prod ||
        op == &qb_op_reduce_max || op == &qb_op_reduce_min || op == &qb_op_pad || (op->flags & QB_OP_VIEW))
        return all_nonnegative(g, node, 0, 1, budget);
    return false;
}

static qb_value square_of_root(qb_graph *g, qb_value x, int *budget);

static qb_value square_of(qb_graph *g, qb_value x, int *budget)
{
    qb_value square = square_of_root(g, x, budget);
    return square == QB_NONE ? qb_mul(g, x, x) : square;
}

/* x^2 without the root in it; QB_NONE where there is none. */
static qb_value square_of_root(qb_graph *g, qb_value x, int *budget)
{
    if (x < 0 || --*budget < 0)
        return QB_NONE;
    qb_node node = *qb_node_of(g, x);
    qb_value a = node.operand_count > 0 ? qb_operand(g, &node, 0) : QB_NONE;
    qb_value b = node.operand_count > 1 ? qb_operand(g, &node, 1) : QB_NONE;
    if (node.op == &qb_op_sqrt)
        return is_nonnegative(g, a, budget) ? a : QB_NONE;
    if (node.op == &qb_op_hypot)
        return qb_add(g, square_of(g, a, budget), square_of(g, b, budget));
    if (node.op == &qb_op_reduce_norm)
        return qb_reduce_sum(g, square_of(g, a, budget), node.attributes[0].count, node.attributes[0].integers);
    if (node.op == &qb_op_abs)
        return square_of(g, a, budget);
    if (node.op == &qb_op_neg)
        return square_of_root(g, a, budget);
    if (node.op->flags & QB_OP_VIEW) {
        qb_value square = square_of_root(g, a, budget);
        return square == QB_NONE ? QB_NONE : qb_emit(g, node.op, 1, &square, node.attributes);
    }
    if (node.op == &qb_op_div) {
        qb_value square = square_of_root(g, a, budget);
        return square == QB_NONE ? QB_NONE : qb_div(g, square, qb_mul(g, b, b));
    }
    for (int i = 0; node.op == &qb_op_mul && i < 2; i++) {
        qb_value scale = i == 0 ? b : a, square = square_of_root(g, i == 0 ? a : b, budget);
        if (square != QB_NONE)
            return qb_mul(g, qb_mul(g, scale, scale), square);
    }
    return QB_NONE;
}

qb_value qb_square_of_root(qb_graph *graph, qb_value x)
{
    int budget = MOST_NODES;
    return square_of_root(graph, x, &budget);
}
