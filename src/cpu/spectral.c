/* Orthogonal decompositions, by LAPACK, in place where it can be. Matrices by rows are for LAPACK their transposes
 * by columns: QR is its LQ, and left and right singular vectors change places. A batch is cut into chunks for the
 * threads. */
#include "cpu/spectral.h"

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
    void *space;     /* that LAPACK works in */
} decomposition;

/* What one matrix takes: operations, and memory, in elements and in integers of LAPACK's behind them. */
typedef struct demand {
    double flops;
    int64_t elements, integers;
} demand;

typedef struct kind {
    demand (*demand)(const decomposition *one);
    void (*run)(const decomposition *one);
} kind;

typedef struct batch {
    const kind *kind;
    decomposition all;
    int64_t count, per_chunk, chunks;
    int64_t rooms, room_size; /* a room for each chunk, or thread if there are fewer */
} batch;

static void fill_results_with_nan(const decomposition *d)
{
    for (int i = 0; i < 3; i++)
        if (d->result[i])
            qb_fill_with_nan(d->dtype, d->result[i], d->size[i]);
}

/* The memory behind so many elements of it, for integers. */
static int *integers_behind(const decomposition *d, int64_t elements)
{
    return qb_element(d->space, d->dtype, elements);
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
    enum { LINE = 64 };
    int64_t m = a->shape[a->rank - 2], n = a->shape[a->rank - 1];
    batch b = {.kind = kind, .all = {.dtype = a->dtype, .m = m, .n = n, .k = QB_SMALLER(m, n), .full = full}};
    b.count = b.all.k > 0 ? qb_batch_of(a) : 0;
    const demand each = kind->demand(&b.all);
    int64_t bytes = each.elements * (int64_t)qb_dtype_size(a->dtype) + each.integers * (int64_t)sizeof(int);
    b.per_chunk = qb_chunk_size(b.count, each.flops, 1);
    b.chunks = (b.count + b.per_chunk - 1) / b.per_chunk;
    b.rooms = QB_SMALLER(b.chunks, qb_thread_count());
    b.room_size = (bytes + LINE - 1) / LINE * LINE;
    return b;
}

static int64_t workspace_of(const kind *kind, bool full, const qb_graph *graph, const qb_node *node)
{
    qb_type a;
    qb_value_type(graph, qb_operand(graph, node, 0), &a);
    const batch b = batch_of(kind, full, &a);
    return b.rooms * b.room_size;
}

static void run_chunk(void *data, int64_t chunk, int worker)
{
    const batch *b = data;
    const decomposition *all = &b->all;
    decomposition one = *all;
    int64_t first = chunk * b->per_chunk, limit = QB_SMALLER(first + b->per_chunk, b->count);
    one.space = (char *)all->space + worker * b->room_size;
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
    b.all.space = result[result_count];
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

/* The integers that syevd is told of. */
#define EIGH_INTEGERS(n) (3 + 5 * (n))

static demand demand_of_eigh(const decomposition *d)
{
    double n = (double)d->n;
    return (demand){9 * n * n * n, QB_EIGH_WORK(d->n), EIGH_INTEGERS(d->n)};
}

static void run_eigh(const decomposition *d)
{
    int n = (int)d->n, work_size = (int)QB_EIGH_WORK(d->n), integer_count = (int)EIGH_INTEGERS(d->n), info = 0;
    int *integers = integers_behind(d, work_size);
    if (!qb_all_finite(d->dtype, d->a, d->n * d->n)) {
        fill_results_with_nan(d);
        return;
    }
    qb_take_symmetric(d->dtype, d->n, 0, d->n, d->a, d->result[1]);
    QB_LAPACK_OF(d->dtype, syevd, "V", "U", &n, d->result[1], &n, d->result[0], d->space, &work_size, integers,
                 &integer_count, &info);
    if (info != 0)
        fill_results_with_nan(d);
    for (int64_t j = 0; j < d->n; j++) {
        void *vector = qb_element(d->result[1], d->dtype, j * d->n);
        if (is_largest_negative(d->dtype, vector, d->n, 1))
            negate(d->dtype, vector, d->n, 1);
    }
}

static const kind eigh = {demand_of_eigh, run_eigh};

int64_t qb_eigh_workspace(const qb_graph *graph, const qb_node *node)
{
    return workspace_of(&eigh, false, graph, node);
}

QB_LINALG_KERNEL(qb_eigh_run)
{
    (void)attribute, (void)operand_count;
    run_batch(&eigh, false, operand_type, operand[0], 2, result_type, result);
}

/* ---- Singular values */

static demand demand_of_svd(const decomposition *d)
{
    double m = (double)d->m, n = (double)d->n, k = (double)d->k;
    return (demand){6 * m * n * k + 16 * k * k * k, d->m * d->n + QB_SVD_WORK(d->m, d->n), 8 * d->k};
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

/* Of the transposes: a^T = V S U^T. */
static void run_svd(const decomposition *d)
{
    int m = (int)d->m, n = (int)d->n, width = (int)(d->full ? d->m : d->k), info = 0;
    int work_size = (int)QB_SVD_WORK(d->m, d->n);
    const char *job = d->full ? "A" : "S";
    void *copy = d->space, *work = qb_element(copy, d->dtype, d->m * d->n);
    int *integers = integers_behind(d, d->m * d->n + work_size);
    if (!qb_all_finite(d->dtype, d->a, d->m * d->n)) {
        fill_results_with_nan(d);
        return;
    }
    memcpy(copy, d->a, (size_t)(d->m * d->n) * qb_dtype_size(d->dtype));
    QB_LAPACK_OF(d->dtype, gesdd, job, &n, &m, copy, &n, d->result[1], d->result[2], &n, d->result[0], &width, work,
                 &work_size, integers, &info);
    if (info != 0)
        fill_results_with_nan(d);
    fix_signs_of_vectors(d);
}

static const kind svd = {demand_of_svd, run_svd};

int64_t qb_svd_workspace(const qb_graph *graph, const qb_node *node)
{
    return workspace_of(&svd, node->attributes[0].integer != 0, graph, node);
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

static demand demand_of_values(const decomposition *d)
{
    double m = (double)d->m, n = (double)d->n, k = (double)d->k;
    return (demand){4 * m * n * k, d->m * d->n + QB_SINGULAR_VALUES_WORK(d->m, d->n), 8 * d->k};
}

static void run_values(const decomposition *d)
{
    int m = (int)d->m, n = (int)d->n, work_size = (int)QB_SINGULAR_VALUES_WORK(d->m, d->n), info = 0;
    void *copy = d->space, *work = qb_element(copy, d->dtype, d->m * d->n);
    int *integers = integers_behind(d, d->m * d->n + work_size);
    if (!qb_all_finite(d->dtype, d->a, d->m * d->n)) {
        fill_results_with_nan(d);
        return;
    }
    memcpy(copy, d->a, (size_t)(d->m * d->n) * qb_dtype_size(d->dtype));
    QB_LAPACK_OF(d->dtype, gesdd, "N", &n, &m, copy, &n, d->result[0], NULL, &n, NULL, &m, work, &work_size, integers,
                 &info);
    if (info != 0)
        fill_results_with_nan(d);
}

static const kind values = {demand_of_values, run_values};

int64_t qb_singular_values_workspace(const qb_graph *graph, const qb_node *node)
{
    return workspace_of(&values, false, graph, node);
}

QB_LINALG_KERNEL(qb_singular_values_run)
{
    (void)attribute, (void)operand_count;
    run_batch(&values, false, operand_type, operand[0], 1, result_type, result);
}

/* ---- QR */

/* What gelqf and orglq ask for: blocks of 64 (at most) rows as long as Q is wide. */
static int64_t work_of_qr(const decomposition *d)
{
    return 64 * (d->full ? d->m : d->n);
}

static demand demand_of_qr(const decomposition *d)
{
    double m = (double)d->m, n = (double)d->n;
    return (demand){4 * m * n * n, d->n + work_of_qr(d), 0};
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
    int m = (int)d->m, n = (int)d->n, width = (int)(d->full ? d->m : d->n), work_size = (int)work_of_qr(d), info;
    void *scales = d->space, *work = qb_element(scales, d->dtype, d->n), *q = d->result[0];
    for (int64_t row = 0; row < d->m; row++)
        memcpy(qb_element(q, d->dtype, row * width), qb_element(d->a, d->dtype, row * d->n),
               (size_t)d->n * qb_dtype_size(d->dtype));
    QB_LAPACK_OF(d->dtype, gelqf, &n, &m, q, &width, scales, work, &work_size, &info);
    take_triangle(d, width);
    QB_LAPACK_OF(d->dtype, orglq, &width, &m, &n, q, &width, scales, work, &work_size, &info);
    fix_signs_of_rows(d);
}

static const kind qr = {demand_of_qr, run_qr};

int64_t qb_qr_workspace(const qb_graph *graph, const qb_node *node)
{
    return workspace_of(&qr, node->attributes[0].integer != 0, graph, node);
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
