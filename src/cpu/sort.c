/* Sorting along an axis: threads, memory, and what is done where there is none. sort.h says how it works. */
#include "cpu/sort.h"

#include "base/allocate.h"
#include "base/threads.h"

#include <math.h>
#include <string.h>

enum {
    LONG_ROW = 1 << 14,   /* elements that are dealt out by all threads */
    TASK = 1 << 12,       /* elements that are worth a thread's while */
    MOST_CHUNKS = 64,     /* of a long row */
    PER_BUCKET = 1 << 12, /* elements, or fewer where there are few, or more where there are many */
    LEAST_BUCKETS = 8,
    STAY_IN_CACHE = 1 << 14, /* elements of a bucket that are dealt out within a thread's own room */
    MOST_LARGE = 8,          /* buckets that have this part of a row, or more, are long rows themselves */
    COLUMNS = 16,            /* of a strip: two cache lines of float64 */
    TURNED = 16,             /* rows at a time */
    LINE = 64,
    FEW_BYTES = 4096
};

#define LONGEST_ROW ((int64_t)1 << 34) /* elements; its buckets have fewer than 2^31, as sort.h wants */

/* What is sorted: elements of a type, to elements or to places. */
typedef struct sorting {
    const qb_sort_type_loops *loops;
    size_t size; /* of an element */
    uint64_t flip;
    bool floating, places;
    int64_t n;
} sorting;

static const struct {
    qb_sort_type type;
    uint64_t flip;
} sorted_as[QB_DTYPE_COUNT] = {[QB_FLOAT64] = {QB_SORT_FLOAT64, 0},
                               [QB_FLOAT32] = {QB_SORT_FLOAT32, 0},
                               [QB_INT64] = {QB_SORT_INT64, 0},
                               [QB_INT32] = {QB_SORT_INT32, 0},
                               [QB_UINT64] = {QB_SORT_INT64, (uint64_t)1 << 63},
                               [QB_UINT32] = {QB_SORT_INT32, (uint64_t)1 << 31}};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static qb_sort_run from(const sorting *s, qb_sort_run run, int64_t first)
{
    return (qb_sort_run){(char *)run.keys + (size_t)first * s->size, run.places ? run.places + first : NULL};
}

/* Of all NaN there is one. */
static void fill_nan(const sorting *s, void *elements, int64_t n)
{
    const double wide = (double)NAN;
    const float narrow = NAN;
    for (int64_t i = 0; i < n; i++)
        if (s->size == sizeof wide)
            memcpy((char *)elements + i * (int64_t)s->size, &wide, sizeof wide);
        else
            memcpy((char *)elements + i * (int64_t)s->size, &narrow, sizeof narrow);
}

/* Already sorted: the copy, or 0, 1, ... */
static void leave_as_is(const sorting *s, const void *elements, qb_sort_run sorted)
{
    if (s->places)
        for (int64_t i = 0; i < s->n; i++)
            sorted.places[i] = i;
    else
        memcpy(sorted.keys, elements, (size_t)s->n * s->size);
}

/* ---- A row by one thread */

static size_t aligned(size_t size)
{
    return (size + LINE - 1) / LINE * LINE;
}

static size_t size_of_run(const sorting *s, int64_t n)
{
    return aligned((size_t)n * (s->size + (s->places ? sizeof(int64_t) : 0)));
}

static qb_sort_run run_in(const sorting *s, void *room, int64_t n)
{
    int64_t *places = s->places ? room : NULL;
    return (qb_sort_run){s->places ? (void *)(places + n) : room, places};
}

/* `room`: two runs */
static void sort_row(const sorting *s, const void *elements, qb_sort_run sorted, void *room)
{
    if (s->loops->is_ascending(elements, s->n, s->flip)) {
        leave_as_is(s, elements, sorted);
        return;
    }
    qb_sort_run x = run_in(s, room, s->n), other = run_in(s, (char *)room + size_of_run(s, s->n), s->n);
    int64_t n = s->loops->take[s->places](elements, s->n, s->flip, x, sorted.places);
    s->loops->part[s->places](x, other, x, sorted, n, s->flip);
    if (!s->places && n < s->n)
        fill_nan(s, from(s, sorted, n).keys, s->n - n);
}

/* ---- A long row, by all threads */

typedef struct bucket {
    int64_t first, n;
} bucket;

/* In a round, n elements are dealt out to the part of run[to] that begins at `first`: in round 0 the whole row,
 * after that a large bucket of the round before, from run[1 - to]. */
typedef struct long_row {
    const sorting *s;
    qb_sort_run sorted, run[2]; /* run[0] lies where `sorted` does, but for the keys of places */
    uint16_t *bucket;           /* of each element */
    char *room;                 /* a run of STAY_IN_CACHE for each thread */
    const void *elements;       /* this and what follows: of the round */
    const int64_t *places;
    uint64_t flip;
    int64_t first, n, chunk;
    int to;
    qb_sort_deal deal;
    int64_t count[MOST_CHUNKS][QB_SORT_BUCKETS + 1];
    bucket buckets[QB_SORT_BUCKETS + 1];
    int64_t large; /* a bucket of more elements */
} long_row;

static int64_t within_chunk(const long_row *l, int64_t chunk)
{
    return smaller(l->n - chunk * l->chunk, l->chunk);
}

static const void *elements_from(const long_row *l, int64_t first)
{
    return (const char *)l->elements + (size_t)first * l->s->size;
}

static void count_chunk(void *data, int64_t chunk, int worker)
{
    long_row *l = data;
    (void)worker;
    memset(l->count[chunk], 0, sizeof l->count[chunk]);
    l->s->loops->count(&l->deal, elements_from(l, chunk * l->chunk), within_chunk(l, chunk), l->flip,
                       l->bucket + chunk * l->chunk, l->count[chunk]);
}

static void deal_chunk(void *data, int64_t chunk, int worker)
{
    long_row *l = data;
    int64_t first = chunk * l->chunk;
    (void)worker;
    l->s->loops->deal[l->s->places](l->bucket + first, elements_from(l, first), l->places ? l->places + first : NULL,
                                    first, within_chunk(l, chunk), l->flip, l->count[chunk],
                                    from(l->s, l->run[l->to], l->first));
}

static void sort_bucket(void *data, int64_t number, int worker)
{
    long_row *l = data;
    const sorting *s = l->s;
    bucket b = l->buckets[number];
    if (b.n == 0 || b.n > l->large)
        return;
    qb_sort_run x = from(s, l->run[l->to], b.first), back = from(s, l->run[1 - l->to], b.first);
    qb_sort_run sorted = from(s, l->sorted, b.first);
    bool stays = b.n <= STAY_IN_CACHE;
    qb_sort_run other =
        stays ? run_in(s, l->room + (size_t)worker * size_of_run(s, STAY_IN_CACHE), STAY_IN_CACHE) : back;
    s->loops->part[s->places](x, other, stays ? back : x, sorted, b.n, s->flip);
}

/* Deals out, and stores where the buckets are; that of NaN is sorted. */
static void deal_out(long_row *l)
{
    const sorting *s = l->s;
    int64_t buckets = l->deal.buckets + 1, chunks, at = 0;
    l->chunk = l->n / MOST_CHUNKS + 1 < TASK ? TASK : l->n / MOST_CHUNKS + 1;
    chunks = (l->n - 1) / l->chunk + 1;
    qb_parallel(chunks, count_chunk, l);
    for (int64_t b = 0; b < buckets; b++) {
        l->buckets[b].first = l->first + at;
        for (int64_t c = 0; c < chunks; c++) {
            int64_t here = l->count[c][b];
            l->count[c][b] = at;
            at += here;
        }
        l->buckets[b].n = l->first + at - l->buckets[b].first;
    }
    qb_parallel(chunks, deal_chunk, l);
    bucket *nan = &l->buckets[buckets - 1];
    if (s->places && nan->n > 0)
        memmove(l->sorted.places + nan->first, l->run[l->to].places + nan->first, (size_t)nan->n * sizeof(int64_t));
    else if (s->floating)
        fill_nan(s, from(s, l->sorted, nan->first).keys, nan->n);
    nan->n = 0;
}

/* Buckets that are still long rows are dealt out again. */
static void sort_long(long_row *l, int64_t first, int64_t n, int to, int round)
{
    const sorting *s = l->s;
    bucket large[MOST_LARGE];
    int count = 0;
    qb_sort_run x = from(s, l->run[1 - to], first);
    if (round > 0) {
        l->elements = x.keys;
        l->places = x.places;
        l->flip = 0;
    }
    l->first = first;
    l->n = n;
    l->to = to;
    l->large = n / MOST_LARGE < LONG_ROW ? LONG_ROW : n / MOST_LARGE;
    int64_t buckets = n / PER_BUCKET < LEAST_BUCKETS ? LEAST_BUCKETS : n / PER_BUCKET;
    l->deal.buckets = (int)smaller(buckets, QB_SORT_BUCKETS);
    if (!s->loops->plan(&l->deal, l->elements, n, l->flip, round)) {
        s->loops->part[s->places](x, x, x, from(s, l->sorted, first), n, s->flip);
        return;
    }
    deal_out(l);
    qb_parallel(l->deal.buckets, sort_bucket, l);
    for (int b = 0; b < l->deal.buckets; b++)
        if (l->buckets[b].n > l->large)
            large[count++] = l->buckets[b];
    for (int i = 0; i < count; i++)
        sort_long(l, large[i].first, large[i].n, 1 - to, round + 1);
}

/* What long rows need besides the result: a long_row, a run, with places another one's keys, and a room for each
 * thread. */
static size_t size_of_long_row(const sorting *s)
{
    return aligned(sizeof(long_row)) + size_of_run(s, s->n) + (s->places ? aligned((size_t)s->n * s->size) : 0) +
           (size_t)qb_thread_count() * size_of_run(s, STAY_IN_CACHE) + (size_t)s->n * sizeof(uint16_t);
}

static void sort_long_row(const sorting *s, const void *elements, qb_sort_run sorted, void *memory)
{
    if (s->loops->is_ascending(elements, s->n, s->flip)) {
        leave_as_is(s, elements, sorted);
        return;
    }
    long_row *l = memory;
    char *rest = (char *)memory + aligned(sizeof *l);
    l->s = s;
    l->run[1] = run_in(s, rest, s->n);
    rest += size_of_run(s, s->n);
    l->run[0] = sorted;
    if (s->places) {
        l->run[0].keys = rest;
        rest += aligned((size_t)s->n * s->size);
    }
    l->room = rest;
    rest += (size_t)qb_thread_count() * size_of_run(s, STAY_IN_CACHE);
    l->bucket = (uint16_t *)(void *)rest;
    l->sorted = sorted;
    l->elements = elements;
    l->places = NULL;
    l->flip = s->flip;
    sort_long(l, 0, s->n, 1, 0);
}

/* ---- All rows */

typedef struct rows {
    sorting s;
    int64_t outer, inner, per_task; /* rows, or columns of a strip, that are one task */
    const char *elements;
    char *result;
    size_t result_size; /* of an element */
    char *memory;
    size_t memory_size; /* of a thread's */
} rows;

static qb_sort_run sorted_at(const rows *r, char *result)
{
    qb_sort_run run = {.keys = r->s.places ? NULL : result, .places = r->s.places ? (void *)result : NULL};
    return run;
}

static void sort_rows(void *data, int64_t task, int worker)
{
    rows *r = data;
    int64_t first = task * r->per_task, end = smaller(first + r->per_task, r->outer);
    for (int64_t row = first; row < end; row++)
        sort_row(&r->s, r->elements + (size_t)(row * r->s.n) * r->s.size,
                 sorted_at(r, r->result + (size_t)(row * r->s.n) * r->result_size),
                 r->memory + (size_t)worker * r->memory_size);
}

/* Columns of a matrix with `inner` of them become rows of n elements, or (back) rows become columns: some rows of
 * the matrix at a time, while the next are on their way from memory, since no processor foresees where they are. */
#define TURN(T)                                                                                                        \
    static void turn_##T(const rows *r, T *matrix, T *side_by_side, int64_t columns, bool back)                        \
    {                                                                                                                  \
        const int64_t n = r->s.n, inner = r->inner;                                                                    \
        for (int64_t first = 0; first < n; first += TURNED) {                                                          \
            const int64_t end = first + TURNED < n ? first + TURNED : n, ahead = end + TURNED < n ? end + TURNED : n;  \
            for (int64_t i = end; i < ahead; i++)                                                                      \
                for (int64_t c = 0; c < columns; c += LINE / (int64_t)sizeof(T))                                       \
                    __builtin_prefetch(&matrix[i * inner + c], 1);                                                     \
            for (int64_t c = 0; c < columns; c++)                                                                      \
                if (back)                                                                                              \
                    for (int64_t i = first; i < end; i++)                                                              \
                        matrix[i * inner + c] = side_by_side[c * n + i];                                               \
                else                                                                                                   \
                    for (int64_t i = first; i < end; i++)                                                              \
                        side_by_side[c * n + i] = matrix[i * inner + c];                                               \
        }                                                                                                              \
    }
TURN(uint32_t)
TURN(uint64_t)

static void turn(const rows *r, size_t size, const void *matrix, void *side_by_side, int64_t columns, bool back)
{
    if (size == sizeof(uint64_t))
        turn_uint64_t(r, (uint64_t *)matrix, side_by_side, columns, back);
    else
        turn_uint32_t(r, (uint32_t *)matrix, side_by_side, columns, back);
}

/* Columns are sorted as rows, side by side in a thread's memory. */
static void sort_strip(void *data, int64_t task, int worker)
{
    rows *r = data;
    int64_t n = r->s.n, strips = (r->inner - 1) / r->per_task + 1, first = task % strips * r->per_task;
    int64_t columns = smaller(r->inner - first, r->per_task);
    size_t at = (size_t)(task / strips * n * r->inner + first);
    char *in = r->memory + (size_t)worker * r->memory_size, *out = in + aligned((size_t)(r->per_task * n) * r->s.size);
    char *room = out + aligned((size_t)(r->per_task * n) * r->result_size);
    turn(r, r->s.size, r->elements + at * r->s.size, in, columns, false);
    for (int64_t c = 0; c < columns; c++)
        sort_row(&r->s, in + (size_t)(c * n) * r->s.size, sorted_at(r, out + (size_t)(c * n) * r->result_size), room);
    turn(r, r->result_size, r->result + at * r->result_size, out, columns, true);
}

/* False: memory is short. */
static bool sort_short_rows(rows *r)
{
    int64_t n = r->s.n, tasks;
    r->memory_size = 2 * size_of_run(&r->s, n);
    if (r->inner == 1) {
        r->per_task = n < TASK ? TASK / n : 1;
        tasks = (r->outer - 1) / r->per_task + 1;
    } else {
        r->per_task = smaller(r->inner, COLUMNS);
        tasks = r->outer * ((r->inner - 1) / r->per_task + 1);
        r->memory_size +=
            aligned((size_t)(r->per_task * n) * r->s.size) + aligned((size_t)(r->per_task * n) * r->result_size);
    }
    _Alignas(LINE) char few[FEW_BYTES]; /* so that small calls need no memory */
    bool fits = tasks == 1 && r->memory_size <= sizeof few;
    r->memory = fits ? few : qb_allocate_aligned(r->memory_size * (size_t)(tasks > 1 ? qb_thread_count() : 1));
    if (!r->memory)
        return false;
    qb_parallel(tasks, r->inner == 1 ? sort_rows : sort_strip, r);
    if (!fits)
        qb_free_aligned(r->memory);
    return true;
}

static bool sort_long_rows(rows *r)
{
    const sorting *s = &r->s;
    const size_t size = aligned(size_of_long_row(s)), column = aligned((size_t)s->n * s->size);
    const bool turns = r->inner > 1;
    char *memory = qb_allocate_aligned(size + (turns ? column + (size_t)s->n * r->result_size : 0));
    if (!memory)
        return false;
    char *in = memory + size, *out = in + column;
    for (int64_t row = 0; row < r->outer * r->inner; row++) {
        size_t at = (size_t)(row / r->inner * s->n * r->inner + row % r->inner);
        const char *elements = r->elements + at * s->size;
        char *result = r->result + at * r->result_size;
        if (turns)
            turn(r, s->size, elements, in, 1, false);
        sort_long_row(s, turns ? in : elements, sorted_at(r, turns ? out : result), memory);
        if (turns)
            turn(r, r->result_size, result, out, 1, true);
    }
    qb_free_aligned(memory);
    return true;
}

/* ---- bool: by counting */

typedef struct truths {
    int64_t outer, n, inner, per_task;
    const uint8_t *elements;
    uint8_t *sorted; /* one of the two */
    int64_t *places;
} truths;

/* Columns of one matrix, at most COLUMNS of them. */
static void sort_strip_of_truths(const truths *t, int64_t at, int64_t columns)
{
    int64_t next[2][COLUMNS] = {{0}}; /* where the next false and the next true element go */
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t c = 0; c < columns; c++)
            next[1][c] += !t->elements[at + i * t->inner + c];
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t c = 0; c < columns; c++)
            if (t->places)
                t->places[at + next[t->elements[at + i * t->inner + c] != 0][c]++ * t->inner + c] = i;
            else
                t->sorted[at + i * t->inner + c] = i >= next[1][c];
}

static void sort_truths(void *data, int64_t task, int worker)
{
    const truths *t = data;
    int64_t strips = (t->inner - 1) / COLUMNS + 1;
    (void)worker;
    for (int64_t i = task * t->per_task; i < smaller((task + 1) * t->per_task, t->outer * strips); i++) {
        int64_t first = i % strips * COLUMNS;
        sort_strip_of_truths(t, i / strips * t->n * t->inner + first, smaller(t->inner - first, COLUMNS));
    }
}

/* ---- All types */

static bool sort_rows_of(qb_dtype dtype, int64_t outer, int64_t n, int64_t inner, const void *elements, void *result,
                         bool places)
{
    rows r = {.s = {.loops = &qb_sort_loops_in_use()->of[sorted_as[dtype].type],
                    .size = qb_dtype_size(dtype),
                    .flip = sorted_as[dtype].flip,
                    .floating = qb_dtype_is_floating(dtype),
                    .places = places,
                    .n = n},
              .outer = outer,
              .inner = inner,
              .elements = elements,
              .result = result,
              .result_size = places ? sizeof(int64_t) : qb_dtype_size(dtype)};
    return n < LONG_ROW ? sort_short_rows(&r) : n < LONGEST_ROW && sort_long_rows(&r);
}

static void sort_bools(int64_t outer, int64_t n, int64_t inner, const void *elements, void *sorted, int64_t *places)
{
    truths t = {.outer = outer, .n = n, .inner = inner, .elements = elements, .sorted = sorted, .places = places};
    int64_t columns = smaller(inner, COLUMNS);
    t.per_task = columns * n < TASK ? TASK / (columns * n) : 1;
    qb_parallel((outer * ((inner - 1) / COLUMNS + 1) - 1) / t.per_task + 1, sort_truths, &t);
}

void qb_sort_elements(qb_dtype dtype, int64_t outer, int64_t n, int64_t inner, const void *elements, void *result)
{
    if (outer * n * inner == 0)
        return;
    if (dtype == QB_BOOL)
        sort_bools(outer, n, inner, elements, result, NULL);
    else if (!sort_rows_of(dtype, outer, n, inner, elements, result, false))
        qb_sort_elements_in_place(dtype, outer, n, inner, elements, result);
}

void qb_sort_places(qb_dtype dtype, int64_t outer, int64_t n, int64_t inner, const void *elements, int64_t *result)
{
    if (outer * n * inner == 0)
        return;
    if (dtype == QB_BOOL)
        sort_bools(outer, n, inner, elements, NULL, result);
    else if (!sort_rows_of(dtype, outer, n, inner, elements, result, true))
        qb_sort_places_in_place(dtype, outer, n, inner, elements, result);
}
