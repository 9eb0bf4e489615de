/* Kernel programs: fused loops as data.
 *
 * A kernel does the same straight-line sequence of instructions for each of `count` lanes. It reads arrays by its
 * loads, computes in registers, writes arrays by its stores and reduces registers by its reductions:
 *
 *     for lane in 0 .. count-1:
 *         register[load.target]  = slot[load.slot][load.offset + sum(index * load.stride)]     each load
 *         register[i.result]     = i.lane(register[i.operand[0]], ...)                         each instruction in turn
 *         slot[store.slot][lane] = register[store.source]                                      each store
 *         combine register[r.source] into slot[r.slot]                                         each reduction
 *
 * where index are the digits of the lane number in the mixed radix load.extent. Layouts exist in loads only: everything
 * else is linear in the lane number. That is all that a printer of C or CUDA, or an emitter of machine code, needs to
 * know; the fields after the line "execution" belong to the interpreter in src/cpu, which runs blocks of lanes.
 *
 * Invariants:
 * - A register is written before it is read. It may serve several values in turn, all of one element size; a result may
 *   share the register of a dying operand.
 * - A store's source is a register of its own, which lies in the stored memory itself ("bound"): storing is computing
 *   there.
 * - Slots that a kernel reads and writes are distinct memory, with one exception: a store may take over the memory of a
 *   direct load whose last reader is not after the instruction that writes the store.
 * - All reductions of a kernel share its split of the lanes, count = outer * extent * inner, and reduce over the middle
 *   axis.
 *
 * Reductions form a fixed tree which depends on the split alone, never on threads, on what a kernel computes beside
 * them, or on how the work was cut at run time: pieces of at most QB_KERNEL_PIECE lanes, each reduced by a kernel of
 * cpu/lanes.h or by halving, and the pieces combined pairwise. */
#ifndef QB_PROGRAM_KERNEL_H
#define QB_PROGRAM_KERNEL_H

#include "cpu/loops.h"

/* Lanes of a block: a register of 8-byte lanes is 2 KiB, and a kernel's live ones stay in L1. A kernel that only
 * reduces memory as it lies needs no registers: its blocks are whole pieces, which leaves less between them. */
enum { QB_KERNEL_LANES = 256, QB_KERNEL_PIECE = 4096 };

typedef enum qb_load_kind {
    QB_LOAD_DIRECT,   /* contiguous: the register is the memory itself */
    QB_LOAD_SPLAT,    /* one element for all lanes */
    QB_LOAD_CONSTANT, /* a splat of a constant, spread when the program was compiled */
    QB_LOAD_STRIDED   /* gathered into the register */
} qb_load_kind;

typedef struct qb_load {
    qb_load_kind kind;
    qb_dtype dtype;
    int32_t slot;
    int32_t target;
    int32_t rank; /* of the axes below: collapsed, none of extent 1 */
    int64_t offset;
    const int64_t *extent;
    const int64_t *stride;

    /* execution */
    bool periodic;     /* the same lanes in every block: filled once a run */
    bool past_caches;  /* copied into an array that no cache holds */
    const void *lanes; /* QB_LOAD_CONSTANT: the spread element */
} qb_load;

typedef struct qb_instruction {
    qb_lane_kernel kernel;
    int32_t result;
    int32_t operand[3]; /* those that the opcode lacks repeat the first */
    int16_t lane;       /* qb_lane; QB_LANE_convert to the same dtype is a copy */
    uint8_t dtype, result_dtype;
} qb_instruction;

typedef struct qb_store {
    int32_t slot;
    int32_t source;
    qb_dtype dtype;
} qb_store;

/* result[o * inner + i] = the reduction over e of lane (o * extent + e) * inner + i */
typedef struct qb_kernel_reduction {
    qb_reduction reduction;
    qb_dtype dtype;
    int32_t source;
    int32_t slot;

    /* execution */
    int32_t stack; /* register-table entry of the memory where pieces are combined */
    const qb_reduce_kernel *reduce;
    qb_fold_loop fold;
    qb_lane_kernel combine;
} qb_kernel_reduction;

/* How the interpreter cuts the lanes into blocks; chosen from the split (cpu/execute.c). */
typedef enum qb_traversal {
    QB_TRAVERSE_LINEAR,  /* no reduction */
    QB_TRAVERSE_SHORT,   /* few elements per result: whole groups in a block */
    QB_TRAVERSE_ROWS,    /* inner = 1, extent fits a block: whole rows in a block */
    QB_TRAVERSE_LONG,    /* inner = 1, longer rows: pieces of a row */
    QB_TRAVERSE_COLUMNS, /* inner fits half a block: several rows of it in a block */
    QB_TRAVERSE_WIDE     /* a part of one row of inner in a block; rows are walked in panels of columns */
} qb_traversal;

/* A register whose block lies in an array's memory. */
typedef struct qb_binding {
    int32_t target;
    int32_t slot;
    int64_t offset; /* bytes */
    int64_t size;   /* bytes of an element */
} qb_binding;

/* Machine code (codegen/codegen.h), called with addresses. */
typedef void (*qb_code)(char *const *addresses);

typedef struct qb_kernel {
    int64_t count;
    int64_t outer, extent, inner;
    int32_t load_count, instruction_count, store_count, reduction_count;
    const qb_load *loads;
    const qb_instruction *instructions;
    const qb_store *stores;
    const qb_kernel_reduction *reductions;

    /* execution: registers are entries of a table of addresses, `register_count` of them: bound ones first, then those
     * in scratch memory, then those of spread constants, then the reductions' stacks */
    qb_traversal traversal;
    int32_t lanes; /* of a full block: of a kernel that only copies, any number (emit.c) */
    int32_t panel; /* columns that are reduced together: of QB_TRAVERSE_WIDE a panel, else all of inner */
    int32_t register_count, bound_count, scratch_count;
    int32_t first_register; /* of this kernel in the program's table */
    int32_t scratch_stride; /* bytes between scratch registers */
    int32_t once_count;     /* loads[0 .. once_count-1] are filled once a run */
    int32_t gather_count;   /* loads[once_count .. once_count+gather_count-1] are filled for every block */
    int64_t stack_size;     /* bytes for each reduction's stack */
    int64_t chunk_count;    /* pieces of work for threads; 1: the caller's alone */
    int64_t chunk_units;    /* blocks, groups or pieces of one (see cpu/execute.c) in a chunk */
    int64_t partial_stride; /* bytes between partial results of chunks; 0: chunks write results */
    int32_t fixed_count;    /* bindings[0 .. fixed_count-1] are the same in every run: set with the frame */
    const qb_binding *bindings;
    qb_code whole; /* all that the kernel does, given the slots; NULL: interpreted */
    qb_code block; /* the instructions for a full block, given the registers; NULL: interpreted */
} qb_kernel;

#endif
