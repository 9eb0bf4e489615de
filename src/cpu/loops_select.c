/* The choice of the loops, those of small matrices and of sorting too: those of the instruction set that the lane
 * kernels run in. */
#include "cpu/loops.h"
#include "cpu/small.h"
#include "cpu/sort.h"

#include "quabla_config.h"

#include <stdatomic.h>
#include <string.h>

#define DECLARE(isa)                                                                                                   \
    extern const qb_loop_table qb_loops_##isa;                                                                         \
    extern const qb_small_loops qb_small_loops_##isa[2];                                                               \
    extern const qb_sort_loops qb_sort_loops_##isa;
QB_LANE_ISAS(DECLARE)
#undef DECLARE

/* What files were compiled to for one instruction set. */
typedef struct tables {
    const char *instruction_set;
    const qb_loop_table *loops;
    const qb_small_loops *small; /* of float64 and float32 */
    const qb_sort_loops *sort;
} tables;

static const tables all[] = {
#define TABLES(isa) {#isa, &qb_loops_##isa, qb_small_loops_##isa, &qb_sort_loops_##isa},
    QB_LANE_ISAS(TABLES)
#undef TABLES
};

static const tables *in_use(void)
{
    static _Atomic(const tables *) cache;
    const tables *found = atomic_load_explicit(&cache, memory_order_acquire);
    if (!found) {
        found = all;
        while (strcmp(found->instruction_set, qb_lane_instruction_set()) != 0)
            found++; /* it is there: the lane kernels are of QB_LANE_ISAS, too */
        atomic_store_explicit(&cache, found, memory_order_release);
    }
    return found;
}

const qb_loop_table *qb_loops(void)
{
    return in_use()->loops;
}

const qb_small_loops *qb_small_loops_of(qb_dtype dtype)
{
    return &in_use()->small[dtype == QB_FLOAT64 ? 0 : 1];
}

const qb_sort_loops *qb_sort_loops_in_use(void)
{
    return in_use()->sort;
}
