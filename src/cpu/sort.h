/* Sorting rows of elements, or their places; stable, NaN last, zeros of both signs equal.
 *
 * Elements are dealt out by digits, monotone functions of their value, until at most QB_SORT_FEW share one; those
 * are put where the numbers of smaller ones say. A digit is linear in the value within the range that is present or,
 * where that would leave most elements together, in the integer that orders floating-point numbers, so that each
 * step takes bits off the range; what is still badly spread is merged. So the worst case is a few times the usual
 * one. Long rows are dealt out by all threads first, in fixed chunks, to some hundred buckets that a sample has cut
 * to about the same size; each bucket is then sorted by one thread, in its caches. All steps keep the order of equal
 * elements, so that the result is the same however the work is cut.
 *
 * The loops are compiled once per instruction set (sort_loops.c); sort.c has the threads, the memory, and the axes. */
#ifndef QB_CPU_SORT_H
#define QB_CPU_SORT_H

#include "base/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QB_SORT_FEW = 32,
    QB_SORT_CELLS = 1 << 13,  /* digits of a long row */
    QB_SORT_BUCKETS = 512,    /* of a long row, at most; NaN have one more */
    QB_SORT_SAMPLE = 1 << 12, /* elements of a long row that say how to cut it */
};

/* Elements as they are sorted, and where they were (NULL: not wanted). */
typedef struct qb_sort_run {
    void *keys;
    int64_t *places;
} qb_sort_run;

/* A digit: of (x - lowest) * scale, or of (key of x - lowest_key) >> shift, within 0 .. last. */
typedef struct qb_sort_rule {
    bool by_value;
    double lowest, scale;
    int64_t lowest_key, highest_key;
    int shift;
    int32_t last;
} qb_sort_rule;

/* How the elements of a long row are dealt out: by digits (a NaN's is QB_SORT_CELLS), several of which share a
 * bucket. */
typedef struct qb_sort_deal {
    qb_sort_rule rule;
    int buckets; /* without that of NaN, which follows */
    uint16_t bucket[QB_SORT_CELLS + 1];
    int64_t sample[3 * QB_SORT_SAMPLE]; /* room, as is this: */
    uint32_t digit[QB_SORT_SAMPLE];
} qb_sort_deal;

/* Of one element type. Elements outside are signed ones, or have the bits `flip` flipped. */
typedef struct qb_sort_type_loops {
    bool (*is_ascending)(const void *elements, int64_t n, uint64_t flip);
    /* The deal for a row; `round`: how often elements of it have been dealt out before. False: all are equal (round
     * > 0). */
    bool (*plan)(qb_sort_deal *deal, const void *elements, int64_t n, uint64_t flip, int round);
    /* The bucket of each element, and how many there are in each. */
    void (*count)(const qb_sort_deal *deal, const void *elements, int64_t n, uint64_t flip, uint16_t *bucket,
                  int64_t *count);
    /* The rest once without places and once with them. `next`: where the next element of each bucket goes; places
     * NULL: those of the elements are place, place + 1, ... */
    void (*deal[2])(const uint16_t *bucket, const void *elements, const int64_t *places, int64_t place, int64_t n,
                    uint64_t flip, int64_t *next, qb_sort_run to);
    /* What is not NaN, in its order; how many. Places of NaN go to the end of `order`. */
    int64_t (*take[2])(const void *elements, int64_t n, uint64_t flip, qb_sort_run to, int64_t *order);
    /* Sorts n numbers, fewer than 2^31: into `sorted`, whose keys are flipped (with places: not written). Overwrites
     * x, and `other` and `another`, room for as many, of which one may be `sorted` and one be x. */
    void (*part[2])(qb_sort_run x, qb_sort_run other, qb_sort_run another, qb_sort_run sorted, int64_t n,
                    uint64_t flip);
} qb_sort_type_loops;

typedef enum qb_sort_type {
    QB_SORT_FLOAT64,
    QB_SORT_FLOAT32,
    QB_SORT_INT64,
    QB_SORT_INT32,
    QB_SORT_TYPES
} qb_sort_type;

typedef struct qb_sort_loops {
    qb_sort_type_loops of[QB_SORT_TYPES];
} qb_sort_loops;

/* Those of the instruction set that the lane kernels use (loops_select.c). */
const qb_sort_loops *qb_sort_loops_in_use(void);

/* Rows along the middle one of three axes, contiguous. `result`, which does not overlap `elements`, holds elements,
 * or places. */
void qb_sort_elements(qb_dtype dtype, int64_t outer, int64_t n, int64_t inner, const void *elements, void *result);
void qb_sort_places(qb_dtype dtype, int64_t outer, int64_t n, int64_t inner, const void *elements, int64_t *result);

/* The same without further memory, for want of it: slowly, and negative zeros come before others (sort_in_place.c). */
void qb_sort_elements_in_place(qb_dtype dtype, int64_t outer, int64_t n, int64_t inner, const void *elements,
                               void *result);
void qb_sort_places_in_place(qb_dtype dtype, int64_t outer, int64_t n, int64_t inner, const void *elements,
                             int64_t *result);

#endif
