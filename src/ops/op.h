/* An operation, whole: one constant descriptor with everything that any stage needs to know of it.
 *
 * Rules are derived from flags wherever possible (transforms/ and the generic parts of ops/); what cannot be derived
 * is a function in the op's own file. A rule gets a qb_rule and answers with values of rule->graph. */
#ifndef QB_OPS_OP_H
#define QB_OPS_OP_H

#include "cpu/lanes.h"
#include "graph/graph.h"

enum {
    QB_OP_ELEMENTWISE = 1 << 0, /* equal shapes in and out, lane by lane */
    QB_OP_LINEAR = 1 << 1,      /* linear in all (floating) operands together: its own derivative */
    QB_OP_BILINEAR = 1 << 2,    /* linear in each of two operands alone */
    QB_OP_FLAT = 1 << 3,        /* derivative zero everywhere */
    QB_OP_COMMUTATIVE = 1 << 4, /* in two operands: ordered when built, so that a+b and b+a are one node */
    QB_OP_UNIQUE = 1 << 5,      /* never merged with an equal node: inputs */
    QB_OP_VIEW = 1 << 6,        /* moves elements without changing any: a device may realise it as strides */
    QB_OP_OVERWRITES =
        1 << 7,            /* the result is operand 0 with some elements changed: a device may give it that memory */
    QB_OP_REGION = 1 << 8, /* runs graphs that are its attributes: a device compiles them, too (src/control) */
    QB_OP_REVERSE_ONLY = 1 << 9,    /* has no forward derivative */
    QB_OP_TRANSPOSE_ONLY = 1 << 10, /* linear, and nothing can be done with it but transposing */
    QB_OP_EFFECT = 1 << 12,         /* stays where nothing uses its results */
    QB_OP_REDUCES = 1 << 13,        /* over axes, which are attribute 0 and vanish: `reduction` says how */
    QB_OP_MOVES =
        1 << 11 /* each element of the result is one of the operands', or 0; `cpu` takes elements of any kind */
};

/* What an inference rule sees and answers. */
typedef struct qb_inference {
    const qb_op *op;
    int operand_count;
    const qb_type *operand;
    const qb_attribute *attribute;
    qb_type *result; /* qb_result_count() of them */
} qb_inference;

/* What a derivative is to be used for. Together: primals and tangents may be computed by the same nodes (a loop over
 * both). Separate: no primal may depend on a tangent, and tangents are linear in tangents, node by node, so that the
 * result can be transposed, or split at its tangents. */
typedef enum qb_forward { QB_FORWARD_TOGETHER, QB_FORWARD_SEPARATE } qb_forward;

/* What a derivative, transpose, batching or simplifying rule sees and answers. */
typedef struct qb_rule {
    qb_graph *graph; /* new nodes go here */
    const qb_op *op;
    const qb_attribute *attribute; /* of the node the rule is applied to */
    int operand_count;
    int result_count;
    const qb_value *operand; /* as values of `graph`; in transpose QB_NONE for the linear ones */
    qb_value *result; /* jvp: the results, as values of `graph`, which the rule may replace by values that it makes */

    /* jvp: tangents of the operands (QB_NONE: zero) -> result_tangent (preset to QB_NONE) */
    const qb_value *tangent;
    qb_value *result_tangent;
    qb_forward forward;

    /* transpose: cotangents of the results (QB_NONE: zero), and which operands are linear -> operand_cotangent
     * (preset to QB_NONE) */
    const qb_value *cotangent;
    const bool *linear;
    const qb_type *operand_type;
    qb_value *operand_cotangent;

    /* batch: which operands have a leading axis of batch_size -> batched_result, and whether each has the axis
     * (preset to true) */
    const bool *mapped;
    int64_t batch_size;
    qb_value *batched_result;
    bool *result_mapped;
    qb_value
        active; /* bool[batch_size]: the examples that count, so that loops need not run for others; QB_NONE: all */

    /* refine: which results are used -> refined_result (preset to QB_NONE) for those */
    const bool *used;
    qb_value *refined_result;
} qb_rule;

struct qb_op {
    const char *name;
    const char *summary;
    int arity; /* -1: any number of operands */
    int result_count;
    int (*count_results)(int operand_count, const qb_attribute *attribute); /* NULL: always result_count */
    unsigned flags;
    int attribute_count;
    const char *attribute_name[8];
    qb_lane lane;           /* QB_LANE_NONE unless elementwise */
    qb_reduction reduction; /* with QB_OP_REDUCES */
    int element_flops;      /* floating-point operations for each element of the result; 0: none, or see `flops` */

    qb_status (*infer)(const qb_inference *inference);
    void (*jvp)(qb_rule *rule);          /* NULL: derived from the flags */
    void (*transpose)(qb_rule *rule);    /* NULL: not linear in anything, or derived */
    void (*batch)(qb_rule *rule);        /* NULL: derived (elementwise) */
    qb_value (*simplify)(qb_rule *rule); /* NULL or QB_NONE: nothing simpler; else a value that stands for result 0 */
    void (*refine)(qb_rule *rule);       /* of an op with graphs: the same with less in them; NULL: none */
    /* of an op with graphs: which operands (preset to true) the results in use need; NULL: all */
    qb_status (*needs)(const qb_node *node, const bool *used, bool *needed);

    /* Floating-point operations of a node, where they are not so many for each element; NULL: element_flops tells.
     * An op that holds graphs counts those (qb_graph_flops) as often as they run. */
    double (*flops)(const qb_graph *graph, const qb_node *node);

    /* Bytes that `cpu` works in, given the same attributes and types. Programs plan them like a buffer; they are no
     * part of the graph, since their number may depend on that of the threads. NULL: none. */
    int64_t (*workspace)(const qb_attribute *attribute, const qb_type *operand_type);

    /* The CPU kernel of an op that is neither elementwise, a view, nor known to the planner: contiguous row-major
     * operands and results; result[result count] is the workspace, aligned to 8 bytes at least. */
    void (*cpu)(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                const void *const *operand, const qb_type *result_type, void *const *result);
};

/* Estimated floating-point operations (flops.c): of a node, and of all nodes that the outputs need. Negative when
 * memory is out. Integer and bool arithmetic, and what moves elements only, count nothing. */
double qb_node_flops(const qb_graph *graph, const qb_node *node);
double qb_graph_flops(const qb_graph *graph);
/* Rules: one for each element of operand 0; those of the graph that is attribute 0. */
double qb_flops_of_operand(const qb_graph *graph, const qb_node *node);
double qb_flops_of_body(const qb_graph *graph, const qb_node *node);

/* All descriptors, for tests and documentation. */
extern const qb_op *const qb_ops[];
extern const int qb_op_count;

#define OP(name) extern const qb_op qb_op_##name;
#include "ops/ops.def"
#undef OP

#endif
