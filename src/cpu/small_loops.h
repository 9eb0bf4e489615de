/* The loops of small.h for one dtype: included with REAL, its type, WORD, an integer of its size, and OF(name), a
 * name with its suffix. A `lanes` holds the same element of LANES matrices. */

typedef REAL OF(lanes) __attribute__((vector_size(QB_VECTOR_BYTES)));
typedef WORD OF(truth) __attribute__((vector_size(QB_VECTOR_BYTES)));
enum { OF(LANES) = QB_VECTOR_BYTES / sizeof(REAL) };
#define lanes OF(lanes)
#define truth OF(truth) /* what a comparison gives: all bits set, or none */
#define LANES OF(LANES)
#define ALL   for (int w = 0; w < LANES; w++)

#define CHOOSE(condition, a, b) ((lanes)(((truth)(a) & (condition)) | ((truth)(b) & ~(condition))))
#define EVERY(number)           ((lanes){0} + (REAL)(number))
#define SIZE(a)                 CHOOSE((a) < 0, -(a), a)

/* Which matrix is in lane w: where there are fewer than lanes, the last one is in all others. */
QB_INLINE int64_t OF(lane)(int64_t first, int64_t count, int w)
{
    return first + w < count ? first + w : count - 1;
}

/* ---- Cholesky */

static void OF(take_symmetric)(int64_t n, int64_t first, int64_t count, const REAL *a, lanes *v)
{
    ALL
    {
        const REAL *from = a + OF(lane)(first, count, w) * n * n;
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                REAL x = from[i * n + j], y = from[j * n + i];
                v[i * n + j][w] = x == y ? x : (REAL)0.5 * x + (REAL)0.5 * y;
            }
    }
}

static void OF(cholesky)(int64_t n, int64_t count, const void *a, void *l)
{
    lanes v[QB_SMALL * QB_SMALL];
    for (int64_t first = 0; first < count; first += LANES) {
        truth is_good = ~(truth){0};
        OF(take_symmetric)(n, first, count, a, v);
        for (int64_t j = 0; j < n; j++) {
            lanes diagonal = {0};
            for (int64_t i = j; i < n; i++) {
                lanes s = v[i * n + j];
                for (int64_t k = 0; k < j; k++)
                    s -= v[i * n + k] * v[j * n + k];
                if (i == j) {
                    is_good &= s > 0;
                    ALL diagonal[w] = OF(sqrt)(s[w]);
                    s = diagonal;
                } else {
                    s /= diagonal;
                }
                v[i * n + j] = s;
            }
        }
        for (int w = 0; w < LANES && first + w < count; w++) {
            REAL *to = (REAL *)l + (first + w) * n * n;
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < n; j++)
                    to[i * n + j] = !is_good[w] ? (REAL)NAN : j <= i ? v[i * n + j][w] : 0;
        }
    }
}

/* ---- LU: v[i * n + j] is the element of row i and column j */

/* Exchanges row k with the row below it that has the largest element in column k, whose number it returns in
 * `pivot`. */
static void OF(exchange)(int64_t n, int64_t k, lanes *v, lanes *pivot)
{
    lanes best = SIZE(v[k * n + k]), place = EVERY(k);
    for (int64_t i = k + 1; i < n; i++) {
        lanes size = SIZE(v[i * n + k]);
        truth larger = size > best;
        place = CHOOSE(larger, EVERY(i), place);
        best = CHOOSE(larger, size, best);
    }
    for (int64_t i = k + 1; i < n; i++) {
        truth here = place == EVERY(i);
        for (int64_t j = 0; j < n; j++) {
            lanes x = v[k * n + j], y = v[i * n + j];
            v[k * n + j] = CHOOSE(here, y, x);
            v[i * n + j] = CHOOSE(here, x, y);
        }
    }
    *pivot = place;
}

/* Where a pivot is 0, what is below it is 0 too, and stays. */
static void OF(eliminate)(int64_t n, int64_t k, lanes *v)
{
    lanes pivot = v[k * n + k];
    for (int64_t i = k + 1; i < n; i++) {
        lanes x = v[i * n + k], factor = CHOOSE((pivot == 0) & (x == 0), x, x / pivot);
        v[i * n + k] = factor;
        for (int64_t j = k + 1; j < n; j++)
            v[i * n + j] -= factor * v[k * n + j];
    }
}

static void OF(lu)(int64_t n, int64_t count, const void *a, void *factors, int64_t *pivots, void *parities)
{
    lanes v[QB_SMALL * QB_SMALL], pivot[QB_SMALL], parity;
    for (int64_t first = 0; first < count; first += LANES) {
        ALL
        {
            const REAL *from = (const REAL *)a + OF(lane)(first, count, w) * n * n;
            for (int64_t e = 0; e < n * n; e++)
                v[e][w] = from[e];
        }
        parity = EVERY(1);
        for (int64_t k = 0; k < n; k++) {
            OF(exchange)(n, k, v, &pivot[k]);
            parity = CHOOSE(pivot[k] == EVERY(k), parity, -parity);
            parity = CHOOSE(v[k * n + k] == 0, EVERY(0), parity);
            OF(eliminate)(n, k, v);
        }
        for (int w = 0; w < LANES && first + w < count; w++) {
            REAL *to = (REAL *)factors + (first + w) * n * n;
            for (int64_t j = 0; j < n; j++)
                for (int64_t i = 0; i < n; i++)
                    to[j * n + i] = v[i * n + j][w];
            for (int64_t k = 0; k < n; k++)
                pivots[(first + w) * n + k] = (int64_t)pivot[k][w];
            ((REAL *)parities)[first + w] = parity[w];
        }
    }
}

/* ---- Solutions */

/* Solves for one column, in place. The element of row i and column j is v[i * row + j * column]. */
QB_INLINE void OF(substitute)(int64_t n, bool lower, bool unit, const lanes *v, int64_t row, int64_t column, lanes *x)
{
    for (int64_t at = 0; at < n; at++) {
        int64_t i = lower ? at : n - 1 - at;
        lanes s = x[i];
        for (int64_t k = 0; k < at; k++) {
            int64_t j = lower ? k : n - 1 - k;
            s -= v[i * row + j * column] * x[j];
        }
        x[i] = unit ? s : s / v[i * (row + column)];
    }
}

/* The matrices, and where a diagonal has a zero. */
static void OF(take_matrices)(int64_t n, int64_t first, int64_t count, const REAL *a, lanes *v, truth *is_bad)
{
    ALL
    {
        const REAL *from = a + OF(lane)(first, count, w) * n * n;
        for (int64_t e = 0; e < n * n; e++)
            v[e][w] = from[e];
    }
    *is_bad = (truth){0};
    for (int64_t i = 0; i < n; i++)
        *is_bad |= v[i * (n + 1)] == 0;
}

/* Where entry i of column c of a right-hand side is. */
QB_INLINE int64_t OF(entry)(bool right, int64_t n, int64_t m, int64_t i, int64_t c)
{
    return right ? c * n + i : i * m + c;
}

static void OF(triangular_solve)(unsigned form, int64_t n, int64_t m, int64_t count, const void *a, const void *b,
                                 void *solution)
{
    bool right = form & QB_SOLVE_RIGHT, flipped = right != ((form & QB_SOLVE_TRANSPOSED) != 0);
    bool lower = flipped != ((form & QB_SOLVE_LOWER) != 0), unit = form & QB_SOLVE_UNIT;
    lanes v[QB_SMALL * QB_SMALL], x[QB_SMALL];
    truth is_bad;
    for (int64_t first = 0; first < count; first += LANES) {
        OF(take_matrices)(n, first, count, a, v, &is_bad);
        for (int64_t c = 0; c < m; c++) {
            for (int64_t i = 0; i < n; i++)
                ALL x[i][w] = ((const REAL *)b)[OF(lane)(first, count, w) * n * m + OF(entry)(right, n, m, i, c)];
            OF(substitute)(n, lower, unit, v, flipped ? 1 : n, flipped ? n : 1, x);
            for (int w = 0; w < LANES && first + w < count; w++)
                for (int64_t i = 0; i < n; i++)
                    ((REAL *)solution)[(first + w) * n * m + OF(entry)(right, n, m, i, c)] =
                        !unit && is_bad[w] ? (REAL)NAN : x[i][w];
        }
    }
}

/* Which row of a column is where after the exchanges. */
QB_INLINE void OF(take_orders)(int64_t n, int64_t first, int64_t count, const int64_t *pivots, int32_t order[][LANES])
{
    ALL
    {
        const int64_t *pivot = pivots + OF(lane)(first, count, w) * n;
        for (int64_t i = 0; i < n; i++)
            order[i][w] = (int32_t)i;
        for (int64_t i = 0; i < n; i++) {
            int32_t kept = order[i][w];
            order[i][w] = order[pivot[i]][w];
            order[pivot[i]][w] = kept;
        }
    }
}

/* As solve_with_factors in linalg.c says: exchanges, L, U; or U^T, L^T, exchanges. */
static void OF(lu_solve)(unsigned form, int64_t n, int64_t m, int64_t count, const void *factors, const int64_t *pivots,
                         const void *b, void *solution)
{
    bool right = form & QB_SOLVE_RIGHT, forwards = right == ((form & QB_SOLVE_TRANSPOSED) != 0);
    int32_t order[QB_SMALL][LANES];
    lanes v[QB_SMALL * QB_SMALL], x[QB_SMALL];
    truth is_bad;
    for (int64_t first = 0; first < count; first += LANES) {
        OF(take_matrices)(n, first, count, factors, v, &is_bad);
        OF(take_orders)(n, first, count, pivots, order);
        for (int64_t c = 0; c < m; c++) {
            for (int64_t i = 0; i < n; i++)
                ALL x[i][w] =
                    ((const REAL *)
                         b)[OF(lane)(first, count, w) * n * m + OF(entry)(right, n, m, forwards ? order[i][w] : i, c)];
            if (forwards) {
                OF(substitute)(n, true, true, v, 1, n, x);
                OF(substitute)(n, false, false, v, 1, n, x);
            } else {
                OF(substitute)(n, true, false, v, n, 1, x);
                OF(substitute)(n, false, true, v, n, 1, x);
            }
            for (int w = 0; w < LANES && first + w < count; w++)
                for (int64_t i = 0; i < n; i++)
                    ((REAL *)solution)[(first + w) * n * m + OF(entry)(right, n, m, forwards ? i : order[i][w], c)] =
                        is_bad[w] ? (REAL)NAN : x[i][w];
        }
    }
}

#undef lanes
#undef truth
#undef LANES
#undef ALL
#undef CHOOSE
#undef EVERY
#undef SIZE
#undef REAL
#undef WORD
#undef OF
