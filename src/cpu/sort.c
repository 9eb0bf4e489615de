/* Sorting along an axis: threads, memory, and axes. sort.h says how it works. */
#include "cpu/sort.h"

#include "base/allocate.h"
#include "base/threads.h"

#include <math.h>
#include <string.h>

enum {
    LONG_ROW = 1 << 14,   /* elements that are distributed by all threads */
    TASK = 1 << 12,       /* elements that are worth a thread's while */
    MOST_CHUNKS = 64,     /* of a long row */
    PER_BUCKET = 1 << 12, /* elements, or fewer where there are few, or more where there are many */
    LEAST_BUCKETS = 8,
    STAY_IN_CACHE = 1 << 14,  /* elements of a bucket that are distributed within a thread's own room */
    LARGE_PART = 8,           /* buckets that have this part of a row, or more, are long rows themselves, */
    MOST_OF_PART = INT32_MAX, /* as are those of more elements: see sort.h */
    COLUMNS = 16,             /* of a strip: two cache lines of float64 */
    TRANSPOSED = 16,          /* rows at a time */
    LINE = 64
};

/* What is sorted: elements of a type, to elements or to places. */
typedef struct sorting {
    const qb_sort_type_loops *loops;
    size_t size; /* of an element */
    uint64_t bias;
    bool floating, places;
    int64_t n;
} sorting;

static const struct {
    qb_sort_type type;
    uint64_t bias;
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

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static qb_sort_items from(const sorting *s, qb_sort_items items, int64_t first)
{
    return (qb_sort_items){(char *)items.keys + (size_t)first * s->size, items.places ? items.places + first : NULL};
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
static void leave_as_is(const sorting *s, const void *elements, qb_sort_items sorted)
{
    if (s->places)
        for (int64_t i = 0; i < s->n; i++)
            sorted.places[i] = i;
    else if (sorted.keys != elements)
        memcpy(sorted.keys, elements, (size_t)s->n * s->size);
}

/* ---- A row by one thread */

static size_t aligned(size_t size)
{
    return (size_t)qb_whole_lines((int64_t)size);
}

static size_t size_of_keys(const sorting *s, int64_t n)
{
    return aligned((size_t)n * s->size);
}

static size_t size_of_items(const sorting *s, int64_t n)
{
    return size_of_keys(s, n) + (s->places ? aligned((size_t)n * sizeof(int64_t)) : 0);
}

static qb_sort_items items_in(const sorting *s, void *room, int64_t n)
{
    return (qb_sort_items){room, s->places ? (int64_t *)(void *)((char *)room + size_of_keys(s, n)) : NULL};
}

/* Items that lie where `sorted` does; keys of places, which `sorted` does not have, in a room of their own. */
static qb_sort_items items_over(const sorting *s, qb_sort_items sorted, void *keys)
{
    return (qb_sort_items){s->places ? keys : sorted.keys, sorted.places};
}

static size_t size_of_row(const sorting *s)
{
    return size_of_items(s, s->n) + (s->places ? size_of_keys(s, s->n) : 0);
}

/* `room`: size_of_row. The elements may be where `sorted.keys` are. */
static void sort_row(const sorting *s, const void *elements, qb_sort_items sorted, void *room)
{
    if (s->loops->is_ascending(elements, s->n, s->bias)) {
        leave_as_is(s, elements, sorted);
        return;
    }
    qb_sort_items buffer = items_in(s, room, s->n);
    qb_sort_items x = items_over(s, sorted, (char *)room + size_of_items(s, s->n));
    int64_t n = s->loops->take[s->places](elements, s->n, s->bias, x, sorted.places);
    s->loops->part[s->places](x, buffer, x, sorted, n, s->bias);
    if (!s->places && n < s->n)
        fill_nan(s, from(s, sorted, n).keys, s->n - n);
}

/* ---- A long row, by all threads */

typedef struct bucket {
    int64_t first, n;
} bucket;

/* In a round, n elements are distributed to the part of items[to] that begins at `first`: in round 0 the whole row,
 * after that a large bucket of the round before, from items[1 - to]. */
typedef struct long_row {
    const sorting *s;
    qb_sort_items sorted, items[2]; /* items[0] are over `sorted` */
    uint16_t *bucket;               /* of each element */
    char *room;                     /* for STAY_IN_CACHE items of each thread */
    const void *elements;           /* this and what follows: of the round */
    const int64_t *places;
    uint64_t bias;
    int64_t first, n, chunk;
    int to;
    qb_sort_classifier classifier;
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
    l->s->loops->count(&l->classifier, elements_from(l, chunk * l->chunk), within_chunk(l, chunk), l->bias,
                       l->bucket + chunk * l->chunk, l->count[chunk]);
}

static void distribute_chunk(void *data, int64_t chunk, int worker)
{
    long_row *l = data;
    int64_t first = chunk * l->chunk;
    (void)worker;
    l->s->loops->distribute[l->s->places](l->bucket + first, elements_from(l, first),
                                          l->places ? l->places + first : NULL, first, within_chunk(l, chunk), l->bias,
                                          l->count[chunk], from(l->s, l->items[l->to], l->first));
}

static void sort_bucket(void *data, int64_t number, int worker)
{
    long_row *l = data;
    const sorting *s = l->s;
    bucket b = l->buckets[number];
    if (b.n == 0 || b.n > l->large)
        return;
    qb_sort_items x = from(s, l->items[l->to], b.first), back = from(s, l->items[1 - l->to], b.first);
    qb_sort_items sorted = from(s, l->sorted, b.first);
    char *room = l->room + (size_t)worker * size_of_items(s, STAY_IN_CACHE);
    if (b.n <= STAY_IN_CACHE)
        s->loops->part[s->places](x, items_in(s, room, STAY_IN_CACHE), back, sorted, b.n, s->bias);
    else
        s->loops->part[s->places](x, back, x, sorted, b.n, s->bias);
}

/* Also stores where the buckets are; that of NaN is sorted. */
static void distribute(long_row *l)
{
    const sorting *s = l->s;
    int64_t buckets = l->classifier.buckets + 1, chunks, at = 0;
    l->chunk = larger(l->n / MOST_CHUNKS + 1, TASK);
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
    qb_parallel(chunks, distribute_chunk, l);
    bucket *nan = &l->buckets[buckets - 1];
    if (s->places && nan->n > 0)
        memmove(l->sorted.places + nan->first, l->items[l->to].places + nan->first, (size_t)nan->n * sizeof(int64_t));
    else if (!s->places && s->floating)
        fill_nan(s, from(s, l->sorted, nan->first).keys, nan->n);
    nan->n = 0;
}

/* Buckets that are still long rows are distributed again. */
static void sort_long(long_row *l, int64_t first, int64_t n, int to, int round)
{
    const sorting *s = l->s;
    bucket large[QB_SORT_BUCKETS];
    int count = 0;
    qb_sort_items x = from(s, l->items[1 - to], first);
    if (round > 0) {
        l->elements = x.keys;
        l->places = x.places;
        l->bias = 0;
    }
    l->first = first;
    l->n = n;
    l->to = to;
    l->large = smaller(larger(n / LARGE_PART, LONG_ROW), MOST_OF_PART);
    l->classifier.buckets = (int)smaller(larger(n / PER_BUCKET, LEAST_BUCKETS), QB_SORT_BUCKETS);
    if (!s->loops->plan(&l->classifier, l->elements, n, l->bias, round)) {
        s->loops->part[s->places](x, x, x, from(s, l->sorted, first), n, s->bias);
        return;
    }
    distribute(l);
    qb_parallel(l->classifier.buckets, sort_bucket, l);
    for (int b = 0; b < l->classifier.buckets; b++)
        if (l->buckets[b].n > l->large)
            large[count++] = l->buckets[b];
    for (int i = 0; i < count; i++)
        sort_long(l, large[i].first, large[i].n, 1 - to, round + 1);
}

/* A long_row, items, with places another one's keys, a room for each thread, and buckets. */
static size_t size_of_long_row(const sorting *s)
{
    return aligned(sizeof(long_row)) + size_of_row(s) + (size_t)qb_thread_count() * size_of_items(s, STAY_IN_CACHE) +
           aligned((size_t)s->n * sizeof(uint16_t));
}

/* `room`: size_of_long_row. The elements may be where `sorted.keys` are. */
static void sort_long_row(const sorting *s, const void *elements, qb_sort_items sorted, void *room)
{
    if (s->loops->is_ascending(elements, s->n, s->bias)) {
        leave_as_is(s, elements, sorted);
        return;
    }
    long_row *l = room;
    char *row = (char *)room + aligned(sizeof *l);
    l->s = s;
    l->items[1] = items_in(s, row, s->n);
    l->items[0] = items_over(s, sorted, row + size_of_items(s, s->n));
    l->room = row + size_of_row(s);
    l->bucket = (uint16_t *)(void *)(l->room + (size_t)qb_thread_count() * size_of_items(s, STAY_IN_CACHE));
    l->sorted = sorted;
    l->elements = elements;
    l->places = NULL;
    l->bias = s->bias;
    sort_long(l, 0, s->n, 1, 0);
}

/* ---- All rows */

typedef struct job {
    sorting s;
    int64_t outer, inner;
    int64_t per_task; /* rows, or columns of a strip, that are one task */
    int64_t tasks;
    size_t result_size; /* of an element */
    const char *elements;
    char *result;
    char *workspace; /* a room for each worker; for long rows one */
} job;

static bool is_long(const job *j)
{
    return j->s.n >= LONG_ROW;
}

/* The columns of a strip as rows, of elements and, behind these, of places; elements are sorted where they are. */
static size_t size_of_strip(const job *j)
{
    return j->inner == 1 ? 0 : size_of_items(&j->s, j->per_task * j->s.n);
}

static size_t size_of_room(const job *j)
{
    return size_of_strip(j) + (is_long(j) ? size_of_long_row(&j->s) : size_of_row(&j->s));
}

/* Long rows are one task after the other, each of all threads. */
static job job_of(const qb_sort_rows *rows)
{
    job j = {.s = {.loops = &qb_sort_loops_in_use()->of[sorted_as[rows->dtype].type],
                   .size = qb_dtype_size(rows->dtype),
                   .bias = sorted_as[rows->dtype].bias,
                   .floating = qb_dtype_is_floating(rows->dtype),
                   .places = rows->places,
                   .n = rows->n},
             .outer = rows->outer,
             .inner = rows->inner,
             .result_size = rows->places ? sizeof(int64_t) : qb_dtype_size(rows->dtype)};
    if (is_long(&j))
        j.per_task = 1;
    else
        j.per_task = j.inner == 1 ? larger(TASK / j.s.n, 1) : smaller(j.inner, COLUMNS);
    j.tasks = j.inner == 1 ? (j.outer - 1) / j.per_task + 1 : j.outer * ((j.inner - 1) / j.per_task + 1);
    return j;
}

static char *room_of(const job *j, int worker)
{
    return j->workspace + (size_t)worker * size_of_room(j);
}

static void sort_row_of(const job *j, const char *elements, char *result, char *room)
{
    /* with places, keys are not written there */
    qb_sort_items sorted = {.keys = result, .places = j->s.places ? (void *)result : NULL};
    if (is_long(j))
        sort_long_row(&j->s, elements, sorted, room);
    else
        sort_row(&j->s, elements, sorted, room);
}

static void sort_rows(void *data, int64_t task, int worker)
{
    const job *j = data;
    int64_t first = task * j->per_task, end = smaller(first + j->per_task, j->outer);
    for (int64_t row = first; row < end; row++)
        sort_row_of(j, j->elements + (size_t)(row * j->s.n) * j->s.size,
                    j->result + (size_t)(row * j->s.n) * j->result_size, room_of(j, worker));
}

/* Columns of a matrix with `inner` of them become rows of n elements, or (back) rows become columns: some rows of
 * the matrix at a time, while the next are on their way from memory, since no processor foresees where they are. */
#define TRANSPOSE(T)                                                                                                   \
    static void transpose_##T(const job *j, T *matrix, T *side_by_side, int64_t columns, bool back)                    \
    {                                                                                                                  \
        const int64_t n = j->s.n, inner = j->inner;                                                                    \
        for (int64_t first = 0; first < n; first += TRANSPOSED) {                                                      \
            const int64_t end = first + TRANSPOSED < n ? first + TRANSPOSED : n,                                       \
                          ahead = end + TRANSPOSED < n ? end + TRANSPOSED : n;                                         \
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
TRANSPOSE(uint32_t)
TRANSPOSE(uint64_t)

static void transpose(const job *j, size_t size, const void *matrix, void *side_by_side, int64_t columns, bool back)
{
    if (size == sizeof(uint64_t))
        transpose_uint64_t(j, (uint64_t *)matrix, side_by_side, columns, back);
    else
        transpose_uint32_t(j, (uint32_t *)matrix, side_by_side, columns, back);
}

/* Columns are sorted as rows, side by side in the room. */
static void sort_strip(void *data, int64_t task, int worker)
{
    const job *j = data;
    int64_t n = j->s.n, strips = (j->inner - 1) / j->per_task + 1, first = task % strips * j->per_task;
    int64_t columns = smaller(j->inner - first, j->per_task);
    size_t at = (size_t)(task / strips * n * j->inner + first);
    char *in = room_of(j, worker), *out = j->s.places ? in + size_of_keys(&j->s, j->per_task * n) : in;
    char *room = in + size_of_strip(j);
    transpose(j, j->s.size, j->elements + at * j->s.size, in, columns, false);
    for (int64_t c = 0; c < columns; c++)
        sort_row_of(j, in + (size_t)(c * n) * j->s.size, out + (size_t)(c * n) * j->result_size, room);
    transpose(j, j->result_size, j->result + at * j->result_size, out, columns, true);
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

static void sort_bools(const qb_sort_rows *rows, const void *elements, void *result)
{
    truths t = {.outer = rows->outer,
                .n = rows->n,
                .inner = rows->inner,
                .elements = elements,
                .sorted = rows->places ? NULL : result,
                .places = rows->places ? result : NULL};
    t.per_task = larger(TASK / (smaller(t.inner, COLUMNS) * t.n), 1);
    qb_parallel((t.outer * ((t.inner - 1) / COLUMNS + 1) - 1) / t.per_task + 1, sort_truths, &t);
}

/* ---- All types */

int64_t qb_sort_workspace(const qb_sort_rows *rows)
{
    if (rows->dtype == QB_BOOL || rows->outer * rows->n * rows->inner == 0)
        return 0;
    job j = job_of(rows);
    return (is_long(&j) ? 1 : qb_worker_limit(j.tasks)) * (int64_t)size_of_room(&j);
}

void qb_sort_run(const qb_sort_rows *rows, const void *elements, void *result, void *workspace)
{
    if (rows->outer * rows->n * rows->inner == 0)
        return;
    if (rows->dtype == QB_BOOL) {
        sort_bools(rows, elements, result);
        return;
    }
    job j = job_of(rows);
    qb_chunk_work work = j.inner == 1 ? sort_rows : sort_strip;
    j.elements = elements;
    j.result = result;
    j.workspace = workspace;
    if (is_long(&j))
        for (int64_t task = 0; task < j.tasks; task++) /* each is work for all threads */
            work(&j, task, 0);
    else
        qb_parallel(j.tasks, work, &j);
}
