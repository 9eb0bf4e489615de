/* The loops of sort.h, for one instruction set: compiled with QB_ISA set to its name. */
#include "cpu/sort.h"

#include "cpu/vectors.h"

#include <float.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define PASTE(a, b)          a##b
#define PASTE_EXPANDED(a, b) PASTE(a, b)

enum {
    FEW = QB_SORT_FEW,
    BLOCK = 256,           /* elements whose digits are found at once */
    MOST_DIGITS = 1 << 11, /* of a part */
    PER_DIGIT = 3,         /* elements, or more */
    TOGETHER = 16,         /* elements of neighbouring digits that are sorted together: the best number of few */
    PER_SAMPLE = 64,       /* elements of a long row for each one of its sample, or more */
    MERGED_UP_TO = 1 << 12 /* elements: a larger part that is badly spread is distributed by keys */
};

#define T        double
#define WORD     int64_t
#define UWORD    uint64_t
#define FLOATING 1
#define T_MAX    DBL_MAX
#include "cpu/sort_type.h"

#define T        float
#define WORD     int32_t
#define UWORD    uint32_t
#define FLOATING 1
#define T_MAX    FLT_MAX
#include "cpu/sort_type.h"

#define T        int64_t
#define WORD     int64_t
#define UWORD    uint64_t
#define FLOATING 0
#include "cpu/sort_type.h"

#define T        int32_t
#define WORD     int32_t
#define UWORD    uint32_t
#define FLOATING 0
#include "cpu/sort_type.h"

#define LOOPS_OF(T)                                                                                                    \
    {                                                                                                                  \
        .is_ascending = is_ascending_##T, .plan = plan_##T, .count = count_##T,                                        \
        .distribute = {distribute_##T, distribute_places_##T}, .take = {take_##T, take_places_##T},                    \
        .part = {part_##T, part_places_##T},                                                                           \
    }

extern const qb_sort_loops PASTE_EXPANDED(qb_sort_loops_, QB_ISA);
const qb_sort_loops PASTE_EXPANDED(qb_sort_loops_, QB_ISA) = {
    .of = {[QB_SORT_FLOAT64] = LOOPS_OF(double),
           [QB_SORT_FLOAT32] = LOOPS_OF(float),
           [QB_SORT_INT64] = LOOPS_OF(int64_t),
           [QB_SORT_INT32] = LOOPS_OF(int32_t)},
};
