/* Nodes without operands: inputs, constants, and the counting array. */
#include "ops/build.h"

/* ---- input */

static qb_status input_infer(const qb_inference *in)
{
    qb_type_set(in->result, (qb_dtype)in->attribute[1].integer, in->attribute[2].count, in->attribute[2].integers);
    return QB_OK;
}

const qb_op qb_op_input = {.name = "input",
                           .summary = "An argument of the function",
                           .result_count = 1,
                           .flags = QB_OP_UNIQUE,
                           .attribute_count = 3,
                           .attribute_name = {".index", ".dtype", ".shape"},
                           .lane = QB_LANE_NONE,
                           .infer = input_infer};

/* ---- constant */

static qb_status constant_infer(const qb_inference *in)
{
    const qb_tensor *tensor = in->attribute[0].tensor;
    qb_type_set(in->result, tensor->dtype, tensor->rank, tensor->shape);
    return QB_OK;
}

const qb_op qb_op_constant = {.name = "constant",
                              .summary = "A fixed array",
                              .result_count = 1,
                              .flags = QB_OP_FLAT,
                              .attribute_count = 1,
                              .attribute_name = {"value"},
                              .lane = QB_LANE_NONE,
                              .infer = constant_infer};

qb_value qb_scalar(qb_graph *graph, qb_dtype dtype, double number)
{
    qb_tensor *tensor;
    qb_status status = qb_tensor_create(dtype, 0, NULL, NULL, &tensor);
    if (status != QB_OK)
        return qb_graph_fail(graph, status);
    qb_dtype_store(dtype, number, tensor->data);
    qb_attribute attribute = {.kind = QB_ATTRIBUTE_TENSOR, .tensor = tensor};
    qb_value value = qb_emit(graph, &qb_op_constant, 0, NULL, &attribute);
    qb_tensor_release(tensor);
    return value;
}

qb_value qb_splat(qb_graph *graph, qb_dtype dtype, int rank, const int64_t *shape, double number)
{
    return qb_broadcast_to(graph, qb_scalar(graph, dtype, number), rank, shape);
}

qb_value qb_splat_like(qb_graph *graph, qb_value like, double number)
{
    if (like < 0)
        return like;
    qb_value_info info = graph->values[like];
    return qb_splat(graph, info.dtype, info.rank, info.shape, number);
}

bool qb_splat_number(const qb_graph *graph, qb_value value, double *out)
{
    const qb_node *node = qb_node_of(graph, value);
    if (node->op == &qb_op_broadcast)
        node = qb_node_of(graph, qb_operand(graph, node, 0));
    if (node->op != &qb_op_constant || node->attributes[0].tensor->size != 1)
        return false;
    const qb_tensor *tensor = node->attributes[0].tensor;
    *out = qb_dtype_load(tensor->dtype, tensor->data);
    return true;
}

/* ---- iota: 0, 1, 2, ... along one axis */

static qb_status iota_infer(const qb_inference *in)
{
    int64_t axis = in->attribute[2].integer;
    if (axis < 0 || axis >= in->attribute[1].count)
        return qb_fail(QB_ERROR_VALUE, "iota: axis %lld is out of range for rank %d", (long long)axis,
                       (int)in->attribute[1].count);
    qb_type_set(in->result, (qb_dtype)in->attribute[0].integer, in->attribute[1].count, in->attribute[1].integers);
    return QB_OK;
}

static void iota_cpu(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                     const void *const *operand, const qb_type *result_type, void *const *result)
{
    (void)operand_count, (void)operand_type, (void)operand;
    int axis = (int)attribute[2].integer;
    int64_t outer = 1, inner = 1, extent = result_type->shape[axis];
    for (int i = 0; i < result_type->rank; i++) {
        outer *= i < axis ? result_type->shape[i] : 1;
        inner *= i > axis ? result_type->shape[i] : 1;
    }
    char *out = result[0];
    size_t size = qb_dtype_size(result_type->dtype);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t k = 0; k < extent; k++)
            for (int64_t i = 0; i < inner; i++, out += size)
                qb_dtype_store_integer(result_type->dtype, k, out);
}

const qb_op qb_op_iota = {.name = "iota",
                          .summary = "0, 1, 2, ... along an axis",
                          .result_count = 1,
                          .flags = QB_OP_FLAT,
                          .attribute_count = 3,
                          .attribute_name = {".dtype", ".shape", "axis"},
                          .lane = QB_LANE_NONE,
                          .infer = iota_infer,
                          .cpu = iota_cpu};

qb_value qb_iota(qb_graph *graph, qb_dtype dtype, int rank, const int64_t *shape, int axis)
{
    qb_attribute attributes[] = {qb_int((int64_t)dtype), qb_ints(rank, shape), qb_int(axis)};
    return qb_emit(graph, &qb_op_iota, 0, NULL, attributes);
}
