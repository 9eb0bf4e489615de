/* The table of functions, and calls by name.
 *
 * The table is functions.def and the rows of ops/elementwise.def. What is derived from a signature is worked out when
 * the table is first used; after that it never changes. */
#include "functions/builder.h"
#include "functions/signature.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

/* ---- The table */

/* Columns of elementwise.def: dtypes of operands and result -> which operands the function takes */
#define TAKES_NUMERIC_SAME  QB_TAKES_NUMERIC
#define TAKES_FLOATING_SAME QB_TAKES_FLOATING
#define TAKES_FLOATING_BOOL QB_TAKES_TESTABLE
#define TAKES_BITWISE_SAME  QB_TAKES_BITWISE
#define TAKES_ANY_BOOL      QB_TAKES_ANY
#define TAKES_ANY_SAME      QB_TAKES_ORDERED

#define METHOD            true
#define MODULE            false
#define LINALG            false
#define NAME_METHOD(name) name
#define NAME_MODULE(name) name
#define NAME_LINALG(name) "linalg." name

static qb_function functions[] = {
#define UNARY(op, operands, result, product, flops, partial, text)                                                     \
    {.name = #op,                                                                                                      \
     .signature = "x",                                                                                                 \
     .summary = text,                                                                                                  \
     .is_method = true,                                                                                                \
     .build = qb_build_elementwise,                                                                                    \
     .primitive = &qb_op_##op,                                                                                         \
     .takes = TAKES_##operands##_##result},
#define BINARY(op, operands, result, product, flops, partial_a, partial_b, text)                                       \
    {.name = #op,                                                                                                      \
     .signature = "a, b",                                                                                              \
     .summary = text,                                                                                                  \
     .is_method = true,                                                                                                \
     .build = qb_build_elementwise,                                                                                    \
     .primitive = &qb_op_##op,                                                                                         \
     .takes = TAKES_##operands##_##result},
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
#define FUNCTION(function, parameters, where, builder, text)                                                           \
    {.name = NAME_##where(#function), .signature = parameters, .summary = text, .is_method = where, .build = builder},
#include "functions/functions.def"
#undef FUNCTION
};

enum { ROWS = sizeof functions / sizeof *functions };

/* Public names of primitives, where they differ; NULL: not public. */
static const struct renaming {
    const qb_op *primitive;
    const char *name;
} renamings[] = {
#define FUNCTION(function, parameters, where, builder, text)
#define RENAMED(primitive, name) {&qb_op_##primitive, name},
#define INTERNAL(primitive)      {&qb_op_##primitive, NULL},
#include "functions/functions.def"
#undef FUNCTION
};

static int function_count;
static qb_function *by_index[ROWS]; /* public functions, in the order of the table */
static int by_name[ROWS];           /* their indices, in the order of their names */
static pthread_once_t prepared = PTHREAD_ONCE_INIT;

static int compare_names(const void *a, const void *b)
{
    return strcmp(by_index[*(const int *)a]->name, by_index[*(const int *)b]->name);
}

static void prepare(void)
{
    for (int row = 0; row < ROWS; row++) {
        qb_function *function = &functions[row];
        for (size_t i = 0; function->primitive && i < sizeof renamings / sizeof *renamings; i++)
            if (renamings[i].primitive == function->primitive)
                function->name = renamings[i].name;
        if (!function->name)
            continue;
        bool well_formed = qb_parse_signature(function);
        assert(well_formed);
        (void)well_formed;
        by_name[function_count] = function_count;
        by_index[function_count++] = function;
    }
    qsort(by_name, (size_t)function_count, sizeof *by_name, compare_names);
}

const qb_function *qb_function_at(int index)
{
    (void)pthread_once(&prepared, prepare);
    return index >= 0 && index < function_count ? by_index[index] : NULL;
}

int qb_function_find(const char *name)
{
    (void)pthread_once(&prepared, prepare);
    for (int low = 0, high = function_count; low < high;) {
        int middle = (low + high) / 2, order = strcmp(name, by_index[by_name[middle]]->name);
        if (order == 0)
            return by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return -1;
}

int qb_function_count(void)
{
    (void)pthread_once(&prepared, prepare);
    return function_count;
}

const char *qb_function_name(int index)
{
    const qb_function *function = qb_function_at(index);
    return function ? function->name : NULL;
}

const char *qb_function_signature(int index)
{
    const qb_function *function = qb_function_at(index);
    return function ? function->call_text : NULL;
}

int qb_function_result_count(int index)
{
    const qb_function *function = qb_function_at(index);
    return function ? function->result_count : 0;
}

const char *qb_function_summary(int index)
{
    const qb_function *function = qb_function_at(index);
    return function ? function->summary : NULL;
}

/* ---- Calls */

qb_status qb_function_build(qb_call *call)
{
    for (int i = 0; i < QB_MAX_RESULTS; i++)
        call->results[i] = QB_NONE;
    call->result_weak = false;
    call->failed = QB_NONE;
    qb_status status = call->function->build(call);
    qb_status emitted = qb_graph_take_status(call->graph);
    if (status != QB_OK)
        return status;
    for (int i = 0; emitted == QB_OK && i < call->function->result_count; i++)
        if (call->results[i] == QB_FAILED || (i == 0 && call->result < 0))
            return qb_fail(QB_ERROR_INTERNAL, "%s: made no result %d", call->function->name, i);
    return emitted;
}

/* Operands one by one in the order of the signature, absent ones as QB_NONE; a list of operands takes what is left. */
static qb_status check_operands(const qb_graph *graph, const qb_function *function, int count, const qb_value *operands)
{
    int most = function->takes_operand_list || function->takes_index ? INT32_MAX : function->operand_parameters;
    if (count < function->required_operands || count > most)
        return qb_fail(QB_ERROR_TYPE, "%s: got %d operands; the signature is %s(%s)", function->name, count,
                       function->name, function->call_text);
    for (int i = 0; i < count; i++) {
        bool may_be_absent = i >= function->required_operands && !function->takes_operand_list;
        if (operands[i] == QB_NONE && may_be_absent)
            continue;
        if (operands[i] < 0 || operands[i] >= graph->value_count)
            return qb_fail(QB_ERROR_VALUE, "%s: operand %d is not a value of the graph", function->name, i);
    }
    return QB_OK;
}

qb_status qb_apply(qb_graph *graph, const char *name, int operand_count, const qb_value *operands,
                   const char *parameters, qb_value *out)
{
    const qb_function *function = name ? qb_function_at(qb_function_find(name)) : NULL;
    if (!function)
        return qb_fail(QB_ERROR_VALUE, "there is no function '%.100s'; qb_function_name lists them", name ? name : "");
    QB_TRY(check_operands(graph, function, operand_count, operands));
    int64_t integers[QB_MAX_INTEGERS];
    qb_integers space = {integers, 0, QB_MAX_INTEGERS};
    qb_attribute attributes[QB_MAX_PARAMETERS];
    QB_TRY(qb_parse_parameters(function, parameters, attributes, &space));
    qb_call call = {.graph = graph,
                    .function = function,
                    .operand_count = operand_count,
                    .operand = operands,
                    .parameter = attributes};
    QB_TRY(qb_function_build(&call));
    memcpy(out, call.results, (size_t)function->result_count * sizeof *out);
    return QB_OK;
}
