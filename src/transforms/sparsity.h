/* Sparse derivatives: which elements of a result can depend on which elements of an input, and how few products with
 * the Jacobian show all of it. */
#ifndef QB_TRANSFORMS_SPARSITY_H
#define QB_TRANSFORMS_SPARSITY_H

#include "graph/graph.h"

/* The places of a matrix that may be other than zero: row r has columns column[start[r]] .. column[start[r + 1] - 1],
 * ascending. */
typedef struct qb_pattern {
    int64_t rows, columns;
    int64_t *start; /* rows + 1 of them */
    int32_t *column;
} qb_pattern;

void qb_pattern_end(qb_pattern *pattern); /* also of a zeroed one */

/* The pattern of d output / d input, elements in row-major order: an over-estimate, never an under-estimate. Found
 * by propagating sets of input elements through the graph (sparsity.c); QB_ERROR_VALUE where they become too many to
 * hold. */
qb_status qb_sparsity(const qb_graph *graph, int input, int output, qb_pattern *out);
qb_status qb_pattern_transpose(const qb_pattern *pattern, qb_pattern *out);
/* The pattern of A + A^T of a square A. */
qb_status qb_pattern_symmetric(const qb_pattern *pattern, qb_pattern *out);

/* Colours (colour.c), from 0 to *count - 1, one for each column. */

/* No row has two columns of one colour: a product with the sum of a colour's columns shows each of its entries
 * alone. */
qb_status qb_colour_columns(const qb_pattern *pattern, int32_t *colour, int32_t *count);
/* Of a symmetric pattern: for each entry (i, j), j is alone of its colour in row i, or i in row j. */
qb_status qb_colour_symmetric(const qb_pattern *pattern, int32_t *colour, int32_t *count);

/* How a matrix is evaluated in few products, and read back. */
typedef enum qb_compression {
    QB_COMPRESS_COLUMNS,  /* product k is the matrix times the sum of the columns' unit vectors of colour k */
    QB_COMPRESS_ROWS,     /* the transposed matrix times those of the rows */
    QB_COMPRESS_SYMMETRIC /* as of columns, each entry read from its own place or from the mirrored one */
} qb_compression;

/* place[e]: where entry e of the pattern stands in the products, [count, length of a product] in row-major order. */
qb_status qb_compressed_places(const qb_pattern *pattern, qb_compression kind, const int32_t *colour, int64_t *place);

#endif
