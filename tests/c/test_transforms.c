/* Transforms, on every primitive: jvp against finite differences, reverse against forward by inner products, vmap
 * against slices, split against the whole; the same of the derivatives' own graphs, which gives the second order; then
 * known derivatives of nested transforms, conventions at kinks, and errors. */
#include "sample_graphs.h"

#include "transforms/transforms.h"

static qb_context *context;

enum { MOST = 512 };

/* ---- Numbers of several tensors, taken together */

typedef struct arrays {
    int count;
    qb_tensor *at[MOST];
} arrays;

static arrays run(const qb_graph *graph, const arrays *inputs)
{
    arrays outputs = {.count = graph->output_count};
    CHECK(graph->output_count <= MOST && inputs->count == graph->input_count);
    check_run(context, graph, inputs->at, outputs.at);
    return outputs;
}

static void end(arrays *a)
{
    check_release(a->count, a->at);
}

static bool is_floating(const qb_tensor *tensor)
{
    return qb_dtype_is_floating(tensor->dtype);
}

static qb_tensor *random_like(const qb_tensor *tensor)
{
    qb_tensor *random = check_tensor(tensor->dtype, tensor->rank, tensor->shape, NULL);
    for (int64_t i = 0; i < random->size; i++)
        qb_dtype_store(random->dtype, 2 * check_random() - 1,
                       (char *)random->data + (size_t)i * qb_dtype_size(random->dtype));
    return random;
}

/* Both lists joined, without references of its own. */
static arrays joined(arrays a, arrays b)
{
    CHECK(a.count + b.count <= MOST);
    for (int i = 0; i < b.count; i++)
        a.at[a.count + i] = b.at[i];
    a.count += b.count;
    return a;
}

/* Random arrays like the floating ones of `a`. */
static arrays directions(const arrays *a)
{
    arrays random = {0};
    for (int i = 0; i < a->count; i++)
        if (is_floating(a->at[i]))
            random.at[random.count++] = random_like(a->at[i]);
    return random;
}

/* x + step * t, the floating ones. */
static arrays moved(const arrays *x, const arrays *t, double step)
{
    arrays sum = {.count = x->count};
    for (int i = 0, k = 0; i < x->count; i++) {
        sum.at[i] = check_tensor(x->at[i]->dtype, x->at[i]->rank, x->at[i]->shape, NULL);
        memcpy(sum.at[i]->data, x->at[i]->data, qb_tensor_bytes(x->at[i]));
        if (!is_floating(x->at[i]))
            continue;
        for (int64_t e = 0; e < x->at[i]->size; e++)
            qb_dtype_store(sum.at[i]->dtype, check_element(x->at[i], e) + step * check_element(t->at[k], e),
                           (char *)sum.at[i]->data + (size_t)e * qb_dtype_size(sum.at[i]->dtype));
        k++;
    }
    return sum;
}

static double inner_product(int count, qb_tensor *const *a, qb_tensor *const *b, double *magnitude)
{
    double sum = 0;
    for (int i = 0; i < count; i++) {
        CHECK(a[i]->dtype == b[i]->dtype && qb_shape_equal(a[i]->rank, a[i]->shape, b[i]->rank, b[i]->shape));
        for (int64_t e = 0; e < a[i]->size; e++) {
            double term = check_element(a[i], e) * check_element(b[i], e);
            sum += term;
            *magnitude += fabs(term);
        }
    }
    return sum;
}

static int floating_inputs(const qb_graph *graph, int *wrt)
{
    int count = 0;
    for (int i = 0; i < graph->input_count; i++)
        if (qb_dtype_is_floating(graph->values[graph->inputs[i]].dtype))
            wrt[count++] = i;
    return count;
}

/* ---- The laws */

/* f'(x) t by the five-point formula, whose error is of fourth order in the step. */
static void check_against_differences(const char *name, const qb_graph *f, const arrays *x, const arrays *t,
                                      const arrays *results)
{
    const double step = 1e-3;
    arrays y[4];
    for (int k = 0; k < 4; k++) {
        arrays at = moved(x, t, (const double[]){-2, -1, 1, 2}[k] * step);
        y[k] = run(f, &at);
        end(&at);
    }
    for (int i = 0, tangent = f->output_count; i < f->output_count; i++) {
        if (!is_floating(y[0].at[i]))
            continue;
        const qb_tensor *found = results->at[tangent++];
        CHECK(qb_shape_equal(found->rank, found->shape, y[0].at[i]->rank, y[0].at[i]->shape), "%s", name);
        for (int64_t e = 0; e < found->size; e++) {
            double near = check_element(y[2].at[i], e) - check_element(y[1].at[i], e);
            double far = check_element(y[3].at[i], e) - check_element(y[0].at[i], e);
            double expected = (8 * near - far) / (12 * step);
            CHECK(fabs(check_element(found, e) - expected) <= 1e-7 * (1 + fabs(expected)),
                  "%s: tangent %lld of output %d is %.12g, by differences %.12g", name, (long long)e, i,
                  check_element(found, e), expected);
        }
    }
    for (int k = 0; k < 4; k++)
        end(&y[k]);
}

/* <J t, w> = <t, J' w> */
static void check_reverse(const char *name, const qb_graph *reverse, int outputs, const arrays *x, const arrays *t,
                          const arrays *results)
{
    arrays forward = {.count = results->count - outputs};
    memcpy(forward.at, results->at + outputs, (size_t)forward.count * sizeof *forward.at);
    arrays w = directions(&forward), inputs = joined(*x, w), found = run(reverse, &inputs);
    CHECK(found.count == outputs + t->count, "%s", name);
    double magnitude = 1e-12, left = inner_product(w.count, forward.at, w.at, &magnitude);
    double right = inner_product(t->count, t->at, found.at + outputs, &magnitude);
    CHECK(fabs(left - right) <= 1e-12 * magnitude, "%s: forward gives %.17g, reverse %.17g", name, left, right);
    end(&w);
    end(&found);
}

static void check_equal(const char *name, const arrays *a, const arrays *b, double tolerance)
{
    CHECK(a->count == b->count, "%s", name);
    for (int i = 0; i < a->count; i++) {
        const qb_tensor *x = a->at[i], *y = b->at[i];
        CHECK(x->dtype == y->dtype && qb_shape_equal(x->rank, x->shape, y->rank, y->shape), "%s: output %d", name, i);
        for (int64_t e = 0; e < x->size; e++) {
            double p = check_element(x, e), q = check_element(y, e);
            CHECK(p == q || fabs(p - q) <= tolerance * (1 + fabs(p)), "%s: element %lld of output %d: %.17g and %.17g",
                  name, (long long)e, i, p, q);
        }
    }
}

/* Entry k of the leading axis. */
static qb_tensor *entry(const qb_tensor *batched, int64_t k)
{
    qb_tensor *slice = check_tensor(batched->dtype, batched->rank - 1, batched->shape + 1, NULL);
    if (slice->size > 0)
        memcpy(slice->data, (char *)batched->data + (size_t)k * qb_tensor_bytes(slice), qb_tensor_bytes(slice));
    return slice;
}

/* The batched graph, on `size` examples, against the graph on each of them; inputs outside the mask are shared. */
static void check_vmap(const char *name, const sample *s, const qb_graph *f, unsigned mask, int64_t size)
{
    bool mapped[MOST];
    qb_graph *batched;
    for (int i = 0; i < f->input_count; i++)
        mapped[i] = mask >> i & 1;
    CHECK(qb_graph_vmap(f, mapped, size, &batched) == QB_OK, "%s", name);
    arrays inputs = {.count = f->input_count};
    sample_inputs(s, batched, inputs.at);
    arrays outputs = run(batched, &inputs);
    for (int64_t k = 0; k < size; k++) {
        arrays example = {.count = inputs.count}, picked = {.count = outputs.count};
        for (int i = 0; i < inputs.count; i++)
            example.at[i] = mapped[i] ? entry(inputs.at[i], k) : qb_tensor_retain(inputs.at[i]);
        for (int i = 0; i < outputs.count; i++)
            picked.at[i] = entry(outputs.at[i], k);
        arrays expected = run(f, &example);
        check_equal(name, &expected, &picked, 1e-13);
        end(&example);
        end(&picked);
        end(&expected);
    }
    for (int i = 0; i < outputs.count; i++)
        CHECK(outputs.at[i]->rank > 0 && outputs.at[i]->shape[0] == size, "%s", name);
    end(&inputs);
    end(&outputs);
    qb_graph_release(batched);
}

static void check_every_vmap(const char *name, const sample *s, const qb_graph *f)
{
    unsigned all = (1u << f->input_count) - 1;
    for (unsigned mask = 0; mask <= all; mask += f->input_count <= 4 ? 1 : all / 5)
        check_vmap(name, s, f, mask, 3);
    check_vmap(name, s, f, all, 1);
    check_vmap(name, s, f, all, 0);
}

/* The two parts of a graph, one after the other, give what the whole gives. */
static void check_split(const char *name, const qb_graph *whole, int early_inputs, int early_outputs,
                        const arrays *inputs, const arrays *expected)
{
    bool late_input[MOST];
    qb_graph *early, *late;
    for (int i = 0; i < inputs->count; i++)
        late_input[i] = i >= early_inputs;
    CHECK(qb_split(whole, late_input, early_outputs, true, &early, &late) == QB_OK, "%s", name);
    arrays first = *inputs, rest = {.count = inputs->count - early_inputs};
    first.count = early_inputs;
    memcpy(rest.at, inputs->at + early_inputs, (size_t)rest.count * sizeof *rest.at);
    arrays known = run(early, &first), residuals = {.count = known.count - early_outputs};
    memcpy(residuals.at, known.at + early_outputs, (size_t)residuals.count * sizeof *residuals.at);
    arrays all = joined(residuals, rest), later = run(late, &all), found = known;
    found.count = early_outputs;
    found = joined(found, later);
    check_equal(name, expected, &found, 1e-13);
    end(&residuals);
    end(&found);
    qb_graph_release(early);
    qb_graph_release(late);
}

static void check_transforms(const char *name, const sample *s, const qb_graph *f, const arrays *x, int order)
{
    int wrt[MOST], count = floating_inputs(f, wrt);
    qb_graph *forward, *reverse, *linear;
    CHECK(qb_graph_jvp(f, count, wrt, &forward) == QB_OK, "%s", name);
    CHECK(qb_graph_linearize(f, count, wrt, &linear) == QB_OK, "%s", name);
    CHECK(qb_graph_vjp(f, count, wrt, &reverse) == QB_OK, "%s", name);
    arrays t = directions(x), both = joined(*x, t), results = run(forward, &both);
    check_against_differences(name, f, x, &t, &results);
    check_reverse(name, reverse, f->output_count, x, &t, &results);
    check_split(name, linear, x->count, f->output_count, &both, &results);
    check_every_vmap(name, s, f);
    if (order > 1) {
        char longer[256];
        (void)snprintf(longer, sizeof longer, "jvp of %s", name);
        check_transforms(longer, s, forward, &both, order - 1);
        arrays w = {.count = reverse->input_count - f->input_count};
        for (int i = 0; i < w.count; i++)
            w.at[i] = random_like(results.at[f->output_count + i]);
        arrays inputs = joined(*x, w);
        (void)snprintf(longer, sizeof longer, "vjp of %s", name);
        check_transforms(longer, s, reverse, &inputs, order - 1);
        end(&w);
    }
    end(&t);
    end(&results);
    qb_graph_release(forward);
    qb_graph_release(linear);
    qb_graph_release(reverse);
}

static bool seen[256];

static void note_ops(const qb_graph *g)
{
    CHECK(qb_op_count <= 256);
    for (int32_t n = 0; n < g->node_count; n++)
        for (int i = 0; i < qb_op_count; i++)
            seen[i] = seen[i] || qb_ops[i] == g->nodes[n].op;
}

static void check_sample(const sample *s)
{
    qb_graph *g = build_sample(s, QB_FLOAT64);
    arrays x = {.count = g->input_count};
    note_ops(g);
    sample_inputs(s, g, x.at);
    check_transforms(s->name, s, g, &x, 2);
    end(&x);
    qb_graph_release(g);
}

/* Derivatives of a float32 graph stay in float32. */
static void check_single_precision(const sample *s)
{
    qb_graph *g = build_sample(s, QB_FLOAT32), *derived[3];
    int wrt[MOST], count = floating_inputs(g, wrt);
    bool mapped[MOST] = {true, true, true, true, true};
    OK(qb_graph_jvp(g, count, wrt, &derived[0]));
    OK(qb_graph_vjp(g, count, wrt, &derived[1]));
    OK(qb_graph_vmap(g, mapped, 2, &derived[2]));
    for (int k = 0; k < 3; k++) {
        for (int32_t v = 0; v < derived[k]->value_count; v++)
            CHECK(derived[k]->values[v].dtype != QB_FLOAT64, "%s", s->name);
        arrays x = {.count = derived[k]->input_count};
        sample_inputs(s, derived[k], x.at);
        arrays y = run(derived[k], &x);
        end(&x);
        end(&y);
        qb_graph_release(derived[k]);
    }
    qb_graph_release(g);
}

/* x sin(x^2) y, what the sample of custom_vjp stands for. */
static qb_graph *plain_custom(void)
{
    qb_graph *g = new_graph();
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(3)), y = check_input(g, QB_FLOAT64, SHAPE(3));
    check_output(g, qb_mul(g, qb_mul(g, qb_sin(g, qb_mul(g, x, x)), y), x));
    return g;
}

/* What reverse mode transposes: the primal, then what is linear in tangents. */
static qb_graph *separate_jvp(const qb_graph *g)
{
    qb_graph *target;
    qb_value tangents[MOST], primals_out[MOST], tangents_out[MOST];
    OK(qb_graph_like(g, &target));
    for (int i = 0; i < g->input_count; i++)
        OK(qb_graph_input_like(target, NULL, g, g->inputs[i], &tangents[i]));
    OK(qb_jvp(g, target, QB_FORWARD_SEPARATE, target->inputs, tangents, primals_out, tangents_out));
    check_output(target, tangents_out[0]);
    return target;
}

/* The gradient is that of the function it stands for, by a linear node that is there only until it is transposed;
 * there is no forward mode. */
static void test_custom_vjp(void)
{
    const sample *s = &underivable_samples[0];
    const int wrt[] = {0, 1};
    qb_graph *g = build_sample(s, QB_FLOAT64), *plain = plain_custom(), *linear, *reverse, *expected;
    FAILS(qb_graph_jvp(g, 2, wrt, &linear), QB_ERROR_VALUE, "forward mode of a custom_vjp");
    FAILS(qb_graph_linearize(g, 2, wrt, &linear), QB_ERROR_VALUE, "forward mode of a custom_vjp");
    linear = separate_jvp(g);
    note_ops(g);
    note_ops(linear);
    check_every_vmap(s->name, s, g);
    OK(qb_graph_vjp(g, 2, wrt, &reverse));
    OK(qb_graph_vjp(plain, 2, wrt, &expected));
    arrays x = {.count = reverse->input_count};
    sample_inputs(s, reverse, x.at);
    arrays a = run(reverse, &x), b = run(expected, &x);
    check_equal(s->name, &a, &b, 1e-14);
    check_transforms("vjp of custom_vjp", s, reverse, &x, 1);
    end(&x);
    end(&a);
    end(&b);
    qb_graph_release(g);
    qb_graph_release(linear);
    qb_graph_release(reverse);
    qb_graph_release(plain);
    qb_graph_release(expected);
}

static void test_custom_end(void)
{
    const sample *s = &underivable_samples[1];
    const int wrt[] = {0};
    qb_graph *g = build_sample(s, QB_FLOAT64), *derivative;
    note_ops(g);
    check_every_vmap(s->name, s, g);
    FAILS(qb_graph_jvp(g, 1, wrt, &derivative), QB_ERROR_VALUE, "up to order 5");
    FAILS(qb_graph_vjp(g, 1, wrt, &derivative), QB_ERROR_VALUE, "up to order 5");
    qb_graph_release(g);
}

static void test_every_operation(void)
{
    for (int i = 0; i < STRUCTURAL_SAMPLES; i++) {
        check_sample(&structural_samples[i]);
        check_single_precision(&structural_samples[i]);
    }
    for (int i = 0; i < 2 * qb_op_count; i++) {
        sample s;
        if (!elementwise_sample(i / 2, i % 2, &s))
            continue;
        check_sample(&s);
        check_single_precision(&s);
    }
    test_custom_vjp();
    test_custom_end();
    for (int i = 0; i < qb_op_count; i++)
        CHECK(seen[i], "no sample has %s", qb_ops[i]->name);
}

/* ---- Known values */

static double number(const qb_graph *graph, int output, int input_count, const double *inputs)
{
    arrays x = {.count = input_count};
    for (int i = 0; i < input_count; i++)
        x.at[i] = check_tensor(QB_FLOAT64, SCALAR, &inputs[i]);
    arrays y = run(graph, &x);
    double result = check_element(y.at[output], 0);
    end(&x);
    end(&y);
    return result;
}

/* A graph with output 0 and 1 of `graph` taken for 0: the derivative alone. Ends `graph`. */
static qb_graph *only_output(qb_graph *graph, int index)
{
    qb_graph *alone;
    qb_value outputs[MOST];
    OK(qb_graph_like(graph, &alone));
    OK(qb_inline(graph, alone, alone->inputs, outputs));
    OK(qb_graph_output(alone, outputs[index]));
    qb_graph_release(graph);
    return alone;
}

static qb_graph *derivative(const qb_graph *graph, int wrt)
{
    qb_graph *gradient;
    OK(qb_graph_gradient(graph, 1, &wrt, &gradient));
    return only_output(gradient, graph->output_count);
}

/* The same by vjp with cotangent 1 and by jvp with tangent 1. */
static qb_graph *derivative_by(const qb_graph *graph, int wrt, bool reverse)
{
    qb_graph *pulled, *target;
    qb_value arguments[MOST], outputs[MOST];
    OK((reverse ? qb_graph_vjp : qb_graph_jvp)(graph, 1, &wrt, &pulled));
    OK(qb_graph_like(graph, &target));
    memcpy(arguments, target->inputs, (size_t)target->input_count * sizeof *arguments);
    arguments[graph->input_count] = qb_scalar(target, QB_FLOAT64, 1);
    OK(qb_inline(pulled, target, arguments, outputs));
    OK(qb_graph_output(target, outputs[1]));
    qb_graph_release(pulled);
    return target;
}

static void expect_near(const char *what, double found, double expected, double tolerance)
{
    CHECK(fabs(found - expected) <= tolerance * fabs(expected), "%s: %.17g, expected %.17g", what, found, expected);
}

/* exp(sin x) and its first four derivatives, each mode of differentiation applied to each: y' = y c, and so on. */
static void test_orders(void)
{
    const double x = 0.7, s = sin(x), c = cos(x), y = exp(s);
    const double expected[] = {y, y * c, y * (c * c - s), y * c * (c * c - 3 * s - 1),
                               y * (c * c * c * c - 6 * s * c * c + 3 * s * s - 4 * c * c + s)};
    for (int modes = 0; modes < 81; modes++) {
        qb_graph *g;
        OK(qb_graph_create(&g));
        out(g, qb_exp(g, qb_sin(g, check_input(g, QB_FLOAT64, SCALAR))));
        for (int order = 1, rest = modes; order <= 4; order++, rest /= 3) {
            qb_graph *next = rest % 3 == 0 ? derivative(g, 0) : derivative_by(g, 0, rest % 3 == 1);
            qb_graph_release(g);
            g = next;
            expect_near("a derivative of exp(sin(x))", number(g, 0, 1, &x), expected[order], 1e-12);
        }
        qb_graph_release(g);
    }
}

/* d/dw (d/dx sin(x w))^2 at x = 0.3, w = 1.2 */
static void test_derivative_of_squared_derivative(void)
{
    const double at[] = {0.3, 1.2};
    qb_graph *g;
    OK(qb_graph_create(&g));
    qb_value x = check_input(g, QB_FLOAT64, SCALAR), w = check_input(g, QB_FLOAT64, SCALAR);
    out(g, qb_sin(g, qb_mul(g, x, w)));
    for (int mode = 0; mode < 3; mode++) {
        qb_graph *inner = mode == 0 ? derivative(g, 0) : derivative_by(g, 0, mode == 1), *square, *outer;
        qb_value u;
        OK(qb_graph_like(inner, &square));
        OK(qb_inline(inner, square, square->inputs, &u));
        out(square, qb_mul(square, u, u));
        outer = derivative(square, 1);
        expect_near("d/dw (d/dx sin(x w))^2", number(outer, 0, 2, at), 1.8173126966773971, 1e-14);
        qb_graph_release(inner);
        qb_graph_release(square);
        qb_graph_release(outer);
    }
    qb_graph_release(g);
}

/* The Hessian of x -> exp(a sum x) + prod x, by vmap of the jvp of the gradient over unit tangents. */
static void test_hessian(void)
{
    enum { N = 4 };
    const double at[N] = {0.5, -0.25, 1.5, 0.75}, sum = 2.5, product = 0.5 * -0.25 * 1.5 * 0.75;
    const int64_t vector[] = {N}, axis = 0;
    qb_graph *f, *gradient, *forward, *batched;
    OK(qb_graph_create(&f));
    qb_value x = check_input(f, QB_FLOAT64, 1, vector);
    out(f, qb_add(f, qb_exp(f, qb_reduce_sum(f, x, 1, &axis)), qb_reduce_prod(f, x, 1, &axis)));
    gradient = derivative(f, 0);
    OK(qb_graph_jvp(gradient, 1, (const int[]){0}, &forward));
    OK(qb_graph_vmap(forward, (const bool[]){false, true}, N, &batched));
    double identity[N * N] = {0};
    for (int i = 0; i < N; i++)
        identity[i * N + i] = 1;
    arrays inputs = {2, {check_tensor(QB_FLOAT64, 1, vector, at), check_tensor(QB_FLOAT64, SHAPE(N, N), identity)}};
    arrays outputs = run(batched, &inputs);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            expect_near("an entry of the Hessian", check_element(outputs.at[1], i * N + j),
                        exp(sum) + (i == j ? 0 : product / at[i] / at[j]), 1e-14);
    end(&inputs);
    end(&outputs);
    qb_graph_release(f);
    qb_graph_release(gradient);
    qb_graph_release(forward);
    qb_graph_release(batched);
}

/* vmap of the gradient of a sum over a vmap: per-example gradients, and their size in nodes whatever the batch. */
static void test_nested_batches(void)
{
    const int64_t sizes[] = {4, 1000};
    int32_t nodes[2];
    for (int k = 0; k < 2; k++) {
        int64_t axis = 0;
        qb_graph *f, *inner, *sum, *gradient, *outer;
        qb_value u;
        OK(qb_graph_create(&f));
        qb_value x = check_input(f, QB_FLOAT64, SCALAR), w = check_input(f, QB_FLOAT64, SCALAR);
        out(f, qb_sin(f, qb_mul(f, x, w)));
        OK(qb_graph_vmap(f, (const bool[]){true, false}, sizes[k], &inner));
        OK(qb_graph_like(inner, &sum));
        OK(qb_inline(inner, sum, sum->inputs, &u));
        out(sum, qb_reduce_sum(sum, u, 1, &axis));
        OK(qb_graph_gradient(sum, 1, (const int[]){1}, &gradient));
        OK(qb_graph_vmap(gradient, (const bool[]){true, true}, 2, &outer));
        nodes[k] = outer->node_count;
        arrays inputs = {
            2, {check_tensor(QB_FLOAT64, SHAPE(2, sizes[k]), NULL), check_tensor(QB_FLOAT64, SHAPE(2), NULL)}};
        double *xs = inputs.at[0]->data, *ws = inputs.at[1]->data;
        for (int64_t i = 0; i < 2 * sizes[k]; i++)
            xs[i] = check_random();
        ws[0] = 0.5;
        ws[1] = -1.25;
        arrays outputs = run(outer, &inputs);
        for (int i = 0; i < 2; i++) {
            double expected = 0;
            for (int64_t e = 0; e < sizes[k]; e++)
                expected += xs[i * sizes[k] + e] * cos(xs[i * sizes[k] + e] * ws[i]);
            expect_near("a gradient over a batch", check_element(outputs.at[1], i), expected, 1e-13);
        }
        end(&inputs);
        end(&outputs);
        qb_graph_release(f);
        qb_graph_release(inner);
        qb_graph_release(sum);
        qb_graph_release(gradient);
        qb_graph_release(outer);
    }
    CHECK(nodes[0] == nodes[1]);
}

/* The gradient of the sum of a graph's outputs, at the given input 0. */
static void expect_gradient(qb_graph *g, qb_value value, int64_t count, const double *at, const double *expected)
{
    const int64_t axis = 0;
    if (g->values[value].rank > 0)
        value = qb_reduce_sum(g, value, 1, &axis);
    out(g, value);
    qb_graph *gradient, *second;
    OK(qb_graph_gradient(g, 1, (const int[]){0}, &gradient));
    arrays x = {1, {check_tensor(QB_FLOAT64, SHAPE(count), at)}}, y = run(gradient, &x);
    for (int64_t i = 0; i < count; i++)
        CHECK(fabs(check_element(y.at[1], i) - expected[i]) <= 1e-14 * fabs(expected[i]),
              "entry %d: %.17g, expected %.17g", (int)i, check_element(y.at[1], i), expected[i]);
    /* the second derivative is finite where the first is */
    OK(qb_graph_jvp(gradient, 1, (const int[]){0}, &second));
    arrays both = {2, {x.at[0], x.at[0]}}, z = run(second, &both);
    for (int64_t i = 0; i < count; i++)
        CHECK(isfinite(check_element(z.at[3], i)), "entry %d", (int)i);
    end(&x);
    end(&y);
    end(&z);
    qb_graph_release(gradient);
    qb_graph_release(second);
    qb_graph_release(g);
}

#define GRADIENT(count, formula, at, expected)                                                                         \
    do {                                                                                                               \
        qb_graph *g;                                                                                                   \
        OK(qb_graph_create(&g));                                                                                       \
        qb_value x = check_input(g, QB_FLOAT64, SHAPE(count));                                                         \
        expect_gradient(g, formula, count, (const double[])at, (const double[])expected);                              \
    } while (0)
#define LIST(...)                                                                                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static void test_conventions(void)
{
    const int64_t first[] = {0};
    GRADIENT(3, qb_abs(g, x), LIST(-2, 0, 3), LIST(-1, 0, 1));
    GRADIENT(3, qb_max(g, x, qb_splat_like(g, x, 1)), LIST(0.5, 1, 2), LIST(0, 0.5, 1));
    GRADIENT(3, qb_min(g, x, qb_splat_like(g, x, 1)), LIST(0.5, 1, 2), LIST(1, 0.5, 0));
    GRADIENT(2, qb_sqrt(g, x), LIST(0, 4), LIST(0, 0.25));
    GRADIENT(2, qb_cbrt(g, x), LIST(0, 8), LIST(0, 1.0 / 12));
    GRADIENT(2, qb_hypot(g, x, x), LIST(0, 1), LIST(0, M_SQRT2));
    GRADIENT(2, qb_atan2(g, x, x), LIST(0, 1), LIST(0, 0));
    GRADIENT(3, qb_pow(g, x, qb_splat_like(g, x, 2)), LIST(-3, 0, 2), LIST(-6, 0, 4));
    GRADIENT(2, qb_pow(g, x, qb_splat_like(g, x, 0.5)), LIST(0, 4), LIST(0, 0.25));
    GRADIENT(3, qb_mul(g, x, qb_stop_gradient(g, x)), LIST(2, 0, -1), LIST(2, 0, -1));
    /* x log x behind a mask: the infinite partial at 0 meets a zero tangent */
    GRADIENT(2, qb_select(g, qb_less(g, qb_splat_like(g, x, 0), x), qb_mul(g, x, qb_log(g, x)), x), LIST(0, 1),
             LIST(1, 1));
    GRADIENT(5, qb_reduce_max(g, x, 1, first), LIST(1, 3, 2, 3, 0), LIST(0, 0.5, 0, 0.5, 0));
    GRADIENT(4, qb_reduce_min(g, x, 1, first), LIST(1, 1, 2, 1), LIST(1.0 / 3, 1.0 / 3, 0, 1.0 / 3));
    GRADIENT(4, qb_reduce_prod(g, x, 1, first), LIST(2, 3, 5, 7), LIST(105, 70, 42, 30));
    GRADIENT(5, qb_reduce_prod(g, x, 1, first), LIST(2, 3, 0, 5, 7), LIST(0, 0, 210, 0, 0));
    GRADIENT(3, qb_reduce_prod(g, x, 1, first), LIST(2, 0, 0), LIST(0, 0, 0));
    GRADIENT(1, qb_reduce_prod(g, x, 1, first), LIST(0), LIST(1));
}

static void test_products_with_zeros(void)
{
    const double factors[2][15] = {{1, 2, 0, 3, 1, 0, 2, 0, -1, 1, 2, 1, -3, 1, 2}, {0}};
    const sample s = {"reduce_prod", NULL, build_prod, {-1, -1}, {1, 1}};
    for (int k = 0; k < 2; k++) {
        qb_graph *g;
        OK(qb_graph_create(&g));
        qb_value x = check_input(g, QB_FLOAT64, SHAPE(3, 5));
        out(g, qb_reduce_prod(g, x, 1, INTEGERS(1)));
        out(g, qb_reduce_prod(g, x, 2, INTEGERS(0, 1)));
        arrays at = {1, {check_tensor(QB_FLOAT64, SHAPE(3, 5), factors[k])}};
        check_transforms("reduce_prod with zeros", &s, g, &at, 2);
        end(&at);
        qb_graph_release(g);
    }
}

/* ---- Interfaces */

static void test_gradient_interface(void)
{
    qb_graph *g, *gradient;
    OK(qb_graph_create(&g));
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(3)), single = check_input(g, QB_FLOAT32, SCALAR),
             n = check_input(g, QB_INT32, SHAPE(3)), unused = check_input(g, QB_FLOAT64, SHAPE(2, 2)),
             scalar = check_input(g, QB_FLOAT64, SCALAR);
    (void)unused;
    (void)scalar;
    qb_value wide = qb_convert(g, single, QB_FLOAT64), whole = qb_convert(g, n, QB_FLOAT64);
    out(g, qb_mul(g, wide, qb_reduce_sum(g, qb_mul(g, x, whole), 1, INTEGERS(0))));
    out(g, n);

    /* two by two in all orders; the outputs come first, and gradients have the types of their inputs */
    OK(qb_graph_gradient(g, 3, (const int[]){3, 1, 0}, &gradient));
    CHECK(qb_graph_input_count(gradient) == 5 && qb_graph_output_count(gradient) == 5);
    const double xs[] = {1, 2, 3}, ns[] = {4, 5, 6}, two = 2, zeros[4] = {0};
    arrays inputs = {5,
                     {check_tensor(QB_FLOAT64, SHAPE(3), xs), check_tensor(QB_FLOAT32, SCALAR, &two),
                      check_tensor(QB_INT32, SHAPE(3), ns), check_tensor(QB_FLOAT64, SHAPE(2, 2), zeros),
                      check_tensor(QB_FLOAT64, SCALAR, &two)}};
    arrays outputs = run(gradient, &inputs);
    CHECK(check_element(outputs.at[0], 0) == 64 && outputs.at[1]->dtype == QB_INT32);
    CHECK(outputs.at[2]->rank == 2 && outputs.at[2]->size == 4 && check_element(outputs.at[2], 3) == 0);
    CHECK(outputs.at[3]->dtype == QB_FLOAT32 && outputs.at[3]->rank == 0 && check_element(outputs.at[3], 0) == 32);
    CHECK(outputs.at[4]->dtype == QB_FLOAT64 && check_element(outputs.at[4], 2) == 12);
    end(&outputs);
    qb_graph_release(gradient);

    /* one scalar alone is differentiated forward: the same type and value */
    OK(qb_graph_gradient(g, 1, (const int[]){1}, &gradient));
    outputs = run(gradient, &inputs);
    CHECK(outputs.at[2]->dtype == QB_FLOAT32 && check_element(outputs.at[2], 0) == 32);
    end(&outputs);
    qb_graph_release(gradient);
    OK(qb_graph_gradient(g, 1, (const int[]){4}, &gradient));
    outputs = run(gradient, &inputs);
    CHECK(outputs.at[2]->dtype == QB_FLOAT64 && outputs.at[2]->rank == 0 && check_element(outputs.at[2], 0) == 0);
    end(&outputs);
    qb_graph_release(gradient);
    OK(qb_graph_gradient(g, 0, NULL, &gradient));
    CHECK(qb_graph_output_count(gradient) == 2);
    qb_graph_release(gradient);

    FAILS(qb_graph_gradient(g, 1, (const int[]){2}, &gradient), QB_ERROR_VALUE, "int32");
    FAILS(qb_graph_gradient(g, 1, (const int[]){5}, &gradient), QB_ERROR_VALUE, "5 inputs");
    FAILS(qb_graph_vjp(g, 1, (const int[]){-1}, &gradient), QB_ERROR_VALUE, "5 inputs");
    FAILS(qb_graph_jvp(g, 2, (const int[]){0, 0}, &gradient), QB_ERROR_VALUE, "twice");
    FAILS(qb_graph_vjp(g, 2, (const int[]){1, 1}, &gradient), QB_ERROR_VALUE, "twice");
    FAILS(qb_graph_gradient(g, 2, (const int[]){1, 1}, &gradient), QB_ERROR_VALUE, "twice");
    end(&inputs);
    qb_graph_release(g);

    OK(qb_graph_create(&g));
    FAILS(qb_graph_gradient(g, 0, NULL, &gradient), QB_ERROR_VALUE, "grad requires a scalar output");
    out(g, check_input(g, QB_FLOAT64, SHAPE(3)));
    FAILS(qb_graph_gradient(g, 1, (const int[]){0}, &gradient), QB_ERROR_VALUE, "shape (3,)");
    qb_graph_release(g);
    OK(qb_graph_create(&g));
    out(g, check_input(g, QB_INT32, SCALAR));
    FAILS(qb_graph_gradient(g, 0, NULL, &gradient), QB_ERROR_VALUE, "int32");
    qb_graph_release(g);
}

/* Converting between floating types is linear, and its transpose converts back. */
static void test_convert(void)
{
    qb_graph *g, *reverse;
    OK(qb_graph_create(&g));
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(2));
    out(g, qb_convert(g, qb_mul(g, x, x), QB_FLOAT32));
    OK(qb_graph_vjp(g, 1, (const int[]){0}, &reverse));
    const double at[] = {0.5, -2}, w[] = {1, 3};
    arrays inputs = {2, {check_tensor(QB_FLOAT64, SHAPE(2), at), check_tensor(QB_FLOAT32, SHAPE(2), w)}};
    arrays outputs = run(reverse, &inputs);
    CHECK(outputs.at[0]->dtype == QB_FLOAT32 && outputs.at[1]->dtype == QB_FLOAT64);
    CHECK(check_element(outputs.at[1], 0) == 1 && check_element(outputs.at[1], 1) == -12);
    end(&inputs);
    end(&outputs);
    qb_graph_release(g);
    qb_graph_release(reverse);
}

static void test_vmap_interface(void)
{
    qb_graph *g, *batched;
    int64_t ones[QB_MAX_RANK];
    for (int i = 0; i < QB_MAX_RANK; i++)
        ones[i] = 1;
    /* every rule meets the greatest rank and says so */
    for (int k = 0; k < 8; k++) {
        OK(qb_graph_create(&g));
        qb_value x = check_input(g, QB_FLOAT64, k == 0 ? QB_MAX_RANK : 16, ones), y = x;
        qb_value z = check_input(g, QB_FLOAT64, QB_MAX_RANK, ones);
        if (k == 1)
            y = qb_reshape(g, x, QB_MAX_RANK, ones);
        if (k == 2)
            y = qb_broadcast_to(g, x, QB_MAX_RANK, ones);
        if (k == 3 || k == 4)
            y = qb_dot(g, x, x, 0, NULL, NULL, 0, NULL, NULL);
        if (k == 5)
            y = qb_add(g, qb_broadcast_to(g, x, QB_MAX_RANK, ones), z);
        if (k == 6)
            y = qb_concat(g, 2, (qb_value[]){qb_broadcast_to(g, x, QB_MAX_RANK, ones), z}, 3);
        if (k == 7)
            y = qb_dot(g, x, check_input(g, QB_FLOAT64, 16, ones), 0, NULL, NULL, 0, NULL, NULL);
        out(g, y);
        FAILS(qb_graph_vmap(g, (const bool[]){true, false, false}, 2, &batched), QB_ERROR_VALUE, "32");
        qb_graph_release(g);
    }
    OK(qb_graph_create(&g));
    out(g, qb_sin(g, check_input(g, QB_FLOAT64, SHAPE(2))));
    FAILS(qb_graph_vmap(g, (const bool[]){true}, -1, &batched), QB_ERROR_VALUE, "-1");
    FAILS(qb_graph_vmap(g, (const bool[]){false}, -1, &batched), QB_ERROR_VALUE, "-1");
    qb_graph_release(g);
}

/* What depends on no mapped argument is not repeated, and qb_vmap says which outputs have the axis. */
static void test_unmapped_work(void)
{
    qb_graph *g, *target;
    OK(qb_graph_create(&g));
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(2)), w = check_input(g, QB_FLOAT64, SHAPE(2));
    out(g, qb_exp(g, w));
    out(g, qb_mul(g, x, qb_exp(g, w)));
    OK(qb_graph_create(&target));
    qb_value arguments[] = {check_input(target, QB_FLOAT64, SHAPE(5, 2)), check_input(target, QB_FLOAT64, SHAPE(2))},
             y[2];
    bool mapped[2];
    OK(qb_vmap(g, target, arguments, (const bool[]){true, false}, 5, y, mapped));
    CHECK(!mapped[0] && mapped[1]);
    out(target, y[0]);
    out(target, y[1]);
    check_text(target, "%0 = input : float64[5,2]\n"
                       "%1 = input : float64[2]\n"
                       "%2 = exp(%1) : float64[2]\n"
                       "%3 = broadcast(%2) axes=[1] : float64[5,2]\n"
                       "%4 = mul(%0, %3) : float64[5,2]\n"
                       "return %2, %4\n");
    qb_graph_release(g);
    qb_graph_release(target);
}

/* The linear part of a jvp: residuals in, no transcendental function left; constants and broadcasts are made again,
 * not kept. */
static void test_split_interface(void)
{
    qb_graph *g, *forward, *early, *late;
    OK(qb_graph_create(&g));
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(3)), s = check_input(g, QB_FLOAT64, SCALAR);
    out(g, qb_mul(g, qb_sin(g, x), qb_broadcast_to(g, s, SHAPE(3))));
    OK(qb_graph_jvp(g, 1, (const int[]){0}, &forward));
    OK(qb_split(forward, (const bool[]){false, false, true}, 1, false, &early, &late));
    OK(qb_verify(early));
    OK(qb_verify(late));
    check_text(late, "%0 = input : float64[3]\n"
                     "%1 = input : float64[]\n"
                     "%2 = input : float64[3]\n"
                     "%3 = mul(%0, %2) : float64[3]\n"
                     "%4 = broadcast(%1) axes=[] : float64[3]\n"
                     "%5 = strong_mul(%3, %4) : float64[3]\n"
                     "return %5\n");
    CHECK(qb_graph_input_count(early) == 2 && qb_graph_output_count(early) == 3);
    qb_graph_release(early);
    qb_graph_release(late);
    FAILS(qb_split(forward, (const bool[]){false, false, true}, 2, false, &early, &late), QB_ERROR_VALUE, "late");
    qb_graph_release(g);
    qb_graph_release(forward);
}

int main(void)
{
    OK(qb_context_create(&context));
    test_orders();
    test_derivative_of_squared_derivative();
    test_hessian();
    test_nested_batches();
    test_conventions();
    test_gradient_interface();
    test_convert();
    test_vmap_interface();
    test_unmapped_work();
    test_split_interface();
    test_products_with_zeros();
    test_every_operation();
    qb_context_destroy(context);
    return 0;
}
