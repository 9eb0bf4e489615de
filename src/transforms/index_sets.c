#include "transforms/index_sets.h"

#include "base/allocate.h"

#include <stdlib.h>
#include <string.h>

/* Elements of all sets together: 256 MiB of them. Beyond that the matrix is not sparse. */
static const int64_t MOST_ITEMS = (int64_t)1 << 26;

/* A union made before: of a < b. */
typedef struct pair {
    int32_t a, b, result; /* a = 0: free (the empty set is never looked up) */
} pair;

struct qb_index_sets {
    int32_t *items; /* of all sets, one behind the other */
    int64_t item_count, item_capacity;
    int64_t *start; /* of each set; its end is the next one's start */
    int32_t count, capacity;
    int32_t *table; /* of sets by what they hold; 0: free. A power of two, as is that of pairs */
    pair *pairs;
    int32_t table_size, pair_size, pair_count;
    int64_t universe;
    uint32_t *seen_item, *seen_set; /* the round in which unite_all met it */
    int32_t seen_capacity;
    uint32_t round;
    int32_t *found; /* scratch of unite_all */
    qb_status status;
};

qb_status qb_index_sets_status(const qb_index_sets *sets)
{
    return sets->status;
}

int64_t qb_index_set_size(const qb_index_sets *sets, int32_t id)
{
    return sets->start[id + 1] - sets->start[id];
}

const int32_t *qb_index_set_items(const qb_index_sets *sets, int32_t id)
{
    return sets->items + sets->start[id];
}

static int32_t fail(qb_index_sets *sets, qb_status status)
{
    if (sets->status == QB_OK)
        sets->status = status;
    return QB_SET_EMPTY;
}

static uint32_t hash_items(int64_t count, const int32_t *items)
{
    uint64_t hash = (uint64_t)count;
    for (int64_t i = 0; i < count; i++)
        hash = (hash ^ (uint64_t)items[i]) * 0x9e3779b97f4a7c15u; /* Fibonacci hashing (Knuth, TAOCP 3, 6.4) */
    return (uint32_t)(hash >> 32);
}

/* The place of the set that holds these items, or the free one where it belongs. */
static int32_t *find(const qb_index_sets *sets, int64_t count, const int32_t *items)
{
    uint32_t mask = (uint32_t)sets->table_size - 1;
    for (uint32_t i = hash_items(count, items);; i++) {
        int32_t *entry = &sets->table[i & mask];
        if (*entry == 0 || (qb_index_set_size(sets, *entry) == count &&
                            memcmp(qb_index_set_items(sets, *entry), items, (size_t)count * sizeof *items) == 0))
            return entry;
    }
}

static bool grow_table(qb_index_sets *sets)
{
    int32_t size = 2 * sets->table_size;
    int32_t *table = qb_allocate_zeroed((size_t)size, sizeof *table);
    if (!table)
        return false;
    qb_free(sets->table);
    sets->table = table;
    sets->table_size = size;
    for (int32_t id = 1; id < sets->count; id++)
        *find(sets, qb_index_set_size(sets, id), qb_index_set_items(sets, id)) = id;
    return true;
}

static bool reserve_items(qb_index_sets *sets, int64_t count)
{
    int64_t needed = sets->item_count + count, capacity = sets->item_capacity;
    if (needed <= capacity)
        return true;
    while (capacity < needed)
        capacity = capacity ? 2 * capacity : 1024;
    int32_t *items = qb_reallocate(sets->items, (size_t)capacity * sizeof *items);
    if (!items)
        return false;
    sets->items = items;
    sets->item_capacity = capacity;
    return true;
}

/* Makes the last `count` items, which lie behind those of all sets, a set, or finds the one that is equal. */
static int32_t intern(qb_index_sets *sets, int64_t count)
{
    const int32_t *items = sets->items + sets->item_count;
    if (count == 0)
        return QB_SET_EMPTY;
    int32_t *entry = find(sets, count, items);
    if (*entry != 0)
        return *entry;
    if (sets->item_count + count > MOST_ITEMS)
        return fail(sets, qb_fail(QB_ERROR_VALUE, "the result depends on too many elements for a sparse derivative: "
                                                  "use jacobian or hessian"));
    if (!QB_GROW(sets->start, sets->count + 1, sets->capacity, 1))
        return fail(sets, qb_fail_memory());
    int32_t id = sets->count++;
    *entry = id;
    sets->item_count += count;
    sets->start[id + 1] = sets->item_count;
    if (2 * sets->count > sets->table_size && !grow_table(sets))
        return fail(sets, qb_fail_memory());
    return id;
}

void qb_index_sets_destroy(qb_index_sets *sets)
{
    if (!sets)
        return;
    qb_free(sets->items);
    qb_free(sets->start);
    qb_free(sets->table);
    qb_free(sets->pairs);
    qb_free(sets->seen_item);
    qb_free(sets->seen_set);
    qb_free(sets->found);
    qb_free(sets);
}

qb_index_sets *qb_index_sets_create(int64_t universe)
{
    enum { FIRST_SIZE = 256 };
    qb_index_sets *sets = qb_allocate_zeroed(1, sizeof *sets);
    if (!sets)
        return NULL;
    sets->universe = universe;
    sets->table_size = sets->pair_size = FIRST_SIZE;
    sets->table = qb_allocate_zeroed(FIRST_SIZE, sizeof *sets->table);
    sets->pairs = qb_allocate_zeroed(FIRST_SIZE, sizeof *sets->pairs);
    sets->seen_item = qb_allocate_zeroed((size_t)universe, sizeof *sets->seen_item);
    sets->found = qb_allocate((size_t)universe * sizeof *sets->found);
    bool valid = sets->table && sets->pairs && sets->seen_item && sets->found &&
                 QB_GROW(sets->start, 0, sets->capacity, 2) && reserve_items(sets, universe + 1);
    if (valid) {
        sets->start[0] = sets->start[1] = 0;
        sets->count = 1; /* the empty set */
    }
    for (int64_t i = 0; valid && i < universe; i++) {
        sets->items[sets->item_count] = (int32_t)i;
        valid = intern(sets, 1) == (int32_t)i + 1;
    }
    if (valid)
        return sets;
    qb_index_sets_destroy(sets);
    return NULL;
}

/* ---- Unions */

static pair *find_pair(const qb_index_sets *sets, int32_t a, int32_t b)
{
    uint64_t hash = (((uint64_t)(uint32_t)a << 32) | (uint32_t)b) * 0x9e3779b97f4a7c15u;
    uint32_t mask = (uint32_t)sets->pair_size - 1;
    for (uint32_t i = (uint32_t)(hash >> 32);; i++) {
        pair *entry = &sets->pairs[i & mask];
        if (entry->a == 0 || (entry->a == a && entry->b == b))
            return entry;
    }
}

static bool grow_pairs(qb_index_sets *sets)
{
    pair *old = sets->pairs;
    int32_t size = sets->pair_size;
    pair *larger = qb_allocate_zeroed(2 * (size_t)size, sizeof *larger);
    if (!larger)
        return false;
    sets->pairs = larger;
    sets->pair_size = 2 * size;
    for (int32_t i = 0; i < size; i++)
        if (old[i].a != 0)
            *find_pair(sets, old[i].a, old[i].b) = old[i];
    qb_free(old);
    return true;
}

static int32_t merge(qb_index_sets *sets, int32_t a, int32_t b)
{
    int64_t m = qb_index_set_size(sets, a), n = qb_index_set_size(sets, b);
    if (!reserve_items(sets, m + n))
        return fail(sets, qb_fail_memory());
    const int32_t *x = qb_index_set_items(sets, a), *y = qb_index_set_items(sets, b);
    int32_t *out = sets->items + sets->item_count;
    int64_t i = 0, j = 0, count = 0;
    while (i < m || j < n) {
        if (j == n || (i < m && x[i] < y[j]))
            out[count++] = x[i++];
        else {
            i += i < m && x[i] == y[j];
            out[count++] = y[j++];
        }
    }
    return intern(sets, count);
}

int32_t qb_index_sets_unite(qb_index_sets *sets, int32_t a, int32_t b)
{
    if (a == b || b == QB_SET_EMPTY)
        return a;
    if (a == QB_SET_EMPTY || sets->status != QB_OK)
        return b;
    int32_t low = a < b ? a : b, high = a < b ? b : a;
    pair *known = find_pair(sets, low, high);
    if (known->a != 0)
        return known->result;
    int32_t result = merge(sets, low, high);
    if (sets->status != QB_OK)
        return result;
    *known = (pair){low, high, result};
    if (2 * ++sets->pair_count > sets->pair_size && !grow_pairs(sets))
        return fail(sets, qb_fail_memory());
    return result;
}

static int ascending(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The items met in this round, which `found` lists, in order behind those of all sets. */
static void put_in_order(qb_index_sets *sets, int64_t count)
{
    enum { SCAN = 16 }; /* one item in so many: scanning costs less than sorting */
    int32_t *out = sets->items + sets->item_count;
    if (count < sets->universe / SCAN) {
        memcpy(out, sets->found, (size_t)count * sizeof *out);
        qsort(out, (size_t)count, sizeof *out, ascending);
        return;
    }
    for (int64_t i = 0; i < sets->universe; i++)
        if (sets->seen_item[i] == sets->round)
            *out++ = (int32_t)i;
}

static bool next_round(qb_index_sets *sets)
{
    if (sets->seen_capacity < sets->count) {
        int32_t capacity = 2 * sets->count;
        uint32_t *seen = qb_reallocate(sets->seen_set, (size_t)capacity * sizeof *seen);
        if (!seen)
            return false;
        memset(seen + sets->seen_capacity, 0, (size_t)(capacity - sets->seen_capacity) * sizeof *seen);
        sets->seen_set = seen;
        sets->seen_capacity = capacity;
    }
    sets->round++;
    return true;
}

int32_t qb_index_sets_unite_all(qb_index_sets *sets, int64_t count, const int32_t *ids, int64_t stride)
{
    enum { FEW = 3 };
    int32_t result = QB_SET_EMPTY;
    if (count <= FEW) {
        for (int64_t i = 0; i < count; i++)
            result = qb_index_sets_unite(sets, result, ids[i * stride]);
        return result;
    }
    if (sets->status != QB_OK || !next_round(sets) || !reserve_items(sets, sets->universe))
        return fail(sets, sets->status != QB_OK ? sets->status : qb_fail_memory());
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        int32_t id = ids[i * stride];
        if (sets->seen_set[id] == sets->round)
            continue;
        sets->seen_set[id] = sets->round;
        const int32_t *items = qb_index_set_items(sets, id);
        for (int64_t k = qb_index_set_size(sets, id) - 1; k >= 0; k--) {
            if (sets->seen_item[items[k]] != sets->round)
                sets->found[found++] = items[k];
            sets->seen_item[items[k]] = sets->round;
        }
    }
    put_in_order(sets, found);
    return intern(sets, found);
}
