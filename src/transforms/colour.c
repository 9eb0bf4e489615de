/* Patterns of matrices, and colourings that let few products show every entry.
 *
 * Columns: greedy, largest first, so that no row meets a colour twice (Curtis, Powell and Reid 1974; as a colouring
 * problem Coleman and More, "Estimation of Sparse Jacobian Matrices and Graph Coloring Problems", 1983). Symmetric
 * matrices: star colouring, in which no path of four vertices has two colours only (Coleman and More, "Estimation of
 * Sparse Hessian Matrices and Graph Coloring Problems", 1984; greedy algorithm 4.1 of Gebremedhin, Manne and Pothen,
 * "What Color Is Your Jacobian?", 2005). */
#include "base/allocate.h"
#include "transforms/sparsity.h"

/* Steps that a colouring may take. A pattern that needs more is nearly dense: each column then has a colour of its
 * own. */
static const double MOST_STEPS = 2e8;

void qb_pattern_end(qb_pattern *pattern)
{
    qb_free(pattern->start);
    qb_free(pattern->column);
    *pattern = (qb_pattern){0};
}

static qb_status pattern_begin(int64_t rows, int64_t columns, int64_t entries, qb_pattern *out)
{
    *out = (qb_pattern){.rows = rows, .columns = columns};
    out->start = qb_allocate_zeroed((size_t)rows + 1, sizeof *out->start);
    out->column = qb_allocate((size_t)entries * sizeof *out->column);
    if (out->start && out->column)
        return QB_OK;
    qb_pattern_end(out);
    return qb_fail_memory();
}

qb_status qb_pattern_transpose(const qb_pattern *pattern, qb_pattern *out)
{
    int64_t entries = pattern->start[pattern->rows];
    QB_TRY(pattern_begin(pattern->columns, pattern->rows, entries, out));
    int64_t *start = out->start;
    for (int64_t e = 0; e < entries; e++)
        start[pattern->column[e] + 1]++;
    for (int64_t c = 0; c < out->rows; c++)
        start[c + 1] += start[c];
    for (int64_t r = 0; r < pattern->rows; r++) /* start[c] runs through row c, and is put back below */
        for (int64_t e = pattern->start[r]; e < pattern->start[r + 1]; e++)
            out->column[start[pattern->column[e]]++] = (int32_t)r;
    for (int64_t c = out->rows; c > 0; c--)
        start[c] = start[c - 1];
    start[0] = 0;
    return QB_OK;
}

qb_status qb_pattern_symmetric(const qb_pattern *pattern, qb_pattern *out)
{
    qb_pattern mirrored;
    QB_TRY(qb_pattern_transpose(pattern, &mirrored));
    qb_status status = pattern_begin(pattern->rows, pattern->columns, 2 * pattern->start[pattern->rows], out);
    int64_t entries = 0;
    for (int64_t r = 0; status == QB_OK && r < pattern->rows; r++) {
        int64_t i = pattern->start[r], j = mirrored.start[r];
        while (i < pattern->start[r + 1] || j < mirrored.start[r + 1]) {
            int32_t a = i < pattern->start[r + 1] ? pattern->column[i] : INT32_MAX;
            int32_t b = j < mirrored.start[r + 1] ? mirrored.column[j] : INT32_MAX;
            out->column[entries++] = a < b ? a : b;
            i += a <= b;
            j += b <= a;
        }
        out->start[r + 1] = entries;
    }
    qb_pattern_end(&mirrored);
    return status;
}

/* ---- Colouring */

static void distinct(int64_t count, int32_t *colour, int32_t *colours)
{
    for (int64_t v = 0; v < count; v++)
        colour[v] = (int32_t)v;
    *colours = (int32_t)count;
}

/* The smallest colour that is not forbidden to v: forbidden[colour] == v. */
static int32_t smallest_free(const int64_t *forbidden, int64_t v)
{
    int32_t colour = 0;
    while (forbidden[colour] == v)
        colour++;
    return colour;
}

/* The columns, those with most entries first, equal ones in their order: by counting. `by_column` is transposed. */
static qb_status largest_first(const qb_pattern *by_column, int64_t *order)
{
    int64_t count = by_column->rows, most = by_column->columns;
    int64_t *first = qb_allocate_zeroed((size_t)most + 2, sizeof *first);
    if (!first)
        return qb_fail_memory();
    for (int64_t v = 0; v < count; v++)
        first[most - (by_column->start[v + 1] - by_column->start[v]) + 1]++;
    for (int64_t d = 0; d <= most; d++)
        first[d + 1] += first[d];
    for (int64_t v = 0; v < count; v++)
        order[first[most - (by_column->start[v + 1] - by_column->start[v])]++] = v;
    qb_free(first);
    return QB_OK;
}

static void colour_in_order(const qb_pattern *pattern, const qb_pattern *by_column, const int64_t *order,
                            int64_t *forbidden, int32_t *colour, int32_t *count)
{
    *count = 0;
    for (int64_t c = 0; c < pattern->columns; c++) {
        colour[c] = -1;
        forbidden[c] = -1;
    }
    for (int64_t i = 0; i < pattern->columns; i++) {
        int64_t v = order[i];
        for (int64_t e = by_column->start[v]; e < by_column->start[v + 1]; e++) {
            int64_t row = by_column->column[e];
            for (int64_t k = pattern->start[row]; k < pattern->start[row + 1]; k++)
                if (colour[pattern->column[k]] >= 0)
                    forbidden[colour[pattern->column[k]]] = v;
        }
        colour[v] = smallest_free(forbidden, v);
        *count = colour[v] >= *count ? colour[v] + 1 : *count;
    }
}

qb_status qb_colour_columns(const qb_pattern *pattern, int32_t *colour, int32_t *count)
{
    double steps = 0;
    for (int64_t r = 0; r < pattern->rows; r++) {
        double width = (double)(pattern->start[r + 1] - pattern->start[r]);
        steps += width * width;
    }
    if (steps > MOST_STEPS) {
        distinct(pattern->columns, colour, count);
        return QB_OK;
    }
    qb_pattern by_column;
    QB_TRY(qb_pattern_transpose(pattern, &by_column));
    int64_t *order = qb_allocate((size_t)pattern->columns * sizeof *order);
    int64_t *forbidden = qb_allocate(((size_t)pattern->columns + 1) * sizeof *forbidden);
    qb_status status = order && forbidden ? largest_first(&by_column, order) : qb_fail_memory();
    if (status == QB_OK) {
        forbidden[pattern->columns] = -1;
        colour_in_order(pattern, &by_column, order, forbidden, colour, count);
    }
    qb_free(order);
    qb_free(forbidden);
    qb_pattern_end(&by_column);
    return status;
}

/* Forbids to v what would make a path of four vertices with two colours, through its neighbour w. */
static void forbid_paths(const qb_pattern *p, int64_t v, int32_t w, const int32_t *colour, int64_t *forbidden)
{
    for (int64_t k = p->start[w]; k < p->start[w + 1]; k++) {
        int32_t x = p->column[k];
        if (x == v || x == w || colour[x] < 0)
            continue;
        if (colour[w] < 0) { /* v - w - x: w could get any colour later */
            forbidden[colour[x]] = v;
            continue;
        }
        bool ends = true; /* v - w - x - y with w and y of one colour */
        for (int64_t l = p->start[x]; ends && l < p->start[x + 1]; l++) {
            int32_t y = p->column[l];
            ends = y == w || y == x || colour[y] != colour[w];
        }
        if (!ends)
            forbidden[colour[x]] = v;
    }
}

qb_status qb_colour_symmetric(const qb_pattern *pattern, int32_t *colour, int32_t *count)
{
    double steps = 0;
    for (int64_t w = 0; w < pattern->rows; w++) {
        double width = (double)(pattern->start[w + 1] - pattern->start[w]), second = 0;
        for (int64_t e = pattern->start[w]; e < pattern->start[w + 1]; e++)
            second += (double)(pattern->start[pattern->column[e] + 1] - pattern->start[pattern->column[e]]);
        steps += width * second;
    }
    if (steps > MOST_STEPS) {
        distinct(pattern->columns, colour, count);
        return QB_OK;
    }
    int64_t *forbidden = qb_allocate(((size_t)pattern->columns + 1) * sizeof *forbidden);
    if (!forbidden)
        return qb_fail_memory();
    for (int64_t v = 0; v <= pattern->columns; v++)
        forbidden[v] = -1;
    for (int64_t v = 0; v < pattern->columns; v++)
        colour[v] = -1;
    *count = 0;
    for (int64_t v = 0; v < pattern->columns; v++) {
        for (int64_t e = pattern->start[v]; e < pattern->start[v + 1]; e++) {
            int32_t w = pattern->column[e];
            if (w == v)
                continue;
            if (colour[w] >= 0)
                forbidden[colour[w]] = v;
            forbid_paths(pattern, v, w, colour, forbidden);
        }
        colour[v] = smallest_free(forbidden, v);
        *count = colour[v] >= *count ? colour[v] + 1 : *count;
    }
    qb_free(forbidden);
    return QB_OK;
}

/* ---- Reading entries back */

qb_status qb_compressed_places(const qb_pattern *p, qb_compression kind, const int32_t *colour, int64_t *place)
{
    int32_t *met = qb_allocate_zeroed((size_t)p->columns, sizeof *met); /* how often the row has a colour */
    if (!met)
        return qb_fail_memory();
    for (int64_t r = 0; r < p->rows; r++) {
        for (int64_t e = p->start[r]; kind == QB_COMPRESS_SYMMETRIC && e < p->start[r + 1]; e++)
            met[colour[p->column[e]]]++;
        for (int64_t e = p->start[r]; e < p->start[r + 1]; e++) {
            int64_t c = p->column[e];
            bool mirrored = kind == QB_COMPRESS_ROWS || (kind == QB_COMPRESS_SYMMETRIC && met[colour[c]] > 1);
            place[e] = mirrored ? colour[r] * p->columns + c : colour[c] * p->rows + r;
        }
        for (int64_t e = p->start[r]; kind == QB_COMPRESS_SYMMETRIC && e < p->start[r + 1]; e++)
            met[colour[p->column[e]]] = 0;
    }
    qb_free(met);
    return QB_OK;
}
