/* Samples of the operations that run graphs: loops of every kind, branches, recomputation, derivatives by rule.
 * Included by sample_graphs.h, whose words they use. */

#include "control/control.h"

/* A graph to be the body of something: BODY(b) { ... } */
static inline qb_graph *new_graph(void)
{
    qb_graph *graph;
    OK(qb_graph_create(&graph));
    return graph;
}

static inline void emit_loop(qb_graph *g, qb_loop loop, qb_value *results)
{
    CHECK(qb_loop_emit(g, &loop, results));
    OK(qb_verify(loop.body));
    qb_graph_release(loop.body);
    qb_graph_release(loop.condition);
}

/* c = sin(c a) + row + 0.1 i, y = c row, over rows [capacity, 3] */
static inline qb_graph *scan_body(qb_dtype d)
{
    qb_graph *b = new_graph();
    qb_value i = check_input(b, QB_INT64, SCALAR), a = check_input(b, d, SHAPE(3)), c = check_input(b, d, SHAPE(3));
    qb_value row = check_input(b, d, SHAPE(3)), step = qb_mul(b, qb_convert(b, i, d), qb_scalar(b, d, 0.1));
    qb_value sum = qb_add(b, qb_sin(b, qb_mul(b, c, a)), qb_add(b, row, qb_broadcast_to(b, step, SHAPE(3))));
    out(b, sum);
    out(b, qb_mul(b, c, row));
    return b;
}

static inline void build_scan(qb_graph *g, qb_dtype d)
{
    qb_value operands[] = {IN(3), IN(3), IN(4, 3)}, results[2];
    for (int reverse = 0; reverse < 2; reverse++) {
        emit_loop(g,
                  (qb_loop){.body = scan_body(d),
                            .capacity = 4,
                            .reverse = reverse,
                            .count = QB_NONE,
                            .consts = 1,
                            .carries = 1,
                            .sequences = 1,
                            .operands = operands},
                  results);
        out(g, results[0]);
        out(g, results[1]);
    }
}

/* As many iterations as an input says, from none to all. */
static inline void build_counted_loop(qb_graph *g, qb_dtype d)
{
    qb_value operands[] = {IN(3), IN(3), IN(4, 3)}, count = places(g, IN_SCALAR), results[2];
    emit_loop(g,
              (qb_loop){.body = scan_body(d),
                        .capacity = 4,
                        .count = count,
                        .consts = 1,
                        .carries = 1,
                        .sequences = 1,
                        .operands = operands},
              results);
    out(g, results[0]);
    out(g, qb_sin(g, results[1]));
}

/* While n < limit, where an input decides the limit: c = c a + sin(c), n = n + 1, y = c */
static inline void build_while(qb_graph *g, qb_dtype d)
{
    qb_graph *b = new_graph(), *test = new_graph();
    (void)check_input(b, QB_INT64, SCALAR);
    (void)check_input(b, QB_INT64, SCALAR);
    qb_value a = check_input(b, d, SHAPE(3)), n = check_input(b, QB_INT64, SCALAR), c = check_input(b, d, SHAPE(3));
    out(b, qb_add(b, n, qb_scalar(b, QB_INT64, 1)));
    out(b, qb_add(b, qb_mul(b, c, a), qb_sin(b, c)));
    out(b, c);
    (void)check_input(test, QB_INT64, SCALAR);
    qb_value limit = check_input(test, QB_INT64, SCALAR);
    (void)check_input(test, d, SHAPE(3));
    qb_value now = check_input(test, QB_INT64, SCALAR);
    (void)check_input(test, d, SHAPE(3));
    out(test, qb_less(test, now, limit));
    qb_value x = IN(3), operands[] = {places(g, IN_SCALAR), IN(3), qb_scalar(g, QB_INT64, 0), x}, results[4];
    emit_loop(g,
              (qb_loop){.body = b,
                        .condition = test,
                        .capacity = 5,
                        .count = QB_NONE,
                        .consts = 2,
                        .carries = 2,
                        .operands = operands},
              results);
    for (int i = 0; i < 4; i++)
        out(g, results[(i + 1) % 4]);
}

/* An inner loop over the outer one's carry, on a constant of both. */
static inline void build_nested_loop(qb_graph *g, qb_dtype d)
{
    qb_graph *b = new_graph();
    (void)check_input(b, QB_INT64, SCALAR);
    qb_value a = check_input(b, d, SHAPE(3)), c = check_input(b, d, SHAPE(3)), rows = check_input(b, d, SHAPE(2, 3));
    qb_value inner_operands[] = {a, c, rows}, results[2];
    emit_loop(b,
              (qb_loop){.body = scan_body(d),
                        .capacity = 2,
                        .count = QB_NONE,
                        .consts = 1,
                        .carries = 1,
                        .sequences = 1,
                        .operands = inner_operands},
              results);
    out(b, results[0]);
    out(b, qb_reduce_sum(b, results[1], 1, INTEGERS(0)));
    qb_value operands[] = {IN(3), IN(3), IN(3, 2, 3)};
    emit_loop(g,
              (qb_loop){.body = b,
                        .capacity = 3,
                        .count = QB_NONE,
                        .consts = 1,
                        .carries = 1,
                        .sequences = 1,
                        .operands = operands},
              results);
    out(g, results[0]);
    out(g, results[1]);
}

/* Carries of which one does not change, and one is not used; loops that run once and not at all. */
static inline void build_odd_loops(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(3), y = IN(3), operands[] = {qb_mul(g, x, x), y, x}, results[4];
    for (int capacity = 0; capacity < 3; capacity++) {
        qb_graph *b = new_graph();
        (void)check_input(b, QB_INT64, SCALAR);
        qb_value fixed = check_input(b, d, SHAPE(3)), c = check_input(b, d, SHAPE(3));
        qb_value unused = check_input(b, d, SHAPE(3));
        out(b, fixed);
        out(b, qb_mul(b, qb_sin(b, fixed), c));
        out(b, qb_sin(b, unused));
        out(b, c);
        emit_loop(g, (qb_loop){.body = b, .capacity = capacity, .count = QB_NONE, .carries = 3, .operands = operands},
                  results);
        out(g, results[0]);
        out(g, results[1]);
        out(g, results[3]);
    }
}

static inline void build_switch(qb_graph *g, qb_dtype d)
{
    qb_graph *branches[3];
    qb_value index = places(g, IN_SCALAR), results[2];
    qb_value operands[] = {index, IN(3), IN(3)};
    for (int k = 0; k < 3; k++) {
        qb_graph *b = branches[k] = new_graph();
        qb_value x = check_input(b, d, SHAPE(3)), y = check_input(b, d, SHAPE(3));
        out(b, k == 0 ? qb_sin(b, x) : k == 1 ? qb_mul(b, x, y) : qb_splat(b, d, SHAPE(3), 2));
        out(b, k == 2 ? qb_exp(b, y) : x);
    }
    const qb_attribute attribute = qb_subgraphs(3, branches);
    CHECK(qb_emit_all(g, &qb_op_switch, 3, operands, &attribute, results));
    for (int k = 0; k < 3; k++)
        qb_graph_release(branches[k]);
    out(g, results[0]);
    out(g, qb_mul(g, results[1], results[1]));
}

static inline void build_checkpoint(qb_graph *g, qb_dtype d)
{
    qb_graph *b = new_graph();
    qb_value x = check_input(b, d, SHAPE(3)), y = check_input(b, d, SHAPE(3)), s = qb_sin(b, qb_mul(b, x, y));
    out(b, qb_mul(b, s, qb_exp(b, s)));
    out(b, qb_add(b, x, s));
    qb_value operands[] = {IN(3), IN(3)}, results[2];
    const qb_attribute attribute = qb_subgraph(b);
    CHECK(qb_emit_all(g, &qb_op_checkpoint, 2, operands, &attribute, results));
    qb_graph_release(b);
    out(g, qb_sin(g, results[0]));
    out(g, results[1]);
}

/* sin(x) y, with its derivative as the rule. */
static inline void build_custom_jvp(qb_graph *g, qb_dtype d)
{
    qb_graph *graphs[2];
    for (int k = 0; k < 2; k++) {
        qb_graph *b = graphs[k] = new_graph();
        qb_value x = check_input(b, d, SHAPE(3)), y = check_input(b, d, SHAPE(3)), s = qb_sin(b, x);
        out(b, qb_mul(b, s, y));
        if (k == 0)
            continue;
        qb_value dx = check_input(b, d, SHAPE(3)), dy = check_input(b, d, SHAPE(3));
        out(b, qb_add(b, qb_mul(b, qb_mul(b, dx, qb_cos(b, x)), y), qb_mul(b, s, dy)));
    }
    qb_value x = IN(3), operands[] = {qb_mul(g, x, x), IN(3)}, result;
    const qb_attribute attributes[] = {qb_subgraph(graphs[0]), qb_subgraph(graphs[1]), qb_int(2)};
    CHECK(qb_emit_all(g, &qb_op_custom_jvp, 2, operands, attributes, &result));
    qb_graph_release(graphs[0]);
    qb_graph_release(graphs[1]);
    out(g, qb_mul(g, result, x));
}

/* The same with a reverse rule, which keeps sin(x). Not among the samples: it has no forward mode. */
static inline void build_custom_vjp(qb_graph *g, qb_dtype d)
{
    qb_graph *graphs[3];
    for (int k = 0; k < 3; k++) {
        qb_graph *b = graphs[k] = new_graph();
        qb_value x = check_input(b, d, SHAPE(3)), y = check_input(b, d, SHAPE(3)), s;
        if (k < 2) {
            s = qb_sin(b, x);
            out(b, qb_mul(b, s, y));
            if (k == 1)
                out(b, s);
            continue;
        }
        s = check_input(b, d, SHAPE(3));
        qb_value ct = check_input(b, d, SHAPE(3));
        out(b, qb_mul(b, qb_mul(b, ct, qb_cos(b, x)), y));
        out(b, qb_mul(b, ct, s));
    }
    qb_value x = IN(3), operands[] = {qb_mul(g, x, x), IN(3)}, result;
    const qb_attribute attributes[] = {qb_subgraph(graphs[0]), qb_subgraph(graphs[1]), qb_subgraph(graphs[2]),
                                       qb_int(2)};
    CHECK(qb_emit_all(g, &qb_op_custom_vjp, 2, operands, attributes, &result));
    for (int k = 0; k < 3; k++)
        qb_graph_release(graphs[k]);
    out(g, qb_mul(g, result, x));
}

/* A value whose derivatives end. */
static inline void build_custom_end(qb_graph *g, qb_dtype d)
{
    qb_graph *b = new_graph();
    out(b, qb_sin(b, check_input(b, d, SHAPE(3))));
    qb_value x = IN(3), result;
    const qb_attribute attributes[] = {qb_subgraph(b), qb_int(5)};
    CHECK(qb_emit_all(g, &qb_op_custom_end, 1, &x, attributes, &result));
    qb_graph_release(b);
    out(g, result);
}
