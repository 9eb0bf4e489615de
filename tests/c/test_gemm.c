/* Products of matrices in every instruction set that this machine runs: values, strides, what is written and what is
 * not, and that a part of a product has the bits of the whole. */
#include "cpu/gemm.h"
#include "cpu/lanes_table.h"
#include "quabla_config.h"

#include "check.h"

#include <float.h>
#include <stdint.h>

#define DECLARE(isa) extern const qb_loop_table qb_loops_##isa;
QB_LANE_ISAS(DECLARE)
#undef DECLARE

static const qb_loop_table *table_of(const char *name)
{
#define MATCH(isa)                                                                                                     \
    if (strcmp(name, qb_loops_##isa.instruction_set) == 0)                                                             \
        return &qb_loops_##isa;
    QB_LANE_ISAS(MATCH)
#undef MATCH
    return NULL;
}

static uint64_t state = 1;

static double random_value(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)state / 0x1p63;
}

static int64_t random_below(int64_t limit)
{
    return (int64_t)((random_value() + 1) / 2 * (double)limit) % limit;
}

/* A matrix of exactly the elements that its strides reach, in memory of its own. */
typedef struct matrix {
    int64_t row_stride, column_stride, count;
    void *data;
} matrix;

static double get(qb_dtype dtype, const void *data, int64_t i)
{
    return dtype == QB_FLOAT64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void set(qb_dtype dtype, void *data, int64_t i, double value)
{
    if (dtype == QB_FLOAT64)
        ((double *)data)[i] = value;
    else
        ((float *)data)[i] = (float)value;
}

/* layout 0: rows; 1: columns; 2: rows with room between; 3: no unit stride */
static matrix make(qb_dtype dtype, int64_t rows, int64_t columns, int64_t layout)
{
    matrix m = {.row_stride = layout == 1   ? 1
                              : layout == 2 ? columns + 3
                              : layout == 3 ? 2 * columns + 1
                                            : columns,
                .column_stride = layout == 1   ? rows
                                 : layout == 3 ? 2
                                               : 1};
    m.count = (rows - 1) * m.row_stride + (columns - 1) * m.column_stride + 1;
    m.data = malloc((size_t)m.count * qb_dtype_size(dtype));
    CHECK(m.data != NULL);
    for (int64_t i = 0; i < m.count; i++)
        set(dtype, m.data, i, random_value());
    return m;
}

static void *scratch_for(const qb_loop_table *table, const qb_product_shape *shape, int64_t size)
{
    void *scratch = qb_allocate_aligned((size_t)qb_gemm_scratch(shape, size, table->panel_bytes));
    CHECK(scratch != NULL);
    return scratch;
}

/* Against sums of doubles, with the bound on the error that any order of summing has. */
static void check_values(qb_dtype dtype, const qb_product_shape *s, const matrix *a, const matrix *b, const void *start,
                         const void *c, int64_t c_m)
{
    double epsilon = dtype == QB_FLOAT64 ? DBL_EPSILON : (double)FLT_EPSILON;
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->n; j++) {
            double sum = start ? get(dtype, start, i * c_m + j) : 0, size = fabs(sum);
            for (int64_t p = 0; p < s->k; p++) {
                double term =
                    get(dtype, a->data, i * s->a_m + p * s->a_k) * get(dtype, b->data, p * s->b_k + j * s->b_n);
                sum += term;
                size += fabs(term);
            }
            double found = get(dtype, c, i * c_m + j);
            CHECK(fabs(found - sum) <= (double)(s->k + 4) * epsilon * size, "%lldx%lldx%lld at %lld,%lld: %g, not %g",
                  (long long)s->m, (long long)s->n, (long long)s->k, (long long)i, (long long)j, found, sum);
        }
}

/* Rows row .. and columns column .. computed by themselves, into memory that holds `start`, as in the whole. */
static void check_part(const qb_loop_table *table, qb_dtype dtype, const qb_product_shape *s, const matrix *a,
                       const matrix *b, const void *start, const void *c, int64_t c_m)
{
    int64_t size = (int64_t)qb_dtype_size(dtype);
    int64_t row = random_below(s->m), column = random_below(s->n);
    qb_product_shape part = *s;
    part.m = 1 + random_below(s->m - row);
    part.n = 1 + random_below(s->n - column);
    void *scratch = scratch_for(table, &part, size);
    int64_t count = (s->m - 1) * c_m + s->n, first = row * c_m + column;
    char *own = malloc((size_t)(count * size));
    CHECK(own != NULL);
    memcpy(own, start, (size_t)(count * size));
    table->gemm[dtype](&part, (char *)a->data + row * s->a_m * size, (char *)b->data + column * s->b_n * size,
                       own + first * size, own + first * size, c_m, scratch);
    for (int64_t i = 0; i < s->m; i++)
        for (int64_t j = 0; j < s->n; j++) {
            bool inside = i >= row && i < row + part.m && j >= column && j < column + part.n;
            const char *expected = inside ? c : start;
            CHECK(memcmp(own + (i * c_m + j) * size, expected + (i * c_m + j) * size, (size_t)size) == 0,
                  "%lldx%lldx%lld: rows %lld+%lld, columns %lld+%lld, at %lld,%lld", (long long)s->m, (long long)s->n,
                  (long long)s->k, (long long)row, (long long)part.m, (long long)column, (long long)part.n,
                  (long long)i, (long long)j);
        }
    free(own);
    qb_free_aligned(scratch);
}

static void check_product(const qb_loop_table *table, qb_dtype dtype, int64_t m, int64_t n, int64_t k)
{
    int64_t size = (int64_t)qb_dtype_size(dtype), c_m = n + random_below(3), count = (m - 1) * c_m + n;
    matrix a = make(dtype, m, k, random_below(4)), b = make(dtype, k, n, random_below(4));
    matrix start = make(dtype, 1, count, 0), c = make(dtype, 1, count, 0), before = c;
    qb_product_shape s = {m, n, k, a.row_stride, a.column_stride, b.row_stride, b.column_stride};
    void *scratch = scratch_for(table, &s, size);
    before.data = malloc((size_t)(count * size));
    CHECK(before.data != NULL);
    memcpy(before.data, c.data, (size_t)(count * size));
    table->gemm[dtype](&s, a.data, b.data, NULL, c.data, c_m, scratch);
    check_values(dtype, &s, &a, &b, NULL, c.data, c_m);
    for (int64_t i = 0; i < count; i++)
        CHECK(i % c_m < n || get(dtype, c.data, i) == get(dtype, before.data, i), "written between rows");
    table->gemm[dtype](&s, a.data, b.data, start.data, c.data, c_m, scratch);
    check_values(dtype, &s, &a, &b, start.data, c.data, c_m);
    for (int i = 0; i < 3; i++)
        check_part(table, dtype, &s, &a, &b, start.data, c.data, c_m);
    free(a.data);
    free(b.data);
    free(c.data);
    free(start.data);
    free(before.data);
    qb_free_aligned(scratch);
}

static void check_table(const qb_loop_table *table)
{
    static const int64_t large[][3] = {{530, 530, 20}, {7, 600, 140}, {600, 5, 30}, {25, 40, 400}, {64, 64, 257}};
    for (int dtype = QB_FLOAT64; dtype <= QB_FLOAT32; dtype++) {
        for (int i = 0; i < 150; i++)
            check_product(table, (qb_dtype)dtype, 1 + random_below(40), 1 + random_below(140), 1 + random_below(60));
        for (size_t i = 0; i < sizeof large / sizeof *large; i++)
            check_product(table, (qb_dtype)dtype, large[i][0], large[i][1], large[i][2]);
    }
}

int main(void)
{
    const qb_lane_table *lanes;
    for (int i = 0; (lanes = qb_lane_table_at(i)) != NULL; i++) {
        const qb_loop_table *table = table_of(lanes->instruction_set);
        CHECK(table != NULL);
        check_table(table);
    }
    return 0;
}
