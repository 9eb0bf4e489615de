/* The choice of instruction set at run time, and the look-up of kernels in the chosen table.
 *
 * Every table is compiled in; the first that the processor (and the operating system, which must save the wide
 * registers) can run is used for the life of the process. The choice is a pure function of the machine and of
 * QUABLA_ISA, so threads that race for the first call store the same pointer. */
#include "cpu/lanes_table.h"

#include "quabla_config.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DECLARE(isa) extern const qb_lane_table qb_lanes_##isa;
QB_LANE_ISAS(DECLARE)
#undef DECLARE

#if defined(__aarch64__)
static inline bool runs_neon(void)
{
    return true; /* part of the architecture */
}
#else
static inline bool runs_baseline(void)
{
    return true;
}
#endif

#if defined(__x86_64__)
static inline bool runs_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static inline bool runs_avx512(void)
{
    return runs_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
}
#endif

const qb_lane_table *qb_lane_table_at(int i)
{
#define CANDIDATE(isa)                                                                                                 \
    if (runs_##isa() && i-- == 0)                                                                                      \
        return &qb_lanes_##isa;
    QB_LANE_ISAS(CANDIDATE)
#undef CANDIDATE
    return NULL;
}

static const qb_lane_table *choose(void)
{
    const char *wanted = getenv("QUABLA_ISA");
    const qb_lane_table *table;
    for (int i = 0; wanted && (table = qb_lane_table_at(i)) != NULL; i++)
        if (strcmp(wanted, table->instruction_set) == 0)
            return table;
    return qb_lane_table_at(0);
}

static const qb_lane_table *chosen(void)
{
    static _Atomic(const qb_lane_table *) cache;
    const qb_lane_table *table = atomic_load_explicit(&cache, memory_order_acquire);
    if (!table) {
        table = choose();
        atomic_store_explicit(&cache, table, memory_order_release);
    }
    return table;
}

qb_lane_kernel qb_lane_lookup(qb_lane lane, qb_dtype dtype, qb_dtype result_dtype)
{
    return lane == QB_LANE_convert ? chosen()->convert[dtype][result_dtype] : chosen()->kernels[lane][dtype];
}

const qb_reduce_kernel *qb_reduce_lookup(qb_reduction reduction, qb_dtype dtype)
{
    const qb_reduce_kernel *kernel = &chosen()->reduce[reduction][dtype];
    return kernel->at_once ? kernel : NULL;
}

qb_lane_kernel qb_norm_lookup(qb_dtype dtype)
{
    return chosen()->norm[dtype];
}

const char *qb_lane_instruction_set(void)
{
    return chosen()->instruction_set;
}
