/* Passes: the text of small graphs before and after, and the same values, bit for bit where the pass promises it. */
#include "graph_reference.h"
#include "passes/passes.h"
#include "passes/pipeline.h"
#include "sample_graphs.h"

enum { MOST = 64 };

static qb_graph *create(void)
{
    qb_graph *g;
    OK(qb_graph_create(&g));
    return g;
}

/* Runs one pass, compares texts, ends the graph. */
static void expect(qb_pass_visit visit, qb_graph *g, const char *expected)
{
    qb_graph *after;
    OK(qb_graph_take_status(g));
    OK(qb_pass_run(visit, g, &after));
    OK(qb_verify(after));
    check_text(after, expected);
    qb_graph_release(g);
    qb_graph_release(after);
}

#define PASS(pass, formula, expected)                                                                                  \
    do {                                                                                                               \
        qb_graph *g = create();                                                                                        \
        qb_value x = check_input(g, QB_FLOAT64, SHAPE(3)), s = check_input(g, QB_FLOAT64, SCALAR);                     \
        (void)x, (void)s;                                                                                              \
        check_output(g, formula);                                                                                      \
        expect(pass, g, "%0 = input : float64[3]\n%1 = input : float64[]\n" expected);                                 \
    } while (0)
#define FOLD(formula, expected)     PASS(qb_fold_visit, formula, expected)
#define SIMPLIFY(formula, expected) PASS(qb_simplify_visit, formula, expected)
#define NUM(c)                      qb_splat_like(g, x, c)
#define NUMBER(c)                   qb_scalar(g, QB_FLOAT64, c)

static qb_value rows_and_columns(qb_graph *g, qb_value x)
{
    qb_value rows = qb_broadcast(g, x, SHAPE(3, 3), INTEGERS(0));
    qb_value columns = qb_broadcast(g, x, SHAPE(3, 3), INTEGERS(1));
    return qb_add(g, rows, columns);
}

static void test_fold(void)
{
    /* numbers are computed */
    FOLD(qb_add(g, NUMBER(1), NUMBER(2)), "%2 = constant value=3 : float64[]\nreturn %2\n");
    FOLD(qb_div(g, NUMBER(1), NUMBER(0)), "%2 = constant value=inf : float64[]\nreturn %2\n");
    FOLD(qb_less(g, NUMBER(1), NUMBER(2)), "%2 = constant value=1 : bool[]\nreturn %2\n");
    FOLD(qb_select(g, qb_less(g, NUMBER(1), NUMBER(2)), NUMBER(3), NUMBER(4)),
         "%2 = constant value=3 : float64[]\nreturn %2\n");
    FOLD(qb_sub(g, qb_mul(g, NUMBER(3), NUMBER(4)), NUMBER(2)), "%2 = constant value=10 : float64[]\nreturn %2\n");
    FOLD(qb_emit(g, &qb_op_convert, 1, (qb_value[]){NUMBER(2.75)}, (qb_attribute[]){qb_int(QB_INT32)}),
         "%2 = constant value=2 : int32[]\nreturn %2\n");
    /* before they are repeated */
    FOLD(qb_mul(g, x, qb_add(g, NUM(1), NUM(2))), "%2 = constant value=3 : float64[]\n%3 = broadcast(%2) axes=[] : "
                                                  "float64[3]\n%4 = mul(%0, %3) : float64[3]\nreturn %4\n");
    /* what is repeated alike is computed once */
    FOLD(qb_sin(g, qb_broadcast_to(g, s, SHAPE(3))),
         "%2 = sin(%1) : float64[]\n%3 = broadcast(%2) axes=[] : float64[3]\nreturn %3\n");
    FOLD(qb_mul(g, qb_broadcast_to(g, s, SHAPE(3)), NUM(2)),
         "%2 = constant value=2 : float64[]\n%3 = mul(%1, %2) : float64[]\n%4 = broadcast(%3) axes=[] : "
         "float64[3]\nreturn %4\n");
    FOLD(qb_add(g, qb_broadcast_to(g, x, SHAPE(2, 3)), qb_broadcast_to(g, s, SHAPE(2, 3))),
         "%2 = broadcast(%1) axes=[] : float64[3]\n%3 = add(%0, %2) : float64[3]\n"
         "%4 = broadcast(%3) axes=[1] : float64[2,3]\nreturn %4\n");
    FOLD(
        qb_less(g, qb_broadcast_to(g, x, SHAPE(2, 3)), qb_broadcast_to(g, qb_sin(g, x), SHAPE(2, 3))),
        "%2 = sin(%0) : float64[3]\n%3 = less(%0, %2) : bool[3]\n%4 = broadcast(%3) axes=[1] : bool[2,3]\nreturn %4\n");
    /* what is not repeated alike stays */
    FOLD(rows_and_columns(g, x),
         "%2 = broadcast(%0) axes=[0] : float64[3,3]\n%3 = broadcast(%0) axes=[1] : float64[3,3]\n"
         "%4 = add(%2, %3) : float64[3,3]\nreturn %4\n");
    FOLD(qb_mul(g, x, NUM(2)), "%2 = constant value=2 : float64[]\n%3 = broadcast(%2) axes=[] : float64[3]\n%4 = "
                               "mul(%0, %3) : float64[3]\nreturn %4\n");
}

static void test_simplify(void)
{
    SIMPLIFY(qb_mul(g, x, NUM(1)), "return %0\n");
    SIMPLIFY(qb_mul(g, x, NUM(-1)), "%2 = neg(%0) : float64[3]\nreturn %2\n");
    SIMPLIFY(qb_div(g, x, NUM(1)), "return %0\n");
    SIMPLIFY(qb_sub(g, x, NUM(0)), "return %0\n");
    SIMPLIFY(qb_neg(g, qb_neg(g, x)), "return %0\n");
    SIMPLIFY(qb_stop_gradient(g, x), "return %0\n");
    SIMPLIFY(qb_select(g, qb_less(g, x, NUM(1)), x, x), "return %0\n");
    /* the strong product: a zero wins, and with an ordinary number it is a product */
    SIMPLIFY(qb_strong_mul(g, x, NUM(0)),
             "%2 = constant value=0 : float64[]\n%3 = broadcast(%2) axes=[] : float64[3]\nreturn %3\n");
    SIMPLIFY(qb_strong_mul(g, x, NUM(1)), "return %0\n");
    SIMPLIFY(qb_strong_mul(g, s, NUMBER(3)),
             "%2 = constant value=3 : float64[]\n%3 = mul(%1, %2) : float64[]\nreturn %3\n");
    SIMPLIFY(qb_strong_mul(g, s, NUMBER(INFINITY)),
             "%2 = constant value=inf : float64[]\n%3 = strong_mul(%1, %2) : float64[]\nreturn %3\n");
    SIMPLIFY(qb_strong_div(g, s, NUMBER(3)),
             "%2 = constant value=3 : float64[]\n%3 = div(%1, %2) : float64[]\nreturn %3\n");
    SIMPLIFY(qb_strong_div(g, s, NUMBER(0)),
             "%2 = constant value=0 : float64[]\n%3 = strong_div(%1, %2) : float64[]\nreturn %3\n");
    /* not exact for every number: -0 + 0, 0 * infinity */
    SIMPLIFY(qb_add(g, s, NUMBER(0)), "%2 = constant value=0 : float64[]\n%3 = add(%1, %2) : float64[]\nreturn %3\n");
    SIMPLIFY(qb_mul(g, s, NUMBER(0)), "%2 = constant value=0 : float64[]\n%3 = mul(%1, %2) : float64[]\nreturn %3\n");
    SIMPLIFY(qb_sub(g, s, NUMBER(-0.0)),
             "%2 = constant value=-0 : float64[]\n%3 = sub(%1, %2) : float64[]\nreturn %3\n");
    /* one number repeated stays that under every view, and its sum is a product */
    SIMPLIFY(qb_reverse(g, qb_broadcast_to(g, s, SHAPE(3)), 1, INTEGERS(0)),
             "%2 = broadcast(%1) axes=[] : float64[3]\nreturn %2\n");
    SIMPLIFY(qb_reshape(g, qb_broadcast_to(g, s, SHAPE(2, 3)), SHAPE(6)),
             "%2 = broadcast(%1) axes=[] : float64[6]\nreturn %2\n");
    SIMPLIFY(qb_reduce_sum(g, qb_broadcast_to(g, s, SHAPE(2, 3)), 1, INTEGERS(0)),
             "%2 = constant value=2 : float64[]\n%3 = mul(%1, %2) : float64[]\n%4 = broadcast(%3) axes=[] : "
             "float64[3]\nreturn %4\n");
    SIMPLIFY(qb_reduce_sum(g, qb_broadcast_to(g, s, SHAPE(0, 3)), 1, INTEGERS(0)),
             "%2 = broadcast(%1) axes=[] : float64[0,3]\n%3 = reduce_sum(%2) axes=[0] : float64[3]\nreturn %3\n");
    /* dead code falls away, in any pass */
    SIMPLIFY((qb_exp(g, x), qb_sin(g, x)), "%2 = sin(%0) : float64[3]\nreturn %2\n");
}

/* After simplification numbers have met, and are computed: the passes in their order. */
static void test_pipeline(void)
{
    qb_graph *g = create(), *after;
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(4));
    qb_value sum = qb_reduce_sum(g, qb_mul(g, NUM(2), qb_mul(g, x, NUM(1))), 1, INTEGERS(0));
    qb_value mean = qb_div(g, sum, NUMBER(4));
    check_output(g, qb_strong_mul(g, mean, qb_sub(g, NUMBER(3), NUMBER(2))));
    OK(qb_optimize(g, &after));
    check_text(after, "%0 = input : float64[4]\n"
                      "%1 = constant value=2 : float64[]\n"
                      "%2 = broadcast(%1) axes=[] : float64[4]\n"
                      "%3 = mul(%0, %2) : float64[4]\n"
                      "%4 = reduce_sum(%3) axes=[0] : float64[]\n"
                      "%5 = constant value=4 : float64[]\n"
                      "%6 = div(%4, %5) : float64[]\n"
                      "return %6\n");
    qb_graph_release(g);
    qb_graph_release(after);
}

static bool same_number(double a, double b)
{
    return (a == b && signbit(a) == signbit(b)) || (isnan(a) && isnan(b));
}

/* Identities and folding on numbers at the edges: the optimized graph gives the same, bit for bit. strong_*
 * excepted: there a zero result may change its sign, which no program can rely on. */
static void test_edges(void)
{
    const double edges[] = {0.0, -0.0, 1, -1, 2, INFINITY, -INFINITY, NAN, 5e-324};
    enum { N = sizeof edges / sizeof *edges };
    const qb_op *const ops[] = {&qb_op_add, &qb_op_sub, &qb_op_mul,  &qb_op_div,  &qb_op_max,
                                &qb_op_min, &qb_op_pow, &qb_op_less, &qb_op_equal};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        for (int c = 0; c < 3 * N; c++) {
            qb_graph *g = create(), *after;
            qb_value x = check_input(g, QB_FLOAT64, SHAPE(N)), number = qb_splat_like(g, x, edges[c % N]);
            qb_value operands[] = {c / N == 1 ? number : x, c / N == 0   ? number
                                                            : c / N == 1 ? x
                                                                         : qb_neg(g, qb_neg(g, x))};
            check_output(g, qb_emit(g, ops[k], 2, operands, NULL));
            OK(qb_optimize(g, &after));
            qb_tensor *input = check_tensor(QB_FLOAT64, SHAPE(N), edges), *before_result, *after_result;
            reference_run(g, &input, &before_result);
            reference_run(after, &input, &after_result);
            for (int i = 0; i < N; i++)
                CHECK(same_number(check_element(before_result, i), check_element(after_result, i)), "%s of %g and %g",
                      ops[k]->name, edges[i], edges[c % N]);
            qb_tensor_release(input);
            qb_tensor_release(before_result);
            qb_tensor_release(after_result);
            qb_graph_release(g);
            qb_graph_release(after);
        }
}

static void check_same(const char *name, const qb_graph *g, const qb_graph *after, qb_tensor *const *inputs)
{
    qb_tensor *expected[MOST], *found[MOST];
    CHECK(g->output_count <= MOST && after->output_count == g->output_count, "%s", name);
    reference_run(g, inputs, expected);
    reference_run(after, inputs, found);
    for (int i = 0; i < g->output_count; i++) {
        CHECK(expected[i]->dtype == found[i]->dtype, "%s", name);
        CHECK(qb_shape_equal(expected[i]->rank, expected[i]->shape, found[i]->rank, found[i]->shape), "%s", name);
        for (int64_t e = 0; e < expected[i]->size; e++) {
            double a = check_element(expected[i], e), b = check_element(found[i], e);
            CHECK(fabs(a - b) <= 1e-14 * fabs(a) || a == b || (isnan(a) && isnan(b)), "%s: %.17g became %.17g", name, a,
                  b);
        }
    }
    check_release(g->output_count, expected);
    check_release(g->output_count, found);
}

/* Every pass keeps values and invariants, on every sample, its vjp and its vmap; so do all of them, twice. */
static void check_sample(const sample *s)
{
    qb_graph *graphs[3], *after, *again;
    graphs[0] = build_sample(s, QB_FLOAT64);
    int wrt[MOST], count = 0;
    bool mapped[MOST] = {true};
    for (int i = 0; i < graphs[0]->input_count; i++)
        wrt[count++] = i;
    OK(qb_graph_vjp(graphs[0], count, wrt, &graphs[1]));
    OK(qb_graph_vmap(graphs[1], mapped, 3, &graphs[2]));
    for (int k = 0; k < 3; k++) {
        qb_tensor *inputs[MOST];
        sample_inputs(s, graphs[k], inputs);
        const qb_pass_visit visits[] = {qb_fold_visit, qb_simplify_visit};
        for (int pass = 0; pass < 2; pass++) {
            OK(qb_pass_run(visits[pass], graphs[k], &after));
            OK(qb_verify(after));
            check_same(s->name, graphs[k], after, inputs);
            qb_graph_release(after);
        }
        OK(qb_optimize(graphs[k], &after));
        OK(qb_optimize(after, &again));
        OK(qb_verify(after));
        check_same(s->name, graphs[k], again, inputs);
        qb_graph_release(after);
        qb_graph_release(again);
        check_release(graphs[k]->input_count, inputs);
        qb_graph_release(graphs[k]);
    }
}

static void test_samples(void)
{
    for (int i = 0; i < STRUCTURAL_SAMPLES; i++)
        check_sample(&structural_samples[i]);
    for (int i = 0; i < 2 * qb_op_count; i++) {
        sample s;
        if (elementwise_sample(i / 2, i % 2, &s))
            check_sample(&s);
    }
}

int main(void)
{
    test_fold();
    test_simplify();
    test_pipeline();
    test_edges();
    test_samples();
    return 0;
}
