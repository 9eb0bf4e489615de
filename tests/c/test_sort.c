/* Sorting in every instruction set that this machine runs, and with several numbers of threads: against a comparison of
 * every pair of neighbours, for all types, many distributions and lengths, in memory that ends with the elements, the
 * results, and the workspace. Nothing is allocated. */
#include "base/allocate.h"
#include "cpu/lanes_table.h"
#include "cpu/sort.h"
#include "quabla_config.h"

#include "check.h"

#include <stdint.h>

static uint64_t state = 1;

static uint64_t random_bits(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state ^ state >> 29;
}

static int64_t random_below(int64_t limit)
{
    return (int64_t)((random_bits() >> 11) % (uint64_t)limit);
}

enum { ANY_BITS, SPREAD, ASCENDING, DESCENDING, EQUAL, FEW_VALUES, TWO_VALUES, POWERS, NESTED, ZEROS, KINDS };

/* NESTED: half of the elements in a small part of the range, half of these in a small part of theirs, and so on. */
static double element_of_kind(int kind, int64_t i, int64_t n)
{
    int level = 0;
    switch (kind) {
    case SPREAD: return (double)random_below(1 << 20) / 7;
    case ASCENDING: return (double)(i / 3);
    case DESCENDING: return (double)(n - i / 2);
    case EQUAL: return 5;
    case FEW_VALUES: return (double)random_below(10);
    case TWO_VALUES: return (double)(6 + random_below(2));
    case POWERS: return ldexp(1 + (double)random_below(4) / 4, (int)random_below(30)) * (random_below(2) ? 1 : -1);
    case NESTED:
        while (level < 4 && random_below(2) == 0)
            level++;
        return ldexp((double)(1 + random_below(1 << 10)), 20 - 7 * level);
    case ZEROS: return random_below(3) ? (random_below(2) ? -0.0 : 0.0) : (double)(random_below(5) - 2);
    default: return 0;
    }
}

static void set_element(qb_dtype dtype, char *to, int kind, int64_t i, int64_t n)
{
    uint64_t bits = random_bits();
    double x = element_of_kind(kind, i, n);
    if (kind == ANY_BITS || (dtype <= QB_FLOAT32 && kind == SPREAD && bits % 16 == 0)) {
        if (qb_dtype_is_floating(dtype) && bits % 8 == 0)
            bits = (bits & 16) << 59 | (dtype == QB_FLOAT64 ? (uint64_t)0x7ff8 << 48 : 0x7fc00000u); /* some NaN */
        memcpy(to, &bits, qb_dtype_size(dtype));
        if (dtype == QB_BOOL)
            *to = (char)(bits % 2);
        return;
    }
    switch (dtype) {
    case QB_FLOAT64: memcpy(to, &x, sizeof x); break;
    case QB_FLOAT32: memcpy(to, &(float){(float)x}, sizeof(float)); break;
    case QB_INT64: memcpy(to, &(int64_t){(int64_t)(x * 1e6)}, sizeof(int64_t)); break;
    case QB_UINT64: memcpy(to, &(uint64_t){(uint64_t)(int64_t)(x * 1e6)}, sizeof(int64_t)); break;
    case QB_INT32: memcpy(to, &(int32_t){(int32_t)x}, sizeof(int32_t)); break;
    case QB_UINT32: memcpy(to, &(uint32_t){(uint32_t)(int32_t)x}, sizeof(int32_t)); break;
    default: *to = x > 5; break;
    }
}

/* -1, 0, 1: as a is less than b, equal, or greater; NaN equal each other, and are greater than all else. */
static int compare(qb_dtype dtype, const char *a, const char *b)
{
#define COMPARE(T)                                                                                                     \
    {                                                                                                                  \
        T x, y;                                                                                                        \
        memcpy(&x, a, sizeof x);                                                                                       \
        memcpy(&y, b, sizeof y);                                                                                       \
        return x != x || y != y ? (x != x) - (y != y) : (x > y) - (x < y);                                             \
    }
    switch (dtype) {
    case QB_FLOAT64: COMPARE(double)
    case QB_FLOAT32: COMPARE(float)
    case QB_INT64: COMPARE(int64_t)
    case QB_UINT64: COMPARE(uint64_t)
    case QB_INT32: COMPARE(int32_t)
    case QB_UINT32: COMPARE(uint32_t)
    default: COMPARE(uint8_t)
    }
}

/* Elements, or places, in a workspace that is as large as it has to be, and full of something. */
static void sort_rows(qb_dtype dtype, bool places, int64_t outer, int64_t n, int64_t inner, const void *elements,
                      void *result)
{
    const qb_sort_rows rows = {dtype, places, outer, n, inner};
    size_t size = (size_t)qb_sort_workspace(&rows);
    char *workspace = malloc(size + 1);
    CHECK(workspace);
    memset(workspace, 0xa5, size + 1);
    qb_allocate_fail_at(1);
    qb_sort_run(&rows, elements, result, workspace);
    CHECK(!qb_allocate_has_failed() && workspace[size] == (char)0xa5, "%s", qb_dtype_name(dtype));
    qb_allocate_fail_at(0);
    free(workspace);
}

/* Places are a permutation, elements ascend along it, and equal ones keep their order; the sorted elements are those
 * at the places, zeros with their signs. */
static void check_rows(qb_dtype dtype, int64_t outer, int64_t n, int64_t inner, int kind)
{
    size_t size = qb_dtype_size(dtype), count = (size_t)(outer * n * inner);
    char *elements = malloc(count * size + 1), *sorted = malloc(count * size + 1), *seen = malloc((size_t)n + 1);
    int64_t *places = malloc(count * sizeof *places + 1);
    CHECK(elements && sorted && places && seen);
    for (size_t i = 0; i < count; i++)
        set_element(dtype, elements + i * size, kind, (int64_t)i, (int64_t)count);
    sort_rows(dtype, false, outer, n, inner, elements, sorted);
    sort_rows(dtype, true, outer, n, inner, elements, places);
    for (int64_t row = 0; row < outer * inner; row++) {
        int64_t first = row / inner * n * inner + row % inner;
        memset(seen, 0, (size_t)n);
        for (int64_t i = 0; i < n; i++) {
            int64_t place = places[first + i * inner], before = i > 0 ? places[first + (i - 1) * inner] : 0;
            CHECK(place >= 0 && place < n && !seen[place], "%s, %d of kind %d", qb_dtype_name(dtype), (int)n, kind);
            seen[place] = 1;
            const char *element = elements + (size_t)(first + place * inner) * size,
                       *got = sorted + (size_t)(first + i * inner) * size;
            int order = i > 0 ? compare(dtype, elements + (size_t)(first + before * inner) * size, element) : -1;
            CHECK(order < 0 || (order == 0 && before < place), "%s, %d of kind %d", qb_dtype_name(dtype), (int)n, kind);
            CHECK(compare(dtype, element, got) == 0, "%s, %d of kind %d", qb_dtype_name(dtype), (int)n, kind);
            if (kind == ZEROS)
                CHECK(memcmp(element, got, size) == 0, "%s, %d", qb_dtype_name(dtype), (int)n);
        }
    }
    free(elements);
    free(sorted);
    free(seen);
    free(places);
}

static const int64_t lengths[] = {1,  2,  3,  4,  5,  7,  8,   9,   15,   16,   17,   31,    32,    33,    40,   47,
                                  48, 49, 63, 64, 65, 97, 200, 500, 1000, 4095, 4097, 16383, 16384, 16385, 40000};

static void check_all(void)
{
    for (qb_dtype dtype = 0; dtype < QB_DTYPE_COUNT; dtype++)
        for (int kind = 0; kind < KINDS; kind++) {
            for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                check_rows(dtype, 1, lengths[i], 1, kind);
            check_rows(dtype, 70, 300, 1, kind);
            check_rows(dtype, 2, 5000, 1, kind);
            check_rows(dtype, 2, 301, 19, kind);
            check_rows(dtype, 3, 11, 5, kind);
            check_rows(dtype, 5, 0, 3, kind);
            check_rows(dtype, 1, 20001, 2, kind);
        }
}

/* Rows long enough to be distributed again and again. */
static void check_nested(void)
{
    for (qb_dtype dtype = 0; dtype < QB_DTYPE_COUNT; dtype++)
        for (int kind = 0; kind < KINDS; kind++)
            check_rows(dtype, 1, 100003, 1, kind);
}

int main(int argc, char **argv)
{
    (void)argc;
    if (!getenv("QUABLA_ISA")) { /* each in a process of its own, where it is chosen */
#define AGAIN(isa)                                                                                                     \
    {                                                                                                                  \
        char variables[64];                                                                                            \
        for (int threads = 1; threads <= 7; threads += 3) {                                                            \
            (void)snprintf(variables, sizeof variables, "QUABLA_ISA=%s QUABLA_NUM_THREADS=%d", #isa, threads);         \
            check_again(argv[0], "", variables);                                                                       \
        }                                                                                                              \
    }
        QB_LANE_ISAS(AGAIN)
        return 0;
    }
    check_all();
    check_nested();
    return 0;
}
