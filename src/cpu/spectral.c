/* Orthogonal decompositions, by LAPACK, in place where it can be. Matrices by rows are for LAPACK their transposes
 * by columns: QR is its LQ, and left and right singular vectors change places. A batch is cut into chunks for the
 * threads. */
#include "cpu/spectral.h"

#include "base/allocate.h"
#include "base/threads.h"
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
    void *scratch;   /* that LAPACK works in */
} decomposition;

/* Of one matrix: operations, and scratch memory, in elements and in integers of LAPACK's behind them. */
typedef struct cost {
    double flops;
    int64_t elements, integers;
} cost;

typedef struct kind {
    cost (*cost)(const decomposition *one);
    void (*run)(const decomposition *one);
} kind;

typedef struct batch {
    const kind *kind;
    decomposition all;
    int64_t count, per_chunk, chunks;
    char *workspace;      /* for each worker */
    int64_t scratch_size; /* so many bytes */
} batch;

static void fill_results_with_nan(const decomposition *d)
{
    for (int i = 0; i < 3; i++)
        if (d->result[i])
            qb_fill_with_nan(d->dtype, d->result[i], d->size[i]);
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

/* Of no rows or no columns nothing is asked of LAPACK. */
static batch batch_of(const kind *kind, bool full, const qb_type *a)
{
    int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1];
    batch b = {.kind = kind, .all = {.dtype = a->dtype, .m = m, .n = n, .k = qb_smaller(m, n), .full = full}};
    b.count = b.all.k > 0 ? qb_batch_of(a) : 0;
    const cost each = kind->cost(&b.all);
    int64_t bytes = each.elements * (int64_t)qb_dtype_size(a->dtype) + each.integers * (int64_t)sizeof(int);
    b.per_chunk = qb_chunk_size(b.count, each.flops, 1);
    b.chunks = (b.count + b.per_chunk - 1) / b.per_chunk;
    b.scratch_size = qb_whole_lines(bytes);
    return b;
}

static int64_t workspace_of(const kind *kind, bool full, const qb_type *a)
{
    const batch b = batch_of(kind, full, a);
    return qb_worker_limit(b.chunks) * b.scratch_size;
}

static void run_chunk(void *data, int64_t chunk, int worker)
{
    const batch *b = data;
    const decomposition *all = &b->all;
    decomposition one = *all;
    int64_t first = chunk * b->per_chunk, limit = qb_smaller(first + b->per_chunk, b->count);
    one.scratch = b->workspace + worker * b->scratch_size;
    for (int64_t i = first; i < limit; i++) {
        one.a = qb_element(all->a, all->dtype, i * all->m * all->n);
        for (int k = 0; k < 3; k++)
            one.result[k] = all->result[k] ? qb_element(all->result[k], all->dtype, i * all->size[k]) : NULL;
        b->kind->run(&one);
    }
}

static void run_batch(const kind *kind, bool full, const qb_type *type, const void *a, int result_count,
                      const qb_type *result_type, void *const *result)
{
    batch b = batch_of(kind, full, type);
    b.all.a = a;
    b.workspace = result[result_count];
    for (int i = 0; i < result_count; i++) {
        b.all.result[i] = result[i];
        b.all.size[i] = 1;
        for (int axis = type->rank - 2; axis < result_type[i].rank; axis++)
            b.all.size[i] *= result_type[i].shape[axis];
    }
    qb_blas_use_one_thread();
    qb_parallel(b.chunks, run_chunk, &b);
}

/* Of no rows or no columns: unit matrices. */
static void set_identity(qb_dtype dtype, void *x, int64_t count, int64_t n)
{
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < n * n; j++)
            qb_dtype_store(dtype, j % (n + 1) == 0, qb_element(x, dtype, i * n * n + j));
}

/* ---- Symmetric eigenvalues */

static cost cost_of_eigh(const decomposition *d)
{
    return (cost){qb_eigh_flops((double)d->n), qb_eigh_work_size(d->n), qb_eigh_integer_count(d->n)};
}

static void run_eigh(const decomposition *d)
{
    int n = (int)d->n, work_size = (int)qb_eigh_work_size(n), integer_count = (int)qb_eigh_integer_count(n), info = 0;
    int *integers = qb_element(d->scratch, d->dtype, work_size);
    if (!qb_all_finite(d->dtype, d->a, d->n * d->n)) {
        fill_results_with_nan(d);
        return;
    }
    qb_take_symmetric(d->dtype, d->n, 0, d->n, d->a, d->result[1]);
    QB_LAPACK_OF(d->dtype, syevd, "V", "U", &n, d->result[1], &n, d->result[0], d->scratch, &work_size, integers,
                 &integer_count, &info);
    if (info != 0)
        fill_results_with_nan(d);
    for (int64_t j = 0; j < d->n; j++) {
        void *vector = qb_element(d->result[1], d->dtype, j * d->n);
        if (is_largest_negative(d->dtype, vector, d->n, 1))
            negate(d->dtype, vector, d->n, 1);
    }
}

static const kind eigh = {cost_of_eigh, run_eigh};

int64_t qb_eigh_workspace(const qb_attribute *attribute, const qb_type *operand_type)
{
    (void)attribute;
    return workspace_of(&eigh, false, operand_type);
}

QB_LINALG_KERNEL(qb_eigh_run)
{
    (void)attribute, (void)operand_count;
    run_batch(&eigh, false, operand_type, operand[0], 2, result_type, result);
}

/* ---- Singular values */

static cost cost_of_gesdd(const decomposition *d, double flops, int64_t work_size)
{
    return (cost){flops, d->m * d->n + work_size, 8 * d->k};
}

/* Of a copy, and for LAPACK of the transpose: a^T = V S U^T. */
static void run_gesdd(const decomposition *d, const char *job, int64_t work_elements, void *u, void *s, void *vh)
{
    int m = (int)d->m, n = (int)d->n, width = (int)(d->full ? d->m : d->k), work_size = (int)work_elements, info = 0;
    void *copy = d->scratch, *work = qb_element(copy, d->dtype, d->m * d->n);
    int *integers = qb_element(work, d->dtype, work_size);
    bool finite = qb_all_finite(d->dtype, d->a, d->m * d->n);
    if (finite) {
        memcpy(copy, d->a, (size_t)(d->m * d->n) * qb_dtype_size(d->dtype));
        QB_LAPACK_OF(d->dtype, gesdd, job, &n, &m, copy, &n, s, vh, &n, u, &width, work, &work_size, integers, &info);
    }
    if (!finite || info != 0)
        fill_results_with_nan(d);
}

static cost cost_of_svd(const decomposition *d)
{
    return cost_of_gesdd(d, qb_svd_flops((double)d->m, (double)d->n), qb_svd_work_size(d->m, d->n));
}

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

static void run_svd(const decomposition *d)
{
    run_gesdd(d, d->full ? "A" : "S", qb_svd_work_size(d->m, d->n), d->result[0], d->result[1], d->result[2]);
    fix_signs_of_vectors(d);
}

static const kind svd = {cost_of_svd, run_svd};

int64_t qb_svd_workspace(const qb_attribute *attribute, const qb_type *operand_type)
{
    return workspace_of(&svd, attribute[0].integer != 0, operand_type);
}

QB_LINALG_KERNEL(qb_svd_run)
{
    (void)operand_count;
    const qb_type *type = operand_type;
    int64_t m = type->shape[type->rank - 2], n = type->shape[type->rank - 1];
    bool full = attribute[0].integer != 0;
    run_batch(&svd, full, type, operand[0], 3, result_type, result);
    if (full && (m == 0 || n == 0)) {
        set_identity(type->dtype, result[0], qb_batch_of(type), m);
        set_identity(type->dtype, result[2], qb_batch_of(type), n);
    }
}

static cost cost_of_singular_values(const decomposition *d)
{
    double flops = qb_singular_values_flops((double)d->m, (double)d->n);
    return cost_of_gesdd(d, flops, qb_singular_values_work_size(d->m, d->n));
}

static void run_singular_values(const decomposition *d)
{
    run_gesdd(d, "N", qb_singular_values_work_size(d->m, d->n), NULL, d->result[0], NULL);
}

static const kind singular_values = {cost_of_singular_values, run_singular_values};

int64_t qb_singular_values_workspace(const qb_attribute *attribute, const qb_type *operand_type)
{
    (void)attribute;
    return workspace_of(&singular_values, false, operand_type);
}

QB_LINALG_KERNEL(qb_singular_values_run)
{
    (void)attribute, (void)operand_count;
    run_batch(&singular_values, false, operand_type, operand[0], 1, result_type, result);
}

/* ---- QR */

static cost cost_of_qr(const decomposition *d)
{
    return (cost){qb_qr_flops((double)d->m, (double)d->n), d->n + qb_qr_work_size(d->m, d->n, d->full), 0};
}

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
static void run_qr(const decomposition *d)
{
    int m = (int)d->m, n = (int)d->n, width = (int)(d->full ? d->m : d->n), info;
    int work_size = (int)qb_qr_work_size(d->m, d->n, d->full);
    void *scales = d->scratch, *work = qb_element(scales, d->dtype, d->n), *q = d->result[0];
    for (int64_t row = 0; row < d->m; row++)
        memcpy(qb_element(q, d->dtype, row * width), qb_element(d->a, d->dtype, row * d->n),
               (size_t)d->n * qb_dtype_size(d->dtype));
    QB_LAPACK_OF(d->dtype, gelqf, &n, &m, q, &width, scales, work, &work_size, &info);
    take_triangle(d, width);
    QB_LAPACK_OF(d->dtype, orglq, &width, &m, &n, q, &width, scales, work, &work_size, &info);
    fix_signs_of_rows(d);
}

static const kind qr = {cost_of_qr, run_qr};

int64_t qb_qr_workspace(const qb_attribute *attribute, const qb_type *operand_type)
{
    return workspace_of(&qr, attribute[0].integer != 0, operand_type);
}

QB_LINALG_KERNEL(qb_qr_run)
{
    (void)operand_count;
    const qb_type *type = operand_type;
    bool full = attribute[0].integer != 0;
    run_batch(&qr, full, type, operand[0], 2, result_type, result);
    if (full && type->shape[type->rank - 1] == 0)
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
