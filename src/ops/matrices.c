#include "ops/matrices.h"

qb_status qb_check_lapack_count(const qb_inference *in, const qb_type *a, int64_t elements)
{
    if (elements > INT32_MAX)
        return qb_fail(
            QB_ERROR_VALUE,
            "%s: matrices of shape %s are too large: LAPACK counts extents and its workspace in 32 bits (at most "
            "2147483647), and this needs at least %lld; use smaller matrices",
            in->op->name, qb_print_shape(a->rank, a->shape).text, (long long)elements);
    return QB_OK;
}

qb_status qb_check_matrices(const qb_inference *in, const qb_type *a, bool square)
{
    if (!qb_dtype_is_floating(a->dtype))
        return qb_fail(QB_ERROR_VALUE, "%s: takes floating matrices, got %s; convert with astype", in->op->name,
                       qb_dtype_name(a->dtype));
    if (a->rank < 2 || (square && a->shape[a->rank - 1] != a->shape[a->rank - 2]))
        return qb_fail(QB_ERROR_VALUE, "%s: takes %smatrices in the last two axes, got shape %s", in->op->name,
                       square ? "square " : "", qb_print_shape(a->rank, a->shape).text);
    QB_TRY(qb_check_lapack_count(in, a, a->shape[a->rank - 2]));
    return qb_check_lapack_count(in, a, a->shape[a->rank - 1]);
}

qb_value qb_matrix_product(qb_graph *g, qb_value a, bool a_transposed, qb_value b, bool b_transposed)
{
    int64_t batch[QB_MAX_RANK];
    int rank = a < 0 ? 2 : qb_graph_rank(g, a);
    for (int i = 0; i < rank - 2; i++)
        batch[i] = i;
    return qb_dot(g, a, b, 1, (const int64_t[]){a_transposed ? rank - 2 : rank - 1},
                  (const int64_t[]){b_transposed ? rank - 1 : rank - 2}, rank - 2, batch, batch);
}

qb_value qb_matrix_transposed(qb_graph *g, qb_value a)
{
    int64_t order[QB_MAX_RANK];
    int rank = a < 0 ? 2 : qb_graph_rank(g, a);
    for (int i = 0; i < rank; i++)
        order[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    return qb_permute(g, a, rank, order);
}

qb_value qb_matrix_part(qb_graph *g, qb_value a, int place, int64_t first, int64_t limit)
{
    if (a < 0)
        return a;
    qb_type type;
    qb_value_type(g, a, &type);
    int64_t start[QB_MAX_RANK] = {0}, step[QB_MAX_RANK];
    for (int i = 0; i < type.rank; i++)
        step[i] = 1;
    start[type.rank - place] = first;
    type.shape[type.rank - place] = limit;
    return qb_slice(g, a, start, type.shape, step);
}

qb_value qb_is_in_part(qb_graph *g, qb_value like, qb_part_of_plane which)
{
    if (like < 0)
        return like;
    qb_type type;
    qb_value_type(g, like, &type);
    const int64_t *plane = type.shape + type.rank - 2;
    qb_value row = qb_iota(g, QB_INT64, 2, plane, 0), column = qb_iota(g, QB_INT64, 2, plane, 1);
    qb_value inside = which == QB_PART_LOWER   ? qb_less_equal(g, column, row)
                      : which == QB_PART_BELOW ? qb_less(g, column, row)
                                               : qb_equal(g, column, row);
    return qb_broadcast_to(g, inside, type.rank, type.shape);
}

qb_value qb_lower_part(qb_graph *graph, qb_value a, bool with_diagonal)
{
    qb_value inside = qb_is_in_part(graph, a, with_diagonal ? QB_PART_LOWER : QB_PART_BELOW);
    return a < 0 ? a : qb_select(graph, inside, a, qb_splat_like(graph, a, 0));
}

qb_value qb_upper_part(qb_graph *graph, qb_value a, bool with_diagonal)
{
    qb_value outside = qb_is_in_part(graph, a, with_diagonal ? QB_PART_BELOW : QB_PART_LOWER);
    return a < 0 ? a : qb_select(graph, outside, qb_splat_like(graph, a, 0), a);
}

qb_value qb_identity_like(qb_graph *graph, qb_value a)
{
    return a < 0 ? a : qb_convert(graph, qb_is_in_part(graph, a, QB_PART_DIAGONAL), qb_graph_dtype(graph, a));
}

double qb_matrix_count(const qb_graph *graph, qb_value a)
{
    const qb_value_info *info = &graph->values[a];
    double count = 1;
    for (int i = 0; i < info->rank - 2; i++)
        count *= (double)info->shape[i];
    return count;
}

double qb_extent_from_end(const qb_graph *graph, qb_value a, int place)
{
    return (double)graph->values[a].shape[graph->values[a].rank - place];
}
