/* Element types, as dtype.def lists them. */
#ifndef QB_BASE_DTYPE_H
#define QB_BASE_DTYPE_H

#include "quabla/quabla.h"

static inline bool qb_dtype_exists(qb_dtype dtype)
{
    return (unsigned)dtype < QB_DTYPE_COUNT;
}

/* QB_ERROR_VALUE for a number that is no dtype. */
qb_status qb_dtype_check(qb_dtype dtype);

/* 'b' bool, 'i' signed, 'u' unsigned integer, 'f' floating */
char qb_dtype_kind(qb_dtype dtype);

static inline bool qb_dtype_is_floating(qb_dtype dtype)
{
    return qb_dtype_kind(dtype) == 'f';
}

static inline bool qb_dtype_is_integer(qb_dtype dtype)
{
    return qb_dtype_kind(dtype) == 'i' || qb_dtype_kind(dtype) == 'u';
}

/* The dtype that two strong arrays meet in: bool and integers convert to the other's wider or floating type.
 * QB_ERROR_VALUE for two floating types, and for a signed integer with uint64: the message names both and astype. */
qb_status qb_dtype_promote(const char *operation, qb_dtype a, qb_dtype b, qb_dtype *out);

/* Stores the number as an element of `dtype` (as the convert kernel would). */
void qb_dtype_store(qb_dtype dtype, double number, void *element);
void qb_dtype_store_integer(qb_dtype dtype, int64_t number, void *element);
/* The element as a double (integers beyond 2^53 round). */
double qb_dtype_load(qb_dtype dtype, const void *element);

#endif
