/* The kernel of recurrence: which columns or parts of a row are work for which thread.
 *
 * Columns are independent of each other. A long row is cut into pieces: the sum of each, the sums before each, and then
 * the running sums in each. The cut depends on the length alone, so results do not depend on the number of threads. */
#include "cpu/recurrence.h"

#include "base/threads.h"
#include "cpu/loops.h"

enum {
    CHUNK = 1 << 14, /* elements that are worth a thread's while */
    WIDE_STRIP = 128,
    PIECE = 8 * 8 * 129, /* not a power of two: running.h reads eight parts of it side by side */
    LONG_ROW = 4 * PIECE,
    MOST_PIECES = 128
};

typedef struct recurrence {
    qb_dtype dtype;
    bool strong;
    const char *terms, *factors; /* factors: NULL for ones */
    char *values;
    int64_t outer, n, inner;
    int64_t step; /* elements from a row to the next: negative from the end */
    int64_t width, strips, per_chunk;

    /* of the row at hand */
    int64_t row; /* where it begins, in elements */
    int64_t piece;
    qb_running carry[MOST_PIECES + 1];
} recurrence;

/* ---- Columns */

static void run_strip(const recurrence *r, int64_t o, int64_t column)
{
    size_t size = qb_dtype_size(r->dtype);
    size_t place = (size_t)(o * r->n * r->inner + (r->step < 0 ? (r->n - 1) * r->inner : 0) + column) * size;
    int64_t count = r->inner - column < r->width ? r->inner - column : r->width;
    const qb_loop_table *loops = qb_loops();
    if (r->factors || !qb_dtype_is_floating(r->dtype)) {
        loops->recurrence[r->strong][r->dtype](r->terms + place, r->factors ? r->factors + place : NULL,
                                               r->values + place, r->n, r->step, count);
    } else if (count == 1) {
        qb_running carry = {-0.0, 0};
        loops->running_sum[r->dtype](r->terms + place, r->values + place, r->n, r->step, &carry);
    } else {
        loops->running_strip[r->dtype](r->terms + place, r->values + place, r->n, r->step, count);
    }
}

static void run_strips(void *data, int64_t chunk, int worker)
{
    const recurrence *r = data;
    int64_t first = chunk * r->per_chunk, limit = first + r->per_chunk, all = r->outer * r->strips;
    (void)worker;
    for (; first < limit && first < all; first++)
        run_strip(r, first / r->strips, first % r->strips * r->width);
}

/* ---- Long rows */

/* The elements of a piece; pieces are numbered in the direction of the sum. */
static int64_t piece_at(const recurrence *r, int64_t piece, int64_t *count)
{
    int64_t first = piece * r->piece;
    *count = r->n - first < r->piece ? r->n - first : r->piece;
    return r->row + (r->step < 0 ? r->n - first - *count : first); /* the lowest */
}

static void add_piece(void *data, int64_t piece, int worker)
{
    recurrence *r = data;
    int64_t count, lowest = piece_at(r, piece, &count);
    (void)worker;
    r->carry[piece + 1] =
        qb_loops()->running_total[r->dtype](r->terms + (size_t)lowest * qb_dtype_size(r->dtype), count);
}

static void run_piece(void *data, int64_t piece, int worker)
{
    const recurrence *r = data;
    int64_t count, lowest = piece_at(r, piece, &count);
    size_t place = (size_t)(lowest + (r->step < 0 ? count - 1 : 0)) * qb_dtype_size(r->dtype);
    qb_running carry = r->carry[piece];
    (void)worker;
    qb_loops()->running_sum[r->dtype](r->terms + place, r->values + place, count, r->step, &carry);
}

static void run_row(recurrence *r, int64_t o)
{
    r->row = o * r->n;
    r->piece = (r->n + MOST_PIECES - 1) / MOST_PIECES;
    r->piece = r->piece > PIECE ? r->piece : PIECE;
    int64_t pieces = (r->n + r->piece - 1) / r->piece;
    bool finite = true;
    qb_parallel(pieces - 1, add_piece, r);
    r->carry[0] = (qb_running){-0.0, 0};
    for (int64_t p = 1; p < pieces; p++) {
        r->carry[p] = qb_loops()->running_together(r->carry[p - 1], r->carry[p]);
        finite = finite && r->carry[p].sum - r->carry[p].sum + (r->carry[p].cost - r->carry[p].cost) == 0;
    }
    if (finite) {
        qb_parallel(pieces, run_piece, r);
    } else { /* a piece alone may overflow where the running sum does not */
        r->width = r->inner;
        run_strip(r, o, 0);
    }
}

/* ---- Entry */

void qb_recurrence_run(const qb_attribute *attribute, int operand_count, const qb_type *operand_type,
                       const void *const *operand, const qb_type *result_type, void *const *result)
{
    (void)operand_type;
    int axis = (int)attribute[0].integer;
    recurrence r = {.dtype = result_type->dtype,
                    .strong = attribute[2].integer != 0,
                    .terms = operand[0],
                    .factors = operand_count == 2 ? operand[1] : NULL,
                    .values = result[0],
                    .outer = 1,
                    .n = result_type->shape[axis],
                    .inner = 1};
    for (int i = 0; i < result_type->rank; i++) {
        r.outer *= i < axis ? result_type->shape[i] : 1;
        r.inner *= i > axis ? result_type->shape[i] : 1;
    }
    if (r.outer * r.n * r.inner == 0)
        return;
    r.step = attribute[1].integer != 0 ? -r.inner : r.inner;
    bool sums = !r.factors && qb_dtype_is_floating(r.dtype);
    if (sums && r.inner == 1 && r.n >= LONG_ROW) {
        for (int64_t o = 0; o < r.outer; o++)
            run_row(&r, o);
        return;
    }
    r.width = sums ? QB_STRIP : WIDE_STRIP;
    r.width = r.width < r.inner ? r.width : r.inner;
    r.strips = (r.inner + r.width - 1) / r.width;
    r.per_chunk = (CHUNK + r.n * r.width - 1) / (r.n * r.width);
    qb_parallel((r.outer * r.strips + r.per_chunk - 1) / r.per_chunk, run_strips, &r);
}
