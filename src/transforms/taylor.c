/* Taylor mode: coefficients of a function along a path, of any order, and the forward Laplacian.
 *
 * A value y along a path x(t) = x_0 + x_1 t + x_2 t^2 + ... has coefficients y_k. Three rules give all of them:
 *   linear op         y_k = op(x_k)
 *   bilinear op       y_k = sum of op(a_i, b_j) over i + j = k            (Cauchy product)
 *   any other op      y' = jvp(x; x'), the op's own derivative rule, hence y_k = (coefficient k - 1 of y') / k
 * The third turns an order into one less of an expression made of the same operations, so no op has a Taylor rule of
 * its own, and the cost of order n is O(n^2) where nesting derivatives costs O(2^n) (Griewank and Walther, Evaluating
 * Derivatives, 2008, ch. 13).
 *
 * The rules are applied to an expression graph: a copy of the source that grows by derivative expressions, in which x'
 * is an input whose coefficients are known, (x')_k = (k + 1) x_(k+1). Coefficients are values of the target.
 *
 * The forward Laplacian (Li et al., "A computational framework for neural network-based variational Monte Carlo with
 * Forward Laplacian", Nature Machine Intelligence 2024) is the same walk to order 2 over d paths at once: what has
 * weight 1 (one derivative) carries a leading axis of d directions; what has weight 2 is already summed over them,
 * since the second-order coefficient depends linearly on second-order ones. So the d second-order streams are one. */
#include "transforms/transforms.h"

#include "base/allocate.h"

typedef struct walk {
    qb_graph *expression; /* the source, then derivative expressions */
    qb_graph *target;
    int order;
    int64_t directions; /* 0: a single path, no axis of directions */
    qb_value *table;    /* [value of the expression][order + 1]: coefficients in the target; UNKNOWN, QB_NONE: zero */
    qb_value *rate;     /* of each value: the input that stands for its time derivative; UNKNOWN */
    qb_value *rated;    /* of that input: the value; UNKNOWN for others */
    qb_value *slope;    /* of each value: its derivative expression; UNKNOWN */
    int8_t *weight;     /* derivatives already taken: 1 for a rate; of a value, by the rules; -1 unknown */
    int32_t capacity;
} walk;

enum { UNKNOWN = -3 };

static qb_value coefficient(walk *w, qb_value value, int k);

static bool reserve(walk *w)
{
    int32_t count = w->expression->value_count;
    if (count <= w->capacity)
        return true;
    int32_t grown = 2 * count;
    size_t row = (size_t)w->order + 1;
    qb_value *table = qb_reallocate(w->table, (size_t)grown * row * sizeof *table);
    if (table)
        w->table = table;
    qb_value *rate = qb_reallocate(w->rate, (size_t)grown * sizeof *rate);
    if (rate)
        w->rate = rate;
    qb_value *rated = qb_reallocate(w->rated, (size_t)grown * sizeof *rated);
    if (rated)
        w->rated = rated;
    qb_value *slope = qb_reallocate(w->slope, (size_t)grown * sizeof *slope);
    if (slope)
        w->slope = slope;
    int8_t *weight = qb_reallocate(w->weight, (size_t)grown);
    if (weight)
        w->weight = weight;
    if (!table || !rate || !rated || !slope || !weight) {
        (void)qb_graph_fail(w->target, qb_fail_memory());
        return false;
    }
    for (int32_t i = w->capacity; i < grown; i++) {
        for (size_t k = 0; k < row; k++)
            table[(size_t)i * row + k] = UNKNOWN;
        rate[i] = rated[i] = slope[i] = UNKNOWN;
        weight[i] = -1;
    }
    w->capacity = grown;
    return true;
}

static qb_value *entry(walk *w, qb_value value, int k)
{
    return &w->table[(size_t)value * ((size_t)w->order + 1) + (size_t)k];
}

/* ---- Weights */

static int weight_of(walk *w, qb_value value)
{
    if (!reserve(w))
        return 0;
    if (w->weight[value] >= 0)
        return w->weight[value];
    const qb_node *node = qb_node_of(w->expression, value);
    int weight = 0;
    for (int i = 0; i < node->operand_count; i++) {
        int operand = weight_of(w, qb_operand(w->expression, node, i));
        if (node->op->flags & QB_OP_BILINEAR)
            weight += operand;
        else if (operand > weight)
            weight = operand;
    }
    w->weight[value] = (int8_t)weight;
    return weight;
}

/* ---- Emitting into the target, over the directions where an operand has them */

/* The op on operands of the given total weights. */
static qb_value emit(walk *w, const qb_node *node, qb_value *operands, const int *weights)
{
    enum { FEW = 8 };
    bool few[FEW], *mapped = node->operand_count <= FEW ? few : qb_allocate((size_t)node->operand_count);
    if (!mapped)
        return qb_graph_fail(w->target, qb_fail_memory());
    int count = 0;
    w->target->source = node->source;
    for (int i = 0; i < node->operand_count; i++)
        count += mapped[i] = w->directions > 0 && weights[i] == 1;
    qb_value result = QB_FAILED;
    if (count) {
        bool result_mapped;
        qb_status status =
            qb_batch_node(w->target, node, operands, mapped, w->directions, QB_NONE, &result, &result_mapped);
        if (status != QB_OK)
            result = qb_graph_fail(w->target, status);
    } else {
        result = qb_emit(w->target, node->op, node->operand_count, operands, node->attributes);
    }
    if (count == 2 && (node->op->flags & QB_OP_BILINEAR)) /* one derivative by one derivative: summed over directions */
        result = qb_reduce_sum(w->target, result, 1, (int64_t[]){0});
    if (mapped != few)
        qb_free(mapped);
    return result;
}

static qb_value scaled(walk *w, qb_value value, double factor)
{
    return value < 0 || factor == 1 ? value : qb_mul(w->target, value, qb_splat_like(w->target, value, factor));
}

static qb_value sum(walk *w, qb_value a, qb_value b)
{
    return a == QB_NONE ? b : b == QB_NONE ? a : qb_add(w->target, a, b);
}

/* ---- The three rules */

static qb_value zero_like(walk *w, qb_value value, int weight)
{
    const qb_value_info *info = &w->expression->values[value];
    qb_value zero = qb_splat(w->target, info->dtype, info->rank, info->shape, 0);
    return w->directions > 0 && weight == 1 ? qb_broadcast_leading(w->target, zero, w->directions) : zero;
}

/* Coefficient 0, and linear ops at any k: the op on the operands' coefficients. A zero among them has the weight of
 * the others: a constant zero beside a rate, as masks in derivative rules have it, is of weight 0 by itself. */
static qb_value apply(walk *w, const qb_node *node, int k)
{
    size_t count = (size_t)node->operand_count;
    qb_value *operands = qb_allocate(count * sizeof *operands);
    int *weights = qb_allocate(count * sizeof *weights);
    bool any = k == 0, failed = !operands || !weights;
    int weight = 0;
    for (int i = 0; !failed && i < node->operand_count; i++) {
        qb_value operand = qb_operand(w->expression, node, i);
        bool moves = k > 0 && qb_dtype_is_floating(w->expression->values[operand].dtype);
        operands[i] = coefficient(w, operand, moves ? k : 0);
        weights[i] = weight_of(w, operand) + (moves ? k : 0);
        any = any || (moves && operands[i] != QB_NONE);
        weight = weights[i] > weight ? weights[i] : weight;
    }
    for (int i = 0; !failed && any && i < node->operand_count; i++)
        if (operands[i] == QB_NONE) {
            weights[i] = weight;
            operands[i] = zero_like(w, qb_operand(w->expression, node, i), weight);
        }
    qb_value result = failed ? qb_graph_fail(w->target, qb_fail_memory())
                      : any  ? emit(w, node, operands, weights)
                             : QB_NONE;
    qb_free(operands);
    qb_free(weights);
    return result;
}

static qb_value cauchy(walk *w, const qb_node *node, int k)
{
    qb_value a = qb_operand(w->expression, node, 0), b = qb_operand(w->expression, node, 1), total = QB_NONE;
    for (int i = 0; i <= k; i++) {
        qb_value operands[2] = {coefficient(w, a, i), coefficient(w, b, k - i)};
        int weights[2] = {weight_of(w, a) + i, weight_of(w, b) + k - i};
        if (operands[0] != QB_NONE && operands[1] != QB_NONE)
            total = sum(w, total, emit(w, node, operands, weights));
    }
    return total;
}

/* Whether any coefficient beyond the first can differ from zero: whether it depends on the path. */
static bool moves(walk *w, qb_value value)
{
    for (int k = 1; k <= w->order; k++)
        if (*entry(w, value, k) != QB_NONE)
            return true;
    return false;
}

/* The input that stands for the value's time derivative. */
static qb_value rate_of(walk *w, qb_value value)
{
    if (w->rate[value] != UNKNOWN)
        return w->rate[value];
    qb_value rate;
    qb_status status = qb_graph_input_like(w->expression, NULL, w->expression, value, &rate);
    if (status != QB_OK)
        return qb_graph_fail(w->target, status);
    if (!reserve(w))
        return QB_FAILED;
    w->weight[rate] = (int8_t)(weight_of(w, value) + 1);
    w->rated[rate] = value;
    w->rate[value] = rate;
    return rate;
}

/* The derivative expression of a node's result: its op's rule on the rates of the operands that move. */
static qb_value slope_of(walk *w, qb_value value)
{
    if (w->slope[value] != UNKNOWN)
        return w->slope[value];
    qb_node node = *qb_node_of(w->expression, value);
    size_t count = (size_t)node.operand_count;
    qb_value *operands = qb_allocate(count * sizeof *operands), *tangents = qb_allocate(count * sizeof *tangents);
    qb_value slope = QB_NONE;
    bool any = false;
    for (int i = 0; operands && tangents && i < node.operand_count; i++) {
        operands[i] = qb_operand(w->expression, &node, i);
        bool floating = qb_dtype_is_floating(w->expression->values[operands[i]].dtype);
        tangents[i] = floating && moves(w, operands[i]) ? rate_of(w, operands[i]) : QB_NONE;
        any = any || tangents[i] != QB_NONE;
    }
    if (!operands || !tangents) {
        slope = qb_graph_fail(w->target, qb_fail_memory());
    } else if (any && !node.op->jvp) {
        slope = qb_graph_fail(w->target, qb_fail(QB_ERROR_UNSUPPORTED, "%s has no derivative rule", node.op->name));
    } else if (any) {
        qb_value result = value, tangent = QB_NONE; /* an op with several results was refused by `coefficient` */
        qb_rule rule = {.graph = w->expression,
                        .op = node.op,
                        .attribute = node.attributes,
                        .operand_count = node.operand_count,
                        .result_count = 1,
                        .operand = operands,
                        .result = &result,
                        .tangent = tangents,
                        .result_tangent = &tangent};
        w->expression->source = node.source;
        node.op->jvp(&rule);
        qb_status status = qb_graph_take_status(w->expression);
        slope = status == QB_OK ? tangent : qb_graph_fail(w->target, status);
    }
    qb_free(operands);
    qb_free(tangents);
    if (reserve(w))
        w->slope[value] = slope;
    return slope;
}

static qb_value compute(walk *w, qb_value value, int k)
{
    qb_node node = *qb_node_of(w->expression, value);
    if (w->rated[value] != UNKNOWN)
        return k < w->order ? scaled(w, coefficient(w, w->rated[value], k + 1), k + 1) : QB_NONE;
    if (k == 0)
        return apply(w, &node, 0);
    if (node.operand_count == 0 || (node.op->flags & QB_OP_FLAT) ||
        !qb_dtype_is_floating(w->expression->values[value].dtype))
        return QB_NONE;
    if (node.op->flags & QB_OP_LINEAR)
        return apply(w, &node, k);
    if (node.op->flags & QB_OP_BILINEAR)
        return cauchy(w, &node, k);
    for (int i = 0; i < node.operand_count; i++) /* `moves` reads the table: it must be filled */
        for (int j = 1; j <= k; j++)
            (void)coefficient(w, qb_operand(w->expression, &node, i), j);
    qb_value slope = slope_of(w, value);
    return slope < 0 ? slope : scaled(w, coefficient(w, slope, k - 1), 1.0 / k);
}

static qb_value coefficient(walk *w, qb_value value, int k)
{
    if (value < 0)
        return value;
    if (!reserve(w))
        return QB_FAILED;
    if (w->directions > 0 && weight_of(w, value) + k > 2)
        return QB_NONE;
    qb_value known = *entry(w, value, k);
    if (known != UNKNOWN)
        return known;
    qb_node node = *qb_node_of(w->expression, value);
    if (node.result_count != 1)
        return qb_graph_fail(w->target,
                             qb_fail(QB_ERROR_UNSUPPORTED,
                                     "%s has no Taylor coefficients: differentiate by grad or jvp", node.op->name));
    qb_value made = compute(w, value, k);
    *entry(w, value, k) = made; /* the table may have moved meanwhile */
    return made;
}

/* ---- The walk */

static void end(walk *w)
{
    qb_graph_release(w->expression);
    qb_free(w->table);
    qb_free(w->rate);
    qb_free(w->rated);
    qb_free(w->slope);
    qb_free(w->weight);
}

/* Copies the source, and fills in the coefficients of its inputs. */
static qb_status begin(walk *w, const qb_graph *source, const qb_value *inputs)
{
    QB_TRY(qb_graph_copy_notes(source, w->target));
    QB_TRY(qb_graph_like(source, &w->expression));
    qb_value *outputs = qb_allocate((size_t)source->output_count * sizeof *outputs);
    qb_status status = outputs ? qb_inline(source, w->expression, w->expression->inputs, outputs) : qb_fail_memory();
    for (int i = 0; status == QB_OK && i < source->output_count; i++)
        status = qb_graph_output(w->expression, outputs[i]);
    qb_free(outputs);
    if (status != QB_OK || !reserve(w))
        return status != QB_OK ? status : qb_graph_take_status(w->target);
    for (int i = 0; i < source->input_count; i++)
        for (int k = 0; k <= w->order; k++)
            *entry(w, w->expression->inputs[i], k) = inputs[i * (w->order + 1) + k];
    return QB_OK;
}

static qb_status run(walk *w, const qb_graph *source, const qb_value *inputs, qb_value *outputs)
{
    QB_TRY(begin(w, source, inputs));
    int32_t nodes = w->expression->node_count;
    for (int k = 0; k <= w->order; k++) /* in order, so that the recursion stays within a derivative expression */
        for (int32_t n = 0; n < nodes; n++)
            for (int i = 0; i < w->expression->nodes[n].result_count; i++)
                if (coefficient(w, w->expression->nodes[n].result + i, k) == QB_FAILED)
                    return qb_graph_take_status(w->target);
    for (int i = 0; i < source->output_count; i++)
        for (int k = 0; k <= w->order; k++)
            outputs[i * (w->order + 1) + k] = coefficient(w, w->expression->outputs[i], k);
    return qb_graph_take_status(w->target);
}

qb_status qb_taylor(const qb_graph *source, qb_graph *target, int order, const qb_value *inputs, qb_value *outputs)
{
    walk w = {.target = target, .order = order};
    int32_t source_before = target->source;
    qb_status status = run(&w, source, inputs, outputs);
    target->source = source_before;
    end(&w);
    return status;
}

qb_status qb_laplacian(const qb_graph *source, qb_graph *target, int64_t directions, const qb_value *primals,
                       const qb_value *tangents, qb_value *outputs)
{
    walk w = {.target = target, .order = 2, .directions = directions};
    int32_t source_before = target->source;
    qb_value *inputs = qb_allocate(3 * (size_t)source->input_count * sizeof *inputs);
    qb_status status = inputs ? QB_OK : qb_fail_memory();
    for (int i = 0; status == QB_OK && i < source->input_count; i++) {
        inputs[3 * i] = primals[i];
        inputs[3 * i + 1] = tangents[i];
        inputs[3 * i + 2] = QB_NONE;
    }
    if (status == QB_OK)
        status = run(&w, source, inputs, outputs);
    for (int i = 0; status == QB_OK && i < source->output_count; i++) /* a coefficient is half a derivative */
        outputs[3 * i + 2] = scaled(&w, outputs[3 * i + 2], 2);
    if (status == QB_OK)
        status = qb_graph_take_status(target);
    target->source = source_before;
    end(&w);
    qb_free(inputs);
    return status;
}
