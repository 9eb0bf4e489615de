/* The loops of small.h, for one instruction set: compiled with QB_ISA set to its name. */
#include "cpu/small.h"

#include "cpu/math_base.h"
#include "cpu/vectors.h"
#include "ops/build.h"

#define sqrt_double sqrt
#define sqrt_float  sqrtf

#define REAL     double
#define WORD     int64_t
#define OF(name) name##_double
#include "cpu/small_loops.h"

#define REAL     float
#define WORD     int32_t
#define OF(name) name##_float
#include "cpu/small_loops.h"

#define NAME_OF(isa)     NAME_JOINED(isa)
#define NAME_JOINED(isa) qb_small_loops_##isa

extern const qb_small_loops NAME_OF(QB_ISA)[2];
const qb_small_loops NAME_OF(QB_ISA)[2] = {
    {.cholesky = cholesky_double,
     .lu = lu_double,
     .triangular_solve = triangular_solve_double,
     .lu_solve = lu_solve_double},
    {.cholesky = cholesky_float,
     .lu = lu_float,
     .triangular_solve = triangular_solve_float,
     .lu_solve = lu_solve_float},
};
