/* A reference for programs: a graph evaluated node by node, each by the plainest loop there is. Elementwise operations
 * use the lane kernels on whole arrays, which have tests of their own; reductions and products add up in order. */
#ifndef GRAPH_REFERENCE_H
#define GRAPH_REFERENCE_H

#include "control/control.h"
#include "ops/op.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
        else if (node->op == &qb_op_reduce_norm)
            *t = hypot(*t, x);
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
    void *made[9];
    assert(node->result_count <= 8);
    for (int i = 0; i < node->operand_count; i++) {
        qb_value_type(graph, qb_operand(graph, node, i), &types[i]);
        data[i] = operands[i].data;
    }
    for (int i = 0; i < node->result_count; i++) {
        qb_value_type(graph, node->result + i, &results[i]);
        made[i] = out[i].data;
    }
    size_t workspace = node->op->workspace ? (size_t)node->op->workspace(node->attributes, types) : 0;
    char *space = made[node->result_count] = malloc(workspace + 1);
    assert(space);
    memset(space, 0xa5, workspace + 1);
    node->op->cpu(node->attributes, node->operand_count, types, data, results, made);
    assert(space[workspace] == (char)0xa5);
    free(space);
}

static void reference_run(const qb_graph *graph, qb_tensor *const *inputs, qb_tensor **outputs);

static size_t reference_bytes(const reference_array *array)
{
    return (size_t)array->count * qb_dtype_size(array->info->dtype);
}

/* Runs a graph within an operation on `count` pieces of memory. */
static void reference_graph(const qb_graph *graph, int count, char *const *data, qb_tensor **results)
{
    qb_tensor tensors[64] = {0}, *inputs[64];
    assert(count <= 64 && count == graph->input_count);
    for (int i = 0; i < count; i++) {
        tensors[i].data = data[i];
        inputs[i] = &tensors[i];
    }
    reference_run(graph, inputs, results);
}

static void reference_loop(const qb_node *node, const reference_array *operands, const reference_array *out)
{
    qb_value values[64] = {0}; /* only counted is asked of them */
    qb_loop loop = qb_loop_of(node->attributes, node->operand_count, values);
    int counted = node->operand_count - qb_loop_operands(&loop), first = 1 + loop.consts, ys = qb_loop_ys(&loop);
    const reference_array *rows = operands + counted + loop.consts + loop.carries;
    int64_t limit = loop.capacity < 0 ? INT64_MAX : loop.capacity, done = 0, index;
    char *data[64];
    qb_tensor *results[64], *answer;
    if (counted) {
        int64_t count = *(const int64_t *)(const void *)operands[0].data;
        limit = count < 0 ? 0 : count < limit ? count : limit;
    }
    data[0] = (char *)&index;
    for (int i = 0; i < loop.consts; i++)
        data[1 + i] = operands[counted + i].data;
    for (int i = 0; i < loop.carries; i++) {
        memcpy(out[i].data, operands[counted + loop.consts + i].data, reference_bytes(&out[i]));
        data[first + i] = out[i].data;
    }
    for (int i = loop.carries; i < loop.carries + ys; i++)
        memset(out[i].data, 0, reference_bytes(&out[i]));
    for (; done < limit; done++) {
        index = loop.reverse ? limit - 1 - done : done;
        if (loop.condition) {
            reference_graph(loop.condition, first + loop.carries, data, &answer);
            bool goes_on = *(const bool *)answer->data;
            qb_tensor_release(answer);
            if (!goes_on)
                break;
        }
        for (int i = 0; i < loop.sequences; i++)
            data[first + loop.carries + i] =
                rows[i].data + (size_t)index * (reference_bytes(&rows[i]) / (size_t)loop.capacity);
        reference_graph(loop.body, loop.body->input_count, data, results);
        for (int i = 0; i < loop.carries + ys; i++) {
            size_t bytes = qb_tensor_bytes(results[i]);
            memcpy(out[i].data + (i < loop.carries ? 0 : (size_t)index * bytes), results[i]->data, bytes);
            qb_tensor_release(results[i]);
        }
    }
    if (loop.condition)
        memcpy(out[loop.carries + ys].data, &done, sizeof done);
}

/* switch, and what has the graph that it stands for as its first attribute. */
static void reference_region(const qb_node *node, const reference_array *operands, const reference_array *out)
{
    const qb_attribute *attribute = node->attributes;
    const qb_graph *graph = attribute[0].graph;
    int skipped = 0;
    if (node->op == &qb_op_switch) {
        int64_t index = *(const int64_t *)(const void *)operands[0].data, last = attribute[0].count - 1;
        graph = attribute[0].graphs[index < 0 ? 0 : index > last ? last : index];
        skipped = 1;
    }
    char *data[64];
    qb_tensor *results[64];
    for (int i = skipped; i < node->operand_count; i++)
        data[i - skipped] = operands[i].data;
    reference_graph(graph, node->operand_count - skipped, data, results);
    for (int i = 0; i < node->result_count; i++) {
        memcpy(out[i].data, results[i]->data, qb_tensor_bytes(results[i]));
        qb_tensor_release(results[i]);
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
    } else if (node->op->flags & QB_OP_ELEMENTWISE) {
        reference_lane(node, operands, out);
    } else if (node->op->flags & QB_OP_VIEW) {
        reference_view(node, operands, out);
    } else if (node->op == &qb_op_loop) {
        reference_loop(node, operands, out);
    } else if (node->op->flags & QB_OP_REGION) {
        reference_region(node, operands, out);
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
