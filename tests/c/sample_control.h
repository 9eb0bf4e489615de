/* Sample graphs of the operations that hold graphs: loops of every kind, branches, recomputed regions, functions with
 * derivatives of their own, and each of them inside others. Included by sample_graphs.h, whose short names it uses.
 *
 * How long a loop runs and which branch is taken follow from `places`, integers that a small step does not change, so that
 * differences of values are derivatives. */

/* The part is given to the operation, which keeps it. */
static inline qb_graph *begin_part(void)
{
    qb_graph *part;
    OK(qb_graph_create(&part));
    return part;
}

static inline qb_value index_input(qb_graph *part)
{
    return check_input(part, QB_INT64, SCALAR);
}

/* Emits the loop and lets go of its graphs. */
static inline void put_loop(qb_graph *g, qb_loop loop, qb_value *results)
{
    CHECK(qb_loop_emit(g, &loop, results));
    qb_graph_release(loop.body);
    qb_graph_release(loop.condition);
}

static inline void put(qb_graph *g, const qb_op *op, int count, const qb_value *operands, int attributes,
                       qb_attribute *attribute, qb_value *results)
{
    CHECK(qb_emit_all(g, op, count, operands, attribute, results), "%s", op->name);
    for (int i = 0; i < attributes; i++) {
        if (attribute[i].kind == QB_ATTRIBUTE_GRAPH)
            qb_graph_release(attribute[i].graph);
        for (int k = 0; attribute[i].kind == QB_ATTRIBUTE_GRAPHS && k < attribute[i].count; k++)
            qb_graph_release(attribute[i].graphs[k]);
    }
}

static inline qb_value whole(qb_graph *g, double number)
{
    return qb_scalar(g, QB_INT64, number);
}

/* An element of 1 to 3 numbers out of one with an axis of more. */
static inline qb_value first_of(qb_graph *g, qb_value v)
{
    return qb_reshape(g, qb_slice(g, v, INTEGERS(0), INTEGERS(1), INTEGERS(1)), SCALAR);
}

/* ---- Loops */

/* (i, w[2]; c[2], n; x[2]) -> c' = sin(c) w + x + i / 10, n' = n + 2i; ys c x and n */
static inline qb_graph *recurrence_body(qb_dtype d)
{
    qb_graph *b = begin_part();
    qb_value i = index_input(b), w = check_input(b, d, SHAPE(2)), c = check_input(b, d, SHAPE(2));
    qb_value n = index_input(b), x = check_input(b, d, SHAPE(2));
    qb_value shift = qb_mul(b, qb_convert(b, i, d), qb_scalar(b, d, 0.1));
    out(b, qb_add(b, qb_add(b, qb_mul(b, qb_sin(b, c), w), x), qb_broadcast_to(b, shift, SHAPE(2))));
    out(b, qb_add(b, n, qb_add(b, i, i)));
    out(b, qb_mul(b, c, x));
    out(b, n);
    return b;
}

static inline void put_recurrence(qb_graph *g, qb_dtype d, const qb_value *operands, bool reverse, qb_value count)
{
    qb_value results[4];
    qb_loop loop = {.body = recurrence_body(d),
                    .capacity = 3,
                    .reverse = reverse,
                    .count = count,
                    .consts = 1,
                    .carries = 2,
                    .sequences = 1,
                    .operands = operands};
    put_loop(g, loop, results);
    for (int i = 0; i < 4; i++)
        out(g, results[i]);
}

static inline void build_loop(qb_graph *g, qb_dtype d)
{
    qb_value w = IN(2), c = IN(2), x = IN(3, 2);
    put_recurrence(g, d, (qb_value[]){w, qb_mul(g, c, c), whole(g, 5), qb_mul(g, x, x)}, false, QB_NONE);
}

static inline void build_reversed_loop(qb_graph *g, qb_dtype d)
{
    qb_value w = IN(2), c = IN(2), x = IN(3, 2);
    put_recurrence(g, d, (qb_value[]){qb_sin(g, w), c, whole(g, 5), x}, true, QB_NONE);
}

/* The number of iterations is an input: below 0, within, or above what is possible. */
static inline void build_counted_loop(qb_graph *g, qb_dtype d)
{
    qb_value t = IN_SCALAR, w = IN(2), x = IN(3, 2), count = places(g, t);
    put_recurrence(g, d, (qb_value[]){w, w, count, x}, false, count);
    put_recurrence(g, d, (qb_value[]){w, qb_mul(g, w, w), whole(g, 1), x}, true, count);
}

/* while n < limit: (c, n) -> (c w + sin(c), n + 3), y = c; with `capacity` */
static inline void build_conditioned_loop(qb_graph *g, qb_dtype d)
{
    qb_value t = IN_SCALAR, w = IN(2), c = IN(2), results[4];
    qb_graph *b = begin_part(), *test = begin_part();
    (void)index_input(b), (void)index_input(test);
    qb_value w_in = check_input(b, d, SHAPE(2)), c_in = check_input(b, d, SHAPE(2)), n = index_input(b);
    out(b, qb_add(b, qb_mul(b, c_in, w_in), qb_sin(b, c_in)));
    out(b, qb_add(b, n, whole(b, 3)));
    out(b, qb_mul(b, c_in, c_in));
    (void)check_input(test, d, SHAPE(2)), (void)check_input(test, d, SHAPE(2));
    out(test, qb_less(test, index_input(test), whole(test, 4)));
    const qb_value operands[] = {w, c, places(g, t)};
    put_loop(g,
             (qb_loop){.body = b,
                       .condition = test,
                       .capacity = 3,
                       .count = QB_NONE,
                       .consts = 1,
                       .carries = 2,
                       .operands = operands},
             results);
    for (int i = 0; i < 4; i++)
        out(g, results[i]);
}

/* Without a limit on the iterations, reverse mode must keep nothing of each: the body is linear in what is differentiated. */
static inline void build_unlimited_loop(qb_graph *g, qb_dtype d)
{
    qb_value t = IN_SCALAR, w = IN(2), p = places(g, t), results[3];
    qb_graph *b = begin_part(), *test = begin_part();
    (void)index_input(b);
    qb_value k_in = check_input(b, d, SCALAR), w_in = check_input(b, d, SHAPE(2)), c_in = check_input(b, d, SHAPE(2));
    qb_value n = index_input(b);
    out(b, qb_add(b, qb_mul(b, c_in, qb_broadcast_to(b, k_in, SHAPE(2))), w_in));
    out(b, qb_add(b, n, whole(b, 2)));
    (void)index_input(test), (void)check_input(test, d, SCALAR), (void)check_input(test, d, SHAPE(2));
    (void)check_input(test, d, SHAPE(2));
    out(test, qb_less(test, index_input(test), whole(test, 3)));
    const qb_value operands[] = {qb_convert(g, p, d), qb_sin(g, w), w, p};
    put_loop(g,
             (qb_loop){.body = b,
                       .condition = test,
                       .capacity = -1,
                       .count = QB_NONE,
                       .consts = 2,
                       .carries = 2,
                       .operands = operands},
             results);
    for (int i = 0; i < 3; i++)
        out(g, results[i]);
}

/* Iterations that are none or one, a loop that only stacks, and arrays without elements. */
static inline void build_small_loops(qb_graph *g, qb_dtype d)
{
    qb_value w = IN(2), c = IN(2), none = check_input(g, d, SHAPE(0)), results[2];
    for (int capacity = 0; capacity < 3; capacity++) {
        qb_graph *b = begin_part();
        qb_value i = index_input(b), w_in = check_input(b, d, SHAPE(2)), c_in = check_input(b, d, SHAPE(2));
        out(b, qb_mul(b, qb_sin(b, w_in), c_in));
        out(b, qb_mul(b, w_in, qb_broadcast_to(b, qb_convert(b, i, d), SHAPE(2))));
        put_loop(g,
                 (qb_loop){.body = b,
                           .capacity = capacity,
                           .count = QB_NONE,
                           .consts = 1,
                           .carries = 1,
                           .operands = (qb_value[]){w, c}},
                 results);
        out(g, results[0]);
        out(g, results[1]);
    }
    qb_graph *b = begin_part();
    qb_value i = index_input(b), w_in = check_input(b, d, SHAPE(2)), none_in = check_input(b, d, SHAPE(0));
    out(b, qb_mul(b, qb_exp(b, w_in), qb_broadcast_to(b, qb_convert(b, i, d), SHAPE(2))));
    out(b, qb_mul(b, none_in, none_in));
    put_loop(g, (qb_loop){.body = b, .capacity = 2, .count = QB_NONE, .consts = 2, .operands = (qb_value[]){w, none}},
             results);
    out(g, results[0]);
    out(g, results[1]);
}

/* An inner loop over the outer one's carry, as long as the outer index says: c' = tanh(inner(c; w) + x), y = sum c. */
static inline void build_nested_loops(qb_graph *g, qb_dtype d)
{
    qb_value w = IN(2), c = IN(2), x = IN(3, 2), results[2];
    qb_graph *b = begin_part(), *inner = begin_part();
    qb_value i = index_input(b), w_out = check_input(b, d, SHAPE(2)), c_out = check_input(b, d, SHAPE(2));
    qb_value x_out = check_input(b, d, SHAPE(2)), inner_results[2];
    (void)index_input(inner);
    qb_value w_in = check_input(inner, d, SHAPE(2)), k = check_input(inner, d, SCALAR);
    qb_value c_in = check_input(inner, d, SCALAR), s = check_input(inner, d, SCALAR);
    out(inner, qb_add(inner, qb_mul(inner, qb_sin(inner, c_in), first_of(inner, w_in)), qb_mul(inner, s, k)));
    out(inner, qb_mul(inner, c_in, s));
    put_loop(b,
             (qb_loop){.body = inner,
                       .capacity = 2,
                       .count = i,
                       .consts = 2,
                       .carries = 1,
                       .sequences = 1,
                       .operands = (qb_value[]){w_out, qb_convert(b, i, d), first_of(b, x_out), c_out}},
             inner_results);
    qb_value carried = qb_broadcast_to(b, inner_results[0], SHAPE(2));
    out(b, qb_tanh(b, qb_add(b, qb_add(b, carried, inner_results[1]), qb_mul(b, x_out, c_out))));
    out(b, qb_reduce_sum(b, c_out, 1, INTEGERS(0)));
    put_loop(g,
             (qb_loop){.body = b,
                       .capacity = 3,
                       .count = QB_NONE,
                       .consts = 1,
                       .carries = 1,
                       .sequences = 1,
                       .operands = (qb_value[]){w, c, x}},
             results);
    out(g, results[0]);
    out(g, results[1]);
}

/* ---- Branches and recomputed regions */

/* (x[2], w[2]) -> (y[2], integer) */
static inline qb_graph *branch(qb_dtype d, int which)
{
    qb_graph *b = begin_part();
    qb_value x = check_input(b, d, SHAPE(2)), w = check_input(b, d, SHAPE(2));
    out(b, which == 0 ? qb_mul(b, qb_sin(b, x), w) : which == 1 ? qb_mul(b, x, x) : qb_splat_like(b, w, 0.5));
    out(b, whole(b, which));
    return b;
}

static inline void build_switch(qb_graph *g, qb_dtype d)
{
    qb_value t = IN_SCALAR, x = IN(2), w = IN(2), results[2];
    for (int constant = 0; constant < 2; constant++) {
        qb_graph *branches[] = {branch(d, 0), branch(d, 1), branch(d, 2)};
        qb_attribute attribute = qb_subgraphs(3, branches);
        qb_value index = constant ? whole(g, 1) : places(g, t);
        put(g, &qb_op_switch, 3, (qb_value[]){index, qb_exp(g, x), w}, 1, &attribute, results);
        out(g, results[0]);
        out(g, results[1]);
    }
}

/* A loop that chooses a branch by its index, one of which is a loop that runs on until it is done. */
static inline void build_switch_in_loop(qb_graph *g, qb_dtype d)
{
    qb_value t = IN_SCALAR, w = IN(2), c = IN(2), results[3];
    qb_graph *b = begin_part(), *looped = begin_part(), *inner = begin_part(), *test = begin_part();
    (void)index_input(inner), (void)index_input(test);
    qb_value w_in = check_input(inner, d, SHAPE(2)), c_in = check_input(inner, d, SHAPE(2)), n = index_input(inner);
    out(inner, qb_mul(inner, qb_sin(inner, c_in), w_in));
    out(inner, qb_add(inner, n, whole(inner, 1)));
    (void)check_input(test, d, SHAPE(2)), (void)check_input(test, d, SHAPE(2));
    out(test, qb_less(test, index_input(test), whole(test, 2)));
    qb_value x = check_input(looped, d, SHAPE(2)), w_loop = check_input(looped, d, SHAPE(2));
    put_loop(looped,
             (qb_loop){.body = inner,
                       .condition = test,
                       .capacity = 4,
                       .count = QB_NONE,
                       .consts = 1,
                       .carries = 2,
                       .operands = (qb_value[]){w_loop, x, whole(looped, 0)}},
             results);
    out(looped, results[0]);
    out(looped, results[2]);
    qb_value i = index_input(b), shift = index_input(b), w_body = check_input(b, d, SHAPE(2));
    qb_value c_body = check_input(b, d, SHAPE(2)), chosen[2];
    qb_graph *branches[] = {branch(d, 1), looped, branch(d, 0)};
    qb_attribute attribute = qb_subgraphs(3, branches);
    put(b, &qb_op_switch, 3, (qb_value[]){qb_add(b, i, shift), c_body, w_body}, 1, &attribute, chosen);
    out(b, qb_add(b, chosen[0], w_body));
    out(b, chosen[1]);
    put_loop(g,
             (qb_loop){.body = b,
                       .capacity = 3,
                       .count = QB_NONE,
                       .consts = 2,
                       .carries = 1,
                       .operands = (qb_value[]){places(g, t), w, c}},
             results);
    out(g, results[0]);
    out(g, results[1]);
}

/* (x, w) -> (sin(x w), x + w, 2w), one of which nothing may need */
static inline qb_graph *region(qb_dtype d)
{
    qb_graph *b = begin_part();
    qb_value x = check_input(b, d, SHAPE(2)), w = check_input(b, d, SHAPE(2));
    out(b, qb_sin(b, qb_mul(b, x, w)));
    out(b, qb_add(b, x, w));
    out(b, qb_add(b, w, w));
    return b;
}

static inline void build_checkpoint(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2), w = IN(2), results[3];
    qb_attribute attribute = qb_subgraph(region(d));
    put(g, &qb_op_checkpoint, 2, (qb_value[]){qb_mul(g, x, x), w}, 1, &attribute, results);
    out(g, qb_exp(g, results[0]));
    out(g, results[2]);
}

static inline void build_checkpoint_in_loop(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2), w = IN(2), results[3];
    qb_graph *b = begin_part();
    (void)index_input(b);
    qb_value w_in = check_input(b, d, SHAPE(2)), c_in = check_input(b, d, SHAPE(2));
    qb_attribute attribute = qb_subgraph(region(d));
    put(b, &qb_op_checkpoint, 2, (qb_value[]){c_in, w_in}, 1, &attribute, results);
    out(b, results[0]);
    out(b, results[1]);
    put_loop(g,
             (qb_loop){
                 .body = b, .capacity = 3, .count = QB_NONE, .consts = 1, .carries = 1, .operands = (qb_value[]){w, x}},
             results);
    out(g, results[0]);
    out(g, results[1]);
}

/* ---- Functions with derivatives of their own: (x, w; k) -> (exp(x w) k, integers of x), k captured */

enum { CUSTOM_BODY, CUSTOM_RULE, CUSTOM_FORWARD, CUSTOM_BACKWARD };

/* The function, and its rules: (x, w, k, dx, dw) -> results and tangent; results and residual exp(x w) k; (x, w, k,
 * residual, cotangent) -> cotangents. */
static inline qb_graph *custom_part(qb_dtype d, int kind)
{
    qb_graph *b = begin_part();
    qb_value in[5];
    for (int i = 0; i < (kind == CUSTOM_BODY || kind == CUSTOM_FORWARD ? 3 : 5); i++)
        in[i] = check_input(b, d, SHAPE(2));
    qb_value y = kind == CUSTOM_BACKWARD ? in[3] : qb_mul(b, qb_exp(b, qb_mul(b, in[0], in[1])), in[2]);
    if (kind == CUSTOM_BACKWARD) {
        out(b, qb_mul(b, in[4], qb_mul(b, y, in[1])));
        out(b, qb_mul(b, in[4], qb_mul(b, y, in[0])));
        return b;
    }
    out(b, y);
    out(b, places(b, in[0]));
    if (kind == CUSTOM_FORWARD)
        out(b, y);
    if (kind == CUSTOM_RULE)
        out(b, qb_mul(b, y, qb_add(b, qb_mul(b, in[3], in[1]), qb_mul(b, in[0], in[4]))));
    return b;
}

static inline void put_custom(qb_graph *g, qb_dtype d, const qb_op *op, qb_value x, qb_value w, qb_value k,
                              qb_value *results)
{
    qb_attribute vjp[] = {qb_subgraph(NULL), qb_subgraph(NULL), qb_subgraph(NULL), qb_int(2)};
    qb_attribute jvp[] = {qb_subgraph(NULL), qb_subgraph(NULL), qb_int(2)};
    bool reverse = op == &qb_op_custom_vjp;
    qb_attribute *attribute = reverse ? vjp : jvp;
    attribute[0].graph = custom_part(d, CUSTOM_BODY);
    if (op == &qb_op_custom_end)
        attribute[1] = qb_int(1);
    else
        attribute[1].graph = custom_part(d, reverse ? CUSTOM_FORWARD : CUSTOM_RULE);
    if (reverse)
        vjp[2].graph = custom_part(d, CUSTOM_BACKWARD);
    put(g, op, 3, (qb_value[]){x, w, k}, reverse ? 3 : 2, attribute, results);
}

static inline void build_custom(qb_graph *g, qb_dtype d, const qb_op *op)
{
    qb_value x = IN(2), w = IN(2), t = IN(2), k = qb_convert(g, places(g, t), d), results[2];
    put_custom(g, d, op, qb_sin(g, x), w, k, results);
    out(g, qb_mul(g, results[0], x));
    out(g, results[1]);
}

static inline void build_custom_jvp(qb_graph *g, qb_dtype d)
{
    build_custom(g, d, &qb_op_custom_jvp);
}

static inline void build_custom_vjp(qb_graph *g, qb_dtype d)
{
    build_custom(g, d, &qb_op_custom_vjp);
}

/* What has no derivative is no obstacle where none is asked for. */
static inline void build_custom_end(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2), w = IN(2), k = qb_convert(g, places(g, w), d), results[2];
    put_custom(g, d, &qb_op_custom_end, k, qb_stop_gradient(g, k), k, results);
    out(g, qb_mul(g, results[0], x));
    out(g, results[1]);
}

/* In a loop, in a branch of a switch, in a region that is computed again: c' = tanh(custom(c, w)) */
static inline void build_custom_inside(qb_graph *g, qb_dtype d, const qb_op *op)
{
    qb_value t = IN_SCALAR, x = IN(2), w = IN(2), results[2], region_results[2], chosen[2];
    qb_graph *b = begin_part(), *taken = begin_part(), *recomputed = begin_part();
    qb_value c_in = check_input(recomputed, d, SHAPE(2)), w_in = check_input(recomputed, d, SHAPE(2));
    put_custom(recomputed, d, op, c_in, w_in, qb_splat_like(recomputed, c_in, 0.7), results);
    out(recomputed, qb_tanh(recomputed, results[0]));
    out(recomputed, qb_reduce_max(recomputed, results[1], 1, INTEGERS(0)));
    qb_value c_taken = check_input(taken, d, SHAPE(2)), w_taken = check_input(taken, d, SHAPE(2));
    qb_attribute again = qb_subgraph(recomputed);
    put(taken, &qb_op_checkpoint, 2, (qb_value[]){c_taken, w_taken}, 1, &again, region_results);
    out(taken, region_results[0]);
    out(taken, region_results[1]);
    qb_value i = index_input(b), p = index_input(b), w_body = check_input(b, d, SHAPE(2));
    qb_value c_body = check_input(b, d, SHAPE(2));
    qb_graph *branches[] = {taken, branch(d, 1)};
    qb_attribute attribute = qb_subgraphs(2, branches);
    put(b, &qb_op_switch, 3, (qb_value[]){qb_sub(b, p, i), c_body, w_body}, 1, &attribute, chosen);
    out(b, chosen[0]);
    out(b, chosen[1]);
    put_loop(g,
             (qb_loop){.body = b,
                       .capacity = 2,
                       .count = QB_NONE,
                       .consts = 2,
                       .carries = 1,
                       .operands = (qb_value[]){places(g, t), w, qb_sin(g, x)}},
             results);
    out(g, results[0]);
    out(g, results[1]);
}

static inline void build_custom_jvp_inside(qb_graph *g, qb_dtype d)
{
    build_custom_inside(g, d, &qb_op_custom_jvp);
}

static inline void build_custom_vjp_inside(qb_graph *g, qb_dtype d)
{
    build_custom_inside(g, d, &qb_op_custom_vjp);
}

#define CONTROL_SAMPLES(ROW)                                                                                           \
    ROW(loop)                                                                                                          \
    ROW(reversed_loop)                                                                                                 \
    ROW(counted_loop)                                                                                                  \
    ROW(conditioned_loop)                                                                                              \
    ROW(unlimited_loop)                                                                                                \
    ROW(small_loops)                                                                                                   \
    ROW(nested_loops)                                                                                                  \
    ROW(switch)                                                                                                        \
    ROW(switch_in_loop)                                                                                                \
    ROW(checkpoint)                                                                                                    \
    ROW(checkpoint_in_loop)                                                                                            \
    ROW(custom_jvp)                                                                                                    \
    ROW(custom_jvp_inside)                                                                                             \
    ROW(custom_vjp)                                                                                                    \
    ROW(custom_vjp_inside)                                                                                             \
    ROW(custom_end)
