/* Elementwise operations: the rules that the rows of elementwise.def stand for, and the three ops that do not fit a row
 * (select, convert, stop_gradient). */
#include "ops/build.h"

#include <math.h>

/* ---- Inference */

static qb_status expect_arity(const qb_inference *in)
{
    if (in->op->arity >= 0 && in->operand_count != in->op->arity)
        return qb_fail(QB_ERROR_VALUE, "%s: takes %d operands, got %d", in->op->name, in->op->arity, in->operand_count);
    return QB_OK;
}

static qb_status expect_same(const qb_inference *in, int a, int b)
{
    const qb_type *x = &in->operand[a], *y = &in->operand[b];
    if (x->dtype != y->dtype)
        return qb_fail(QB_ERROR_VALUE, "%s: operands have dtypes %s and %s; convert one with astype", in->op->name,
                       qb_dtype_name(x->dtype), qb_dtype_name(y->dtype));
    if (!qb_shape_equal(x->rank, x->shape, y->rank, y->shape))
        return qb_fail(QB_ERROR_VALUE, "%s: operands have shapes %s and %s, which must be equal here", in->op->name,
                       qb_print_shape(x->rank, x->shape).text, qb_print_shape(y->rank, y->shape).text);
    return QB_OK;
}

typedef enum domain { FLOATING, NUMERIC, BITWISE, ANY } domain;

static qb_status expect_domain(const qb_inference *in, domain operands)
{
    static const char *const words[] = {"floating", "numeric", "bool or integer", "any"};
    char kind = qb_dtype_kind(in->operand[0].dtype);
    bool fits = operands == ANY || (operands == FLOATING && kind == 'f') || (operands == NUMERIC && kind != 'b') ||
                (operands == BITWISE && kind != 'f');
    if (!fits)
        return qb_fail(QB_ERROR_VALUE, "%s: takes %s operands, got %s; convert with astype", in->op->name,
                       words[operands], qb_dtype_name(in->operand[0].dtype));
    return QB_OK;
}

static qb_status infer_row(const qb_inference *in, domain operands, bool to_bool)
{
    QB_TRY(expect_arity(in));
    QB_TRY(expect_domain(in, operands));
    if (in->operand_count == 2)
        QB_TRY(expect_same(in, 0, 1));
    const qb_type *a = &in->operand[0];
    qb_type_set(in->result, to_bool ? QB_BOOL : a->dtype, a->rank, a->shape);
    return QB_OK;
}

/* ---- The vocabulary of partials: graph g, operands A and B, result Y */

#define A               (r->operand[0])
#define B               (r->operand[1])
#define Y               (r->result[0])
#define NUM(c)          qb_splat_like(g, Y, (c))
#define NEG(x)          qb_neg(g, x)
#define ADD(x, y)       qb_add(g, x, y)
#define SUB(x, y)       qb_sub(g, x, y)
#define MUL(x, y)       qb_mul(g, x, y)
#define DIV(x, y)       qb_div(g, x, y)
#define SQRT(x)         qb_sqrt(g, x)
#define ROOT(x)         qb_root(g, x)
#define EXP(x)          qb_exp(g, x)
#define SIN(x)          qb_sin(g, x)
#define COS(x)          qb_cos(g, x)
#define SINH(x)         qb_sinh(g, x)
#define COSH(x)         qb_cosh(g, x)
#define HYPOT(x, y)     qb_hypot(g, x, y)
#define DIGAMMA(x)      qb_digamma(g, x)
#define POLYGAMMA(n, x) qb_polygamma(g, n, x)
#define SIGMOID(x)      qb_sigmoid(g, x)
#define SIGN(x)         qb_sign(g, x)
#define ROUND(x)        qb_round(g, x)
/* x where y is not 0, else 0 */
#define UNLESS_ZERO(y, x) qb_select(g, qb_equal(g, y, NUM(0)), NUM(0), x)
/* The share of a larger operand: 1 where x > y, 1/2 at a tie, else 0 */
#define LARGER(x, y) qb_select(g, qb_less(g, y, x), NUM(1), qb_select(g, qb_equal(g, x, y), NUM(0.5), NUM(0)))

/* d x^p / dx = p x^(p-1); 0 where x = 0 and p < 1 (there the limit is infinite, or p = 0). The base is masked to 1
 * there, so that derivatives of this expression are finite too. For x <= 0 nothing depends on p, and no mixed
 * derivative does. */
static qb_value pow_by_base(qb_graph *g, qb_value x, qb_value p)
{
    qb_value zero = qb_splat_like(g, x, 0), one = qb_splat_like(g, x, 1);
    double number;
    if (!qb_splat_number(g, p, &number))
        p = qb_select(g, qb_less_equal(g, x, zero), qb_stop_gradient(g, p), p);
    qb_value singular = qb_bit_and(g, qb_equal(g, x, zero), qb_less(g, p, one));
    qb_value safe = qb_select(g, singular, one, x);
    return qb_select(g, singular, zero, qb_mul(g, p, qb_pow(g, safe, qb_sub(g, p, one))));
}

/* d x^p / dp = x^p ln x; 0 for every x <= 0, and the logarithm never sees such an x. */
static qb_value pow_by_exponent(qb_graph *g, qb_value x, qb_value p, qb_value y)
{
    (void)p;
    qb_value zero = qb_splat_like(g, x, 0), one = qb_splat_like(g, x, 1);
    qb_value outside = qb_less_equal(g, x, zero);
    return qb_select(g, outside, zero, qb_mul(g, y, qb_log(g, qb_select(g, outside, one, x))));
}

/* sqrt(x - 1) sqrt(x + 1) under one root, so that no order of its derivative at 1 is inf - inf; beyond 2^28, where the
 * square of x might overflow, that is x. */
static qb_value arccosh_cofactor(qb_graph *g, qb_value x)
{
    qb_value one = qb_splat_like(g, x, 1), far = qb_less(g, qb_splat_like(g, x, 0x1p28), x);
    qb_value near = qb_select(g, far, qb_splat_like(g, x, 2), x);
    return qb_select(g, far, x, qb_root(g, qb_mul(g, qb_sub(g, near, one), qb_add(g, near, one))));
}

/* a / (a^2 + b^2), formed after dividing by |a| + |b|, so that no square overflows or vanishes; 0 at the origin and
 * at infinity. */
static qb_value atan2_partial(qb_graph *g, qb_value a, qb_value b)
{
    qb_value zero = qb_splat_like(g, a, 0), one = qb_splat_like(g, a, 1);
    qb_value scale = qb_add(g, qb_abs(g, a), qb_abs(g, b));
    qb_value usual = qb_bit_and(g, qb_less(g, zero, scale), qb_isfinite(g, scale));
    qb_value safe = qb_select(g, usual, scale, one);
    qb_value u = qb_div(g, qb_select(g, usual, a, one), safe), v = qb_div(g, qb_select(g, usual, b, one), safe);
    qb_value square = qb_add(g, qb_mul(g, u, u), qb_mul(g, v, v));
    return qb_select(g, usual, qb_div(g, qb_div(g, u, square), safe), zero);
}

/* ---- Derivative rules, made from the rows */

static qb_value add_tangents(qb_graph *g, qb_value a, qb_value b)
{
    return a == QB_NONE ? b : b == QB_NONE ? a : qb_add(g, a, b);
}

/* (da - (a/b) db) / b: the denominator is never squared. */
static void quotient_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value numerator = r->tangent[0];
    if (r->tangent[1] != QB_NONE) {
        qb_value part = qb_strong_mul(g, Y, r->tangent[1]);
        numerator = numerator == QB_NONE ? qb_neg(g, part) : qb_sub(g, numerator, part);
    }
    r->result_tangent[0] = qb_strong_div(g, numerator, B);
}

static void quotient_transpose(qb_rule *r)
{
    if (r->linear[0])
        r->operand_cotangent[0] = qb_emit(r->graph, r->op, 2, (qb_value[]){r->cotangent[0], B}, NULL);
}

/* The other operand may be infinite where the tangent is zero (x log x at a masked 0): the product is the strong
 * one. */
static void bilinear_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    for (int i = 0; i < 2; i++)
        if (r->tangent[i] != QB_NONE)
            r->result_tangent[0] =
                add_tangents(g, r->result_tangent[0], qb_strong_mul(g, r->tangent[i], r->operand[1 - i]));
}

static void bilinear_transpose(qb_rule *r)
{
    for (int i = 0; i < 2; i++)
        if (r->linear[i])
            r->operand_cotangent[i] =
                qb_emit(r->graph, r->op, 2, (qb_value[]){r->cotangent[0], r->operand[1 - i]}, NULL);
}

static void neg_transpose(qb_rule *r)
{
    r->operand_cotangent[0] = qb_neg(r->graph, r->cotangent[0]);
}

static void add_transpose(qb_rule *r)
{
    for (int i = 0; i < 2; i++)
        r->operand_cotangent[i] = r->cotangent[0];
}

static void sub_transpose(qb_rule *r)
{
    r->operand_cotangent[0] = r->cotangent[0];
    r->operand_cotangent[1] = qb_neg(r->graph, r->cotangent[0]);
}

static void add_jvp(qb_rule *r)
{
    r->result_tangent[0] = add_tangents(r->graph, r->tangent[0], r->tangent[1]);
}

static void sub_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    const qb_value *t = r->tangent;
    r->result_tangent[0] = t[1] == QB_NONE ? t[0] : t[0] == QB_NONE ? qb_neg(g, t[1]) : qb_sub(g, t[0], t[1]);
}

static void neg_jvp(qb_rule *r)
{
    r->result_tangent[0] = qb_neg(r->graph, r->tangent[0]);
}

#define TIMES_PLAIN(partial, tangent)  qb_mul(g, tangent, partial)
#define TIMES_STRONG(partial, tangent) qb_strong_mul(g, tangent, partial)
#define TIMES_RATIO(partial, tangent)  qb_strong_div(g, tangent, partial)

#define UNARY_JVP(name, product, partial)                                                                              \
    static void name##_jvp(qb_rule *r)                                                                                 \
    {                                                                                                                  \
        qb_graph *g = r->graph;                                                                                        \
        r->result_tangent[0] = TIMES_##product(partial, r->tangent[0]);                                                \
    }
#define BINARY_JVP(name, product, partial_a, partial_b)                                                                \
    static void name##_jvp(qb_rule *r)                                                                                 \
    {                                                                                                                  \
        qb_graph *g = r->graph;                                                                                        \
        if (r->tangent[0] != QB_NONE)                                                                                  \
            r->result_tangent[0] = TIMES_##product(partial_a, r->tangent[0]);                                          \
        if (r->tangent[1] != QB_NONE)                                                                                  \
            r->result_tangent[0] = add_tangents(g, r->result_tangent[0], TIMES_##product(partial_b, r->tangent[1]));   \
    }

#define UNARY_RULE_PLAIN(name, partial)  UNARY_JVP(name, PLAIN, partial)
#define UNARY_RULE_STRONG(name, partial) UNARY_JVP(name, STRONG, partial)
#define UNARY_RULE_RATIO(name, partial)  UNARY_JVP(name, RATIO, partial)
#define UNARY_RULE_LINEAR(name, partial)
#define UNARY_RULE_FLAT(name, partial)
#define BINARY_RULE_STRONG(name, partial_a, partial_b) BINARY_JVP(name, STRONG, partial_a, partial_b)
#define BINARY_RULE_LINEAR(name, partial_a, partial_b)
#define BINARY_RULE_BILINEAR(name, partial_a, partial_b)
#define BINARY_RULE_QUOTIENT(name, partial_a, partial_b)
#define BINARY_RULE_FLAT(name, partial_a, partial_b)

#define UNARY(name, operands, result, product, flops, partial, summary) UNARY_RULE_##product(name, partial)
#define BINARY(name, operands, result, product, flops, partial_a, partial_b, summary)                                  \
    BINARY_RULE_##product(name, partial_a, partial_b)
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY

/* ---- Simplification: only what is exact in IEEE arithmetic, or by the definition of the strong product */

static bool is_number(const qb_graph *graph, qb_value value, double number)
{
    double c;
    return qb_splat_number(graph, value, &c) && c == number && signbit(c) == signbit(number);
}

static bool is_usual(const qb_graph *graph, qb_value value)
{
    double c;
    return qb_splat_number(graph, value, &c) && isfinite(c) && c != 0;
}

static qb_value mul_simplify(qb_rule *r)
{
    for (int i = 0; i < 2; i++) {
        if (is_number(r->graph, r->operand[i], 1))
            return r->operand[1 - i];
        if (is_number(r->graph, r->operand[i], -1) && qb_dtype_is_floating(qb_graph_dtype(r->graph, A)))
            return qb_neg(r->graph, r->operand[1 - i]);
    }
    return QB_NONE;
}

static qb_value strong_mul_simplify(qb_rule *r)
{
    for (int i = 0; i < 2; i++) {
        double c;
        if (qb_splat_number(r->graph, r->operand[i], &c) && c == 0)
            return qb_splat_like(r->graph, A, 0);
        if (is_usual(r->graph, r->operand[i])) {
            qb_value simple = mul_simplify(r);
            return simple != QB_NONE ? simple : qb_mul(r->graph, A, B);
        }
    }
    return QB_NONE;
}

static qb_value div_simplify(qb_rule *r)
{
    return is_number(r->graph, B, 1) ? A : QB_NONE;
}

static qb_value strong_div_simplify(qb_rule *r)
{
    if (is_number(r->graph, B, 1))
        return A;
    return is_usual(r->graph, B) ? qb_div(r->graph, A, B) : QB_NONE;
}

static qb_value sub_simplify(qb_rule *r)
{
    return is_number(r->graph, B, 0) ? A : QB_NONE;
}

static qb_value neg_simplify(qb_rule *r)
{
    const qb_node *node = qb_node_of(r->graph, A);
    return node->op == &qb_op_neg ? qb_operand(r->graph, node, 0) : QB_NONE;
}

/* ---- Descriptors of the rows */

#define add_simplify NULL

#define FLAGS_PLAIN    0
#define FLAGS_STRONG   0
#define FLAGS_RATIO    0
#define FLAGS_QUOTIENT 0
#define FLAGS_LINEAR   QB_OP_LINEAR
#define FLAGS_BILINEAR QB_OP_BILINEAR
#define FLAGS_FLAT     QB_OP_FLAT

#define JVP_PLAIN(name)    name##_jvp
#define JVP_STRONG(name)   name##_jvp
#define JVP_RATIO(name)    name##_jvp
#define JVP_LINEAR(name)   name##_jvp
#define JVP_QUOTIENT(name) quotient_jvp
#define JVP_BILINEAR(name) bilinear_jvp
#define JVP_FLAT(name)     NULL

#define TRANSPOSE_PLAIN(name)    NULL
#define TRANSPOSE_STRONG(name)   NULL
#define TRANSPOSE_RATIO(name)    NULL
#define TRANSPOSE_LINEAR(name)   name##_transpose
#define TRANSPOSE_QUOTIENT(name) quotient_transpose
#define TRANSPOSE_BILINEAR(name) bilinear_transpose
#define TRANSPOSE_FLAT(name)     NULL

#define SIMPLIFY_PLAIN(name)    NULL
#define SIMPLIFY_STRONG(name)   NULL
#define SIMPLIFY_RATIO(name)    NULL
#define SIMPLIFY_LINEAR(name)   name##_simplify
#define SIMPLIFY_QUOTIENT(name) name##_simplify
#define SIMPLIFY_BILINEAR(name) name##_simplify
#define SIMPLIFY_FLAT(name)     NULL

#define TO_SAME false
#define TO_BOOL true

#define COMMUTES(name)                                                                                                 \
    (QB_LANE_##name == QB_LANE_add || QB_LANE_##name == QB_LANE_mul || QB_LANE_##name == QB_LANE_strong_mul            \
         ? QB_OP_COMMUTATIVE                                                                                           \
         : 0)

#define ROW(op_name, op_arity, operands, result, product, weight, text)                                                \
    static qb_status op_name##_infer(const qb_inference *in)                                                           \
    {                                                                                                                  \
        return infer_row(in, operands, TO_##result);                                                                   \
    }                                                                                                                  \
    const qb_op qb_op_##op_name = {                                                                                    \
        .name = #op_name,                                                                                              \
        .summary = text,                                                                                               \
        .arity = op_arity,                                                                                             \
        .result_count = 1,                                                                                             \
        .flags = QB_OP_ELEMENTWISE | FLAGS_##product | COMMUTES(op_name),                                              \
        .element_flops = weight,                                                                                       \
        .lane = QB_LANE_##op_name,                                                                                     \
        .infer = op_name##_infer,                                                                                      \
        .jvp = JVP_##product(op_name),                                                                                 \
        .transpose = TRANSPOSE_##product(op_name),                                                                     \
        .simplify = SIMPLIFY_##product(op_name),                                                                       \
    };
#define UNARY(name, operands, result, product, flops, partial, summary)                                                \
    ROW(name, 1, operands, result, product, flops, summary)
#define BINARY(name, operands, result, product, flops, partial_a, partial_b, summary)                                  \
    ROW(name, 2, operands, result, product, flops, summary)
#include "ops/elementwise.def"
#undef UNARY
#undef BINARY

/* ---- select: a where the condition holds, else b */

static qb_status select_infer(const qb_inference *in)
{
    QB_TRY(expect_arity(in));
    QB_TRY(expect_same(in, 1, 2));
    const qb_type *c = &in->operand[0], *a = &in->operand[1];
    if (c->dtype != QB_BOOL || !qb_shape_equal(c->rank, c->shape, a->rank, a->shape))
        return qb_fail(QB_ERROR_VALUE, "select: the condition must be bool%s, got %s",
                       qb_print_shape(a->rank, a->shape).text, qb_print_type(c->dtype, c->rank, c->shape).text);
    *in->result = *a;
    return QB_OK;
}

static qb_value or_zero(qb_graph *g, qb_value tangent, qb_value like)
{
    return tangent == QB_NONE ? qb_splat_like(g, like, 0) : tangent;
}

static void select_jvp(qb_rule *r)
{
    if (r->tangent[1] == QB_NONE && r->tangent[2] == QB_NONE)
        return;
    qb_graph *g = r->graph;
    r->result_tangent[0] = qb_select(g, A, or_zero(g, r->tangent[1], Y), or_zero(g, r->tangent[2], Y));
}

static void select_transpose(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value zero = qb_splat_like(g, r->cotangent[0], 0);
    if (r->linear[1])
        r->operand_cotangent[1] = qb_select(g, A, r->cotangent[0], zero);
    if (r->linear[2])
        r->operand_cotangent[2] = qb_select(g, A, zero, r->cotangent[0]);
}

static qb_value select_simplify(qb_rule *r)
{
    double c;
    if (r->operand[1] == r->operand[2])
        return r->operand[1];
    return qb_splat_number(r->graph, A, &c) ? r->operand[c != 0 ? 1 : 2] : QB_NONE;
}

const qb_op qb_op_select = {.name = "select",
                            .summary = "a where the condition holds, else b",
                            .arity = 3,
                            .result_count = 1,
                            .flags = QB_OP_ELEMENTWISE | QB_OP_LINEAR,
                            .element_flops = 1,
                            .lane = QB_LANE_select,
                            .infer = select_infer,
                            .jvp = select_jvp,
                            .transpose = select_transpose,
                            .simplify = select_simplify};

qb_value qb_select(qb_graph *graph, qb_value condition, qb_value a, qb_value b)
{
    return qb_emit(graph, &qb_op_select, 3, (qb_value[]){condition, a, b}, NULL);
}

/* ---- convert: another dtype; differentiable between floating ones */

static qb_status convert_infer(const qb_inference *in)
{
    QB_TRY(expect_arity(in));
    qb_type_set(in->result, (qb_dtype)in->attribute[0].integer, in->operand[0].rank, in->operand[0].shape);
    return QB_OK;
}

static void convert_jvp(qb_rule *r)
{
    qb_dtype to = qb_graph_dtype(r->graph, Y);
    if (qb_dtype_is_floating(to))
        r->result_tangent[0] = qb_convert(r->graph, r->tangent[0], to);
}

static void convert_transpose(qb_rule *r)
{
    r->operand_cotangent[0] = qb_convert(r->graph, r->cotangent[0], r->operand_type[0].dtype);
}

const qb_op qb_op_convert = {.name = "convert",
                             .summary = "Another dtype",
                             .arity = 1,
                             .result_count = 1,
                             .flags = QB_OP_ELEMENTWISE | QB_OP_LINEAR,
                             .attribute_count = 1,
                             .attribute_name = {".dtype"},
                             .element_flops = 1,
                             .lane = QB_LANE_convert,
                             .infer = convert_infer,
                             .jvp = convert_jvp,
                             .transpose = convert_transpose};

static bool is_truth_value(const qb_graph *graph, qb_value value)
{
    const qb_node *node = qb_node_of(graph, value);
    return node->op == &qb_op_convert && graph->values[qb_operand(graph, node, 0)].dtype == QB_BOOL;
}

/* What is a number where a condition holds, and another elsewhere, is that in the other dtype, exactly: a selection
 * of numbers, and a truth value times a number. So a weak float64 leaves no trace in a float32 graph. QB_NONE for
 * anything else. */
static qb_value convert_choice(qb_graph *graph, qb_value a, qb_dtype dtype)
{
    const qb_node node = *qb_node_of(graph, a); /* by value: the array of nodes moves as it grows */
    double number;
    if (!qb_dtype_is_floating(dtype) || !qb_dtype_is_floating(qb_graph_dtype(graph, a)))
        return QB_NONE;
    if (is_truth_value(graph, a))
        return qb_convert(graph, qb_operand(graph, &node, 0), dtype);
    if (node.op == &qb_op_select) {
        qb_value condition = qb_operand(graph, &node, 0), x = qb_operand(graph, &node, 1),
                 y = qb_operand(graph, &node, 2);
        if (qb_splat_number(graph, x, &number) && qb_splat_number(graph, y, &number))
            return qb_select(graph, condition, qb_convert(graph, x, dtype), qb_convert(graph, y, dtype));
    }
    if (node.op == &qb_op_mul) {
        qb_value x = qb_operand(graph, &node, 0), y = qb_operand(graph, &node, 1);
        bool is_number = (is_truth_value(graph, x) && qb_splat_number(graph, y, &number)) ||
                         (is_truth_value(graph, y) && qb_splat_number(graph, x, &number));
        if (is_number && isinf((float)number) == isinf(number)) /* a number that overflows would make 0 NaN */
            return qb_mul(graph, qb_convert(graph, x, dtype), qb_convert(graph, y, dtype));
    }
    return QB_NONE;
}

qb_value qb_convert(qb_graph *graph, qb_value a, qb_dtype dtype)
{
    if (a < 0 || qb_graph_dtype(graph, a) == dtype)
        return a;
    qb_value choice = convert_choice(graph, a, dtype);
    if (choice != QB_NONE)
        return choice;
    double number;
    bool is_exact = qb_splat_number(graph, a, &number) && /* as a double */
                    (qb_dtype_is_floating(qb_graph_dtype(graph, a)) || fabs(number) <= 0x1p53);
    if (is_exact)
        return qb_splat(graph, dtype, qb_graph_rank(graph, a), qb_graph_shape(graph, a), number);
    qb_attribute attribute = qb_int((int64_t)dtype);
    return qb_emit(graph, &qb_op_convert, 1, &a, &attribute);
}

/* ---- stop_gradient: the operand, without a derivative. It vanishes when a program is compiled: no derivative is
 * taken after that. */

static qb_status stop_gradient_infer(const qb_inference *in)
{
    QB_TRY(expect_arity(in));
    *in->result = in->operand[0];
    return QB_OK;
}

static qb_value stop_gradient_simplify(qb_rule *r)
{
    return A;
}

const qb_op qb_op_stop_gradient = {.name = "stop_gradient",
                                   .summary = "The operand, with derivative zero",
                                   .arity = 1,
                                   .result_count = 1,
                                   .flags = QB_OP_ELEMENTWISE | QB_OP_FLAT,
                                   .lane = QB_LANE_NONE,
                                   .infer = stop_gradient_infer,
                                   .simplify = stop_gradient_simplify};

qb_value qb_stop_gradient(qb_graph *graph, qb_value a)
{
    return qb_emit(graph, &qb_op_stop_gradient, 1, &a, NULL);
}
