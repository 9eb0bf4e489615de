/* Lane kernels, for every instruction set that this machine runs: every op and dtype against a reference of one lane,
 * errors of the transcendental functions in ulp, conversions, reductions in their fixed tree, block sizes, alignment,
 * and work in place. */
#include "lane_reference.h"

#include <stdio.h>
#include <stdlib.h>

enum { LARGEST_BLOCK = 257, SAMPLES = 40000, ELEMENT = 8 };

static int failures;
static const qb_lane_table *table;

#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition) && ++failures <= 50) {                                                                        \
            (void)printf("%s:%d: [%s] ", __FILE__, __LINE__, table->instruction_set);                                  \
            (void)printf(__VA_ARGS__);                                                                                 \
            (void)printf("\n");                                                                                        \
        }                                                                                                              \
    } while (0)

/* ---- Elements of any dtype */

/* Narrow members are the low bytes, as every supported processor has them. */
typedef union element {
    double f64;
    float f32;
    uint8_t b;
    int32_t i32;
    int64_t i64;
    uint32_t u32;
    uint64_t u64;
    unsigned char bytes[ELEMENT];
} element;

static const size_t element_size[QB_DTYPE_COUNT] = {
#define DTYPE(enumerator, type, name, kind) [QB_##enumerator] = sizeof(type),
#include "base/dtype.def"
#undef DTYPE
};

static const char *const dtype_name[QB_DTYPE_COUNT] = {
#define DTYPE(enumerator, type, name, kind) [QB_##enumerator] = name,
#include "base/dtype.def"
#undef DTYPE
};

static bool is_floating(qb_dtype dtype)
{
    return dtype == QB_FLOAT64 || dtype == QB_FLOAT32;
}

/* Equal bits; NaNs of any payload are equal. */
static bool same(qb_dtype dtype, const element *x, const element *y)
{
    if (dtype == QB_FLOAT64 && isnan(x->f64))
        return isnan(y->f64);
    if (dtype == QB_FLOAT32 && isnan(x->f32))
        return isnan(y->f32);
    return memcmp(x, y, element_size[dtype]) == 0;
}

static element load(qb_dtype dtype, const void *block, size_t i)
{
    element x = {0};
    memcpy(&x, (const char *)block + i * element_size[dtype], element_size[dtype]);
    return x;
}

/* An element for tests of exact operations: specials, small numbers, and any bits. */
static element sample(qb_dtype dtype, uint64_t *state)
{
    element x = {0};
    uint64_t bits = random_bits(state), kind = random_bits(state) % 4;
    double special = special_arguments[bits % (sizeof special_arguments / sizeof *special_arguments)];
    int64_t small = (int64_t)(bits % 9) - 4;
    static const int64_t edges[] = {INT64_MIN, INT64_MAX, INT32_MIN, INT32_MAX, UINT32_MAX, 0, 1, -1};
    switch (dtype) {
    case QB_FLOAT64: x.f64 = kind == 0 ? special : kind == 1 ? (double)small / 2 : sample_f64(state, -10, 10); break;
    case QB_FLOAT32:
        x.f32 = kind == 0 ? (float)special : kind == 1 ? (float)small / 2 : sample_f32(state, -10, 10);
        break;
    case QB_BOOL: x.b = bits & 1; break;
    default: x.i64 = kind == 0 ? edges[bits % 8] : kind == 1 ? small : (int64_t)bits;
    }
    if (dtype == QB_INT32 || dtype == QB_UINT32)
        x.u64 &= UINT32_MAX;
    return x;
}

static void fill(qb_dtype dtype, void *block, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        element x = sample(dtype, state);
        memcpy((char *)block + i * element_size[dtype], &x, element_size[dtype]);
    }
}

/* ---- References of one lane */

/* floor(a / b), exactly, for quotients that long double resolves; as in NumPy, a / 0 is that and an infinite a has no
 * remainder */
static double reference_floor_divide(double a, double b)
{
    if (b == 0 || isnan(a) || isnan(b))
        return a / b;
    if (isinf(a))
        return NAN;
    if (isinf(b))
        return a == 0 || (a < 0) == (b < 0) ? copysign(0, a / b) : -1;
    long double r = fmodl(a, b), q = ((long double)a - r) / b;
    if (r != 0 && (r < 0) != (b < 0))
        q -= 1;
    return q == 0 ? copysign(0, a / b) : (double)roundl(q);
}

#define TRUTH(condition) (uint8_t)((condition) ? 1 : 0)
#define FLOATING_REFERENCE(T, member, suffix)                                                                          \
    static bool reference_##member(qb_lane lane, element a, element b, element *r)                                     \
    {                                                                                                                  \
        T x = a.member, y = b.member;                                                                                  \
        switch ((int)lane) {                                                                                           \
        case QB_LANE_neg: r->member = -x; return true;                                                                 \
        case QB_LANE_add: r->member = x + y; return true;                                                              \
        case QB_LANE_sub: r->member = x - y; return true;                                                              \
        case QB_LANE_mul: r->member = x * y; return true;                                                              \
        case QB_LANE_div: r->member = x / y; return true;                                                              \
        case QB_LANE_strong_mul: r->member = x == 0 || y == 0 ? 0 : x * y; return true;                                \
        case QB_LANE_strong_div: r->member = x == 0 ? 0 : x / y; return true;                                          \
        case QB_LANE_fmod: r->member = (T)fmod((double)x, (double)y); return true;                                     \
        case QB_LANE_max: r->member = isnan(x) || isnan(y) ? (T)NAN : x > y ? x : y; return true;                      \
        case QB_LANE_min: r->member = isnan(x) || isnan(y) ? (T)NAN : x < y ? x : y; return true;                      \
        case QB_LANE_abs: r->member = fabs##suffix(x); return true;                                                    \
        case QB_LANE_sign: r->member = x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x; return true;                           \
        case QB_LANE_floor: r->member = floor##suffix(x); return true;                                                 \
        case QB_LANE_ceil: r->member = ceil##suffix(x); return true;                                                   \
        case QB_LANE_round: r->member = nearbyint##suffix(x); return true;                                             \
        case QB_LANE_trunc: r->member = trunc##suffix(x); return true;                                                 \
        case QB_LANE_sqrt:                                                                                             \
        case QB_LANE_root: r->member = sqrt##suffix(x); return true;                                                   \
        case QB_LANE_isnan: r->b = TRUTH(isnan(x)); return true;                                                       \
        case QB_LANE_isinf: r->b = TRUTH(isinf(x)); return true;                                                       \
        case QB_LANE_isfinite: r->b = TRUTH(isfinite(x)); return true;                                                 \
        case QB_LANE_equal: r->b = x == y; return true;                                                                \
        case QB_LANE_not_equal: r->b = x != y; return true;                                                            \
        case QB_LANE_less: r->b = x < y; return true;                                                                  \
        case QB_LANE_less_equal: r->b = x <= y; return true;                                                           \
        default: return false;                                                                                         \
        }                                                                                                              \
    }
FLOATING_REFERENCE(double, f64, )
FLOATING_REFERENCE(float, f32, f)

/* In 128 bits nothing overflows; results are taken modulo 2^n by the store. */
static bool reference_integer(qb_lane lane, __int128 x, __int128 y, __int128 *r, bool *is_test)
{
    __int128 remainder = y == 0 ? 0 : x % y;
    *is_test = false;
    switch ((int)lane) {
    case QB_LANE_neg: *r = -x; return true;
    case QB_LANE_add: *r = x + y; return true;
    case QB_LANE_sub: *r = x - y; return true;
    case QB_LANE_mul: *r = (__int128)((unsigned __int128)x * (unsigned __int128)y); return true;
    case QB_LANE_fmod: *r = remainder; return true;
    case QB_LANE_floor_divide: *r = y == 0 ? 0 : x / y - (remainder != 0 && (x < 0) != (y < 0)); return true;
    case QB_LANE_max: *r = x > y ? x : y; return true;
    case QB_LANE_min: *r = x < y ? x : y; return true;
    case QB_LANE_abs: *r = x < 0 ? -x : x; return true;
    case QB_LANE_sign: *r = (x > 0) - (x < 0); return true;
    case QB_LANE_bit_not: *r = ~x; return true;
    case QB_LANE_bit_and: *r = x & y; return true;
    case QB_LANE_bit_or: *r = x | y; return true;
    case QB_LANE_bit_xor: *r = x ^ y; return true;
    default: break;
    }
    *is_test = true;
    switch ((int)lane) {
    case QB_LANE_equal: *r = x == y; return true;
    case QB_LANE_not_equal: *r = x != y; return true;
    case QB_LANE_less: *r = x < y; return true;
    case QB_LANE_less_equal: *r = x <= y; return true;
    default: return false;
    }
}

static __int128 as_integer(qb_dtype dtype, element x)
{
    switch (dtype) {
    case QB_BOOL: return x.b;
    case QB_INT32: return x.i32;
    case QB_INT64: return x.i64;
    case QB_UINT32: return x.u32;
    default: return x.u64;
    }
}

/* Whether there is a reference for the op on this dtype; then *r is its result. */
static bool reference(qb_lane lane, qb_dtype dtype, element a, element b, element *r)
{
    memset(r, 0, sizeof *r);
    if (is_floating(dtype) && lane == QB_LANE_floor_divide) {
        if (dtype == QB_FLOAT64)
            r->f64 = reference_floor_divide(a.f64, b.f64);
        else
            r->f32 = (float)reference_floor_divide((double)a.f32, (double)b.f32);
        /* beyond the integers that the format resolves, neighbours are as good: the next test knows nothing better */
        double q = dtype == QB_FLOAT64 ? r->f64 : (double)r->f32;
        return isnan(q) || isinf(q) || fabs(q) < (dtype == QB_FLOAT64 ? 0x1p52 : 0x1p23);
    }
    if (dtype == QB_FLOAT64)
        return reference_f64(lane, a, b, r);
    if (dtype == QB_FLOAT32)
        return reference_f32(lane, a, b, r);
    __int128 exact;
    bool is_test;
    if (!reference_integer(lane, as_integer(dtype, a), as_integer(dtype, b), &exact, &is_test))
        return false;
    if (is_test)
        r->b = (uint8_t)exact;
    else if (dtype == QB_BOOL)
        r->b = (uint8_t)(exact & 1);
    else
        r->u64 = (uint64_t)exact & (element_size[dtype] == 4 ? UINT32_MAX : UINT64_MAX);
    return true;
}

/* ---- Exact ops, every dtype */

typedef struct op {
    const char *name;
    qb_lane lane;
    bool is_test;
} op;

static const op ops[] = {
#define UNARY(name, operands, result, product, flops, partial, summary) {#name, QB_LANE_##name, RESULT_IS_##result},
#define BINARY(name, operands, result, product, flops, partial_a, partial_b, summary)                                  \
    {#name, QB_LANE_##name, RESULT_IS_##result},
#define RESULT_IS_SAME false
#define RESULT_IS_BOOL true
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY
};
enum { OPS = sizeof ops / sizeof *ops };

static void test_exact_ops(void)
{
    uint64_t state = 3;
    static element a[LARGEST_BLOCK], b[LARGEST_BLOCK], r[LARGEST_BLOCK];
    for (size_t k = 0; k < OPS; k++) {
        for (int d = 0; d < QB_DTYPE_COUNT; d++) {
            qb_dtype dtype = (qb_dtype)d, result = ops[k].is_test ? QB_BOOL : dtype;
            qb_lane_kernel kernel = table->kernels[ops[k].lane][dtype];
            for (int round = 0; kernel && round < 20; round++) {
                fill(dtype, a, LARGEST_BLOCK, &state);
                fill(dtype, b, LARGEST_BLOCK, &state);
                kernel(LARGEST_BLOCK, r, a, b, NULL);
                for (size_t i = 0; i < LARGEST_BLOCK; i++) {
                    element x = load(dtype, a, i), y = load(dtype, b, i), got = load(result, r, i), expected;
                    if (reference(ops[k].lane, dtype, x, y, &expected))
                        EXPECT(same(result, &got, &expected), "%s %s(%a or %#llx, %a or %#llx) is %a or %#llx",
                               ops[k].name, dtype_name[dtype], dtype == QB_FLOAT32 ? (double)x.f32 : x.f64,
                               (unsigned long long)x.u64, dtype == QB_FLOAT32 ? (double)y.f32 : y.f64,
                               (unsigned long long)y.u64, dtype == QB_FLOAT32 ? (double)got.f32 : got.f64,
                               (unsigned long long)got.u64);
                }
            }
        }
    }
}

/* ---- Transcendental functions */

/* NaN, infinities and zeros must be those of the reference, signs included. */
static bool special_agrees(double got, long double exact)
{
    double expected = (double)exact;
    if (isnan(expected) || isinf(expected) || exact == 0)
        return isnan(expected) ? isnan(got) : got == expected && !signbit(got) == !signbit(expected);
    return true;
}

static void test_unary(const reference_unary *f)
{
    uint64_t state = 4;
    enum { SPECIALS = sizeof special_arguments / sizeof *special_arguments };
    static double x[SAMPLES], y[SAMPLES];
    static float s[SAMPLES], t[SAMPLES];
    for (size_t i = 0; i < SAMPLES; i++) {
        x[i] = i < SPECIALS ? special_arguments[i] : sample_f64(&state, f->low, f->high);
        s[i] = i < SPECIALS ? (float)special_arguments[i] : sample_f32(&state, f->low, f->high);
    }
    table->kernels[f->lane][QB_FLOAT64](SAMPLES, y, x, NULL, NULL);
    table->kernels[f->lane][QB_FLOAT32](SAMPLES, t, s, NULL, NULL);
    for (size_t i = 0; i < SAMPLES; i++) {
        long double exact = f->function(x[i]), exact_f32 = f->function((long double)s[i]);
        double error = error_in_ulp_f64(y[i], exact), error_f32 = error_in_ulp_f32(t[i], exact_f32);
        EXPECT(error <= f->bound_f64 + 1e-3, "%s(%a) = %a is wrong by %.3f ulp", f->name, x[i], y[i], error);
        EXPECT(error_f32 <= f->bound_f32 + 1e-3, "%s(%af) = %a is wrong by %.3f ulp", f->name, (double)s[i],
               (double)t[i], error_f32);
        if (i < SPECIALS) {
            EXPECT(special_agrees(y[i], exact), "%s(%a) = %a, expected %La", f->name, x[i], y[i], exact);
            EXPECT(special_agrees((double)t[i], exact_f32), "%s(%af) = %a, expected %La", f->name, (double)s[i],
                   (double)t[i], exact_f32);
        }
    }
}

static void test_binary(const reference_binary *f)
{
    uint64_t state = 5;
    enum { SPECIALS = sizeof special_arguments / sizeof *special_arguments, PAIRS = SPECIALS * SPECIALS };
    static double a[SAMPLES], b[SAMPLES], y[SAMPLES];
    static float s[SAMPLES], t[SAMPLES], u[SAMPLES];
    for (size_t i = 0; i < SAMPLES; i++) {
        a[i] = i < PAIRS ? special_arguments[i / SPECIALS] : sample_f64(&state, f->low, f->high);
        b[i] = i < PAIRS ? special_arguments[i % SPECIALS] : sample_f64(&state, f->low, f->high);
        s[i] = (float)a[i], t[i] = (float)b[i];
    }
    table->kernels[f->lane][QB_FLOAT64](SAMPLES, y, a, b, NULL);
    table->kernels[f->lane][QB_FLOAT32](SAMPLES, u, s, t, NULL);
    for (size_t i = 0; i < SAMPLES; i++) {
        long double exact = f->function(a[i], b[i]), exact_f32 = f->function((long double)s[i], (long double)t[i]);
        double error = error_in_ulp_f64(y[i], exact), error_f32 = error_in_ulp_f32(u[i], exact_f32);
        EXPECT(error <= f->bound_f64 + 1e-3, "%s(%a, %a) = %a is wrong by %.3f ulp", f->name, a[i], b[i], y[i], error);
        EXPECT(error_f32 <= f->bound_f32 + 1e-3, "%s(%af, %af) = %a is wrong by %.3f ulp", f->name, (double)s[i],
               (double)t[i], (double)u[i], error_f32);
        if (i < PAIRS)
            EXPECT(special_agrees(y[i], exact), "%s(%a, %a) = %a, expected %La", f->name, a[i], b[i], y[i], exact);
    }
}

static void test_known_values(void)
{
    static const struct {
        qb_lane lane;
        double x, y;
    } known[] = {
        {QB_LANE_exp, 0, 1},  {QB_LANE_exp2, 10, 1024}, {QB_LANE_cos, 0, 1},      {QB_LANE_cosh, 0, 1},
        {QB_LANE_log, 1, 0},  {QB_LANE_log2, 8, 3},     {QB_LANE_tanh, 25, 1},    {QB_LANE_erf, 7, 1},
        {QB_LANE_erfc, 0, 1}, {QB_LANE_erfc, -9, 2},    {QB_LANE_cbrt, 27, 3},    {QB_LANE_cbrt, -8, -2},
        {QB_LANE_sqrt, 9, 3}, {QB_LANE_sigmoid, 0, .5}, {QB_LANE_sigmoid, 50, 1}, {QB_LANE_log10, 1000, 3},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        double y;
        float x32 = (float)known[i].x, y32;
        table->kernels[known[i].lane][QB_FLOAT64](1, &y, &known[i].x, NULL, NULL);
        table->kernels[known[i].lane][QB_FLOAT32](1, &y32, &x32, NULL, NULL);
        EXPECT(y == known[i].y, "op %d of %g is %.17g, not exactly %g", known[i].lane, known[i].x, y, known[i].y);
        EXPECT(y32 == (float)known[i].y, "float op %d of %g is %.9g, not %g", known[i].lane, known[i].x, (double)y32,
               known[i].y);
    }
    float tail = -20, y;
    table->kernels[QB_LANE_softplus][QB_FLOAT32](1, &y, &tail, NULL, NULL);
    EXPECT(fabsf(y - 2.0611536e-9f) < 1e-15f, "float softplus(-20) is %g", (double)y);
}

/* ---- Select and conversions */

static void test_select(void)
{
    uint64_t state = 6;
    static element c[LARGEST_BLOCK], a[LARGEST_BLOCK], b[LARGEST_BLOCK], r[LARGEST_BLOCK];
    for (int d = 0; d < QB_DTYPE_COUNT; d++) {
        qb_dtype dtype = (qb_dtype)d;
        fill(QB_BOOL, c, LARGEST_BLOCK, &state);
        fill(dtype, a, LARGEST_BLOCK, &state);
        fill(dtype, b, LARGEST_BLOCK, &state);
        table->kernels[QB_LANE_select][dtype](LARGEST_BLOCK, r, c, a, b);
        for (size_t i = 0; i < LARGEST_BLOCK; i++) {
            element expected = load(dtype, load(QB_BOOL, c, i).b ? a : b, i), got = load(dtype, r, i);
            EXPECT(same(dtype, &got, &expected), "select %s, lane %zu", dtype_name[dtype], i);
        }
    }
}

/* Truncated, saturated to [low, high], NaN to 0 */
static __int128 saturate(long double x, __int128 low, __int128 high)
{
    return isnan(x) ? 0 : x <= (long double)low ? low : x >= (long double)high ? high : (__int128)x;
}

static element reference_convert(qb_dtype from, qb_dtype to, element x)
{
    element r = {0};
    long double value = from == QB_FLOAT64   ? (long double)x.f64
                        : from == QB_FLOAT32 ? (long double)x.f32
                                             : (long double)as_integer(from, x);
    __int128 whole = is_floating(from) ? 0 : as_integer(from, x);
    static const __int128 low[] = {[QB_INT32] = INT32_MIN, [QB_INT64] = INT64_MIN, [QB_UINT32] = 0, [QB_UINT64] = 0};
    static const __int128 high[] = {
        [QB_INT32] = INT32_MAX, [QB_INT64] = INT64_MAX, [QB_UINT32] = UINT32_MAX, [QB_UINT64] = UINT64_MAX};
    if (to == QB_FLOAT64)
        r.f64 = (double)value;
    else if (to == QB_FLOAT32)
        r.f32 = (float)value;
    else if (to == QB_BOOL)
        r.b = value != 0;
    else
        r.u64 = (uint64_t)(is_floating(from) ? saturate(value, low[to], high[to]) : whole);
    if (to == QB_INT32 || to == QB_UINT32)
        r.u64 &= UINT32_MAX;
    return r;
}

static void test_convert(void)
{
    uint64_t state = 7;
    static element x[LARGEST_BLOCK], r[LARGEST_BLOCK];
    static const double edges[] = {2147483647.5,
                                   -2147483648.5,
                                   2147483648.0,
                                   -2147483649.0,
                                   4294967295.5,
                                   4294967296.0,
                                   -0.5,
                                   0x1.fffffffffffffp62,
                                   0x1p63,
                                   -0x1p63,
                                   -0x1.0000000000001p63,
                                   0x1.fffffffffffffp63,
                                   0x1p64,
                                   1e19};
    for (int from = 0; from < QB_DTYPE_COUNT; from++)
        for (int to = 0; to < QB_DTYPE_COUNT; to++)
            for (int round = 0; round < 20; round++) {
                fill((qb_dtype)from, x, LARGEST_BLOCK, &state);
                for (size_t i = 0; round == 0 && is_floating((qb_dtype)from) && i < sizeof edges / sizeof *edges; i++) {
                    if (from == QB_FLOAT64)
                        ((double *)x)[i] = edges[i];
                    else
                        ((float *)x)[i] = (float)edges[i];
                }
                table->convert[from][to](LARGEST_BLOCK, r, x, NULL, NULL);
                for (size_t i = 0; i < LARGEST_BLOCK; i++) {
                    element operand = load((qb_dtype)from, x, i), got = load((qb_dtype)to, r, i);
                    element expected = reference_convert((qb_dtype)from, (qb_dtype)to, operand);
                    EXPECT(same((qb_dtype)to, &got, &expected), "convert %s to %s: %#llx gives %#llx, not %#llx",
                           dtype_name[from], dtype_name[to], (unsigned long long)operand.u64,
                           (unsigned long long)got.u64, (unsigned long long)expected.u64);
                }
            }
}

/* ---- Reductions */

static const qb_lane reduction_lane[] = {[QB_REDUCE_sum] = QB_LANE_add,
                                         [QB_REDUCE_prod] = QB_LANE_mul,
                                         [QB_REDUCE_max] = QB_LANE_max,
                                         [QB_REDUCE_min] = QB_LANE_min};

static element start_of(qb_reduction reduction, qb_dtype dtype)
{
    element one = {0}, x = {0};
    static const double floating[] = {
        [QB_REDUCE_sum] = 0, [QB_REDUCE_prod] = 1, [QB_REDUCE_max] = -INFINITY, [QB_REDUCE_min] = INFINITY};
    one.f64 = floating[reduction];
    x.i64 = reduction == QB_REDUCE_prod;
    if (is_floating(dtype))
        return reference_convert(QB_FLOAT64, dtype, one);
    if (dtype == QB_BOOL) {
        x.b = reduction == QB_REDUCE_min;
        return x;
    }
    if (reduction == QB_REDUCE_max || reduction == QB_REDUCE_min) { /* saturated: the dtype's own extremes */
        one.f64 = reduction == QB_REDUCE_max ? -INFINITY : INFINITY;
        return reference_convert(QB_FLOAT64, dtype, one);
    }
    return reference_convert(QB_INT64, dtype, x);
}

static element combine(qb_reduction reduction, qb_dtype dtype, element x, element y)
{
    element r = {0};
    if (dtype == QB_BOOL) {
        r.b = reduction == QB_REDUCE_max ? x.b | y.b : x.b & y.b;
        return r;
    }
    (void)reference(reduction_lane[reduction], dtype, x, y, &r);
    return r;
}

enum { PARTIALS = 32, BLOCK = 8 * PARTIALS, LONGEST_REDUCED = 7 * BLOCK };

/* By blocks, each in partial results, which are added up. */
static element reference_reduce(qb_reduction reduction, qb_dtype dtype, const void *lanes, size_t n)
{
    element total[PARTIALS], partial[PARTIALS];
    for (size_t j = 0; j < PARTIALS; j++)
        total[j] = start_of(reduction, dtype);
    for (size_t first = 0; first < n; first += BLOCK) {
        for (size_t j = 0; j < PARTIALS; j++)
            partial[j] = start_of(reduction, dtype);
        for (size_t i = first; i < n && i < first + BLOCK; i++)
            partial[i % PARTIALS] = combine(reduction, dtype, partial[i % PARTIALS], load(dtype, lanes, i));
        for (size_t j = 0; j < PARTIALS; j++)
            total[j] = combine(reduction, dtype, total[j], partial[j]);
    }
    for (size_t width = PARTIALS / 2; width > 0; width /= 2)
        for (size_t j = 0; j < width; j++)
            total[j] = combine(reduction, dtype, total[j], total[j + width]);
    return total[0];
}

/* The same bits in parts, whole blocks each but the last. */
static element reduce_in_parts(const qb_reduce_kernel *kernel, qb_dtype dtype, const void *lanes, size_t n, size_t part)
{
    _Alignas(8) char totals[QB_TOTALS_BYTES];
    element result = {0};
    kernel->add(n < part ? n : part, totals, lanes, true);
    for (size_t first = part; first < n; first += part)
        kernel->add(n - first < part ? n - first : part, totals, (const char *)lanes + first * qb_dtype_size(dtype),
                    false);
    kernel->total(totals, &result);
    return result;
}

static void test_reductions(void)
{
    uint64_t state = 8;
    static element x[LONGEST_REDUCED];
    for (int r = 0; r < QB_REDUCE_norm; r++)
        for (int d = 0; d < QB_DTYPE_COUNT; d++) {
            qb_reduction reduction = (qb_reduction)r;
            qb_dtype dtype = (qb_dtype)d;
            qb_reduce_kernel kernel = table->reduce[reduction][dtype];
            bool wanted = dtype != QB_BOOL || reduction == QB_REDUCE_max || reduction == QB_REDUCE_min;
            EXPECT((kernel.at_once != NULL) == wanted, "reduction %d of %s is %s", r, dtype_name[dtype],
                   kernel.at_once ? "there" : "missing");
            for (size_t n = 0; kernel.at_once && n <= LONGEST_REDUCED; n += n < 70 ? 1 : 79) {
                fill(dtype, x, LONGEST_REDUCED, &state);
                for (size_t i = 0; n % 3 && is_floating(dtype) && i < LONGEST_REDUCED;
                     i++) { /* without special values */
                    if (dtype == QB_FLOAT64)
                        ((double *)x)[i] = random_unit(&state) - 0.3;
                    else
                        ((float *)x)[i] = (float)random_unit(&state) - 0.3f;
                }
                element got = {0}, expected = reference_reduce(reduction, dtype, x, n);
                kernel.at_once(n, &got, x);
                element in_parts = reduce_in_parts(&kernel, dtype, x, n, n % 2 ? BLOCK : 3 * BLOCK);
                EXPECT(same(dtype, &got, &in_parts), "reduction %d of %zu %s in parts: other bits", r, n,
                       dtype_name[dtype]);
                bool zeros = is_floating(dtype) && (dtype == QB_FLOAT64 ? got.f64 == 0 && expected.f64 == 0
                                                                        : got.f32 == 0 && expected.f32 == 0);
                EXPECT(same(dtype, &got, &expected) || zeros, "reduction %d of %zu %s: %a or %#llx, not %a or %#llx", r,
                       n, dtype_name[dtype], got.f64, (unsigned long long)got.u64, expected.f64,
                       (unsigned long long)expected.u64);
            }
        }
}

/* Norms of n numbers around `scale`, with zeros among them, against long double. */
static void test_norms_of(size_t n, double scale, uint64_t *state)
{
    static double x[LARGEST_BLOCK];
    static float s[LARGEST_BLOCK];
    long double sum = 0, sum_f32 = 0;
    double norm, pair;
    float norm_f32;
    for (size_t i = 0; i < n; i++) {
        x[i] = i % 7 == 5 ? 0 : (random_unit(state) - 0.5) * scale;
        s[i] = (float)x[i];
        sum += (long double)x[i] * (long double)x[i];
        sum_f32 += (long double)s[i] * (long double)s[i];
    }
    table->reduce[QB_REDUCE_norm][QB_FLOAT64].at_once(n, &norm, x);
    table->reduce[QB_REDUCE_norm][QB_FLOAT32].at_once(n, &norm_f32, s);
    EXPECT(error_in_ulp_f64(norm, sqrtl(sum)) < 3, "norm of %zu about %a: %a, not %La", n, scale, norm, sqrtl(sum));
    EXPECT(error_in_ulp_f32(norm_f32, sqrtl(sum_f32)) < 1, "norm of %zu floats about %a: %a, not %La", n, scale,
           (double)norm_f32, sqrtl(sum_f32));
    if (n < 2)
        return;
    table->norm[QB_FLOAT64](1, &pair, &x[0], &x[1], NULL);
    sum = sqrtl((long double)x[0] * (long double)x[0] + (long double)x[1] * (long double)x[1]);
    EXPECT(error_in_ulp_f64(pair, sum) < 2, "norm of %a and %a: %a", x[0], x[1], pair);
}

static void test_norms(void)
{
    static const double scales[] = {1,       0x1p-1070, 0x1p-600, 0x1p-455, 0x1p-445,
                                    0x1p490, 0x1p505,   0x1p1000, 1e-42,    1e30};
    uint64_t state = 11;
    for (size_t n = 0; LANE_REFERENCE_IS_EXACT && n <= LARGEST_BLOCK; n += n < 70 ? 1 : 61)
        for (size_t k = 0; k < sizeof scales / sizeof *scales; k++)
            test_norms_of(n, scales[k], &state);
    for (size_t n = 3; n < 100; n += 48) {
        double x[100] = {0}, norm;
        x[1] = -INFINITY;
        table->reduce[QB_REDUCE_norm][QB_FLOAT64].at_once(n, &norm, x);
        EXPECT(isinf(norm) && norm > 0, "norm with an infinity: %a", norm);
        x[0] = NAN;
        table->reduce[QB_REDUCE_norm][QB_FLOAT64].at_once(n, &norm, x);
        EXPECT(isnan(norm), "norm with a NaN: %a", norm);
        table->norm[QB_FLOAT64](1, &norm, &x[0], &x[1], NULL);
        EXPECT(isnan(norm), "norm of a NaN and an infinity: %a", norm);
    }
}

/* ---- Shapes of a block */

enum { MARGIN = 64, BUFFER = (LARGEST_BLOCK + 1) * ELEMENT + 2 * MARGIN };

/* Any n, any alignment of whole elements, in place: the bits of lane-by-lane calls, and nothing written beyond. */
static void test_block_shapes(const char *name, qb_lane_kernel kernel, qb_dtype dtype, qb_dtype result,
                              qb_dtype condition)
{
    static unsigned char a[BUFFER], b[BUFFER], c[BUFFER], r[BUFFER], place[BUFFER];
    static const size_t sizes[] = {0, 1, 7, 8, 255, 256, 257};
    uint64_t state = 9;
    for (size_t shift = 0; shift < 2; shift++) {
        unsigned char *pa = a + MARGIN + shift * element_size[condition],
                      *pb = b + MARGIN + shift * element_size[dtype];
        unsigned char *pc = c + MARGIN + shift * element_size[dtype], *pr = r + MARGIN + shift * element_size[result];
        fill(condition, pa, LARGEST_BLOCK, &state);
        fill(dtype, pb, LARGEST_BLOCK, &state);
        fill(dtype, pc, LARGEST_BLOCK, &state);
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            size_t n = sizes[k];
            memset(r, 0xa5, sizeof r);
            kernel(n, pr, pa, pb, pc);
            for (size_t i = 0; i < n; i++) {
                element one = {0}, got = load(result, pr, i);
                kernel(1, &one, pa + i * element_size[condition], pb + i * element_size[dtype],
                       pc + i * element_size[dtype]);
                EXPECT(same(result, &got, &one), "%s %s: lane %zu of %zu differs from the lane alone", name,
                       dtype_name[dtype], i, n);
            }
            for (unsigned char *p = r; p < r + sizeof r; p++)
                EXPECT((p >= pr && p < pr + n * element_size[result]) || *p == 0xa5, "%s %s of %zu writes outside",
                       name, dtype_name[dtype], n);
            if (element_size[condition] == element_size[result]) {
                memcpy(place, a, sizeof place);
                unsigned char *pp = place + (pa - a);
                kernel(n, pp, pp, pb, pc);
                for (size_t i = 0; i < n; i++) {
                    element one = load(result, pp, i), got = load(result, pr, i);
                    EXPECT(same(result, &got, &one), "%s %s in place: lane %zu of %zu", name, dtype_name[dtype], i, n);
                }
            }
        }
    }
}

static void test_every_block_shape(void)
{
    for (size_t k = 0; k < OPS; k++)
        for (int d = 0; d < QB_DTYPE_COUNT; d++) {
            qb_dtype dtype = (qb_dtype)d;
            qb_lane_kernel kernel = table->kernels[ops[k].lane][dtype];
            if (kernel)
                test_block_shapes(ops[k].name, kernel, dtype, ops[k].is_test ? QB_BOOL : dtype, dtype);
        }
    for (int d = QB_FLOAT64; d <= QB_FLOAT32; d++)
        test_block_shapes("norm", table->norm[d], (qb_dtype)d, (qb_dtype)d, (qb_dtype)d);
    for (int d = 0; d < QB_DTYPE_COUNT; d++) {
        test_block_shapes("select", table->kernels[QB_LANE_select][d], (qb_dtype)d, (qb_dtype)d, QB_BOOL);
        for (int to = 0; to < QB_DTYPE_COUNT; to++)
            test_block_shapes("convert", table->convert[d][to], (qb_dtype)d, (qb_dtype)to, (qb_dtype)d);
    }
}

/* ---- Tables, look-up */

/* Tables other than the baseline, which lacks a fused product, give the same bits. */
static void test_same_bits(const qb_lane_table *other)
{
    uint64_t state = 10;
    static element a[LARGEST_BLOCK], b[LARGEST_BLOCK], r[LARGEST_BLOCK], s[LARGEST_BLOCK];
    for (size_t k = 0; k < OPS; k++)
        for (int d = 0; d < QB_DTYPE_COUNT; d++)
            for (int round = 0; table->kernels[ops[k].lane][d] && round < 20; round++) {
                qb_dtype dtype = (qb_dtype)d, result = ops[k].is_test ? QB_BOOL : dtype;
                fill(dtype, a, LARGEST_BLOCK, &state);
                fill(dtype, b, LARGEST_BLOCK, &state);
                table->kernels[ops[k].lane][d](LARGEST_BLOCK, r, a, b, NULL);
                other->kernels[ops[k].lane][d](LARGEST_BLOCK, s, a, b, NULL);
                for (size_t i = 0; i < LARGEST_BLOCK; i++) {
                    element x = load(result, r, i), y = load(result, s, i);
                    EXPECT(same(result, &x, &y), "%s %s differs from %s", ops[k].name, dtype_name[dtype],
                           other->instruction_set);
                }
            }
}

static void test_lookup(void)
{
    bool known = false;
    for (int i = 0; qb_lane_table_at(i); i++)
        known |= strcmp(qb_lane_instruction_set(), qb_lane_table_at(i)->instruction_set) == 0;
    EXPECT(known, "the instruction set is %s", qb_lane_instruction_set());
    const char *forced = getenv("QUABLA_ISA");
    EXPECT(forced || strcmp(qb_lane_instruction_set(), qb_lane_table_at(0)->instruction_set) == 0,
           "not the widest set");
    EXPECT(qb_lane_lookup(QB_LANE_exp, QB_INT32, QB_INT32) == NULL, "exp of int32 is there");
    EXPECT(qb_lane_lookup(QB_LANE_convert, QB_FLOAT64, QB_BOOL) != NULL, "no conversion from float64 to bool");
    EXPECT(qb_reduce_lookup(QB_REDUCE_sum, QB_FLOAT32) != NULL, "no sum of float32");
}

int main(void)
{
    const qb_lane_table *wide = NULL;
    for (int i = 0; (table = qb_lane_table_at(i)) != NULL; i++) {
        test_exact_ops();
        test_known_values();
        for (int k = 0; LANE_REFERENCE_IS_EXACT && k < REFERENCE_UNARIES; k++)
            test_unary(&reference_unaries[k]);
        for (int k = 0; LANE_REFERENCE_IS_EXACT && k < REFERENCE_BINARIES; k++)
            test_binary(&reference_binaries[k]);
        test_select();
        test_convert();
        test_reductions();
        test_norms();
        test_every_block_shape();
        if (wide && strcmp(table->instruction_set, "baseline") != 0)
            test_same_bits(wide);
        wide = table;
    }
    table = qb_lane_table_at(0);
    test_lookup();
    if (failures)
        (void)printf("%d checks failed\n", failures);
    return failures != 0;
}
