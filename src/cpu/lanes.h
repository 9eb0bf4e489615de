/* Lane kernels: what one instruction of a kernel program does to a block of lanes.
 *
 * A lane kernel reads n values from each operand and writes n results, all contiguous, for one dtype. Kernels are plain
 * functions compiled once per instruction set (src/cpu/lanes.c) and looked up once per compiled program, so that
 * running an instruction is one indirect call. A result block may be the memory of an operand whose elements have the
 * same size (exact aliasing only); any n >= 0 and any alignment of whole elements work, but blocks on 64-byte
 * boundaries run fastest.
 *
 * The same source gives every instruction set, without contraction of products and sums: AVX2, AVX-512 and NEON produce
 * the same bits; the x86-64 baseline, which lacks a fused multiply-add, may differ in the last place. */
#ifndef QB_CPU_LANES_H
#define QB_CPU_LANES_H

#include "base/dtype.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Opcodes: one per row of elementwise.def, then those that are not one-in-one-dtype. */
typedef enum qb_lane {
#define UNARY(name, operands, result, product, flops, partial, summary)               QB_LANE_##name,
#define BINARY(name, operands, result, product, flops, partial_a, partial_b, summary) QB_LANE_##name,
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
    QB_LANE_select,  /* a: bool condition, b and c: any dtype; result c where a is false */
    QB_LANE_convert, /* dtype: of the operand; the result's dtype is the second key. To bool: x != 0. Floating to
                        integer truncates and saturates, NaN gives 0. Between integers: modulo 2^n. */
    QB_LANE_COUNT,
    QB_LANE_NONE = -1
} qb_lane;

typedef void (*qb_lane_kernel)(size_t n, void *result, const void *a, const void *b, const void *c);

/* Reductions: n lanes are combined into one value, in a fixed tree that does not depend on the instruction set: 32
 * partial results (lane i goes to the one of number i mod 32) of each 256 lanes, those of the blocks added up one after
 * the other into totals, and these combined pairwise. */
typedef enum qb_reduction {
    QB_REDUCE_sum,
    QB_REDUCE_prod,
    QB_REDUCE_max,
    QB_REDUCE_min,
    QB_REDUCE_norm, /* sqrt of the sum of squares; partial results are norms themselves */
    QB_REDUCE_COUNT
} qb_reduction;
typedef struct qb_reduce_kernel {
    void (*at_once)(size_t n, void *result, const void *a);
    /* The same in parts: puts n lanes, a multiple of 256 but for the last part, into the totals. */
    void (*add)(size_t n, void *totals, const void *a, bool begins);
    void (*total)(const void *totals, void *result);
} qb_reduce_kernel;
#define QB_TOTALS_BYTES 320 /* of memory for totals */

/* The kernel of an opcode on operands of `dtype` (for QB_LANE_convert: from `dtype` to `result_dtype`; otherwise
 * result_dtype is ignored). Null where the op does not take that dtype. Safe from any thread; the instruction set is
 * chosen at the first call. */
qb_lane_kernel qb_lane_lookup(qb_lane lane, qb_dtype dtype, qb_dtype result_dtype);
const qb_reduce_kernel *qb_reduce_lookup(qb_reduction reduction, qb_dtype dtype); /* bool: max is any, min is all */
qb_lane_kernel qb_norm_lookup(qb_dtype dtype); /* the norm of two norms, lane by lane */

/* Name of the instruction set in use: "baseline", "avx2", "avx512", "neon". The environment variable QUABLA_ISA, read
 * at the first call, forces one of those that this machine runs (an unknown or unsupported name is ignored). */
const char *qb_lane_instruction_set(void);

#endif
