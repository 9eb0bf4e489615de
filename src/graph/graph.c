/* Storage of graphs: making, sharing, ending, and reading them. */
#include "graph/graph.h"

#include "base/allocate.h"
#include "base/source.h"
#include "ops/op.h"

qb_status qb_graph_create(qb_graph **out)
{
    qb_graph *graph = qb_allocate_zeroed(1, sizeof *graph);
    if (!graph)
        return qb_fail_memory();
    atomic_init(&graph->references, 1);
    *out = graph;
    return QB_OK;
}

qb_graph *qb_graph_retain(qb_graph *graph)
{
    if (graph)
        atomic_fetch_add_explicit(&graph->references, 1, memory_order_relaxed);
    return graph;
}

static void release_attributes(const qb_node *node)
{
    for (int i = 0; i < node->op->attribute_count; i++) {
        if (node->attributes[i].kind == QB_ATTRIBUTE_TENSOR)
            qb_tensor_release(node->attributes[i].tensor);
        else if (node->attributes[i].kind == QB_ATTRIBUTE_GRAPH)
            qb_graph_release(node->attributes[i].graph);
        for (int k = 0; node->attributes[i].kind == QB_ATTRIBUTE_GRAPHS && k < node->attributes[i].count; k++)
            qb_graph_release(node->attributes[i].graphs[k]);
    }
}

void qb_graph_release(qb_graph *graph)
{
    if (!graph || atomic_fetch_sub_explicit(&graph->references, 1, memory_order_acq_rel) != 1)
        return;
    for (int32_t i = 0; i < graph->node_count; i++)
        release_attributes(&graph->nodes[i]);
    qb_free(graph->nodes);
    qb_free(graph->values);
    qb_free(graph->operands);
    qb_free(graph->inputs);
    qb_free(graph->input_names);
    qb_free(graph->outputs);
    qb_free(graph->buckets);
    qb_free(graph->notes);
    qb_arena_free(&graph->arena);
    qb_free(graph);
}

void *qb_graph_allocate(qb_graph *graph, size_t size)
{
    void *memory = qb_arena_allocate(&graph->arena, size);
    if (!memory)
        (void)qb_graph_fail(graph, qb_fail_memory());
    return memory;
}

qb_value qb_graph_fail(qb_graph *graph, qb_status status)
{
    if (graph->status == QB_OK)
        graph->status = status;
    return QB_FAILED;
}

qb_status qb_graph_take_status(qb_graph *graph)
{
    qb_status status = graph->status;
    graph->status = QB_OK;
    return status;
}

static bool is_value(const qb_graph *graph, qb_value value)
{
    return value >= 0 && value < graph->value_count;
}

static qb_status check_value(const qb_graph *graph, qb_value value)
{
    if (!is_value(graph, value))
        return qb_fail(QB_ERROR_VALUE, "value %d does not belong to this graph of %d values", (int)value,
                       (int)graph->value_count);
    return QB_OK;
}

qb_status qb_graph_input(qb_graph *graph, const char *name, qb_dtype dtype, int rank, const int64_t *shape,
                         qb_value *out)
{
    int64_t size;
    QB_TRY(qb_dtype_check(dtype));
    QB_TRY(qb_shape_size(rank, shape, qb_dtype_size(dtype), &size));
    if (!QB_GROW(graph->inputs, graph->input_count, graph->input_capacity, 1) ||
        !QB_GROW(graph->input_names, graph->input_count, graph->name_capacity, 1))
        return qb_fail_memory();
    const char *kept = NULL;
    if (name) {
        char *copy = qb_arena_allocate(&graph->arena, strlen(name) + 1);
        if (!copy)
            return qb_fail_memory();
        kept = strcpy(copy, name);
    }
    qb_attribute attributes[] = {qb_int(graph->input_count), qb_int((int64_t)dtype), qb_ints(rank, shape)};
    qb_value value = qb_emit(graph, &qb_op_input, 0, NULL, attributes);
    if (value < 0)
        return qb_graph_take_status(graph);
    graph->inputs[graph->input_count] = value;
    graph->input_names[graph->input_count++] = kept;
    *out = value;
    return QB_OK;
}

qb_status qb_graph_constant(qb_graph *graph, qb_tensor *tensor, qb_value *out)
{
    qb_attribute attribute = {.kind = QB_ATTRIBUTE_TENSOR, .tensor = tensor};
    qb_value value = qb_emit(graph, &qb_op_constant, 0, NULL, &attribute);
    if (value < 0)
        return qb_graph_take_status(graph);
    *out = value;
    return QB_OK;
}

qb_status qb_graph_output(qb_graph *graph, qb_value value)
{
    QB_TRY(check_value(graph, value));
    if (!QB_GROW(graph->outputs, graph->output_count, graph->output_capacity, 1))
        return qb_fail_memory();
    graph->outputs[graph->output_count++] = value;
    return QB_OK;
}

void qb_graph_set_source(qb_graph *graph, const char *file, int line)
{
    graph->source = file ? qb_source_intern(file, line) : 0;
}

int qb_graph_input_count(const qb_graph *graph)
{
    return graph->input_count;
}

int qb_graph_output_count(const qb_graph *graph)
{
    return graph->output_count;
}

qb_value qb_graph_output_at(const qb_graph *graph, int index)
{
    return index >= 0 && index < graph->output_count ? graph->outputs[index] : QB_NONE;
}

qb_dtype qb_graph_dtype(const qb_graph *graph, qb_value value)
{
    return is_value(graph, value) ? graph->values[value].dtype : QB_DTYPE_COUNT;
}

int qb_graph_rank(const qb_graph *graph, qb_value value)
{
    return is_value(graph, value) ? graph->values[value].rank : -1;
}

const int64_t *qb_graph_shape(const qb_graph *graph, qb_value value)
{
    return is_value(graph, value) ? graph->values[value].shape : NULL;
}

void qb_value_type(const qb_graph *graph, qb_value value, qb_type *out)
{
    const qb_value_info *info = &graph->values[value];
    qb_type_set(out, info->dtype, info->rank, info->shape);
}

bool qb_value_has_type(const qb_graph *graph, qb_value value, const qb_type *type)
{
    const qb_value_info *info = &graph->values[value];
    return info->dtype == type->dtype && qb_shape_equal(info->rank, info->shape, type->rank, type->shape);
}

int64_t qb_value_size(const qb_graph *graph, qb_value value)
{
    const qb_value_info *info = &graph->values[value];
    int64_t size = 1;
    for (int i = 0; i < info->rank; i++)
        size *= info->shape[i];
    return size;
}

qb_status qb_graph_input_like(qb_graph *graph, const char *name, const qb_graph *source, qb_value value, qb_value *out)
{
    const qb_value_info info = source->values[value]; /* by value: the source may be the graph that grows */
    return qb_graph_input(graph, name, info.dtype, info.rank, info.shape, out);
}

qb_status qb_graph_like(const qb_graph *source, qb_graph **out)
{
    qb_graph *graph = NULL;
    QB_TRY(qb_graph_create(&graph));
    for (int i = 0; i < source->input_count; i++) {
        qb_value input;
        qb_status status = qb_graph_input_like(graph, source->input_names[i], source, source->inputs[i], &input);
        if (status != QB_OK) {
            qb_graph_release(graph);
            return status;
        }
    }
    *out = graph;
    return QB_OK;
}

bool qb_node_has_effects(const qb_node *node)
{
    bool effects = (node->op->flags & QB_OP_EFFECT) != 0;
    for (int i = 0; (node->op->flags & QB_OP_REGION) && i < node->op->attribute_count; i++) {
        const qb_attribute *attribute = &node->attributes[i];
        if (attribute->kind == QB_ATTRIBUTE_GRAPH)
            effects = effects || (attribute->graph && attribute->graph->has_effects);
        for (int k = 0; attribute->kind == QB_ATTRIBUTE_GRAPHS && k < attribute->count; k++)
            effects = effects || (attribute->graphs[k] && attribute->graphs[k]->has_effects);
    }
    return effects;
}

void qb_mark_live(const qb_graph *graph, int output_count, const qb_value *outputs, bool *live)
{
    memset(live, 0, (size_t)graph->value_count);
    for (int i = 0; i < output_count; i++)
        live[outputs[i]] = true;
    for (int32_t n = graph->node_count - 1; n >= 0; n--) {
        const qb_node *node = &graph->nodes[n];
        bool needed = graph->has_effects && qb_node_has_effects(node);
        for (int i = 0; i < node->result_count; i++)
            needed = needed || live[node->result + i];
        for (int i = 0; needed && i < node->result_count; i++)
            live[node->result + i] = true;
        for (int i = 0; needed && i < node->operand_count; i++)
            live[qb_operand(graph, node, i)] = true;
    }
}

void qb_mark_dependent(const qb_graph *graph, const bool *input, bool *depends)
{
    memset(depends, 0, (size_t)graph->value_count);
    for (int i = 0; i < graph->input_count; i++)
        depends[graph->inputs[i]] = input[i];
    for (int32_t n = 0; n < graph->node_count; n++) {
        const qb_node *node = &graph->nodes[n];
        bool any = false;
        for (int i = 0; i < node->operand_count; i++)
            any = any || depends[qb_operand(graph, node, i)];
        for (int i = 0; any && i < node->result_count; i++)
            depends[node->result + i] = true;
    }
}

qb_status qb_mark_needed(const qb_graph *graph, const bool *wanted, bool *needed)
{
    int32_t widest = 1;
    for (int32_t n = 0; n < graph->node_count; n++)
        widest = graph->nodes[n].operand_count > widest ? graph->nodes[n].operand_count : widest;
    bool *operands = qb_allocate((size_t)widest);
    if (!operands)
        return qb_fail_memory();
    memset(needed, 0, (size_t)graph->value_count);
    for (int i = 0; i < graph->output_count; i++)
        if (!wanted || wanted[i])
            needed[graph->outputs[i]] = true;
    qb_status status = QB_OK;
    for (int32_t n = graph->node_count - 1; status == QB_OK && n >= 0; n--) {
        const qb_node *node = &graph->nodes[n];
        bool effects = graph->has_effects && qb_node_has_effects(node), any = effects;
        for (int i = 0; i < node->result_count; i++)
            any = any || needed[node->result + i];
        if (!any)
            continue;
        memset(operands, 1, (size_t)widest);
        for (int i = 0; effects && i < node->result_count; i++)
            needed[node->result + i] = true; /* such a node is kept whole */
        if (node->op->needs)
            status = node->op->needs(node, &needed[node->result], operands);
        for (int i = 0; i < node->operand_count; i++)
            if (operands[i])
                needed[qb_operand(graph, node, i)] = true;
    }
    qb_free(operands);
    return status;
}

bool qb_has_regions(const qb_graph *graph)
{
    for (int32_t n = 0; n < graph->node_count; n++)
        if (graph->nodes[n].op->flags & QB_OP_REGION)
            return true;
    return false;
}
