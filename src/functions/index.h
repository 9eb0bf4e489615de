/* What the inside of x[...] selects: a regular part of x, and in it, elements by arrays of indices.
 *
 * Every index is read in two steps. The basic step takes slices, integers, None and ... , an axis with an array of
 * indices being taken whole: one slice, one reversal and one reshape of x. The second step gathers along the axes that
 * have arrays. NumPy's rule for the place of the gathered axes: where the first array stood when all arrays and
 * integers of the index are neighbours, else in front. */
#ifndef QB_FUNCTIONS_INDEX_H
#define QB_FUNCTIONS_INDEX_H

#include "functions/builder.h"

typedef struct qb_selection {
    qb_type type; /* of x */
    int axis;     /* of x, next to be indexed */
    int64_t start[QB_MAX_RANK], limit[QB_MAX_RANK], step[QB_MAX_RANK];
    int reversed_count;
    int64_t reversed[QB_MAX_RANK];
    int rank; /* of the basic step's result so far */
    int64_t shape[QB_MAX_RANK];
    int array_count;
    int array[QB_MAX_RANK];          /* which of the index arrays */
    int64_t array_axis[QB_MAX_RANK]; /* the axis of the basic step's result that it addresses */
    int array_source[QB_MAX_RANK];   /* that axis of x, for messages; -1: an axis of the index's own */
    bool arrays_in_front;            /* the gathered axes go to the front */
} qb_selection;

qb_status qb_select_index(qb_selection *selection, const qb_type *type, const qb_attribute *index);

/* ---- In a graph */

/* Arrays of indices, int64 and of one shape. */
typedef struct qb_places {
    int count, rank;
    int64_t shape[QB_MAX_RANK];
    qb_value value[QB_MAX_RANK];
    bool unique; /* known to address no element twice */
} qb_places;

/* The basic step. */
qb_value qb_select_part(qb_graph *graph, const qb_selection *selection, qb_value x);
/* The index arrays of the call, operands from `first` on, for axes with these extents. QB_ERROR_INDEX for dtypes
 * that are no integers, shapes that do not broadcast, and constants out of range. */
qb_status qb_take_places(const qb_call *call, const qb_selection *selection, int first, qb_places *out);
/* One index array for one axis, which has that extent. */
qb_status qb_take_place(const qb_call *call, int operand, const qb_type *type, int axis, qb_places *out);

/* The common shape of index arrays; QB_ERROR_INDEX where there is none. */
qb_status qb_places_shape(int count, const qb_type *types, int *rank, int64_t *shape);
/* The first axes [first..., second..., rest...] as [second..., first..., rest...]; `first` and `second` are their
 * numbers. */
qb_value qb_swap_blocks(qb_graph *graph, qb_value value, int first, int second);

/* ---- Values of index arrays */

/* QB_ERROR_INDEX, with the message. */
qb_status qb_fail_index(int64_t index, int axis, const qb_type *type);
/* QB_ERROR_INDEX when one of them is not within [-extent, extent). `axis` and `type` are for the message. */
qb_status qb_check_places(const qb_tensor *places, int64_t extent, int axis, const qb_type *type);

#endif
