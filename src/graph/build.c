/* Building by hash-consing: qb_emit appends a node, or finds the equal one that is there already. */
#include "base/allocate.h"
#include "graph/graph.h"
#include "ops/op.h"

/* ---- Hashing and comparing attributes; the order of fields is that of the op's declaration */

static uint32_t mix(uint32_t hash, uint64_t word)
{
    uint64_t x = (hash ^ word) * 0x9e3779b97f4a7c15u; /* Fibonacci hashing (Knuth, TAOCP 3, 6.4) */
    return (uint32_t)(x >> 32) ^ (uint32_t)x;
}

/* Large tensors hash by their ends: equality is settled by comparing, which a collision only makes slower. */
static uint32_t mix_tensor(uint32_t hash, const qb_tensor *tensor)
{
    enum { END = 256 };
    size_t bytes = qb_tensor_bytes(tensor);
    const unsigned char *data = tensor->data;
    hash = mix(hash, bytes);
    for (size_t i = 0; i < bytes && i < END; i++)
        hash = mix(hash, data[i]);
    for (size_t i = bytes > 2 * END ? bytes - END : END; i < bytes; i++)
        hash = mix(hash, data[i]);
    return hash;
}

/* By its measures and the hash of its last node, which stands for much of it. */
static uint32_t mix_graph(uint32_t hash, const qb_graph *graph)
{
    if (!graph || graph->node_count == 0)
        return mix(hash, 0);
    hash = mix(hash, (uint64_t)graph->node_count << 32 | (uint64_t)graph->output_count);
    return mix(hash, graph->nodes[graph->node_count - 1].hash);
}

static uint32_t mix_attribute(uint32_t hash, const qb_attribute *attribute)
{
    switch (attribute->kind) {
    case QB_ATTRIBUTE_INT:
    case QB_ATTRIBUTE_NUMBER: return mix(hash, (uint64_t)attribute->integer);
    case QB_ATTRIBUTE_INTS:
        hash = mix(hash, (uint64_t)attribute->count);
        for (int i = 0; i < attribute->count; i++)
            hash = mix(hash, (uint64_t)attribute->integers[i]);
        return hash;
    case QB_ATTRIBUTE_TENSOR: return mix_tensor(hash, attribute->tensor);
    case QB_ATTRIBUTE_GRAPH: return mix_graph(hash, attribute->graph);
    case QB_ATTRIBUTE_GRAPHS:
        for (int i = 0; i < attribute->count; i++)
            hash = mix_graph(hash, attribute->graphs[i]);
        return hash;
    }
    return hash;
}

static bool tensor_equal(const qb_tensor *a, const qb_tensor *b)
{
    return a == b || (a->dtype == b->dtype && qb_shape_equal(a->rank, a->shape, b->rank, b->shape) &&
                      memcmp(a->data, b->data, qb_tensor_bytes(a)) == 0);
}

bool qb_attribute_equal(const qb_attribute *a, const qb_attribute *b)
{
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case QB_ATTRIBUTE_INT:
    case QB_ATTRIBUTE_NUMBER:
        return a->integer == b->integer; /* numbers by their bits: -0.0 is not 0.0, NaN is itself */
    case QB_ATTRIBUTE_INTS:
        return a->count == b->count &&
               (a->count == 0 || memcmp(a->integers, b->integers, (size_t)a->count * sizeof *a->integers) == 0);
    case QB_ATTRIBUTE_TENSOR: return tensor_equal(a->tensor, b->tensor);
    case QB_ATTRIBUTE_GRAPH: return qb_graph_equal(a->graph, b->graph);
    case QB_ATTRIBUTE_GRAPHS:
        for (int i = 0; i < a->count && a->count == b->count; i++)
            if (!qb_graph_equal(a->graphs[i], b->graphs[i]))
                return false;
        return a->count == b->count;
    }
    return false;
}

static bool node_equal(const qb_graph *a, const qb_node *in_a, const qb_graph *b, const qb_node *in_b)
{
    if (in_a->op != in_b->op || in_a->hash != in_b->hash || in_a->operand_count != in_b->operand_count)
        return false;
    for (int i = 0; i < in_a->operand_count; i++)
        if (qb_operand(a, in_a, i) != qb_operand(b, in_b, i))
            return false;
    for (int i = 0; i < in_a->op->attribute_count; i++)
        if (!qb_attribute_equal(&in_a->attributes[i], &in_b->attributes[i]))
            return false;
    return true;
}

bool qb_graph_equal(const qb_graph *a, const qb_graph *b)
{
    if (a == b || !a || !b)
        return a == b;
    if (a->node_count != b->node_count || a->input_count != b->input_count || a->output_count != b->output_count)
        return false;
    for (int i = 0; i < a->output_count; i++)
        if (a->outputs[i] != b->outputs[i])
            return false;
    for (int32_t n = 0; n < a->node_count; n++)
        if (!node_equal(a, &a->nodes[n], b, &b->nodes[n]))
            return false;
    return true;
}

/* ---- Finding */

typedef struct candidate {
    const qb_op *op;
    int operand_count;
    const qb_value *operands;
    const qb_attribute *attributes;
    int result_count;
    uint32_t hash;
} candidate;

static uint32_t hash_candidate(const candidate *c)
{
    uint32_t hash = mix((uint32_t)c->operand_count, (uint64_t)(uintptr_t)c->op);
    for (int i = 0; i < c->operand_count; i++)
        hash = mix(hash, (uint64_t)c->operands[i]);
    for (int i = 0; i < c->op->attribute_count; i++)
        hash = mix_attribute(hash, &c->attributes[i]);
    return hash;
}

static bool matches(const qb_graph *graph, const qb_node *node, const candidate *c)
{
    if (node->hash != c->hash || node->op != c->op || node->operand_count != c->operand_count)
        return false;
    for (int i = 0; i < c->operand_count; i++)
        if (qb_operand(graph, node, i) != c->operands[i])
            return false;
    for (int i = 0; i < c->op->attribute_count; i++)
        if (!qb_attribute_equal(&node->attributes[i], &c->attributes[i]))
            return false;
    return true;
}

static const qb_node *find(const qb_graph *graph, const candidate *c)
{
    if (graph->bucket_count == 0)
        return NULL;
    for (int32_t i = graph->buckets[c->hash & (uint32_t)(graph->bucket_count - 1)]; i >= 0;
         i = graph->nodes[i].next_in_bucket)
        if (matches(graph, &graph->nodes[i], c))
            return &graph->nodes[i];
    return NULL;
}

static bool grow_buckets(qb_graph *graph)
{
    int32_t count = graph->bucket_count ? graph->bucket_count * 2 : 64;
    int32_t *buckets = qb_allocate((size_t)count * sizeof *buckets);
    if (!buckets)
        return false;
    memset(buckets, -1, (size_t)count * sizeof *buckets);
    for (int32_t i = 0; i < graph->node_count; i++) {
        int32_t *bucket = &buckets[graph->nodes[i].hash & (uint32_t)(count - 1)];
        graph->nodes[i].next_in_bucket = *bucket;
        *bucket = i;
    }
    qb_free(graph->buckets);
    graph->buckets = buckets;
    graph->bucket_count = count;
    return true;
}

/* ---- Appending */

static bool copy_attributes(qb_graph *graph, const candidate *c, qb_attribute **out)
{
    int count = c->op->attribute_count;
    qb_attribute *copy = qb_arena_allocate(&graph->arena, (size_t)count * sizeof *copy);
    if (!copy)
        return false;
    for (int i = 0; i < count; i++) {
        copy[i] = c->attributes[i];
        if (copy[i].kind == QB_ATTRIBUTE_INTS && copy[i].count > 0) {
            int64_t *integers = qb_arena_allocate(&graph->arena, (size_t)copy[i].count * sizeof *integers);
            if (!integers)
                return false;
            memcpy(integers, c->attributes[i].integers, (size_t)copy[i].count * sizeof *integers);
            copy[i].integers = integers;
        } else if (copy[i].kind == QB_ATTRIBUTE_GRAPHS) {
            qb_graph **graphs = qb_arena_allocate(&graph->arena, (size_t)copy[i].count * sizeof(qb_graph *));
            if (!graphs)
                return false;
            for (int k = 0; k < copy[i].count; k++)
                graphs[k] = c->attributes[i].graphs[k];
            copy[i].graphs = graphs;
        }
    }
    *out = copy;
    return true;
}

static void retain_attributes(const qb_node *node)
{
    for (int i = 0; i < node->op->attribute_count; i++) {
        if (node->attributes[i].kind == QB_ATTRIBUTE_TENSOR)
            (void)qb_tensor_retain(node->attributes[i].tensor);
        else if (node->attributes[i].kind == QB_ATTRIBUTE_GRAPH)
            (void)qb_graph_retain(node->attributes[i].graph);
        for (int k = 0; node->attributes[i].kind == QB_ATTRIBUTE_GRAPHS && k < node->attributes[i].count; k++)
            (void)qb_graph_retain(node->attributes[i].graphs[k]);
    }
}

static qb_status append(qb_graph *graph, const candidate *c, const qb_type *types)
{
    int results = c->result_count;
    qb_attribute *attributes = NULL;
    if (!QB_GROW(graph->nodes, graph->node_count, graph->node_capacity, 1) ||
        !QB_GROW(graph->values, graph->value_count, graph->value_capacity, results) ||
        !QB_GROW(graph->operands, graph->operand_count, graph->operand_capacity, c->operand_count) ||
        (graph->node_count >= graph->bucket_count && !grow_buckets(graph)) || !copy_attributes(graph, c, &attributes))
        return qb_fail_memory();
    for (int i = 0; i < results; i++) {
        int64_t *shape = qb_arena_allocate(&graph->arena, (size_t)types[i].rank * sizeof *shape);
        if (!shape)
            return qb_fail_memory();
        memcpy(shape, types[i].shape, (size_t)types[i].rank * sizeof *shape);
        graph->values[graph->value_count + i] =
            (qb_value_info){.shape = shape, .node = graph->node_count, .dtype = types[i].dtype, .rank = types[i].rank};
    }
    qb_node *node = &graph->nodes[graph->node_count];
    int32_t *bucket = &graph->buckets[c->hash & (uint32_t)(graph->bucket_count - 1)];
    *node = (qb_node){.op = c->op,
                      .attributes = attributes,
                      .operands = graph->operand_count,
                      .operand_count = c->operand_count,
                      .result = graph->value_count,
                      .result_count = results,
                      .next_in_bucket = *bucket,
                      .hash = c->hash,
                      .source = graph->source};
    if (c->operand_count > 0)
        memcpy(graph->operands + graph->operand_count, c->operands, (size_t)c->operand_count * sizeof *c->operands);
    retain_attributes(node);
    graph->has_effects = graph->has_effects || qb_node_has_effects(node);
    *bucket = graph->node_count++;
    graph->operand_count += c->operand_count;
    graph->value_count += results;
    return QB_OK;
}

/* Types of operands and results: a few on the stack, many (a stack of thousands of scalars) on the heap. */
static qb_status infer_and_append(qb_graph *graph, const candidate *c)
{
    enum { FEW = 6, RESULTS = 4 };
    qb_type few[FEW + RESULTS], *types = few;
    size_t needed = (size_t)c->operand_count + (size_t)c->result_count;
    if (needed > FEW + RESULTS && !(types = qb_allocate(needed * sizeof *types)))
        return qb_fail_memory();
    for (int i = 0; i < c->operand_count; i++)
        qb_value_type(graph, c->operands[i], &types[i]);
    qb_type *results = types + c->operand_count;
    qb_inference inference = {c->op, c->operand_count, types, c->attributes, results};
    qb_status status = c->op->infer(&inference);
    if (status == QB_OK)
        status = append(graph, c, results);
    if (types != few)
        qb_free(types);
    return status;
}

int qb_result_count(const qb_op *op, int operand_count, const qb_attribute *attributes)
{
    return op->count_results ? op->count_results(operand_count, attributes) : op->result_count;
}

qb_value qb_emit(qb_graph *graph, const qb_op *op, int operand_count, const qb_value *operands,
                 const qb_attribute *attributes)
{
    for (int i = 0; i < operand_count; i++) {
        if (operands[i] == QB_FAILED)
            return QB_FAILED;
        if (operands[i] < 0 || operands[i] >= graph->value_count)
            return qb_graph_fail(graph,
                                 qb_fail(QB_ERROR_INTERNAL, "%s: operand %d is not a value of the graph", op->name, i));
    }
    qb_value ordered[2];
    if ((op->flags & QB_OP_COMMUTATIVE) && operands[0] > operands[1]) {
        ordered[0] = operands[1];
        ordered[1] = operands[0];
        operands = ordered;
    }
    candidate c = {op, operand_count, operands, attributes, qb_result_count(op, operand_count, attributes), 0};
    c.hash = hash_candidate(&c);
    const qb_node *node = op->flags & QB_OP_UNIQUE ? NULL : find(graph, &c);
    if (node)
        return node->result; /* with the source that it has: that of the first who asked for it */
    qb_status status = infer_and_append(graph, &c);
    return status == QB_OK ? graph->nodes[graph->node_count - 1].result : qb_graph_fail(graph, status);
}

bool qb_emit_all(qb_graph *graph, const qb_op *op, int operand_count, const qb_value *operands,
                 const qb_attribute *attributes, qb_value *results)
{
    int count = qb_result_count(op, operand_count, attributes);
    if (count == 0)
        return true; /* a loop that carries nothing: no node, which could not be told from the one after it */
    qb_value first = qb_emit(graph, op, operand_count, operands, attributes);
    for (int i = 0; first >= 0 && i < count; i++)
        results[i] = first + i; /* results of a node have consecutive ids */
    return first >= 0;
}
