/* A reference for programs: a graph evaluated node by node, each by the plainest loop there is. Elementwise operations
 * use the lane kernels on whole arrays, which have tests of their own; reductions and products add up in order; graphs in
 * operations are evaluated likewise. */
#ifndef GRAPH_REFERENCE_H
#define GRAPH_REFERENCE_H

#include "control/control.h"
#include "ops/op.h"

#include <assert.h>
#include <stdlib.h>

typedef struct reference_array {
    const qb_value_info *info;
    int64_t count;
    char *data;
} reference_array;

static int64_t reference_count(int rank, const int64_t *shape)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++)
        count *= shape[i];
    return count;
}

static void reference_index(int64_t position, int rank, const int64_t *shape, int64_t *index)
{
    for (int i = rank - 1; i >= 0; i--) {
        index[i] = position % shape[i];
        position /= shape[i];
    }
}

static int64_t reference_position(const int64_t *index, int rank, const int64_t *shape)
{
    int64_t position = 0;
    for (int i = 0; i < rank; i++)
        position = position * shape[i] + index[i];
    return position;
}

static void reference_lane(const qb_node *node, const reference_array *a, const reference_array *out)
{
    if (node->op->lane == QB_LANE_NONE || (node->op == &qb_op_convert && a[0].info->dtype == out->info->dtype)) {
        memcpy(out->data, a[0].data, (size_t)out->count * qb_dtype_size(out->info->dtype));
        return;
    }
    qb_dtype dtype = a[node->op == &qb_op_select ? 1 : 0].info->dtype;
    qb_lane_kernel kernel = qb_lane_lookup(node->op->lane, dtype, out->info->dtype);
    assert(kernel);
    kernel((size_t)out->count, out->data, a[0].data, node->operand_count > 1 ? a[1].data : a[0].data,
           node->operand_count > 2 ? a[2].data : a[0].data);
}

static void reference_view(const qb_node *node, const reference_array *a, const reference_array *out)
{
    const qb_attribute *attribute = node->attributes;
    size_t size = qb_dtype_size(out->info->dtype);
    int64_t index[QB_MAX_RANK], from[QB_MAX_RANK];
    for (int64_t p = 0; p < out->count; p++) {
        reference_index(p, out->info->rank, out->info->shape, index);
        int64_t source = p;
        for (int i = 0; i < a->info->rank && node->op != &qb_op_reshape; i++) {
            if (node->op == &qb_op_permute)
                from[attribute[0].integers[i]] = index[i];
            else if (node->op == &qb_op_broadcast)
                from[i] = a->info->shape[i] == 1 ? 0 : index[attribute[1].integers[i]];
            else if (node->op == &qb_op_slice)
                from[i] = attribute[0].integers[i] + index[i] * attribute[2].integers[i];
            else
                from[i] = index[i];
        }
        if (node->op == &qb_op_reverse)
            for (int i = 0; i < attribute[0].count; i++)
                from[attribute[0].integers[i]] =
                    a->info->shape[attribute[0].integers[i]] - 1 - index[attribute[0].integers[i]];
        if (node->op != &qb_op_reshape)
            source = reference_position(from, a->info->rank, a->info->shape);
        memcpy(out->data + (size_t)p * size, a->data + (size_t)source * size, size);
    }
}

/* Sums of integers beyond 2^53 are not compared, so a double serves every dtype. */
static void reference_reduce(const qb_node *node, const reference_array *a, const reference_array *out)
{
    size_t size = qb_dtype_size(out->info->dtype);
    bool reduced[QB_MAX_RANK] = {false};
    for (int i = 0; i < node->attributes[0].count; i++)
        reduced[node->attributes[0].integers[i]] = true;
    double *total = malloc((size_t)out->count * sizeof *total + 1);
    bool *seen = calloc((size_t)out->count + 1, sizeof *seen);
    assert(total && seen);
    for (int64_t p = 0; p < out->count; p++)
        total[p] = node->op == &qb_op_reduce_prod ? 1 : 0;
    for (int64_t p = 0; p < a->count; p++) {
        int64_t index[QB_MAX_RANK], kept[QB_MAX_RANK];
        int rank = 0;
        reference_index(p, a->info->rank, a->info->shape, index);
        for (int i = 0; i < a->info->rank; i++)
            if (!reduced[i])
                kept[rank++] = index[i];
        int64_t target = reference_position(kept, rank, out->info->shape);
        double x = qb_dtype_load(a->info->dtype, a->data + (size_t)p * size), *t = &total[target];
        if (node->op == &qb_op_reduce_sum)
            *t += x;
        else if (node->op == &qb_op_reduce_prod)
            *t *= x;
        else if (!seen[target] || (node->op == &qb_op_reduce_max ? x > *t : x < *t) || x != x)
            *t = x;
        seen[target] = true;
    }
    for (int64_t p = 0; p < out->count; p++)
        qb_dtype_store(out->info->dtype, total[p], out->data + (size_t)p * size);
    free(total);
    free(seen);
}

/* Which axes of operand `i` are free. */
static int reference_free_axes(const qb_node *node, int i, int rank, int64_t *axes)
{
    int count = 0;
    for (int axis = 0; axis < rank; axis++) {
        bool used = false;
        for (int k = 0; k < 2; k++)
            for (int j = 0; j < node->attributes[2 * k + i].count; j++)
                used = used || node->attributes[2 * k + i].integers[j] == axis;
        if (!used)
            axes[count++] = axis;
    }
    return count;
}

static void reference_dot(const qb_node *node, const reference_array *a, const reference_array *out)
{
    const qb_attribute *attribute = node->attributes;
    size_t size = qb_dtype_size(out->info->dtype);
    int64_t free_axes[2][QB_MAX_RANK], extents[QB_MAX_RANK], steps[QB_MAX_RANK];
    int free_count[2], contracted = attribute[0].count, batch = attribute[2].count;
    for (int i = 0; i < 2; i++)
        free_count[i] = reference_free_axes(node, i, a[i].info->rank, free_axes[i]);
    for (int j = 0; j < contracted; j++)
        extents[j] = a[0].info->shape[attribute[0].integers[j]];
    int64_t terms = reference_count(contracted, extents);
    for (int64_t p = 0; p < out->count; p++) {
        int64_t index[QB_MAX_RANK], from[2][QB_MAX_RANK];
        double sum = 0;
        reference_index(p, out->info->rank, out->info->shape, index);
        for (int i = 0; i < 2; i++) {
            for (int j = 0; j < batch; j++)
                from[i][attribute[2 + i].integers[j]] = index[j];
            for (int j = 0; j < free_count[i]; j++)
                from[i][free_axes[i][j]] = index[batch + (i == 1 ? free_count[0] : 0) + j];
        }
        for (int64_t t = 0; t < terms; t++) {
            double product = 1;
            reference_index(t, contracted, extents, steps);
            for (int i = 0; i < 2; i++) {
                for (int j = 0; j < contracted; j++)
                    from[i][attribute[i].integers[j]] = steps[j];
                int64_t position = reference_position(from[i], a[i].info->rank, a[i].info->shape);
                product *= qb_dtype_load(a[i].info->dtype, a[i].data + (size_t)position * size);
            }
            sum += product;
        }
        qb_dtype_store(out->info->dtype, sum, out->data + (size_t)p * size);
    }
}

/* The operation's own kernel, which may have several results: `out` is the first of them. */
static void reference_call(const qb_graph *graph, const qb_node *node, const reference_array *operands,
                           const reference_array *out)
{
    qb_type types[64], results[8];
    const void *data[64];
    void *made[8];
    assert(node->result_count <= 8);
    for (int i = 0; i < node->operand_count; i++) {
        qb_value_type(graph, qb_operand(graph, node, i), &types[i]);
        data[i] = operands[i].data;
    }
    for (int i = 0; i < node->result_count; i++) {
        qb_value_type(graph, node->result + i, &results[i]);
        made[i] = out[i].data;
    }
    node->op->cpu(node->attributes, node->operand_count, types, data, results, made);
}

/* ---- Operations with graphs */

static void reference_run(const qb_graph *graph, qb_tensor *const *inputs, qb_tensor **outputs);

enum { REFERENCE_MOST = 64 };

static qb_tensor *reference_tensor(const qb_value_info *info, const char *data)
{
    qb_tensor *tensor;
    qb_status status = qb_tensor_create(info->dtype, info->rank, info->shape, data, &tensor);
    assert(status == QB_OK);
    (void)status;
    return tensor;
}

static void reference_release(int count, qb_tensor **tensors)
{
    for (int i = 0; i < count; i++)
        qb_tensor_release(tensors[i]);
}

static void reference_store(const qb_tensor *tensor, const reference_array *out, int64_t row)
{
    size_t bytes = (size_t)tensor->size * qb_dtype_size(tensor->dtype);
    if (bytes > 0)
        memcpy(out->data + (size_t)row * bytes, tensor->data, bytes);
}

static void reference_once(const qb_graph *body, const reference_array *operands, const reference_array *out)
{
    qb_tensor *inputs[REFERENCE_MOST], *outputs[REFERENCE_MOST];
    assert(body->input_count <= REFERENCE_MOST && body->output_count <= REFERENCE_MOST);
    for (int i = 0; i < body->input_count; i++)
        inputs[i] = reference_tensor(operands[i].info, operands[i].data);
    reference_run(body, inputs, outputs);
    for (int i = 0; i < body->output_count; i++)
        reference_store(outputs[i], &out[i], 0);
    reference_release(body->input_count, inputs);
    reference_release(body->output_count, outputs);
}

/* Whether the condition, which reads what the body does but the sequences, holds. */
static bool reference_test(const qb_loop *loop, qb_tensor *const *inputs)
{
    qb_tensor *answer;
    if (!loop->condition)
        return true;
    reference_run(loop->condition, inputs, &answer);
    bool holds = *(const bool *)answer->data;
    qb_tensor_release(answer);
    return holds;
}

static void reference_loop(const qb_node *node, const reference_array *operands, const reference_array *out)
{
    qb_loop loop = qb_loop_of(node->attributes, node->operand_count, NULL);
    int counted = node->operand_count - qb_loop_operands(&loop), lasting = loop.consts + loop.carries;
    const qb_graph *body = loop.body;
    int64_t limit = loop.capacity < 0 ? INT64_MAX : loop.capacity, executed = 0;
    qb_tensor *inputs[REFERENCE_MOST], *outputs[REFERENCE_MOST];
    assert(body->input_count <= REFERENCE_MOST && body->output_count <= REFERENCE_MOST);
    if (counted) {
        int64_t count = *(const int64_t *)(const void *)operands[0].data;
        limit = count < 0 ? 0 : count < limit ? count : limit;
    }
    operands += counted;
    for (int i = 0; i < lasting; i++)
        inputs[1 + i] = reference_tensor(operands[i].info, operands[i].data);
    for (int i = loop.carries; i < body->output_count; i++)
        memset(out[i].data, 0, (size_t)out[i].count * qb_dtype_size(out[i].info->dtype));
    for (; executed < limit; executed++) {
        int64_t index = loop.reverse ? limit - 1 - executed : executed;
        inputs[0] = reference_tensor(&body->values[body->inputs[0]], (const char *)&index);
        bool goes_on = reference_test(&loop, inputs);
        for (int i = lasting; goes_on && i < lasting + loop.sequences; i++) {
            const qb_value_info *element = &body->values[body->inputs[1 + i]];
            size_t bytes = (size_t)reference_count(element->rank, element->shape) * qb_dtype_size(element->dtype);
            inputs[1 + i] = reference_tensor(element, operands[i].data + (size_t)index * bytes);
        }
        if (goes_on)
            reference_run(body, inputs, outputs);
        qb_tensor_release(inputs[0]);
        if (!goes_on)
            break;
        for (int i = loop.carries; i < body->output_count; i++) {
            reference_store(outputs[i], &out[i], index);
            qb_tensor_release(outputs[i]);
        }
        reference_release(loop.sequences, inputs + 1 + lasting);
        reference_release(loop.carries, inputs + 1 + loop.consts);
        memcpy(inputs + 1 + loop.consts, outputs, (size_t)loop.carries * sizeof *inputs);
    }
    for (int i = 0; i < loop.carries; i++)
        reference_store(inputs[1 + loop.consts + i], &out[i], 0);
    if (loop.condition)
        memcpy(out[body->output_count].data, &executed, sizeof executed);
    reference_release(lasting, inputs + 1);
}

/* checkpoint, and functions with derivatives of their own, are their bodies. */
static void reference_region(const qb_node *node, const reference_array *operands, const reference_array *out)
{
    if (node->op == &qb_op_loop) {
        reference_loop(node, operands, out);
    } else if (node->op == &qb_op_switch) {
        int64_t index = *(const int64_t *)(const void *)operands[0].data, last = node->attributes[0].count - 1;
        index = index < 0 ? 0 : index > last ? last : index;
        reference_once(node->attributes[0].graphs[index], operands + 1, out);
    } else {
        reference_once(node->attributes[0].graph, operands, out);
    }
}

static void reference_node(const qb_graph *graph, const qb_node *node, qb_tensor *const *inputs,
                           reference_array *arrays)
{
    reference_array operands[64], *out = &arrays[node->result];
    assert(node->operand_count <= 64);
    for (int i = 0; i < node->operand_count; i++)
        operands[i] = arrays[qb_operand(graph, node, i)];
    size_t bytes = (size_t)out->count * qb_dtype_size(out->info->dtype);
    if (node->op == &qb_op_input) {
        memcpy(out->data, inputs[node->attributes[0].integer]->data, bytes);
    } else if (node->op == &qb_op_constant) {
        memcpy(out->data, node->attributes[0].tensor->data, bytes);
    } else if (node->op->flags & QB_OP_REGION) {
        reference_region(node, operands, out);
    } else if (node->op->flags & QB_OP_ELEMENTWISE) {
        reference_lane(node, operands, out);
    } else if (node->op->flags & QB_OP_VIEW) {
        reference_view(node, operands, out);
    } else if (node->op == &qb_op_dot) {
        reference_dot(node, operands, out);
    } else if (node->op->cpu) {
        reference_call(graph, node, operands, out);
    } else {
        reference_reduce(node, operands, out);
    }
}

/* The outputs, as new tensors. */
static void reference_run(const qb_graph *graph, qb_tensor *const *inputs, qb_tensor **outputs)
{
    reference_array *arrays = calloc((size_t)graph->value_count + 1, sizeof *arrays);
    assert(arrays);
    for (int32_t v = 0; v < graph->value_count; v++) {
        arrays[v].info = &graph->values[v];
        arrays[v].count = reference_count(graph->values[v].rank, graph->values[v].shape);
        arrays[v].data = malloc((size_t)arrays[v].count * 8 + 1);
        assert(arrays[v].data);
    }
    for (int32_t n = 0; n < graph->node_count; n++)
        reference_node(graph, &graph->nodes[n], inputs, arrays);
    for (int i = 0; i < graph->output_count; i++) {
        const reference_array *array = &arrays[graph->outputs[i]];
        qb_status status =
            qb_tensor_create(array->info->dtype, array->info->rank, array->info->shape, array->data, &outputs[i]);
        assert(status == QB_OK);
        (void)status;
    }
    for (int32_t v = 0; v < graph->value_count; v++)
        free(arrays[v].data);
    free(arrays);
}

#endif
