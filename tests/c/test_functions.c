/* The functions layer: every function builds a graph that verifies; promotion, shapes and messages are as specified. */
#include "base/allocate.h"
#include "functions/function.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static qb_graph *graph;

static qb_value input(qb_dtype dtype, int rank, const int64_t *shape)
{
    qb_value value;
    assert(qb_graph_input(graph, NULL, dtype, rank, shape, &value) == QB_OK);
    return value;
}

#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                                             \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define INPUT(dtype, ...) input(dtype, SHAPE(__VA_ARGS__))
#define SCALAR(dtype)     input(dtype, 0, NULL)

static qb_value number(qb_dtype dtype, double x)
{
    return qb_scalar(graph, dtype, x);
}

/* Builds with weak flags (NULL: all strong); on success the result is checked against the type text. */
static void expect_weak(const char *name, int count, const qb_value *operands, const bool *weak, const char *type,
                        bool result_weak)
{
    const qb_function *function = qb_function_at(qb_function_find(name));
    assert(function && function->parameter_count == function->operand_parameters);
    qb_call call = {.graph = graph, .function = function, .operand_count = count, .operand = operands, .weak = weak};
    qb_status status = qb_function_build(&call);
    if (status != QB_OK) {
        (void)fprintf(stderr, "%s: %s\n", name, qb_error_message());
        assert(false);
    }
    const qb_value_info *info = &graph->values[call.result];
    qb_shape_text found = qb_print_type(info->dtype, info->rank, info->shape);
    if (strcmp(found.text, type) != 0 || call.result_weak != result_weak) {
        (void)fprintf(stderr, "%s: expected %s (weak %d), got %s (weak %d)\n", name, type, result_weak, found.text,
                      call.result_weak);
        assert(false);
    }
}

static void expect(const char *name, int count, const qb_value *operands, const char *parameters, const char *type)
{
    qb_value result = QB_NONE;
    qb_status status = qb_apply(graph, name, count, operands, parameters, &result);
    if (status != QB_OK) {
        (void)fprintf(stderr, "%s(%s): %s\n", name, parameters ? parameters : "", qb_error_message());
        assert(false);
    }
    const qb_value_info *info = &graph->values[result];
    qb_shape_text found = qb_print_type(info->dtype, info->rank, info->shape);
    if (strcmp(found.text, type) != 0) {
        (void)fprintf(stderr, "%s(%s): expected %s, got %s\n", name, parameters ? parameters : "", type, found.text);
        assert(false);
    }
}

/* The call fails with the status and a message that holds every one of the words. */
static void expect_failure(const char *name, int count, const qb_value *operands, const char *parameters,
                           qb_status status, const char *words)
{
    qb_value result = QB_NONE;
    qb_status found = qb_apply(graph, name, count, operands, parameters, &result);
    bool matches = found == status && result == QB_NONE && strstr(qb_error_message(), words);
    if (!matches) {
        (void)fprintf(stderr, "%s(%s): expected status %d with \"%s\", got %d with \"%s\"\n", name,
                      parameters ? parameters : "", (int)status, words, (int)found, qb_error_message());
        assert(false);
    }
    assert(qb_graph_take_status(graph) == QB_OK);
}

#define OPERANDS(...)                                                                                                  \
    (int)(sizeof((qb_value[]){__VA_ARGS__}) / sizeof(qb_value)), (qb_value[])                                          \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static void test_promotion_of_arrays(void)
{
    qb_value f64 = INPUT(QB_FLOAT64, 3), f32 = INPUT(QB_FLOAT32, 3), b = INPUT(QB_BOOL, 3);
    qb_value i32 = INPUT(QB_INT32, 3), i64 = INPUT(QB_INT64, 3), u32 = INPUT(QB_UINT32, 3), u64 = INPUT(QB_UINT64, 3);
    expect("add", OPERANDS(f32, i64), NULL, "float32[3]");
    expect("add", OPERANDS(b, f64), NULL, "float64[3]");
    expect("multiply", OPERANDS(b, i32), NULL, "int32[3]");
    expect("add", OPERANDS(i32, i64), NULL, "int64[3]");
    expect("add", OPERANDS(i32, u32), NULL, "int64[3]");
    expect("add", OPERANDS(u32, u64), NULL, "uint64[3]");
    expect("divide", OPERANDS(i32, i64), NULL, "float64[3]");
    expect("divide", OPERANDS(i32, f32), NULL, "float32[3]");
    expect("less", OPERANDS(i32, f32), NULL, "bool[3]");
    expect("greater", OPERANDS(b, b), NULL, "bool[3]");
    expect("sin", OPERANDS(i32), NULL, "float64[3]");
    expect("abs", OPERANDS(i32), NULL, "int32[3]");
    expect("isnan", OPERANDS(b), NULL, "bool[3]");
    expect("bitwise_and", OPERANDS(b, i32), NULL, "int32[3]");
    expect("logical_and", OPERANDS(f32, f64), NULL, "bool[3]");
    expect("where", OPERANDS(f64, f32, i64), NULL, "float32[3]");
    expect("sum", OPERANDS(b), NULL, "int64[]");
    expect("prod", OPERANDS(u32), NULL, "uint64[]");
    expect("mean", OPERANDS(i32), NULL, "float64[]");
    expect("mean", OPERANDS(f32), NULL, "float32[]");
    expect("var", OPERANDS(b), NULL, "float64[]");
    expect("max", OPERANDS(b), NULL, "bool[]");
    expect("any", OPERANDS(f32), NULL, "bool[]");
    expect_failure("add", OPERANDS(f32, f64), NULL, QB_ERROR_VALUE, "add: operands have dtypes float32 and float64");
    expect_failure("where", OPERANDS(b, f64, f32), NULL, QB_ERROR_VALUE, "astype");
    expect_failure("add", OPERANDS(i64, u64), NULL, QB_ERROR_VALUE, "astype");
    expect_failure("add", OPERANDS(b, b), NULL, QB_ERROR_VALUE,
                   "add: not defined for bool and bool; convert with astype");
    expect_failure("divide", OPERANDS(b, b), NULL, QB_ERROR_VALUE, "astype");
    expect_failure("sin", OPERANDS(b), NULL, QB_ERROR_VALUE, "sin: not defined for bool; convert with astype");
    expect_failure("negative", OPERANDS(b), NULL, QB_ERROR_VALUE, "astype");
    expect_failure("bitwise_or", OPERANDS(b, f32), NULL, QB_ERROR_VALUE,
                   "bool and integer arrays, got bool and float32");
    expect_failure("concat", OPERANDS(f32, f64), NULL, QB_ERROR_VALUE,
                   "concat: operands have dtypes float32 and float64");
}

static void test_weak_numbers(void)
{
    static const bool second[] = {false, true}, both[] = {true, true};
    qb_value f64 = INPUT(QB_FLOAT64, 3), f32 = INPUT(QB_FLOAT32, 3), b = INPUT(QB_BOOL, 3), i32 = INPUT(QB_INT32, 3);
    qb_value real = number(QB_FLOAT64, 0.1), whole = number(QB_INT64, 2), truth = number(QB_BOOL, 1);
    qb_value weak_mask = INPUT(QB_FLOAT64, 3);
    expect_weak("multiply", OPERANDS(f32, real), second, "float32[3]", false);
    expect_weak("multiply", OPERANDS(f32, whole), second, "float32[3]", false);
    expect_weak("multiply", OPERANDS(f64, truth), second, "float64[3]", false);
    expect_weak("multiply", OPERANDS(i32, whole), second, "int32[3]", false);
    expect_weak("multiply", OPERANDS(i32, real), second, "float64[3]", true);
    expect_weak("multiply", OPERANDS(b, real), second, "float64[3]", true);
    expect_weak("multiply", OPERANDS(b, whole), second, "float64[3]", true);
    expect_weak("multiply", OPERANDS(f32, weak_mask), second, "float32[3]", false);
    expect_weak("multiply", OPERANDS(whole, whole), both, "int64[]", true);
    expect_weak("multiply", OPERANDS(whole, real), both, "float64[]", true);
    expect_weak("less", OPERANDS(f32, real), second, "bool[3]", false);
    expect_weak("sin", OPERANDS(real), both, "float64[]", true);
    expect_weak("sin", OPERANDS(whole), both, "float64[]", true);
    expect_weak("divide", OPERANDS(i32, whole), second, "float64[3]", false);
    expect_weak("bitwise_and", OPERANDS(b, truth), second, "bool[3]", false);
}

/* A number that meets a float32 array leaves no float64 behind. */
static void test_adopted_constants(void)
{
    static const bool second[] = {false, true};
    qb_graph *own;
    assert(qb_graph_create(&own) == QB_OK);
    qb_value x, numbers[3];
    const int64_t shape[] = {4};
    assert(qb_graph_input(own, "x", QB_FLOAT32, 1, shape, &x) == QB_OK);
    const double values[] = {0.1, NAN, 1e300};
    for (int i = 0; i < 3; i++) {
        numbers[i] = qb_scalar(own, QB_FLOAT64, values[i]);
        qb_call call = {.graph = own,
                        .function = qb_function_at(qb_function_find("multiply")),
                        .operand_count = 2,
                        .operand = (const qb_value[]){x, numbers[i]},
                        .weak = second};
        assert(qb_function_build(&call) == QB_OK);
        assert(qb_graph_output(own, call.result) == QB_OK);
    }
    bool live[64];
    assert(own->value_count <= 64);
    qb_mark_live(own, own->output_count, own->outputs, live);
    for (int i = 0; i < own->value_count; i++)
        assert(!live[i] || own->values[i].dtype == QB_FLOAT32);
    qb_graph_release(own);
}

static void test_broadcasting_and_axes(void)
{
    qb_value a = INPUT(QB_FLOAT64, 2, 1, 3), b = INPUT(QB_FLOAT64, 4, 1), c = INPUT(QB_FLOAT64, 2, 3),
             e = INPUT(QB_FLOAT64, 0, 3);
    expect("add", OPERANDS(a, b), NULL, "float64[2,4,3]");
    expect("add", OPERANDS(e, SCALAR(QB_FLOAT64)), NULL, "float64[0,3]");
    expect("clip", OPERANDS(a, QB_NONE, b), NULL, "float64[2,4,3]");
    expect("sum", OPERANDS(a), "axis=(0, -1), keepdims=True", "float64[1,1,1]");
    expect("sum", OPERANDS(a), "axis=-1", "float64[2,1]");
    expect("sum", OPERANDS(a), "axis=()", "float64[2,1,3]");
    expect("max", OPERANDS(e), "axis=1", "float64[0]");
    expect("sum", OPERANDS(e), "axis=0", "float64[3]");
    expect("norm", OPERANDS(e), "axis=0, keepdims=True", "float64[1,3]");
    expect("logsumexp", OPERANDS(e), "", "float64[]");
    expect("any", OPERANDS(e), "axis=0", "bool[3]");
    expect_failure("add", OPERANDS(a, INPUT(QB_FLOAT64, 2)), NULL, QB_ERROR_VALUE,
                   "add: shapes (2, 1, 3) and (2,) do not broadcast");
    expect_failure("sum", OPERANDS(c), "axis=3", QB_ERROR_VALUE,
                   "sum: axis 3 is out of range for an array of shape (2, 3)");
    expect_failure("sum", OPERANDS(c), "axis=(0, 0)", QB_ERROR_VALUE, "twice");
    expect_failure("max", OPERANDS(e), NULL, QB_ERROR_VALUE,
                   "max: no elements to choose from in an array of shape (0, 3)");
}

static void test_products(void)
{
    qb_value v = INPUT(QB_FLOAT64, 3), m = INPUT(QB_FLOAT64, 2, 3), n = INPUT(QB_FLOAT64, 3, 5),
             i = INPUT(QB_INT32, 3, 5);
    qb_value left = INPUT(QB_FLOAT64, 7, 1, 2, 3), right = INPUT(QB_FLOAT64, 6, 3, 5),
             one = INPUT(QB_FLOAT64, 7, 6, 3, 5);
    expect("matmul", OPERANDS(v, v), NULL, "float64[]");
    expect("matmul", OPERANDS(m, v), NULL, "float64[2]");
    expect("matmul", OPERANDS(v, n), NULL, "float64[5]");
    expect("matmul", OPERANDS(m, n), NULL, "float64[2,5]");
    expect("matmul", OPERANDS(m, i), NULL, "float64[2,5]");
    expect("matmul", OPERANDS(left, n), NULL, "float64[7,1,2,5]");
    expect("matmul", OPERANDS(m, right), NULL, "float64[6,2,5]");
    expect("matmul", OPERANDS(left, right), NULL, "float64[7,6,2,5]");
    expect("matmul", OPERANDS(left, one), NULL, "float64[7,6,2,5]");
    expect("matmul", OPERANDS(v, right), NULL, "float64[6,5]");
    expect("matmul", OPERANDS(left, v), NULL, "float64[7,1,2]");
    expect("dot", OPERANDS(m, right), NULL, "float64[2,6,5]");
    expect("dot", OPERANDS(m, SCALAR(QB_FLOAT64)), NULL, "float64[2,3]");
    expect("tensordot", OPERANDS(m, n), "axes=1", "float64[2,5]");
    expect("tensordot", OPERANDS(left, one), "axes=((3, -4), (2, 0))", "float64[1,2,6,5]");
    expect("tensordot", OPERANDS(m, v), "axes=0", "float64[2,3,3]");
    expect("outer", OPERANDS(m, v), NULL, "float64[6,3]");
    expect_failure("matmul", OPERANDS(m, m), NULL, QB_ERROR_VALUE, "matmul: shapes (2, 3) and (2, 3)");
    expect_failure("matmul", OPERANDS(m, SCALAR(QB_FLOAT64)), NULL, QB_ERROR_VALUE, "multiply by a scalar with *");
    expect_failure("tensordot", OPERANDS(m, n), "axes=3", QB_ERROR_VALUE, "tensordot: cannot sum over 3 axes");
}

static void test_shapes(void)
{
    qb_value x = INPUT(QB_FLOAT32, 2, 3, 4), y = INPUT(QB_FLOAT32, 1, 3, 1), e = INPUT(QB_FLOAT32, 0, 3);
    expect("reshape", OPERANDS(x), "shape=(4, -1)", "float32[4,6]");
    expect("reshape", OPERANDS(x), "shape=-1", "float32[24]");
    expect("reshape", OPERANDS(e), "shape=(-1, 3)", "float32[0,3]");
    expect("ravel", OPERANDS(x), NULL, "float32[24]");
    expect("transpose", OPERANDS(x), NULL, "float32[4,3,2]");
    expect("transpose", OPERANDS(x), "axes=(1, 0, -1)", "float32[3,2,4]");
    expect("swapaxes", OPERANDS(x), "axis1=0, axis2=-1", "float32[4,3,2]");
    expect("moveaxis", OPERANDS(x), "source=0, destination=-1", "float32[3,4,2]");
    expect("moveaxis", OPERANDS(x), "source=(0, 1), destination=(-1, 0)", "float32[3,4,2]");
    expect("squeeze", OPERANDS(y), NULL, "float32[3]");
    expect("squeeze", OPERANDS(y), "axis=0", "float32[3,1]");
    expect("expand_dims", OPERANDS(x), "axis=(0, -1)", "float32[1,2,3,4,1]");
    expect("broadcast_to", OPERANDS(y), "shape=(5, 2, 3, 4)", "float32[5,2,3,4]");
    expect("flip", OPERANDS(x), "axis=1", "float32[2,3,4]");
    expect("concat", OPERANDS(x, x), "axis=1", "float32[2,6,4]");
    expect("concat", OPERANDS(x, y), "axis=None", "float32[27]");
    expect("stack", OPERANDS(x, x, x), "axis=-1", "float32[2,3,4,3]");
    expect("tile", OPERANDS(y), "reps=(2, 1, 2, 4)", "float32[2,1,6,4]");
    expect("repeat", OPERANDS(x), "repeats=2, axis=1", "float32[2,6,4]");
    expect("repeat", OPERANDS(x), "repeats=2", "float32[48]");
    expect("astype", OPERANDS(x), "dtype=float64", "float64[2,3,4]");
    expect("zeros_like", OPERANDS(x), "dtype='int32'", "int32[2,3,4]");
    expect("full_like", OPERANDS(x, SCALAR(QB_FLOAT64)), NULL, "float32[2,3,4]");
    expect("diagonal", OPERANDS(x), "offset=1, axis1=1, axis2=2", "float32[2,3]");
    expect("diagonal", OPERANDS(x), "offset=-9", "float32[4,0]");
    expect("trace", OPERANDS(x), NULL, "float32[4]");
    expect("tril", OPERANDS(x), "k=-1", "float32[2,3,4]");
    expect_failure("reshape", OPERANDS(x), "shape=(5, -1)", QB_ERROR_VALUE,
                   "(2, 3, 4) has 24 elements, which do not make the shape (5, -1)");
    expect_failure("reshape", OPERANDS(x), "shape=(9223372036854775807, 2)", QB_ERROR_VALUE, "24 elements");
    expect_failure("transpose", OPERANDS(x), "axes=(0, 1)", QB_ERROR_VALUE, "every axis must be named once");
    expect_failure("squeeze", OPERANDS(x), "axis=0", QB_ERROR_VALUE, "extent 2");
    expect_failure("broadcast_to", OPERANDS(x), "shape=(2, 3)", QB_ERROR_VALUE,
                   "shape (2, 3, 4) does not broadcast to (2, 3)");
    expect_failure("concat", OPERANDS(x, y), "axis=1", QB_ERROR_VALUE,
                   "array 0 has shape (2, 3, 4) and array 1 has shape (1, 3, 1)");
    expect_failure("stack", OPERANDS(x, y), NULL, QB_ERROR_VALUE, "all shapes must be equal");
    expect_failure("stack", OPERANDS(x), "axis=4", QB_ERROR_VALUE, "out of range");
    expect_failure("tril", OPERANDS(INPUT(QB_FLOAT32, 3)), NULL, QB_ERROR_VALUE, "two axes");
}

static void test_indexing(void)
{
    qb_value x = INPUT(QB_FLOAT64, 4, 5, 6);
    expect("getitem", OPERANDS(x), "index=0", "float64[5,6]");
    expect("getitem", OPERANDS(x), "index=(-1, -1, 5)", "float64[]");
    expect("getitem", OPERANDS(x), "index=(1:3, ..., ::2)", "float64[2,5,3]");
    expect("getitem", OPERANDS(x), "index=(None, ::-1, 4:0:-2)", "float64[1,4,2,6]");
    expect("getitem", OPERANDS(x), "index=(..., None)", "float64[4,5,6,1]");
    expect("getitem", OPERANDS(x), "index=(10:, :-10, -100:100)", "float64[0,0,6]");
    expect("getitem", OPERANDS(x), "index=(::100, 3:3:-1, 2:-100:-100)", "float64[1,0,1]");
    expect("getitem", OPERANDS(x), "index=()", "float64[4,5,6]");
    qb_value i = INPUT(QB_INT64, 3), j = INPUT(QB_INT32, 2, 1), v = INPUT(QB_FLOAT64, 3, 6),
             one = qb_scalar(graph, QB_INT64, 1);
    expect("getitem", OPERANDS(x, i), "index=(:, %0)", "float64[4,3,6]");
    expect("getitem", OPERANDS(x, i, j), "index=(%0, 1:, %1)", "float64[2,3,4]");
    expect("getitem", OPERANDS(x, i, j), "index=(..., %1, %0)", "float64[4,2,3]");
    expect("index_add", OPERANDS(x, v, i), "index=(0, %0)", "float64[4,5,6]");
    expect("dynamic_slice", OPERANDS(v, one, one), "slice_sizes=(1, 4)", "float64[1,4]");
    expect_failure("getitem", OPERANDS(x, i), "index=(%0, %1)", QB_ERROR_TYPE, "array 1, of which there are 1");
    expect_failure("getitem", OPERANDS(x, v), "index=%0", QB_ERROR_INDEX, "astype(int64)");
    expect_failure("take", OPERANDS(x, v), "axis=0", QB_ERROR_INDEX, "astype(int64)");
    expect_failure("index_set", OPERANDS(x, i, i), "index=%0", QB_ERROR_VALUE, "(3,) do not broadcast");
    expect_failure("getitem", OPERANDS(x), "index=(0, 5)", QB_ERROR_INDEX,
                   "index 5 is out of bounds for axis 1 with size 5, of an array of shape (4, 5, 6)");
    expect_failure("getitem", OPERANDS(x), "index=(0, 0, 0, 0)", QB_ERROR_INDEX, "too many indices");
    expect_failure("getitem", OPERANDS(x), "index=(..., ...)", QB_ERROR_INDEX, "ellipsis");
    expect_failure("getitem", OPERANDS(x), "index=::0", QB_ERROR_VALUE, "step of a slice cannot be 0");
}

/* Indexing a tensor directly: x[..., 3:0:-2, 1:, None] of 0 ... 23 in shape (2, 4, 3). */
static void test_tensor_index(void)
{
    const int64_t shape[] = {2, 4, 3}, none = QB_INDEX_ABSENT;
    double data[24];
    for (int i = 0; i < 24; i++)
        data[i] = i;
    qb_tensor *x, *y;
    assert(qb_tensor_create(QB_FLOAT64, 3, shape, data, &x) == QB_OK);
    const int64_t entries[] = {QB_INDEX_ELLIPSIS, none, none, none, QB_INDEX_SLICE,    3,    0,    -2,
                               QB_INDEX_SLICE,    1,    none, none, QB_INDEX_NEW_AXIS, none, none, none};
    qb_attribute index = qb_ints(16, entries);
    assert(qb_tensor_index(x, &index, 0, NULL, &y) == QB_OK);
    assert(y->rank == 4 && y->shape[0] == 2 && y->shape[1] == 2 && y->shape[2] == 2 && y->shape[3] == 1);
    const double expected[] = {10, 11, 4, 5, 22, 23, 16, 17};
    assert(memcmp(y->data, expected, sizeof expected) == 0);
    qb_tensor_release(y);
    const int64_t row[] = {QB_INDEX_INTEGER, -1, none, none};
    index = qb_ints(4, row);
    assert(qb_tensor_index(x, &index, 0, NULL, &y) == QB_OK);
    assert(y->rank == 2 && memcmp(y->data, data + 12, 12 * sizeof *data) == 0);
    qb_tensor_release(y);
    const int64_t outside[] = {QB_INDEX_INTEGER, 2, none, none};
    index = qb_ints(4, outside);
    assert(qb_tensor_index(x, &index, 0, NULL, &y) == QB_ERROR_INDEX);
    qb_tensor_release(x);
}

static void test_squares_of_roots(void)
{
    qb_value x = INPUT(QB_FLOAT64, 3), norm, square, sum, root;
    assert(qb_apply(graph, "norm", 1, &x, "keepdims=True", &norm) == QB_OK);
    assert(qb_apply(graph, "integer_power", 1, &norm, "n=2", &square) == QB_OK);
    for (const qb_node *node = qb_node_of(graph, square); node->operand_count == 2;
         node = qb_node_of(graph, qb_operand(graph, node, 1)))
        assert(node->op != &qb_op_sqrt);
    assert(qb_apply(graph, "square", 1, &x, NULL, &square) == QB_OK);
    assert(qb_apply(graph, "sum", 1, &square, NULL, &sum) == QB_OK);
    assert(qb_apply(graph, "sqrt", 1, &sum, NULL, &root) == QB_OK);
    assert(qb_apply(graph, "multiply", 2, (qb_value[]){root, root}, NULL, &square) == QB_OK);
    assert(square == sum);
    assert(qb_apply(graph, "sqrt", 1, &x, NULL, &root) == QB_OK);
    assert(qb_apply(graph, "square", 1, &root, NULL, &square) == QB_OK);
    assert(square != x);
}

static void test_calls_by_name(void)
{
    qb_value x = INPUT(QB_FLOAT64, 3);
    expect_failure("no_such", OPERANDS(x), NULL, QB_ERROR_VALUE, "there is no function 'no_such'");
    expect_failure("sum", OPERANDS(x, x), NULL, QB_ERROR_TYPE,
                   "sum: got 2 operands; the signature is sum(x, axis=None, keepdims=False)");
    expect_failure("add", OPERANDS(x), NULL, QB_ERROR_TYPE, "add: got 1 operands");
    expect_failure("add", OPERANDS(x, 100000), NULL, QB_ERROR_VALUE, "operand 1 is not a value of the graph");
    expect_failure("sum", OPERANDS(x), "axes=0", QB_ERROR_TYPE, "no parameter is named 'axes'");
    expect_failure("sum", OPERANDS(x), "axis=0, axis=0", QB_ERROR_TYPE, "given twice");
    expect_failure("sum", OPERANDS(x), "axis=0.5", QB_ERROR_VALUE, "cannot read the parameters");
    expect_failure("sum", OPERANDS(x), "keepdims=Yes", QB_ERROR_VALUE, "cannot read the parameters");
    expect_failure("sum", OPERANDS(x), "axis=0 keepdims=True", QB_ERROR_VALUE, "cannot read the parameters");
    expect_failure("reshape", OPERANDS(x), NULL, QB_ERROR_TYPE, "parameter 'shape' is missing");
    expect_failure("astype", OPERANDS(x), "dtype=float16", QB_ERROR_VALUE, "cannot read the parameters");
    expect_failure("integer_power", OPERANDS(x), "n=-1", QB_ERROR_VALUE, "power takes negative exponents");
    expect_failure("concat", 0, NULL, NULL, QB_ERROR_VALUE, "needs an array");
    assert(strcmp(qb_function_signature(qb_function_find("var")), "x, axis=None, ddof=0, keepdims=False") == 0);
    assert(strcmp(qb_function_signature(qb_function_find("reshape")), "x, *shape") == 0);
    assert(strcmp(qb_function_signature(qb_function_find("clip")), "x, lo=None, hi=None") == 0);
    assert(qb_function_find("strong_mul") < 0 && qb_function_find("neg") < 0 && qb_function_find("negative") >= 0);
    assert(qb_function_name(-1) == NULL && qb_function_name(qb_function_count()) == NULL);
}

/* What the required parameters of a function are in the tests that go over all of them. */
static const char *sample_parameters(const char *name)
{
    static const struct {
        const char *name, *parameters;
    } samples[] = {
        {"integer_power", "n=5"},
        {"reshape", "shape=(-1,)"},
        {"swapaxes", "axis1=0, axis2=1"},
        {"moveaxis", "source=0, destination=1"},
        {"expand_dims", "axis=0"},
        {"broadcast_to", "shape=(2, 3, 3)"},
        {"astype", "dtype=float32"},
        {"tile", "reps=(2, 2)"},
        {"repeat", "repeats=2"},
        {"getitem", "index=(0, ::-1)"},
        {"einsum", "equation='ij,jk'"},
        {"pad", "pad_width=((1, 2), (0, 3)), mode='wrap'"},
        {"roll", "shift=1"},
        {"index_set", "index=::-1"},
        {"index_add", "index=(None, ...)"},
        {"index_multiply", "index=..."},
        {"index_min", "index=(:, ::-1)"},
        {"index_max", "index=None"},
        {"dynamic_slice", "slice_sizes=(2, 2)"},
        {"linalg.matrix_power", "n=-3"},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        if (strcmp(samples[i].name, name) == 0)
            return samples[i].parameters;
    return NULL;
}

static bool takes_bits(const char *name)
{
    return strncmp(name, "bitwise", 7) == 0;
}

/* Operands that must have one axis. */
static bool is_vector(const char *name, int operand)
{
    return ((strcmp(name, "polyval") == 0 || strcmp(name, "searchsorted") == 0) && operand == 0) ||
           (strcmp(name, "interp") == 0 && operand > 0);
}

static qb_status build_sample(qb_graph *own, const qb_function *function, qb_dtype dtype)
{
    const int64_t shape[] = {3, 3};
    qb_value operands[QB_MAX_PARAMETERS + 2], results[QB_MAX_RESULTS];
    int count = function->operand_parameters + function->takes_operand_list;
    for (int k = 0; k < count; k++) {
        int of = k < function->operand_parameters ? k : function->operand_parameters - 1;
        const qb_parameter *parameter = &function->parameter[function->operand_at[of]];
        bool is_number = function->takes_operand_list && function->operand_parameters > 1 &&
                         k >= function->operand_parameters - 1; /* x, and a list of positions */
        bool is_index = is_number || parameter->kind == QB_PARAMETER_INDICES;
        QB_TRY(qb_graph_input(own, "x", is_index ? QB_INT64 : dtype,
                              is_number                      ? 0
                              : is_vector(function->name, k) ? 1
                                                             : 2,
                              shape, &operands[k]));
    }
    QB_TRY(qb_apply(own, function->name, count, operands, sample_parameters(function->name), results));
    for (int k = 0; k < function->result_count; k++)
        QB_TRY(qb_graph_output(own, results[k]));
    return qb_verify(own);
}

/* Every function, in both floating types: it builds, verifies, has a summary, and brings no float64 into a float32
 * graph. */
static void test_every_function(void)
{
    for (int i = 0; i < qb_function_count(); i++) {
        const qb_function *function = qb_function_at(i);
        assert(function->summary && *function->summary);
        assert(qb_function_find(function->name) == i); /* names are unique */
        for (int pass = 0; pass < 2; pass++) {
            qb_dtype dtype = takes_bits(function->name) ? QB_INT32 : pass ? QB_FLOAT32 : QB_FLOAT64;
            qb_graph *own;
            assert(qb_graph_create(&own) == QB_OK);
            qb_status status = build_sample(own, function, dtype);
            if (status != QB_OK)
                (void)fprintf(stderr, "%s: %s\n", function->name, qb_error_message());
            assert(status == QB_OK);
            for (int v = 0; dtype != QB_FLOAT64 && v < own->value_count; v++)
                assert(own->values[v].dtype != QB_FLOAT64);
            qb_graph_release(own);
        }
    }
}

/* Each allocation of each build fails once: an error comes back, and nothing is lost or broken. */
static void test_failing_allocations(void)
{
    for (int i = 0; i < qb_function_count(); i++) {
        const qb_function *function = qb_function_at(i);
        qb_dtype dtype = takes_bits(function->name) ? QB_INT32 : QB_FLOAT64;
        bool reached = true;
        for (int64_t n = 1; reached; n++) {
            qb_graph *own;
            assert(qb_graph_create(&own) == QB_OK);
            qb_allocate_fail_at(n);
            qb_status status = build_sample(own, function, dtype);
            reached = qb_allocate_has_failed();
            qb_allocate_fail_at(0);
            assert(status == (reached ? QB_ERROR_MEMORY : QB_OK));
            qb_graph_release(own);
        }
    }
}

int main(void)
{
    assert(qb_graph_create(&graph) == QB_OK);
    test_promotion_of_arrays();
    test_weak_numbers();
    test_adopted_constants();
    test_broadcasting_and_axes();
    test_products();
    test_shapes();
    test_indexing();
    test_tensor_index();
    test_squares_of_roots();
    test_calls_by_name();
    assert(qb_verify(graph) == QB_OK);
    qb_graph_release(graph);
    test_every_function();
    test_failing_allocations();
    return 0;
}
