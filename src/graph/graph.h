/* The intermediate representation: a pure function as a graph of primitive operations.
 *
 * Invariants (verify.c checks them):
 * - Values are small integer ids, numbered in the order in which their nodes were made, so operands have smaller ids
 *   than results: any walk over ids is topological, and a transform's map from old to new values is an array.
 * - Building is hash-consed: the same operation on the same operands with the same attributes is the same node (inputs,
 *   the op flagged QB_OP_UNIQUE, excepted). Every rebuild of a graph is therefore common-subexpression elimination.
 * - Shapes are explicit: nothing broadcasts by itself.
 * - A graph only grows. Once shared (a sub-graph, a cached trace) it is never changed again.
 *
 * Failure is sticky within a rule: qb_emit returns QB_FAILED and remembers the first failure in `status`; given
 * QB_FAILED as an operand it returns QB_FAILED at once. Rules can so be written as formulas; whoever drives them asks
 * qb_graph_take_status once.
 *
 * No operation is named in this folder but input and constant, which graph.c makes. */
#ifndef QB_GRAPH_GRAPH_H
#define QB_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/tensor.h"

#include <stdatomic.h>
#include <string.h>

typedef struct qb_op qb_op; /* ops/op.h */

/* A dtype and a shape, by value. */
typedef struct qb_type {
    qb_dtype dtype;
    int rank;
    int64_t shape[QB_MAX_RANK];
} qb_type;

/* Attributes are data: a node has one for each name that its op declares; comparing, hashing and printing are
 * generic. */
typedef enum qb_attribute_kind {
    QB_ATTRIBUTE_INT,    /* integer: an axis, a count, a flag, a dtype */
    QB_ATTRIBUTE_INTS,   /* integers[count]: axes, a shape */
    QB_ATTRIBUTE_NUMBER, /* number */
    QB_ATTRIBUTE_TENSOR, /* tensor (the node keeps a reference) */
    QB_ATTRIBUTE_GRAPH,  /* graph (likewise); may be NULL */
    QB_ATTRIBUTE_GRAPHS  /* graphs[count] (likewise) */
} qb_attribute_kind;

typedef struct qb_attribute {
    qb_attribute_kind kind;
    int32_t count;
    union {
        int64_t integer;
        double number;
        const int64_t *integers;
        qb_tensor *tensor;
        qb_graph *graph;
        qb_graph *const *graphs;
    };
} qb_attribute;

static inline qb_attribute qb_int(int64_t integer)
{
    return (qb_attribute){.kind = QB_ATTRIBUTE_INT, .integer = integer};
}

static inline qb_attribute qb_ints(int count, const int64_t *integers)
{
    return (qb_attribute){.kind = QB_ATTRIBUTE_INTS, .count = count, .integers = integers};
}

static inline qb_attribute qb_subgraph(qb_graph *graph)
{
    return (qb_attribute){.kind = QB_ATTRIBUTE_GRAPH, .graph = graph};
}

static inline qb_attribute qb_subgraphs(int count, qb_graph *const *graphs)
{
    return (qb_attribute){.kind = QB_ATTRIBUTE_GRAPHS, .count = count, .graphs = graphs};
}

typedef struct qb_node {
    const qb_op *op;
    const qb_attribute *attributes; /* op->attribute_count of them */
    int32_t operands;               /* offset into graph->operands */
    int32_t operand_count;
    qb_value result; /* the first result; results have consecutive ids */
    int32_t result_count;
    int32_t next_in_bucket; /* of the hash table; -1 ends */
    uint32_t hash;
    int32_t source; /* the line of the user's program that it comes from (base/source.h); 0: unknown */
} qb_node;

typedef struct qb_value_info {
    const int64_t *shape;
    int32_t node;
    qb_dtype dtype;
    int32_t rank;
} qb_value_info;

/* A line about how the graph came to be (note.c). */
typedef struct qb_note {
    const char *text;
    uint32_t hash;
} qb_note;

struct qb_graph {
    _Atomic int64_t references;
    qb_arena arena; /* shapes, attributes, names */
    qb_node *nodes;
    qb_value_info *values;
    qb_value *operands;
    qb_value *inputs;
    const char **input_names;
    qb_value *outputs;
    int32_t *buckets; /* hash table of nodes: a power of two */
    qb_note *notes;   /* each text once */
    int32_t node_count, node_capacity;
    int32_t value_count, value_capacity;
    int32_t operand_count, operand_capacity;
    int32_t input_count, input_capacity, name_capacity;
    int32_t output_count, output_capacity;
    int32_t note_count, note_capacity;
    int32_t bucket_count;
    bool has_effects; /* a node of it, or of a graph in it, is an effect */
    int32_t source;   /* of the nodes that are made now */
    qb_status status; /* the first failure since qb_graph_take_status */
};

/* ---- Reading */

static inline const qb_node *qb_node_of(const qb_graph *graph, qb_value value)
{
    return &graph->nodes[graph->values[value].node];
}

static inline qb_value qb_operand(const qb_graph *graph, const qb_node *node, int index)
{
    return graph->operands[node->operands + index];
}

void qb_value_type(const qb_graph *graph, qb_value value, qb_type *out);
bool qb_value_has_type(const qb_graph *graph, qb_value value, const qb_type *type);
int64_t qb_value_size(const qb_graph *graph, qb_value value);

static inline void qb_type_set(qb_type *type, qb_dtype dtype, int rank, const int64_t *shape)
{
    type->dtype = dtype;
    type->rank = rank;
    if (rank > 0)
        memcpy(type->shape, shape, (size_t)rank * sizeof *shape);
}

/* ---- Building */

/* Appends the operation, or finds it: the first result's id. The op's inference rule checks operands and attributes. */
qb_value qb_emit(qb_graph *graph, const qb_op *op, int operand_count, const qb_value *operands,
                 const qb_attribute *attributes);
/* How many results the op has on these operands. */
int qb_result_count(const qb_op *op, int operand_count, const qb_attribute *attributes);

/* As qb_emit, all results stored. */
bool qb_emit_all(qb_graph *graph, const qb_op *op, int operand_count, const qb_value *operands,
                 const qb_attribute *attributes, qb_value *results);

/* The first failure since the last call, which it clears: the failing call's message is still qb_error_message(). */
qb_status qb_graph_take_status(qb_graph *graph);

/* A failure of a rule, to be found by qb_graph_take_status. */
qb_value qb_graph_fail(qb_graph *graph, qb_status status);

/* Room for `size` bytes as long as the graph lives; NULL (and a sticky failure) when memory is out. */
void *qb_graph_allocate(qb_graph *graph, size_t size);

/* ---- Whole graphs */

/* Copies the nodes that `source`'s outputs need into `target`, its inputs standing for arguments[i]. */
qb_status qb_inline(const qb_graph *source, qb_graph *target, const qb_value *arguments, qb_value *outputs);

/* A new input of `graph` with the type of a value of `source`; `name` may be NULL. */
qb_status qb_graph_input_like(qb_graph *graph, const char *name, const qb_graph *source, qb_value value, qb_value *out);

/* A new graph with inputs of the same names and types, and nothing else. */
qb_status qb_graph_like(const qb_graph *source, qb_graph **out);

/* live[v]: whether value v is needed for the given outputs (values of a node count together). `live` has value_count
 * entries. */
void qb_mark_live(const qb_graph *graph, int output_count, const qb_value *outputs, bool *live);

/* A copy that has none of the effects. */
qb_status qb_graph_without_effects(const qb_graph *graph, qb_graph **out);

/* Whether the node is an effect, or runs a graph that has one: it is live whoever uses its results. */
bool qb_node_has_effects(const qb_node *node);

/* Whether each value depends on an input that is marked; `depends` has value_count entries. */
void qb_mark_dependent(const qb_graph *graph, const bool *input, bool *depends);

/* Which values the outputs with wanted[i] (NULL: all) need, looking into operations with graphs: a loop whose last
 * carry is not used may not need its first. Unlike qb_mark_live, it tells results of one node apart. */
qb_status qb_mark_needed(const qb_graph *graph, const bool *wanted, bool *needed);

/* Whether a node of the graph runs graphs of its own. */
bool qb_has_regions(const qb_graph *graph);

/* Notes say how the graph came to be, and go where its nodes are copied to; an equal one is not added again. Only
 * the text shows them. */
qb_status qb_graph_note(qb_graph *graph, const char *text);
qb_status qb_graph_copy_notes(const qb_graph *source, qb_graph *target);

/* What the text tells beside the nodes. */
typedef struct qb_text_options {
    bool notes;   /* first, a line each */
    bool sources; /* behind each node, the line of the user's program that it comes from */
} qb_text_options;

/* The canonical text, which with notes tells equal graphs apart that were made in different ways. */
qb_status qb_graph_write(const qb_graph *graph, qb_text_options options, char **out);

/* Checks every invariant; QB_ERROR_INTERNAL with the node named. */
qb_status qb_verify(const qb_graph *graph);

/* The same inputs, nodes and outputs in the same order: graphs that were made alike. */
bool qb_graph_equal(const qb_graph *a, const qb_graph *b);

bool qb_attribute_equal(const qb_attribute *a, const qb_attribute *b);

#endif
