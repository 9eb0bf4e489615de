/* Products: gemm.h's where there is enough to do, plain loops for tiny ones and integers, BLAS for vectors and narrow
 * shapes.
 *
 * Factors are read by strides, so that transposed and batched operands cost no copy. BLAS runs single-threaded: its
 * threads spin, and the order of its sums would depend on their number. Large products are cut into chunks for our own
 * threads, never along a sum: by the batch, by rows and columns of the result. What gemm.h computes has the same bits
 * however it is cut, so its chunks suit the number of threads; a product by BLAS is cut where its shape alone says. */
#include "cpu/cpu.h"

#include "base/threads.h"
#include "cpu/blas.h"
#include "cpu/gemm.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>

enum method { METHOD_ZERO, METHOD_LOOP, METHOD_GEMV, METHOD_NARROW, METHOD_TILES };

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
    QB_BLAS_OF(d->dtype, gemm, CblasRowMajor, ta, tb, m, n, k, 1, a, lda, b, ldb, 0, c, ldc);
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
    QB_BLAS_OF(d->dtype, gemv, CblasRowMajor, t, stored_rows, stored_columns, 1, matrix, leading, vector, step, 0, c,
               1);
}

/* ---- Choice */

void qb_blas_use_one_thread(void)
{
    static atomic_flag done = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&done))
        QB_BLAS_SET_THREADS(1);
}

enum {
    LOOP_LIMIT = 150,                 /* multiplications; below, the call of anything else costs more than the loop */
    FEWEST_ROWS = 4,                  /* of a, for tiles, */
    FEWEST_TO_PACK = 12,              /* or so many where b must be packed */
    CHUNK_MULTIPLICATIONS = 500000,   /* keep a core busy for some tens of microseconds */
    CHUNKS_PER_THREAD = 4,            /* so that one that is held up costs the others little */
    COLUMNS_MULTIPLE = 64,            /* of a chunk: whole panels, */
    ROWS_MULTIPLE = 4 * QB_GEMM_ROWS, /* and tiles */
    NARROW_MULTIPLE = 256             /* rows or columns of a chunk of a narrow product */
};

static enum method choose_method(const qb_product *d)
{
    const qb_product_shape *s = &d->shape;
    layout unused;
    if (s->k == 0)
        return METHOD_ZERO;
    if (!qb_dtype_is_floating(d->dtype) || (double)s->m * (double)s->n * (double)s->k <= LOOP_LIMIT)
        return METHOD_LOOP;
    bool fits = s->m <= INT_MAX && s->n <= INT_MAX && s->k <= INT_MAX &&
                find_layout(s->m, s->k, s->a_m, s->a_k, &unused) && find_layout(s->k, s->n, s->b_k, s->b_n, &unused);
    if (fits && ((s->n == 1 && s->b_k > 0) || (s->m == 1 && s->a_k > 0)))
        return METHOD_GEMV;
    bool narrow = s->n * (int64_t)qb_dtype_size(d->dtype) < qb_loops()->vector_bytes ||
                  s->m < (s->b_n == 1 ? FEWEST_ROWS : FEWEST_TO_PACK);
    return fits && narrow ? METHOD_NARROW : METHOD_TILES;
}

bool qb_product_adds(const qb_product *d)
{
    return choose_method(d) == METHOD_TILES;
}

static int64_t quotient_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Pieces of one product as near to squares as halving makes them: those pack least. */
static void cut_product(qb_product *d, int64_t pieces)
{
    int64_t rows = pieces, columns = 1, m = d->shape.m, n = d->shape.n;
    while (rows % 2 == 0 && m * columns * 2 < n * rows) {
        rows /= 2;
        columns *= 2;
    }
    d->chunk_m = quotient_up(quotient_up(m, rows), ROWS_MULTIPLE) * ROWS_MULTIPLE;
    d->chunk_n = quotient_up(quotient_up(n, columns), COLUMNS_MULTIPLE) * COLUMNS_MULTIPLE;
}

static void choose_chunks(qb_product *d)
{
    const qb_product_shape *s = &d->shape;
    double each = (double)s->m * (double)s->n * (double)s->k, total = each * (double)d->batch_count;
    int64_t most = (int64_t)CHUNKS_PER_THREAD * qb_thread_count();
    d->chunk_batch = d->batch_count;
    d->chunk_m = s->m;
    d->chunk_n = s->n;
    if (total >= 2 * CHUNK_MULTIPLICATIONS) {
        bool many = total / CHUNK_MULTIPLICATIONS > (double)most;
        int64_t pieces = many ? most : (int64_t)(total / CHUNK_MULTIPLICATIONS);
        d->chunk_batch = quotient_up(d->batch_count, smaller(pieces, d->batch_count));
        pieces /= d->batch_count > 0 ? d->batch_count : 1;
        if (d->method == METHOD_TILES && pieces > 1)
            cut_product(d, pieces);
        else if (d->method == METHOD_NARROW && d->batch_count == 1)
            *(s->m >= s->n ? &d->chunk_m : &d->chunk_n) = NARROW_MULTIPLE;
    }
    d->chunk_count = quotient_up(d->batch_count, d->chunk_batch > 0 ? d->chunk_batch : 1) *
                     quotient_up(s->m, d->chunk_m > 0 ? d->chunk_m : 1) *
                     quotient_up(s->n, d->chunk_n > 0 ? d->chunk_n : 1);
}

void qb_product_prepare(qb_product *d)
{
    d->method = choose_method(d);
    d->loop = qb_loops()->product[d->dtype];
    d->gemm = qb_loops()->gemm[d->dtype];
    int64_t size = (int64_t)qb_dtype_size(d->dtype);
    d->scratch_size = d->method == METHOD_TILES ? qb_gemm_scratch(&d->shape, size, qb_loops()->panel_bytes) : 0;
    choose_chunks(d);
    if (d->method == METHOD_GEMV || d->method == METHOD_NARROW)
        qb_blas_use_one_thread();
}

const char *qb_product_method(const qb_product *d)
{
    static const char *const names[] = {"zeros", "loop", "gemv", "narrow gemm", "gemm"};
    return names[d->method];
}

/* ---- Running */

/* Rows and columns of one product, or all of it where the method knows no part. */
typedef struct part {
    int64_t row, rows, column, columns;
} part;

static void run_part(const qb_product *d, const part *p, const char *a, const char *b, const char *addend, char *c,
                     char *scratch)
{
    int64_t size = (int64_t)qb_dtype_size(d->dtype);
    qb_product_shape shape = d->shape;
    shape.m = p->rows;
    shape.n = p->columns;
    a += p->row * shape.a_m * size;
    b += p->column * shape.b_n * size;
    c += (p->row * d->shape.n + p->column) * size;
    addend += addend ? (p->row * d->shape.n + p->column) * size : 0;
    switch (d->method) {
    case METHOD_ZERO: memset(c, 0, (size_t)(shape.m * shape.n * size)); break;
    case METHOD_LOOP: d->loop(&shape, a, b, c); break;
    case METHOD_GEMV: run_gemv(d, a, b, c); break;
    case METHOD_NARROW: run_gemm(d, (int)shape.m, (int)shape.n, a, b, c); break;
    default: d->gemm(&shape, a, b, addend, c, d->shape.n, scratch); break;
    }
}

/* A part of each of the products first .. limit-1 of the batch. */
static void run_batch(const qb_product *d, char *const *slots, int64_t first, int64_t limit, const part *p,
                      char *scratch)
{
    int64_t size = (int64_t)qb_dtype_size(d->dtype), index[QB_MAX_RANK] = {0}, rest = first;
    const char *a = slots[d->a] + d->a_offset * size, *b = slots[d->b] + d->b_offset * size;
    int64_t step = d->shape.m * d->shape.n * size;
    char *c = slots[d->c] + first * step;
    const char *addend = d->addend >= 0 ? slots[d->addend] + first * step : NULL;
    for (int axis = d->batch_rank - 1; axis >= 0 && rest > 0; axis--) {
        index[axis] = rest % d->batch[axis];
        rest /= d->batch[axis];
        a += d->a_batch[axis] * index[axis] * size;
        b += d->b_batch[axis] * index[axis] * size;
    }
    for (int64_t i = first; i < limit; i++, c += step) {
        run_part(d, p, a, b, addend, c, scratch);
        addend += addend ? step : 0;
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

typedef struct job {
    const qb_product *product;
    char *const *slots;
    char *scratch;
    int64_t scratch_stride;
} job;

static void run_chunk(void *data, int64_t chunk, int worker)
{
    const job *j = data;
    const qb_product *d = j->product;
    int64_t columns = quotient_up(d->shape.n, d->chunk_n), rows = quotient_up(d->shape.m, d->chunk_m);
    part p = {.row = chunk / columns % rows * d->chunk_m, .column = chunk % columns * d->chunk_n};
    p.rows = smaller(d->chunk_m, d->shape.m - p.row);
    p.columns = smaller(d->chunk_n, d->shape.n - p.column);
    int64_t first = chunk / columns / rows * d->chunk_batch, limit = smaller(first + d->chunk_batch, d->batch_count);
    run_batch(d, j->slots, first, limit, &p, j->scratch + worker * j->scratch_stride);
}

void qb_product_run(const qb_product *d, char *const *slots, char *scratch, int64_t scratch_stride)
{
    if (d->shape.m == 0 || d->shape.n == 0)
        return;
    job j = {d, slots, scratch, scratch_stride};
    bool whole = d->chunk_count == 1 || (d->method == METHOD_TILES && !qb_parallel_is_free());
    if (whole)
        run_batch(d, slots, 0, d->batch_count, &(part){.rows = d->shape.m, .columns = d->shape.n}, scratch);
    else
        qb_parallel(d->chunk_count, run_chunk, &j);
}
