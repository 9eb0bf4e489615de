/* Tiling: a graph that does the same for many examples, and adds up what they give, as a loop over tiles of examples.
 *
 * After vmap nearly every value has the examples as an axis, and they meet in sums alone: the mean of a loss, the
 * products that make gradients of weights. Done for all examples at once, every intermediate goes through memory; tile
 * by tile it stays in the cache, and tiles are work for threads without a barrier between the steps.
 *
 * The pass finds the extent that most values have, follows its axis through the graph (`follow`), and writes what has
 * it as two loops: over groups of tiles, whose iterations are independent, and over the tiles of a group, which carry
 * the sums. The groups' sums are added at the end, always in the same order, so results depend on the graph alone. A
 * rest that fills no tile is written once more by itself.
 *
 * It runs once, when a program is made: no transform sees its loops. */
#include "base/allocate.h"
#include "control/control.h"
#include "passes/passes.h"
#include "passes/pipeline.h"

enum {
    FEWEST_EXAMPLES = 256,
    FEWEST_IN_TILE = 32,
    TILE_BYTES = 384 * 1024, /* of the values of a tile that live at once: they share the cache with the weights */
    GROUPS = 8,              /* at least, */
    MOST_IN_GROUP = 64,      /* or as many as keep a group's sums short: groups are summed pairwise */
    FEWEST_NODES = 8,
    MOST_CANDIDATES = 8,
    NO_AXIS = -1
};

static const double LEAST_BYTES = 4e6; /* of all values with the axis: less than that stays in the cache anyway */

typedef enum place {
    OUTSIDE, /* does not depend on the loop */
    INSIDE,  /* has the axis, for a tile */
    SUMMED,  /* inside, and summed over the axis: a value of the loop's result */
    AFTER    /* depends on the loop, and is computed after it for all examples */
} place;

typedef struct tiling {
    const qb_graph *source;
    qb_graph *target;
    int64_t extent;
    const bool *live;
    uint8_t *place; /* of each value */
    int8_t *axis;   /* of INSIDE values: which one is tiled */
    bool *sliced;   /* of OUTSIDE values: read by tiles, along axis 0 */
    bool *whole;    /* of OUTSIDE values: read as a whole by the loop */
    bool *stacked;  /* of INSIDE values: wanted after the loop */
    qb_value *map;  /* of each value, in the target */
    int32_t inside_count, dot_count;
    double bytes; /* of all INSIDE values */
    int64_t tile, per_group, groups, rest;
} tiling;

static double value_bytes(const qb_graph *graph, qb_value value)
{
    return (double)qb_value_size(graph, value) * (double)qb_dtype_size(graph->values[value].dtype);
}

/* ---- Which extent */

/* The leading extent that accounts for most memory; 0: none is large. */
static int64_t choose_extent(const qb_graph *graph, const bool *live)
{
    int64_t extent[MOST_CANDIDATES];
    double bytes[MOST_CANDIDATES];
    int count = 0, best = -1;
    for (qb_value v = 0; v < graph->value_count; v++) {
        const qb_value_info *info = &graph->values[v];
        if (!live[v] || info->rank == 0 || info->shape[0] < FEWEST_EXAMPLES)
            continue;
        int i = 0;
        while (i < count && extent[i] != info->shape[0])
            i++;
        if (i == MOST_CANDIDATES)
            continue;
        if (i == count) {
            extent[count] = info->shape[0];
            bytes[count++] = 0;
        }
        bytes[i] += value_bytes(graph, v);
        if (best < 0 || bytes[i] > bytes[best])
            best = i;
    }
    return best >= 0 && bytes[best] >= LEAST_BYTES ? extent[best] : 0;
}

/* ---- Following the axis through an operation */

/* What an operation makes of the axis, given where its operands have it (NO_AXIS: they are read as a whole). */
typedef struct step {
    const tiling *t;
    const qb_node *node;
    const int8_t *axis; /* of each operand */
    bool sums;          /* out: the axis is summed over */
} step;

static const qb_value_info *operand_info(const step *s, int i)
{
    return &s->t->source->values[qb_operand(s->t->source, s->node, i)];
}

static bool contains(const qb_attribute *axes, int axis)
{
    for (int i = 0; i < axes->count; i++)
        if (axes->integers[i] == axis)
            return true;
    return false;
}

static int index_of(const qb_attribute *axes, int axis)
{
    for (int i = 0; i < axes->count; i++)
        if (axes->integers[i] == axis)
            return i;
    return NO_AXIS;
}

/* Equal shapes in and out: all have it, at one place. */
static int8_t follow_equal(const step *s)
{
    for (int i = 1; i < s->node->operand_count; i++)
        if (s->axis[i] != s->axis[0])
            return NO_AXIS;
    return s->axis[0];
}

/* A new leading axis may be made for a tile as well as for all examples. */
static int8_t follow_broadcast(const step *s)
{
    const qb_attribute *shape = &s->node->attributes[0], *axes = &s->node->attributes[1];
    if (s->axis[0] != NO_AXIS)
        return (int8_t)axes->integers[s->axis[0]];
    bool made = shape->count > 0 && shape->integers[0] == s->t->extent &&
                (!contains(axes, 0) || operand_info(s, 0)->shape[index_of(axes, 0)] == 1);
    return made ? 0 : NO_AXIS;
}

static int8_t follow_reshape(const step *s)
{
    const qb_attribute *shape = &s->node->attributes[0];
    return s->axis[0] == 0 && shape->count > 0 && shape->integers[0] == s->t->extent ? 0 : NO_AXIS;
}

static int8_t follow_slice(const step *s)
{
    const qb_attribute *a = s->node->attributes;
    int axis = s->axis[0];
    bool whole =
        axis != NO_AXIS && a[0].integers[axis] == 0 && a[1].integers[axis] == s->t->extent && a[2].integers[axis] == 1;
    return whole ? (int8_t)axis : NO_AXIS;
}

static int8_t follow_pad(const step *s)
{
    const qb_attribute *a = s->node->attributes;
    int axis = s->axis[0];
    bool whole = axis != NO_AXIS && a[0].integers[axis] == 0 && a[1].integers[axis] == 0 && a[2].integers[axis] == 0;
    return whole ? (int8_t)axis : NO_AXIS;
}

static int8_t follow_reduction(step *s)
{
    const qb_attribute *axes = &s->node->attributes[0];
    int axis = s->axis[0], before = 0;
    if (axis == NO_AXIS)
        return NO_AXIS;
    s->sums = contains(axes, axis);
    for (int i = 0; i < axes->count; i++)
        before += axes->integers[i] < axis;
    return s->sums ? (s->node->op == &qb_op_reduce_sum ? 0 : NO_AXIS) : (int8_t)(axis - before);
}

/* The place of a free axis of factor `which` in the product. */
static int8_t free_place(const step *s, int which)
{
    const qb_attribute *a = s->node->attributes;
    int place = a[2].count;
    for (int i = 0; i < operand_info(s, 0)->rank; i++) {
        if (contains(&a[0], i) || contains(&a[2], i))
            continue;
        if (which == 0 && i == s->axis[0])
            return (int8_t)place;
        place++;
    }
    for (int i = 0; which == 1 && i < operand_info(s, 1)->rank; i++) {
        if (contains(&a[1], i) || contains(&a[3], i))
            continue;
        if (i == s->axis[1])
            return (int8_t)place;
        place++;
    }
    return NO_AXIS;
}

static int8_t follow_dot(step *s)
{
    const qb_attribute *a = s->node->attributes;
    int contracted[2], paired[2];
    for (int k = 0; k < 2; k++) {
        contracted[k] = s->axis[k] == NO_AXIS ? NO_AXIS : index_of(&a[k], s->axis[k]);
        paired[k] = s->axis[k] == NO_AXIS ? NO_AXIS : index_of(&a[2 + k], s->axis[k]);
    }
    if (contracted[0] != NO_AXIS || contracted[1] != NO_AXIS) {
        s->sums = contracted[0] == contracted[1];
        return s->sums ? 0 : NO_AXIS;
    }
    if (paired[0] != NO_AXIS || paired[1] != NO_AXIS)
        return paired[0] == paired[1] ? (int8_t)paired[0] : NO_AXIS;
    if (s->axis[0] != NO_AXIS && s->axis[1] != NO_AXIS)
        return NO_AXIS;
    return free_place(s, s->axis[0] != NO_AXIS ? 0 : 1);
}

/* Where the result has the axis (anything but NO_AXIS where it is summed over); NO_AXIS: tiles do not suffice. */
static int8_t follow(step *s)
{
    const qb_op *op = s->node->op;
    s->sums = false;
    if (op->flags & QB_OP_ELEMENTWISE)
        return follow_equal(s);
    if (op == &qb_op_broadcast)
        return follow_broadcast(s);
    if (op == &qb_op_reshape)
        return follow_reshape(s);
    if (op == &qb_op_permute)
        return s->axis[0] == NO_AXIS ? NO_AXIS : (int8_t)index_of(&s->node->attributes[0], s->axis[0]);
    if (op == &qb_op_slice)
        return follow_slice(s);
    if (op == &qb_op_pad)
        return follow_pad(s);
    if (op == &qb_op_reverse)
        return s->axis[0] != NO_AXIS && !contains(&s->node->attributes[0], s->axis[0]) ? s->axis[0] : NO_AXIS;
    if (op == &qb_op_concat)
        return s->axis[0] != s->node->attributes[0].integer ? follow_equal(s) : NO_AXIS;
    if (op->flags & QB_OP_REDUCES)
        return follow_reduction(s);
    return op == &qb_op_dot ? follow_dot(s) : NO_AXIS;
}

/* ---- Placing every value */

static bool can_be_sliced(const tiling *t, qb_value value)
{
    const qb_value_info *info = &t->source->values[value];
    return info->rank > 0 && info->shape[0] == t->extent;
}

/* Tries the ways to read the operands from outside: by tiles (bit set in `by_tiles`) or as a whole. */
static bool try_reading(const tiling *t, const qb_node *node, unsigned by_tiles, int8_t *axis, step *s)
{
    bool any = false;
    for (int i = 0; i < node->operand_count; i++) {
        qb_value operand = qb_operand(t->source, node, i);
        bool tiled = i >= 32 || (by_tiles >> i & 1);
        if (t->place[operand] == INSIDE)
            axis[i] = t->axis[operand];
        else if (tiled && !can_be_sliced(t, operand))
            return false;
        else
            axis[i] = tiled ? 0 : NO_AXIS;
        any = any || axis[i] != NO_AXIS;
    }
    *s = (step){.t = t, .node = node, .axis = axis};
    return (any || node->op == &qb_op_broadcast) && follow(s) != NO_AXIS;
}

static void mark_inside(tiling *t, const qb_node *node, const int8_t *axis, step *s)
{
    int8_t result_axis = follow(s);
    t->place[node->result] = s->sums ? SUMMED : INSIDE;
    t->axis[node->result] = result_axis;
    t->inside_count++;
    t->dot_count += node->op == &qb_op_dot;
    if (!s->sums)
        t->bytes += value_bytes(t->source, node->result);
    for (int i = 0; i < node->operand_count; i++) {
        qb_value operand = qb_operand(t->source, node, i);
        if (t->place[operand] == OUTSIDE)
            *(axis[i] == NO_AXIS ? &t->whole[operand] : &t->sliced[operand]) = true;
    }
}

/* After the loop: with everything that depends on it. Values of tiles that it reads are stacked. */
static void mark_after(tiling *t, const qb_node *node)
{
    for (int i = 0; i < node->result_count; i++)
        t->place[node->result + i] = AFTER;
    for (int i = 0; i < node->operand_count; i++) {
        qb_value operand = qb_operand(t->source, node, i);
        t->stacked[operand] = t->stacked[operand] || t->place[operand] == INSIDE;
    }
}

static void place_node(tiling *t, const qb_node *node, int8_t *axis)
{
    bool depends = false, late = false;
    for (int i = 0; i < node->operand_count; i++) {
        place where = (place)t->place[qb_operand(t->source, node, i)];
        depends = depends || where != OUTSIDE;
        late = late || where == SUMMED || where == AFTER;
    }
    bool tileable = !late && node->operand_count > 0 && node->result_count == 1 && node->operand_count <= 32;
    unsigned ways = node->operand_count <= 2 ? 1u << node->operand_count : 1;
    step s;
    for (unsigned way = 0; tileable && way < ways; way++) {
        unsigned by_tiles = ways == 1 ? ~0u : ways - 1 - way; /* by tiles where that is possible */
        if (try_reading(t, node, by_tiles, axis, &s)) {
            mark_inside(t, node, axis, &s);
            return;
        }
    }
    if (depends)
        mark_after(t, node);
}

/* False where a value is wanted after the loop whose tiles cannot be stacked, or where tiling would not pay. */
static bool place_all(tiling *t, int8_t *axis)
{
    const qb_graph *graph = t->source;
    for (int32_t n = 0; n < graph->node_count; n++)
        if (t->live[graph->nodes[n].result])
            place_node(t, &graph->nodes[n], axis);
    for (int i = 0; i < graph->output_count; i++)
        t->stacked[graph->outputs[i]] = t->stacked[graph->outputs[i]] || t->place[graph->outputs[i]] == INSIDE;
    for (qb_value v = 0; v < graph->value_count; v++)
        if (t->stacked[v] && t->axis[v] != 0)
            return false;
    return t->dot_count > 0 && t->inside_count >= FEWEST_NODES && t->bytes >= LEAST_BYTES;
}

/* ---- Sizes */

/* Bytes an example's values need at most at one time, in the order of the nodes. */
static double live_bytes(const tiling *t, int32_t *last_use)
{
    const qb_graph *graph = t->source;
    double now = 0, most = 0;
    for (int32_t n = 0; n < graph->node_count; n++)
        for (int i = 0; i < graph->nodes[n].operand_count; i++)
            last_use[qb_operand(graph, &graph->nodes[n], i)] = n;
    for (int32_t n = 0; n < graph->node_count; n++) {
        const qb_node *node = &graph->nodes[n];
        if (!t->live[node->result] || t->place[node->result] != INSIDE)
            continue;
        now += value_bytes(graph, node->result);
        most = now > most ? now : most;
        for (int i = 0; i < node->operand_count; i++) {
            qb_value operand = qb_operand(graph, node, i);
            if (last_use[operand] == n && t->place[operand] == INSIDE) {
                now -= value_bytes(graph, operand);
                last_use[operand] = -1; /* once */
            }
        }
    }
    return most / (double)t->extent;
}

static void choose_sizes(tiling *t, double bytes_per_example)
{
    double fit = TILE_BYTES / (bytes_per_example > 1 ? bytes_per_example : 1);
    int64_t most = fit < FEWEST_IN_TILE ? FEWEST_IN_TILE : fit > (double)t->extent ? t->extent : (int64_t)fit;
    int64_t longest = most * MOST_IN_GROUP, needed = (t->extent + longest - 1) / longest;
    t->groups = t->extent / GROUPS < FEWEST_IN_TILE ? t->extent / FEWEST_IN_TILE : needed > GROUPS ? needed : GROUPS;
    t->per_group = (t->extent + t->groups * most - 1) / (t->groups * most);
    t->tile = t->extent / (t->groups * t->per_group);
    t->rest = t->extent - t->tile * t->per_group * t->groups;
}

/* ---- Writing */

/* The node with the tile's extent for that of all examples. */
static qb_value emit_tiled(const tiling *t, qb_graph *graph, const qb_node *node, const qb_value *operands,
                           int64_t count)
{
    const qb_op *op = node->op;
    int changes = op == &qb_op_broadcast || op == &qb_op_reshape ? 0 : op == &qb_op_slice ? 1 : -1;
    qb_attribute attributes[8];
    int64_t integers[QB_MAX_RANK];
    for (int i = 0; i < op->attribute_count; i++)
        attributes[i] = node->attributes[i];
    if (changes >= 0) {
        memcpy(integers, attributes[changes].integers, (size_t)attributes[changes].count * sizeof *integers);
        integers[t->axis[node->result]] = count;
        attributes[changes].integers = integers;
    }
    return qb_emit(graph, op, node->operand_count, operands, attributes);
}

/* All nodes of the loop for `count` examples; `map` has the values from outside. */
static qb_status write_tile(const tiling *t, qb_graph *graph, int64_t count, qb_value *map, qb_value *operands)
{
    for (int32_t n = 0; n < t->source->node_count; n++) {
        const qb_node *node = &t->source->nodes[n];
        if (!t->live[node->result] || (t->place[node->result] != INSIDE && t->place[node->result] != SUMMED))
            continue;
        graph->source = node->source;
        for (int i = 0; i < node->operand_count; i++)
            operands[i] = map[qb_operand(t->source, node, i)];
        map[node->result] = emit_tiled(t, graph, node, operands, count);
    }
    return qb_graph_take_status(graph);
}

static bool is_sum(const tiling *t, qb_value v)
{
    return t->live[v] && t->place[v] == SUMMED;
}

/* An input like `value`, with `lead` axes of the given extents in place of the axis of examples (count 0: as it is). */
static qb_status add_input(const tiling *t, qb_graph *graph, qb_value value, int lead, const int64_t *extents,
                           qb_value *out)
{
    const qb_value_info *info = &t->source->values[value];
    int64_t shape[QB_MAX_RANK + 2];
    int skipped = lead > 0;
    for (int i = 0; i < lead; i++)
        shape[i] = extents[i];
    for (int i = skipped; i < info->rank; i++)
        shape[lead + i - skipped] = info->shape[i];
    return qb_graph_input(graph, NULL, info->dtype, info->rank - skipped + lead, shape, out);
}

/* ---- The loops. Operands and inputs are in this order: values read whole; sums (the inner loop's carries); values
 * read by tiles. Results: sums, then stacked values. */

typedef struct body {
    qb_graph *graph;
    qb_value *map; /* of the source's values, in the body */
    int whole_count, sum_count, sliced_count, stacked_count;
} body;

static qb_status open_body(const tiling *t, body *b, bool carries, int lead, const int64_t *extents)
{
    qb_value index;
    QB_TRY(qb_graph_create(&b->graph));
    QB_TRY(qb_graph_input(b->graph, NULL, QB_INT64, 0, NULL, &index));
    for (int part = 0; part < 3; part++) {
        for (qb_value v = 0; v < t->source->value_count; v++) {
            bool belongs = part == 0 ? t->whole[v] : part == 1 ? carries && is_sum(t, v) : t->sliced[v];
            if (!belongs)
                continue;
            b->whole_count += part == 0;
            b->sum_count += part == 1;
            b->sliced_count += part == 2;
            if (part == 2 && t->whole[v])
                return qb_fail(QB_ERROR_UNSUPPORTED, "tile: a value is read in both ways");
            QB_TRY(add_input(t, b->graph, v, part == 2 ? lead : 0, extents, &b->map[v]));
        }
    }
    return QB_OK;
}

/* The inner loop's body: one tile, added to the sums. */
static qb_status write_inner(const tiling *t, body *b, qb_value *sums, qb_value *operands)
{
    QB_TRY(open_body(t, b, true, 1, &t->tile));
    for (qb_value v = 0; v < t->source->value_count; v++)
        sums[v] = is_sum(t, v) ? b->map[v] : QB_NONE;
    QB_TRY(write_tile(t, b->graph, t->tile, b->map, operands));
    for (qb_value v = 0; v < t->source->value_count; v++) {
        if (!is_sum(t, v))
            continue;
        qb_value sum = qb_add(b->graph, sums[v], b->map[v]);
        QB_TRY(sum < 0 ? qb_graph_take_status(b->graph) : qb_graph_output(b->graph, sum));
    }
    for (qb_value v = 0; v < t->source->value_count; v++) {
        if (!t->stacked[v])
            continue;
        QB_TRY(qb_graph_output(b->graph, b->map[v]));
        b->stacked_count++;
    }
    return QB_OK;
}

/* The inner loop in the outer one's body. */
static qb_status emit_inner(const tiling *t, const body *inner, body *outer, qb_value *operands, qb_value *results)
{
    int count = 0;
    for (int part = 0; part < 3; part++)
        for (qb_value v = 0; v < t->source->value_count; v++) {
            if (part == 0 ? t->whole[v] : part == 1 ? is_sum(t, v) : t->sliced[v])
                operands[count++] = part == 1 ? qb_or_zeros(outer->graph, QB_NONE, t->source, v) : outer->map[v];
        }
    qb_loop loop = {.body = inner->graph,
                    .capacity = t->per_group,
                    .count = QB_NONE,
                    .consts = inner->whole_count,
                    .carries = inner->sum_count,
                    .sequences = inner->sliced_count,
                    .operands = operands};
    (void)qb_loop_emit(outer->graph, &loop, results);
    return qb_graph_take_status(outer->graph);
}

/* The outer loop's body: a group of tiles. With one tile in it there is no inner loop. */
static qb_status write_outer(const tiling *t, const body *inner, body *outer, qb_value *operands, qb_value *results)
{
    int64_t extents[] = {t->per_group, t->tile};
    int count = inner->sum_count + inner->stacked_count, place = 0;
    if (t->per_group > 1) {
        QB_TRY(open_body(t, outer, false, 2, extents));
        QB_TRY(emit_inner(t, inner, outer, operands, results));
    } else {
        QB_TRY(open_body(t, outer, false, 1, &t->tile));
        QB_TRY(write_tile(t, outer->graph, t->tile, outer->map, operands));
        for (int part = 0; part < 2; part++)
            for (qb_value v = 0; v < t->source->value_count; v++)
                if (part == 0 ? is_sum(t, v) : t->stacked[v])
                    results[place++] = outer->map[v];
    }
    for (int i = 0; i < count; i++)
        QB_TRY(qb_graph_output(outer->graph, results[i]));
    return QB_OK;
}

/* Rows first .. limit-1 of a value of the target. */
static qb_value rows(qb_graph *graph, qb_value value, int64_t first, int64_t limit)
{
    int64_t start[QB_MAX_RANK] = {first}, end[QB_MAX_RANK], step[QB_MAX_RANK];
    if (value < 0)
        return value;
    const qb_value_info info = graph->values[value];
    for (int i = 0; i < info.rank; i++) {
        end[i] = i == 0 ? limit : info.shape[i];
        step[i] = 1;
    }
    return qb_slice(graph, value, start, end, step);
}

/* The value with its leading axes replaced by others of the same product. */
static qb_value regroup(qb_graph *graph, qb_value value, int from, int to, const int64_t *extents)
{
    int64_t shape[QB_MAX_RANK + 2];
    if (value < 0)
        return value;
    const qb_value_info info = graph->values[value];
    for (int i = 0; i < to; i++)
        shape[i] = extents[i];
    for (int i = from; i < info.rank; i++)
        shape[to + i - from] = info.shape[i];
    return qb_reshape(graph, value, info.rank - from + to, shape);
}

static qb_status emit_outer(tiling *t, const body *outer, qb_value *operands, qb_value *results)
{
    qb_graph *graph = t->target;
    int64_t grouped[] = {t->groups, t->per_group, t->tile}, tiled = t->tile * t->per_group * t->groups;
    int64_t flat[] = {t->groups, t->tile};
    bool nested = t->per_group > 1;
    int count = 0;
    for (int part = 0; part < 2; part++)
        for (qb_value v = 0; v < t->source->value_count; v++) {
            if (!(part == 0 ? t->whole[v] : t->sliced[v]))
                continue;
            qb_value operand = part == 0 || t->rest == 0 ? t->map[v] : rows(graph, t->map[v], 0, tiled);
            operands[count++] =
                part == 0 ? operand : regroup(graph, operand, 1, nested ? 3 : 2, nested ? grouped : flat);
        }
    qb_loop loop = {.body = outer->graph,
                    .capacity = t->groups,
                    .count = QB_NONE,
                    .consts = outer->whole_count,
                    .sequences = outer->sliced_count,
                    .operands = operands};
    (void)qb_loop_emit(graph, &loop, results);
    return qb_graph_take_status(graph);
}

/* The results of the loop: sums over groups, stacked tiles; with the rest's. `rest` maps the values of the rest. */
static qb_status join_results(tiling *t, const qb_value *results, const qb_value *rest)
{
    qb_graph *graph = t->target;
    int64_t tiled[] = {t->tile * t->per_group * t->groups};
    int place = 0;
    for (int part = 0; part < 2; part++)
        for (qb_value v = 0; v < t->source->value_count; v++) {
            if (!(part == 0 ? is_sum(t, v) : t->stacked[v]))
                continue;
            qb_value value = results[place++];
            value = part == 0 ? qb_reduce_sum(graph, value, 1, (int64_t[]){0})
                              : regroup(graph, value, t->per_group > 1 ? 3 : 2, 1, tiled);
            if (t->rest > 0)
                value =
                    part == 0 ? qb_add(graph, value, rest[v]) : qb_concat(graph, 2, (qb_value[]){value, rest[v]}, 0);
            t->map[v] = value;
        }
    return qb_graph_take_status(graph);
}

static qb_status write_rest(tiling *t, qb_value *map, qb_value *operands)
{
    int64_t tiled = t->extent - t->rest;
    for (qb_value v = 0; v < t->source->value_count; v++)
        map[v] = t->sliced[v] ? rows(t->target, t->map[v], tiled, t->extent) : t->map[v];
    return write_tile(t, t->target, t->rest, map, operands);
}

static qb_status write_loops(tiling *t, qb_value *operands)
{
    size_t values = (size_t)t->source->value_count;
    qb_value *maps = qb_allocate(4 * values * sizeof *maps);
    qb_value *arguments = qb_allocate((2 * values + 1) * sizeof *arguments);
    body inner = {.map = maps}, outer = {.map = maps + values};
    qb_status status = maps && arguments ? QB_OK : qb_fail_memory();
    for (size_t i = 0; status == QB_OK && i < 4 * values; i++)
        maps[i] = QB_NONE;
    qb_value *results = maps ? maps + 2 * values : NULL, *rest = maps ? maps + 3 * values : NULL;
    if (status == QB_OK)
        status = write_inner(t, &inner, results, operands);
    if (status == QB_OK)
        status = write_outer(t, &inner, &outer, t->per_group > 1 ? arguments : operands, results);
    if (status == QB_OK)
        status = emit_outer(t, &outer, arguments, results);
    if (status == QB_OK && t->rest > 0)
        status = write_rest(t, rest, operands);
    if (status == QB_OK)
        status = join_results(t, results, rest);
    qb_graph_release(inner.graph);
    qb_graph_release(outer.graph);
    qb_free(maps);
    qb_free(arguments);
    return status;
}

/* Nodes outside the loop that come before it, or after. */
static qb_status write_others(tiling *t, bool after, qb_value *operands)
{
    for (int32_t n = 0; n < t->source->node_count; n++) {
        const qb_node *node = &t->source->nodes[n];
        if (!t->live[node->result] || (node->op->flags & QB_OP_UNIQUE) ||
            t->place[node->result] != (after ? AFTER : OUTSIDE))
            continue;
        t->target->source = node->source;
        for (int i = 0; i < node->operand_count; i++)
            operands[i] = t->map[qb_operand(t->source, node, i)];
        if (!qb_emit_all(t->target, node->op, node->operand_count, operands, node->attributes, &t->map[node->result]))
            return qb_graph_take_status(t->target);
    }
    return QB_OK;
}

static qb_status write(tiling *t, qb_value *operands)
{
    for (int i = 0; i < t->source->input_count; i++)
        t->map[t->source->inputs[i]] = t->target->inputs[i];
    QB_TRY(write_others(t, false, operands));
    QB_TRY(write_loops(t, operands));
    QB_TRY(write_others(t, true, operands));
    for (int i = 0; i < t->source->output_count; i++)
        QB_TRY(qb_graph_output(t->target, t->map[t->source->outputs[i]]));
    return QB_OK;
}

/* ---- The pass */

static bool conflicts(const tiling *t)
{
    for (qb_value v = 0; v < t->source->value_count; v++)
        if (t->whole[v] && t->sliced[v])
            return true;
    return false;
}

/* Everything about a graph whose memory is taken; *out stays NULL where it is better left as it is. */
static qb_status tile(tiling *t, bool *live, int8_t *axis, int32_t *last_use, qb_value *operands, qb_graph **out)
{
    const qb_graph *graph = t->source;
    qb_mark_live(graph, graph->output_count, graph->outputs, live);
    t->live = live;
    t->extent = choose_extent(graph, live);
    if (t->extent == 0 || !place_all(t, axis) || conflicts(t))
        return QB_OK;
    choose_sizes(t, live_bytes(t, last_use));
    if (t->groups * t->per_group < 2)
        return QB_OK;
    QB_TRY(qb_graph_like(graph, &t->target));
    for (qb_value v = 0; v < graph->value_count; v++)
        t->map[v] = QB_NONE;
    qb_status status = write(t, operands);
    if (status == QB_OK)
        *out = t->target;
    else
        qb_graph_release(t->target);
    return status;
}

/* Whether it is worth looking closer: most graphs, all those of eager calls, have no product or too few nodes. */
static bool may_pay(const qb_graph *graph)
{
    bool has_product = false;
    for (int32_t n = 0; n < graph->node_count && !has_product; n++)
        has_product = graph->nodes[n].op == &qb_op_dot;
    return has_product && graph->node_count >= FEWEST_NODES && !graph->has_effects; /* effects are to happen once */
}

qb_status qb_tile(const qb_graph *graph, qb_graph **out)
{
    *out = NULL;
    if (!may_pay(graph))
        return QB_OK;
    size_t values = (size_t)graph->value_count, widest = 32;
    for (int32_t n = 0; n < graph->node_count; n++)
        widest = (size_t)graph->nodes[n].operand_count > widest ? (size_t)graph->nodes[n].operand_count : widest;
    tiling t = {.source = graph,
                .place = qb_allocate_zeroed(values, sizeof *t.place),
                .axis = qb_allocate_zeroed(values, sizeof *t.axis),
                .sliced = qb_allocate_zeroed(values, sizeof(bool)),
                .whole = qb_allocate_zeroed(values, sizeof(bool)),
                .stacked = qb_allocate_zeroed(values, sizeof(bool)),
                .map = qb_allocate(values * sizeof *t.map)};
    bool *live = qb_allocate(values);
    int8_t *axis = qb_allocate(widest);
    int32_t *last_use = qb_allocate_zeroed(values, sizeof *last_use);
    qb_value *operands = qb_allocate(widest * sizeof *operands);
    bool have = t.place && t.axis && t.sliced && t.whole && t.stacked && t.map && live && axis && last_use && operands;
    qb_status status = have ? tile(&t, live, axis, last_use, operands, out) : qb_fail_memory();
    qb_free(t.place);
    qb_free(t.axis);
    qb_free(t.sliced);
    qb_free(t.whole);
    qb_free(t.stacked);
    qb_free(t.map);
    qb_free(live);
    qb_free(axis);
    qb_free(last_use);
    qb_free(operands);
    return status;
}
