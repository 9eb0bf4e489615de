/* Products of matrices, for one thread: blocks that stay in the cache, tiles that stay in registers (Goto and van de
 * Geijn, "Anatomy of high-performance matrix multiplication", ACM Trans. Math. Softw. 34, 2008).
 *
 * Like the lane kernels they are compiled once per instruction set (gemm.c, found through loops.h). An element's sum
 * runs over k in order, in blocks of QB_GEMM_DEPTH terms that are added up one after the other, whichever rows and
 * columns are asked for together: results do not depend on how a product is cut into pieces. */
#ifndef QB_CPU_GEMM_H
#define QB_CPU_GEMM_H

#include "cpu/loops.h"

#include <stdbool.h>

enum {
    QB_GEMM_ROWS = 6,               /* of a register tile */
    QB_GEMM_DEPTH = 128,            /* rows of b's panel, which then lies in the first-level cache */
    QB_GEMM_PACKED_BYTES = 1024,    /* of a row of b are packed at a time: whole lines of the cache, and few pages */
    QB_GEMM_HEIGHT = 516,           /* rows of a that are packed at a time, for the second-level cache */
    QB_GEMM_PANELS_DIRECT = 8,      /* so many times a is read as it lies; packing it pays for more */
    QB_GEMM_DIRECT_BYTES = 1 << 15, /* b is read as it lies where a block of it fits the first-level cache */
    QB_GEMM_ROWS_DIRECT = 24        /* or where fewer rows of a meet it */
};

/* Terms of a block. */
static inline int64_t qb_gemm_depth(const qb_product_shape *shape)
{
    return shape->k < QB_GEMM_DEPTH ? shape->k : QB_GEMM_DEPTH;
}

static inline bool qb_gemm_packs_left(const qb_product_shape *shape, int64_t element_size, int64_t panel_bytes)
{
    return shape->n > QB_GEMM_PANELS_DIRECT * panel_bytes / element_size;
}

/* Panels of b that are packed together, at most. */
static inline int64_t qb_gemm_group(int64_t n, int64_t element_size, int64_t panel_bytes)
{
    int64_t panels = (n * element_size + panel_bytes - 1) / panel_bytes;
    return panels < QB_GEMM_PACKED_BYTES / panel_bytes ? panels : QB_GEMM_PACKED_BYTES / panel_bytes;
}

/* Bytes of scratch memory for a product of this shape or a part of it; to be aligned as frames are. */
static inline int64_t qb_gemm_scratch(const qb_product_shape *shape, int64_t element_size, int64_t panel_bytes)
{
    int64_t height = shape->m < QB_GEMM_HEIGHT ? shape->m : QB_GEMM_HEIGHT;
    bool packs = qb_gemm_packs_left(shape, element_size, panel_bytes);
    return qb_gemm_depth(shape) *
           (qb_gemm_group(shape->n, element_size, panel_bytes) * panel_bytes + (packs ? height * element_size : 0));
}

#define QB_GEMM_NAME(type, isa)          QB_GEMM_NAME_EXPANDED(type, isa)
#define QB_GEMM_NAME_EXPANDED(type, isa) qb_gemm_##type##_##isa

#ifdef QB_ISA /* what gemm.c has for loops.c */
void QB_GEMM_NAME(double, QB_ISA)(const qb_product_shape *shape, const void *a, const void *b, const void *start,
                                  void *c, int64_t c_m, void *scratch);
void QB_GEMM_NAME(float, QB_ISA)(const qb_product_shape *shape, const void *a, const void *b, const void *start,
                                 void *c, int64_t c_m, void *scratch);

/* The vectors of a tile's row: with QB_GEMM_ROWS rows of sums, and vectors of b, nearly all registers are used, and
 * enough sums run at once to hide the latency of a fused product. */
#if defined(__AVX512F__)
#define QB_GEMM_TILE_VECTORS 4 /* of 32 registers */
#elif defined(__AVX2__)
#define QB_GEMM_TILE_VECTORS 2 /* of 16 */
#elif defined(__aarch64__)
#define QB_GEMM_TILE_VECTORS 4
#else
#define QB_GEMM_TILE_VECTORS 2
#endif
#endif

#endif
