/* Sorting rows of elements, or their places; stable, NaN last, zeros of both signs equal.
 *
 * A row is sorted by distribution (bucket sort). Its elements are counted by digits, which are monotone functions of
 * their value, and moved to where those of their digit go (Knuth, The Art of Computer Programming, vol. 3, 5.2,
 * algorithm D); so are the elements of one digit, until at most QB_SORT_FEW share one, which are put where the numbers
 * of smaller ones say (algorithm C). A digit is linear in the value within the range that is present or, where that
 * would leave most elements together, in the integer that orders floating-point numbers, so that each step takes bits
 * off the range; what is still badly spread is merged. So the worst case is a few times the usual one.
 *
 * Long rows are distributed by all threads first, in fixed chunks, to some hundred buckets of about the same size,
 * whose bounds a sample has given: sample sort (W. D. Frazer and A. C. McKellar, "Samplesort: a sampling approach to
 * minimal storage tree sorting", J. ACM 17, 1970). Each bucket is then sorted by one thread, in its caches. All steps
 * keep the order of equal elements, so that the result is the same however the work is cut.
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
typedef struct qb_sort_items {
    void *keys;
    int64_t *places;
} qb_sort_items;

/* A digit: of (x - lowest) * scale, or of (key of x - lowest_key) >> shift, within 0 .. last. */
typedef struct qb_sort_rule {
    bool by_value;
    double lowest, scale;
    int64_t lowest_key, highest_key;
    int shift;
    int32_t last;
} qb_sort_rule;

/* Which bucket of a long row an element belongs to: it has a digit (a NaN's is QB_SORT_CELLS), several of which share
 * a bucket. */
typedef struct qb_sort_classifier {
    qb_sort_rule rule;
    int buckets; /* without that of NaN, which follows */
    uint16_t bucket[QB_SORT_CELLS + 1];
    int64_t sample[3 * QB_SORT_SAMPLE]; /* room, as is this: */
    uint32_t digit[QB_SORT_SAMPLE];
} qb_sort_classifier;

/* Of one element type, which is floating or signed. Unsigned elements become signed ones of the same order, and these
 * unsigned ones again, when the bits `bias` are flipped: the highest one. It is 0 for all others. */
typedef struct qb_sort_type_loops {
    bool (*is_ascending)(const void *elements, int64_t n, uint64_t bias);
    /* The classifier of a row; `round`: how often elements of it have been distributed before. False: all are equal
     * (round > 0). */
    bool (*plan)(qb_sort_classifier *classifier, const void *elements, int64_t n, uint64_t bias, int round);
    /* The bucket of each element, and how many there are in each. */
    void (*count)(const qb_sort_classifier *classifier, const void *elements, int64_t n, uint64_t bias,
                  uint16_t *bucket, int64_t *count);
    /* The rest once without places and once with them. `next`: where the next element of each bucket goes; places
     * NULL: those of the elements are place, place + 1, ... */
    void (*distribute[2])(const uint16_t *bucket, const void *elements, const int64_t *places, int64_t place, int64_t n,
                          uint64_t bias, int64_t *next, qb_sort_items to);
    /* What is not NaN, in its order; how many. Places of NaN go to the end of `order`, which may be where those of `to`
     * are. Without places, the keys of `to` may be the elements. */
    int64_t (*take[2])(const void *elements, int64_t n, uint64_t bias, qb_sort_items to, int64_t *order);
    /* Sorts n numbers, fewer than 2^31 unless all are equal: into `sorted`, whose keys are biased again (with places:
     * not written). Overwrites x and `buffer`, to which x is distributed, and `next_buffer`, to which the parts of that
     * are, which may be x. `sorted` may be any of them. */
    void (*part[2])(qb_sort_items x, qb_sort_items buffer, qb_sort_items next_buffer, qb_sort_items sorted, int64_t n,
                    uint64_t bias);
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

/* Rows along the middle one of three axes, contiguous; what is wanted are their elements in order, or their places. */
typedef struct qb_sort_rows {
    qb_dtype dtype;
    bool places;
    int64_t outer, n, inner;
} qb_sort_rows;

/* Bytes that sorting them works in; more where more threads work. */
int64_t qb_sort_workspace(const qb_sort_rows *rows);
/* `result` holds elements, or places (int64). The three do not overlap. */
void qb_sort_run(const qb_sort_rows *rows, const void *elements, void *result, void *workspace);

#endif
