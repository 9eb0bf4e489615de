/* Programs against the reference evaluation: random graphs, every kind of reduction and product, outputs that share,
 * threads, and memory that runs out. Most data are small integers, on which all arithmetic is exact: results must then
 * agree bit for bit whatever was fused and in whatever order sums were taken. */
#include "base/allocate.h"
#include "graph_reference.h"
#include "ops/build.h"
#include "program/program.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static qb_context *context;

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            (void)fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                      \
            (void)fprintf(stderr, __VA_ARGS__);                                                                        \
            (void)fprintf(stderr, " [%s]\n", qb_error_message());                                                      \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call) CHECK((call) == QB_OK, "failed")

static uint64_t random_state = 88172645463325252u;

static int64_t pick(int64_t n) /* 0 .. n-1 */
{
    random_state ^= random_state << 13; /* Marsaglia's xorshift */
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int64_t)((random_state >> 11) % (uint64_t)n);
}

static qb_tensor *random_tensor(qb_dtype dtype, int rank, const int64_t *shape)
{
    qb_tensor *tensor;
    OK(qb_tensor_create(dtype, rank, shape, NULL, &tensor));
    size_t size = qb_dtype_size(dtype);
    bool is_signed = qb_dtype_kind(dtype) == 'f' || qb_dtype_kind(dtype) == 'i';
    for (int64_t i = 0; i < tensor->size; i++)
        qb_dtype_store_integer(dtype, is_signed ? pick(9) - 4 : pick(dtype == QB_BOOL ? 2 : 5),
                               (char *)tensor->data + (size_t)i * size);
    return tensor;
}

static bool same_bits(const qb_tensor *a, const qb_tensor *b)
{
    if (a->dtype != b->dtype || !qb_shape_equal(a->rank, a->shape, b->rank, b->shape))
        return false;
    size_t size = qb_dtype_size(a->dtype);
    for (int64_t i = 0; i < a->size; i++) { /* as numbers: the sign of a zero sum depends on the order */
        double x = qb_dtype_load(a->dtype, (char *)a->data + (size_t)i * size);
        double y = qb_dtype_load(b->dtype, (char *)b->data + (size_t)i * size);
        if (x != y && !(x != x && y != y))
            return false;
    }
    return true;
}

static void report(const qb_graph *graph, const qb_program *program)
{
    char *text;
    if (qb_graph_text(graph, &text) == QB_OK)
        (void)fprintf(stderr, "%s\n", text);
    if (qb_program_text(program, &text) == QB_OK)
        (void)fprintf(stderr, "%s\n", text);
}

/* Compiles, runs twice (the second time in a used frame) and compares with the reference. */
static void check_graph(const qb_graph *graph, qb_tensor *const *inputs, const char *what)
{
    enum { MOST = 32 };
    qb_tensor *expected[MOST], *got[MOST];
    qb_program *program;
    CHECK(graph->output_count <= MOST, "%s", what);
    CHECK(qb_compile(context, graph, "cpu", &program) == QB_OK, "%s", what);
    reference_run(graph, inputs, expected);
    for (int round = 0; round < 2; round++) {
        CHECK(qb_run(program, inputs, got) == QB_OK, "%s", what);
        for (int i = 0; i < graph->output_count; i++) {
            if (!same_bits(expected[i], got[i])) {
                report(graph, program);
                CHECK(false, "%s: output %d of run %d differs", what, i, round);
            }
            qb_tensor_release(got[i]);
        }
    }
    for (int i = 0; i < graph->output_count; i++)
        qb_tensor_release(expected[i]);
    qb_program_release(program);
}

static qb_value input(qb_graph *graph, qb_dtype dtype, int rank, const int64_t *shape)
{
    qb_value value;
    OK(qb_graph_input(graph, NULL, dtype, rank, shape, &value));
    return value;
}

static void output(qb_graph *graph, qb_value value)
{
    OK(qb_graph_take_status(graph));
    OK(qb_graph_output(graph, value));
}

/* ---- Random graphs */

#include "random_graphs.h"

static void sample_graph(int round)
{
    static const int64_t shapes[][4] = {{2, 3, 4}, {3, 4},   {4},         {1, 4}, {300, 4}, {3, 300},
                                        {700},     {40, 33}, {2, 200, 3}, {0, 4}, {8, 32}};
    static const int ranks[] = {3, 2, 1, 2, 2, 2, 1, 2, 3, 2, 2};
    static const qb_dtype dtypes[] = {QB_FLOAT64, QB_FLOAT64, QB_FLOAT32, QB_INT32, QB_INT64, QB_BOOL, QB_UINT32};
    sampler s = {0};
    qb_tensor *inputs[4];
    OK(qb_graph_create(&s.graph));
    int shape = (int)pick(11), input_count = 1 + (int)pick(4);
    qb_dtype dtype = dtypes[pick(7)];
    for (int i = 0; i < input_count; i++) {
        if (pick(3) == 0)
            shape = (int)pick(11);
        if (pick(4) == 0)
            dtype = dtypes[pick(7)];
        s.values[s.count++] = input(s.graph, dtype, ranks[shape], shapes[shape]);
        inputs[i] = random_tensor(dtype, ranks[shape], shapes[shape]);
    }
    int operations = 1 + (int)pick(30);
    for (int i = 0; i < operations; i++) {
        int64_t kind = pick(20);
        qb_value value = kind < 10   ? sample_elementwise(&s)
                         : kind < 14 ? sample_view(&s)
                         : kind < 17 ? sample_reduce(&s)
                         : kind < 19 ? sample_dot(&s)
                                     : sample_call(&s);
        value = clip(&s, value);
        OK(qb_graph_take_status(s.graph));
        if (qb_value_size(s.graph, value) <= 20000)
            s.values[s.count++] = value;
    }
    int outputs = 1 + (int)pick(4);
    for (int i = 0; i < outputs; i++)
        output(s.graph, s.values[s.count - 1 - (int)pick(s.count < 4 ? s.count : 4)]);
    char what[64];
    (void)snprintf(what, sizeof what, "random graph %d", round);
    check_graph(s.graph, inputs, what);
    for (int i = 0; i < input_count; i++)
        qb_tensor_release(inputs[i]);
    qb_graph_release(s.graph);
}

/* ---- Reductions: every subset of axes */

typedef qb_value (*reducer)(qb_graph *, qb_value, int, const int64_t *);

static void check_reduction(qb_dtype dtype, int kind, int rank, const int64_t *shape, unsigned subset, bool fused)
{
    static const reducer reducers[] = {qb_reduce_sum, qb_reduce_prod, qb_reduce_max, qb_reduce_min};
    qb_graph *graph;
    int64_t axes[QB_MAX_RANK];
    int count = 0;
    bool empty = false;
    for (int i = 0; i < rank; i++) {
        if (subset >> i & 1) {
            axes[count++] = i;
            empty = empty || shape[i] == 0;
        }
    }
    if ((kind >= 2 && empty) || (kind < 2 && dtype == QB_BOOL))
        return;
    OK(qb_graph_create(&graph));
    qb_value x = input(graph, dtype, rank, shape), y = x;
    if (fused)
        y = dtype == QB_BOOL ? qb_bit_not(graph, x) : qb_add(graph, x, x);
    if (kind == 1)
        y = qb_max(graph, qb_min(graph, y, qb_splat_like(graph, y, 1)),
                   qb_splat_like(graph, y, qb_dtype_kind(dtype) == 'u' ? 1 : -1));
    output(graph, reducers[kind](graph, y, count, axes));
    if (fused)
        output(graph, y);
    qb_tensor *tensor = random_tensor(dtype, rank, shape);
    char what[256];
    (void)snprintf(what, sizeof what, "reduction %d of %s over axes %x", kind, qb_print_type(dtype, rank, shape).text,
                   subset);
    check_graph(graph, &tensor, what);
    qb_tensor_release(tensor);
    qb_graph_release(graph);
}

static void check_reductions(void)
{
    static const int64_t shapes[][4] = {{5},          {1},       {257},       {700},     {3, 4},        {2, 3, 4},
                                        {2, 0, 3},    {1, 5, 1}, {300, 7},    {7, 300},  {20, 30, 10},  {2, 3, 4, 2},
                                        {2, 40, 150}, {3, 17},   {40, 16, 2}, {1000, 3}, {2, 300, 129}, {3, 1, 20, 30}};
    static const int ranks[] = {1, 1, 1, 1, 2, 3, 3, 3, 2, 2, 3, 4, 3, 2, 3, 2, 3, 4};
    static const qb_dtype dtypes[] = {QB_FLOAT64, QB_FLOAT32, QB_INT64, QB_INT32, QB_UINT32, QB_UINT64, QB_BOOL};
    for (size_t s = 0; s < sizeof ranks / sizeof *ranks; s++)
        for (unsigned subset = 0; subset < 1u << ranks[s]; subset++)
            for (int kind = 0; kind < 4; kind++)
                for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
                    check_reduction(dtypes[d], kind, ranks[s], shapes[s], subset, (subset + (unsigned)kind + d) % 2);
}

/* A sum in twice the working precision: the sum and what its roundings left out (Knuth, TAOCP 2, 4.2.2, theorem B),
 * whatever `long double` is on this machine. */
typedef struct accurate_sum {
    double sum, rest;
} accurate_sum;

static void accurate_add(accurate_sum *s, double term)
{
    double sum = s->sum + term, added = sum - s->sum;
    s->rest += (s->sum - (sum - added)) + (term - added);
    s->sum = sum;
}

static double relative_error(double found, accurate_sum exact)
{
    return ((found - exact.sum) - exact.rest) / exact.sum;
}

/* A sum of many terms of one sign: the error must grow with the logarithm of their number. */
static void check_accuracy(qb_dtype dtype, int64_t rows, int64_t columns, double tolerance)
{
    qb_graph *graph;
    OK(qb_graph_create(&graph));
    qb_value x = input(graph, dtype, 2, (int64_t[]){rows, columns});
    output(graph, qb_reduce_sum(graph, x, 1, (int64_t[]){0}));
    output(graph, qb_reduce_sum(graph, x, 2, (int64_t[]){0, 1}));
    qb_tensor *tensor, *sums[2];
    OK(qb_tensor_create(dtype, 2, (int64_t[]){rows, columns}, NULL, &tensor));
    accurate_sum *exact = calloc((size_t)columns, sizeof *exact), total = {0, 0};
    CHECK(exact, "memory");
    for (int64_t i = 0; i < rows * columns; i++) {
        void *element = (char *)tensor->data + (size_t)i * qb_dtype_size(dtype);
        qb_dtype_store(dtype, 0.1 + (double)pick(1 << 20) / (1 << 20), element);
        accurate_add(&exact[i % columns], qb_dtype_load(dtype, element));
        accurate_add(&total, qb_dtype_load(dtype, element));
    }
    qb_program *program;
    OK(qb_compile(context, graph, "cpu", &program));
    OK(qb_run(program, &tensor, sums));
    for (int64_t i = 0; i < columns; i++) {
        double sum = qb_dtype_load(dtype, (char *)sums[0]->data + (size_t)i * qb_dtype_size(dtype));
        CHECK(fabs(relative_error(sum, exact[i])) < tolerance, "column %d of %d rows: error %g", (int)i, (int)rows,
              relative_error(sum, exact[i]));
    }
    double sum = qb_dtype_load(dtype, sums[1]->data);
    CHECK(fabs(relative_error(sum, total)) < tolerance, "%d terms: error %g", (int)(rows * columns),
          relative_error(sum, total));
    qb_tensor_release(tensor);
    qb_tensor_release(sums[0]);
    qb_tensor_release(sums[1]);
    qb_program_release(program);
    qb_graph_release(graph);
    free(exact);
}

/* ---- Products: a (batch, m, k) with b (batch, k, n), axes of both stored in every order, the result maybe transposed
 */

static void check_product(qb_dtype dtype, const int64_t *sizes, int order_a, int order_b, bool flip, bool with_views)
{
    static const int64_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    int64_t a_shape[3], b_shape[3], a_place[3], b_place[3];
    const int64_t a_sizes[] = {sizes[0], sizes[1], sizes[3]}, b_sizes[] = {sizes[0], sizes[3], sizes[2]};
    for (int i = 0; i < 3; i++) {
        a_shape[i] = a_sizes[orders[order_a][i]];
        b_shape[i] = b_sizes[orders[order_b][i]];
        a_place[orders[order_a][i]] = i;
        b_place[orders[order_b][i]] = i;
    }
    qb_graph *graph;
    OK(qb_graph_create(&graph));
    qb_value a = input(graph, dtype, 3, a_shape), b = input(graph, dtype, 3, b_shape);
    if (with_views) { /* strides of all kinds */
        int64_t twice[3] = {a_shape[0], a_shape[1], a_shape[2] * 2}, none[3] = {0}, steps[3] = {1, 1, 2};
        a = qb_concat(graph, 2, (qb_value[]){a, a}, 2);
        a = qb_slice(graph, a, none, twice, steps);
        b = qb_reverse(graph, b, 1, (int64_t[]){b_place[1]});
    }
    qb_value c = qb_dot(graph, a, b, 1, &a_place[2], &b_place[1], 1, &a_place[0], &b_place[0]);
    if (flip)
        c = qb_permute(graph, c, 3, (int64_t[]){0, 2, 1});
    output(graph, c);
    output(graph, qb_add(graph, c, c));
    qb_tensor *inputs[] = {random_tensor(dtype, 3, a_shape), random_tensor(dtype, 3, b_shape)};
    char what[256];
    (void)snprintf(what, sizeof what, "product %s orders %d %d flip %d views %d", qb_print_type(dtype, 4, sizes).text,
                   order_a, order_b, flip, with_views);
    check_graph(graph, inputs, what);
    qb_tensor_release(inputs[0]);
    qb_tensor_release(inputs[1]);
    qb_graph_release(graph);
}

static void check_products(void)
{
    static const int64_t sizes[][4] = {/* batch, m, n, k */
                                       {1, 1, 1, 1},     {1, 64, 32, 32}, {1, 64, 1, 32}, {1, 1, 64, 32},
                                       {2, 3, 4, 5},     {1, 70, 80, 1},  {1, 70, 80, 2}, {3, 20, 20, 20},
                                       {5, 1, 1, 300},   {1, 0, 3, 2},    {1, 3, 2, 0},   {0, 2, 2, 2},
                                       {1, 100, 1, 100}, {4, 100, 1, 70}, {1, 33, 2, 65}, {7, 2, 3, 4},
                                       {1, 1, 9, 3},     {2, 37, 5, 3},   {1, 300, 3, 3}};
    static const qb_dtype dtypes[] = {QB_FLOAT64, QB_FLOAT32, QB_INT64, QB_INT32, QB_UINT32};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int order_a = 0; order_a < 6; order_a++)
            for (int order_b = 0; order_b < 6; order_b++)
                for (int variant = 0; variant < 4; variant++)
                    check_product(dtypes[(size_t)(order_a + order_b + variant) % 5], sizes[s], order_a, order_b,
                                  variant & 1, variant & 2);
}

/* ---- Outputs that are inputs, constants, each other, reshapes of each other */

static void check_outputs(void)
{
    qb_graph *graph;
    OK(qb_graph_create(&graph));
    qb_value x = input(graph, QB_FLOAT64, 2, (int64_t[]){3, 4}), c, y;
    qb_tensor *constant = random_tensor(QB_FLOAT64, 2, (int64_t[]){3, 4}), *inputs[1], *outputs[9];
    OK(qb_graph_constant(graph, constant, &c));
    y = qb_add(graph, x, c);
    output(graph, x);
    output(graph, c);
    output(graph, y);
    output(graph, y);
    output(graph, qb_reshape(graph, y, 1, (int64_t[]){12}));
    output(graph, qb_reshape(graph, x, 1, (int64_t[]){12}));
    output(graph, qb_permute(graph, y, 2, (int64_t[]){1, 0}));
    output(graph, qb_splat(graph, QB_INT32, 1, (int64_t[]){700}, 3));
    output(graph, qb_reduce_sum(graph, x, 0, NULL));
    inputs[0] = random_tensor(QB_FLOAT64, 2, (int64_t[]){3, 4});
    check_graph(graph, inputs, "outputs");
    qb_program *program;
    OK(qb_compile(context, graph, "cpu", &program));
    qb_graph_release(graph);
    OK(qb_run(program, inputs, outputs));
    CHECK(outputs[0] == inputs[0] && outputs[8] == inputs[0], "an input that is an output is the same tensor");
    CHECK(outputs[1] == constant && outputs[2] == outputs[3], "constants and equal outputs are one tensor");
    qb_tensor *wrong = random_tensor(QB_FLOAT64, 2, (int64_t[]){4, 3}), *untouched = outputs[0];
    CHECK(qb_run(program, &wrong, outputs) == QB_ERROR_VALUE && outputs[0] == untouched, "a wrong shape is an error");
    CHECK(strstr(qb_error_message(), "float64[4,3]") && strstr(qb_error_message(), "float64[3,4]"), "shapes are named");
    for (int i = 0; i < 9; i++)
        qb_tensor_release(outputs[i]);
    qb_tensor_release(wrong);
    qb_tensor_release(inputs[0]);
    qb_tensor_release(constant);
    qb_program_release(program);
}

static void check_devices(void)
{
    qb_graph *graph;
    qb_program *program = NULL;
    OK(qb_graph_create(&graph));
    output(graph, input(graph, QB_FLOAT64, 0, NULL));
    static const char *const absent[] = {"cuda", "cuda:1", "opencl", "opencl:0", "mlx"};
    static const char *const unknown[] = {"gpu", "cuda:", "cuda:x", "cpux", "", "mlx:0"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        CHECK(qb_compile(context, graph, absent[i], &program) == QB_ERROR_UNSUPPORTED &&
                  strcmp(qb_error_device(), absent[i]) == 0 && strstr(qb_error_message(), "lib"),
              "%s", absent[i]);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        CHECK(qb_compile(context, graph, unknown[i], &program) == QB_ERROR_VALUE &&
                  strstr(qb_error_message(), "\"cpu\""),
              "%s", unknown[i]);
    CHECK(program == NULL, "out parameters are untouched");
    qb_graph_release(graph);
}

/* ---- A graph with every kind of step, used by the tests of threads and of memory */

static qb_graph *mixed_graph(int64_t points)
{
    qb_graph *g;
    OK(qb_graph_create(&g));
    qb_value x = input(g, QB_FLOAT64, 2, (int64_t[]){points, 8}), w = input(g, QB_FLOAT64, 2, (int64_t[]){8, 8});
    qb_value b = input(g, QB_FLOAT64, 1, (int64_t[]){8});
    qb_value h = qb_dot(g, x, w, 1, (int64_t[]){1}, (int64_t[]){0}, 0, NULL, NULL);
    h = qb_add(g, h, qb_broadcast_to(g, b, 2, (int64_t[]){points, 8}));
    qb_value square = qb_mul(g, h, h), t = qb_permute(g, square, 2, (int64_t[]){1, 0});
    qb_value p = qb_concat(g, 2, (qb_value[]){t, t}, 0);
    output(g, qb_reduce_sum(g, square, 2, (int64_t[]){0, 1}));
    output(g, qb_reduce_sum(g, qb_mul(g, square, qb_splat_like(g, square, 3)), 1, (int64_t[]){0}));
    output(g, p);
    output(g, qb_reduce_max(g, p, 1, (int64_t[]){1}));
    return g;
}

enum { MIXED_INPUTS = 3, MIXED_OUTPUTS = 4 };

static void mixed_inputs(const qb_graph *graph, qb_tensor **inputs)
{
    for (int i = 0; i < MIXED_INPUTS; i++) {
        const qb_value_info *info = &graph->values[graph->inputs[i]];
        inputs[i] = random_tensor(info->dtype, info->rank, info->shape);
    }
}

typedef struct worker {
    qb_program *program;
    qb_tensor *inputs[MIXED_INPUTS], *expected[MIXED_OUTPUTS];
    int wrong;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    for (int round = 0; round < 200; round++) {
        qb_tensor *outputs[MIXED_OUTPUTS];
        if (qb_run(w->program, w->inputs, outputs) != QB_OK) {
            w->wrong++;
            continue;
        }
        for (int i = 0; i < MIXED_OUTPUTS; i++) {
            w->wrong += !same_bits(outputs[i], w->expected[i]);
            qb_tensor_release(outputs[i]);
        }
    }
    return NULL;
}

static void check_threads(void)
{
    enum { THREADS = 4 };
    qb_graph *graph = mixed_graph(200);
    qb_program *program;
    worker workers[THREADS];
    pthread_t threads[THREADS];
    OK(qb_compile(context, graph, "cpu", &program));
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){.program = program};
        mixed_inputs(graph, workers[i].inputs);
        reference_run(graph, workers[i].inputs, workers[i].expected);
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0, "thread");
    }
    for (int i = 0; i < THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        CHECK(workers[i].wrong == 0, "%d wrong runs in thread %d", workers[i].wrong, i);
        for (int k = 0; k < MIXED_INPUTS; k++)
            qb_tensor_release(workers[i].inputs[k]);
        for (int k = 0; k < MIXED_OUTPUTS; k++)
            qb_tensor_release(workers[i].expected[k]);
    }
    qb_program_release(program);
    qb_graph_release(graph);
}

/* ---- Memory that runs out */

static qb_status compile_and_run(const qb_graph *graph, qb_tensor *const *inputs)
{
    qb_program *program;
    qb_tensor *outputs[MIXED_OUTPUTS];
    char *text;
    QB_TRY(qb_compile(context, graph, "cpu", &program));
    qb_status status = qb_run(program, inputs, outputs);
    for (int i = 0; status == QB_OK && i < MIXED_OUTPUTS; i++)
        qb_tensor_release(outputs[i]);
    if (status == QB_OK)
        status = qb_program_text(program, &text);
    if (status == QB_OK)
        qb_text_free(text);
    qb_program_release(program);
    return status;
}

static qb_status call_in_new_context(qb_tensor *x)
{
    qb_context *fresh;
    qb_tensor *out = NULL;
    QB_TRY(qb_context_create(&fresh));
    const qb_function *add = qb_function_at(qb_function_find("add"));
    qb_status status = qb_call_eagerly(fresh, add, NULL, 2, (qb_tensor *[]){x, x}, NULL, &out, NULL);
    if (status == QB_OK)
        qb_tensor_release(out);
    qb_context_destroy(fresh);
    return status;
}

static void check_memory(void)
{
    qb_graph *graph = mixed_graph(100);
    qb_tensor *inputs[MIXED_INPUTS];
    mixed_inputs(graph, inputs);
    for (int which = 0; which < 2; which++) {
        int64_t n = 1;
        for (bool reached = true; reached; n++) {
            qb_allocate_fail_at(n);
            qb_status status = which == 0 ? compile_and_run(graph, inputs) : call_in_new_context(inputs[0]);
            reached = qb_allocate_has_failed();
            qb_allocate_fail_at(0);
            CHECK(status == (reached ? QB_ERROR_MEMORY : QB_OK), "allocation %d of part %d: status %d", (int)n, which,
                  (int)status);
        }
        CHECK(n > 10, "only %d allocations", (int)n);
    }
    for (int i = 0; i < MIXED_INPUTS; i++)
        qb_tensor_release(inputs[i]);
    qb_graph_release(graph);
}

/* A run of a used frame allocates the outputs, whatever its operations work in. */
static void check_running_allocates_outputs(qb_graph *graph, int output_count, qb_tensor *x)
{
    qb_program *program;
    qb_tensor *outputs[16];
    OK(qb_compile(context, graph, "cpu", &program));
    for (int round = 0; round < 2; round++) {
        qb_allocate_fail_at(round == 0 ? 0 : output_count + 1);
        OK(qb_run(program, &x, outputs));
        CHECK(!qb_allocate_has_failed(), "more than the outputs");
        for (int i = 0; i < output_count; i++)
            qb_tensor_release(outputs[i]);
    }
    qb_allocate_fail_at(0);
    qb_program_release(program);
    qb_graph_release(graph);
    qb_tensor_release(x);
}

/* Along either axis, rows of either length. */
static void check_memory_of_sorting(void)
{
    const int64_t shape[] = {3, 20000};
    qb_graph *graph;
    qb_value in;
    OK(qb_graph_create(&graph));
    OK(qb_graph_input(graph, NULL, QB_FLOAT64, 2, shape, &in));
    for (int axis = 0; axis < 2; axis++) {
        OK(qb_graph_output(graph, qb_sort(graph, in, axis)));
        OK(qb_graph_output(graph, qb_argsort(graph, in, axis)));
    }
    check_running_allocates_outputs(graph, 4, random_tensor(QB_FLOAT64, 2, shape));
}

static void check_memory_of_decompositions(void)
{
    const int64_t shape[] = {30, 12, 12};
    qb_graph *graph;
    qb_value in, made[8];
    OK(qb_graph_create(&graph));
    OK(qb_graph_input(graph, NULL, QB_FLOAT64, 3, shape, &in));
    qb_eigh(graph, in, made);
    qb_svd(graph, in, true, made + 2);
    qb_qr(graph, in, false, made + 5);
    made[7] = qb_singular_values(graph, in);
    for (int i = 0; i < 8; i++)
        OK(qb_graph_output(graph, made[i]));
    check_running_allocates_outputs(graph, 8, random_tensor(QB_FLOAT64, 3, shape));
}

/* ---- Eager calls */

static qb_tensor *scalar(double x)
{
    qb_tensor *tensor;
    OK(qb_tensor_create(QB_FLOAT64, 0, NULL, &x, &tensor));
    return tensor;
}

static void check_eager(void)
{
    const qb_function *multiply = qb_function_at(qb_function_find("multiply")),
                      *sum = qb_function_at(qb_function_find("sum"));
    CHECK(multiply && sum, "functions");
    bool weak = true, weaks[] = {false, true};
    for (int64_t n = 0; n < 5000; n++) { /* more shapes than the cache holds, then old ones again */
        int64_t extent = n < 4500 ? n : n - 4500;
        qb_tensor *x = random_tensor(QB_FLOAT32, 1, &extent), *factor = scalar((double)n), *out;
        OK(qb_call_eagerly(context, multiply, NULL, 2, (qb_tensor *[]){x, factor}, weaks, &out, &weak));
        CHECK(out->dtype == QB_FLOAT32 && out->size == extent && !weak, "%d: %s", (int)n, qb_dtype_name(out->dtype));
        for (int64_t i = 0; i < extent; i += 97)
            CHECK(((float *)out->data)[i] == ((float *)x->data)[i] * (float)n, "element %d", (int)i);
        qb_tensor_release(x);
        qb_tensor_release(factor);
        qb_tensor_release(out);
    }
}

/* A chain of many thousand operations is compiled in one piece, quickly. */
static void check_long_chain(void)
{
    qb_graph *graph;
    OK(qb_graph_create(&graph));
    qb_value x = input(graph, QB_FLOAT64, 1, (int64_t[]){8}), y = x;
    for (int i = 0; i < 20000; i++)
        y = i % 3 == 0   ? qb_add(graph, y, x)
            : i % 3 == 1 ? qb_min(graph, y, qb_splat_like(graph, y, 8))
                         : qb_neg(graph, y);
    output(graph, y);
    qb_tensor *tensor = random_tensor(QB_FLOAT64, 1, (int64_t[]){8});
    struct timespec start, end;
    (void)timespec_get(&start, TIME_UTC);
    check_graph(graph, &tensor, "long chain");
    (void)timespec_get(&end, TIME_UTC);
    double seconds = (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
    CHECK(seconds < 20, "took %g s", seconds);
    qb_tensor_release(tensor);
    qb_graph_release(graph);
}

/* tanh(a b) + 1, summed over rows: operations and bytes as counted by hand. */
static void check_cost(void)
{
    enum { M = 40, K = 50, N = 30, FLOAT = 8 };
    qb_graph *graph;
    qb_value a, b, product, tanh, one, sum;
    qb_tensor *tensor;
    OK(qb_graph_create(&graph));
    OK(qb_tensor_create(QB_FLOAT64, 0, NULL, &(double){1}, &tensor));
    OK(qb_graph_input(graph, "a", QB_FLOAT64, 2, (int64_t[]){M, K}, &a));
    OK(qb_graph_input(graph, "b", QB_FLOAT64, 2, (int64_t[]){K, N}, &b));
    OK(qb_graph_constant(graph, tensor, &one));
    OK(qb_apply(graph, "matmul", 2, (qb_value[]){a, b}, NULL, &product));
    OK(qb_apply(graph, "tanh", 1, &product, NULL, &tanh));
    OK(qb_apply(graph, "add", 2, (qb_value[]){tanh, one}, NULL, &sum));
    OK(qb_apply(graph, "sum", 1, &sum, "axis=1", &sum));
    OK(qb_graph_output(graph, sum));
    qb_program *program;
    qb_cost cost;
    OK(qb_compile(context, graph, "cpu", &program));
    qb_program_cost(program, &cost);
    CHECK(cost.flops == 2 * M * K * N + M * N * (8 + 1 + 1), "%lld", (long long)cost.flops);
    CHECK(cost.bytes == (M * K + K * N + M * N + M * N + M) * FLOAT, "%lld", (long long)cost.bytes);
    CHECK(cost.peak_bytes >= (M * N + M) * FLOAT && cost.peak_bytes < (M * N + M) * FLOAT + 64, "%lld",
          (long long)cost.peak_bytes); /* buffers are aligned */
    qb_program_release(program);
    qb_tensor_release(tensor);
    qb_graph_release(graph);
}

/* sqrt(x - 2) of what is below 2: the message names the operation, its line, and its operand. */
static void check_blame(void)
{
    const double x[] = {1, 3, 0.5};
    qb_graph *graph;
    qb_value value, two;
    qb_tensor *input, *number, *output;
    qb_program *program;
    OK(qb_graph_create(&graph));
    OK(qb_tensor_create(QB_FLOAT64, 1, (int64_t[]){3}, x, &input));
    OK(qb_tensor_create(QB_FLOAT64, 0, NULL, &(double){2}, &number));
    OK(qb_graph_input(graph, "x", QB_FLOAT64, 1, (int64_t[]){3}, &value));
    OK(qb_graph_constant(graph, number, &two));
    qb_graph_set_source(graph, "model.c", 10);
    OK(qb_apply(graph, "subtract", 2, (qb_value[]){value, two}, NULL, &value));
    qb_graph_set_source(graph, "model.c", 11);
    OK(qb_apply(graph, "sqrt", 1, &value, NULL, &value));
    qb_graph_set_source(graph, NULL, 0);
    OK(qb_apply(graph, "exp", 1, &value, NULL, &value));
    OK(qb_graph_output(graph, value));
    OK(qb_compile(context, graph, "cpu", &program));
    OK(qb_run(program, &input, &output));
    CHECK(qb_check_finite(program, &input, &output) == QB_ERROR_NONFINITE, "not found");
    CHECK(strcmp(qb_error_message(), "sqrt, of model.c:11, gave a result that is not finite: 2 nan of 3 elements, the "
                                     "first at (0,). Its operand: float64[3] from -1.5 to 1") == 0,
          "the message");
    qb_tensor_release(output);
    qb_tensor_release(input);
    qb_tensor_release(number);
    qb_program_release(program);
    qb_graph_release(graph);
}

int main(void)
{
    OK(qb_context_create(&context));
    check_devices();
    check_outputs();
    check_reductions();
    check_products();
    for (int i = 0; i < 3000; i++)
        sample_graph(i);
    check_long_chain();
    check_cost();
    check_blame();
    check_threads();
    check_memory();
    check_memory_of_sorting();
    check_memory_of_decompositions();
    check_eager();
    check_accuracy(QB_FLOAT32, 10000000, 1, 1e-6);
    check_accuracy(QB_FLOAT32, 100000, 3, 1e-6);
    check_accuracy(QB_FLOAT32, 20000, 200, 1e-6);
    check_accuracy(QB_FLOAT64, 100000, 7, 1e-14);
    qb_context_destroy(context);
    return 0;
}
