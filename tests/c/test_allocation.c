/* Memory that runs out: for every step of the library, on a set of graphs, the n-th allocation fails, for every n. Each
 * time the step reports QB_ERROR_MEMORY, leaves what it was given as it was, and works when tried again; under valgrind
 * or AddressSanitizer the test also shows that nothing is lost. */
#include "functions/signature.h"
#include "passes/pipeline.h"
#include "program/program.h"
#include "sample_graphs.h"
#include "transforms/sparsity.h"
#include "transforms/transforms.h"

enum { MOST = 64 };

/* What a step is tried on. */
typedef struct subject {
    const char *name;
    const qb_graph *graph;
    qb_tensor *inputs[MOST];
    int wrt[MOST], wrt_count;
} subject;

typedef qb_status (*step)(const subject *s);

static void check_step(const char *step_name, step run, const subject *s)
{
    bool reached = true;
    for (int64_t n = 1; reached; n++) {
        qb_allocate_fail_at(n);
        qb_status status = run(s);
        reached = qb_allocate_has_failed();
        qb_allocate_fail_at(0);
        CHECK(status == (reached ? QB_ERROR_MEMORY : QB_OK), "%s of %s, allocation %d: status %d", step_name,
              s ? s->name : "nothing", (int)n, (int)status);
        CHECK(!reached || strstr(qb_error_message(), "out of memory"), "%s", step_name);
        CHECK(n < 100000, "%s of %s does not end", step_name, s ? s->name : "nothing");
        if (s && s->graph)
            OK(qb_verify(s->graph));
    }
}

/* ---- Steps on a graph */

/* Every node built again, through hash-consing. */
static qb_status build(const subject *s)
{
    qb_graph *copy;
    qb_value outputs[MOST];
    CHECK(s->graph->output_count <= MOST);
    QB_TRY(qb_graph_like(s->graph, &copy));
    qb_status status = qb_inline(s->graph, copy, copy->inputs, outputs);
    for (int i = 0; status == QB_OK && i < s->graph->output_count; i++)
        status = qb_graph_output(copy, outputs[i]);
    qb_graph_release(copy);
    return status;
}

static qb_status jvp(const subject *s)
{
    qb_graph *derived;
    QB_TRY(qb_graph_jvp(s->graph, s->wrt_count, s->wrt, &derived));
    qb_graph_release(derived);
    return QB_OK;
}

static qb_status vjp(const subject *s)
{
    qb_graph *derived;
    QB_TRY(qb_graph_vjp(s->graph, s->wrt_count, s->wrt, &derived));
    qb_graph_release(derived);
    return QB_OK;
}

static qb_status gradient(const subject *s)
{
    qb_graph *derived;
    QB_TRY(qb_graph_gradient(s->graph, s->wrt_count, s->wrt, &derived));
    qb_graph_release(derived);
    return QB_OK;
}

static qb_status vmap(const subject *s)
{
    bool mapped[MOST] = {true, false, true};
    qb_graph *batched;
    QB_TRY(qb_graph_vmap(s->graph, mapped, 3, &batched));
    qb_graph_release(batched);
    return QB_OK;
}

/* The pattern, and both ways to colour that of output 0 and its square. */
static qb_status sparsity(const subject *s)
{
    qb_pattern pattern, transposed = {0}, symmetric = {0};
    int32_t count;
    QB_TRY(qb_sparsity(s->graph, s->wrt[0], 0, &pattern));
    int64_t size = pattern.rows > pattern.columns ? pattern.rows : pattern.columns;
    int32_t *colour = malloc((size_t)size * sizeof *colour + 1);
    int64_t *place = malloc((size_t)pattern.start[pattern.rows] * sizeof *place + 1);
    CHECK(colour && place);
    qb_status status = qb_colour_columns(&pattern, colour, &count);
    if (status == QB_OK)
        status = qb_compressed_places(&pattern, QB_COMPRESS_COLUMNS, colour, place);
    if (status == QB_OK)
        status = qb_pattern_transpose(&pattern, &transposed);
    if (status == QB_OK && pattern.rows == pattern.columns)
        status = qb_pattern_symmetric(&pattern, &symmetric);
    if (status == QB_OK && pattern.rows == pattern.columns)
        status = qb_colour_symmetric(&symmetric, colour, &count);
    qb_pattern_end(&pattern);
    qb_pattern_end(&transposed);
    qb_pattern_end(&symmetric);
    free(colour);
    free(place);
    return status;
}

static qb_status split(const subject *s)
{
    bool late[MOST] = {true};
    qb_graph *first, *second;
    QB_TRY(qb_split(s->graph, late, 0, true, &first, &second));
    qb_graph_release(first);
    qb_graph_release(second);
    return QB_OK;
}

static qb_status optimize(const subject *s)
{
    qb_graph *simpler;
    QB_TRY(qb_optimize(s->graph, &simpler));
    qb_graph_release(simpler);
    return QB_OK;
}

static qb_status graph_text(const subject *s)
{
    char *text;
    QB_TRY(qb_graph_text(s->graph, &text));
    qb_text_free(text);
    return QB_OK;
}

/* In a context of its own, so that nothing is there from the last time; twice, with a used frame. */
static qb_status compile_and_run(const subject *s)
{
    qb_context *context;
    qb_program *program;
    qb_tensor *outputs[MOST];
    char *text;
    QB_TRY(qb_context_create(&context));
    qb_status status = qb_compile(context, s->graph, "cpu", &program);
    if (status == QB_OK) {
        for (int round = 0; status == QB_OK && round < 2; round++) {
            status = qb_run(program, s->inputs, outputs);
            if (status == QB_OK)
                check_release(s->graph->output_count, outputs);
        }
        if (status == QB_OK && (status = qb_program_text(program, &text)) == QB_OK)
            qb_text_free(text);
        qb_program_release(program);
    }
    qb_context_destroy(context);
    return status;
}

/* Outputs that claim to be NaN: the program is run again with all its values, and none is to blame. */
static qb_status check_finite(const subject *s)
{
    qb_program *program;
    qb_tensor *outputs[MOST] = {NULL};
    QB_TRY(qb_compile(NULL, s->graph, "cpu", &program));
    qb_status status = qb_run(program, s->inputs, outputs);
    if (status == QB_OK) {
        for (int i = 0; i < s->graph->output_count; i++) {
            qb_tensor *out = outputs[i];
            bool taken = out->size > 0 && qb_dtype_is_floating(out->dtype) && out->references == 1;
            for (int64_t k = 0; taken && k < out->size; k++)
                qb_dtype_store(out->dtype, NAN, (char *)out->data + (size_t)k * qb_dtype_size(out->dtype));
        }
        status = qb_check_finite(program, s->inputs, outputs);
        check_release(s->graph->output_count, outputs);
    }
    qb_program_release(program);
    return status == QB_ERROR_NONFINITE ? QB_OK : status;
}

static void check_graph(const sample *sample, const qb_graph *graph, const char *name)
{
    subject s = {.name = name, .graph = graph};
    for (int i = 0; i < graph->input_count; i++)
        if (qb_dtype_is_floating(graph->values[graph->inputs[i]].dtype))
            s.wrt[s.wrt_count++] = i;
    sample_inputs(sample, graph, s.inputs);
    check_step("build", build, &s);
    check_step("jvp", jvp, &s);
    check_step("vjp", vjp, &s);
    check_step("vmap", vmap, &s);
    check_step("split", split, &s);
    if (s.wrt_count > 0)
        check_step("sparsity", sparsity, &s);
    check_step("optimize", optimize, &s);
    check_step("graph text", graph_text, &s);
    check_step("compile and run", compile_and_run, &s);
    check_step("check finite", check_finite, &s);
    if (graph->values[graph->outputs[0]].rank == 0 && qb_dtype_is_floating(graph->values[graph->outputs[0]].dtype))
        check_step("gradient", gradient, &s);
    check_release(graph->input_count, s.inputs);
}

static bool is_tried_derived(const sample *s)
{
    static const char *const names[] = {"network", "softmax", "pad", "while", "nested loop", "switch", "custom_jvp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], s->name) == 0)
            return true;
    return false;
}

/* The samples, and of a few the derivatives too: vjp, and vmap of it. */
static void test_graphs(void)
{
    for (int i = 0; i < STRUCTURAL_SAMPLES; i++) {
        const sample *s = &structural_samples[i];
        qb_graph *graph = build_sample(s, QB_FLOAT64), *reverse, *batched;
        check_graph(s, graph, s->name);
        if (is_tried_derived(s)) {
            bool mapped[MOST] = {true};
            OK(qb_graph_vjp(graph, 1, (const int[]){graph->input_count > 1}, &reverse));
            OK(qb_graph_vmap(reverse, mapped, 2, &batched));
            check_graph(s, reverse, "a vjp");
            check_graph(s, batched, "vmap of a vjp");
            qb_graph_release(reverse);
            qb_graph_release(batched);
        }
        qb_graph_release(graph);
    }
}

/* ---- A graph as a user of the C library builds it; on failure it is as it was */

static qb_status build_by_name(const subject *s)
{
    (void)s;
    qb_graph *g;
    qb_value x, y, n;
    QB_TRY(qb_graph_create(&g));
    qb_status status = qb_graph_input(g, "x", QB_FLOAT64, SHAPE(4, 3), &x);
    for (int i = 0; status == QB_OK && i < 40; i++) /* the tables grow */
        status = qb_graph_input(g, "a name that takes its room", QB_INT32, SHAPE(3), &n);
    if (status == QB_OK)
        status = qb_apply(g, "softmax", 1, &x, "axis=-1", &y);
    if (status == QB_OK)
        status = qb_apply(g, "var", 1, &y, "axis=(0, 1), ddof=1", &y);
    if (status == QB_OK)
        status = qb_apply(g, "getitem", 1, &x, "index=(1:, None, ::-1)", &x);
    if (status == QB_OK)
        status = qb_apply(g, "add", 2, (qb_value[]){x, n}, NULL, &x);
    for (int i = 0; status == QB_OK && i < 20; i++)
        status = qb_graph_output(g, i % 2 ? x : y);
    qb_allocate_fail_at(0);
    bool failed = status != QB_OK;
    OK(qb_verify(g));
    CHECK(failed || (qb_graph_input_count(g) == 41 && qb_graph_output_count(g) == 20));
    qb_graph_release(g);
    return status;
}

static void test_building(void)
{
    /* the failing mode ends inside the step, so whether it was reached is seen by the status */
    qb_status status = QB_ERROR_MEMORY;
    for (int64_t n = 1; status != QB_OK; n++) {
        qb_allocate_fail_at(n);
        status = build_by_name(NULL);
        qb_allocate_fail_at(0);
        CHECK(status == QB_OK || status == QB_ERROR_MEMORY, "allocation %d: status %d", (int)n, (int)status);
        CHECK(n < 10000);
    }
}

/* ---- Eager calls, in a new context each: a look-up that fails, a compilation, a run, a hit */

static const char *const eager_calls[][2] = {
    {"add", ""},     {"sum", "axis=0, keepdims=True"}, {"matmul", ""},          {"softmax", "axis=-1"},
    {"norm", ""},    {"getitem", "index=(0, ::-1)"},   {"concat", "axis=1"},    {"transpose", ""},
    {"sigmoid", ""}, {"reshape", "shape=(-1,)"},       {"integer_power", "n=5"}};
static int eager_call;

static qb_status call_eagerly(const subject *s)
{
    const qb_function *function = qb_function_at(qb_function_find(eager_calls[eager_call][0]));
    qb_attribute parameters[QB_MAX_PARAMETERS];
    int64_t integers[QB_MAX_INTEGERS];
    qb_integers space = {integers, 0, QB_MAX_INTEGERS};
    qb_context *context;
    qb_tensor *result, *operands[20];
    int count = function->takes_operand_list ? 20 : function->operand_parameters;
    for (int i = 0; i < count; i++)
        operands[i] = s->inputs[0];
    QB_TRY(qb_context_create(&context));
    qb_status status = qb_parse_parameters(function, eager_calls[eager_call][1], parameters, &space);
    for (int round = 0; status == QB_OK && round < 2; round++) {
        status = qb_call_eagerly(context, function, parameters, count, operands, NULL, &result, NULL);
        if (status == QB_OK)
            qb_tensor_release(result);
    }
    qb_context_destroy(context);
    return status;
}

static void test_eager_calls(void)
{
    const double elements[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    subject s = {.inputs = {check_tensor(QB_FLOAT64, SHAPE(3, 3), elements)}};
    for (eager_call = 0; eager_call < (int)(sizeof eager_calls / sizeof *eager_calls); eager_call++) {
        s.name = eager_calls[eager_call][0];
        check_step("an eager call", call_eagerly, &s);
    }
    qb_tensor_release(s.inputs[0]);
}

/* ---- Many inputs, outputs and operands: what is kept on the stack for a few is on the heap here */

static void test_wide_graph(void)
{
    const sample s = {"wide", NULL, NULL, {0.5, 0.5}, {1, 1}};
    qb_graph *g;
    qb_value inputs[40];
    OK(qb_graph_create(&g));
    for (int i = 0; i < 40; i++)
        inputs[i] = check_input(g, QB_FLOAT64, SHAPE(2));
    check_output(g, qb_concat(g, 40, inputs, 0));
    for (int i = 0; i < 39; i++)
        check_output(g, qb_sin(g, qb_mul(g, inputs[i], inputs[i + 1])));
    check_graph(&s, g, s.name);
    qb_graph_release(g);
}

static qb_status create_context(const subject *s)
{
    (void)s;
    qb_context *context;
    QB_TRY(qb_context_create(&context));
    qb_context_destroy(context);
    return QB_OK;
}

int main(void)
{
    check_step("creating a context", create_context, NULL);
    test_building();
    test_eager_calls();
    test_wide_graph();
    test_graphs();
    return 0;
}
