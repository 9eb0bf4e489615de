/* The loops of loops.h, for one instruction set: compiled with QB_ISA set to its name. */
#include "cpu/gemm.h"

#include "cpu/norm.h"
#include "cpu/running.h"
#include "cpu/transpose.h"
#include "program/kernel.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif
#include <stdbool.h>
#include <string.h>

/* ---- Moving. Elements are moved as bits, so there is one routine per element size. */

/* Rows of n lanes, n a constant: the compiler unrolls them. */
#define ROWS_OF(n, STRIDE)                                                                                             \
    case n:                                                                                                            \
        for (int64_t r = 0; r < rows; r++, source += row_stride, target += n)                                          \
            for (int64_t i = 0; i < n; i++)                                                                            \
                target[i] = source[i * (STRIDE)];                                                                      \
        return;

/* Transposing moves squares as wide as a line of the cache, so that lines are read and written whole. What no cache
 * holds is written past them, which saves reading it first; then rows are read to their end, else so far as the cache
 * holds the lines that are written. */
enum { LINE = 64, ROWS_IN_CACHES = 32 };

#if defined(__AVX512F__)
#define WRITE_PAST_CACHES(target, x) _mm512_stream_si512((__m512i *)(void *)(target), (__m512i)(x))
#define SETTLE()                     _mm_sfence()
#elif defined(__AVX2__)
#define WRITE_PAST_CACHES(target, x) _mm256_stream_si256((__m256i *)(void *)(target), (__m256i)(x))
#define SETTLE()                     _mm_sfence()
#else
#define WRITE_PAST_CACHES(target, x) (*(target) = (x))
#define SETTLE()                     ((void)0)
#endif

/* transpose_T: target[r * extent + i] = source[i * stride + r]. */
#define TRANSPOSE_LOOP(T, SQUARE)                                                                                      \
    SQUARE(square_##T, vector_##T, unaligned_##T, T)                                                                   \
    static inline void move_square_##T(const T *source, int64_t stride, T *target, int64_t extent, bool past)          \
    {                                                                                                                  \
        enum { LANES = QB_VECTOR_BYTES / sizeof(T), SIDE = LINE / sizeof(T), PARTS_OF_LINE = SIDE / LANES };           \
        for (int r = 0; r < SIDE; r += LANES) {                                                                        \
            vector_##T x[PARTS_OF_LINE][LANES];                                                                        \
            QB_UNROLLED                                                                                                \
            for (int part = 0; part < PARTS_OF_LINE; part++) {                                                         \
                QB_UNROLLED                                                                                            \
                for (int lane = 0; lane < LANES; lane++)                                                               \
                    x[part][lane] = *(const unaligned_##T *)(source + (part * LANES + lane) * stride + r);             \
                square_##T(x[part]);                                                                                   \
            }                                                                                                          \
            QB_UNROLLED                                                                                                \
            for (int i = 0; i < SIDE; i++) { /* lines one after the other */                                           \
                T *out = target + (r + i / PARTS_OF_LINE) * extent + i % PARTS_OF_LINE * LANES;                        \
                vector_##T y = x[i % PARTS_OF_LINE][i / PARTS_OF_LINE];                                                \
                if (past)                                                                                              \
                    WRITE_PAST_CACHES((vector_##T *)(void *)out, y);                                                   \
                else                                                                                                   \
                    *(unaligned_##T *)out = y;                                                                         \
            }                                                                                                          \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void transpose_##T(int64_t rows, int64_t extent, int64_t stride, const T *restrict source,                  \
                              T *restrict target, bool past_caches)                                                    \
    {                                                                                                                  \
        enum { SIDE = LINE / sizeof(T) };                                                                              \
        int64_t whole_rows = rows - rows % SIDE;                                                                       \
        int64_t whole_extent = extent - extent % SIDE;                                                                 \
        bool past = past_caches && (uintptr_t)target % LINE == 0 && extent % SIDE == 0;                                \
        int64_t band = past ? whole_rows : ROWS_IN_CACHES;                                                             \
        for (int64_t first = 0; first < whole_rows; first += band) {                                                   \
            int64_t limit = whole_rows - first < band ? whole_rows : first + band;                                     \
            for (int64_t i = 0; i < whole_extent; i += SIDE)                                                           \
                for (int64_t r = first; r < limit; r += SIDE)                                                          \
                    move_square_##T(source + i * stride + r, stride, target + r * extent + i, extent, past);           \
        }                                                                                                              \
        for (int64_t r = 0; r < rows; r++)                                                                             \
            for (int64_t i = r < whole_rows ? whole_extent : 0; i < extent; i++)                                       \
                target[r * extent + i] = source[i * stride + r];                                                       \
        if (past)                                                                                                      \
            SETTLE();                                                                                                  \
    }
TRANSPOSE_LOOP(uint32_t, QB_TRANSPOSE_4)
TRANSPOSE_LOOP(uint64_t, QB_TRANSPOSE_8)

static void transpose_uint8_t(int64_t rows, int64_t extent, int64_t stride, const uint8_t *restrict source,
                              uint8_t *restrict target, bool past_caches)
{
    (void)past_caches;
    enum { TILE = 16 };
    for (int64_t i = 0; i < extent; i += TILE) {
        int64_t width = extent - i < TILE ? extent - i : TILE;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = 0; j < width; j++)
                target[r * extent + i + j] = source[(i + j) * stride + r];
    }
}

#define COPY_LOOP(T)                                                                                                   \
    static void repeat_##T(int64_t rows, int64_t extent, int64_t row_stride, const T *restrict source,                 \
                           T *restrict target)                                                                         \
    {                                                                                                                  \
        switch (extent) {                                                                                              \
            ROWS_OF(2, 0)                                                                                              \
            ROWS_OF(3, 0)                                                                                              \
            ROWS_OF(4, 0)                                                                                              \
            ROWS_OF(8, 0)                                                                                              \
            ROWS_OF(16, 0)                                                                                             \
        default: break;                                                                                                \
        }                                                                                                              \
        for (int64_t r = 0; r < rows; r++, source += row_stride, target += extent) {                                   \
            T element = *source;                                                                                       \
            for (int64_t i = 0; i < extent; i++)                                                                       \
                target[i] = element;                                                                                   \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void copy_##T(int64_t rows, int64_t extent, int64_t row_stride, int64_t stride, const void *in, void *out,  \
                         bool past_caches)                                                                             \
    {                                                                                                                  \
        const T *restrict source = in;                                                                                 \
        T *restrict target = out;                                                                                      \
        if (stride == 0) {                                                                                             \
            repeat_##T(rows, extent, row_stride, source, target);                                                      \
            return;                                                                                                    \
        }                                                                                                              \
        switch (extent) {                                                                                              \
            ROWS_OF(1, 1)                                                                                              \
            ROWS_OF(2, stride)                                                                                         \
            ROWS_OF(3, stride)                                                                                         \
            ROWS_OF(4, stride)                                                                                         \
        default: break;                                                                                                \
        }                                                                                                              \
        if (stride == 1) {                                                                                             \
            for (int64_t r = 0; r < rows; r++, source += row_stride, target += extent)                                 \
                memcpy(target, source, (size_t)extent * sizeof *target);                                               \
        } else if (row_stride == 1 && rows > 1) {                                                                      \
            transpose_##T(rows, extent, stride, source, target, past_caches);                                          \
        } else {                                                                                                       \
            for (int64_t r = 0; r < rows; r++, source += row_stride, target += extent)                                 \
                for (int64_t i = 0; i < extent; i++)                                                                   \
                    target[i] = source[i * stride];                                                                    \
        }                                                                                                              \
    }

COPY_LOOP(uint8_t)
COPY_LOOP(uint32_t)
COPY_LOOP(uint64_t)

/* ---- Folding. Sums and products of integers wrap, so they run in the unsigned type of the size. */

#define ADD(a, b)      ((a) + (b))
#define MULTIPLY(a, b) ((a) * (b))
/* NaN wins; without a branch, which would be predicted wrong. */
#define LARGER(a, b)  (((a) > (b)) | ((a) != (a)) ? (a) : (b))
#define SMALLER(a, b) (((a) < (b)) | ((a) != (a)) ? (a) : (b))

/* Groups of n lanes one after the other, n a constant. */
#define GROUPS_OF(n, T, COMBINE)                                                                                       \
    case n:                                                                                                            \
        for (size_t o = 0; o < outer; o++, a += n) {                                                                   \
            T total = a[0];                                                                                            \
            for (size_t e = 1; e < n; e++)                                                                             \
                total = (T)COMBINE(total, a[e]);                                                                       \
            result[o] = total;                                                                                         \
        }                                                                                                              \
        return;

#define COMMON_GROUPS(T, COMBINE)                                                                                      \
    GROUPS_OF(2, T, COMBINE)                                                                                           \
    GROUPS_OF(3, T, COMBINE)                                                                                           \
    GROUPS_OF(4, T, COMBINE)                                                                                           \
    GROUPS_OF(8, T, COMBINE)
#define NO_GROUPS(T, COMBINE)

#define FOLD(name, T, COMBINE, GROUPS)                                                                                 \
    static void fold_lanes_##name##_##T(size_t outer, size_t extent, T *restrict result, const T *restrict a)          \
    {                                                                                                                  \
        switch (extent) {                                                                                              \
            GROUPS(T, COMBINE)                                                                                         \
        default: break;                                                                                                \
        }                                                                                                              \
        size_t o = 0;                                                                                                  \
        for (; o + 4 <= outer; o += 4, a += 4 * extent) { /* four independent chains */                                \
            T total[4] = {a[0], a[extent], a[2 * extent], a[3 * extent]};                                              \
            for (size_t e = 1; e < extent; e++)                                                                        \
                for (size_t k = 0; k < 4; k++)                                                                         \
                    total[k] = (T)COMBINE(total[k], a[k * extent + e]);                                                \
            memcpy(result + o, total, sizeof total);                                                                   \
        }                                                                                                              \
        for (; o < outer; o++, a += extent) {                                                                          \
            T total = a[0];                                                                                            \
            for (size_t e = 1; e < extent; e++)                                                                        \
                total = (T)COMBINE(total, a[e]);                                                                       \
            result[o] = total;                                                                                         \
        }                                                                                                              \
    }                                                                                                                  \
                                                                                                                       \
    static void fold_##name##_##T(size_t outer, size_t extent, size_t inner, void *out, const void *in)                \
    {                                                                                                                  \
        T *restrict result = out;                                                                                      \
        const T *restrict a = in;                                                                                      \
        if (inner == 1) {                                                                                              \
            fold_lanes_##name##_##T(outer, extent, result, a);                                                         \
            return;                                                                                                    \
        }                                                                                                              \
        for (size_t o = 0; o < outer; o++, result += inner) {                                                          \
            memcpy(result, a, inner * sizeof *a);                                                                      \
            a += inner;                                                                                                \
            for (size_t e = 1; e < extent; e++, a += inner)                                                            \
                for (size_t i = 0; i < inner; i++)                                                                     \
                    result[i] = (T)COMBINE(result[i], a[i]);                                                           \
        }                                                                                                              \
    }

#define FOLD_EXTREMA(T)                                                                                                \
    FOLD(max, T, LARGER, NO_GROUPS)                                                                                    \
    FOLD(min, T, SMALLER, NO_GROUPS)
#define FOLD_ALL(T)                                                                                                    \
    FOLD(sum, T, ADD, COMMON_GROUPS)                                                                                   \
    FOLD(prod, T, MULTIPLY, COMMON_GROUPS)                                                                             \
    FOLD_EXTREMA(T)

FOLD_ALL(double)
FOLD_ALL(float)
FOLD_ALL(uint32_t)
FOLD_ALL(uint64_t)
FOLD_EXTREMA(uint8_t)
FOLD_EXTREMA(int32_t)
FOLD_EXTREMA(int64_t)

/* Norms: the squares of some groups are folded as sums. */
#define FOLD_NORM(T, finish)                                                                                           \
    static void fold_norm_##T(size_t outer, size_t extent, size_t inner, void *out, const void *in)                    \
    {                                                                                                                  \
        double squares[QB_KERNEL_LANES], sums[QB_KERNEL_LANES];                                                        \
        size_t group = extent * inner, step = QB_KERNEL_LANES / group;                                                 \
        const T *a = in;                                                                                               \
        T *result = out;                                                                                               \
        for (size_t o = 0, count; o < outer; o += count, a += count * group) {                                         \
            count = outer - o < step ? outer - o : step;                                                               \
            for (size_t i = 0; i < count * group; i++)                                                                 \
                squares[i] = (double)a[i] * (double)a[i];                                                              \
            fold_sum_double(count, extent, inner, sums, squares);                                                      \
            for (size_t k = 0; k < count; k++)                                                                         \
                for (size_t i = 0; i < inner; i++)                                                                     \
                    *result++ = finish(sums[k * inner + i], extent, inner, a + k * group + i);                         \
        }                                                                                                              \
    }
FOLD_NORM(double, qb_norm_of_f64)
FOLD_NORM(float, qb_norm_of_f32)

/* ---- Small products: a row of c at a time, the inner loop along its contiguous axis */

#define PRODUCT_LOOP(T)                                                                                                \
    static void product_##T(const qb_product_shape *d, const void *in_a, const void *in_b, void *out)                  \
    {                                                                                                                  \
        const T *a = in_a, *b = in_b;                                                                                  \
        T *restrict c = out;                                                                                           \
        int64_t n = d->n, k = d->k, a_k = d->a_k, b_k = d->b_k, b_n = d->b_n;                                          \
        for (int64_t i = 0; i < d->m; i++, a += d->a_m, c += n) {                                                      \
            if (n == 1) {                                                                                              \
                T sum = a[0] * b[0];                                                                                   \
                for (int64_t p = 1; p < k; p++)                                                                        \
                    sum += a[p * a_k] * b[p * b_k];                                                                    \
                c[0] = sum;                                                                                            \
                continue;                                                                                              \
            }                                                                                                          \
            for (int64_t p = 0; p < k; p++) {                                                                          \
                T factor = a[p * a_k];                                                                                 \
                const T *restrict row = b + p * b_k;                                                                   \
                if (p == 0)                                                                                            \
                    for (int64_t j = 0; j < n; j++)                                                                    \
                        c[j] = factor * row[j * b_n];                                                                  \
                else if (b_n == 1)                                                                                     \
                    for (int64_t j = 0; j < n; j++)                                                                    \
                        c[j] += factor * row[j];                                                                       \
                else                                                                                                   \
                    for (int64_t j = 0; j < n; j++)                                                                    \
                        c[j] += factor * row[j * b_n];                                                                 \
            }                                                                                                          \
        }                                                                                                              \
    }

PRODUCT_LOOP(double)
PRODUCT_LOOP(float)
PRODUCT_LOOP(uint32_t) /* signed products wrap, too */
PRODUCT_LOOP(uint64_t)

/* ---- The table */

#define PASTE(a, b)          a##b
#define PASTE_EXPANDED(a, b) PASTE(a, b)
#define TEXT(a)              #a
#define TEXT_EXPANDED(a)     TEXT(a)

#define WRAPPING(name)                                                                                                 \
    {                                                                                                                  \
        [QB_FLOAT64] = fold_##name##_double, [QB_FLOAT32] = fold_##name##_float, [QB_INT32] = fold_##name##_uint32_t,  \
        [QB_INT64] = fold_##name##_uint64_t, [QB_UINT32] = fold_##name##_uint32_t,                                     \
        [QB_UINT64] = fold_##name##_uint64_t,                                                                          \
    }
#define EXTREMA(name)                                                                                                  \
    {                                                                                                                  \
        [QB_FLOAT64] = fold_##name##_double, [QB_FLOAT32] = fold_##name##_float, [QB_BOOL] = fold_##name##_uint8_t,    \
        [QB_INT32] = fold_##name##_int32_t, [QB_INT64] = fold_##name##_int64_t, [QB_UINT32] = fold_##name##_uint32_t,  \
        [QB_UINT64] = fold_##name##_uint64_t,                                                                          \
    }

extern const qb_loop_table PASTE_EXPANDED(qb_loops_, QB_ISA);
const qb_loop_table PASTE_EXPANDED(qb_loops_, QB_ISA) = {
    .instruction_set = TEXT_EXPANDED(QB_ISA),
    .copy_1 = copy_uint8_t,
    .copy_4 = copy_uint32_t,
    .copy_8 = copy_uint64_t,
    .fold = {[QB_REDUCE_sum] = WRAPPING(sum),
             [QB_REDUCE_prod] = WRAPPING(prod),
             [QB_REDUCE_max] = EXTREMA(max),
             [QB_REDUCE_min] = EXTREMA(min),
             [QB_REDUCE_norm] = {[QB_FLOAT64] = fold_norm_double, [QB_FLOAT32] = fold_norm_float}},
    .product = {[QB_FLOAT64] = product_double,
                [QB_FLOAT32] = product_float,
                [QB_INT32] = product_uint32_t,
                [QB_INT64] = product_uint64_t,
                [QB_UINT32] = product_uint32_t,
                [QB_UINT64] = product_uint64_t},
    .running_together = running_together,
    .running_sum = {[QB_FLOAT64] = running_sum_double, [QB_FLOAT32] = running_sum_float},
    .running_total = {[QB_FLOAT64] = running_total_double, [QB_FLOAT32] = running_total_float},
    .running_strip = {[QB_FLOAT64] = running_strip_double, [QB_FLOAT32] = running_strip_float},
    .recurrence = {{[QB_FLOAT64] = recurrence_double_PLAIN,
                    [QB_FLOAT32] = recurrence_float_PLAIN,
                    [QB_INT32] = recurrence_uint32_t_PLAIN,
                    [QB_INT64] = recurrence_uint64_t_PLAIN,
                    [QB_UINT32] = recurrence_uint32_t_PLAIN,
                    [QB_UINT64] = recurrence_uint64_t_PLAIN},
                   {[QB_FLOAT64] = recurrence_double_STRONG, [QB_FLOAT32] = recurrence_float_STRONG}},
    .gemm = {[QB_FLOAT64] = QB_GEMM_NAME(double, QB_ISA), [QB_FLOAT32] = QB_GEMM_NAME(float, QB_ISA)},
    .vector_bytes = QB_VECTOR_BYTES,
    .panel_bytes = QB_VECTOR_BYTES * QB_GEMM_TILE_VECTORS,
};
