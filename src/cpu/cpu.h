/* The CPU device: what a program's steps do. Nothing here allocates, fails, or keeps state. */
#ifndef QB_CPU_CPU_H
#define QB_CPU_CPU_H

#include "cpu/loops.h"
#include "program/kernel.h"

/* ---- Kernels (execute.c) */

/* `slots` are addresses of arrays, `registers` this kernel's part of the first thread's table of registers; other
 * threads' tables follow at a distance of `register_stride`. `partials`: qb_kernel_partial_size bytes. */
void qb_kernel_run(const qb_kernel *kernel, char *const *slots, char **registers, int64_t register_stride,
                   char *partials);

/* Rows first .. limit-1 of `rows`, which divide the lanes evenly, and the groups that are reduced; by one thread, whose
 * registers these are. */
void qb_kernel_run_rows(const qb_kernel *kernel, char *const *slots, char **registers, int64_t rows, int64_t first,
                        int64_t limit);

/* Fills traversal, lanes and stack_size from the split and the reductions. `only_reduces`: what is reduced is memory
 * as it lies. */
void qb_kernel_choose_traversal(qb_kernel *kernel, bool only_reduces);
/* Cuts the lanes into chunks for threads, given about how long a lane takes; after the traversal is chosen. */
void qb_kernel_choose_chunks(qb_kernel *kernel, double lane_nanoseconds);
int64_t qb_kernel_partial_size(const qb_kernel *kernel);
/* out[i] = the reduction of source[i * extent .. (i + 1) * extent - 1], for each of `rows`. */
void qb_reduce_rows(const qb_kernel_reduction *red, int64_t rows, int64_t extent, char *out, const char *source);

/* ---- Loads (load.c) */

/* Lanes first .. first+count-1 of a strided load into `target`; `memory` is the slot's. */
void qb_load_gather(const qb_load *load, const void *memory, void *target, int64_t first, int64_t count);
void qb_load_spread(size_t size, const void *element, void *target, int64_t count);
/* The number of lanes after which the load repeats itself (its count if it never does). */
int64_t qb_load_period(const qb_load *load);
/* An instruction that copies elements of `size` bytes. */
qb_lane_kernel qb_copy_lookup(size_t size);

/* ---- Reductions (reduce.c) */

/* The elementwise kernel that combines two partial results. */
qb_lane_kernel qb_reduce_combine(qb_reduction reduction, qb_dtype dtype);
/* Writes the reduction of no elements. */
void qb_reduce_identity(qb_reduction reduction, qb_dtype dtype, int64_t count, void *result);

/* ---- Products (dot.c): c[batch][m][n] = addend + sum over k of a * b; addend and c contiguous */

typedef struct qb_product {
    qb_dtype dtype;
    int32_t a, b, c; /* slots */
    int32_t addend;  /* likewise; -1: none */
    int64_t a_offset, b_offset;
    qb_product_shape shape;
    int32_t batch_rank;
    int64_t batch_count;
    const int64_t *batch, *a_batch, *b_batch; /* extents and strides of the batch axes */
    int method;                               /* chosen by qb_product_prepare, like those that follow */
    int64_t chunk_count;                      /* pieces of work for threads, */
    int64_t chunk_batch, chunk_m, chunk_n;    /* each of so many examples of the batch, rows and columns */
    int64_t scratch_size;                     /* bytes, for each thread */
    qb_product_loop loop;
    qb_gemm gemm;
} qb_product;

/* Whether a factor with these extents and strides can be used as it lies; otherwise it has to be copied. */
bool qb_product_accepts(qb_dtype dtype, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride);
/* Whether it may have an addend. */
bool qb_product_adds(const qb_product *dot);
void qb_product_prepare(qb_product *dot);
const char *qb_product_method(const qb_product *dot); /* in words */
/* `scratch` is the first thread's, others' follow at a distance of `scratch_stride`. */
void qb_product_run(const qb_product *dot, char *const *slots, char *scratch, int64_t scratch_stride);

/* Called before the first call of BLAS or LAPACK, each of which then runs in the thread that calls. */
void qb_blas_use_one_thread(void);

#endif
