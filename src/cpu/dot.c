/* Products: BLAS where it pays, plain loops for small ones, integers, and layouts that BLAS does not take.
 *
 * Factors are read by strides, so that transposed and batched operands cost no copy. BLAS runs single-threaded: its
 * threads spin, and the order of its sums would depend on their number. Large products are cut into chunks for our own
 * threads, always the same: by the batch, by rows or by columns of the result, never along a sum. */
#include "cpu/cpu.h"

#include "base/threads.h"

#include "quabla_config.h"

#include <cblas.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#define DGEMM QB_BLAS(cblas_dgemm)
#define SGEMM QB_BLAS(cblas_sgemm)
#define DGEMV QB_BLAS(cblas_dgemv)
#define SGEMV QB_BLAS(cblas_sgemv)

enum method { METHOD_ZERO, METHOD_LOOP, METHOD_GEMV, METHOD_GEMM };

/* ---- Layouts for BLAS */

typedef struct layout {
    bool transposed;
    int64_t leading;
} layout;

/* How BLAS sees a rows x columns matrix with these strides, if it can. */
static bool find_layout(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride, layout *out)
{
    bool plain = (column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1);
    bool flipped = (row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1);
    if (!plain && !flipped)
        return false;
    int64_t leading = plain ? (rows == 1 ? columns : row_stride) : (columns == 1 ? rows : column_stride);
    *out = (layout){.transposed = !plain, .leading = leading > 0 ? leading : 1};
    return leading <= INT_MAX;
}

bool qb_product_accepts(qb_dtype dtype, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride)
{
    layout unused;
    return !qb_dtype_is_floating(dtype) || find_layout(rows, columns, row_stride, column_stride, &unused);
}

/* ---- BLAS */

/* m rows and n columns of the product; the layouts are those of the whole. */
static void run_gemm(const qb_product *d, int m, int n, const void *a, const void *b, void *c)
{
    layout la, lb;
    (void)find_layout(d->shape.m, d->shape.k, d->shape.a_m, d->shape.a_k, &la);
    (void)find_layout(d->shape.k, d->shape.n, d->shape.b_k, d->shape.b_n, &lb);
    int k = (int)d->shape.k, ldc = (int)d->shape.n;
    int lda = (int)la.leading, ldb = (int)lb.leading;
    CBLAS_TRANSPOSE ta = la.transposed ? CblasTrans : CblasNoTrans, tb = lb.transposed ? CblasTrans : CblasNoTrans;
    if (d->dtype == QB_FLOAT64)
        DGEMM(CblasRowMajor, ta, tb, m, n, k, 1.0, a, lda, b, ldb, 0.0, c, ldc);
    else
        SGEMM(CblasRowMajor, ta, tb, m, n, k, 1.0f, a, lda, b, ldb, 0.0f, c, ldc);
}

/* matrix (rows x columns) times vector; the result is contiguous */
static void run_gemv(const qb_product *d, const void *a, const void *b, void *c)
{
    layout l;
    bool left = d->shape.n == 1; /* a is the matrix; otherwise b transposed is */
    int64_t rows = left ? d->shape.m : d->shape.n;
    (void)(left ? find_layout(rows, d->shape.k, d->shape.a_m, d->shape.a_k, &l)
                : find_layout(rows, d->shape.k, d->shape.b_n, d->shape.b_k, &l));
    const void *matrix = left ? a : b, *vector = left ? b : a;
    int step = (int)(left ? d->shape.b_k : d->shape.a_k), leading = (int)l.leading;
    /* BLAS describes the matrix as it is stored. */
    int stored_rows = (int)(l.transposed ? d->shape.k : rows), stored_columns = (int)(l.transposed ? rows : d->shape.k);
    CBLAS_TRANSPOSE t = l.transposed ? CblasTrans : CblasNoTrans;
    if (d->dtype == QB_FLOAT64)
        DGEMV(CblasRowMajor, t, stored_rows, stored_columns, 1.0, matrix, leading, vector, step, 0.0, c, 1);
    else
        SGEMV(CblasRowMajor, t, stored_rows, stored_columns, 1.0f, matrix, leading, vector, step, 0.0f, c, 1);
}

/* ---- Choice and entry */

void qb_blas_use_one_thread(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&done))
        QB_BLAS_SET_THREADS(1);
}

/* Below this number of multiplications the call of BLAS costs more than the loop. */
enum { LOOP_LIMIT = 150 };

static void choose_chunks(qb_product *d);

void qb_product_prepare(qb_product *dot)
{
    layout unused;
    bool fits = qb_dtype_is_floating(dot->dtype) && dot->shape.m <= INT_MAX && dot->shape.n <= INT_MAX &&
                dot->shape.k <= INT_MAX &&
                find_layout(dot->shape.m, dot->shape.k, dot->shape.a_m, dot->shape.a_k, &unused) &&
                find_layout(dot->shape.k, dot->shape.n, dot->shape.b_k, dot->shape.b_n, &unused);
    if (dot->shape.k == 0)
        dot->method = METHOD_ZERO;
    else if (!fits || (double)dot->shape.m * (double)dot->shape.n * (double)dot->shape.k <= LOOP_LIMIT)
        dot->method = METHOD_LOOP;
    else if ((dot->shape.n == 1 && dot->shape.b_k > 0) || (dot->shape.m == 1 && dot->shape.a_k > 0))
        dot->method = METHOD_GEMV;
    else
        dot->method = METHOD_GEMM;
    dot->loop = qb_loops()->product[dot->dtype];
    choose_chunks(dot);
    if (dot->method >= METHOD_GEMV)
        qb_blas_use_one_thread();
}

const char *qb_product_method(const qb_product *dot)
{
    static const char *const names[] = {"zeros", "loop", "gemv", "gemm"};
    return names[dot->method];
}

static void run_one(const qb_product *d, const void *a, const void *b, void *c)
{
    switch (d->method) {
    case METHOD_ZERO: memset(c, 0, (size_t)(d->shape.m * d->shape.n) * qb_dtype_size(d->dtype)); break;
    case METHOD_LOOP: d->loop(&d->shape, a, b, c); break;
    case METHOD_GEMV: run_gemv(d, a, b, c); break;
    default: run_gemm(d, (int)d->shape.m, (int)d->shape.n, a, b, c); break;
    }
}

/* Products first .. limit-1 of the batch. */
static void run_batch(const qb_product *d, char *const *slots, int64_t first, int64_t limit)
{
    int64_t size = (int64_t)qb_dtype_size(d->dtype), index[QB_MAX_RANK] = {0}, rest = first;
    const char *a = slots[d->a] + d->a_offset * size, *b = slots[d->b] + d->b_offset * size;
    char *c = slots[d->c] + first * d->shape.m * d->shape.n * size;
    for (int axis = d->batch_rank - 1; axis >= 0 && rest > 0; axis--) {
        index[axis] = rest % d->batch[axis];
        rest /= d->batch[axis];
        a += d->a_batch[axis] * index[axis] * size;
        b += d->b_batch[axis] * index[axis] * size;
    }
    for (int64_t i = first; i < limit; i++, c += d->shape.m * d->shape.n * size) {
        run_one(d, a, b, c);
        for (int axis = d->batch_rank - 1; axis >= 0; axis--) {
            a += d->a_batch[axis] * size;
            b += d->b_batch[axis] * size;
            if (++index[axis] < d->batch[axis])
                break;
            a -= d->a_batch[axis] * d->batch[axis] * size;
            b -= d->b_batch[axis] * d->batch[axis] * size;
            index[axis] = 0;
        }
    }
}

/* ---- Chunks */

/* A chunk should keep a core busy for some tens of microseconds, and have rows enough for BLAS to reach its rate: it packs the
 * other factor anew for each chunk, which costs as much as some twenty rows. */
enum { CHUNK_MULTIPLICATIONS = 500000, ROWS_MULTIPLE = 32, ROWS_ENOUGH = 256 };

static void choose_chunks(qb_product *d)
{
    double each = (double)d->shape.m * (double)d->shape.n * (double)d->shape.k;
    int64_t longer = d->shape.m >= d->shape.n ? d->shape.m : d->shape.n;
    d->split = QB_SPLIT_BATCH;
    d->chunk_count = 1;
    d->chunk_size = d->batch_count;
    if (each * (double)d->batch_count < 2 * CHUNK_MULTIPLICATIONS)
        return;
    if (d->batch_count > 1) {
        double wanted = CHUNK_MULTIPLICATIONS / each;
        d->chunk_size = wanted < 1 ? 1 : wanted > (double)d->batch_count ? d->batch_count : (int64_t)wanted;
        d->chunk_count = (d->batch_count + d->chunk_size - 1) / d->chunk_size;
    } else if (d->method == METHOD_GEMM) {
        double wanted = CHUNK_MULTIPLICATIONS / (each / (double)longer) / ROWS_MULTIPLE;
        d->split = d->shape.m >= d->shape.n ? QB_SPLIT_ROWS : QB_SPLIT_COLUMNS;
        d->chunk_size = ROWS_MULTIPLE * (wanted < 1 ? 1 : wanted > (double)longer ? longer : (int64_t)wanted);
        int64_t enough = longer / 4 < ROWS_ENOUGH ? longer / 4 / ROWS_MULTIPLE * ROWS_MULTIPLE : ROWS_ENOUGH;
        d->chunk_size = d->chunk_size < enough ? enough : d->chunk_size;
        d->chunk_count = (longer + d->chunk_size - 1) / d->chunk_size;
    }
}

typedef struct job {
    const qb_product *product;
    char *const *slots;
} job;

static void run_chunk(void *data, int64_t chunk, int worker)
{
    (void)worker;
    const job *j = data;
    const qb_product *d = j->product;
    int64_t size = (int64_t)qb_dtype_size(d->dtype), first = chunk * d->chunk_size;
    int64_t whole = d->split == QB_SPLIT_BATCH ? d->batch_count : d->split == QB_SPLIT_ROWS ? d->shape.m : d->shape.n;
    int64_t count = d->chunk_size < whole - first ? d->chunk_size : whole - first;
    const char *a = j->slots[d->a] + d->a_offset * size, *b = j->slots[d->b] + d->b_offset * size;
    char *c = j->slots[d->c];
    if (d->split == QB_SPLIT_BATCH)
        run_batch(d, j->slots, first, first + count);
    else if (d->split == QB_SPLIT_ROWS)
        run_gemm(d, (int)count, (int)d->shape.n, a + first * d->shape.a_m * size, b, c + first * d->shape.n * size);
    else
        run_gemm(d, (int)d->shape.m, (int)count, a, b + first * d->shape.b_n * size, c + first * size);
}

void qb_product_run(const qb_product *d, char *const *slots)
{
    if (d->shape.m == 0 || d->shape.n == 0)
        return;
    job j = {d, slots};
    qb_parallel(d->chunk_count, run_chunk, &j);
}
