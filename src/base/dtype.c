/* What is known of each element type, generated from dtype.def. */
#include "base/dtype.h"

#include "base/status.h"

#include <math.h>

static const struct {
    const char *name;
    size_t size;
    char kind;
} dtypes[] = {
#define DTYPE(enumerator, type, name, kind) [QB_##enumerator] = {name, sizeof(type), kind},
#include "base/dtype.def"
#undef DTYPE
};

_Static_assert(sizeof dtypes / sizeof *dtypes == QB_DTYPE_COUNT, "quabla.h and dtype.def list the same dtypes");

const char *qb_dtype_name(qb_dtype dtype)
{
    return qb_dtype_exists(dtype) ? dtypes[dtype].name : "no dtype";
}

size_t qb_dtype_size(qb_dtype dtype)
{
    return qb_dtype_exists(dtype) ? dtypes[dtype].size : 0;
}

qb_status qb_dtype_check(qb_dtype dtype)
{
    return qb_dtype_exists(dtype) ? QB_OK
                                  : qb_fail(QB_ERROR_VALUE, "%d is no dtype: they go from 0 to %d (enum qb_dtype)",
                                            (int)dtype, QB_DTYPE_COUNT - 1);
}

char qb_dtype_kind(qb_dtype dtype)
{
    return dtypes[dtype].kind;
}

/* The signed integer dtype that holds both int32 and uint32, and the general "next wider signed" of a size;
 * QB_DTYPE_COUNT: none. */
static qb_dtype signed_of_size(size_t size)
{
    for (int i = 0; i < QB_DTYPE_COUNT; i++)
        if (dtypes[i].kind == 'i' && dtypes[i].size == size)
            return (qb_dtype)i;
    return QB_DTYPE_COUNT;
}

qb_status qb_dtype_promote(const char *operation, qb_dtype a, qb_dtype b, qb_dtype *out)
{
    char kind_a = qb_dtype_kind(a), kind_b = qb_dtype_kind(b);
    *out = a;
    if (a == b)
        return QB_OK;
    if (kind_a == 'f' && kind_b == 'f')
        return qb_fail(QB_ERROR_VALUE, "%s: operands have dtypes %s and %s, which do not mix; convert one with astype",
                       operation, qb_dtype_name(a), qb_dtype_name(b));
    if (kind_b == 'f' || kind_a == 'b') {
        *out = b;
        return QB_OK;
    }
    if (kind_a == 'f' || kind_b == 'b')
        return QB_OK;
    size_t size_a = qb_dtype_size(a), size_b = qb_dtype_size(b);
    if (kind_a == kind_b) {
        *out = size_a >= size_b ? a : b;
        return QB_OK;
    }
    size_t size_signed = kind_a == 'i' ? size_a : size_b, size_unsigned = kind_a == 'i' ? size_b : size_a;
    qb_dtype wide = signed_of_size(size_unsigned * 2 > size_signed ? size_unsigned * 2 : size_signed);
    if (wide == QB_DTYPE_COUNT)
        return qb_fail(QB_ERROR_VALUE,
                       "%s: operands have dtypes %s and %s, and no integer dtype holds both; convert one with astype",
                       operation, qb_dtype_name(a), qb_dtype_name(b));
    *out = wide;
    return QB_OK;
}

/* Saturating conversions: those of the convert kernel, without undefined behaviour. */
static int64_t to_signed(double x, double low, double high, int64_t lowest, int64_t highest)
{
    return isnan(x) ? 0 : x <= low ? lowest : x >= high ? highest : (int64_t)x;
}

static uint64_t to_unsigned(double x, double high, uint64_t highest)
{
    return isnan(x) || x <= 0 ? 0 : x >= high ? highest : (uint64_t)x;
}

void qb_dtype_store(qb_dtype dtype, double x, void *element)
{
    switch (dtype) {
    case QB_FLOAT64: *(double *)element = x; break;
    case QB_FLOAT32: *(float *)element = (float)x; break;
    case QB_BOOL: *(uint8_t *)element = x != 0; break;
    case QB_INT32: *(int32_t *)element = (int32_t)to_signed(x, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX); break;
    case QB_INT64: *(int64_t *)element = to_signed(x, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX); break;
    case QB_UINT32: *(uint32_t *)element = (uint32_t)to_unsigned(x, UINT32_MAX, UINT32_MAX); break;
    case QB_UINT64: *(uint64_t *)element = to_unsigned(x, 0x1p64, UINT64_MAX); break;
    case QB_DTYPE_COUNT: break;
    }
}

void qb_dtype_store_integer(qb_dtype dtype, int64_t x, void *element)
{
    switch (dtype) {
    case QB_INT64: *(int64_t *)element = x; break;
    case QB_UINT64: *(uint64_t *)element = (uint64_t)x; break;
    case QB_INT32: *(int32_t *)element = (int32_t)x; break;
    case QB_UINT32: *(uint32_t *)element = (uint32_t)x; break;
    default: qb_dtype_store(dtype, (double)x, element);
    }
}

double qb_dtype_load(qb_dtype dtype, const void *element)
{
    switch (dtype) {
#define DTYPE(enumerator, type, name, kind)                                                                            \
    case QB_##enumerator:                                                                                              \
        return (double)*(const type *)element;
#include "base/dtype.def"
#undef DTYPE
    case QB_DTYPE_COUNT: break;
    }
    return 0;
}
