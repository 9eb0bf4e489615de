/* Orthogonal decompositions, by LAPACK, in place where it can be. Matrices by rows are for LAPACK their transposes
 * by columns: QR is its LQ, and left and right singular vectors change places. A batch is cut into chunks for the
 * threads. */
#include "cpu/spectral.h"

#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "cpu/matrices.h"

#include <math.h>

typedef struct decomposition {
    qb_dtype dtype;
    int64_t m, n, k;
    bool full;
    const void *a;
    void *result[3]; /* NULL: there is none */
    int64_t size[3]; /* elements of a result for each matrix */
    int64_t *space;
    int64_t space_size;
} decomposition;

/* That of one matrix of the batch. */
static decomposition one_of(const decomposition *all, int64_t index)
{
    decomposition d = *all;
    d.a = qb_element(all->a, all->dtype, index * all->m * all->n);
    for (int i = 0; i < 3; i++)
        d.result[i] = all->result[i] ? qb_element(all->result[i], all->dtype, index * all->size[i]) : NULL;
    d.space = all->space + index * all->space_size;
    return d;
}

static void fill_results_with_nan(const decomposition *d)
{
    for (int i = 0; i < 3; i++)
        if (d->result[i])
            qb_fill_with_nan(d->dtype, d->result[i], d->size[i]);
}

/* The memory behind so many elements of it, for integers. */
static int *integers_behind(const decomposition *d, int64_t elements)
{
    return (int *)(void *)((char *)d->space + elements * (int64_t)qb_dtype_size(d->dtype));
}

/* Whether the largest of n elements, `step` apart, the first of equal ones, is negative. */
static bool is_largest_negative(qb_dtype dtype, const void *x, int64_t n, int64_t step)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        double element = qb_dtype_load(dtype, qb_element(x, dtype, i * step));
        largest = fabs(element) > fabs(largest) ? element : largest;
    }
    return largest < 0;
}

static void negate(qb_dtype dtype, void *x, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n; i++)
        if (dtype == QB_FLOAT64)
            ((double *)x)[i * step] = -((double *)x)[i * step];
        else
            ((float *)x)[i * step] = -((float *)x)[i * step];
}

static void run_batch(decomposition *d, const qb_type *type, int result_count, const qb_type *result_type,
                      void *const *result, double flops, qb_range_work work)
{
    d->dtype = type->dtype;
    d->m = type->shape[type->rank - 2];
    d->n = type->shape[type->rank - 1];
    d->k = QB_SMALLER(d->m, d->n);
    int64_t count = qb_batch_of(type);
    for (int i = 0; i < result_count; i++) {
        d->result[i] = result[i];
        d->size[i] = 1;
        for (int axis = type->rank - 2; axis < result_type[i].rank; axis++)
            d->size[i] *= result_type[i].shape[axis];
    }
    d->space = result[result_count];
    d->space_size = result_type[result_count].shape[type->rank - 2];
    if (count == 0)
        return;
    qb_blas_use_one_thread();
    qb_in_chunks(count, flops, 1, work, d);
}

/* ---- Symmetric eigenvalues */

static void eigh_range(const void *data, int64_t first, int64_t limit)
{
    for (int64_t i = first; i < limit; i++) {
        decomposition d = one_of(data, i);
        int n = (int)d.n, work_size = (int)QB_EIGH_WORK(d.n), integer_count = (int)QB_EIGH_INTEGERS(d.n), info = 0;
        int *integers = integers_behind(&d, work_size);
        void *work = d.space;
        if (!qb_all_finite(d.dtype, d.a, d.n * d.n)) {
            fill_results_with_nan(&d);
            continue;
        }
        qb_take_symmetric(d.dtype, d.n, 0, d.n, d.a, d.result[1]);
        QB_LAPACK_OF(d.dtype, syevd, "V", "U", &n, d.result[1], &n, d.result[0], work, &work_size, integers,
                     &integer_count, &info);
        if (info != 0)
            fill_results_with_nan(&d);
        for (int64_t j = 0; j < d.n; j++) {
            void *vector = qb_element(d.result[1], d.dtype, j * d.n);
            if (is_largest_negative(d.dtype, vector, d.n, 1))
                negate(d.dtype, vector, d.n, 1);
        }
    }
}

QB_LINALG_KERNEL(qb_eigh_run)
{
    (void)attribute, (void)operand_count;
    double n = (double)operand_type->shape[operand_type->rank - 1];
    decomposition d = {.a = operand[0]};
    if (n > 0)
        run_batch(&d, operand_type, 2, result_type, result, 9 * n * n * n, eigh_range);
}

/* ---- Singular values */

static void fix_signs_of_vectors(const decomposition *d)
{
    int64_t width = d->full ? d->m : d->k;
    for (int64_t j = 0; j < d->k; j++) {
        void *left = qb_element(d->result[0], d->dtype, j);
        if (!is_largest_negative(d->dtype, left, d->m, width))
            continue;
        negate(d->dtype, left, d->m, width);
        negate(d->dtype, qb_element(d->result[2], d->dtype, j * d->n), d->n, 1);
    }
    for (int64_t j = d->k; d->full && j < d->m; j++)
        if (is_largest_negative(d->dtype, qb_element(d->result[0], d->dtype, j), d->m, width))
            negate(d->dtype, qb_element(d->result[0], d->dtype, j), d->m, width);
}

/* Of the transposes: a^T = V S U^T. */
static void svd_range(const void *data, int64_t first, int64_t limit)
{
    for (int64_t i = first; i < limit; i++) {
        decomposition d = one_of(data, i);
        int m = (int)d.m, n = (int)d.n, width = (int)(d.full ? d.m : d.k), info = 0;
        int work_size = (int)QB_SVD_WORK(d.m, d.n);
        const char *job = d.full ? "A" : "S";
        void *copy = d.space, *work = qb_element(copy, d.dtype, d.m * d.n);
        int *integers = integers_behind(&d, d.m * d.n + work_size);
        if (!qb_all_finite(d.dtype, d.a, d.m * d.n)) {
            fill_results_with_nan(&d);
            continue;
        }
        memcpy(copy, d.a, (size_t)(d.m * d.n) * qb_dtype_size(d.dtype));
        QB_LAPACK_OF(d.dtype, gesdd, job, &n, &m, copy, &n, d.result[1], d.result[2], &n, d.result[0], &width, work,
                     &work_size, integers, &info);
        if (info != 0)
            fill_results_with_nan(&d);
        fix_signs_of_vectors(&d);
    }
}

/* Of no rows or no columns: unit matrices. */
static void set_identity(qb_dtype dtype, void *x, int64_t count, int64_t n)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < n * n; j++)
            qb_dtype_store(dtype, j % (n + 1) == 0, qb_element(x, dtype, i * n * n + j));
}

QB_LINALG_KERNEL(qb_svd_run)
{
    (void)operand_count;
    const qb_type *type = operand_type;
    double m = (double)type->shape[type->rank - 2], n = (double)type->shape[type->rank - 1], k = m < n ? m : n;
    decomposition d = {.a = operand[0], .full = attribute[0].integer != 0};
    if (k > 0)
        run_batch(&d, type, 3, result_type, result, 6 * m * n * k + 16 * k * k * k, svd_range);
    else if (d.full) {
        set_identity(type->dtype, result[0], qb_batch_of(type), type->shape[type->rank - 2]);
        set_identity(type->dtype, result[2], qb_batch_of(type), type->shape[type->rank - 1]);
    }
}

/* ---- QR */

static void fix_signs_of_rows(const decomposition *d)
{
    int64_t width = d->full ? d->m : d->n;
    for (int64_t j = 0; j < d->n; j++) {
        void *row = qb_element(d->result[1], d->dtype, j * d->n);
        if (!(qb_dtype_load(d->dtype, qb_element(row, d->dtype, j)) < 0))
            continue;
        negate(d->dtype, qb_element(row, d->dtype, j), d->n - j, 1);
        negate(d->dtype, qb_element(d->result[0], d->dtype, j), d->m, width);
    }
}

/* R from the upper triangle of what the factorization left; zeros below it. */
static void take_triangle(const decomposition *d, int64_t width)
{
    size_t bytes = qb_dtype_size(d->dtype);
    memset(d->result[1], 0, (size_t)d->size[1] * bytes);
    for (int64_t i = 0; i < d->n; i++)
        memcpy(qb_element(d->result[1], d->dtype, i * (d->n + 1)), qb_element(d->result[0], d->dtype, i * (width + 1)),
               (size_t)(d->n - i) * bytes);
}

/* Q begins as a, in its first columns: the transpose of which is L times the transpose of Q. */
static void qr_range(const void *data, int64_t first, int64_t limit)
{
    for (int64_t i = first; i < limit; i++) {
        decomposition d = one_of(data, i);
        int m = (int)d.m, n = (int)d.n, width = (int)(d.full ? d.m : d.n), work_size = (int)QB_QR_WORK(d.m, d.n), info;
        void *scales = d.space, *work = qb_element(scales, d.dtype, d.n), *q = d.result[0];
        for (int64_t row = 0; row < d.m; row++)
            memcpy(qb_element(q, d.dtype, row * width), qb_element(d.a, d.dtype, row * d.n),
                   (size_t)d.n * qb_dtype_size(d.dtype));
        QB_LAPACK_OF(d.dtype, gelqf, &n, &m, q, &width, scales, work, &work_size, &info);
        take_triangle(&d, width);
        QB_LAPACK_OF(d.dtype, orglq, &width, &m, &n, q, &width, scales, work, &work_size, &info);
        fix_signs_of_rows(&d);
    }
}

QB_LINALG_KERNEL(qb_qr_run)
{
    (void)operand_count;
    const qb_type *type = operand_type;
    double m = (double)type->shape[type->rank - 2], n = (double)type->shape[type->rank - 1];
    decomposition d = {.a = operand[0], .full = attribute[0].integer != 0};
    if (n > 0)
        run_batch(&d, type, 2, result_type, result, 4 * m * n * n, qr_range);
    else if (d.full)
        set_identity(type->dtype, result[0], qb_batch_of(type), type->shape[type->rank - 2]);
}

QB_LINALG_KERNEL(qb_pseudo_inverse_run)
{
    (void)attribute, (void)operand_count, (void)operand_type;
    int64_t count = 1;
    for (int i = 0; i < result_type->rank; i++)
        count *= result_type->shape[i];
    if (count > 0)
        memcpy(result[0], operand[1], (size_t)count * qb_dtype_size(result_type->dtype));
}
