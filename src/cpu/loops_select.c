/* The choice of the loops, those of small matrices and of sorting too: those of the instruction set that the lane kernels run in. */
#include "cpu/loops.h"
#include "cpu/small.h"
#include "cpu/sort.h"

#include "quabla_config.h"

#include <stdatomic.h>
#include <string.h>

#define DECLARE(isa) extern const qb_loop_table qb_loops_##isa;
QB_LANE_ISAS(DECLARE)
#undef DECLARE

static const qb_loop_table *choose(void)
{
    const char *name = qb_lane_instruction_set();
#define MATCH(isa)                                                                                                     \
    if (strcmp(qb_loops_##isa.instruction_set, name) == 0)                                                             \
        return &qb_loops_##isa;
    QB_LANE_ISAS(MATCH)
#undef MATCH
    return NULL; /* does not happen: both lists are QB_LANE_ISAS */
}

const qb_loop_table *qb_loops(void)
{
    static _Atomic(const qb_loop_table *) cache;
    const qb_loop_table *table = atomic_load_explicit(&cache, memory_order_acquire);
    if (!table) {
        table = choose();
        atomic_store_explicit(&cache, table, memory_order_release);
    }
    return table;
}

#define DECLARE(isa) extern const qb_small_loops qb_small_loops_##isa[2];
QB_LANE_ISAS(DECLARE)
#undef DECLARE

const qb_small_loops *qb_small_loops_of(qb_dtype dtype)
{
    const char *name = qb_lane_instruction_set();
    int index = dtype == QB_FLOAT64 ? 0 : 1;
#define MATCH(isa)                                                                                                     \
    if (strcmp(#isa, name) == 0)                                                                                       \
        return &qb_small_loops_##isa[index];
    QB_LANE_ISAS(MATCH)
#undef MATCH
    return NULL; /* does not happen, as above */
}

#define DECLARE(isa) extern const qb_sort_loops qb_sort_loops_##isa;
QB_LANE_ISAS(DECLARE)
#undef DECLARE

const qb_sort_loops *qb_sort_loops_in_use(void)
{
    const char *name = qb_lane_instruction_set();
#define MATCH(isa)                                                                                                     \
    if (strcmp(qb_sort_loops_##isa.instruction_set, name) == 0)                                                        \
        return &qb_sort_loops_##isa;
    QB_LANE_ISAS(MATCH)
#undef MATCH
    return NULL; /* does not happen, as above */
}
