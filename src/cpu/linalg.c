/* Linear algebra: loops of our own for small matrices (small.h), LAPACK and BLAS for the others.
 *
 * Batches of small matrices, and right-hand sides, are cut into chunks for our threads; a large matrix is factored by
 * blocks, whose updates are cut likewise. Chunks depend on shapes alone, and BLAS runs single-threaded, so results have
 * the same bits for any number of threads. Nothing here needs memory: results are worked on in place. */
#include "cpu/linalg.h"

#include "base/threads.h"
#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "cpu/matrices.h"
#include "cpu/small.h"
#include "ops/build.h"

#include <math.h>

/* c less the product of a and b */
static void subtract_product(qb_dtype dtype, CBLAS_ORDER order, CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int64_t m,
                             int64_t n, int64_t k, const void *a, int64_t lda, const void *b, int64_t ldb, void *c,
                             int64_t ldc)
{
    QB_BLAS_OF(dtype, gemm, order, ta, tb, (int)m, (int)n, (int)k, -1, a, (int)lda, b, (int)ldb, 1, c, (int)ldc);
}

static void solve_triangular(qb_dtype dtype, CBLAS_ORDER order, CBLAS_SIDE side, CBLAS_UPLO triangle, CBLAS_TRANSPOSE t,
                             CBLAS_DIAG diagonal, int64_t m, int64_t n, const void *a, int64_t lda, void *b,
                             int64_t ldb)
{
    QB_BLAS_OF(dtype, trsm, order, side, triangle, t, diagonal, (int)m, (int)n, 1, a, (int)lda, b, (int)ldb);
}

static bool has_zero_on_diagonal(qb_dtype dtype, const void *a, int64_t n)
{
    bool found = false;
    for (int64_t i = 0; i < n && !found; i++)
        found = qb_dtype_load(dtype, qb_element(a, dtype, i * (n + 1))) == 0;
    return found;
}

/* ---- Cholesky */

/* Rows of a block: a diagonal block is factored by one core, so it has to be small beside the rest, and large enough
 * for BLAS. Matrices of up to two blocks are left to LAPACK. */
enum { BLOCK = 64, LANES = 16, MANY_COLUMNS = 16 };

typedef struct cholesky {
    qb_dtype dtype;
    int64_t n;
    const char *a;
    char *l;
    int64_t first, width; /* the block of columns at hand */
} cholesky;

static void take_symmetric(const void *data, int64_t first, int64_t limit)
{
    const cholesky *c = data;
    qb_take_symmetric(c->dtype, c->n, first, limit, c->a, c->l);
}

/* Our rows are LAPACK's columns, our lower triangle its upper one. */
static bool factor_diagonal_block(const cholesky *c)
{
    int width = (int)c->width, leading = (int)c->n, info = 0;
    void *block = qb_element(c->l, c->dtype, c->first * (c->n + 1));
    QB_LAPACK_OF(c->dtype, potrf, "U", &width, block, &leading, &info);
    bool positive = info == 0; /* of a NaN some libraries do not say that it is not */
    for (int64_t i = 0; i < c->width && positive; i++)
        positive = qb_dtype_load(c->dtype, qb_element(block, c->dtype, i * (c->n + 1))) > 0;
    return positive;
}

/* Rows below the diagonal block, counted from its end. */
static void solve_below(const void *data, int64_t first, int64_t limit)
{
    const cholesky *c = data;
    int64_t row = c->first + c->width + first;
    solve_triangular(c->dtype, CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, limit - first, c->width,
                     qb_element(c->l, c->dtype, c->first * (c->n + 1)), c->n,
                     qb_element(c->l, c->dtype, row * c->n + c->first), c->n);
}

/* Rows of what remains, less the products of the columns at hand: left of the diagonal, and around it. The longest rows
 * come first, for the threads to end together. */
static void update_below(const void *data, int64_t first, int64_t limit)
{
    const cholesky *c = data;
    int64_t n = c->n, start = c->first + c->width, rows = limit - first, row = n - limit;
    void *left = qb_element(c->l, c->dtype, row * n + c->first);
    subtract_product(c->dtype, CblasRowMajor, CblasNoTrans, CblasTrans, rows, row - start, c->width, left, n,
                     qb_element(c->l, c->dtype, start * n + c->first), n, qb_element(c->l, c->dtype, row * n + start),
                     n);
    void *diagonal = qb_element(c->l, c->dtype, row * (n + 1));
    QB_BLAS_OF(c->dtype, syrk, CblasRowMajor, CblasLower, CblasNoTrans, (int)rows, (int)c->width, -1, left, (int)n, 1,
               diagonal, (int)n);
}

/* Right-looking by blocks of columns (Golub and Van Loan, "Matrix Computations", 4.2.9). */
static void factor_symmetric(cholesky c)
{
    int64_t block = c.n <= 2 * BLOCK ? c.n : BLOCK;
    qb_in_chunks(c.n, (double)c.n, BLOCK, take_symmetric, &c);
    for (c.first = 0; c.first < c.n; c.first += block) {
        c.width = c.n - c.first < block ? c.n - c.first : block;
        if (!factor_diagonal_block(&c)) {
            qb_fill_with_nan(c.dtype, c.l, c.n * c.n);
            return;
        }
        int64_t rest = c.n - c.first - c.width;
        if (rest == 0)
            return;
        qb_in_chunks(rest, (double)(c.width * c.width), BLOCK, solve_below, &c);
        qb_in_chunks(rest, (double)(c.width * rest), BLOCK, update_below, &c);
    }
}

static void run_small_cholesky(const void *data, int64_t first, int64_t limit)
{
    const cholesky *all = data;
    int64_t place = first * all->n * all->n;
    qb_small_loops_of(all->dtype)
        ->cholesky(all->n, limit - first, qb_element(all->a, all->dtype, place), qb_element(all->l, all->dtype, place));
}

static void run_cholesky(const void *data, int64_t first, int64_t limit)
{
    const cholesky *all = data;
    for (int64_t i = first; i < limit; i++) {
        cholesky one = *all;
        one.a = qb_element(all->a, all->dtype, i * all->n * all->n);
        one.l = qb_element(all->l, all->dtype, i * all->n * all->n);
        factor_symmetric(one);
    }
}

QB_LINALG_KERNEL(qb_cholesky_run)
{
    (void)attribute, (void)operand_count, (void)operand_type;
    int64_t n = result_type->shape[result_type->rank - 1], count = qb_batch_of(result_type);
    cholesky c = {.dtype = result_type->dtype, .n = n, .a = operand[0], .l = result[0]};
    if (n == 0 || count == 0)
        return;
    if (n <= QB_SMALL) {
        qb_in_chunks(count, (double)(n * n * n), LANES, run_small_cholesky, &c);
        return;
    }
    qb_blas_use_one_thread();
    qb_in_chunks(count, (double)n * (double)n * (double)n / 3, 1, run_cholesky, &c);
}

/* ---- Triangular equations */

typedef struct equation {
    qb_dtype dtype;
    unsigned form;
    int64_t n, m; /* the extents of the matrix, and the other one of the right-hand side */
    const char *a;
    const int64_t *pivots;
    char *x;
} equation;

/* Unknowns start .. start+width-1 of columns (rows, on the right) first .. limit-1, by themselves. */
static void solve_block(const equation *e, unsigned form, int64_t start, int64_t width, int64_t first, int64_t limit)
{
    CBLAS_UPLO triangle = form & QB_SOLVE_LOWER ? CblasLower : CblasUpper;
    CBLAS_DIAG diagonal = form & QB_SOLVE_UNIT ? CblasUnit : CblasNonUnit;
    CBLAS_TRANSPOSE t = form & QB_SOLVE_TRANSPOSED ? CblasTrans : CblasNoTrans;
    const void *a = qb_element(e->a, e->dtype, start * (e->n + 1));
    if (form & QB_SOLVE_RIGHT)
        solve_triangular(e->dtype, CblasRowMajor, CblasRight, triangle, t, diagonal, limit - first, width, a, e->n,
                         qb_element(e->x, e->dtype, first * e->n + start), e->n);
    else
        solve_triangular(e->dtype, CblasRowMajor, CblasLeft, triangle, t, diagonal, width, limit - first, a, e->n,
                         qb_element(e->x, e->dtype, start * e->m + first), e->m);
}

/* Takes what these unknowns are out of the equations rest .. rest+count-1. */
static void put_in(const equation *e, unsigned form, int64_t start, int64_t width, int64_t rest, int64_t count,
                   int64_t first, int64_t limit)
{
    bool right = form & QB_SOLVE_RIGHT, is_transposed = form & QB_SOLVE_TRANSPOSED;
    int64_t n = e->n, m = e->m, row = is_transposed == right ? rest : start, column = row == rest ? start : rest;
    const void *a = qb_element(e->a, e->dtype, row * n + column);
    CBLAS_TRANSPOSE t = is_transposed ? CblasTrans : CblasNoTrans;
    if (right)
        subtract_product(e->dtype, CblasRowMajor, CblasNoTrans, t, limit - first, count, width,
                         qb_element(e->x, e->dtype, first * n + start), n, a, n,
                         qb_element(e->x, e->dtype, first * n + rest), n);
    else
        subtract_product(e->dtype, CblasRowMajor, t, CblasNoTrans, count, limit - first, width, a, n,
                         qb_element(e->x, e->dtype, start * m + first), m, qb_element(e->x, e->dtype, rest * m + first),
                         m);
}

/* One vector, which is as well a row as a column. */
static void solve_for_vector(const equation *e, unsigned form)
{
    bool is_transposed = ((form & QB_SOLVE_TRANSPOSED) != 0) != ((form & QB_SOLVE_RIGHT) != 0);
    CBLAS_UPLO triangle = form & QB_SOLVE_LOWER ? CblasLower : CblasUpper;
    CBLAS_DIAG diagonal = form & QB_SOLVE_UNIT ? CblasUnit : CblasNonUnit;
    CBLAS_TRANSPOSE t = is_transposed ? CblasTrans : CblasNoTrans;
    QB_BLAS_OF(e->dtype, trsv, CblasRowMajor, triangle, t, diagonal, (int)e->n, (const void *)e->a, (int)e->n,
               (void *)e->x, 1);
}

/* Columns (rows, on the right) first .. limit-1 of the right-hand side, in place: by blocks of unknowns, since products
 * are faster than solutions. */
static void solve_triangle(const equation *e, unsigned form, int64_t first, int64_t limit)
{
    bool right = form & QB_SOLVE_RIGHT;
    bool is_lower = ((form & QB_SOLVE_LOWER) != 0) != ((form & QB_SOLVE_TRANSPOSED) != 0),
         ascending = is_lower != right;
    int64_t n = e->n, block = n <= 2 * BLOCK ? n : BLOCK, blocks = (n + block - 1) / block;
    if (e->m == 1) {
        solve_for_vector(e, form);
        return;
    }
    for (int64_t step = 0; step < blocks; step++) {
        int64_t start = (ascending ? step : blocks - 1 - step) * block, width = n - start < block ? n - start : block;
        int64_t rest = ascending ? start + width : 0, count = ascending ? n - rest : start;
        solve_block(e, form, start, width, first, limit);
        if (count > 0)
            put_in(e, form, start, width, rest, count, first, limit);
    }
}

static void solve_triangle_range(const void *data, int64_t first, int64_t limit)
{
    const equation *e = data;
    solve_triangle(e, e->form, first, limit);
}

/* The equations of a batch, one after the other; each in chunks of its right-hand side. */
typedef struct equations {
    equation first;
    qb_range_work work;
    const char *b;
    int64_t pivot_count;
    double flops; /* for each column */
    bool may_be_singular;
} equations;

static void run_equations(const void *data, int64_t first, int64_t limit)
{
    const equations *all = data;
    int64_t n = all->first.n, m = all->first.m;
    qb_dtype dtype = all->first.dtype;
    for (int64_t i = first; i < limit; i++) {
        equation e = all->first;
        e.a = qb_element(e.a, dtype, i * n * n);
        e.x = qb_element(e.x, dtype, i * n * m);
        e.pivots = e.pivots ? e.pivots + i * n : NULL;
        if (all->may_be_singular && has_zero_on_diagonal(dtype, e.a, n)) {
            qb_fill_with_nan(dtype, e.x, n * m);
            continue;
        }
        memcpy(e.x, qb_element(all->b, dtype, i * n * m), (size_t)(n * m) * qb_dtype_size(dtype));
        qb_in_chunks(m, all->flops, BLOCK, all->work, &e);
    }
}

static void run_small_triangular(const void *data, int64_t first, int64_t limit)
{
    const equations *all = data;
    const equation *e = &all->first;
    int64_t matrix = first * e->n * e->n, side = first * e->n * e->m;
    qb_small_loops_of(e->dtype)->triangular_solve(e->form, e->n, e->m, limit - first,
                                                  qb_element(e->a, e->dtype, matrix),
                                                  qb_element(all->b, e->dtype, side), qb_element(e->x, e->dtype, side));
}

static void run_small_lu_solve(const void *data, int64_t first, int64_t limit)
{
    const equations *all = data;
    const equation *e = &all->first;
    int64_t matrix = first * e->n * e->n, side = first * e->n * e->m;
    qb_small_loops_of(e->dtype)->lu_solve(e->form, e->n, e->m, limit - first, qb_element(e->a, e->dtype, matrix),
                                          e->pivots + first * e->n, qb_element(all->b, e->dtype, side),
                                          qb_element(e->x, e->dtype, side));
}

/* Small matrices by loops of our own, but for many right-hand sides of few matrices, which BLAS does better. */
static void solve_equations(const equations *all, int64_t count, qb_range_work small)
{
    const equation *e = &all->first;
    if (e->n <= QB_SMALL && (e->m <= MANY_COLUMNS || count >= LANES))
        qb_in_chunks(count, (all->flops + 4 * (double)e->n) * (double)e->m, LANES, small, all);
    else
        qb_in_chunks(count, all->flops * (double)e->m, 1, run_equations, all);
}

static bool begin_equations(equations *all, const qb_type *result_type, bool right)
{
    int rank = result_type->rank;
    all->first.dtype = result_type->dtype;
    all->first.n = result_type->shape[right ? rank - 1 : rank - 2];
    all->first.m = result_type->shape[right ? rank - 2 : rank - 1];
    qb_blas_use_one_thread();
    return all->first.n > 0 && all->first.m > 0 && qb_batch_of(result_type) > 0;
}

QB_LINALG_KERNEL(qb_triangular_solve_run)
{
    (void)operand_count, (void)operand_type;
    unsigned form = (attribute[0].integer ? QB_SOLVE_LOWER : 0) | (attribute[1].integer ? QB_SOLVE_UNIT : 0) |
                    (attribute[2].integer ? QB_SOLVE_TRANSPOSED : 0) | (attribute[3].integer ? QB_SOLVE_RIGHT : 0);
    equations all = {.first = {.form = form, .a = operand[0], .x = result[0]},
                     .work = solve_triangle_range,
                     .b = operand[1],
                     .may_be_singular = !(form & QB_SOLVE_UNIT)};
    if (!begin_equations(&all, result_type, form & QB_SOLVE_RIGHT))
        return;
    all.flops = (double)all.first.n * (double)all.first.n;
    solve_equations(&all, qb_batch_of(result_type), run_small_triangular);
}

/* ---- LU */

typedef struct lu {
    qb_dtype dtype;
    int64_t m, n, k;
    const char *a;
    char *factors; /* by columns: m apart */
    int64_t *pivots;
    char *parity;
    int64_t first, width; /* the block of columns at hand */
} lu;

static void exchange_rows(const lu *f, int64_t column)
{
    void *c = qb_element(f->factors, f->dtype, column * f->m);
    for (int64_t i = f->first; i < f->first + f->width; i++) {
        int64_t other = f->pivots[i];
        if (f->dtype == QB_FLOAT64) {
            double *x = c, kept = x[i];
            x[i] = x[other];
            x[other] = kept;
        } else {
            float *x = c, kept = x[i];
            x[i] = x[other];
            x[other] = kept;
        }
    }
}

/* The columns of a panel, by LAPACK. Its pivots, counted from 1 in the panel, come in 32 bits, where they are spread
 * from the last one on. */
static void factor_panel(const lu *f)
{
    int rows = (int)(f->m - f->first), columns = (int)f->width, leading = (int)f->m, info = 0;
    int64_t count = rows < columns ? rows : columns;
    void *panel = qb_element(f->factors, f->dtype, f->first * (f->m + 1));
    int *narrow = (int *)(void *)(f->pivots + f->first);
    QB_LAPACK_OF(f->dtype, getrf, &rows, &columns, panel, &leading, narrow, &info);
    for (int64_t i = count - 1; i >= 0; i--) {
        int pivot;
        memcpy(&pivot, (const char *)narrow + i * (int64_t)sizeof pivot, sizeof pivot);
        if (pivot <= i || pivot > rows) /* none could be chosen among what is not finite */
            pivot = (int)i + 1;
        int64_t wide = f->first + pivot - 1;
        memcpy(f->pivots + f->first + i, &wide, sizeof wide);
    }
}

/* Columns before the panel have their rows exchanged. */
static void exchange_before(const void *data, int64_t first, int64_t limit)
{
    for (int64_t column = first; column < limit; column++)
        exchange_rows(data, column);
}

/* Columns behind it, counted from its end: exchanged, made a part of U, and the rest of them less the products. */
static void update_behind(const void *data, int64_t first, int64_t limit)
{
    const lu *f = data;
    int64_t start = f->first + f->width, column = start + first;
    for (int64_t j = column; j < start + limit; j++)
        exchange_rows(f, j);
    void *panel = qb_element(f->factors, f->dtype, f->first * (f->m + 1));
    void *upper = qb_element(f->factors, f->dtype, column * f->m + f->first);
    solve_triangular(f->dtype, CblasColMajor, CblasLeft, CblasLower, CblasNoTrans, CblasUnit, f->width, limit - first,
                     panel, f->m, upper, f->m);
    if (f->m > start)
        subtract_product(f->dtype, CblasColMajor, CblasNoTrans, CblasNoTrans, f->m - start, limit - first, f->width,
                         qb_element(panel, f->dtype, f->width), f->m, upper, f->m,
                         qb_element(upper, f->dtype, f->width), f->m);
}

static void set_parity(const lu *f)
{
    double parity = 1;
    for (int64_t i = 0; i < f->k; i++)
        parity = f->pivots[i] != i ? -parity : parity;
    if (f->m == f->n && has_zero_on_diagonal(f->dtype, f->factors, f->n))
        parity = 0;
    qb_dtype_store(f->dtype, parity, f->parity);
}

/* Right-looking by panels of columns (Golub and Van Loan, "Matrix Computations", 3.4). */
static void factor_general(lu f)
{
    int64_t block = f.k <= 2 * BLOCK ? f.k : BLOCK;
    qb_copy_loop_of(qb_dtype_size(f.dtype))(f.n, f.m, 1, f.n, f.a, f.factors, false);
    for (f.first = 0; f.first < f.k; f.first += block) {
        f.width = f.k - f.first < block ? f.k - f.first : block;
        factor_panel(&f);
        int64_t behind = f.n - f.first - f.width, rows = f.m - f.first;
        if (f.first > 0)
            qb_in_chunks(f.first, (double)f.width, BLOCK, exchange_before, &f);
        if (behind > 0)
            qb_in_chunks(behind, 2 * (double)f.width * (double)rows, 16, update_behind, &f);
    }
    set_parity(&f);
}

static void run_lu(const void *data, int64_t first, int64_t limit)
{
    const lu *all = data;
    for (int64_t i = first; i < limit; i++) {
        lu one = *all;
        one.a = qb_element(all->a, all->dtype, i * all->m * all->n);
        one.factors = qb_element(all->factors, all->dtype, i * all->m * all->n);
        one.pivots = all->pivots + i * all->k;
        one.parity = qb_element(all->parity, all->dtype, i);
        factor_general(one);
    }
}

static void run_small_lu(const void *data, int64_t first, int64_t limit)
{
    const lu *f = data;
    int64_t place = first * f->n * f->n;
    qb_small_loops_of(f->dtype)->lu(f->n, limit - first, qb_element(f->a, f->dtype, place),
                                    qb_element(f->factors, f->dtype, place), f->pivots + first * f->n,
                                    qb_element(f->parity, f->dtype, first));
}

QB_LINALG_KERNEL(qb_lu_run)
{
    (void)attribute, (void)operand_count, (void)result_type;
    const qb_type *type = operand_type;
    int64_t m = type->shape[type->rank - 2], n = type->shape[type->rank - 1];
    lu f = {.dtype = type->dtype,
            .m = m,
            .n = n,
            .k = m < n ? m : n,
            .a = operand[0],
            .factors = result[0],
            .pivots = result[1],
            .parity = result[2]};
    if (m == n && n <= QB_SMALL) {
        qb_in_chunks(qb_batch_of(type), (double)(n * n * n), LANES, run_small_lu, &f);
        return;
    }
    qb_blas_use_one_thread();
    qb_in_chunks(qb_batch_of(type), 2 * (double)m * (double)n * (double)f.k / 3, 1, run_lu, &f);
}

QB_LINALG_KERNEL(qb_permutation_run)
{
    (void)attribute, (void)operand_count;
    int64_t rows = result_type->shape[result_type->rank - 1], count = 1;
    int64_t steps = operand_type->shape[operand_type->rank - 1];
    for (int i = 0; i < result_type->rank - 1; i++)
        count *= result_type->shape[i];
    const int64_t *pivots = operand[0];
    int64_t *order = result[0];
    for (int64_t c = 0; c < count; c++, pivots += steps, order += rows) {
        for (int64_t i = 0; i < rows; i++)
            order[i] = i;
        for (int64_t i = 0; i < steps; i++) {
            int64_t other = pivots[i], kept = order[i];
            order[i] = order[other];
            order[other] = kept;
        }
    }
}

/* ---- Equations with factors */

/* Exchanges the entries of the solution, in the order of the pivots or backwards. */
#define EXCHANGE(T)                                                                                                    \
    static void exchange_##T(const equation *e, T *x, bool backwards, bool right, int64_t first, int64_t limit)        \
    {                                                                                                                  \
        int64_t step = right ? 1 : e->m, other = right ? e->n : 1;                                                     \
        for (int64_t i = 0; i < e->n; i++) {                                                                           \
            int64_t place = backwards ? e->n - 1 - i : i, pivot = e->pivots[place];                                    \
            T *a = x + place * step, *b = x + pivot * step;                                                            \
            for (int64_t j = first; pivot != place && j < limit; j++) {                                                \
                T kept = a[j * other];                                                                                 \
                a[j * other] = b[j * other];                                                                           \
                b[j * other] = kept;                                                                                   \
            }                                                                                                          \
        }                                                                                                              \
    }
EXCHANGE(double)
EXCHANGE(float)

static void exchange(const equation *e, bool backwards, int64_t first, int64_t limit)
{
    bool right = e->form & QB_SOLVE_RIGHT;
    if (e->dtype == QB_FLOAT64)
        exchange_double(e, (double *)(void *)e->x, backwards, right, first, limit);
    else
        exchange_float(e, (float *)(void *)e->x, backwards, right, first, limit);
}

/* P A = L U, and the factors are those of the transposes: the upper triangle holds L^T, the lower one U^T. On
 * vectors, A is undone by exchanges, L, U; its transpose by U^T, L^T, and the exchanges backwards. */
static void solve_with_factors(const void *data, int64_t first, int64_t limit)
{
    const equation *e = data;
    bool right = e->form & QB_SOLVE_RIGHT, forwards = right == ((e->form & QB_SOLVE_TRANSPOSED) != 0);
    unsigned form = (right ? QB_SOLVE_RIGHT : 0) | (forwards != right ? QB_SOLVE_TRANSPOSED : 0);
    if (forwards) {
        exchange(e, false, first, limit);
        solve_triangle(e, form | QB_SOLVE_UNIT, first, limit);
        solve_triangle(e, form | QB_SOLVE_LOWER, first, limit);
    } else {
        solve_triangle(e, form | QB_SOLVE_LOWER, first, limit);
        solve_triangle(e, form | QB_SOLVE_UNIT, first, limit);
        exchange(e, true, first, limit);
    }
}

QB_LINALG_KERNEL(qb_lu_solve_run)
{
    (void)operand_count, (void)operand_type;
    unsigned form = (attribute[0].integer ? QB_SOLVE_TRANSPOSED : 0) | (attribute[1].integer ? QB_SOLVE_RIGHT : 0);
    equations all = {.first = {.form = form, .a = operand[1], .pivots = operand[2], .x = result[0]},
                     .work = solve_with_factors,
                     .b = operand[3],
                     .may_be_singular = true};
    if (!begin_equations(&all, result_type, form & QB_SOLVE_RIGHT))
        return;
    all.flops = 2 * (double)all.first.n * (double)all.first.n;
    solve_equations(&all, qb_batch_of(result_type), run_small_lu_solve);
}

/* ---- Determinants */

/* Sign, logarithm and value of parity times the diagonal, whose mantissas and exponents are multiplied up apart, so
 * that nothing overflows on the way. */
static void multiply_diagonal(qb_dtype dtype, const void *factors, int64_t n, double parity, double out[3])
{
    double mantissa = parity;
    int64_t exponent = 0;
    for (int64_t i = 0; i < n; i++) {
        int part = 0; /* which frexp leaves alone for what is not finite */
        mantissa = frexp(mantissa * qb_dtype_load(dtype, qb_element(factors, dtype, i * (n + 1))), &part);
        exponent += part;
    }
    int clamped = exponent > 100000 ? 100000 : exponent < -100000 ? -100000 : (int)exponent;
    out[0] = mantissa > 0 ? 1 : mantissa < 0 ? -1 : mantissa;
    out[1] = log(fabs(mantissa)) + (double)exponent * M_LN2;
    out[2] = ldexp(mantissa, clamped);
}

typedef struct determinants {
    qb_dtype dtype;
    int64_t n;
    const void *a, *factors, *parity;
    void *const *result;
} determinants;

static void run_determinants(const void *data, int64_t first, int64_t limit)
{
    const determinants *d = data;
    int64_t size = d->n * d->n;
    for (int64_t i = first; i < limit; i++) {
        double values[3] = {NAN, NAN, NAN}, parity = qb_dtype_load(d->dtype, qb_element(d->parity, d->dtype, i));
        if (qb_all_finite(d->dtype, qb_element(d->a, d->dtype, i * size), size))
            multiply_diagonal(d->dtype, qb_element(d->factors, d->dtype, i * size), d->n, parity, values);
        for (int k = 0; k < 3; k++)
            qb_dtype_store(d->dtype, values[k], qb_element(d->result[k], d->dtype, i));
    }
}

QB_LINALG_KERNEL(qb_determinant_run)
{
    (void)attribute, (void)operand_count, (void)result_type;
    const qb_type *type = operand_type;
    determinants d = {.dtype = type->dtype,
                      .n = type->shape[type->rank - 1],
                      .a = operand[0],
                      .factors = operand[1],
                      .parity = operand[3],
                      .result = result};
    qb_in_chunks(qb_batch_of(type), (double)d.n * (double)(d.n + 20), 1, run_determinants, &d);
}
