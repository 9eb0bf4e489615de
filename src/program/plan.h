/* Planning: from a graph to a list of steps over a list of slots.
 *
 * Stages, each a file, in this order:
 * plan.c     the graph's nodes become plan values: leaves, lane operations, copies, views, reductions, products, calls
 *   fuse.c     plan values are grouped into kernels, and the steps put in order
 *   emit.c     each kernel's loads, registers and instructions
 *   bands.c    which of the kernels run together, a band of rows at a time
 *   buffers.c  a slot for every stored value; where it lies in the arena (asked by emit.c, step by step)
 *
 * A plan value is a contiguous array, known by its number of elements, or a view of one. A reshape of a contiguous
 * array is the same plan value. Values are numbered topologically. */
#ifndef QB_PROGRAM_PLAN_H
#define QB_PROGRAM_PLAN_H

#include "cpu/cpu.h"
#include "ops/op.h"
#include "program/kernel.h"
#include "program/view.h"

typedef enum qb_role {
    QB_ROLE_INPUT,
    QB_ROLE_CONSTANT,
    QB_ROLE_VIEW, /* read through `view`; no memory of its own */
    QB_ROLE_LANE, /* an elementwise operation: an instruction */
    QB_ROLE_COPY, /* a view made contiguous: a load, and a store */
    QB_ROLE_REDUCE,
    QB_ROLE_DOT,    /* two factors, and what they are added to, if anything */
    QB_ROLE_CALL,   /* an op with a kernel of its own */
    QB_ROLE_REGION, /* a call that runs programs */
    QB_ROLE_RESULT  /* a further result of the call or region before it, or what this works in */
} qb_role;

typedef struct qb_plan_value {
    uint8_t role;
    uint8_t dtype;
    bool stored;                    /* has memory: a slot */
    bool anchored;                  /* read by something that needs it in memory whatever fusion decides */
    int32_t operand, operand_count; /* in plan->operands: plan values, views included */
    int32_t root;                   /* VIEW: whose memory; others: itself */
    int32_t level;                  /* see fuse.c */
    int32_t step;                   /* that computes it; -1 for leaves */
    int32_t last_step;              /* that reads it */
    int32_t slot;                   /* -1: none */
    int32_t output;                 /* the output that lives in it; -1: none */
    int32_t home;                   /* the output whose memory it has before a later value overwrites it; -1: none */
    int32_t copy;                   /* VIEW: the value that is this view made contiguous; -1: none */
    int64_t count;                  /* elements */
    qb_lane lane;                   /* LANE */
    const qb_node *node;
    union {
        const qb_view *view; /* VIEW, COPY: what is read */
        qb_product *dot;
        const struct qb_reduction_split *split; /* REDUCE */
        struct qb_region *region;
        qb_tensor *constant;
        int32_t input;
    };
} qb_plan_value;

typedef struct qb_reduction_split {
    qb_reduction reduction;
    int64_t outer, extent, inner;
} qb_reduction_split;

typedef enum qb_step_kind { QB_STEP_KERNEL, QB_STEP_DOT, QB_STEP_CALL, QB_STEP_REGION } qb_step_kind;

typedef struct qb_call_step {
    const qb_op *op;
    const qb_attribute *attributes;
    int32_t operand_count, result_count;
    int32_t written_count;         /* results, and the workspace if the op has one */
    const int32_t *slot;           /* the operands', then those' */
    const int64_t *operand_offset; /* bytes */
    const qb_type *types;          /* operands, then results */
} qb_call_step;

/* Some kernels that run together, a band of rows at a time (bands.c). */
typedef struct qb_band {
    int32_t steps;
    int64_t rows;       /* of each kernel */
    int64_t chunk_rows; /* in a band */
    int64_t chunks;
} qb_band;

typedef struct qb_step {
    qb_step_kind kind;
    const qb_band *band; /* that begins with this step; NULL: none */
    union {
        qb_kernel *kernel;
        const qb_product *dot;
        const qb_call_step *call;
        const struct qb_region *region;
    };
} qb_step;

/* Where the memory of a slot is. */
typedef enum qb_slot_kind { QB_SLOT_INPUT, QB_SLOT_OUTPUT, QB_SLOT_CONSTANT, QB_SLOT_ARENA } qb_slot_kind;

typedef struct qb_slot {
    qb_slot_kind kind;
    qb_dtype dtype;
    int64_t count;
    union {
        int32_t index;       /* input, output */
        qb_tensor *constant; /* kept alive by the program */
        int64_t offset;      /* in the arena */
    };
} qb_slot;

typedef enum qb_output_kind { QB_OUTPUT_FRESH, QB_OUTPUT_INPUT, QB_OUTPUT_CONSTANT, QB_OUTPUT_SAME } qb_output_kind;

typedef struct qb_output {
    qb_output_kind kind;
    qb_dtype dtype;
    int32_t rank;
    int32_t index; /* of the input; of the earlier output that this one is, too */
    const int64_t *shape;
    int64_t size; /* elements */
    qb_tensor *constant;
} qb_output;

/* What fuse.c leaves for each step: the plan values that it computes, in order. */
typedef struct qb_unit {
    qb_step_kind kind;
    int32_t first, count; /* in plan->members */
} qb_unit;

typedef struct qb_plan {
    qb_context *context;
    const qb_graph *graph;
    qb_arena *memory; /* the program's: for what outlives planning */
    qb_arena scratch; /* for the rest */

    qb_plan_value *values;
    int32_t value_count, value_capacity;
    int32_t *operands;
    int32_t operand_count, operand_capacity;
    int32_t *map;       /* of each value of the graph: its plan value */
    int32_t *use_count; /* of each value of the graph */

    qb_unit *units;
    int32_t unit_count;
    int32_t *members;

    /* results */
    qb_step *steps;            /* one for each unit */
    struct qb_region *regions; /* a list: their programs are released by qb_plan_end, unless the program takes them */
    qb_slot *slots;
    int32_t slot_count, slot_capacity;
    qb_output *outputs;
    int64_t arena_size;     /* bytes */
    int64_t scratch_size;   /* bytes for each thread, the most that a kernel's registers or a product need */
    int64_t partial_size;   /* bytes of the partial results of a kernel's chunks, likewise */
    bool is_parallel;       /* whether threads need registers or scratch memory of their own */
    int64_t register_count; /* of all kernels */
    int64_t address_count;  /* operands, results and workspace, the most that a call has */
} qb_plan;

/* Makes the plan; `memory` receives what the program keeps. End with qb_plan_end, also after a failure. */
qb_status qb_plan_make(qb_plan *plan, qb_context *context, const qb_graph *graph, qb_arena *memory);
void qb_plan_end(qb_plan *plan);

/* ---- Stages */

qb_status qb_plan_read_graph(qb_plan *plan);
qb_status qb_plan_fuse(qb_plan *plan);
qb_status qb_plan_emit(qb_plan *plan);
qb_status qb_plan_band(qb_plan *plan);

/* ---- Shared */

/* Everything in a frame begins at such a multiple of bytes. */
enum { QB_FRAME_ALIGNMENT = 64 };

/* Memory of plan->scratch, zeroed or not; NULL when memory is out. */
void *qb_plan_scratch(qb_plan *plan, size_t count, size_t size);
void *qb_plan_scratch_zeroed(qb_plan *plan, size_t count, size_t size);

static inline bool qb_plan_fusable(const qb_plan_value *value)
{
    return value->role == QB_ROLE_LANE || value->role == QB_ROLE_COPY;
}

static inline bool qb_plan_in_kernel(const qb_plan_value *value)
{
    return qb_plan_fusable(value) || value->role == QB_ROLE_REDUCE;
}

/* ---- Buffers (buffers.c): steps are visited in order */

typedef struct qb_buffers qb_buffers;
qb_buffers *qb_buffers_begin(qb_plan *plan); /* NULL when memory is out */
/* The value that a call may overwrite with its first result, or a product with itself, which is `value`; -1: none. */
int32_t qb_buffers_overwritten(const qb_plan *plan, int32_t value);
/* Gives the stored value a slot; `take_over` (-1: none) is a dying value whose memory it may have. */
qb_status qb_buffers_define(qb_buffers *buffers, int32_t value, int32_t take_over);
/* After step `step`: what nobody reads any more gives its memory back. */
void qb_buffers_retire(qb_buffers *buffers, int32_t step);
/* The slot of a value that is stored or a leaf; -1 when memory is out. */
int32_t qb_buffers_slot(qb_buffers *buffers, int32_t value);

#endif
