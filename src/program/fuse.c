/* Fusion: which plan values are computed in one kernel, and the order of the steps.
 *
 * Every value has a level: that of its operands where they are lane operations read lane by lane ("directly"), one more
 * where it reads what must be in memory: through strides, from a product, a call or a reduction. Lane operations of one
 * level and one count can share a kernel: an edge between values of different kernels always goes up a level, so no
 * cycle arises, and the order of levels is an order of execution. Kernels are the components of such a class that are
 * connected by direct edges or read the same array; all of a class where it is a single block of lanes.
 *
 * A value that only later levels read is computed there instead of being stored, if its operands are in memory anyway:
 * the 1 - y^2 of a tanh's derivative costs two instructions in the backward kernel, and no memory. */
#include "program/plan.h"

#include "base/allocate.h"

enum {
    MOST_LIVE_BYTES = 1 << 17 /* registers of a kernel that are live at once: beyond L1, still well in L2 */
};

/* The lanes that the value's kernel iterates over. */
static int64_t iteration_count(const qb_plan_value *value)
{
    return value->role == QB_ROLE_REDUCE ? value->split->outer * value->split->extent * value->split->inner
                                         : value->count;
}

/* Whether the value reads operand `id` lane by lane from its root. */
static bool reads_directly(const qb_plan *plan, const qb_plan_value *value, int32_t id)
{
    const qb_plan_value *operand = &plan->values[id];
    if (value->role == QB_ROLE_COPY)
        return value->view->offset == 0 && value->count == operand->count && qb_view_is_contiguous(value->view);
    return qb_plan_in_kernel(value) && operand->role != QB_ROLE_VIEW;
}

static int32_t level_of(const qb_plan *plan, const qb_plan_value *value)
{
    int32_t level = 0;
    for (int i = 0; i < value->operand_count; i++) {
        int32_t id = plan->operands[value->operand + i];
        const qb_plan_value *root = &plan->values[plan->values[id].root];
        bool fuses = qb_plan_fusable(root) && reads_directly(plan, value, id);
        int32_t least = fuses ? root->level : root->level + 1;
        level = level > least ? level : least;
    }
    return level;
}

static bool is_computed(const qb_plan_value *value)
{
    return value->role >= QB_ROLE_LANE;
}

static void find_levels(qb_plan *plan)
{
    int32_t effects = 0; /* the level of the last one: they happen in the order of the program */
    for (int32_t v = 0; v < plan->value_count; v++) {
        qb_plan_value *value = &plan->values[v];
        if (value->role == QB_ROLE_RESULT)
            value->level = plan->values[v - 1].level;
        else if (is_computed(value))
            value->level = level_of(plan, value);
        if (!plan->graph->has_effects || (value->role != QB_ROLE_CALL && value->role != QB_ROLE_REGION) ||
            !qb_node_has_effects(value->node))
            continue;
        value->level = effects = value->level > effects ? value->level : effects;
    }
}

/* ---- Sinking: later levels where that saves a store */

/* Moves values to the level of their first reader; sunk[v] where that is not the earliest possible one. */
static void sink(qb_plan *plan, int32_t *first_reader, bool *sunk)
{
    for (int32_t v = 0; v < plan->value_count; v++)
        first_reader[v] = INT32_MAX;
    for (int32_t v = plan->value_count - 1; v >= 0; v--) {
        qb_plan_value *value = &plan->values[v];
        if (qb_plan_fusable(value) && !value->anchored && first_reader[v] != INT32_MAX &&
            first_reader[v] > value->level) {
            value->level = first_reader[v];
            sunk[v] = true;
        }
        for (int i = 0; i < value->operand_count; i++) {
            int32_t id = plan->operands[value->operand + i], root = plan->values[id].root;
            if (!reads_directly(plan, value, id))
                plan->values[root].anchored = true;
            else if (first_reader[root] > value->level)
                first_reader[root] = value->level;
        }
    }
}

/* Takes back what would store an operand that needs no memory otherwise. */
static void unsink(qb_plan *plan, const bool *sunk)
{
    for (int32_t v = 0; v < plan->value_count; v++) {
        qb_plan_value *value = &plan->values[v];
        bool saves = true;
        for (int i = 0; sunk[v] && i < value->operand_count; i++) {
            const qb_plan_value *operand = &plan->values[plan->operands[value->operand + i]];
            saves = saves && !(qb_plan_fusable(operand) && !operand->anchored && operand->level < value->level);
        }
        if (!saves)
            value->level = level_of(plan, value);
    }
}

/* ---- Components: union-find with path halving */

static int32_t find(int32_t *parent, int32_t v)
{
    while (parent[v] != v)
        v = parent[v] = parent[parent[v]];
    return v;
}

static void unite(int32_t *parent, int32_t a, int32_t b)
{
    a = find(parent, a);
    b = find(parent, b);
    if (a < b)
        parent[b] = a;
    else
        parent[a] = b;
}

static bool same_class(const qb_plan *plan, int32_t a, int32_t b)
{
    return plan->values[a].level == plan->values[b].level &&
           iteration_count(&plan->values[a]) == iteration_count(&plan->values[b]);
}

/* One member of each small class, by (level, count): an open hash table of `size` (a power of two) entries, -1 where
 * empty. */
static void unite_small_class(const qb_plan *plan, int32_t *parent, int32_t *table, uint32_t size, int32_t v)
{
    uint64_t key = (uint64_t)plan->values[v].level * 1000003u + (uint64_t)iteration_count(&plan->values[v]);
    uint32_t place = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & (size - 1);
    while (table[place] >= 0 && !same_class(plan, table[place], v))
        place = (place + 1) & (size - 1);
    if (table[place] < 0)
        table[place] = v;
    else
        unite(parent, table[place], v);
}

static qb_status find_components(qb_plan *plan, int32_t *parent)
{
    uint32_t size = 16;
    while (size < 2 * (uint32_t)plan->value_count)
        size *= 2;
    int32_t *table = qb_plan_scratch(plan, size, sizeof *table);
    int32_t *last_reader = qb_plan_scratch(plan, (size_t)plan->value_count, sizeof *last_reader);
    if (!table || !last_reader)
        return qb_fail_memory();
    memset(table, -1, size * sizeof *table);
    memset(last_reader, -1, (size_t)plan->value_count * sizeof *last_reader);
    for (int32_t v = 0; v < plan->value_count; v++) {
        const qb_plan_value *value = &plan->values[v];
        parent[v] = v;
        if (!qb_plan_in_kernel(value))
            continue;
        if (iteration_count(value) <= QB_KERNEL_LANES)
            unite_small_class(plan, parent, table, size, v);
        for (int i = 0; i < value->operand_count; i++) {
            int32_t id = plan->operands[value->operand + i], root = plan->values[id].root;
            if (qb_plan_fusable(&plan->values[root]) && plan->values[root].level == value->level) {
                unite(parent, root, v);
            } else if (plan->values[root].count > 1) {
                if (last_reader[root] >= 0 && same_class(plan, last_reader[root], v))
                    unite(parent, last_reader[root], v);
                last_reader[root] = v;
            }
        }
    }
    return QB_OK;
}

/* ---- Units in order: by level, then by their first member */

static qb_step_kind kind_of(const qb_plan_value *value)
{
    return value->role == QB_ROLE_DOT      ? QB_STEP_DOT
           : value->role == QB_ROLE_REGION ? QB_STEP_REGION
           : qb_plan_in_kernel(value)      ? QB_STEP_KERNEL
                                           : QB_STEP_CALL;
}

/* Sorts members by unit: unit_of[v] is the number of v's unit, in order. */
static qb_status order_units(qb_plan *plan, int32_t *parent, int32_t *unit_of, qb_unit **out, int32_t *unit_count)
{
    int32_t levels = 0, units = 0;
    for (int32_t v = 0; v < plan->value_count; v++)
        levels = plan->values[v].level >= levels ? plan->values[v].level + 1 : levels;
    int32_t *start = qb_plan_scratch_zeroed(plan, (size_t)levels + 1, sizeof *start);
    if (!start)
        return qb_fail_memory();
    for (int32_t v = 0; v < plan->value_count; v++) {
        if (plan->values[v].role == QB_ROLE_RESULT)
            parent[v] = parent[v - 1];
        if (is_computed(&plan->values[v]) && find(parent, v) == v) {
            start[plan->values[v].level + 1]++;
            units++;
        }
    }
    for (int32_t level = 0; level < levels; level++)
        start[level + 1] += start[level];
    qb_unit *unit = qb_plan_scratch_zeroed(plan, (size_t)units, sizeof *unit);
    plan->members = qb_plan_scratch(plan, (size_t)plan->value_count, sizeof *plan->members);
    if (!unit || !plan->members)
        return qb_fail_memory();
    for (int32_t v = 0; v < plan->value_count; v++) {
        if (!is_computed(&plan->values[v]))
            continue;
        int32_t root = find(parent, v);
        unit_of[v] = root == v ? start[plan->values[v].level]++ : unit_of[root];
        unit[unit_of[v]].kind = kind_of(&plan->values[root]);
        unit[unit_of[v]].count++;
    }
    for (int32_t u = 1; u < units; u++)
        unit[u].first = unit[u - 1].first + unit[u - 1].count;
    for (int32_t v = 0; v < plan->value_count; v++)
        if (is_computed(&plan->values[v]))
            plan->members[unit[unit_of[v]].first++] = v;
    for (int32_t u = 0; u < units; u++)
        unit[u].first -= unit[u].count;
    *out = unit;
    *unit_count = units;
    return QB_OK;
}

/* ---- Cutting units that one kernel cannot hold */

typedef struct cutter {
    qb_plan *plan;
    int32_t *last_use; /* of each value: the position of its last reader in the unit */
    int32_t *deferred; /* reductions of another split than the kernel's */
    int32_t deferred_count;
    int32_t *members; /* the new order */
    int32_t member_count;
} cutter;

static void open_unit(cutter *c)
{
    c->plan->units[c->plan->unit_count++] = (qb_unit){.kind = QB_STEP_KERNEL, .first = c->member_count};
}

static void place(cutter *c, int32_t v)
{
    qb_plan *plan = c->plan;
    plan->values[v].step = plan->unit_count - 1;
    plan->units[plan->unit_count - 1].count++;
    c->members[c->member_count++] = v;
}

static bool same_split(const qb_reduction_split *a, const qb_reduction_split *b)
{
    return a->outer == b->outer && a->extent == b->extent && a->inner == b->inner;
}

static void find_last_uses(cutter *c, const qb_unit *unit)
{
    for (int32_t i = 0; i < unit->count; i++) {
        int32_t v = c->plan->members[unit->first + i];
        const qb_plan_value *value = &c->plan->values[v];
        c->last_use[v] = i;
        for (int k = 0; k < value->operand_count; k++)
            c->last_use[c->plan->operands[value->operand + k]] = i;
    }
}

/* Registers that end at position i among the operands of `value`; each counted once. */
static int dying_operands(const cutter *c, const qb_plan_value *value, int32_t position)
{
    const int32_t *operands = c->plan->operands + value->operand;
    int count = 0;
    for (int k = 0; k < value->operand_count; k++) {
        bool repeated = false;
        for (int j = 0; j < k; j++)
            repeated = repeated || operands[j] == operands[k];
        count += !repeated && qb_plan_fusable(&c->plan->values[operands[k]]) && c->last_use[operands[k]] == position;
    }
    return count;
}

static void cut_kernel(cutter *c, const qb_unit *unit)
{
    qb_plan *plan = c->plan;
    const qb_reduction_split *split = NULL;
    int64_t live = 0, lanes = iteration_count(&plan->values[plan->members[unit->first]]);
    int64_t most = MOST_LIVE_BYTES / 8 / (lanes < 1 ? 1 : lanes < QB_KERNEL_LANES ? lanes : QB_KERNEL_LANES);
    find_last_uses(c, unit);
    open_unit(c);
    for (int32_t i = 0; i < unit->count; i++) {
        int32_t v = plan->members[unit->first + i];
        const qb_plan_value *value = &plan->values[v];
        if (value->role == QB_ROLE_REDUCE) {
            if (!split)
                split = value->split;
            if (same_split(split, value->split))
                place(c, v);
            else
                c->deferred[c->deferred_count++] = v;
            continue;
        }
        if (live > most) {
            open_unit(c);
            split = NULL;
            live = 0;
        }
        place(c, v);
        live += 1 - dying_operands(c, value, i);
    }
    while (c->deferred_count > 0) { /* each round takes those of one split */
        int32_t left = 0;
        split = plan->values[c->deferred[0]].split;
        open_unit(c);
        for (int32_t i = 0; i < c->deferred_count; i++) {
            if (same_split(split, plan->values[c->deferred[i]].split))
                place(c, c->deferred[i]);
            else
                c->deferred[left++] = c->deferred[i];
        }
        c->deferred_count = left;
    }
}

static qb_status cut_units(qb_plan *plan, const qb_unit *unit, int32_t unit_count)
{
    size_t values = (size_t)plan->value_count;
    cutter c = {.plan = plan,
                .last_use = qb_plan_scratch(plan, values, sizeof(int32_t)),
                .deferred = qb_plan_scratch(plan, values, sizeof(int32_t)),
                .members = qb_plan_scratch(plan, values, sizeof(int32_t))};
    plan->units = qb_plan_scratch(plan, values + 1, sizeof *plan->units);
    if (!c.last_use || !c.deferred || !c.members || !plan->units)
        return qb_fail_memory();
    for (int32_t u = 0; u < unit_count; u++) {
        if (unit[u].kind == QB_STEP_KERNEL) {
            cut_kernel(&c, &unit[u]);
            continue;
        }
        open_unit(&c);
        plan->units[plan->unit_count - 1].kind = unit[u].kind;
        for (int32_t i = 0; i < unit[u].count; i++)
            place(&c, plan->members[unit[u].first + i]);
    }
    plan->members = c.members;
    return QB_OK;
}

/* ---- What is in memory, and for how long */

static void find_stored(qb_plan *plan)
{
    for (int32_t v = 0; v < plan->value_count; v++) {
        qb_plan_value *value = &plan->values[v];
        if (!is_computed(value))
            continue;
        value->stored = value->stored || value->output >= 0;
        value->last_step = value->last_step > value->step ? value->last_step : value->step;
        for (int i = 0; i < value->operand_count; i++) {
            int32_t id = plan->operands[value->operand + i];
            qb_plan_value *root = &plan->values[plan->values[id].root];
            if (root->step != value->step || !reads_directly(plan, value, id))
                root->stored = true;
            root->last_step = root->last_step > value->step ? root->last_step : value->step;
        }
    }
}

qb_status qb_plan_fuse(qb_plan *plan)
{
    size_t values = (size_t)plan->value_count;
    int32_t *first_reader = qb_plan_scratch(plan, values, sizeof *first_reader);
    int32_t *parent = qb_plan_scratch(plan, values, sizeof *parent);
    bool *sunk = qb_plan_scratch_zeroed(plan, values, sizeof *sunk);
    if (!first_reader || !parent || !sunk)
        return qb_fail_memory();
    find_levels(plan);
    sink(plan, first_reader, sunk);
    unsink(plan, sunk);
    QB_TRY(find_components(plan, parent));
    qb_unit *unit = NULL;
    int32_t unit_count = 0, *unit_of = first_reader;
    QB_TRY(order_units(plan, parent, unit_of, &unit, &unit_count));
    QB_TRY(cut_units(plan, unit, unit_count));
    find_stored(plan);
    return QB_OK;
}
