/* Fits y = tanh(x w) by gradient descent, with the C library alone: a graph is built, differentiated, compiled and run.
 *
 *     cc gradient.c -o gradient $(pkg-config --cflags --libs quabla) -lm \
 *         -Wl,-rpath,$(pkg-config --variable=libdir quabla)
 *     ./gradient
 *
 * docs/c.md says how the library is installed.
 */
#include <math.h>
#include <quabla/quabla.h>
#include <stdio.h>

enum { POINTS = 5, FEATURES = 2, STEPS = 200 };

static const double true_w[FEATURES] = {0.5, -1.5};

/* loss = mean((tanh(x w) - y)^2), with inputs w, x and y */
static qb_status build_loss(qb_graph *graph)
{
    const int64_t w_shape[] = {FEATURES}, x_shape[] = {POINTS, FEATURES}, y_shape[] = {POINTS};
    qb_value w, x, y, v;
    qb_status status = qb_graph_input(graph, "w", QB_FLOAT64, 1, w_shape, &w);
    if (status == QB_OK)
        status = qb_graph_input(graph, "x", QB_FLOAT64, 2, x_shape, &x);
    if (status == QB_OK)
        status = qb_graph_input(graph, "y", QB_FLOAT64, 1, y_shape, &y);
    if (status == QB_OK)
        status = qb_apply(graph, "matmul", 2, (qb_value[]){x, w}, "", &v);
    if (status == QB_OK)
        status = qb_apply(graph, "tanh", 1, &v, "", &v);
    if (status == QB_OK)
        status = qb_apply(graph, "subtract", 2, (qb_value[]){v, y}, "", &v);
    if (status == QB_OK)
        status = qb_apply(graph, "square", 1, &v, "", &v);
    if (status == QB_OK)
        status = qb_apply(graph, "mean", 1, &v, "", &v);
    if (status == QB_OK)
        status = qb_graph_output(graph, v);
    return status;
}

/* A program with inputs w, x, y and outputs loss, d loss / d w. */
static qb_status compile_gradient(qb_context *context, qb_program **program)
{
    const int wrt[] = {0};
    qb_graph *loss = NULL, *gradient = NULL;
    qb_status status = qb_graph_create(&loss);
    if (status == QB_OK)
        status = build_loss(loss);
    if (status == QB_OK)
        status = qb_graph_gradient(loss, 1, wrt, &gradient);
    if (status == QB_OK)
        status = qb_compile(context, gradient, "cpu", program);
    qb_graph_release(loss);
    qb_graph_release(gradient);
    return status;
}

static qb_status make_data(qb_tensor **x, qb_tensor **y)
{
    const int64_t shape[] = {POINTS, FEATURES};
    double xs[POINTS][FEATURES], ys[POINTS];
    for (int i = 0; i < POINTS; i++) {
        xs[i][0] = sin(i + 1.0);
        xs[i][1] = cos(2.0 * i);
        ys[i] = tanh(xs[i][0] * true_w[0] + xs[i][1] * true_w[1]);
    }
    qb_status status = qb_tensor_create(QB_FLOAT64, 2, shape, xs, x);
    return status == QB_OK ? qb_tensor_create(QB_FLOAT64, 1, shape, ys, y) : status;
}

/* One step of gradient descent: w is replaced. */
static qb_status descend(qb_program *program, double w[FEATURES], qb_tensor *x, qb_tensor *y, double *loss)
{
    const int64_t shape[] = {FEATURES};
    qb_tensor *weights, *results[2];
    qb_status status = qb_tensor_create(QB_FLOAT64, 1, shape, w, &weights);
    if (status != QB_OK)
        return status;
    status = qb_run(program, (qb_tensor *[]){weights, x, y}, results);
    qb_tensor_release(weights);
    if (status != QB_OK)
        return status;
    const double *slope = qb_tensor_data(results[1]);
    *loss = *(const double *)qb_tensor_data(results[0]);
    for (int i = 0; i < FEATURES; i++)
        w[i] -= 0.5 * slope[i];
    qb_tensor_release(results[0]);
    qb_tensor_release(results[1]);
    return QB_OK;
}

int main(void)
{
    qb_context *context = NULL;
    qb_program *program = NULL;
    qb_tensor *x = NULL, *y = NULL;
    double w[FEATURES] = {0, 0}, loss = 0;
    qb_status status = qb_context_create(&context);
    if (status == QB_OK)
        status = compile_gradient(context, &program);
    if (status == QB_OK)
        status = make_data(&x, &y);
    for (int step = 0; status == QB_OK && step < STEPS; step++) {
        status = descend(program, w, x, y, &loss);
        if (status == QB_OK && step % 50 == 0)
            printf("step %3d: loss %.3e\n", step, loss);
    }
    if (status == QB_OK)
        printf("w = (%.4f, %.4f), loss = %.1e\n", w[0], w[1], loss);
    else
        fprintf(stderr, "gradient: %s\n", qb_error_message());
    qb_tensor_release(x);
    qb_tensor_release(y);
    qb_program_release(program);
    qb_context_destroy(context);
    return status == QB_OK && fabs(w[0] - true_w[0]) < 0.01 && fabs(w[1] - true_w[1]) < 0.01 ? 0 : 1;
}
