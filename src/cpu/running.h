/* Loops of running sums and linear recurrences (ops/recurrence.c says what they are): a part of loops.c.
 *
 * Running sums of float64 are kept in twice the precision, those of float32 in float64, so that their error does not
 * grow with the number of terms. Columns are contiguous; rows are `step` elements apart (negative: from the end). */
#ifndef QB_CPU_RUNNING_H
#define QB_CPU_RUNNING_H

#include "cpu/loops.h"
#include "cpu/transpose.h"

#include <stdbool.h>
#include <string.h>

enum { RENORMALIZED_EVERY = 128, TOTAL_LANES = 16 };

/* What adding x to `sum` gives, s, and what its rounding added, e (Knuth's two-sum; Ogita, Rump and Oishi, "Accurate
 * Sum and Dot Product", 2005). The running sum is sum - cost; from time to time they are added anew, so that the
 * cost stays below a unit in the last place of the sum and its own rounding does not matter. An infinite or NaN sum
 * has no cost. Starting from -0 and subtracting the cost keeps the sign of sums that are zero. */
#define TWO_SUM(s, e, sum, x) double s = (sum) + (x), e##_z = s - (sum), e = ((sum) - (s - e##_z)) + ((x)-e##_z)
#define UNLESS_BAD(e)         ((e) - (e) == 0 ? (e) : 0)

static qb_running renormalized(double sum, double cost)
{
    double s = sum - cost, e = cost - (sum - s);
    return (qb_running){s, UNLESS_BAD(e)};
}

/* The sum of two running sums. */
static qb_running running_together(qb_running a, qb_running b)
{
    TWO_SUM(s, e, a.sum, b.sum);
    return renormalized(s, a.cost + b.cost - UNLESS_BAD(e));
}

/* Some rows whose sums may become infinite or NaN. */
static void careful_rows(const double *b, double *t, int64_t n, int64_t step, qb_running *carry)
{
    for (int64_t k = 0; k < n; k++) {
        TWO_SUM(s, e, carry->sum, b[k * step]);
        carry->cost -= UNLESS_BAD(e);
        carry->sum = s;
        t[k * step] = s - carry->cost;
    }
}

/* ---- Totals */

enum { WIDTH = QB_VECTOR_BYTES / sizeof(double) };
QB_TRANSPOSE_8(transpose_parts, parts, unaligned_parts, double)

/* The sum of n neighbouring terms, each in the lane of its number, and the lanes pairwise. */
#define RUNNING_TOTAL(T, ADD)                                                                                          \
    static qb_running running_total_##T(const void *terms, int64_t n)                                                  \
    {                                                                                                                  \
        typedef T terms_of_parts __attribute__((vector_size(WIDTH * sizeof(T))));                                      \
        const T *b = terms;                                                                                            \
        parts sum[TOTAL_LANES / WIDTH], cost[TOTAL_LANES / WIDTH];                                                     \
        for (int i = 0; i < TOTAL_LANES / WIDTH; i++) {                                                                \
            cost[i] = (parts){0};                                                                                      \
            sum[i] = -0.0 - cost[i];                                                                                   \
        }                                                                                                              \
        int64_t k = 0;                                                                                                 \
        for (; k + TOTAL_LANES <= n; k += TOTAL_LANES, b += TOTAL_LANES)                                               \
            for (int i = 0; i < TOTAL_LANES / WIDTH; i++) {                                                            \
                terms_of_parts x;                                                                                      \
                memcpy(&x, b + i * WIDTH, sizeof x);                                                                   \
                ADD(parts, sum[i], cost[i], __builtin_convertvector(x, parts));                                        \
            }                                                                                                          \
        qb_running lane[TOTAL_LANES];                                                                                  \
        for (int i = 0; i < TOTAL_LANES; i++)                                                                          \
            lane[i] = (qb_running){sum[i / WIDTH][i % WIDTH], cost[i / WIDTH][i % WIDTH]};                             \
        for (int i = 0; k < n; k++, i++)                                                                               \
            ADD(double, lane[i].sum, lane[i].cost, (double)b[i]);                                                      \
        for (int width = TOTAL_LANES / 2; width > 0; width /= 2)                                                       \
            for (int i = 0; i < width; i++)                                                                            \
                lane[i] = running_together(lane[i], lane[i + width]);                                                  \
        return lane[0];                                                                                                \
    }
#define ADD_EXACTLY(type, total, cost, x)                                                                              \
    do {                                                                                                               \
        type term = (x), s = (total) + term, z = s - (total), e = ((total) - (s - z)) + (term - z);                    \
        (cost) -= e;                                                                                                   \
        (total) = s;                                                                                                   \
    } while (0)
#define ADD_SIMPLY(type, total, cost, x) ((total) += (x))
RUNNING_TOTAL(double, ADD_EXACTLY)
RUNNING_TOTAL(float, ADD_SIMPLY)

/* ---- A row in eight parts, an element of each at a time */

enum { PARTS = 8, LEAST_IN_PARTS = 1024, WIDTH_OF_ALL = 8 /* the same cut for each instruction set */ };

/* WIDTH parts of m terms, m a multiple of WIDTH, the first at b (its lowest address) and the others `distance` on. */
static inline __attribute__((always_inline)) bool run_parts(const double *b, double *t, int64_t m, int64_t distance,
                                                            bool backwards, qb_running *carry)
{
    parts sum, cost;
    for (int i = 0; i < WIDTH; i++) {
        sum[i] = carry[i].sum;
        cost[i] = carry[i].cost;
    }
    for (int64_t k = 0; k < m; k += WIDTH) {
        int64_t at = backwards ? m - WIDTH - k : k;
        parts x[WIDTH];
        for (int i = 0; i < WIDTH; i++)
            x[i] = *(const unaligned_parts *)(b + i * distance + at);
        transpose_parts(x);
        for (int j = 0; j < WIDTH; j++) {
            parts *term = &x[backwards ? WIDTH - 1 - j : j];
            parts s = sum + *term, z = s - sum, e = (sum - (s - z)) + (*term - z);
            cost -= e;
            sum = s;
            *term = s - cost;
        }
        transpose_parts(x);
        for (int i = 0; i < WIDTH; i++)
            *(unaligned_parts *)(t + i * distance + at) = x[i];
        if ((k + WIDTH) % RENORMALIZED_EVERY == 0) {
            parts s = sum - cost;
            cost = cost - (sum - s);
            sum = s;
        }
    }
    double bad = 0;
    for (int i = 0; i < WIDTH; i++) {
        bad += (sum[i] - sum[i]) + (cost[i] - cost[i]);
        carry[i] = (qb_running){sum[i], cost[i]};
    }
    return bad == 0;
}

/* The running sums of 8 m terms in order of memory (or, backwards, from its end); false where something is infinite or
 * NaN: then what has been written is of no use. */
static bool run_in_parts(const double *b, double *t, int64_t m, bool backwards, qb_running *carry)
{
    qb_running part[PARTS];
    part[0] = *carry;
    for (int i = 1; i < PARTS; i++) {
        const double *before = b + (backwards ? PARTS - i : i - 1) * m;
        part[i] = running_together(part[i - 1], running_total_double(before, m));
        if ((part[i].sum - part[i].sum) + (part[i].cost - part[i].cost) != 0)
            return false;
    }
    for (int i = 0; i < PARTS; i += WIDTH) {
        int64_t lowest = (backwards ? PARTS - 1 - i : i) * m;
        if (!(backwards ? run_parts(b + lowest, t + lowest, m, -m, true, part + i)
                        : run_parts(b + lowest, t + lowest, m, m, false, part + i)))
            return false;
    }
    *carry = renormalized(part[PARTS - 1].sum, part[PARTS - 1].cost);
    return true;
}

static void running_sum_double(const void *terms, void *sums, int64_t n, int64_t step, qb_running *carry)
{
    const double *b = terms;
    double *t = sums;
    if ((step == 1 || step == -1) && n >= LEAST_IN_PARTS) {
        int64_t m = n / PARTS / WIDTH_OF_ALL * WIDTH_OF_ALL, lowest = step < 0 ? 1 - PARTS * m : 0;
        if (run_in_parts(b + lowest, t + lowest, m, step < 0, carry)) {
            b += PARTS * m * step;
            t += PARTS * m * step;
            n -= PARTS * m;
        }
    }
    for (int64_t first = 0, count; first < n; first += count, b += count * step, t += count * step) {
        count = n - first < RENORMALIZED_EVERY ? n - first : RENORMALIZED_EVERY;
        double sum = carry->sum, cost = carry->cost;
        for (int64_t k = 0; k < count; k++) {
            TWO_SUM(s, e, sum, b[k * step]);
            cost -= e;
            sum = s;
            t[k * step] = s - cost;
        }
        if ((sum - sum) + (cost - cost) == 0) /* what is infinite or NaN stays so */
            *carry = (qb_running){sum, cost};
        else
            careful_rows(b, t, count, step, carry);
        *carry = renormalized(carry->sum, carry->cost);
    }
}

static void running_sum_float(const void *terms, void *sums, int64_t n, int64_t step, qb_running *carry)
{
    const float *b = terms;
    float *t = sums;
    double sum = carry->sum;
    for (int64_t k = 0; k < n; k++, b += step, t += step)
        *t = (float)(sum += (double)*b);
    carry->sum = sum;
}

/* Columns 0 .. count-1, count <= QB_STRIP. */
static void running_strip_double(const void *terms, void *sums, int64_t n, int64_t step, int64_t count)
{
    const double *restrict b = terms;
    double *restrict t = sums;
    double sum[QB_STRIP], cost[QB_STRIP] = {0};
    for (int64_t i = 0; i < QB_STRIP; i++)
        sum[i] = -0.0;
    for (int64_t k = 0; k < n; k++, b += step, t += step) {
        for (int64_t i = 0; i < count; i++) {
            TWO_SUM(s, e, sum[i], b[i]);
            cost[i] -= UNLESS_BAD(e);
            sum[i] = s;
            t[i] = s - cost[i];
        }
        if (k % RENORMALIZED_EVERY != 0)
            continue;
        for (int64_t i = 0; i < count; i++) {
            double s = sum[i] - cost[i], e = cost[i] - (sum[i] - s);
            cost[i] = UNLESS_BAD(e);
            sum[i] = s;
        }
    }
}

static void running_strip_float(const void *terms, void *sums, int64_t n, int64_t step, int64_t count)
{
    const float *restrict b = terms;
    float *restrict t = sums;
    double sum[QB_STRIP];
    for (int64_t i = 0; i < QB_STRIP; i++)
        sum[i] = -0.0;
    for (int64_t k = 0; k < n; k++, b += step, t += step)
        for (int64_t i = 0; i < count; i++) {
            sum[i] += (double)b[i];
            t[i] = (float)sum[i];
        }
}

/* ---- With factors; of integers also without, since their sums are exact */

#define PLAIN(a, t)  ((a) * (t))
#define STRONG(a, t) ((a) == 0 || (t) == 0 ? 0 : (a) * (t))

/* The value before a row is the row just written. T is unsigned for integers, whose sums and products wrap. */
#define RECURRENCE(T, product)                                                                                         \
    static void recurrence_##T##_##product(const void *terms, const void *factors, void *values, int64_t n,            \
                                           int64_t step, int64_t count)                                                \
    {                                                                                                                  \
        const T *b = terms, *a = factors;                                                                              \
        T *t = values, before = b[0];                                                                                  \
        for (int64_t i = 0; i < count; i++)                                                                            \
            t[i] = b[i];                                                                                               \
        for (int64_t k = 1; count == 1 && k < n; k++) {                                                                \
            before = (a ? product(a[k * step], before) : before) + b[k * step];                                        \
            t[k * step] = before;                                                                                      \
        }                                                                                                              \
        for (int64_t k = 1; count > 1 && k < n; k++) {                                                                 \
            b += step, t += step;                                                                                      \
            if (a)                                                                                                     \
                a += step;                                                                                             \
            for (int64_t i = 0; i < count; i++)                                                                        \
                t[i] = (a ? product(a[i], t[i - step]) : t[i - step]) + b[i];                                          \
        }                                                                                                              \
    }
RECURRENCE(double, PLAIN)
RECURRENCE(float, PLAIN)
RECURRENCE(uint32_t, PLAIN)
RECURRENCE(uint64_t, PLAIN)
RECURRENCE(double, STRONG)
RECURRENCE(float, STRONG)

#endif
