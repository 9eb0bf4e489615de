/* What the rules of operations on matrices, in the last two axes, share. */
#ifndef QB_OPS_MATRICES_H
#define QB_OPS_MATRICES_H

#include "ops/build.h"

/* QB_ERROR_VALUE unless `a` is floating, and matrices, or square ones. */
qb_status qb_check_matrices(const qb_inference *in, const qb_type *a, bool square);

/* QB_ERROR_VALUE where LAPACK, for the matrices, cannot count so many elements. */
qb_status qb_check_lapack_count(const qb_inference *in, const qb_type *a, int64_t elements);

/* Products of matrices with equal batch axes, and transposes. */
qb_value qb_matrix_product(qb_graph *g, qb_value a, bool a_transposed, qb_value b, bool b_transposed);
qb_value qb_matrix_transposed(qb_graph *g, qb_value a);

/* Columns (place 1) or rows (place 2) first .. limit-1. */
qb_value qb_matrix_part(qb_graph *g, qb_value a, int place, int64_t first, int64_t limit);

/* Where places (i, j) of matrices have j <= i, j < i, or j == i, as bool of the shape of `like`. */
typedef enum qb_part_of_plane { QB_PART_LOWER, QB_PART_BELOW, QB_PART_DIAGONAL } qb_part_of_plane;
qb_value qb_is_in_part(qb_graph *g, qb_value like, qb_part_of_plane which);

/* For counting operations: how many matrices, and the extent of the last axis (place 1) or the one before (2). */
double qb_matrix_count(const qb_graph *graph, qb_value a);
double qb_extent_from_end(const qb_graph *graph, qb_value a, int place);

#endif
