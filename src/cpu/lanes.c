/* The lane kernels, compiled once per instruction set: -DQB_ISA=avx2 (say) and the flags of that set give the table
 * qb_lanes_avx2.
 *
 * Each kernel is the loop below around one expression of lanes.def; the compiler makes vector instructions of it. The
 * table at the end is generated from elementwise.def and names a kernel for every op and dtype there, so that a missing
 * row does not compile. A kernel's name carries its arity and result: a row that disagrees with elementwise.def does
 * not compile either.
 *
 * Results must not depend on the instruction set: no contraction (the build says -ffp-contract=off), the same order of
 * operations, and reductions in eight partial results however wide the registers are. */
#include "cpu/lanes_table.h"

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

/* Lane i goes to partial result i mod 8, and partial results meet pairwise: j with j + 4, then + 2, then + 1; so that
 * extremes need not wait for one another, they have 32 partial results. These stand in as few registers as hold them,
 * written with the compiler's vector types: combining by a comparison is beyond its loop vectorizer. */
#if defined(__AVX512F__)
#define REGISTER_BYTES 64
#elif defined(__AVX2__)
#define REGISTER_BYTES 32
#else
#define REGISTER_BYTES 16
#endif

#define VECTOR_BYTES(type) (sizeof(type) * 8 < REGISTER_BYTES ? sizeof(type) * 8 : REGISTER_BYTES)

#define REDUCE_KERNEL(dtype, type, unsigned_type, name, start, combine, partials)                                      \
    static void reduce_##name##_##dtype(size_t n, void *out, const void *in_a)                                         \
    {                                                                                                                  \
        typedef type T;                                                                                                \
        typedef T V __attribute__((vector_size(VECTOR_BYTES(T))));                                                     \
        typedef __attribute__((unused)) unsigned_type U;                                                               \
        typedef __attribute__((unused)) U M __attribute__((vector_size(VECTOR_BYTES(T))));                             \
        enum { WIDTH = sizeof(V) / sizeof(T), COUNT = partials / WIDTH };                                              \
        const T *a = in_a;                                                                                             \
        V p[COUNT];                                                                                                    \
        T partial[partials];                                                                                           \
        for (size_t j = 0; j < COUNT; j++)                                                                             \
            p[j] = (T)(start) - (V){0};                                                                                \
        size_t i = 0;                                                                                                  \
        for (; i + partials <= n; i += partials) {                                                                     \
            for (size_t j = 0; j < COUNT; j++) {                                                                       \
                V x;                                                                                                   \
                memcpy(&x, a + i + j * WIDTH, sizeof x);                                                               \
                p[j] = VECTOR_##combine(p[j], x);                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        for (size_t j = 0; j < partials; j++)                                                                          \
            partial[j] = p[j / WIDTH][j % WIDTH];                                                                      \
        for (size_t j = 0; i < n; i++, j++)                                                                            \
            partial[j] = (T)SCALAR_##combine(partial[j], a[i]);                                                        \
        for (size_t width = partials / 2; width > 0; width /= 2)                                                       \
            for (size_t j = 0; j < width; j++)                                                                         \
                partial[j] = (T)SCALAR_##combine(partial[j], partial[j + width]);                                      \
        *(T *)out = partial[0];                                                                                        \
    }

/* Each combination for vectors and for one lane. In a maximum a NaN replaces what was there, and then stays. */
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
#define VECTOR_LARGER_OR_NAN(p, x)    BLEND((M)(x > p) | (M)(x != x), x, p)
#define SCALAR_LARGER_OR_NAN(p, x)    (x > p || x != x ? x : p)
#define VECTOR_SMALLER_OR_NAN(p, x)   BLEND((M)(x < p) | (M)(x != x), x, p)
#define SCALAR_SMALLER_OR_NAN(p, x)   (x < p || x != x ? x : p)

#define LOWEST  ((T)-1 < (T)1 ? (U)1 << (8 * sizeof(T) - 1) : (U)0) /* of the integers of type T */
#define HIGHEST (~(LOWEST))

FOR_FLOATING(REDUCE_KERNEL, sum, -0.0, SUM, 8) /* -0 + x is x, for x = -0, too */
FOR_FLOATING(REDUCE_KERNEL, prod, 1, PRODUCT, 8)
FOR_FLOATING(REDUCE_KERNEL, max, -INFINITY, LARGER_OR_NAN, 32)
FOR_FLOATING(REDUCE_KERNEL, min, INFINITY, SMALLER_OR_NAN, 32)
FOR_INTEGER(REDUCE_KERNEL, sum, 0, WRAPPING_SUM, 8)
FOR_INTEGER(REDUCE_KERNEL, prod, 1, WRAPPING_PRODUCT, 8)
FOR_INTEGER(REDUCE_KERNEL, max, LOWEST, LARGER, 32)
FOR_INTEGER(REDUCE_KERNEL, min, HIGHEST, SMALLER, 32)
FOR_BOOLEAN(REDUCE_KERNEL, max, 0, LARGER, 32)
FOR_BOOLEAN(REDUCE_KERNEL, min, 1, SMALLER, 32)

/* Norms: squares are summed up in double precision, in 32 partial results, enough of them that sums need not wait for
 * one another. */
#define NORM_PARTIALS 32
#define NORM_KERNEL(dtype, type, finish)                                                                               \
    static void reduce_norm_##dtype(size_t n, void *out, const void *in_a)                                             \
    {                                                                                                                  \
        typedef double V __attribute__((vector_size(REGISTER_BYTES)));                                                 \
        typedef type S __attribute__((vector_size(REGISTER_BYTES / sizeof(double) * sizeof(type))));                   \
        enum { WIDTH = sizeof(V) / sizeof(double), COUNT = NORM_PARTIALS / WIDTH };                                    \
        const type *a = in_a;                                                                                          \
        V p[COUNT];                                                                                                    \
        double partial[NORM_PARTIALS];                                                                                 \
        for (size_t j = 0; j < COUNT; j++)                                                                             \
            p[j] = (V){0};                                                                                             \
        size_t i = 0;                                                                                                  \
        for (; i + NORM_PARTIALS <= n; i += NORM_PARTIALS)                                                             \
            for (size_t j = 0; j < COUNT; j++) {                                                                       \
                S s;                                                                                                   \
                memcpy(&s, a + i + j * WIDTH, sizeof s);                                                               \
                V x = __builtin_convertvector(s, V);                                                                   \
                p[j] += x * x;                                                                                         \
            }                                                                                                          \
        memcpy(partial, p, sizeof partial);                                                                            \
        for (size_t j = 0; i < n; i++, j++)                                                                            \
            partial[j] += (double)a[i] * (double)a[i];                                                                 \
        for (size_t width = NORM_PARTIALS / 2; width > 0; width /= 2)                                                  \
            for (size_t j = 0; j < width; j++)                                                                         \
                partial[j] += partial[j + width];                                                                      \
        *(type *)out = finish(partial[0], n, 1, a);                                                                    \
    }                                                                                                                  \
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

NORM_KERNEL(FLOAT64, double, qb_norm_of_f64)
NORM_KERNEL(FLOAT32, float, qb_norm_of_f32)

/* ---- The table */

#define PASTE(a, b)          a##b
#define PASTE_EXPANDED(a, b) PASTE(a, b)
#define TEXT(a)              #a
#define TEXT_EXPANDED(a)     TEXT(a)

#define ENTRY(dtype, type, unsigned_type, arity, name, result) [QB_##dtype] = arity##_##name##_##dtype##_##result,
#define SELECT_ENTRY(dtype, type, unsigned_type, ...)          [QB_##dtype] = select_##dtype,
#define CONVERT_ENTRY(to, type, unsigned_type, from)           [QB_##to] = convert_##from##_##to,
#define REDUCE_ENTRY(dtype, type, unsigned_type, name)         [QB_##dtype] = reduce_##name##_##dtype,

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
