/* Buffers: where stored values live. Outputs live in their tensors; the others share one arena by liveness, best fit
 * first. */
#include "program/plan.h"

#include "base/allocate.h"

typedef struct gap {
    int64_t offset, size;
} gap;

struct qb_buffers {
    qb_plan *plan;
    gap *gaps; /* free parts of the arena, by ascending offset, none adjacent */
    int32_t gap_count;
    int32_t *dying; /* of each step: the first arena value whose last reader it is; linked by `next` */
    int32_t *next;
    int64_t *size; /* of a value's block in the arena; 0: none, or passed on */
};

/* The operand of a value that it may overwrite, if that is read last here; -1: none. */
static int overwritten_operand(const qb_plan_value *value)
{
    if (value->role == QB_ROLE_DOT)
        return value->operand_count == 3 ? 2 : -1; /* what the product is added to */
    return value->role == QB_ROLE_CALL && (value->node->op->flags & QB_OP_OVERWRITES) ? 0 : -1;
}

int32_t qb_buffers_overwritten(const qb_plan *plan, int32_t v)
{
    const qb_plan_value *value = &plan->values[v];
    int which = overwritten_operand(value);
    if (which < 0)
        return -1;
    const int32_t *operands = plan->operands + value->operand;
    const qb_plan_value *taken = &plan->values[operands[which]];
    if (taken->root != operands[which] || taken->step < 0 || taken->last_step != value->step || taken->output >= 0 ||
        taken->count != value->count)
        return -1;
    for (int i = 0; i < value->operand_count; i++)
        if (i != which && plan->values[operands[i]].root == operands[which])
            return -1;
    return operands[which];
}

/* The value of equal size whose only reader in its last step is the lane operation `v`, lane by lane; -1: none. */
static int32_t replaced_by_lanes(const qb_plan *plan, int32_t v, const int32_t *last_readers)
{
    const qb_plan_value *value = &plan->values[v];
    for (int i = 0; value->role == QB_ROLE_LANE && i < value->operand_count; i++) {
        int32_t id = plan->operands[value->operand + i];
        const qb_plan_value *operand = &plan->values[id];
        if (operand->root == id && operand->step >= 0 && operand->step < value->step &&
            operand->last_step == value->step && operand->output < 0 && operand->home < 0 &&
            operand->count == value->count && last_readers[id] == 1 &&
            qb_dtype_size((qb_dtype)operand->dtype) == qb_dtype_size((qb_dtype)value->dtype))
            return id;
    }
    return -1;
}

/* What an output overwrites, or replaces lane by lane, is computed in the output's memory to begin with. Values are
 * numbered topologically, so the last of a chain of such steps comes first here. */
static void find_homes(qb_plan *plan, int32_t *last_readers)
{
    for (int32_t v = 0; v < plan->value_count; v++) {
        const qb_plan_value *value = &plan->values[v];
        for (int i = 0; i < value->operand_count; i++) {
            int32_t root = plan->values[plan->operands[value->operand + i]].root;
            last_readers[root] += plan->values[root].last_step == value->step;
        }
    }
    for (int32_t v = plan->value_count - 1; v >= 0; v--) {
        const qb_plan_value *value = &plan->values[v];
        int32_t home = value->output >= 0 ? value->output : value->home;
        if (home < 0 || value->step < 0)
            continue;
        int32_t before = qb_buffers_overwritten(plan, v);
        before = before >= 0 ? before : replaced_by_lanes(plan, v, last_readers);
        if (before >= 0)
            plan->values[before].home = home;
    }
}

qb_buffers *qb_buffers_begin(qb_plan *plan)
{
    size_t values = (size_t)plan->value_count, steps = (size_t)plan->unit_count;
    qb_buffers *b = qb_plan_scratch(plan, 1, sizeof *b);
    int32_t *last_readers = qb_plan_scratch_zeroed(plan, values, sizeof *last_readers);
    if (!b || !last_readers)
        return NULL;
    find_homes(plan, last_readers);
    *b = (qb_buffers){.plan = plan,
                      .gaps = qb_plan_scratch(plan, values + 1, sizeof *b->gaps),
                      .dying = qb_plan_scratch(plan, steps, sizeof *b->dying),
                      .next = qb_plan_scratch(plan, values, sizeof *b->next),
                      .size = qb_plan_scratch_zeroed(plan, values, sizeof *b->size)};
    if (!b->gaps || !b->dying || !b->next || !b->size)
        return NULL;
    memset(b->dying, -1, steps * sizeof *b->dying);
    return b;
}

static void remove_gap(qb_buffers *b, int32_t index)
{
    b->gap_count--;
    memmove(b->gaps + index, b->gaps + index + 1, (size_t)(b->gap_count - index) * sizeof *b->gaps);
}

static int64_t take(qb_buffers *b, int64_t size)
{
    int32_t best = -1;
    for (int32_t i = 0; i < b->gap_count; i++)
        if (b->gaps[i].size >= size && (best < 0 || b->gaps[i].size < b->gaps[best].size))
            best = i;
    if (best < 0) { /* at the end, over a gap that ends there */
        gap *last = b->gap_count > 0 ? &b->gaps[b->gap_count - 1] : NULL;
        int64_t offset = b->plan->arena_size;
        if (last && last->offset + last->size == offset) {
            offset = last->offset;
            b->gap_count--;
        }
        b->plan->arena_size = offset + size;
        return offset;
    }
    int64_t offset = b->gaps[best].offset;
    b->gaps[best].offset += size;
    b->gaps[best].size -= size;
    if (b->gaps[best].size == 0)
        remove_gap(b, best);
    return offset;
}

static void give_back(qb_buffers *b, int64_t offset, int64_t size)
{
    int32_t low = 0, high = b->gap_count; /* the gaps before `low` lie before the block */
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (b->gaps[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    bool joins_before = low > 0 && b->gaps[low - 1].offset + b->gaps[low - 1].size == offset;
    bool joins_after = low < b->gap_count && offset + size == b->gaps[low].offset;
    if (joins_before && joins_after) {
        b->gaps[low - 1].size += size + b->gaps[low].size;
        remove_gap(b, low);
    } else if (joins_before) {
        b->gaps[low - 1].size += size;
    } else if (joins_after) {
        b->gaps[low].offset = offset;
        b->gaps[low].size += size;
    } else {
        memmove(b->gaps + low + 1, b->gaps + low, (size_t)(b->gap_count - low) * sizeof *b->gaps);
        b->gaps[low] = (gap){offset, size};
        b->gap_count++;
    }
}

static qb_slot *add_slot(qb_buffers *b, int32_t v, qb_slot_kind kind)
{
    qb_plan *plan = b->plan;
    if (!QB_GROW(plan->slots, plan->slot_count, plan->slot_capacity, 1))
        return NULL;
    qb_plan_value *value = &plan->values[v];
    value->slot = plan->slot_count++;
    qb_slot *slot = &plan->slots[value->slot];
    *slot = (qb_slot){.kind = kind, .dtype = (qb_dtype)value->dtype, .count = value->count};
    return slot;
}

qb_status qb_buffers_define(qb_buffers *b, int32_t v, int32_t take_over)
{
    qb_plan *plan = b->plan;
    const qb_plan_value *value = &plan->values[v];
    int32_t output = value->output >= 0 ? value->output : value->home;
    qb_slot *slot = add_slot(b, v, output >= 0 ? QB_SLOT_OUTPUT : QB_SLOT_ARENA);
    if (!slot)
        return qb_fail_memory();
    if (slot->kind == QB_SLOT_OUTPUT) {
        slot->index = output;
        return QB_OK;
    }
    if (take_over >= 0) {
        slot->offset = plan->slots[plan->values[take_over].slot].offset;
        b->size[v] = b->size[take_over];
        b->size[take_over] = 0;
    } else {
        b->size[v] = qb_whole_lines(value->count * (int64_t)qb_dtype_size((qb_dtype)value->dtype));
        if (b->size[v] > QB_MOST_BYTES - plan->arena_size)
            return qb_fail_memory();
        slot->offset = b->size[v] > 0 ? take(b, b->size[v]) : 0;
    }
    b->next[v] = b->dying[value->last_step];
    b->dying[value->last_step] = v;
    return QB_OK;
}

void qb_buffers_retire(qb_buffers *b, int32_t step)
{
    for (int32_t v = b->dying[step]; v >= 0; v = b->next[v])
        if (b->size[v] > 0)
            give_back(b, b->plan->slots[b->plan->values[v].slot].offset, b->size[v]);
}

int32_t qb_buffers_slot(qb_buffers *b, int32_t v)
{
    const qb_plan_value *value = &b->plan->values[v];
    if (value->slot >= 0)
        return value->slot;
    qb_slot *slot = add_slot(b, v, value->role == QB_ROLE_INPUT ? QB_SLOT_INPUT : QB_SLOT_CONSTANT);
    if (!slot)
        return -1;
    if (value->role == QB_ROLE_INPUT)
        slot->index = value->input;
    else
        slot->constant = value->constant;
    return value->slot;
}
