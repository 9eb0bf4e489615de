/* Elements addressed by arrays of indices: reading them (gather), writing them (scatter_*), and writing a regular part
 * of an array (insert, the counterpart of slice).
 *
 * Addressing, common to gather and scatter. `axes` are k distinct ascending axes of an array, and k index arrays of
 * int64, all of one shape [batch..., S...], say where along them; the first `batch` axes of the array and of every
 * index array pair up. So entry (b, s) addresses, for every o and r, the element
 *
 *     array[b, o, ..., i_0[b, s], ..., r, ..., i_1[b, s], ...]
 *
 * where o runs over the axes before the first indexed one, and r over the others behind it. What is addressed is an
 * array of shape [batch..., outer..., S..., inner...]: the axes S stand where the first indexed axis stood.
 *
 * A negative index counts from the end, once. What is out of range then is, by `bounds`, either clamped to the nearest
 * element (QB_BOUNDS_CLAMP), or outside (QB_BOUNDS_DROP): it reads as 0 and is not written. The two ops are transposes
 * of each other with the same bounds, so the cotangent of a clamped read goes to the element that was read.
 *
 * Writes happen in the order of the entries: of several writes to one element scatter_set keeps the last, and
 * scatter_add sums them up in that order, so the result has the same bits in every run. `unique` promises that no
 * element is written twice, which makes derivatives cheaper and changes nothing else. */
#include "cpu/gather.h"
#include "ops/build.h"

#include <string.h>

enum { MOST_OPERANDS = QB_MAX_RANK + 2 };

/* Attributes: gather and scatter begin with the same three. */
enum { AXES, BATCH, BOUNDS, UNIQUE };

/* ---- Axes */

/* The array with its axis `from` moved to the place `to`. */
static qb_value move_axis(qb_graph *g, qb_value value, int from, int to)
{
    if (value < 0)
        return value;
    int64_t order[QB_MAX_RANK];
    int rank = g->values[value].rank;
    for (int place = 0, next = 0; place < rank; place++) {
        next += next == from;
        order[place] = place == to ? from : next++;
    }
    return qb_permute(g, value, rank, order);
}

/* The operand with the batch axis in front. */
static qb_value with_batch(qb_rule *r, int operand)
{
    return r->mapped[operand] ? r->operand[operand]
                              : qb_broadcast_leading(r->graph, r->operand[operand], r->batch_size);
}

/* The attributes with all axes one up, and `batch` more axes that pair. */
static void shift_attributes(const qb_rule *r, int batch, qb_attribute *out, int64_t *axes)
{
    memcpy(out, r->attribute, (size_t)r->op->attribute_count * sizeof *out);
    for (int i = 0; i < r->attribute[AXES].count; i++)
        axes[i] = r->attribute[AXES].integers[i] + 1;
    out[AXES] = qb_ints(r->attribute[AXES].count, axes);
    out[BATCH] = qb_int(r->attribute[BATCH].integer + batch);
}

static bool any_mapped(const qb_rule *r, int first)
{
    for (int i = first; i < r->operand_count; i++)
        if (r->mapped[i])
            return true;
    return false;
}

/* ---- Types */

static qb_status check_axes(const qb_inference *in, int first)
{
    const qb_type *a = &in->operand[0], *index = &in->operand[first];
    const qb_attribute *axes = &in->attribute[AXES];
    int64_t batch = in->attribute[BATCH].integer;
    int count = in->operand_count - first;
    bool valid = count > 0 && axes->count == count && batch >= 0 && batch <= a->rank;
    for (int i = 0; valid && i < count; i++)
        valid = axes->integers[i] >= (i ? axes->integers[i - 1] + 1 : batch) && axes->integers[i] < a->rank;
    if (!valid)
        return qb_fail(QB_ERROR_VALUE,
                       "%s: %d index arrays, axes %s and %lld batch axes do not fit an array of shape %s", in->op->name,
                       count, qb_print_shape(axes->count, axes->integers).text, (long long)batch,
                       qb_print_shape(a->rank, a->shape).text);
    valid = qb_shape_equal((int)batch, a->shape, index->rank < batch ? index->rank : (int)batch, index->shape);
    for (int i = 0; valid && i < count; i++)
        valid = index[i].dtype == QB_INT64 && qb_shape_equal(index->rank, index->shape, index[i].rank, index[i].shape);
    if (!valid)
        return qb_fail(QB_ERROR_VALUE, "%s: index arrays are int64, of one shape that begins with %s; the first is %s",
                       in->op->name, qb_print_shape((int)batch, a->shape).text,
                       qb_print_type(index->dtype, index->rank, index->shape).text);
    return QB_OK;
}

/* The type of what the index arrays, operands from `first` on, address in operand 0. */
static qb_status infer_addressed(const qb_inference *in, int first, qb_type *out)
{
    QB_TRY(check_axes(in, first));
    const qb_type *a = &in->operand[0], *index = &in->operand[first];
    const int64_t *axes = in->attribute[AXES].integers;
    int count = in->operand_count - first, batch = (int)in->attribute[BATCH].integer;
    int rank = a->rank - count + index->rank - batch;
    if (rank > QB_MAX_RANK)
        return qb_fail(QB_ERROR_VALUE, "%s: the result would have %d axes; arrays have %d at most", in->op->name, rank,
                       QB_MAX_RANK);
    out->dtype = a->dtype;
    out->rank = 0;
    for (int axis = 0, next = 0; axis < a->rank; axis++) {
        if (next == count || axis != axes[next]) {
            out->shape[out->rank++] = a->shape[axis];
            continue;
        }
        for (int i = batch; next == 0 && i < index->rank; i++)
            out->shape[out->rank++] = index->shape[i];
        next++;
    }
    int64_t size;
    return qb_shape_size(out->rank, out->shape, qb_dtype_size(out->dtype), &size);
}

/* An array over the entries, [batch..., S...], repeated over all that they address. */
static qb_value spread_entries(qb_graph *g, qb_value entries, const qb_attribute *attribute, const qb_type *addressed)
{
    if (entries < 0)
        return entries;
    int64_t axes[QB_MAX_RANK];
    int batch = (int)attribute[BATCH].integer, outer = (int)attribute[AXES].integers[0] - batch;
    for (int i = 0; i < g->values[entries].rank; i++)
        axes[i] = i < batch ? i : i + outer;
    return qb_broadcast(g, entries, addressed->rank, addressed->shape, axes);
}

/* ---- gather: the addressed elements */

static qb_status gather_infer(const qb_inference *in)
{
    return infer_addressed(in, 1, in->result);
}

static qb_value read_addressed(qb_graph *g, qb_value array, int count, const qb_value *indices,
                               const qb_attribute *attribute)
{
    qb_value operands[MOST_OPERANDS] = {array};
    memcpy(operands + 1, indices, (size_t)count * sizeof *indices);
    return qb_emit(g, &qb_op_gather, count + 1, operands, attribute);
}

static void gather_jvp(qb_rule *r)
{
    if (r->tangent[0] != QB_NONE)
        r->result_tangent[0] =
            read_addressed(r->graph, r->tangent[0], r->operand_count - 1, r->operand + 1, r->attribute);
}

static void gather_transpose(qb_rule *r)
{
    const qb_type *type = &r->operand_type[0];
    qb_value zeros = qb_splat(r->graph, type->dtype, type->rank, type->shape, 0);
    qb_value operands[MOST_OPERANDS] = {zeros, r->cotangent[0]};
    memcpy(operands + 2, r->operand + 1, (size_t)(r->operand_count - 1) * sizeof *operands);
    const qb_attribute attributes[] = {r->attribute[AXES], r->attribute[BATCH], r->attribute[BOUNDS], qb_int(0)};
    r->operand_cotangent[0] = qb_emit(r->graph, &qb_op_scatter_add, r->operand_count + 1, operands, attributes);
}

/* Where only one side has the new axis, the axis takes the place behind those that pair, and is no pair itself: nothing
 * is repeated. */
static void gather_batch(qb_rule *r)
{
    qb_graph *g = r->graph;
    bool array = r->mapped[0], indices = any_mapped(r, 1);
    int batch = (int)r->attribute[BATCH].integer, outer = (int)r->attribute[AXES].integers[0] - batch;
    int64_t axes[QB_MAX_RANK];
    qb_attribute attributes[3];
    qb_value operands[MOST_OPERANDS];
    shift_attributes(r, array && indices, attributes, axes);
    operands[0] = array && !indices ? move_axis(g, r->operand[0], 0, batch) : r->operand[0];
    for (int i = 1; i < r->operand_count; i++) {
        operands[i] = indices ? with_batch(r, i) : r->operand[i];
        if (!array)
            operands[i] = move_axis(g, operands[i], 0, batch);
    }
    qb_value result = qb_emit(g, r->op, r->operand_count, operands, array ? attributes : r->attribute);
    int place = array && indices ? 0 : array ? batch : batch + outer;
    r->batched_result[0] = move_axis(g, result, place, 0);
}

/* Of one number repeated everywhere, every element is that number. */
static qb_value gather_simplify(qb_rule *r)
{
    double number;
    if (!qb_splat_number(r->graph, r->operand[0], &number) ||
        (number != 0 && r->attribute[BOUNDS].integer != QB_BOUNDS_CLAMP))
        return QB_NONE;
    const int64_t *shape = r->graph->values[r->operand[0]].shape;
    for (int i = 0; i < r->attribute[AXES].count; i++)
        if (number != 0 && shape[r->attribute[AXES].integers[i]] == 0)
            return QB_NONE;
    qb_type types[MOST_OPERANDS], result;
    for (int i = 0; i < r->operand_count; i++)
        qb_value_type(r->graph, r->operand[i], &types[i]);
    qb_inference inference = {r->op, r->operand_count, types, r->attribute, &result};
    if (gather_infer(&inference) != QB_OK)
        return QB_NONE;
    const qb_node *node = qb_node_of(r->graph, r->operand[0]); /* the element itself: a double may not hold an int64 */
    qb_value element = node->op == &qb_op_broadcast ? qb_operand(r->graph, node, 0) : r->operand[0];
    return qb_broadcast_to(r->graph, qb_reshape(r->graph, element, 0, NULL), result.rank, result.shape);
}

const qb_op qb_op_gather = {.name = "gather",
                            .summary = "Elements addressed by arrays of indices",
                            .arity = -1,
                            .result_count = 1,
                            .flags = QB_OP_LINEAR | QB_OP_MOVES,
                            .attribute_count = 3,
                            .attribute_name = {"axes", "batch", "bounds"},
                            .lane = QB_LANE_NONE,
                            .infer = gather_infer,
                            .jvp = gather_jvp,
                            .transpose = gather_transpose,
                            .batch = gather_batch,
                            .simplify = gather_simplify,
                            .cpu = qb_gather_run};

qb_value qb_gather(qb_graph *graph, qb_value a, int count, const qb_value *indices, const int64_t *axes, int batch,
                   qb_bounds bounds)
{
    const qb_attribute attributes[] = {qb_ints(count, axes), qb_int(batch), qb_int((int64_t)bounds)};
    return read_addressed(graph, a, count, indices, attributes);
}

/* ---- scatter: a copy of operand 0 with the addressed elements combined with operand 1 */

static qb_status scatter_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0], *updates = &in->operand[1];
    if (in->op != &qb_op_scatter_set && a->dtype == QB_BOOL)
        return qb_fail(QB_ERROR_VALUE, "%s: takes numbers, got bool; convert with astype", in->op->name);
    qb_type addressed = {.rank = 0};
    QB_TRY(infer_addressed(in, 2, &addressed));
    if (updates->dtype != a->dtype || !qb_shape_equal(addressed.rank, addressed.shape, updates->rank, updates->shape))
        return qb_fail(QB_ERROR_VALUE, "%s: the updates are %s, the indices address %s of %s", in->op->name,
                       qb_print_type(updates->dtype, updates->rank, updates->shape).text,
                       qb_print_shape(addressed.rank, addressed.shape).text,
                       qb_print_type(a->dtype, a->rank, a->shape).text);
    *in->result = *a;
    return QB_OK;
}

/* The scatter at the rule's places. */
static qb_value write_addressed(qb_rule *r, const qb_op *op, qb_value array, qb_value updates)
{
    qb_value operands[MOST_OPERANDS] = {array, updates};
    memcpy(operands + 2, r->operand + 2, (size_t)(r->operand_count - 2) * sizeof *operands);
    return qb_emit(r->graph, op, r->operand_count, operands, r->attribute);
}

static qb_value read_at_places(qb_rule *r, qb_value array)
{
    return read_addressed(r->graph, array, r->operand_count - 2, r->operand + 2, r->attribute);
}

/* For scatter_set and scatter_add, which are linear in both. */
static void scatter_linear_jvp(qb_rule *r)
{
    qb_value tangent[2];
    for (int i = 0; i < 2; i++)
        tangent[i] = r->tangent[i] != QB_NONE ? r->tangent[i] : qb_splat_like(r->graph, r->operand[i], 0);
    r->result_tangent[0] = write_addressed(r, r->op, tangent[0], tangent[1]);
}

/* One of the two parts of writers: `first` to the end of `size` along the last axis, as axes of that shape. */
static qb_value part_of_writers(qb_graph *g, qb_value writers, int64_t first, int64_t size, int rank,
                                const int64_t *shape)
{
    int64_t start[QB_MAX_RANK] = {0}, limit[QB_MAX_RANK], step[QB_MAX_RANK];
    if (writers < 0)
        return writers;
    int axes = g->values[writers].rank;
    for (int i = 0; i < axes; i++) {
        limit[i] = g->values[writers].shape[i];
        step[i] = 1;
    }
    start[axes - 1] = first;
    limit[axes - 1] = first + size;
    return qb_reshape(g, qb_slice(g, writers, start, limit, step), rank, shape);
}

/* For each entry, the entry before it that writes the same element, as [batch..., entries]; for each element, the entry
 * that writes it last, as [batch..., extents...]. */
static void find_writers(qb_rule *r, const qb_type *array, const qb_type *index, qb_value *previous, qb_value *last)
{
    int64_t extents[QB_MAX_RANK], shape[QB_MAX_RANK], entries = 1, elements = 1;
    const qb_attribute *axes = &r->attribute[AXES];
    int batch = (int)r->attribute[BATCH].integer;
    for (int i = batch; i < index->rank; i++)
        entries *= index->shape[i];
    for (int i = 0; i < axes->count; i++) {
        extents[i] = array->shape[axes->integers[i]];
        elements *= extents[i];
        shape[batch + i] = extents[i];
    }
    if (batch > 0)
        memcpy(shape, array->shape, (size_t)batch * sizeof *shape);
    const qb_attribute attributes[] = {qb_ints(axes->count, extents), r->attribute[BATCH], r->attribute[BOUNDS]};
    qb_value writers = qb_emit(r->graph, &qb_op_writers, r->operand_count - 2, r->operand + 2, attributes);
    *last = part_of_writers(r->graph, writers, entries, elements, batch + axes->count, shape);
    shape[batch] = entries;
    *previous = part_of_writers(r->graph, writers, 0, entries, batch + 1, shape);
}

/* The number of every entry among those that share its batch axes, in the shape of an index array. */
static qb_value number_entries(qb_graph *g, const qb_type *index, int batch)
{
    int64_t count = 1;
    for (int i = batch; i < index->rank; i++)
        count *= index->shape[i];
    qb_value flat = qb_iota(g, QB_INT64, 1, &count, 0);
    qb_value numbers = qb_reshape(g, flat, index->rank - batch, index->shape + batch);
    return qb_broadcast_to(g, numbers, index->rank, index->shape);
}

static void scatter_set_transpose(qb_rule *r)
{
    qb_graph *g = r->graph;
    const qb_type *array = &r->operand_type[0], *updates = &r->operand_type[1];
    qb_value zeros = qb_splat(g, updates->dtype, updates->rank, updates->shape, 0);
    if (r->linear[0])
        r->operand_cotangent[0] = write_addressed(r, r->op, r->cotangent[0], zeros);
    if (!r->linear[1])
        return;
    qb_value read = read_at_places(r, r->cotangent[0]);
    if (!r->attribute[UNIQUE].integer) { /* only the last write of an element has a part in it */
        int batch = (int)r->attribute[BATCH].integer, count = r->operand_count - 2;
        int64_t axes[QB_MAX_RANK];
        for (int i = 0; i < count; i++)
            axes[i] = batch + i;
        qb_value previous, last;
        find_writers(r, array, &r->operand_type[2], &previous, &last);
        qb_value winner =
            qb_gather(g, last, count, r->operand + 2, axes, batch, (qb_bounds)r->attribute[BOUNDS].integer);
        qb_value wins = qb_equal(g, winner, number_entries(g, &r->operand_type[2], batch));
        read = qb_select(g, spread_entries(g, wins, r->attribute, updates), read, zeros);
    }
    r->operand_cotangent[1] = read;
}

static void scatter_add_transpose(qb_rule *r)
{
    if (r->linear[0])
        r->operand_cotangent[0] = r->cotangent[0];
    if (r->linear[1])
        r->operand_cotangent[1] = read_at_places(r, r->cotangent[0]);
}

static qb_value scatter_add_simplify(qb_rule *r)
{
    double number;
    return qb_splat_number(r->graph, r->operand[1], &number) && number == 0 ? r->operand[0] : QB_NONE;
}

/* Replaces the updates u of every element by their running products in the order of the entries, and the tangents t by
 * those of the products. By pointer jumping (Wyllie, 1979): after step d, an entry holds the product of up to 2^d
 * entries that end with it, and `previous` is the entry before those. So nothing is divided, zeros are exact, and the
 * number of nodes grows with the logarithm of the number of entries. */
static void running_products(qb_rule *r, qb_value *u, qb_value *t)
{
    qb_graph *g = r->graph;
    qb_type array, type, index;
    qb_value_type(g, r->operand[0], &array);
    qb_value_type(g, r->operand[1], &type);
    qb_value_type(g, r->operand[2], &index);
    int batch = (int)r->attribute[BATCH].integer;
    int64_t axis = r->attribute[AXES].integers[0], entries = 1; /* the axes S stand there */
    int rank = index.rank - batch;
    for (int i = batch; i < index.rank; i++)
        entries *= index.shape[i];
    qb_type flat = type, links = index; /* the axes S as one */
    flat.rank = type.rank - rank + 1;
    flat.shape[axis] = entries;
    for (int i = (int)axis + rank; i < type.rank; i++)
        flat.shape[i - rank + 1] = type.shape[i];
    links.rank = batch + 1;
    links.shape[batch] = entries;
    qb_value previous, last, p = qb_reshape(g, *u, flat.rank, flat.shape), q = qb_reshape(g, *t, flat.rank, flat.shape);
    find_writers(r, &array, &index, &previous, &last);
    qb_value none = qb_splat(g, QB_INT64, links.rank, links.shape, (double)entries), one = qb_splat_like(g, p, 1);
    const int64_t link_axis = batch;
    for (int64_t reach = 1; reach < entries && p >= 0 && q >= 0; reach *= 2) {
        qb_value linked = qb_less(g, previous, none);
        qb_value p0 = qb_gather(g, p, 1, &previous, &axis, batch, QB_BOUNDS_DROP);
        qb_value q0 = qb_gather(g, q, 1, &previous, &axis, batch, QB_BOUNDS_DROP); /* 0 where there is none */
        p0 = qb_select(g, spread_entries(g, linked, r->attribute, &flat), p0, one);
        q = qb_add(g, qb_strong_mul(g, q, p0), qb_strong_mul(g, p, q0));
        p = qb_mul(g, p, p0);
        qb_value next = qb_gather(g, previous, 1, &previous, &link_axis, batch, QB_BOUNDS_DROP);
        previous = qb_select(g, linked, next, none);
    }
    *u = qb_reshape(g, p, type.rank, type.shape);
    *t = qb_reshape(g, q, type.rank, type.shape);
}

/* An element becomes a f, f the product of its updates: the tangent is da f + a df. */
static void scatter_mul_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value one = qb_splat_like(g, r->operand[0], 1);
    qb_value by_array = QB_NONE, by_updates = QB_NONE, factor;
    if (r->tangent[1] != QB_NONE) {
        qb_value products = r->operand[1], tangents = r->tangent[1];
        if (!r->attribute[UNIQUE].integer)
            running_products(r, &products, &tangents);
        /* the last write is the product of all */
        factor = write_addressed(r, &qb_op_scatter_set, one, products);
        qb_value change = write_addressed(r, &qb_op_scatter_set, qb_splat_like(g, r->operand[0], 0), tangents);
        by_updates = qb_strong_mul(g, r->operand[0], change);
    } else {
        factor = write_addressed(r, r->op, one, r->operand[1]);
    }
    if (r->tangent[0] != QB_NONE)
        by_array = qb_strong_mul(g, r->tangent[0], factor);
    r->result_tangent[0] = by_array == QB_NONE     ? by_updates
                           : by_updates == QB_NONE ? by_array
                                                   : qb_add(g, by_array, by_updates);
}

/* All that equal the extremum, the array's own element among them, share the derivative evenly. */
static void scatter_extremum_jvp(qb_rule *r)
{
    qb_graph *g = r->graph;
    qb_value array = r->operand[0], updates = r->operand[1];
    qb_value chosen[2] = {qb_equal(g, array, r->result[0]), qb_equal(g, updates, read_at_places(r, r->result[0]))};
    chosen[0] =
        qb_bit_or(g, chosen[0], qb_not_equal(g, array, array)); /* a NaN where nothing is written stays itself */
    qb_value count[2], sum[2];
    for (int i = 0; i < 2; i++) {
        qb_value zero = qb_splat_like(g, r->operand[i], 0), one = qb_splat_like(g, r->operand[i], 1);
        count[i] = qb_select(g, chosen[i], one, zero);
        sum[i] = r->tangent[i] == QB_NONE ? zero : qb_select(g, chosen[i], r->tangent[i], zero);
    }
    qb_value ties = write_addressed(r, &qb_op_scatter_add, count[0], count[1]);
    qb_value total = write_addressed(r, &qb_op_scatter_add, sum[0], sum[1]);
    r->result_tangent[0] = qb_strong_div(g, total, ties);
}

static void scatter_batch(qb_rule *r)
{
    qb_graph *g = r->graph;
    bool indices = any_mapped(r, 2);
    int batch = (int)r->attribute[BATCH].integer;
    int64_t axes[QB_MAX_RANK];
    qb_attribute attributes[4];
    qb_value operands[MOST_OPERANDS];
    shift_attributes(r, indices, attributes, axes);
    for (int i = 0; i < 2; i++) {
        operands[i] = with_batch(r, i);
        if (!indices)
            operands[i] = move_axis(g, operands[i], 0, batch);
    }
    for (int i = 2; i < r->operand_count; i++)
        operands[i] = indices ? with_batch(r, i) : r->operand[i];
    qb_value result = qb_emit(g, r->op, r->operand_count, operands, attributes);
    r->batched_result[0] = indices ? result : move_axis(g, result, batch, 0);
}

/* One for each update. */
static double update_flops(const qb_graph *graph, const qb_node *node)
{
    return (double)qb_value_size(graph, qb_operand(graph, node, 1));
}

#define SCATTER(kind, text, op_flags, op_flops_rule, op_jvp, op_transpose, op_simplify)                                \
    const qb_op qb_op_scatter_##kind = {.name = "scatter_" #kind,                                                      \
                                        .summary = text,                                                               \
                                        .arity = -1,                                                                   \
                                        .result_count = 1,                                                             \
                                        .flags = QB_OP_OVERWRITES | (op_flags),                                        \
                                        .attribute_count = 4,                                                          \
                                        .attribute_name = {"axes", "batch", "bounds", "unique"},                       \
                                        .lane = QB_LANE_NONE,                                                          \
                                        .flops = op_flops_rule,                                                        \
                                        .infer = scatter_infer,                                                        \
                                        .jvp = op_jvp,                                                                 \
                                        .transpose = op_transpose,                                                     \
                                        .batch = scatter_batch,                                                        \
                                        .simplify = op_simplify,                                                       \
                                        .cpu = qb_scatter_##kind##_run};

SCATTER(set, "Addressed elements replaced, the last write kept", QB_OP_LINEAR | QB_OP_MOVES, NULL, scatter_linear_jvp,
        scatter_set_transpose, NULL)
SCATTER(add, "Updates added to the addressed elements, in the order of the entries", QB_OP_LINEAR, update_flops,
        scatter_linear_jvp, scatter_add_transpose, scatter_add_simplify)
SCATTER(mul, "Addressed elements multiplied by the updates", 0, update_flops, scatter_mul_jvp, NULL, NULL)
SCATTER(max, "Addressed elements or updates, whichever is larger; ties share the derivative", 0, update_flops,
        scatter_extremum_jvp, NULL, NULL)
SCATTER(min, "Addressed elements or updates, whichever is smaller; ties share the derivative", 0, update_flops,
        scatter_extremum_jvp, NULL, NULL)

qb_value qb_scatter(qb_graph *graph, const qb_op *op, qb_value a, qb_value updates, int count, const qb_value *indices,
                    const int64_t *axes, int batch, qb_bounds bounds, bool unique)
{
    qb_value operands[MOST_OPERANDS] = {a, updates};
    memcpy(operands + 2, indices, (size_t)count * sizeof *indices);
    const qb_attribute attributes[] = {qb_ints(count, axes), qb_int(batch), qb_int((int64_t)bounds), qb_int(unique)};
    return qb_emit(graph, op, count + 2, operands, attributes);
}

/* ---- writers: which of the n entries write the same one of m elements. The result is [batch..., n + m]: for each
 * entry the one before it that writes the same element, then for each element the one that writes it last. Entries
 * are numbered 0 to n - 1 along S; n: none. */

static qb_status writers_infer(const qb_inference *in)
{
    const qb_type *index = &in->operand[0];
    const qb_attribute *extents = &in->attribute[0];
    int64_t batch = in->attribute[BATCH].integer, size, entries = 1, elements;
    bool valid = in->operand_count > 0 && extents->count == in->operand_count && batch >= 0 && batch <= index->rank &&
                 batch < QB_MAX_RANK;
    for (int i = 0; valid && i < in->operand_count; i++)
        valid = in->operand[i].dtype == QB_INT64 &&
                qb_shape_equal(index->rank, index->shape, in->operand[i].rank, in->operand[i].shape);
    if (!valid)
        return qb_fail(QB_ERROR_VALUE, "writers: %d index arrays do not fit axes of extents %s", in->operand_count,
                       qb_print_shape(extents->count, extents->integers).text);
    QB_TRY(qb_shape_size(extents->count, extents->integers, sizeof(int64_t), &elements));
    for (int i = (int)batch; i < index->rank; i++)
        entries *= index->shape[i];
    qb_type_set(in->result, QB_INT64, (int)batch, index->shape);
    in->result->shape[in->result->rank++] = entries + elements;
    return qb_shape_size(in->result->rank, in->result->shape, sizeof(int64_t), &size);
}

static void writers_batch(qb_rule *r)
{
    qb_value operands[MOST_OPERANDS];
    for (int i = 0; i < r->operand_count; i++)
        operands[i] = with_batch(r, i);
    const qb_attribute attributes[] = {r->attribute[0], qb_int(r->attribute[BATCH].integer + 1), r->attribute[BOUNDS]};
    r->batched_result[0] = qb_emit(r->graph, r->op, r->operand_count, operands, attributes);
}

const qb_op qb_op_writers = {.name = "writers",
                             .summary = "Which entries of index arrays address the same element",
                             .arity = -1,
                             .result_count = 1,
                             .flags = QB_OP_FLAT,
                             .attribute_count = 3,
                             .attribute_name = {"extents", "batch", "bounds"},
                             .lane = QB_LANE_NONE,
                             .infer = writers_infer,
                             .batch = writers_batch,
                             .cpu = qb_writers_run};

/* ---- insert: a copy of operand 0 whose elements start, start + step, ... (per axis) are operand 1 */

static qb_status insert_infer(const qb_inference *in)
{
    const qb_type *a = &in->operand[0], *part = &in->operand[1];
    const qb_attribute *start = &in->attribute[0], *step = &in->attribute[1];
    bool valid = a->dtype == part->dtype && a->rank == part->rank && start->count == a->rank && step->count == a->rank;
    for (int i = 0; valid && i < a->rank; i++) {
        int64_t first = start->integers[i], stride = step->integers[i], count = part->shape[i];
        valid = first >= 0 && stride >= 1 && count <= a->shape[i] &&
                (count == 0 || (first < a->shape[i] && count - 1 <= (a->shape[i] - 1 - first) / stride));
    }
    if (!valid)
        return qb_fail(QB_ERROR_VALUE, "insert: %s at start %s, step %s does not fit into %s",
                       qb_print_type(part->dtype, part->rank, part->shape).text,
                       qb_print_shape(start->count, start->integers).text,
                       qb_print_shape(step->count, step->integers).text,
                       qb_print_type(a->dtype, a->rank, a->shape).text);
    *in->result = *a;
    return QB_OK;
}

static void insert_jvp(qb_rule *r)
{
    qb_value tangent[2];
    for (int i = 0; i < 2; i++)
        tangent[i] = r->tangent[i] != QB_NONE ? r->tangent[i] : qb_splat_like(r->graph, r->operand[i], 0);
    r->result_tangent[0] = qb_emit(r->graph, r->op, 2, tangent, r->attribute);
}

static void insert_transpose(qb_rule *r)
{
    const qb_type *part = &r->operand_type[1];
    const int64_t *start = r->attribute[0].integers, *step = r->attribute[1].integers;
    int64_t first[QB_MAX_RANK], limit[QB_MAX_RANK];
    for (int i = 0; i < part->rank; i++) {
        first[i] = part->shape[i] > 0 ? start[i] : 0;
        limit[i] = part->shape[i] > 0 ? start[i] + (part->shape[i] - 1) * step[i] + 1 : 0;
    }
    if (r->linear[0]) {
        qb_value zeros = qb_splat(r->graph, part->dtype, part->rank, part->shape, 0);
        r->operand_cotangent[0] = qb_insert(r->graph, r->cotangent[0], zeros, start, step);
    }
    if (r->linear[1])
        r->operand_cotangent[1] = qb_slice(r->graph, r->cotangent[0], first, limit, step);
}

static void insert_batch(qb_rule *r)
{
    int64_t start[QB_MAX_RANK + 1] = {0}, step[QB_MAX_RANK + 1] = {1};
    int rank = r->attribute[0].count;
    for (int i = 0; i < rank; i++) {
        start[i + 1] = r->attribute[0].integers[i];
        step[i + 1] = r->attribute[1].integers[i];
    }
    qb_value array = with_batch(r, 0), part = with_batch(r, 1);
    r->batched_result[0] = qb_insert(r->graph, array, part, start, step);
}

const qb_op qb_op_insert = {.name = "insert",
                            .summary = "A regular part of the array replaced",
                            .arity = 2,
                            .result_count = 1,
                            .flags = QB_OP_LINEAR | QB_OP_OVERWRITES | QB_OP_MOVES,
                            .attribute_count = 2,
                            .attribute_name = {"start", "step"},
                            .lane = QB_LANE_NONE,
                            .infer = insert_infer,
                            .jvp = insert_jvp,
                            .transpose = insert_transpose,
                            .batch = insert_batch,
                            .cpu = qb_insert_run};

qb_value qb_insert(qb_graph *graph, qb_value a, qb_value part, const int64_t *start, const int64_t *step)
{
    if (a < 0 || part < 0)
        return a < 0 ? a : part;
    const qb_value_info *whole = &graph->values[a], *info = &graph->values[part];
    if (whole->dtype == info->dtype && qb_shape_equal(whole->rank, whole->shape, info->rank, info->shape))
        return part; /* all of it, which only start 0 and step 1 allow */
    if (qb_value_size(graph, part) == 0 && whole->dtype == info->dtype && whole->rank == info->rank)
        return a;
    const qb_attribute attributes[] = {qb_ints(info->rank, start), qb_ints(info->rank, step)};
    return qb_emit(graph, &qb_op_insert, 2, (qb_value[]){a, part}, attributes);
}
