/* An assembler for the few x86-64 instructions that kernels need (Intel 64 and IA-32 Architectures Software Developer's
 * Manual, volume 2): moves, calls, one loop, and arithmetic on vectors of up to 32 bytes (AVX2) or 64 (AVX-512).
 *
 * Bytes are collected in memory that grows; when there is none left, `failed` stays set and nothing more is written.
 * Constants wait in a pool that qb_x86_finish puts behind the code. */
#ifndef QB_CODEGEN_X86_64_H
#define QB_CODEGEN_X86_64_H

#include "base/dtype.h"

typedef enum qb_x86_register {
    QB_RAX,
    QB_RCX,
    QB_RDX,
    QB_RBX,
    QB_RSI = 6,
    QB_RDI,
    QB_R8,
    QB_R9,
    QB_R10,
    QB_R11,
    QB_R13 = 13
} qb_x86_register;

typedef struct qb_x86_fixup {
    int32_t position; /* of four bytes: the distance from behind them to */
    int32_t constant; /* this one of the pool */
} qb_x86_fixup;

typedef struct qb_x86 {
    uint8_t *bytes;
    int32_t count, capacity;
    uint64_t *constants;
    int32_t constant_count, constant_capacity;
    qb_x86_fixup *fixups;
    int32_t fixup_count, fixup_capacity;
    bool failed;
    int widest; /* bytes of the widest vector: 32, or 64 where there is AVX-512 (F, VL, BW and DQ) */
} qb_x86;

/* Memory: at the register `base`, any but RCX and R13, plus `displacement`, plus `scale` times R13 where that is not 0;
 * or a constant of the pool. */
typedef struct qb_x86_memory {
    qb_x86_register base;
    int32_t displacement;
    int scale;        /* 0, 1, 4, 8 */
    int32_t constant; /* -1: none */
} qb_x86_memory;

/* The lanes that an instruction works on: 1, 2, 4 ... of float32 or float64, as many as a vector holds. Where they fill
 * less than 16 bytes, the other lanes of the vector hold anything. */
typedef struct qb_x86_lanes {
    qb_dtype dtype;
    int width;
} qb_x86_lanes;

/* Opcodes of arithmetic on vector registers: result = a op b. */
typedef enum qb_x86_operation {
    QB_X86_SQRT = 0x51, /* of b; a is b */
    QB_X86_AND = 0x54,
    QB_X86_AND_NOT = 0x55, /* not a, and b */
    QB_X86_OR = 0x56,
    QB_X86_XOR = 0x57,
    QB_X86_ADD = 0x58,
    QB_X86_MUL = 0x59,
    QB_X86_SUB = 0x5c,
    QB_X86_MIN = 0x5d, /* a < b ? a : b */
    QB_X86_DIV = 0x5e,
    QB_X86_MAX = 0x5f /* a > b ? a : b */
} qb_x86_operation;

typedef enum qb_x86_comparison {
    QB_X86_EQUAL = 0,
    QB_X86_UNORDERED = 3,
    QB_X86_NOT_EQUAL = 4, /* or unordered */
    QB_X86_LESS = 0x11,
    QB_X86_LESS_EQUAL = 0x12
} qb_x86_comparison;

void qb_x86_free(qb_x86 *x);
/* Whatever is left of the code: the pool, and the distances to it. */
void qb_x86_finish(qb_x86 *x);
/* Fills up to a multiple of 16 bytes. */
void qb_x86_align(qb_x86 *x);
/* The number of a constant in the pool. */
int32_t qb_x86_constant(qb_x86 *x, uint64_t bits);

/* ---- General registers. A function takes one pointer, which it keeps in RBX; R13 counts lanes. */

void qb_x86_enter(qb_x86 *x);
void qb_x86_leave(qb_x86 *x, bool wide); /* wide: registers of 32 bytes were used */
void qb_x86_clear_upper(qb_x86 *x);      /* before calls, likewise */
void qb_x86_load_pointer(qb_x86 *x, qb_x86_register to, int64_t displacement); /* to = memory[RBX + displacement] */
void qb_x86_address(qb_x86 *x, qb_x86_register to, int64_t displacement);      /* to = RBX + displacement */
void qb_x86_copy(qb_x86 *x, qb_x86_register to, qb_x86_register from);
void qb_x86_add(qb_x86 *x, qb_x86_register to, int64_t value); /* to += value */
void qb_x86_set(qb_x86 *x, qb_x86_register to, uint64_t value);
void qb_x86_call(qb_x86 *x, void (*function)(void));                     /* through RAX */
int32_t qb_x86_begin_loop(qb_x86 *x);                                    /* where it jumps to */
void qb_x86_end_loop(qb_x86 *x, int32_t begin, int step, int64_t limit); /* R13 += step, again while R13 < limit */

/* ---- Vector registers 0 to 15, of which QB_X86_SPARE and those that follow may be lost by what takes several
 * instructions. */

enum { QB_X86_SPARE = 13 };

void qb_x86_load(qb_x86 *x, qb_x86_lanes lanes, int to, qb_x86_memory from);
void qb_x86_store(qb_x86 *x, qb_x86_lanes lanes, int from, qb_x86_memory to);
void qb_x86_broadcast(qb_x86 *x, qb_x86_lanes lanes, int to, qb_x86_memory from); /* one element to all lanes */
void qb_x86_move(qb_x86 *x, qb_x86_lanes lanes, int to, int from);
void qb_x86_zero(qb_x86 *x, int to);
void qb_x86_arithmetic(qb_x86 *x, qb_x86_lanes lanes, qb_x86_operation operation, int result, int a, int b);
/* a op b, or 0 where a is 0, or, if so wanted, b; loses the spare registers. */
void qb_x86_strong(qb_x86 *x, qb_x86_lanes lanes, qb_x86_operation operation, bool tests_b, int result, int a, int b);
/* a MAX or MIN b, or a where that is a NaN; loses the spare registers. */
void qb_x86_extremum(qb_x86 *x, qb_x86_lanes lanes, qb_x86_operation operation, int result, int a, int b);

/* Masks: all bits of a lane, or none. From memory and to memory: bytes that are 1 or 0; this and selecting lose the
 * spare registers, and RCX. */

void qb_x86_compare(qb_x86 *x, qb_x86_lanes lanes, qb_x86_comparison comparison, int result, int a, int b);
void qb_x86_select(qb_x86 *x, qb_x86_lanes lanes, int result, int mask, int if_set, int if_clear);
void qb_x86_set_all(qb_x86 *x, qb_x86_lanes lanes, int to);
void qb_x86_load_mask(qb_x86 *x, qb_x86_lanes lanes, int to, qb_x86_memory from);
void qb_x86_broadcast_mask(qb_x86 *x, qb_x86_lanes lanes, int to, qb_x86_memory from);
void qb_x86_store_mask(qb_x86 *x, qb_x86_lanes lanes, int from, qb_x86_memory to);

#endif
