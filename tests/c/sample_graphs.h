/* Graphs that every transform, every pass and the failing allocator are tried on: each primitive alone, every way of
 * using its attributes, and some functions as users write them. */
#ifndef SAMPLE_GRAPHS_H
#define SAMPLE_GRAPHS_H

#include "check.h"

typedef struct sample {
    const char *name;
    const qb_op *op;                        /* of an elementwise sample */
    void (*build)(qb_graph *g, qb_dtype d); /* of the others: inputs, nodes, outputs */
    double low[2], high[2];                 /* range of the elements of input 0, and of the other inputs */
} sample;

static inline qb_value out(qb_graph *g, qb_value value)
{
    check_output(g, value);
    return value;
}

#define IN(...)   check_input(g, d, SHAPE(__VA_ARGS__))
#define IN_SCALAR check_input(g, d, SCALAR)
#define NUM(c, v) qb_splat_like(g, v, c)

/* ---- Elementwise rows: a function of the result that shows it whatever its dtype, from operands of the dtype it
 * takes */

static inline void build_elementwise(qb_graph *g, qb_dtype d, const qb_op *op)
{
    qb_value x[2] = {IN(3), op->arity == 2 ? IN(3) : QB_NONE}, operands[2] = {x[0], x[1]}, y;
    qb_type type = {.dtype = d}, result;
    qb_inference inference = {op, op->arity, (qb_type[]){type, type}, NULL, &result};
    if (op->infer(&inference) != QB_OK) /* takes bits */
        for (int i = 0; i < op->arity; i++)
            operands[i] = qb_less(g, NUM(0.6, x[i]), x[i]);
    y = qb_emit(g, op, op->arity, operands, NULL);
    CHECK(y >= 0, "%s", op->name);
    out(g, qb_graph_dtype(g, y) == QB_BOOL ? qb_select(g, y, qb_mul(g, x[0], x[0]), x[0]) : y);
}

static inline void build_select(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(4), y = IN(4), c = qb_less(g, x, NUM(0.6, x));
    out(g, qb_select(g, c, qb_mul(g, x, y), x));
    out(g, qb_select(g, c, NUM(2, x), qb_sin(g, y)));
    out(g, qb_select(g, c, y, y));
}

static inline void build_convert(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(4), whole = qb_convert(g, qb_mul(g, x, NUM(10, x)), QB_INT32);
    out(g, qb_mul(g, x, qb_convert(g, whole, d)));
    out(g, whole);
    out(g, qb_convert(g, qb_less(g, x, NUM(0.6, x)), d));
}

static inline void build_leaves(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2, 3), c;
    qb_tensor *constant = check_tensor(d, SHAPE(2, 3), (const double[]){1, -2, 3, 0.5, 0, 7});
    OK(qb_graph_constant(g, constant, &c));
    qb_tensor_release(constant);
    out(g, qb_mul(g, qb_add(g, x, c), qb_iota(g, d, SHAPE(2, 3), 1)));
    out(g, c);
    out(g, qb_iota(g, QB_INT64, SHAPE(4, 2), 0));
    out(g, x);
    out(g, x);
}

/* ---- Moving elements */

static inline void build_reshape(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2, 6), y = qb_reshape(g, qb_mul(g, x, x), SHAPE(3, 1, 4));
    out(g, qb_sin(g, y));
    out(g, qb_reshape(g, y, SHAPE(12)));
}

static inline void build_permute(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2, 3, 4), y = qb_permute(g, qb_mul(g, x, x), 3, INTEGERS(2, 0, 1));
    out(g, y);
    out(g, qb_permute(g, qb_sin(g, y), 3, INTEGERS(0, 2, 1)));
}

static inline void build_broadcast(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(1, 3), s = IN_SCALAR, y = qb_broadcast(g, qb_mul(g, x, x), SHAPE(2, 4, 5, 3), INTEGERS(1, 3));
    out(g, y);
    out(g, qb_mul(g, y, qb_broadcast_to(g, s, SHAPE(2, 4, 5, 3))));
    out(g, qb_broadcast(g, x, SHAPE(1, 3, 1), INTEGERS(0, 1)));
    out(g, qb_broadcast(g, x, SHAPE(0, 3), INTEGERS(0, 1)));
}

static inline void build_slice(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(5, 7), y = qb_mul(g, x, x);
    out(g, qb_slice(g, y, INTEGERS(1, 2), INTEGERS(4, 7), INTEGERS(1, 1)));
    out(g, qb_slice(g, y, INTEGERS(0, 1), INTEGERS(5, 7), INTEGERS(2, 3)));
    out(g, qb_slice(g, y, INTEGERS(3, 6), INTEGERS(4, 7), INTEGERS(9, 4)));
    out(g, qb_slice(g, y, INTEGERS(2, 0), INTEGERS(2, 6), INTEGERS(3, 2)));
}

static inline void build_reverse(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(3, 2, 4), y = qb_mul(g, x, x);
    out(g, qb_reverse(g, y, 1, INTEGERS(1)));
    out(g, qb_sin(g, qb_reverse(g, y, 2, INTEGERS(0, 2))));
}

static inline void build_pad(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(3, 4), y = qb_mul(g, x, x);
    out(g, qb_pad(g, y, INTEGERS(1, 0), INTEGERS(0, 2), INTEGERS(0, 0)));
    out(g, qb_pad(g, y, INTEGERS(0, 2), INTEGERS(1, 0), INTEGERS(2, 1)));
    out(g, qb_pad(g, y, INTEGERS(-1, -2), INTEGERS(3, -1), INTEGERS(0, 0)));
    out(g, qb_pad(g, y, INTEGERS(-1, 1), INTEGERS(-2, -3), INTEGERS(1, 2)));
    out(g, qb_pad(g, y, INTEGERS(-2, 0), INTEGERS(-1, 0), INTEGERS(0, 0)));
}

static inline void build_concat(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2, 3), y = IN(2, 1), z = qb_mul(g, x, x);
    out(g, qb_concat(g, 3, (qb_value[]){z, y, z}, 1));
    out(g, qb_concat(g, 3, (qb_value[]){NUM(2, z), z, qb_sin(g, x)}, 0));
    out(g, qb_concat(g, 2, (qb_value[]){check_input(g, d, SHAPE(2, 0)), y}, 1));
}

/* ---- Elements by index */

/* Indices that depend on an input (no derivative flows through them): integers between -6 and 6, some of them equal. */
static inline qb_value places(qb_graph *g, qb_value t)
{
    return qb_convert(g, qb_mul(g, t, NUM(6, t)), QB_INT64);
}

static inline qb_value constant_places(qb_graph *g, int rank, const int64_t *shape, const double *values)
{
    qb_value c;
    qb_tensor *constant = check_tensor(QB_INT64, rank, shape, values);
    OK(qb_graph_constant(g, constant, &c));
    qb_tensor_release(constant);
    return c;
}

static inline void build_gather(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(4, 5, 3), i = places(g, IN(2, 3)), k = places(g, IN(4, 2)), y = qb_mul(g, x, x);
    qb_value pair[] = {i, constant_places(g, SHAPE(2, 3), (const double[]){0, -1, 2, 1, 7, 0})};
    qb_value one = constant_places(g, SCALAR, (const double[]){-2});
    out(g, qb_gather(g, y, 1, &i, INTEGERS(1), 0, QB_BOUNDS_CLAMP));
    out(g, qb_sin(g, qb_gather(g, y, 2, pair, INTEGERS(0, 2), 0, QB_BOUNDS_DROP)));
    out(g, qb_gather(g, y, 1, &k, INTEGERS(2), 1, QB_BOUNDS_CLAMP));
    out(g, qb_gather(g, y, 1, &k, INTEGERS(1), 1, QB_BOUNDS_DROP));
    out(g, qb_gather(g, y, 1, &one, INTEGERS(1), 0, QB_BOUNDS_CLAMP));
}

/* The value on a grid that no other value with another offset, and no other element of it, comes near: no ties. */
static inline qb_value without_ties(qb_graph *g, qb_value v, double offset)
{
    qb_type type;
    int64_t size = qb_value_size(g, v);
    qb_value_type(g, v, &type);
    qb_value grid = qb_reshape(g, qb_iota(g, type.dtype, 1, &size, 0), type.rank, type.shape);
    grid = qb_add(g, qb_mul(g, grid, NUM(0.1, v)), NUM(offset, v));
    return qb_add(g, grid, qb_mul(g, qb_sin(g, v), NUM(0.01, v)));
}

static inline void build_scatter(qb_graph *g, qb_dtype d, const qb_op *op)
{
    qb_value x = IN(3, 4), u = IN(3, 2, 3), t = IN(2, 3), v = IN(2, 3), y = qb_mul(g, x, x);
    if (op == &qb_op_scatter_max || op == &qb_op_scatter_min) {
        x = without_ties(g, x, 0);
        y = without_ties(g, y, 0);
        u = without_ties(g, u, 0.03);
        v = without_ties(g, v, 0.06);
    }
    qb_value i = places(g, t), k = constant_places(g, SHAPE(3, 2), (const double[]){0, 0, -1, 5, 2, 2});
    qb_value pair[] = {i, constant_places(g, SHAPE(2, 3), (const double[]){0, -1, 2, 1, 7, 0})};
    qb_value column[] = {constant_places(g, SHAPE(2), (const double[]){3, 1})};
    out(g, qb_scatter(g, op, y, u, 1, &i, INTEGERS(1), 0, QB_BOUNDS_DROP, false));
    out(g, qb_scatter(g, op, x, v, 2, pair, INTEGERS(0, 1), 0, QB_BOUNDS_CLAMP, false));
    out(g,
        qb_scatter(g, op, y, qb_slice(g, qb_reshape(g, u, SHAPE(3, 6)), INTEGERS(0, 1), INTEGERS(3, 3), INTEGERS(1, 1)),
                   1, &k, INTEGERS(1), 1, QB_BOUNDS_DROP, false));
    out(g, qb_scatter(g, op, y, qb_permute(g, v, 2, INTEGERS(1, 0)), 1, column, INTEGERS(1), 0, QB_BOUNDS_DROP, true));
}

#define SCATTER_BUILDER(kind)                                                                                          \
    static inline void build_scatter_##kind(qb_graph *g, qb_dtype d)                                                   \
    {                                                                                                                  \
        build_scatter(g, d, &qb_op_scatter_##kind);                                                                    \
    }
SCATTER_BUILDER(set)
SCATTER_BUILDER(add)
SCATTER_BUILDER(mul)
SCATTER_BUILDER(max)
SCATTER_BUILDER(min)
#undef SCATTER_BUILDER

static inline void build_writers(qb_graph *g, qb_dtype d)
{
    qb_value i = places(g, IN(3, 4));
    const qb_attribute attributes[] = {qb_ints(1, INTEGERS(5)), qb_int(1), qb_int(QB_BOUNDS_DROP)};
    out(g, qb_emit(g, &qb_op_writers, 1, &i, attributes));
}

static inline void build_insert(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(5, 7), u = IN(2, 3), y = qb_mul(g, x, x), z = qb_sin(g, u);
    out(g, qb_insert(g, y, z, INTEGERS(1, 2), INTEGERS(1, 1)));
    out(g, qb_insert(g, y, z, INTEGERS(0, 0), INTEGERS(4, 3)));
    out(g, qb_insert(g, z, qb_slice(g, y, INTEGERS(0, 1), INTEGERS(2, 3), INTEGERS(1, 1)), INTEGERS(0, 1),
                     INTEGERS(1, 1)));
    out(g, qb_insert(g, qb_mul(g, u, u), z, INTEGERS(0, 0), INTEGERS(1, 1)));
}

/* ---- Linear algebra */

/* Well conditioned matrices; `turned`: upside down, so that rows are exchanged. */
static inline qb_value conditioned(qb_graph *g, qb_value x, bool turned)
{
    int64_t axis = qb_graph_rank(g, x) - 2;
    x = qb_add(g, x, qb_mul(g, qb_identity_like(g, x), NUM(8, x)));
    return turned ? qb_reverse(g, x, 1, &axis) : x;
}

static inline void build_cholesky(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2, 3, 3), l = qb_cholesky(g, conditioned(g, x, false));
    out(g, l);
    out(g, qb_cholesky(g, check_input(g, d, SHAPE(2, 0, 0))));
    out(g, qb_sin(g, qb_cholesky(g, conditioned(g, qb_mul(g, x, x), false))));
}

static inline void build_triangular_solve(qb_graph *g, qb_dtype d)
{
    qb_value a = conditioned(g, IN(2, 3, 3), false), b = IN(2, 3, 2), v = IN(3, 1), w = IN(4, 3);
    qb_value one = conditioned(g, IN(3, 3), false);
    out(g, qb_triangular_solve(g, a, b, QB_SOLVE_LOWER));
    out(g, qb_triangular_solve(g, a, b, QB_SOLVE_UNIT | QB_SOLVE_TRANSPOSED));
    out(g, qb_triangular_solve(g, one, qb_mul(g, v, v), 0));
    out(g, qb_triangular_solve(g, one, w, QB_SOLVE_RIGHT | QB_SOLVE_LOWER | QB_SOLVE_TRANSPOSED));
}

static inline void build_lu(qb_graph *g, qb_dtype d)
{
    qb_value a = IN(2, 3, 3), wide = IN(2, 4), tall = IN(4, 3), results[3];
    qb_lu(g, conditioned(g, a, true), results);
    out(g, results[0]);
    out(g, results[1]);
    out(g, results[2]);
    out(g, qb_permutation(g, results[1], 3));
    for (int i = 0; i < 2; i++) {
        qb_lu(g, conditioned(g, i ? tall : wide, true), results);
        out(g, results[0]);
    }
}

static inline void build_lu_solve(qb_graph *g, qb_dtype d)
{
    qb_value b = IN(2, 3, 2), c = IN(2, 1, 3), v = IN(3, 1), many[4], one[4];
    many[0] = conditioned(g, IN(2, 3, 3), true);
    one[0] = conditioned(g, IN(3, 3), true);
    qb_lu(g, many[0], many + 1);
    qb_lu(g, one[0], one + 1);
    out(g, qb_lu_solve(g, many, b, 0));
    out(g, qb_lu_solve(g, many, qb_mul(g, c, c), QB_SOLVE_RIGHT));
    out(g, qb_lu_solve(g, one, v, QB_SOLVE_TRANSPOSED));
    out(g, qb_lu_solve(g, one, qb_reshape(g, b, SHAPE(4, 3)), QB_SOLVE_TRANSPOSED | QB_SOLVE_RIGHT));
}

static inline void build_determinant(qb_graph *g, qb_dtype d)
{
    qb_value factored[4] = {conditioned(g, IN(2, 3, 3), true)}, results[3];
    qb_lu(g, factored[0], factored + 1);
    qb_determinant(g, factored, results);
    out(g, results[0]);
    out(g, results[1]);
    out(g, qb_mul(g, results[2], NUM(0.01, results[2])));
}

/* Eigenvalues and singular values far apart. */
static inline qb_value spread_out(qb_graph *g, qb_value x)
{
    qb_type type;
    qb_value_type(g, x, &type);
    qb_value row = qb_iota(g, type.dtype, type.rank, type.shape, type.rank - 2);
    return qb_add(g, x, qb_mul(g, qb_identity_like(g, x), qb_mul(g, NUM(8, x), qb_add(g, row, NUM(1, row)))));
}

static inline void build_eigh(qb_graph *g, qb_dtype d)
{
    qb_value results[2];
    qb_eigh(g, spread_out(g, IN(2, 3, 3)), results);
    out(g, results[0]);
    out(g, qb_sin(g, results[1]));
    qb_eigh(g, check_input(g, d, SHAPE(2, 0, 0)), results);
    out(g, results[1]);
}

static inline void build_svd(qb_graph *g, qb_dtype d)
{
    qb_value tall = spread_out(g, IN(2, 3, 2)), wide = spread_out(g, IN(2, 3)), results[3];
    qb_svd(g, tall, false, results);
    for (int i = 0; i < 3; i++)
        out(g, results[i]);
    qb_svd(g, wide, true, results);
    for (int i = 0; i < 2; i++)
        out(g, results[i]);
}

static inline void build_singular_values(qb_graph *g, qb_dtype d)
{
    out(g, qb_singular_values(g, spread_out(g, IN(2, 3, 2))));
    out(g, qb_sin(g, qb_singular_values(g, spread_out(g, IN(2, 3)))));
    out(g, qb_singular_values(g, check_input(g, d, SHAPE(2, 0, 3))));
}

static inline void build_qr(qb_graph *g, qb_dtype d)
{
    qb_value tall = spread_out(g, IN(2, 3, 2)), square = spread_out(g, IN(3, 3)), results[2];
    for (int complete = 0; complete < 2; complete++) {
        qb_qr(g, square, complete, results);
        out(g, results[0]);
        qb_qr(g, tall, complete, results);
        out(g, results[1]);
    }
    qb_qr(g, tall, false, results);
    out(g, results[0]);
}

static inline void build_pseudo_inverse(qb_graph *g, qb_dtype d)
{
    qb_value factored[4] = {conditioned(g, IN(2, 3, 3), true)};
    qb_lu(g, factored[0], factored + 1);
    qb_value inverse = qb_lu_solve(g, factored, qb_identity_like(g, factored[0]), 0);
    out(g, qb_pseudo_inverse(g, factored[0], inverse));
}

/* ---- Reductions */

static inline void build_sum(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2, 3, 4), y = qb_mul(g, x, x);
    out(g, qb_reduce_sum(g, y, 3, INTEGERS(0, 1, 2)));
    out(g, qb_reduce_sum(g, y, 1, INTEGERS(1)));
    out(g, qb_reduce_sum(g, y, 2, INTEGERS(0, 2)));
    out(g, qb_sin(g, qb_reduce_sum(g, check_input(g, d, SHAPE(2, 0)), 1, INTEGERS(1))));
}

static inline void build_prod(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2, 5, 3);
    out(g, qb_reduce_prod(g, x, 1, INTEGERS(1)));
    out(g, qb_reduce_prod(g, x, 2, INTEGERS(0, 2)));
    out(g, qb_reduce_prod(g, x, 3, INTEGERS(0, 1, 2)));
    out(g, qb_reduce_prod(g, check_input(g, d, SHAPE(0, 2)), 1, INTEGERS(0)));
}

static inline void build_extrema(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(3, 5), y = qb_mul(g, x, qb_sin(g, x));
    out(g, qb_reduce_max(g, y, 1, INTEGERS(1)));
    out(g, qb_reduce_min(g, y, 1, INTEGERS(0)));
    out(g, qb_mul(g, qb_reduce_max(g, y, 2, INTEGERS(0, 1)), qb_reduce_min(g, y, 2, INTEGERS(0, 1))));
}

static void build_norms(qb_graph *g, qb_dtype d)
{
    qb_value y = qb_mul(g, IN(2, 3, 4), IN(2, 3, 4));
    out(g, qb_reduce_norm(g, y, 3, INTEGERS(0, 1, 2)));
    out(g, qb_reduce_norm(g, y, 1, INTEGERS(1)));
    out(g, qb_reduce_norm(g, y, 2, INTEGERS(0, 2)));
    out(g, qb_reduce_norm(g, check_input(g, d, SHAPE(2, 1)), 1, INTEGERS(1)));
    out(g, qb_reduce_norm(g, check_input(g, d, SHAPE(2, 0)), 1, INTEGERS(1)));
}

/* ---- Products: AxBxC... names the axes of the operands, one letter an axis; equal letters of both are contracted
 * in the order of `contract`, or are batch axes when they stand in `batch`. */

static inline qb_value product(qb_graph *g, qb_value a, const char *a_axes, qb_value b, const char *b_axes,
                               const char *contract, const char *batch)
{
    int64_t places[4][QB_MAX_RANK];
    const char *axes[2] = {a_axes, b_axes};
    for (int operand = 0; operand < 2; operand++) {
        for (int i = 0; contract[i]; i++)
            places[operand][i] = strchr(axes[operand], contract[i]) - axes[operand];
        for (int i = 0; batch[i]; i++)
            places[2 + operand][i] = strchr(axes[operand], batch[i]) - axes[operand];
    }
    return qb_dot(g, a, b, (int)strlen(contract), places[0], places[1], (int)strlen(batch), places[2], places[3]);
}

/* The extents of the letters: i 2, j 3, k 4, l 5, m 1, n 0. */
static inline qb_value lettered_input(qb_graph *g, qb_dtype d, const char *axes)
{
    int64_t shape[QB_MAX_RANK];
    for (int i = 0; axes[i]; i++)
        shape[i] = (const int64_t[]){2, 3, 4, 5, 1, 0}[axes[i] - 'i'];
    return check_input(g, d, (int)strlen(axes), shape);
}

static inline void build_product(qb_graph *g, qb_dtype d, const char *a_axes, const char *b_axes, const char *contract,
                                 const char *batch)
{
    qb_value a = lettered_input(g, d, a_axes), b = lettered_input(g, d, b_axes);
    out(g, product(g, a, a_axes, b, b_axes, contract, batch));
}

#define PRODUCT(name, a, b, contract, batch)                                                                           \
    static inline void build_dot_##name(qb_graph *g, qb_dtype d)                                                       \
    {                                                                                                                  \
        build_product(g, d, a, b, contract, batch);                                                                    \
    }
#define PRODUCTS(ROW)                                                                                                  \
    ROW(inner, "k", "k", "k", "")                                                                                      \
    ROW(outer, "ij", "kl", "", "")                                                                                     \
    ROW(scalars, "", "", "", "")                                                                                       \
    ROW(scalar_by_array, "", "jk", "", "")                                                                             \
    ROW(rows, "ij", "jk", "j", "")                                                                                     \
    ROW(left_transposed, "ji", "jk", "j", "")                                                                          \
    ROW(right_transposed, "ij", "kj", "j", "")                                                                         \
    ROW(both_transposed, "ji", "kj", "j", "")                                                                          \
    ROW(by_vector, "ijk", "j", "j", "")                                                                                \
    ROW(two_axes, "ijk", "jkl", "jk", "")                                                                              \
    ROW(two_axes_swapped, "ijk", "kjl", "jk", "")                                                                      \
    ROW(two_axes_named_backwards, "ijk", "lkj", "kj", "")                                                              \
    ROW(three_axes_mixed, "likj", "kijl", "jki", "")                                                                   \
    ROW(batch_front, "ijk", "ikl", "k", "i")                                                                           \
    ROW(batch_back, "jki", "kli", "k", "i")                                                                            \
    ROW(batch_middle, "jik", "kil", "k", "i")                                                                          \
    ROW(batch_apart, "ijk", "kli", "k", "i")                                                                           \
    ROW(batch_only, "ij", "ji", "", "ij")                                                                              \
    ROW(two_batch_swapped, "ijkl", "ljim", "l", "ji")                                                                  \
    ROW(batch_and_two_contracted, "kijl", "jlik", "lk", "i")                                                           \
    ROW(everything, "lkji", "mikl", "lk", "i")                                                                         \
    ROW(no_term, "in", "nj", "n", "")                                                                                  \
    ROW(no_element, "nj", "jk", "j", "")
PRODUCTS(PRODUCT)

static inline void build_dot_with_itself(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(3, 3), y = IN(3);
    out(g, product(g, x, "ij", x, "ij", "j", ""));
    out(g, product(g, product(g, y, "i", x, "ij", "i", ""), "j", y, "j", "j", ""));
}

/* ---- Along an axis */

static inline void build_recurrence(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2, 5, 3), a = IN(2, 5, 3), y = qb_mul(g, x, x);
    out(g, qb_recurrence(g, y, a, 1, false, false));
    out(g, qb_recurrence(g, y, qb_sin(g, a), 2, true, true));
    out(g, qb_recurrence(g, NUM(1, x), a, 0, true, false));
    out(g, qb_recurrence(g, a, a, 1, false, true));
}

static inline void build_running_sum(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(2, 5, 3), y = qb_mul(g, x, x);
    out(g, qb_recurrence(g, y, QB_NONE, 1, false, false));
    out(g, qb_sin(g, qb_recurrence(g, y, QB_NONE, 2, true, false)));
    out(g, qb_recurrence(g, check_input(g, d, SHAPE(2, 0)), QB_NONE, 0, false, false));
    out(g, qb_recurrence(g, check_input(g, d, SHAPE(2, 1)), QB_NONE, 1, false, false));
    out(g, qb_recurrence(g, check_input(g, d, SHAPE(4)), QB_NONE, 0, true, false));
}

/* Numbers whose order a small step does not change. */
static inline qb_value apart(qb_graph *g, qb_value x, int axis)
{
    qb_type type;
    qb_value_type(g, x, &type);
    qb_value places = qb_iota(g, type.dtype, type.rank, type.shape, axis);
    return qb_add(g, qb_mul(g, NUM(0.05, x), x), qb_sin(g, qb_mul(g, NUM(2.4, x), places)));
}

static inline void build_order(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(3, 5), v = IN(4), keys = apart(g, x, 1), places = qb_argsort(g, keys, 1);
    out(g, places);
    out(g, qb_gather(g, qb_mul(g, x, x), 1, &places, INTEGERS(1), 1, QB_BOUNDS_CLAMP));
    out(g, qb_argsort(g, apart(g, x, 0), 0));
    out(g, qb_argmax(g, keys, 1));
    out(g, qb_mul(g, qb_sort(g, keys, 1), x));
    out(g, qb_sort(g, apart(g, x, 0), 0));
    out(g, qb_argmin(g, apart(g, x, 0), 0));
    qb_value sorted = qb_gather(g, keys, 1, &places, INTEGERS(1), 1, QB_BOUNDS_CLAMP);
    out(g, qb_searchsorted(g, sorted, x, false, 1));
    qb_value first = qb_reshape(g, qb_slice(g, sorted, INTEGERS(0, 0), INTEGERS(1, 5), INTEGERS(1, 1)), SHAPE(5));
    out(g, qb_searchsorted(g, first, v, true, 0));
    out(g, qb_mul(g, v, qb_convert(g, qb_searchsorted(g, first, v, false, 0), d)));
}

static inline void build_polygamma(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(4);
    out(g, qb_polygamma(g, NUM(1, x), x));
    out(g, qb_polygamma(g, NUM(4, x), x));
}

/* ---- Functions */

/* mean((w2 tanh(x w1 + b1) + b2 - sin(pi x))^2) */
static inline void build_network(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(6, 1), w1 = IN(1, 4), b1 = IN(4), w2 = IN(4, 1), b2 = IN_SCALAR;
    qb_value hidden =
        qb_tanh(g, qb_add(g, product(g, x, "im", w1, "mk", "m", ""), qb_broadcast_to(g, b1, SHAPE(6, 4))));
    qb_value u = qb_add(g, product(g, hidden, "ik", w2, "km", "k", ""), qb_broadcast_to(g, b2, SHAPE(6, 1)));
    qb_value error = qb_sub(g, u, qb_sin(g, qb_mul(g, NUM(M_PI, x), x)));
    qb_value sum = qb_reduce_sum(g, qb_mul(g, error, error), 2, INTEGERS(0, 1));
    out(g, qb_div(g, sum, NUM(6, sum)));
}

/* softmax along the last axis, with its maximum taken out first */
static inline void build_softmax(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(3, 5), largest = qb_stop_gradient(g, qb_reduce_max(g, x, 1, INTEGERS(1)));
    qb_value e = qb_exp(g, qb_sub(g, x, qb_broadcast(g, largest, SHAPE(3, 5), INTEGERS(0))));
    qb_value sum = qb_reduce_sum(g, e, 1, INTEGERS(1));
    out(g, qb_div(g, e, qb_broadcast(g, sum, SHAPE(3, 5), INTEGERS(0))));
}

static inline void build_scalar(qb_graph *g, qb_dtype d)
{
    qb_value x = IN_SCALAR;
    out(g, qb_exp(g, qb_sin(g, qb_mul(g, x, x))));
}

/* By its only input, the gradient is made in both modes and the cheaper one kept (passes/gradient.c). */
static inline void build_outer_sum(qb_graph *g, qb_dtype d)
{
    qb_value x = qb_broadcast_to(g, IN_SCALAR, SHAPE(8));
    qb_value rows = qb_broadcast(g, qb_sin(g, x), SHAPE(8, 8), INTEGERS(0));
    qb_value columns = qb_broadcast(g, qb_exp(g, x), SHAPE(8, 8), INTEGERS(1));
    out(g, qb_reduce_sum(g, qb_mul(g, rows, columns), 2, INTEGERS(0, 1)));
}

#include "sample_regions.h"

#define POSITIVE                                                                                                       \
    {0.3, 0.3},                                                                                                        \
    {                                                                                                                  \
        0.9, 0.9                                                                                                       \
    }
#define SIGNED                                                                                                         \
    {-0.9, -0.9},                                                                                                      \
    {                                                                                                                  \
        0.9, 0.9                                                                                                       \
    }

static inline void build_print(qb_graph *g, qb_dtype d)
{
    qb_value x = IN(3), y = qb_sin(g, x);
    OK(qb_graph_print(g, "{} {}", 2, (qb_value[]){x, y}));
    OK(qb_graph_print(g, "nothing", 0, NULL));
    out(g, qb_mul(g, x, y));
}

static const sample structural_samples[] = {
    {"print", NULL, build_print, SIGNED},
    {"select", NULL, build_select, POSITIVE},
    {"convert", NULL, build_convert, POSITIVE},
    {"leaves", NULL, build_leaves, SIGNED},
    {"reshape", NULL, build_reshape, SIGNED},
    {"permute", NULL, build_permute, SIGNED},
    {"broadcast", NULL, build_broadcast, SIGNED},
    {"slice", NULL, build_slice, SIGNED},
    {"reverse", NULL, build_reverse, SIGNED},
    {"pad", NULL, build_pad, SIGNED},
    {"concat", NULL, build_concat, SIGNED},
    {"gather", NULL, build_gather, SIGNED},
    {"scatter_set", NULL, build_scatter_set, SIGNED},
    {"scatter_add", NULL, build_scatter_add, SIGNED},
    {"scatter_mul", NULL, build_scatter_mul, SIGNED},
    {"scatter_max", NULL, build_scatter_max, SIGNED},
    {"scatter_min", NULL, build_scatter_min, SIGNED},
    {"writers", NULL, build_writers, SIGNED},
    {"insert", NULL, build_insert, SIGNED},
    {"cholesky", NULL, build_cholesky, SIGNED},
    {"triangular_solve", NULL, build_triangular_solve, SIGNED},
    {"lu, permutation", NULL, build_lu, SIGNED},
    {"lu_solve", NULL, build_lu_solve, SIGNED},
    {"determinant", NULL, build_determinant, SIGNED},
    {"eigh", NULL, build_eigh, SIGNED},
    {"svd", NULL, build_svd, SIGNED},
    {"singular_values", NULL, build_singular_values, SIGNED},
    {"qr", NULL, build_qr, SIGNED},
    {"pseudo_inverse", NULL, build_pseudo_inverse, SIGNED},
    {"reduce_sum", NULL, build_sum, SIGNED},
    {"reduce_prod", NULL, build_prod, SIGNED},
    {"reduce_max, reduce_min", NULL, build_extrema, SIGNED},
    {"reduce_norm", NULL, build_norms, SIGNED},
#define PRODUCT_SAMPLE(name, a, b, contract, batch) {"dot_" #name, NULL, build_dot_##name, SIGNED},
    PRODUCTS(PRODUCT_SAMPLE)
#undef PRODUCT_SAMPLE
        {"dot_with_itself", NULL, build_dot_with_itself, SIGNED},
    {"recurrence", NULL, build_recurrence, SIGNED},
    {"running sum", NULL, build_running_sum, SIGNED},
    {"sort, argsort, argmax, argmin, searchsorted", NULL, build_order, SIGNED},
    {"polygamma", NULL, build_polygamma, POSITIVE},
    {"scan", NULL, build_scan, SIGNED},
    {"counted loop", NULL, build_counted_loop, SIGNED},
    {"while", NULL, build_while, SIGNED},
    {"nested loop", NULL, build_nested_loop, SIGNED},
    {"odd loops", NULL, build_odd_loops, SIGNED},
    {"switch", NULL, build_switch, SIGNED},
    {"checkpoint", NULL, build_checkpoint, SIGNED},
    {"custom_jvp", NULL, build_custom_jvp, SIGNED},
    {"network", NULL, build_network, SIGNED},
    {"softmax", NULL, build_softmax, SIGNED},
    {"scalar", NULL, build_scalar, SIGNED},
    {"outer sum", NULL, build_outer_sum, SIGNED},
};

/* Those without a forward mode, or without a derivative. */
static const sample underivable_samples[] = {
    {"custom_vjp", NULL, build_custom_vjp, SIGNED},
    {"custom_end", NULL, build_custom_end, SIGNED},
};

enum { STRUCTURAL_SAMPLES = sizeof structural_samples / sizeof *structural_samples };

/* Elementwise samples: row `index` of the list of ops, on positive numbers, or (`negative`) on negative ones; false
 * where the op is not elementwise, or has no such domain. Ranges keep clear of kinks and jumps. */
static inline bool elementwise_sample(int index, bool negative, sample *s)
{
    static const sample special[] = {
        {"fmod", NULL, NULL, {3.1, 0.9}, {3.4, 0.97}},   {"floor_divide", NULL, NULL, {3.1, 0.9}, {3.4, 0.97}},
        {"max", NULL, NULL, {0.3, 0.6}, {0.5, 0.9}},     {"min", NULL, NULL, {0.3, 0.6}, {0.5, 0.9}},
        {"less", NULL, NULL, {0.3, 0.6}, {0.5, 0.9}},    {"less_equal", NULL, NULL, {0.3, 0.6}, {0.5, 0.9}},
        {"bit_not", NULL, NULL, {0.3, 0.3}, {0.5, 0.5}}, {"bit_and", NULL, NULL, {0.3, 0.7}, {0.5, 0.9}},
        {"bit_or", NULL, NULL, {0.3, 0.7}, {0.5, 0.9}},  {"bit_xor", NULL, NULL, {0.3, 0.7}, {0.5, 0.9}},
        {"round", NULL, NULL, {0.6, 0.6}, {0.9, 0.9}},   {"arccosh", NULL, NULL, {1.2, 1.2}, {1.9, 1.9}},
    };
    static const char *const positive_only[] = {"sqrt", "root", "log", "log2", "log10", "log1p", "pow", "arccosh"};
    const qb_op *op = qb_ops[index];
    if (!(op->flags & QB_OP_ELEMENTWISE) || op->arity > 2 || op->attribute_count > 0 || op == &qb_op_stop_gradient ||
        op == &qb_op_polygamma)
        return false;
    *s = (sample){op->name, op, NULL, POSITIVE};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if (strcmp(special[i].name, op->name) == 0) {
            memcpy(s->low, special[i].low, sizeof s->low);
            memcpy(s->high, special[i].high, sizeof s->high);
        }
    for (size_t i = 0; negative && i < sizeof positive_only / sizeof *positive_only; i++)
        if (strcmp(positive_only[i], op->name) == 0)
            return false;
    for (int i = 0; negative && i < 2; i++) {
        double low = s->low[i];
        s->low[i] = -s->high[i];
        s->high[i] = -low;
    }
    return true;
}

static inline qb_graph *build_sample(const sample *s, qb_dtype dtype)
{
    qb_graph *g;
    OK(qb_graph_create(&g));
    if (s->op)
        build_elementwise(g, dtype, s->op);
    else
        s->build(g, dtype);
    OK(qb_graph_take_status(g));
    OK(qb_verify(g));
    return g;
}

/* Whether a small step from x could cross where the samples choose by value: comparisons with 0.6, `places`, and whole
 * tenths. */
static inline bool is_near_jump(double x)
{
    return fabs(fabs(x) - 0.6) < 0.01 || fabs(6 * x - round(6 * x)) < 0.03 || fabs(10 * x - round(10 * x)) < 0.05;
}

/* Inputs for a graph: elements in the sample's ranges, the same for the inputs that a transform adds as for the
 * later ones. */
static inline void sample_inputs(const sample *s, const qb_graph *g, qb_tensor **inputs)
{
    for (int i = 0; i < g->input_count; i++) {
        const qb_value_info *info = &g->values[g->inputs[i]];
        inputs[i] = check_tensor(info->dtype, info->rank, info->shape, NULL);
        for (int64_t k = 0; k < inputs[i]->size; k++) {
            int range = i > 0;
            double x;
            do
                x = s->low[range] + (s->high[range] - s->low[range]) * check_random();
            while (is_near_jump(x));
            qb_dtype_store(info->dtype, x, (char *)inputs[i]->data + (size_t)k * qb_dtype_size(info->dtype));
        }
    }
}

#undef IN
#undef IN_SCALAR
#undef NUM
#undef POSITIVE
#undef SIGNED

#endif
