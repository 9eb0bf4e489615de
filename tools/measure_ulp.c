/* Largest error of every transcendental lane kernel found on random arguments, in units in the last place.
 *
 *     measure_ulp [arguments per function, default 2000000] [instruction set, default the machine's] [function ...]
 *     measure_ulp evaluate <instruction set> <function> <format>     its results on the arguments read
 *
 * One line per function and format: name, format, largest error, the result there, and the argument(s), as hexadecimal
 * floats. tools/measure_ulp.py runs this, checks the arguments found with mpmath, and writes the table of
 * docs/accuracy.md. */
#include "../tests/c/lane_reference.h"

#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 256 };

static qb_lane_kernel kernel_of(const qb_lane_table *table, qb_lane lane, qb_dtype dtype)
{
    return table->kernels[lane][dtype];
}

/* The header line: which instruction set, and how many arguments. */
static void print_header(const qb_lane_table *table, size_t count)
{
    printf("instruction-set %s %zu\n", table->instruction_set, count);
}

static void measure_unary(const qb_lane_table *table, const reference_unary *f, size_t count)
{
    uint64_t state = 1;
    double x[BLOCK], y[BLOCK], worst = 0, at = 0, result = 0;
    for (size_t done = 0; done < count; done += BLOCK) {
        for (size_t i = 0; i < BLOCK; i++)
            x[i] = sample_f64(&state, f->low, f->high);
        kernel_of(table, f->lane, QB_FLOAT64)(BLOCK, y, x, NULL, NULL);
        for (size_t i = 0; i < BLOCK; i++) {
            double error = error_in_ulp_f64(y[i], f->function(x[i]));
            if (error > worst)
                worst = error, at = x[i], result = y[i];
        }
    }
    printf("%s float64 %.4f %a %a\n", f->name, worst, result, at);
    float s[BLOCK], t[BLOCK];
    worst = at = result = 0;
    for (size_t done = 0; done < count; done += BLOCK) {
        for (size_t i = 0; i < BLOCK; i++)
            s[i] = sample_f32(&state, f->low, f->high);
        kernel_of(table, f->lane, QB_FLOAT32)(BLOCK, t, s, NULL, NULL);
        for (size_t i = 0; i < BLOCK; i++) {
            double error = error_in_ulp_f32(t[i], f->function((long double)s[i]));
            if (error > worst)
                worst = error, at = (double)s[i], result = (double)t[i];
        }
    }
    printf("%s float32 %.4f %a %a\n", f->name, worst, result, at);
}

static void measure_binary(const qb_lane_table *table, const reference_binary *f, size_t count)
{
    uint64_t state = 2;
    double a[BLOCK], b[BLOCK], y[BLOCK], worst = 0, at_a = 0, at_b = 0, result = 0;
    for (size_t done = 0; done < count; done += BLOCK) {
        for (size_t i = 0; i < BLOCK; i++)
            a[i] = sample_f64(&state, f->low, f->high), b[i] = sample_f64(&state, f->low, f->high);
        kernel_of(table, f->lane, QB_FLOAT64)(BLOCK, y, a, b, NULL);
        for (size_t i = 0; i < BLOCK; i++) {
            double error = error_in_ulp_f64(y[i], f->function(a[i], b[i]));
            if (error > worst)
                worst = error, at_a = a[i], at_b = b[i], result = y[i];
        }
    }
    printf("%s float64 %.4f %a %a %a\n", f->name, worst, result, at_a, at_b);
    float s[BLOCK], t[BLOCK], u[BLOCK];
    worst = at_a = at_b = result = 0;
    for (size_t done = 0; done < count; done += BLOCK) {
        for (size_t i = 0; i < BLOCK; i++)
            s[i] = sample_f32(&state, f->low, f->high), t[i] = sample_f32(&state, f->low, f->high);
        kernel_of(table, f->lane, QB_FLOAT32)(BLOCK, u, s, t, NULL);
        for (size_t i = 0; i < BLOCK; i++) {
            double error = error_in_ulp_f32(u[i], f->function((long double)s[i], (long double)t[i]));
            if (error > worst)
                worst = error, at_a = (double)s[i], at_b = (double)t[i], result = (double)u[i];
        }
    }
    printf("%s float32 %.4f %a %a %a\n", f->name, worst, result, at_a, at_b);
}

/* The functions that long double has no reference for: results alone, for mpmath to judge. */
static int evaluate(const qb_lane_table *table, const char *name, const char *format)
{
    qb_lane lane = strcmp(name, "lgamma") == 0 ? QB_LANE_lgamma : QB_LANE_digamma;
    bool is_double = strcmp(format, "float64") == 0;
    qb_lane_kernel kernel = kernel_of(table, lane, is_double ? QB_FLOAT64 : QB_FLOAT32);
    for (double x, y; scanf("%la", &x) == 1;) {
        float narrow = (float)x, result;
        if (is_double)
            kernel(1, &y, &x, NULL, NULL);
        else
            kernel(1, &result, &narrow, NULL, NULL);
        printf("%a\n", is_double ? y : (double)result);
    }
    return 0;
}

static const qb_lane_table *find_table(const char *instruction_set)
{
    const qb_lane_table *table = qb_lane_table_at(0);
    for (int i = 0; instruction_set && table && strcmp(table->instruction_set, instruction_set) != 0; i++)
        table = qb_lane_table_at(i);
    if (!table)
        fprintf(stderr, "%s is no instruction set that this machine runs\n", instruction_set);
    return table;
}

static bool is_wanted(const char *name, int count, char **names)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return count == 0;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : 2000000;
    const qb_lane_table *table = find_table(argc > 2 ? argv[2] : NULL);
    if (!table)
        return 1;
    if (argc == 5 && strcmp(argv[1], "evaluate") == 0)
        return evaluate(table, argv[3], argv[4]);
    print_header(table, count);
    int names = argc > 3 ? argc - 3 : 0;
    for (int i = 0; i < REFERENCE_UNARIES; i++)
        if (is_wanted(reference_unaries[i].name, names, argv + 3))
            measure_unary(table, &reference_unaries[i], count);
    for (int i = 0; i < REFERENCE_BINARIES; i++)
        if (is_wanted(reference_binaries[i].name, names, argv + 3))
            measure_binary(table, &reference_binaries[i], count);
    return 0;
}
