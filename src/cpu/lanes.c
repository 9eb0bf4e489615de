/* The lane kernels, compiled once per instruction set: -DQB_ISA=avx2 (say) and the flags of that set give the table
 * qb_lanes_avx2.
 *
 * Each kernel is the loop below around one expression of lanes.def; the compiler makes vector instructions of it. The
 * table at the end is generated from elementwise.def and names a kernel for every op and dtype there, so that a missing
 * row does not compile. A kernel's name carries its arity and result: a row that disagrees with elementwise.def does
 * not compile either.
 *
 * Results must not depend on the instruction set: no contraction (the build says -ffp-contract=off), the same order of
 * operations, and reductions in the same partial results however wide the registers are. */
#include "cpu/lanes_table.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Jump threading turns consecutive selections into branches, and those become twice as many vector selections. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-thread-jumps")
#endif

#include "cpu/math_arith.h"
#include "cpu/math_base.h"
#include "cpu/math_convert.h"
#include "cpu/math_erf.h"
#include "cpu/math_exp.h"
#include "cpu/math_gamma.h"
#include "cpu/math_inverse.h"
#include "cpu/math_log.h"
#include "cpu/math_power.h"
#include "cpu/math_trig.h"
#include "cpu/norm.h"
#include "cpu/vectors.h"

#ifndef QB_ISA
#error "compile with -DQB_ISA=<name>, the instruction set that the compiler's flags select"
#endif

/* No iteration reads what another writes: operands are the result itself or do not meet it. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* loops with a call stay scalar, and are meant to */
#define LANES _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define LANES _Pragma("GCC ivdep")
#else
#define LANES
#endif

/* ---- Kinds of dtypes: M(dtype, type, unsigned type of that size, ...) */

#define FOR_FLOATING(M, ...) M(FLOAT64, double, uint64_t, __VA_ARGS__) M(FLOAT32, float, uint32_t, __VA_ARGS__)
#define FOR_INTEGER(M, ...)                                                                                            \
    M(INT32, int32_t, uint32_t, __VA_ARGS__)                                                                           \
    M(INT64, int64_t, uint64_t, __VA_ARGS__)                                                                           \
    M(UINT32, uint32_t, uint32_t, __VA_ARGS__)                                                                         \
    M(UINT64, uint64_t, uint64_t, __VA_ARGS__)
#define FOR_BOOLEAN(M, ...) M(BOOL, uint8_t, uint8_t, __VA_ARGS__)
#define FOR_NUMERIC(M, ...) FOR_FLOATING(M, __VA_ARGS__) FOR_INTEGER(M, __VA_ARGS__)
#define FOR_BITWISE(M, ...) FOR_BOOLEAN(M, __VA_ARGS__) FOR_INTEGER(M, __VA_ARGS__)
#define FOR_ANY(M, ...)     FOR_NUMERIC(M, __VA_ARGS__) FOR_BOOLEAN(M, __VA_ARGS__)

/* ---- What rows of lanes.def are written in */

#define MATH(f) _Generic((T)0, double : qb_##f##_f64, float : qb_##f##_f32)
#define INTEGER_MATH(f)                                                                                                \
    _Generic((T)0, int32_t : qb_##f##_i32, int64_t : qb_##f##_i64, uint32_t : qb_##f##_u32, uint64_t : qb_##f##_u64)
#define LIBM(f) f

#define KERNEL(arity, name, dtype, result)                                                                             \
    static void arity##_##name##_##dtype##_##result(size_t n, void *out, const void *in_a, const void *in_b,           \
                                                    const void *in_c)

/* T and U are what a row's expression may name, besides its operands' lanes a and b. */
#define TYPES(type, unsigned_type)                                                                                     \
    typedef __attribute__((unused)) type T;                                                                            \
    typedef __attribute__((unused)) unsigned_type U;
#define OPERAND_A(i) const T a = pa[i];
#define OPERAND_B(i) const T b = pb[i];
#define RESULT_SAME  T
#define RESULT_BOOL  uint8_t

#define UNARY_KERNEL(dtype, type, unsigned_type, name, result, expression)                                             \
    KERNEL(unary, name, dtype, result)                                                                                 \
    {                                                                                                                  \
        TYPES(type, unsigned_type)                                                                                     \
        const T *pa = in_a;                                                                                            \
        RESULT_##result *r = out;                                                                                      \
        (void)in_b, (void)in_c;                                                                                        \
        LANES                                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                                               \
            OPERAND_A(i)                                                                                               \
            r[i] = (RESULT_##result)(expression);                                                                      \
        }                                                                                                              \
    }

#define BINARY_KERNEL(dtype, type, unsigned_type, name, result, expression)                                            \
    KERNEL(binary, name, dtype, result)                                                                                \
    {                                                                                                                  \
        TYPES(type, unsigned_type)                                                                                     \
        const T *pa = in_a, *pb = in_b;                                                                                \
        RESULT_##result *r = out;                                                                                      \
        (void)in_c;                                                                                                    \
        LANES                                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                                               \
            OPERAND_A(i)                                                                                               \
            OPERAND_B(i)                                                                                               \
            r[i] = (RESULT_##result)(expression);                                                                      \
        }                                                                                                              \
    }

/* Lanes that a guard tests at once: an unusual lane slows no more than its block down. */
enum { GUARDED_BLOCK = 256 };

#define GUARDED_KERNEL(arity, name, dtype, type, unsigned_type, operands, usual, expression, general)                  \
    KERNEL(arity, name, dtype, SAME)                                                                                   \
    {                                                                                                                  \
        TYPES(type, unsigned_type)                                                                                     \
        const T *pa = in_a, *pb = in_b;                                                                                \
        T *r = out;                                                                                                    \
        (void)pb, (void)in_c;                                                                                          \
        for (size_t start = 0; start < n; start += GUARDED_BLOCK) {                                                    \
            size_t stop = n - start < GUARDED_BLOCK ? n : start + GUARDED_BLOCK;                                       \
            U unusual = 0;                                                                                             \
            for (size_t i = start; i < stop; i++) {                                                                    \
                operands unusual |= (U)((usual) ^ 1u);                                                                 \
            }                                                                                                          \
            if (unusual) {                                                                                             \
                LANES                                                                                                  \
                for (size_t i = start; i < stop; i++) {                                                                \
                    operands r[i] = (T)(general);                                                                      \
                }                                                                                                      \
                continue;                                                                                              \
            }                                                                                                          \
            LANES                                                                                                      \
            for (size_t i = start; i < stop; i++) {                                                                    \
                operands r[i] = (expression);                                                                          \
            }                                                                                                          \
        }                                                                                                              \
    }
#define UNARY_GUARDED_KERNEL(dtype, type, unsigned_type, name, usual, expression, general)                             \
    GUARDED_KERNEL(unary, name, dtype, type, unsigned_type, OPERAND_A(i), usual, expression, general)
#define BINARY_GUARDED_KERNEL(dtype, type, unsigned_type, name, usual, expression, general)                            \
    GUARDED_KERNEL(binary, name, dtype, type, unsigned_type, OPERAND_A(i) OPERAND_B(i), usual, expression, general)

#define UNARY(name, dtypes, result, expression)  FOR_##dtypes(UNARY_KERNEL, name, result, expression)
#define BINARY(name, dtypes, result, expression) FOR_##dtypes(BINARY_KERNEL, name, result, expression)
#define UNARY_GUARDED(name, dtypes, usual, expression, general)                                                        \
    FOR_##dtypes(UNARY_GUARDED_KERNEL, name, usual, expression, general)
#define BINARY_GUARDED(name, dtypes, usual, expression, general)                                                       \
    FOR_##dtypes(BINARY_GUARDED_KERNEL, name, usual, expression, general)
#include "cpu/lanes.def"
#undef UNARY
#undef BINARY
#undef UNARY_GUARDED
#undef BINARY_GUARDED

/* ---- Select */

#define SELECT_KERNEL(dtype, type, unsigned_type, ...)                                                                 \
    static void select_##dtype(size_t n, void *out, const void *in_a, const void *in_b, const void *in_c)              \
    {                                                                                                                  \
        const uint8_t *condition = in_a;                                                                               \
        const type *pb = in_b, *pc = in_c;                                                                             \
        type *r = out;                                                                                                 \
        LANES                                                                                                          \
        for (size_t i = 0; i < n; i++) {                                                                               \
            type b = pb[i], c = pc[i]; /* both are read, so that the choice needs no branch */                         \
            r[i] = condition[i] ? b : c;                                                                               \
        }                                                                                                              \
    }
FOR_ANY(SELECT_KERNEL, )

/* ---- Conversions */

/* TO_<dtype>(x): x of any element type as an element of that one. An argument's cast in a branch not taken is never
 * run. */
#define TO_FLOAT64(x)                                                                                                  \
    _Generic((x), int64_t                                                                                              \
             : qb_float64_of_i64((int64_t)(x)), uint64_t                                                               \
             : qb_float64_of_u64((uint64_t)(x)), default                                                               \
             : (double)(x))
#define TO_FLOAT32(x) (float)(x)
#define TO_BOOL(x)    (uint8_t)((x) != 0)
#define TO_INTEGER(x, type, of_double)                                                                                 \
    _Generic((x), double : of_double((double)(x)), float : of_double((double)(x)), default : (type)(x))
#define TO_INT32(x)  TO_INTEGER(x, int32_t, qb_int32_of_f64)
#define TO_INT64(x)  TO_INTEGER(x, int64_t, qb_int64_of_f64)
#define TO_UINT32(x) TO_INTEGER(x, uint32_t, qb_uint32_of_f64)
#define TO_UINT64(x) TO_INTEGER(x, uint64_t, qb_uint64_of_f64)

#define CONVERT_KERNEL(from, from_type, unsigned_type, to, to_type)                                                    \
    static void convert_##from##_##to(size_t n, void *out, const void *in_a, const void *in_b, const void *in_c)       \
    {                                                                                                                  \
        const from_type *pa = in_a;                                                                                    \
        to_type *r = out;                                                                                              \
        (void)in_b, (void)in_c;                                                                                        \
        LANES                                                                                                          \
        for (size_t i = 0; i < n; i++)                                                                                 \
            r[i] = TO_##to(pa[i]);                                                                                     \
    }
#define DTYPE(enumerator, type, name, kind) FOR_ANY(CONVERT_KERNEL, enumerator, type)
#include "base/dtype.def"
#undef DTYPE

/* ---- Reductions */

/* Lane i goes to partial result i mod 32. These stand in as few registers as hold them, enough of them that an
 * operation need not wait for the one before, and are written with the compiler's vector types: combining by a
 * comparison is beyond its loop vectorizer. Partial results of each CHAIN lanes of them, a block of QB_KERNEL_LANES in
 * all, begin anew, and are combined into totals: so chains of rounding errors stay short, and blocks may come one by
 * one. In the end totals meet in halves: j with j + 16, then + 8, down to + 1. */
#if defined(__AVX512F__)
#define INTRINSIC(name) _mm512_##name
#define DOUBLE_REGISTER __m512d
#define FLOAT_REGISTER  __m512
#elif defined(__AVX2__)
#define INTRINSIC(name) _mm256_##name
#define DOUBLE_REGISTER __m256d
#define FLOAT_REGISTER  __m256
#else
#define INTRINSIC(name) _mm_##name
#define DOUBLE_REGISTER __m128d
#define FLOAT_REGISTER  __m128
#endif

enum { PARTIALS = 32, CHAIN = 8, TOTALS = PARTIALS + 1 /* of a norm: that of unusual blocks */ };
#define VECTOR_BYTES(type) (sizeof(type) * PARTIALS < QB_VECTOR_BYTES ? sizeof(type) * PARTIALS : QB_VECTOR_BYTES)

#define REDUCE_TYPES(element, type, unsigned_type)                                                                     \
    typedef __attribute__((unused)) element E;                                                                         \
    typedef type T;                                                                                                    \
    typedef __attribute__((unused)) unsigned_type U;                                                                   \
    typedef __attribute__((unused)) T V __attribute__((vector_size(VECTOR_BYTES(T))));                                 \
    typedef __attribute__((unused)) U M __attribute__((vector_size(VECTOR_BYTES(T))));                                 \
    enum { WIDTH = sizeof(V) / sizeof(T), COUNT = PARTIALS / WIDTH };

/* take(p, x) puts lanes x of the array into partial results p, combine(p, x) other partial results; `merge` is how
 * those of a block get into the totals, and `finish` what becomes of these. */
#define REDUCE_KERNEL_FROM(dtype, element, type, unsigned_type, name, start, take, combine, merge, finish)             \
    QB_ALWAYS_INLINE void begin_##name##_##dtype(type *totals)                                                         \
    {                                                                                                                  \
        REDUCE_TYPES(element, type, unsigned_type)                                                                     \
        for (size_t j = 0; j < TOTALS; j++)                                                                            \
            totals[j] = (T)(start);                                                                                    \
    }                                                                                                                  \
    QB_ALWAYS_INLINE void put_##name##_##dtype(size_t n, type *totals, const element *a)                               \
    {                                                                                                                  \
        REDUCE_TYPES(element, type, unsigned_type)                                                                     \
        typedef E S __attribute__((vector_size(WIDTH * sizeof(E))));                                                   \
        const V none = (T)(start) - (V){0};                                                                            \
        __attribute__((unused)) M unordered = {0};                                                                     \
        V total[COUNT];                                                                                                \
        memcpy(total, totals, sizeof total);                                                                           \
        __attribute__((unused)) size_t block = 0;                                                                      \
        for (size_t i = 0; i < n; block = i) {                                                                         \
            size_t chain = (n - i) / PARTIALS < CHAIN ? (n - i) / PARTIALS : CHAIN;                                    \
            V p[COUNT];                                                                                                \
            for (size_t j = 0; j < COUNT; j++)                                                                         \
                p[j] = none;                                                                                           \
            for (size_t k = 0; k < chain; k++, i += PARTIALS) {                                                        \
                for (size_t j = 0; j < COUNT; j++) {                                                                   \
                    S s;                                                                                               \
                    memcpy(&s, a + i + j * WIDTH, sizeof s);                                                           \
                    V x = __builtin_convertvector(s, V);                                                               \
                    p[j] = VECTOR_##take(p[j], x);                                                                     \
                }                                                                                                      \
            }                                                                                                          \
            for (size_t j = 0; chain < CHAIN && j < COUNT && i < n; j++) { /* the rest, in the same places */          \
                S s = (E)(start) - (S){0};                                                                             \
                size_t here = n - i < WIDTH ? n - i : WIDTH;                                                           \
                if (here == WIDTH)                                                                                     \
                    memcpy(&s, a + i, sizeof s);                                                                       \
                else                                                                                                   \
                    memcpy(&s, a + i, here * sizeof(E));                                                               \
                V x = __builtin_convertvector(s, V);                                                                   \
                p[j] = VECTOR_##take(p[j], x);                                                                         \
                i += here;                                                                                             \
            }                                                                                                          \
            MERGE_##merge(combine)                                                                                     \
        }                                                                                                              \
        memcpy(totals, total, sizeof total);                                                                           \
    }                                                                                                                  \
    QB_ALWAYS_INLINE void end_##name##_##dtype(const type *totals, void *out)                                          \
    {                                                                                                                  \
        REDUCE_TYPES(element, type, unsigned_type)                                                                     \
        V total[COUNT];                                                                                                \
        memcpy(total, totals, sizeof total);                                                                           \
        for (size_t half = COUNT / 2; half > 0; half /= 2)                                                             \
            for (size_t j = 0; j < half; j++)                                                                          \
                total[j] = VECTOR_##combine(total[j], total[j + half]);                                                \
        T lane[WIDTH];                                                                                                 \
        memcpy(lane, total, sizeof lane);                                                                              \
        for (size_t half = WIDTH / 2; half > 0; half /= 2)                                                             \
            for (size_t j = 0; j < half; j++)                                                                          \
                lane[j] = (T)SCALAR_##combine(lane[j], lane[j + half]);                                                \
        *(E *)out = (E)FINISH_##finish(lane[0], totals[PARTIALS]);                                                     \
    }                                                                                                                  \
    static void reduce_##name##_##dtype(size_t n, void *out, const void *in_a)                                         \
    {                                                                                                                  \
        type totals[TOTALS];                                                                                           \
        begin_##name##_##dtype(totals);                                                                                \
        put_##name##_##dtype(n, totals, in_a);                                                                         \
        end_##name##_##dtype(totals, out);                                                                             \
    }                                                                                                                  \
    static void add_##name##_##dtype(size_t n, void *totals, const void *in_a, bool begins)                            \
    {                                                                                                                  \
        if (begins)                                                                                                    \
            begin_##name##_##dtype(totals);                                                                            \
        put_##name##_##dtype(n, totals, in_a);                                                                         \
    }                                                                                                                  \
    static void total_##name##_##dtype(const void *totals, void *out)                                                  \
    {                                                                                                                  \
        end_##name##_##dtype(totals, out);                                                                             \
    }
#define REDUCE_KERNEL(dtype, type, unsigned_type, name, start, take, combine, merge)                                   \
    REDUCE_KERNEL_FROM(dtype, type, type, unsigned_type, name, start, take, combine, merge, AS_IS)

#define MERGE_PLAINLY(combine)                                                                                         \
    for (size_t j = 0; j < COUNT; j++)                                                                                 \
        total[j] = VECTOR_##combine(total[j], p[j]);
#define FINISH_AS_IS(total, unusual) ((void)(unusual), total)

/* Each combination for vectors and for one lane. */
#define BLEND(mask, x, y)             (V)(((M)(x) & (mask)) | ((M)(y) & ~(mask)))
#define VECTOR_SUM(p, x)              (p + x)
#define SCALAR_SUM(p, x)              (p + x)
#define VECTOR_PRODUCT(p, x)          (p * x)
#define SCALAR_PRODUCT(p, x)          (p * x)
#define VECTOR_WRAPPING_SUM(p, x)     (V)((M)p + (M)x)
#define SCALAR_WRAPPING_SUM(p, x)     ((U)p + (U)x)
#define VECTOR_WRAPPING_PRODUCT(p, x) (V)((M)p * (M)x)
#define SCALAR_WRAPPING_PRODUCT(p, x) ((U)p * (U)x)
#define VECTOR_LARGER(p, x)           BLEND((M)(x > p), x, p)
#define SCALAR_LARGER(p, x)           (x > p ? x : p)
#define VECTOR_SMALLER(p, x)          BLEND((M)(x < p), x, p)
#define SCALAR_SMALLER(p, x)          (x < p ? x : p)

#define LOWEST  ((T)-1 < (T)1 ? (U)1 << (8 * sizeof(T) - 1) : (U)0) /* of the integers of type T */
#define HIGHEST (~(LOWEST))

FOR_FLOATING(REDUCE_KERNEL, sum, -0.0, SUM, SUM, PLAINLY) /* -0 + x is x, for x = -0, too */
FOR_FLOATING(REDUCE_KERNEL, prod, 1, PRODUCT, PRODUCT, PLAINLY)
FOR_INTEGER(REDUCE_KERNEL, sum, 0, WRAPPING_SUM, WRAPPING_SUM, PLAINLY)
FOR_INTEGER(REDUCE_KERNEL, prod, 1, WRAPPING_PRODUCT, WRAPPING_PRODUCT, PLAINLY)
FOR_INTEGER(REDUCE_KERNEL, max, LOWEST, LARGER, LARGER, PLAINLY)
FOR_INTEGER(REDUCE_KERNEL, min, HIGHEST, SMALLER, SMALLER, PLAINLY)
FOR_BOOLEAN(REDUCE_KERNEL, max, 0, LARGER, LARGER, PLAINLY)
FOR_BOOLEAN(REDUCE_KERNEL, min, 1, SMALLER, SMALLER, PLAINLY)

/* Of floating numbers: the first of two equal ones, so that zeros keep their sign; a NaN is left out, but noted. The
 * processor's instruction has the same choice of operands. */
#if defined(__SSE2__)
#define VECTOR_CHOICE(name, p, x, otherwise)                                                                           \
    _Generic(p[0], double                                                                                              \
             : (V)INTRINSIC(name##_pd)((DOUBLE_REGISTER)(x), (DOUBLE_REGISTER)(p)), float                              \
             : (V)INTRINSIC(name##_ps)((FLOAT_REGISTER)(x), (FLOAT_REGISTER)(p)))
#else
#define VECTOR_CHOICE(name, p, x, otherwise) otherwise(p, x)
#endif
#define VECTOR_LARGER_NUMBER(p, x)  VECTOR_CHOICE(max, p, x, VECTOR_LARGER)
#define SCALAR_LARGER_NUMBER(p, x)  SCALAR_LARGER(p, x)
#define VECTOR_SMALLER_NUMBER(p, x) VECTOR_CHOICE(min, p, x, VECTOR_SMALLER)
#define SCALAR_SMALLER_NUMBER(p, x) SCALAR_SMALLER(p, x)
#define NOTE_NAN(x)                 (unordered |= (M)(x != x))
#define VECTOR_TAKE_LARGER(p, x)    (NOTE_NAN(x), VECTOR_LARGER_NUMBER(p, x))
#define VECTOR_TAKE_SMALLER(p, x)   (NOTE_NAN(x), VECTOR_SMALLER_NUMBER(p, x))

/* Whether any bit of a mask is set. */
static inline bool any_of(size_t size, const void *mask)
{
    uint64_t word, any = 0;
    for (size_t i = 0; i < size; i += sizeof word) {
        memcpy(&word, (const char *)mask + i, sizeof word);
        any |= word;
    }
    return any != 0;
}
/* The NaN stays in the first total, which is never the second operand. */
#define MERGE_OR_NAN(combine)                                                                                          \
    MERGE_PLAINLY(combine)                                                                                             \
    if (any_of(sizeof unordered, &unordered))                                                                          \
        total[0][0] = (T)NAN;

FOR_FLOATING(REDUCE_KERNEL, max, -INFINITY, TAKE_LARGER, LARGER_NUMBER, OR_NAN)
FOR_FLOATING(REDUCE_KERNEL, min, INFINITY, TAKE_SMALLER, SMALLER_NUMBER, OR_NAN)

/* Norms: squares are summed up in double precision. A block whose squares do not serve (see norm.h) has its own norm,
 * in the last of the totals; those of floats always serve. */
#define VECTOR_SUM_OF_SQUARES(p, x) (p + x * x)
#define MERGE_WHERE_IT_SERVES(combine)                                                                                 \
    V largest = p[0];                                                                                                  \
    for (size_t j = 1; j < COUNT; j++)                                                                                 \
        largest = VECTOR_LARGER_NUMBER(largest, p[j]);                                                                 \
    T most = 0;                                                                                                        \
    for (size_t j = 0; j < WIDTH; j++)                                                                                 \
        most = SCALAR_LARGER(most, largest[j]);                                                                        \
    if (most >= QB_SQUARES_LEAST && most <= QB_SQUARES_MOST) {                                                         \
        MERGE_PLAINLY(combine)                                                                                         \
    } else {                                                                                                           \
        totals[PARTIALS] = qb_norm_f64(totals[PARTIALS], qb_norm_scaled(i - block, 1, a + block));                     \
    }
#define FINISH_NORM(squares, unusual)                                                                                  \
    ((unusual) == 0   ? __builtin_sqrt(squares)                                                                        \
     : (squares) == 0 ? (unusual)                                                                                      \
                      : qb_norm_f64(__builtin_sqrt(squares), unusual))

REDUCE_KERNEL_FROM(FLOAT64, double, double, uint64_t, norm, 0, SUM_OF_SQUARES, SUM, WHERE_IT_SERVES, NORM)
REDUCE_KERNEL_FROM(FLOAT32, float, double, uint64_t, norm, 0, SUM_OF_SQUARES, SUM, PLAINLY, NORM)

#define NORM_KERNEL(dtype, type, ...)                                                                                  \
    KERNEL(binary, norm, dtype, SAME)                                                                                  \
    {                                                                                                                  \
        typedef type T;                                                                                                \
        const T *pa = in_a, *pb = in_b;                                                                                \
        T *r = out;                                                                                                    \
        (void)in_c;                                                                                                    \
        LANES                                                                                                          \
        for (size_t i = 0; i < n; i++)                                                                                 \
            r[i] = MATH(norm)(pa[i], pb[i]);                                                                           \
    }
FOR_FLOATING(NORM_KERNEL, )

/* ---- The table */

#define PASTE(a, b)          a##b
#define PASTE_EXPANDED(a, b) PASTE(a, b)
#define TEXT(a)              #a
#define TEXT_EXPANDED(a)     TEXT(a)

#define ENTRY(dtype, type, unsigned_type, arity, name, result) [QB_##dtype] = arity##_##name##_##dtype##_##result,
#define SELECT_ENTRY(dtype, type, unsigned_type, ...)          [QB_##dtype] = select_##dtype,
#define CONVERT_ENTRY(to, type, unsigned_type, from)           [QB_##to] = convert_##from##_##to,
#define REDUCE_ENTRY(dtype, type, unsigned_type, name)                                                                 \
    [QB_##dtype] = {reduce_##name##_##dtype, add_##name##_##dtype, total_##name##_##dtype},

const qb_lane_table PASTE_EXPANDED(qb_lanes_, QB_ISA) = {
    .instruction_set = TEXT_EXPANDED(QB_ISA),
    .kernels =
        {
#define UNARY(name, operands, result, product, flops, partial, summary)                                                \
    [QB_LANE_##name] = {FOR_##operands(ENTRY, unary, name, result)},
#define BINARY(name, operands, result, product, flops, partial_a, partial_b, summary)                                  \
    [QB_LANE_##name] = {FOR_##operands(ENTRY, binary, name, result)},
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
            [QB_LANE_select] = {FOR_ANY(SELECT_ENTRY, )},
        },
    .convert =
        {
#define DTYPE(enumerator, type, name, kind) [QB_##enumerator] = {FOR_ANY(CONVERT_ENTRY, enumerator)},
#include "base/dtype.def"
#undef DTYPE
        },
    .reduce =
        {
            [QB_REDUCE_sum] = {FOR_NUMERIC(REDUCE_ENTRY, sum)},
            [QB_REDUCE_prod] = {FOR_NUMERIC(REDUCE_ENTRY, prod)},
            [QB_REDUCE_max] = {FOR_ANY(REDUCE_ENTRY, max)},
            [QB_REDUCE_min] = {FOR_ANY(REDUCE_ENTRY, min)},
            [QB_REDUCE_norm] = {FOR_FLOATING(REDUCE_ENTRY, norm)},
        },
    .norm = {FOR_FLOATING(ENTRY, binary, norm, SAME)},
};
