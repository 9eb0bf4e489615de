/* The graph: hash-consing, attributes, inlining, liveness, canonical text, failures, and a verifier that sees what
 * is wrong. */
#include "sample_graphs.h"

static qb_graph *create(void)
{
    qb_graph *g;
    OK(qb_graph_create(&g));
    return g;
}

/* ---- Merging */

static void test_equal_nodes_merge(void)
{
    qb_graph *g = create();
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(2)), y = check_input(g, QB_FLOAT64, SHAPE(2));
    CHECK(x != y); /* inputs are distinct, however equal */
    CHECK(qb_sin(g, x) == qb_sin(g, x) && qb_sin(g, x) != qb_sin(g, y) && qb_sin(g, x) != qb_cos(g, x));
    CHECK(qb_add(g, x, y) == qb_add(g, y, x) && qb_mul(g, x, y) == qb_mul(g, y, x));
    CHECK(qb_strong_mul(g, x, y) == qb_strong_mul(g, y, x));
    CHECK(qb_sub(g, x, y) != qb_sub(g, y, x) && qb_div(g, x, y) != qb_div(g, y, x));
    CHECK(qb_broadcast_to(g, x, SHAPE(3, 2)) == qb_broadcast_to(g, x, SHAPE(3, 2)));
    CHECK(qb_broadcast_to(g, x, SHAPE(3, 2)) != qb_broadcast_to(g, x, SHAPE(4, 2)));
    CHECK(qb_convert(g, x, QB_FLOAT32) != qb_convert(g, x, QB_INT32) && qb_convert(g, x, QB_FLOAT64) == x);
    int32_t nodes = g->node_count;
    for (int i = 0; i < 1000; i++)
        CHECK(qb_mul(g, x, qb_sin(g, qb_add(g, y, x))) >= 0);
    CHECK(g->node_count <= nodes + 2);
    OK(qb_verify(g));
    qb_graph_release(g);
}

static void test_many_nodes(void)
{
    enum { N = 5000 };
    qb_graph *g = create();
    qb_value x = check_input(g, QB_FLOAT64, SCALAR), chain[N];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < N; i++) {
            qb_value next = qb_add(g, i > 0 ? chain[i - 1] : x, x);
            CHECK(round == 0 || chain[i] == next);
            chain[i] = next;
        }
    CHECK(g->node_count == N + 1);
    OK(qb_verify(g));
    qb_graph_release(g);
}

static qb_value constant(qb_graph *g, qb_tensor *tensor)
{
    qb_value value;
    OK(qb_graph_constant(g, tensor, &value));
    qb_tensor_release(tensor);
    return value;
}

/* By bits: NaN is itself, -0 is not 0; and by dtype and shape. Large ones are told apart in the middle too. */
static void test_constants(void)
{
    qb_graph *g = create();
    CHECK(qb_scalar(g, QB_FLOAT64, NAN) == qb_scalar(g, QB_FLOAT64, NAN));
    CHECK(qb_scalar(g, QB_FLOAT64, 0) != qb_scalar(g, QB_FLOAT64, -0.0));
    CHECK(qb_scalar(g, QB_FLOAT64, 1) != qb_scalar(g, QB_FLOAT32, 1));
    CHECK(qb_scalar(g, QB_INT32, 1) != qb_scalar(g, QB_UINT32, 1));
    const double ones[] = {1, 1};
    CHECK(constant(g, check_tensor(QB_FLOAT64, SHAPE(2), ones)) ==
          constant(g, check_tensor(QB_FLOAT64, SHAPE(2), ones)));
    CHECK(constant(g, check_tensor(QB_FLOAT64, SHAPE(2), ones)) !=
          constant(g, check_tensor(QB_FLOAT64, SHAPE(1, 2), ones)));
    static double large[2][1000];
    large[1][500] = 1;
    qb_value a = constant(g, check_tensor(QB_FLOAT64, SHAPE(1000), large[0]));
    qb_value b = constant(g, check_tensor(QB_FLOAT64, SHAPE(1000), large[1]));
    CHECK(a != b && a == constant(g, check_tensor(QB_FLOAT64, SHAPE(1000), large[0])));
    OK(qb_verify(g));
    qb_graph_release(g);
}

static void test_attributes(void)
{
    qb_attribute nan = {.kind = QB_ATTRIBUTE_NUMBER, .number = NAN}, zero = {.kind = QB_ATTRIBUTE_NUMBER, .number = 0},
                 minus = {.kind = QB_ATTRIBUTE_NUMBER, .number = -0.0};
    CHECK(qb_attribute_equal(&nan, &nan) && !qb_attribute_equal(&zero, &minus) && qb_attribute_equal(&zero, &zero));
    qb_attribute integer = qb_int(0), none = qb_ints(0, NULL), one = qb_ints(1, INTEGERS(3)),
                 two = qb_ints(2, INTEGERS(3, 4));
    CHECK(!qb_attribute_equal(&integer, &zero) && qb_attribute_equal(&none, &none) && !qb_attribute_equal(&one, &two));
    qb_attribute again = qb_ints(2, INTEGERS(3, 4)), other = qb_ints(2, INTEGERS(3, 5));
    CHECK(qb_attribute_equal(&two, &again) && !qb_attribute_equal(&two, &other));
}

/* ---- Reading */

static void test_interface(void)
{
    qb_graph *g = create();
    qb_value x = check_input(g, QB_FLOAT32, SHAPE(2, 3)), y = qb_neg(g, x);
    CHECK(qb_graph_output_at(g, 0) == QB_NONE && qb_graph_output_at(g, -1) == QB_NONE);
    OK(qb_graph_output(g, y));
    OK(qb_graph_output(g, x));
    CHECK(qb_graph_input_count(g) == 1 && qb_graph_output_count(g) == 2 && qb_graph_output_at(g, 1) == x);
    CHECK(qb_graph_dtype(g, y) == QB_FLOAT32 && qb_graph_rank(g, y) == 2 && qb_graph_shape(g, y)[1] == 3);
    CHECK(qb_value_size(g, y) == 6);
    FAILS(qb_graph_output(g, 2), QB_ERROR_VALUE, "value 2");
    FAILS(qb_graph_output(g, QB_FAILED), QB_ERROR_VALUE, "value -2");
    qb_value untouched = 77;
    FAILS(qb_graph_input(g, "x", QB_FLOAT64, SHAPE(-1), &untouched), QB_ERROR_VALUE, "negative");
    CHECK(untouched == 77 && qb_graph_input_count(g) == 1 && qb_graph_output_count(g) == 2);
    CHECK(qb_graph_retain(g) == g && !qb_graph_retain(NULL));
    qb_graph_release(g);
    OK(qb_verify(g));
    qb_graph_release(g);
    qb_graph_release(NULL);
}

static void test_live_marks(void)
{
    qb_graph *g = create();
    qb_value x = check_input(g, QB_FLOAT64, SCALAR), unused = check_input(g, QB_FLOAT64, SCALAR), dead = qb_sin(g, x),
             used = qb_cos(g, x), y = qb_add(g, used, used);
    bool live[5];
    qb_mark_live(g, 1, &y, live);
    CHECK(live[x] && live[used] && live[y] && !live[unused] && !live[dead]);
    qb_mark_live(g, 0, NULL, live);
    CHECK(!live[x] && !live[y]);
    qb_graph_release(g);
}

/* ---- Failing */

static void test_sticky_failures(void)
{
    qb_graph *g = create();
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(2)), y = check_input(g, QB_FLOAT64, SHAPE(3));
    qb_value failed = qb_add(g, x, y);
    CHECK(failed == QB_FAILED);
    char first[200];
    (void)snprintf(first, sizeof first, "%s", qb_error_message());
    CHECK(strstr(first, "add") && strstr(first, "(2,)") && strstr(first, "(3,)"));
    CHECK(qb_mul(g, qb_sin(g, failed), x) == QB_FAILED && qb_reshape(g, failed, SHAPE(1)) == QB_FAILED);
    CHECK(qb_splat_like(g, failed, 1) == QB_FAILED && qb_pad(g, failed, NULL, NULL, NULL) == QB_FAILED);
    CHECK(strcmp(first, qb_error_message()) == 0); /* the first failure is the one to report */
    CHECK(qb_graph_take_status(g) == QB_ERROR_VALUE && qb_graph_take_status(g) == QB_OK);
    CHECK(qb_add(g, x, QB_NONE) == QB_FAILED && qb_graph_take_status(g) == QB_ERROR_INTERNAL);
    CHECK(qb_add(g, x, x) >= 0 && qb_graph_take_status(g) == QB_OK);
    OK(qb_verify(g));
    qb_graph_release(g);
}

#define REFUSED(formula, part)                                                                                         \
    do {                                                                                                               \
        CHECK((formula) == QB_FAILED);                                                                                 \
        FAILS(qb_graph_take_status(g), QB_ERROR_VALUE, part);                                                          \
    } while (0)

static void test_what_operations_refuse(void)
{
    qb_graph *g = create();
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(2, 3)), single = check_input(g, QB_FLOAT32, SHAPE(2, 3)),
             n = check_input(g, QB_INT32, SHAPE(2, 3)), b = check_input(g, QB_BOOL, SHAPE(2, 3)),
             empty = check_input(g, QB_FLOAT64, SHAPE(2, 0));
    REFUSED(qb_add(g, x, single), "float64 and float32");
    REFUSED(qb_sin(g, n), "floating");
    REFUSED(qb_neg(g, b), "numeric");
    REFUSED(qb_bit_not(g, x), "bool or integer");
    REFUSED(qb_select(g, x, x, x), "bool(2, 3)");
    REFUSED(qb_reshape(g, x, SHAPE(4)), "6 elements");
    REFUSED(qb_permute(g, x, 2, INTEGERS(0, 0)), "order of the axes");
    REFUSED(qb_permute(g, x, 1, INTEGERS(0)), "order of the axes");
    REFUSED(qb_broadcast(g, x, SHAPE(3, 2), INTEGERS(1, 0)), "(2, 3) does not broadcast to (3, 2)");
    REFUSED(qb_broadcast_to(g, x, SHAPE(3)), "does not broadcast");
    REFUSED(qb_slice(g, x, INTEGERS(0, 0), INTEGERS(2, 4), INTEGERS(1, 1)), "slice");
    REFUSED(qb_slice(g, x, INTEGERS(0, 0), INTEGERS(2, 2), INTEGERS(1, 0)), "slice");
    REFUSED(qb_reverse(g, x, 1, INTEGERS(2)), "reverse");
    REFUSED(qb_pad(g, x, INTEGERS(-2, 0), INTEGERS(-1, 0), INTEGERS(0, 0)), "pad");
    REFUSED(qb_pad(g, x, INTEGERS(0, 0), INTEGERS(0, 0), INTEGERS(-1, 0)), "pad");
    REFUSED(qb_concat(g, 2, (qb_value[]){x, empty}, 0), "array 1 is float64[2,0]");
    REFUSED(qb_concat(g, 2, (qb_value[]){x, single}, 0), "float32[2,3]");
    REFUSED(qb_concat(g, 2, (qb_value[]){x, x}, 2), "axis 2");
    REFUSED(qb_reduce_sum(g, b, 1, INTEGERS(0)), "bool");
    REFUSED(qb_reduce_sum(g, x, 2, INTEGERS(1, 0)), "ascending");
    REFUSED(qb_reduce_max(g, empty, 1, INTEGERS(1)), "no element");
    REFUSED(qb_dot(g, x, x, 1, INTEGERS(1), INTEGERS(0), 0, NULL, NULL), "(2, 3) and (2, 3)");
    REFUSED(qb_dot(g, x, x, 1, INTEGERS(1), INTEGERS(1), 1, INTEGERS(1), INTEGERS(0)), "do not pair");
    REFUSED(qb_dot(g, x, single, 0, NULL, NULL, 0, NULL, NULL), "float32");
    REFUSED(qb_iota(g, QB_INT32, SHAPE(2), 1), "axis 1");
    REFUSED(qb_broadcast_to(g, x, SHAPE(INT64_C(1) << 60, 2, 3)), "too many elements");
    OK(qb_verify(g));
    qb_graph_release(g);
}

/* Views of views are one view. */
static void test_composed_views(void)
{
    qb_graph *g = create();
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(2, 3, 4)), row = check_input(g, QB_FLOAT64, SHAPE(3));
    CHECK(qb_reshape(g, qb_reshape(g, x, SHAPE(24)), SHAPE(2, 3, 4)) == x);
    qb_value turned = qb_permute(g, x, 3, INTEGERS(2, 0, 1));
    CHECK(qb_permute(g, turned, 3, INTEGERS(1, 2, 0)) == x);
    CHECK(qb_node_of(g, qb_permute(g, turned, 3, INTEGERS(0, 2, 1)))->operands == qb_node_of(g, turned)->operands + 1 ||
          qb_operand(g, qb_node_of(g, qb_permute(g, turned, 3, INTEGERS(0, 2, 1))), 0) == x);
    qb_value once = qb_broadcast(g, row, SHAPE(2, 3), INTEGERS(1));
    qb_value twice = qb_broadcast(g, once, SHAPE(2, 5, 3), INTEGERS(0, 2));
    CHECK(twice == qb_broadcast(g, row, SHAPE(2, 5, 3), INTEGERS(2)));
    CHECK(qb_broadcast_to(g, x, SHAPE(2, 3, 4)) == x &&
          qb_slice(g, x, INTEGERS(0, 0, 0), INTEGERS(2, 3, 4), INTEGERS(1, 1, 1)) == x);
    CHECK(qb_reverse(g, x, 0, NULL) == x && qb_reduce_sum(g, x, 0, NULL) == x && qb_concat(g, 1, &x, 0) == x);
    OK(qb_graph_take_status(g));
    qb_graph_release(g);
}

/* ---- Whole graphs */

static void test_inlining(void)
{
    qb_graph *inner = create(), *outer = create();
    qb_value a = check_input(inner, QB_FLOAT64, SHAPE(2)), b = check_input(inner, QB_FLOAT64, SHAPE(2)), y[3], z[3];
    (void)qb_exp(inner, b); /* dead: is not copied */
    out(inner, qb_sin(inner, qb_add(inner, a, b)));
    out(inner, a);
    out(inner, qb_scalar(inner, QB_FLOAT64, 3));
    qb_value x = check_input(outer, QB_FLOAT64, SHAPE(2)), s = qb_sin(outer, x);
    OK(qb_inline(inner, outer, (qb_value[]){x, s}, y));
    OK(qb_inline(inner, outer, (qb_value[]){s, x}, z));
    CHECK(y[0] == z[0] && y[1] == x && z[1] == s && y[2] == z[2]);
    out(outer, y[0]);
    check_text(outer, "%0 = input : float64[2]\n%1 = sin(%0) : float64[2]\n%2 = add(%0, %1) : float64[2]\n"
                      "%3 = sin(%2) : float64[2]\nreturn %3\n");
    CHECK(outer->node_count == 5);
    OK(qb_verify(outer));
    qb_graph *like;
    OK(qb_graph_like(inner, &like));
    CHECK(like->input_count == 2 && like->output_count == 0 && like->node_count == 2);
    qb_graph_release(like);
    qb_graph_release(inner);
    qb_graph_release(outer);
}

static void test_text(void)
{
    qb_graph *g = create();
    qb_value x, c;
    OK(qb_graph_input(g, "params/w", QB_FLOAT64, SHAPE(2, 3), &x));
    qb_value unused = check_input(g, QB_BOOL, SCALAR);
    (void)unused;
    const double pair[] = {1.5, -0.0};
    static const double many[17];
    c = constant(g, check_tensor(QB_FLOAT32, SHAPE(2), pair));
    (void)qb_exp(g, x);
    out(g, qb_reduce_sum(g, qb_mul(g, x, qb_splat_like(g, x, 0.1)), 2, INTEGERS(0, 1)));
    out(g, c);
    out(g, constant(g, check_tensor(QB_FLOAT64, SHAPE(17), many)));
    out(g, qb_scalar(g, QB_INT64, 12345678));
    out(g, qb_scalar(g, QB_BOOL, 1));
    out(g, qb_pad(g, qb_convert(g, x, QB_INT32), INTEGERS(0, -1), INTEGERS(1, 0), INTEGERS(0, 2)));
    check_text(g, "%0 = input params/w : float64[2,3]\n"
                  "%1 = input : bool[]\n"
                  "%2 = constant value=[1.5, -0] : float32[2]\n"
                  "%3 = constant value=0.1 : float64[]\n"
                  "%4 = broadcast(%3) axes=[] : float64[2,3]\n"
                  "%5 = mul(%0, %4) : float64[2,3]\n"
                  "%6 = reduce_sum(%5) axes=[0,1] : float64[]\n"
                  "%7 = constant value=<17 elements> : float64[17]\n"
                  "%8 = constant value=12345678 : int64[]\n"
                  "%9 = constant value=1 : bool[]\n"
                  "%10 = convert(%0) : int32[2,3]\n"
                  "%11 = pad(%10) low=[0,-1] high=[1,0] interior=[0,2] : int32[3,6]\n"
                  "return %6, %2, %7, %8, %9, %11\n");
    qb_graph_release(g);
    g = create();
    check_text(g, "return\n");
    qb_graph_release(g);
}

/* ---- The verifier */

#define CAUGHT(change, undo, part)                                                                                     \
    do {                                                                                                               \
        OK(qb_verify(g));                                                                                              \
        change;                                                                                                        \
        FAILS(qb_verify(g), QB_ERROR_INTERNAL, part);                                                                  \
        undo;                                                                                                          \
    } while (0)

static void test_verifier(void)
{
    qb_graph *g = create();
    qb_value x = check_input(g, QB_FLOAT64, SHAPE(2)), y = check_input(g, QB_FLOAT64, SHAPE(2)), s = qb_add(g, x, y),
             t = qb_mul(g, s, y);
    out(g, t);
    qb_node *sum = &g->nodes[2], *product = &g->nodes[3];
    qb_value *operands = g->operands;
    CAUGHT(operands[product->operands] = t, operands[product->operands] = s, "does not come before");
    CAUGHT(operands[product->operands] = -1, operands[product->operands] = s, "does not come before");
    CAUGHT(sum->result = 1, sum->result = 2, "numbered");
    CAUGHT(sum->operand_count = 1, sum->operand_count = 2, "number of operands");
    CAUGHT(g->values[s].node = 3, g->values[s].node = 2, "does not know its node");
    CAUGHT(g->values[t].dtype = QB_FLOAT32, g->values[t].dtype = QB_FLOAT64, "type");
    CAUGHT(g->values[t].rank = 0, g->values[t].rank = 1, "type");
    CAUGHT(g->value_count = 5, g->value_count = 4, "5 values");
    CAUGHT(g->outputs[0] = 4, g->outputs[0] = t, "output 0");
    CAUGHT(g->inputs[1] = x, g->inputs[1] = y, "input 1");
    CAUGHT(g->inputs[0] = s, g->inputs[0] = x, "input 0");
    int32_t *from = &g->buckets[product->hash & (uint32_t)(g->bucket_count - 1)],
            *to = &g->buckets[sum->hash & (uint32_t)(g->bucket_count - 1)], from_was = *from, to_was = *to;
    CAUGHT(*to = -1, *to = to_was, "hash table");
    /* a product made equal to the sum, at the head of its bucket (which may be its own: hashes depend on addresses) */
    qb_node kept = *product;
    *product = *sum;
    product->result = t;
    product->next_in_bucket = kept.next_in_bucket;
    if (from != to) {
        *from = kept.next_in_bucket;
        product->next_in_bucket = to_was;
        *to = 3;
    }
    FAILS(qb_verify(g), QB_ERROR_INTERNAL, "equal to another");
    *product = kept;
    *to = to_was;
    *from = from_was;
    OK(qb_verify(g));
    qb_graph_release(g);
}

int main(void)
{
    test_equal_nodes_merge();
    test_many_nodes();
    test_constants();
    test_attributes();
    test_interface();
    test_live_marks();
    test_sticky_failures();
    test_what_operations_refuse();
    test_composed_views();
    test_inlining();
    test_text();
    test_verifier();
    return 0;
}
