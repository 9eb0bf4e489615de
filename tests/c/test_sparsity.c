/* Sparsity patterns against derivatives computed in full, for every operation; colourings on random patterns;
 * matrices read back from their compressed products. */
#include "sample_graphs.h"
#include "transforms/sparsity.h"
#include "transforms/transforms.h"

#include <stdlib.h>

enum { MOST = 16 };

static qb_context *context;

/* ---- Patterns */

static bool has(const qb_pattern *p, int64_t row, int64_t column)
{
    for (int64_t e = p->start[row]; e < p->start[row + 1]; e++)
        if (p->column[e] == column)
            return true;
    return false;
}

static void check_pattern(const qb_pattern *p)
{
    CHECK(p->start[0] == 0);
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t e = p->start[r]; e < p->start[r + 1]; e++)
            CHECK(p->column[e] >= 0 && p->column[e] < p->columns &&
                  (e == p->start[r] || p->column[e] > p->column[e - 1]));
}

/* Every entry of the Jacobian that is not 0 at random points is in the pattern. Returns the entries of pattern and
 * matrix that are there. */
static void check_against_jvp(const sample *s, const qb_graph *g, int input, int output, int64_t *found, int64_t *real)
{
    qb_pattern p;
    qb_graph *tangent;
    qb_tensor *x[MOST], *y[2 * MOST];
    OK(qb_sparsity(g, input, output, &p));
    check_pattern(&p);
    *found += p.start[p.rows];
    OK(qb_graph_jvp(g, 1, &input, &tangent));
    int place = g->output_count;
    for (int i = 0; i < output; i++)
        place += qb_dtype_is_floating(g->values[g->outputs[i]].dtype);
    sample_inputs(s, tangent, x);
    qb_tensor *t = x[g->input_count];
    for (int64_t c = 0; c < p.columns; c++) {
        for (int64_t k = 0; k < p.columns; k++)
            qb_dtype_store(t->dtype, k == c, (char *)t->data + (size_t)k * qb_dtype_size(t->dtype));
        check_run(context, tangent, x, y);
        for (int64_t r = 0; r < p.rows; r++) {
            bool zero = check_element(y[place], r) == 0;
            *real += !zero;
            CHECK(zero || has(&p, r, c), "%s: d output %d [%d] / d input %d [%d]", s->name, output, (int)r, input,
                  (int)c);
        }
        check_release(tangent->output_count, y);
    }
    check_release(tangent->input_count, x);
    qb_graph_release(tangent);
    qb_pattern_end(&p);
}

static void check_sample(const sample *s, const qb_graph *g)
{
    int64_t found = 0, real = 0;
    CHECK(g->output_count <= MOST && g->input_count < MOST);
    for (int input = 0; input < g->input_count; input++)
        for (int output = 0; output < g->output_count; output++)
            if (qb_dtype_is_floating(g->values[g->inputs[input]].dtype) &&
                qb_dtype_is_floating(g->values[g->outputs[output]].dtype))
                check_against_jvp(s, g, input, output, &found, &real);
    CHECK(found >= real);
}

static void test_every_operation(void)
{
    for (int i = 0; i < STRUCTURAL_SAMPLES + 2 * qb_op_count; i++) {
        sample s;
        if (i < STRUCTURAL_SAMPLES)
            s = structural_samples[i];
        else if (!elementwise_sample((i - STRUCTURAL_SAMPLES) / 2, i % 2, &s))
            continue;
        qb_graph *g = build_sample(&s, QB_FLOAT64), *gradient;
        check_sample(&s, g);
        const int wrt = 0;
        if (g->values[g->outputs[0]].rank == 0 && qb_graph_gradient(g, 1, &wrt, &gradient) == QB_OK) {
            check_sample(&s, gradient);
            qb_graph_release(gradient);
        }
        qb_graph_release(g);
    }
}

/* The pattern is exactly what `expected` draws: a row of 'x' and '.' for each element of the result. */
static void expect(qb_graph *g, qb_value value, const char *expected)
{
    qb_pattern p;
    int index = g->output_count;
    check_output(g, value);
    OK(qb_sparsity(g, 0, index, &p));
    CHECK((int64_t)strlen(expected) == p.rows * (p.columns + 1), "%s", expected);
    for (int64_t r = 0; r < p.rows; r++)
        for (int64_t c = 0; c < p.columns; c++)
            CHECK(has(&p, r, c) == (expected[r * (p.columns + 1) + c] == 'x'), "%s: at %d, %d", expected, (int)r,
                  (int)c);
    qb_pattern_end(&p);
}

static qb_value constant(qb_graph *g, qb_dtype dtype, int rank, const int64_t *shape, const double *elements)
{
    qb_value value;
    qb_tensor *tensor = check_tensor(dtype, rank, shape, elements);
    OK(qb_graph_constant(g, tensor, &value));
    qb_tensor_release(tensor);
    return value;
}

static void test_exact_patterns(void)
{
    qb_graph *g;
    OK(qb_graph_create(&g));
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(4)), other = check_input(g, QB_FLOAT64, SHAPE(4)), part;
    const double band[] = {2, -1, 0, 0, -1, 2, -1, 0, 0, -1, 2, -1};
    const qb_value matrix = constant(g, QB_FLOAT64, SHAPE(3, 4), band);
    const qb_value where = constant(g, QB_INT64, SHAPE(3), (const double[]){3, -4, 3});
    const qb_value mask = constant(g, QB_BOOL, SHAPE(4), (const double[]){1, 0, 0, 1});
    const qb_value weight = constant(g, QB_FLOAT64, SHAPE(4), (const double[]){0, 2, 0, 3});
    const int64_t first = 0;
    expect(g, qb_sin(g, qb_mul(g, x, other)), "x...,.x..,..x.,...x,");
    expect(g, qb_mul(g, x, weight), "....,.x..,....,...x,");
    expect(g, qb_select(g, mask, x, other), "x...,....,....,...x,");
    expect(g, qb_floor(g, x), "....,....,....,....,");
    expect(g, qb_stop_gradient(g, x), "....,....,....,....,");
    expect(g, qb_dot(g, matrix, x, 1, (const int64_t[]){1}, &first, 0, NULL, NULL), "xx..,xxx.,.xxx,");
    part = qb_slice(g, x, (const int64_t[]){1}, (const int64_t[]){4}, (const int64_t[]){2});
    expect(g, part, ".x..,...x,");
    expect(g, qb_pad(g, part, (const int64_t[]){1}, (const int64_t[]){0}, (const int64_t[]){1}),
           "....,.x..,....,...x,");
    expect(g, qb_reverse(g, x, 1, &first), "...x,..x.,.x..,x...,");
    expect(g, qb_gather(g, x, 1, &where, &first, 0, QB_BOUNDS_CLAMP), "...x,x...,...x,");
    expect(g,
           qb_scatter(g, &qb_op_scatter_add, other, qb_gather(g, x, 1, &where, &first, 0, QB_BOUNDS_CLAMP), 1, &where,
                      &first, 0, QB_BOUNDS_CLAMP, false),
           "x...,....,....,...x,");
    expect(g, qb_recurrence(g, x, QB_NONE, 0, false, false), "x...,xx..,xxx.,xxxx,");
    expect(g, qb_recurrence(g, x, QB_NONE, 0, true, false), "xxxx,.xxx,..xx,...x,");
    expect(g, qb_reduce_sum(g, qb_reshape(g, x, 2, (const int64_t[]){2, 2}), 1, &first), "x.x.,.x.x,");
    expect(g, qb_sort(g, x, 0), "xxxx,xxxx,xxxx,xxxx,");
    const qb_value order = qb_argsort(g, weight, 0);
    expect(g, qb_gather(g, x, 1, &order, &first, 0, QB_BOUNDS_CLAMP), "x...,..x.,.x..,...x,");
    expect(g, qb_concat(g, 2, (qb_value[]){part, part}, 0), ".x..,...x,.x..,...x,");
    qb_graph_release(g);
}

/* ---- Colourings of random patterns */

static void random_pattern(int64_t rows, int64_t columns, double density, qb_pattern *p)
{
    *p = (qb_pattern){.rows = rows, .columns = columns};
    p->start = qb_allocate((size_t)(rows + 1) * sizeof *p->start);
    p->column = qb_allocate((size_t)(rows * columns) * sizeof *p->column);
    int64_t entries = 0;
    for (int64_t r = 0; r < rows; r++) {
        p->start[r] = entries;
        for (int64_t c = 0; c < columns; c++)
            if (check_random() < density)
                p->column[entries++] = (int32_t)c;
    }
    p->start[rows] = entries;
}

/* Products of the matrix (or, by rows, its transpose) with the seeds of all colours, and every entry read back. */
static void check_compression(const qb_pattern *p, qb_compression kind, const int32_t *colour, int32_t count)
{
    int64_t entries = p->start[p->rows];
    bool by_rows = kind == QB_COMPRESS_ROWS;
    int64_t length = by_rows ? p->columns : p->rows;
    double *value = malloc((size_t)entries * sizeof *value + 1);
    double *products = calloc((size_t)(count * length) + 1, sizeof *products);
    int64_t *place = malloc((size_t)entries * sizeof *place + 1);
    CHECK(value && products && place);
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t e = p->start[r]; e < p->start[r + 1]; e++) {
            int64_t c = p->column[e], low = r < c ? r : c, high = r < c ? c : r;
            value[e] = kind == QB_COMPRESS_SYMMETRIC ? (double)(low * p->columns + high + 1) : 1 + check_random();
            products[by_rows ? colour[r] * length + c : colour[c] * length + r] += value[e];
        }
    OK(qb_compressed_places(p, kind, colour, place));
    for (int64_t e = 0; e < entries; e++)
        CHECK(place[e] < count * length && products[place[e]] == value[e], "entry %d", (int)e);
    free(value);
    free(products);
    free(place);
}

static void test_random_colourings(void)
{
    for (int i = 0; i < 300; i++) {
        int64_t rows = 1 + (int64_t)(30 * check_random()), columns = 1 + (int64_t)(30 * check_random());
        int32_t colour[40], count;
        qb_pattern p, transposed, symmetric;
        random_pattern(rows, columns, check_random() * check_random(), &p);
        OK(qb_colour_columns(&p, colour, &count));
        check_compression(&p, QB_COMPRESS_COLUMNS, colour, count);
        OK(qb_pattern_transpose(&p, &transposed));
        check_pattern(&transposed);
        OK(qb_colour_columns(&transposed, colour, &count));
        check_compression(&p, QB_COMPRESS_ROWS, colour, count);
        qb_pattern_end(&p);
        qb_pattern_end(&transposed);
        random_pattern(rows, rows, check_random() * check_random(), &p);
        OK(qb_pattern_symmetric(&p, &symmetric));
        check_pattern(&symmetric);
        OK(qb_colour_symmetric(&symmetric, colour, &count));
        check_compression(&symmetric, QB_COMPRESS_SYMMETRIC, colour, count);
        qb_pattern_end(&p);
        qb_pattern_end(&symmetric);
    }
}

/* What banded and arrow-shaped matrices need. */
static void test_known_counts(void)
{
    enum { N = 200 };
    int32_t colour[N], count;
    int32_t *column = qb_allocate(3 * N * sizeof *column);
    int64_t *start = qb_allocate((N + 1) * sizeof *start);
    qb_pattern p = {N, N, start, column};
    int64_t entries = 0;
    for (int32_t r = 0; r < N; r++) { /* tridiagonal */
        start[r] = entries;
        for (int32_t c = r > 0 ? r - 1 : 0; c <= r + 1 && c < N; c++)
            column[entries++] = c;
    }
    start[N] = entries;
    OK(qb_colour_columns(&p, colour, &count));
    CHECK(count == 3, "%d", (int)count);
    OK(qb_colour_symmetric(&p, colour, &count));
    CHECK(count == 3, "%d", (int)count);
    entries = 0;
    for (int32_t r = 0; r < N; r++) { /* an arrow: first row, first column, diagonal */
        start[r] = entries;
        for (int32_t c = 0; c < N; c++)
            if (r == 0 || c == 0 || r == c)
                column[entries++] = c;
    }
    start[N] = entries;
    OK(qb_colour_columns(&p, colour, &count));
    CHECK(count == N, "%d", (int)count);
    OK(qb_colour_symmetric(&p, colour, &count));
    CHECK(count == 2, "%d", (int)count);
    qb_pattern_end(&p);
}

/* A running sum has n^2 / 2 entries, which is refused rather than held. */
static void test_too_many_entries(void)
{
    qb_graph *g;
    qb_pattern p;
    OK(qb_graph_create(&g));
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(20000));
    check_output(g, qb_recurrence(g, x, QB_NONE, 0, false, false));
    FAILS(qb_sparsity(g, 0, 0, &p), QB_ERROR_VALUE, "use jacobian or hessian");
    qb_graph_release(g);
}

int main(void)
{
    OK(qb_context_create(&context));
    test_exact_patterns();
    test_every_operation();
    test_random_colourings();
    test_known_counts();
    test_too_many_entries();
    qb_context_destroy(context);
    return 0;
}
